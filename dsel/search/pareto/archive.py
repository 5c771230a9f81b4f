"""The archive of POSS (Qian, Yu, Zhou 2015, Algorithm 2, lines 1 and 6 to 9), for any criterion and isolation.

What the searches share that keep their archive on the client and send its snapshots to workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal
from uuid import uuid4

from dsel.search.ask_tell import AskTell
from dsel.search.outcome import FrontPoint, Improvement, improving

#: Local column indices, ascending.
Subset = tuple[int, ...]
#: Subsets compete only where this function has the same value. It is not called for the empty set.
IsolationFunction = Callable[[Subset], Hashable]


def together(members: Subset) -> Hashable:
    """Return one value for all subsets, so that all compete (the paper's default, I = 0)."""
    return 0


def min_index(members: Subset) -> Hashable:
    """Return the least column, so that only subsets that share it compete (the paper's Theorem 2)."""
    return members[0]


#: Isolation functions that have a name.
Isolation = Literal["none", "min-index"]
ISOLATIONS: dict[str, IsolationFunction] = {"none": together, "min-index": min_index}


class ParetoArchive:
    """Subsets that do not dominate each other in (o1, o2) = (f(S), |S|), oldest first.

    The empty set is always first. o1 is +inf for the empty set and for subsets of 2k columns and more. Other subsets
    with o1 = +inf are never archived: the empty set dominates them, or, alone in their class, they are no answer.

    Parameters
    ----------
    k : int
        The size limit.
    isolation : callable
        Subsets compete only where it has the same value.
    """

    def __init__(self, k: int, isolation: IsolationFunction = together) -> None:
        self.k = k
        self.isolation = isolation
        self._points = [FrontPoint(0, math.inf, ())]
        self._classes: dict[Hashable, list[FrontPoint]] = {}

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, place: int) -> FrontPoint:
        return self._points[place]

    @property
    def points(self) -> list[FrontPoint]:
        """The solutions, oldest first."""
        return list(self._points)

    def offer(self, members: Iterable[int], value: float) -> bool:
        """Offer a subset to the archive (lines 6 to 9), and return whether it was archived.

        It is refused if a solution strictly dominates it. Solutions that it weakly dominates are removed, so that of
        two subsets with equal objectives the later one stays. The same subset keeps its place.
        """
        S = tuple(sorted(set(members)))
        if not self.admits(S, value):
            return False
        new = FrontPoint(len(S), value, S)
        isolated = self.isolation(S)
        rivals = self._classes.get(isolated, [])
        if any(z.members == S for z in rivals):
            return False
        dropped = {z.members for z in rivals if value <= z.value and len(S) <= z.size}
        self._classes[isolated] = [z for z in rivals if z.members not in dropped] + [new]
        if dropped:
            self._points = [z for z in self._points if z.members not in dropped]
        self._points.append(new)
        return True

    def admits(self, members: Subset, value: float) -> bool:
        """Return whether no solution strictly dominates a subset of ascending columns (line 7)."""
        if not 0 < len(members) < 2 * self.k or not value < math.inf:
            return False
        new = (value, len(members))
        rivals = self._classes.get(self.isolation(members), [])
        return not any(z.value <= value and z.size <= len(members) and (z.value, z.size) != new for z in rivals)

    def best(self, k: int | None = None) -> FrontPoint:
        """Return the solution of least f with at most k columns (line 12), the smallest of equal ones."""
        limit = self.k if k is None else k
        return min((z for z in self._points if z.size <= limit), key=lambda z: (z.value, z.size))

    def state(self) -> list[list[Any]]:
        """Return the solutions except the empty set, oldest first, as JSON holds them."""
        return [[list(z.members), z.value] for z in self._points[1:]]

    @classmethod
    def restore(cls, k: int, state: list[list[Any]], isolation: IsolationFunction = together) -> ParetoArchive:
        """Return the archive as it was when `state` was saved."""
        archive = cls(k, isolation)
        for members, value in state:
            archive.offer(members, value)
        return archive


#: (subset, f) of an archive, oldest first, without the empty set.
Solutions = tuple[tuple[Subset, float], ...]


class ClientArchive(AskTell):
    """The archive of a search whose tasks run on workers, with its improvements and the keys of the tasks.

    Parameters
    ----------
    k : int
        The size limit.
    isolation : callable
        Subsets compete only where this function of a subset has the same value.
    empty_value : float
        f of the empty set.
    limit : int, optional
        Subsets of fewer than twice as many columns are archived; by default k.

    Attributes
    ----------
    iteration : int
        The iterations or steps so far, as the subclass counts them.
    last_gain : int
        The iteration or step at which `best_value` last decreased.
    """

    def __init__(self, k: int, isolation: IsolationFunction, empty_value: float, limit: int | None = None) -> None:
        self.k, self._empty_value = k, empty_value
        self.archive = ParetoArchive(limit or k, isolation)
        self.iteration = 0
        self.last_gain = 0
        self._trace: list[Improvement] = []
        self._events: list[tuple[Subset, float]] = []
        self._name, self._sent = uuid4().hex[:8], 0

    def _next_key(self) -> str:
        """Return the key of the next task."""
        self._sent += 1
        return f"{self._name}-{self._sent}"

    @property
    def empty_value(self) -> float:
        """f of the empty set."""
        return self._empty_value

    @property
    def best_value(self) -> float:
        """Smallest f among the archived subsets of at most k columns, including the empty one."""
        return self._trace[-1].value if self._trace else self.empty_value

    @property
    def solutions(self) -> int:
        """Number of solutions in the archive."""
        return len(self.archive)

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of `best_value`."""
        return tuple(self._trace)

    @property
    def archived(self) -> list[FrontPoint]:
        """The archive, oldest solution first, including the empty set."""
        return [FrontPoint(0, self.empty_value, ()), *self.archive.points[1:]]

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the best subset of each size up to 2k - 1 that is better than all smaller ones, in ascending size."""
        return improving(self.archived)

    def drain_events(self) -> list[tuple[Subset, float]]:
        """Return the subsets with f that were told, or that the archive has accepted, since the last call."""
        events, self._events = self._events, []
        return events

    def _solutions(self) -> Solutions:
        return tuple((z.members, z.value) for z in self.archive.points[1:])

    def _put(self, members: Subset, value: float, iteration: int, *, event: bool = True) -> bool:
        """Offer the archive a subset with its f, and return whether it was archived. event: note that for a journal."""
        before = self.best_value
        archived = self.archive.offer(members, value)
        if archived:
            if event:
                self._events.append((members, value))
            if len(members) <= self.k and value < before:
                self._trace.append(Improvement(iteration, len(members), value))
                self.last_gain = iteration
        return archived

    def _archive_state(self) -> dict[str, Any]:
        """Return the archive and its improvements as JSON values."""
        return {"last_gain": self.last_gain, "solutions": self.archive.state(), "trace": trace_rows(self._trace)}

    def _restore_archive(self, state: dict[str, Any]) -> None:
        """Restore what `_archive_state` returned."""
        self.archive = ParetoArchive.restore(self.k, state["solutions"], self.archive.isolation)
        self.last_gain, self._trace = state["last_gain"], [Improvement(*row) for row in state["trace"]]


def trace_rows(trace: Iterable[Improvement]) -> list[list[Any]]:
    """Return improvements as JSON values, which ``Improvement(*row)`` takes."""
    return [[gain.iteration, gain.size, gain.value] for gain in trace]

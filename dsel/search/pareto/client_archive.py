"""What the searches share that keep their archive on the client and send its snapshots to workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from dsel.objective.base import Objective
from dsel.search.outcome import FrontPoint, Improvement, improving
from dsel.search.pareto.archive import ISOLATIONS, Isolation, ParetoArchive, Subset
from dsel.search.pareto.archive_memory import size_limit
from dsel.search.runtime.ask_tell import AskTell

#: (subset, f) of an archive, oldest first, without the empty set.
Solutions = tuple[tuple[Subset, float], ...]


class ClientArchive(AskTell):
    """The archive of a search whose tasks run on workers, with its improvements and the keys of the tasks.

    Parameters
    ----------
    objective : Objective
        f(S) over n candidate columns.
    k : int
        The size limit.
    isolation : {"none", "min-index"}
        Compare all subsets, or only those with the same least index.
    any_size : bool
        Archive subsets of any size, not only of fewer than 2k columns.

    Attributes
    ----------
    iteration : int
        The iterations or steps so far, as the subclass counts them.
    last_gain : int
        The iteration or step at which `best_value` last decreased.
    """

    def __init__(self, objective: Objective, k: int, isolation: Isolation = "none", any_size: bool = False) -> None:
        self.objective, self.k = objective, k
        self.archive = ParetoArchive(size_limit(k, objective.n, any_size), ISOLATIONS[isolation])
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
    def best_value(self) -> float:
        """Smallest f among the archived subsets of at most k columns, including the empty one."""
        return self._trace[-1].value if self._trace else self.objective.c

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

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
        return [FrontPoint(0, self.objective.c, ()), *self.archive.points[1:]]

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the best subset of each size up to 2k - 1 that is better than all smaller ones, in ascending size."""
        return improving(self.archived)

    def drain_events(self) -> list[tuple[Subset, float]]:
        """Return what the archive has accepted since the last call, for a journal."""
        events, self._events = self._events, []
        return events

    def _solutions(self) -> Solutions:
        return tuple((z.members, z.value) for z in self.archive.points[1:])

    def _put(self, members: Subset, value: float, iteration: int) -> bool:
        """Offer the archive a subset with its f, and return whether it was archived."""
        before = self.best_value
        archived = self.archive.offer(members, value)
        if archived:
            self._events.append((members, value))
            if len(members) <= self.k and value < before:
                self._trace.append(Improvement(iteration, len(members), value))
                self.last_gain = iteration
        return archived


def trace_rows(trace: Iterable[Improvement]) -> list[list[Any]]:
    """Return improvements as JSON values, which ``Improvement(*row)`` takes."""
    return [[gain.iteration, gain.size, gain.value] for gain in trace]

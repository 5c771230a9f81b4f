"""PPOSS-asy (IJCAI 2016, end of section 3.4): each processor repeats lines 4 to 10 of POSS on the shared archive
without waiting for the others, and a shared count ends all at floor(2 e k^2 n).

The results depend on the order in which answers come in; with one worker and one subset at a time it is POSS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from dsel.objective.base import Objective
from dsel.search.base import FrontPoint, Improvement, improving
from dsel.search.parallel.executor import Slice, Task
from dsel.search.parallel.synchronous import Asking
from dsel.search.pareto.archive import ISOLATIONS, Isolation, IsolationFunction, ParetoArchive, Subset

#: Subsets of one task that may be drawn from an archive still young, where values cost next to nothing.
_YOUNG = 64

#: Iterations drawn in one call where none of them needs an evaluation.
_DRAWS = 10_000


class AsyncPposs(Asking):
    """PPOSS-asy on any criterion, by ask and tell: iteration t draws from (seed, t) and the archive as it is then.

    `iteration` is the shared count: iterations begun.
    """

    @property
    def completed(self) -> int:
        """Iterations that no longer wait for a value."""
        return self.iteration - len(self._out) - len(self._open)

    def finished(self, limit: int) -> bool:
        """Whether the count has come to its end and all values are in."""
        return self.iteration >= limit and not self.waiting

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """The subsets of the next iterations that need a value, at most `most`, fewer near the end.

        None where nothing needs one, for some thousand iterations or because the count is at its end.
        """
        size = min(most, max(most // 4, math.ceil((limit - self.iteration) / (2 * workers)), 1))
        # What is drawn from one archive cannot build on each other: all that is out stays a share of what was done.
        size = min(size, max(_YOUNG, self.iteration // (8 * workers)))
        until = min(limit, self.iteration + _DRAWS)
        while len(self._open) < size and self.iteration < until:
            S = self._offspring_of(self._parent(self.iteration), self.iteration)
            if S is not None and S in self._values:
                self._recalled += 1
                if self._put(S, self._values[S]):  # an equal one had taken its place
                    self._events.append((S, self._values[S]))
            elif S is not None and (S in self._out or S in self._open):
                self._recalled += 1  # it is archived when its value comes in
            elif S is not None:
                self._open.append(S)
            self.iteration += 1
        return self._next_task(size)

    def tell(self, task: Task, values: Sequence[Any]) -> None:
        """f of the task's subsets (of the first ones, where fewer): put before the archive as it is now."""
        for S in self._come_back(task, values):
            self._put(S, self._values[S])

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, with the subsets that are out."""
        pending = [S for subsets in self._away.values() for S in subsets] + self._open
        return {**super().state(), "pending": [list(S) for S in pending]}

    @classmethod
    def restore(cls, state: dict[str, Any], isolation: IsolationFunction | None = None) -> AsyncPposs:
        """The search as it was when `state` was taken; what was out then is asked first. `isolation` where it had a
        function of its own."""
        chosen = cls.isolation_of(state, isolation)
        search = cls(state["n"], state["k"], seed=state["seed"], isolation=chosen)._load(state)
        search._open = [tuple(S) for S in state["pending"]]
        return search

    def recall(self, values: Mapping[Subset, float]) -> None:
        """Values that are known from before; what is open and known is put before the archive at once."""
        super().recall(values)
        for S in [S for S in self._open if S in self._values]:
            self._put(S, self._values[S])
        self._open = [S for S in self._open if S not in self._values]


class SlicedPposs:
    """PPOSS-asy on a quadratic objective: a task is a slice of iterations on a snapshot of the archive.

    Iteration t draws from (seed, t) whoever runs it. What comes back is what a worker has that the snapshot did not; it
    is put before the archive as it is by then. Nothing but this archive is ever saved.
    """

    #: Iterations of a first slice, before their time is known.
    first_units = 2000

    def __init__(self, objective: Objective, k: int, *, seed: int = 0, isolation: Isolation = "none") -> None:
        self.objective = objective
        self.k = k
        self.seed = seed
        self.isolation: Isolation = isolation
        self.archive = ParetoArchive(k, ISOLATIONS[isolation])
        self.iteration = 0
        self.last_gain = 0
        self._trace: list[Improvement] = []
        self._open: list[tuple[int, int]] = []
        self._away: dict[str, tuple[int, int]] = {}
        self._events: list[tuple[Subset, float]] = []
        self._merged = self._accepted = 0
        self._name, self._sent = uuid4().hex[:8], 0

    @property
    def best_value(self) -> float:
        """Least f among the archived subsets of at most k columns, the empty one included."""
        return self._trace[-1].value if self._trace else self.objective.c

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def evaluations(self) -> int:
        """Iterations whose outcome is in: each valued one offspring."""
        return self.iteration - sum(stop - start for start, stop in [*self._open, *self._away.values()])

    @property
    def completed(self) -> int:
        """Iterations whose outcome is in."""
        return self.evaluations

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of `best_value`."""
        return tuple(self._trace)

    @property
    def archived(self) -> list[FrontPoint]:
        """The archive, oldest solution first, the empty set included."""
        return [FrontPoint(0, self.objective.c, ()), *self.archive.points[1:]]

    def front(self) -> tuple[FrontPoint, ...]:
        """The best subset of every size up to 2k - 1 that beats all smaller ones, the empty set first."""
        return improving(self.archived)

    def counts(self) -> dict[str, int]:
        """Survivors that came in, those of them that were archived, and the archive's size."""
        return {"merged": self._merged, "accepted": self._accepted, "archive": len(self.archive)}

    @property
    def waiting(self) -> bool:
        """Whether iterations are out, or to be made again."""
        return bool(self._away or self._open)

    def finished(self, limit: int) -> bool:
        """Whether the shared count has come to its end and all slices are in."""
        return self.iteration >= limit and not self.waiting

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """The next slice of at most `most` iterations, shorter near the end so that all workers end together."""
        size = min(most, max(most // 16, math.ceil((limit - self.iteration) / (2 * workers)), 1))
        if self._open:
            start, end = self._open.pop(0)
            stop = min(start + size, end)
            if stop < end:
                self._open.insert(0, (stop, end))
        elif self.iteration < limit:
            start, stop = self.iteration, min(self.iteration + size, limit)
            self.iteration = stop
        else:
            return None
        self._sent += 1
        task = Task(f"{self._name}-{self._sent}", Slice(start, stop, self._snapshot()))
        self._away[task.key] = (start, stop)
        return task

    def _snapshot(self) -> tuple[tuple[Subset, float], ...]:
        return tuple((z.members, z.value) for z in self.archive.points[1:])

    def tell(self, task: Task, survivors: Sequence[tuple[Subset, float]]) -> None:
        """What a worker has that the snapshot of the slice did not, in the order in which it was found."""
        _, stop = self._away.pop(task.key)
        for S, f in survivors:
            before = self.best_value
            self._merged += 1
            if self.archive.offer(S, f):
                self._accepted += 1
                self._events.append((S, f))
                if len(S) <= self.k and f < before:
                    self._trace.append(Improvement(stop, len(S), f))
                    self.last_gain = self.iteration

    def drain_events(self) -> list[tuple[Subset, float]]:
        """What was put before the archive since the last call: for a journal."""
        events, self._events = self._events, []
        return events

    def requeue(self, task: Task, suspect: bool) -> None:
        """The slice was lost: its iterations are made again."""
        self._open.append(self._away.pop(task.key))

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON would hold it, with the iterations that are out."""
        return {
            "k": self.k,
            "n": self.objective.n,
            "seed": self.seed,
            "isolation": self.isolation,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "merged": self._merged,
            "accepted": self._accepted,
            "pending": [list(part) for part in [*self._away.values(), *self._open]],
            "solutions": self.archive.state(),
            "trace": [[t.iteration, t.size, t.value] for t in self._trace],
        }

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any]) -> SlicedPposs:
        """The search as it was when `state` was taken; what was out then is made again."""
        search = cls(objective, state["k"], seed=state["seed"], isolation=state.get("isolation", "none"))
        search.archive = ParetoArchive.restore(state["k"], state["solutions"], ISOLATIONS[search.isolation])
        search.iteration, search.last_gain = state["iteration"], state["last_gain"]
        search._merged, search._accepted = state["merged"], state["accepted"]
        search._open = [(start, stop) for start, stop in state["pending"]]
        search._trace = [Improvement(*row) for row in state["trace"]]
        return search

"""PPOSS-asy, the asynchronous parallel POSS (Qian et al., IJCAI 2016, end of section 3.4).

Each processor repeats lines 4 to 10 of POSS on the shared archive and does not wait for the others. A shared counter
ends the search after floor(2 e k^2 n) iterations. The result depends on the order in which values arrive. With one
worker and one subset at a time, the search is POSS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dsel.objective.base import Objective
from dsel.search.outcome import Improvement
from dsel.search.parallel.client_archive import ClientArchive, trace_rows
from dsel.search.parallel.executor import Slice, Task
from dsel.search.parallel.synchronous import AskTellMemo
from dsel.search.pareto.archive import ISOLATIONS, Isolation, IsolationFunction, ParetoArchive, Subset

#: Subsets per task at the beginning, when the archive is small.
_FIRST_SUBSETS = 64

#: Iterations that one call may draw if none of them needs an evaluation.
_DRAWS = 10_000


class AsyncPposs(AskTellMemo):
    """PPOSS-asy on any criterion, by ask and tell.

    Iteration t draws from (seed, t) and the archive at that moment. `iteration` is the shared counter: iterations
    started.
    """

    @property
    def completed(self) -> int:
        """Number of iterations that do not wait for a value."""
        return self.iteration - len(self._out) - len(self._open)

    def finished(self, limit: int) -> bool:
        """Return whether all iterations have started and all values have arrived."""
        return self.iteration >= limit and not self.waiting

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Return the next subsets that need a value, at most `most`, fewer near the end.

        Return None if none of the next 10,000 iterations needs one, or if all iterations have started.
        """
        size = min(most, max(most // 4, math.ceil((limit - self.iteration) / (2 * workers)), 1))
        # Subsets from the same archive cannot build on each other: those out are a fraction of those done.
        size = min(size, max(_FIRST_SUBSETS, self.iteration // (8 * workers)))
        until = min(limit, self.iteration + _DRAWS)
        while len(self._open) < size and self.iteration < until:
            S = self._offspring_of(self._parent(self.iteration), self.iteration)
            if S is not None and S in self._values:
                self._recalled += 1
                if self._put(S, self._values[S]):  # an equal one had replaced it
                    self._events.append((S, self._values[S]))
            elif S is not None and (S in self._out or S in self._open):
                self._recalled += 1  # it is archived when its value arrives
            elif S is not None:
                self._open.append(S)
            self.iteration += 1
        return self._next_task(size)

    def tell(self, task: Task, values: Sequence[Any]) -> None:
        """Offer the task's subsets to the archive. values: f of them, or of the first ones."""
        for S in self._receive(task, values):
            self._put(S, self._values[S])

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, with the subsets that are out."""
        pending = [S for subsets in self._submitted.values() for S in subsets] + self._open
        return {**super().state(), "pending": [list(S) for S in pending]}

    @classmethod
    def restore(cls, state: dict[str, Any], isolation: IsolationFunction | None = None) -> AsyncPposs:
        """Return the search of a saved state. Subsets that were out are asked first.

        isolation: the custom isolation function, if the search had one.
        """
        chosen = cls.isolation_of(state, isolation)
        search = cls(state["n"], state["k"], seed=state["seed"], isolation=chosen)._load(state)
        search._open = [tuple(S) for S in state["pending"]]
        return search

    def recall(self, values: Mapping[Subset, float]) -> None:
        """Add known values, and offer open subsets with a known value to the archive."""
        super().recall(values)
        for S in [S for S in self._open if S in self._values]:
            self._put(S, self._values[S])
        self._open = [S for S in self._open if S not in self._values]


class SlicedPposs(ClientArchive):
    """PPOSS-asy on a quadratic objective: a task is a slice of iterations on a snapshot of the archive.

    Iteration t draws from (seed, t) on every worker. A worker returns the solutions that its archive holds and the
    snapshot does not; they are offered to the current archive. Only this archive is saved.
    """

    #: Iterations of the first slices, before their duration is known.
    first_units = 2000

    def __init__(self, objective: Objective, k: int, *, seed: int = 0, isolation: Isolation = "none") -> None:
        super().__init__(objective, k, isolation)
        self.seed = seed
        self.isolation: Isolation = isolation
        self._open: list[tuple[int, int]] = []
        self._submitted: dict[str, tuple[int, int]] = {}
        self._merged = self._accepted = 0

    @property
    def evaluations(self) -> int:
        """Number of iterations whose outcome is known; each evaluated one offspring."""
        return self.iteration - sum(stop - start for start, stop in [*self._open, *self._submitted.values()])

    def counts(self) -> dict[str, int]:
        """Return the number of solutions received and of those accepted, and the size of the archive."""
        return {"merged": self._merged, "accepted": self._accepted, "archive": len(self.archive)}

    @property
    def waiting(self) -> bool:
        """Whether iterations are out, or to be repeated."""
        return bool(self._submitted or self._open)

    def finished(self, limit: int) -> bool:
        """Return whether all iterations have started and all slices have arrived."""
        return self.iteration >= limit and not self.waiting

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Return the next slice of at most `most` iterations, shorter near the end so that all workers end together."""
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
        task = Task(self._next_key(), Slice(start, stop, self._solutions()))
        self._submitted[task.key] = (start, stop)
        return task

    def tell(self, task: Task, found: Sequence[tuple[Subset, float]]) -> None:
        """Offer the solutions of a slice to the archive, in the order in which the worker found them."""
        _, stop = self._submitted.pop(task.key)
        for S, f in found:
            before = self.best_value
            self._merged += 1
            if self.archive.offer(S, f):
                self._accepted += 1
                self._events.append((S, f))
                if len(S) <= self.k and f < before:
                    self._trace.append(Improvement(stop, len(S), f))
                    self.last_gain = self.iteration

    def offer(self, S: Iterable[int]) -> bool:
        """Offer the archive a subset from elsewhere, and return whether it was archived."""
        members = tuple(sorted(S))
        value, before = self.objective.value(members), self.best_value
        archived = self.archive.offer(members, value)
        if archived and len(members) <= self.k and value < before:
            self._trace.append(Improvement(self.iteration, len(members), value))
        return archived

    def requeue(self, task: Task, suspect: bool) -> None:
        """Repeat the iterations of a lost slice."""
        self._open.append(self._submitted.pop(task.key))

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON values, with the iterations that are out."""
        return {
            "k": self.k,
            "n": self.objective.n,
            "seed": self.seed,
            "isolation": self.isolation,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "merged": self._merged,
            "accepted": self._accepted,
            "pending": [list(part) for part in [*self._submitted.values(), *self._open]],
            "solutions": self.archive.state(),
            "trace": trace_rows(self._trace),
        }

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any]) -> SlicedPposs:
        """Return the search of a saved state. Iterations that were out are repeated."""
        search = cls(objective, state["k"], seed=state["seed"], isolation=state.get("isolation", "none"))
        search.archive = ParetoArchive.restore(state["k"], state["solutions"], ISOLATIONS[search.isolation])
        search.iteration, search.last_gain = state["iteration"], state["last_gain"]
        search._merged, search._accepted = state["merged"], state["accepted"]
        search._open = [(start, stop) for start, stop in state["pending"]]
        search._trace = [Improvement(*row) for row in state["trace"]]
        return search

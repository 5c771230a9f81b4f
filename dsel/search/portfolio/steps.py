"""The steps of a portfolio: each runs one search from the shared subsets, for some iterations or some time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

import numpy as np

from dsel.objective.objective_interface import Objective
from dsel.objective.objective_on_workers import ObjectiveFile
from dsel.search.anytime import Deadline, Stop, drive
from dsel.search.ask_tell import Cleanup, Task, TaskResult, call_all
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto import kernel
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.evaluations import objective_cleanup
from dsel.search.pareto.options import default_interval
from dsel.search.runtime import kept_on_worker
from dsel.search.tabu.search import TabuSearch, load_swap_kernels

#: Tabu search by swaps; Pareto search with many exchange searches; Pareto search with the default interval.
Kind = Literal["swaps", "exchange", "poss"]
_EXCHANGE_EVERY = 10
#: Searches that a process keeps between steps. They are large, so there are only a few.
_MOST_KEPT = 4


@dataclass(frozen=True)
class Step:
    """A step of one stream of searches.

    Parameters
    ----------
    start : int
        Its number.
    solutions : tuple of (Subset, float)
        The shared archive, oldest first, without the empty set.
    stream : int
        Which search takes the step.
    kind : {"swaps", "exchange", "poss"}
        What kind of search this stream is. Without the Gram matrix in memory all are "poss", without exchange searches.
    first : int
        The number of its first iteration or move, which decides the random numbers.
    iterations : int
        How many iterations or moves it makes at most.
    seconds : float, optional
        How long it takes at most. None: the result does not depend on the clock.
    """

    start: int
    solutions: tuple[tuple[Subset, float], ...]
    stream: int
    kind: Kind
    first: int
    iterations: int
    seconds: float | None = None


@dataclass(frozen=True)
class RunSteps:
    """Work that runs the steps of a portfolio in compiled code.

    Searches that are kept between steps continue, and take what others found if it is better.

    Parameters
    ----------
    objective : ObjectiveFile or Objective
        The arrays, or the file that holds them.
    k : int
        Largest subset size.
    seed : int
        Seed of all draws.
    memory : int
        Bytes for the tables of one archive.
    run : str
        Name of the run. Workers use it to tell runs apart.
    """

    objective: ObjectiveFile | Objective
    k: int
    seed: int
    memory: int = 8 << 30
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, task: Task) -> TaskResult:
        step: Step = task.payload
        began = time.perf_counter()
        deadline = Deadline(step.seconds)
        search = self._search(step)
        if isinstance(search, TabuSearch):
            found = _run_swaps(search, step, deadline)
        else:
            found = _run_poss(search, step, deadline)
        # Steps that must not depend on the past begin with a new search.
        if step.seconds is not None and not kept_on_worker.keep(self.run, search, step.stream, _MOST_KEPT):
            call_all(self.cleanup())
        known = {S for S, _ in step.solutions}
        return TaskResult(tuple(x for x in found if x[0] and x[0] not in known), time.perf_counter() - began)

    def _search(self, step: Step) -> Poss | TabuSearch:
        """Return the search of a stream: the one of its last step, but for steps that must not depend on the past."""
        kept: Poss | TabuSearch | None = kept_on_worker.take(self.run, step.stream)
        if kept is not None:
            return kept
        opened = self.objective.load() if isinstance(self.objective, ObjectiveFile) else self.objective
        if step.kind == "swaps" and opened.has_gram:
            load_swap_kernels()
            return TabuSearch(opened, self.k, best_of(step.solutions, self.k), seed=self.seed, first=step.first)
        every = exchange_interval(step.kind, opened.n, self.k) if opened.has_gram else 0
        return Poss(opened, self.k, seed=self.seed, exchange_every=every, memory_limit=self.memory)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions that release the searches and the objective."""
        return (kept_on_worker.releasing(self.run), *objective_cleanup(self.objective))


def exchange_interval(kind: Kind, n: int, k: int) -> int:
    """Return the iterations between two exchange searches in a Pareto search of this kind."""
    return _EXCHANGE_EVERY if kind == "exchange" else default_interval(n, k)


def best_of(solutions: Iterable[tuple[Subset, float]], k: int) -> Subset:
    """Return the best subset of at most k columns; the empty set if there is none."""
    return min((x for x in solutions if len(x[0]) <= k), key=lambda x: x[1], default=((), 0.0))[0]


def _run_swaps(search: TabuSearch, step: Step, deadline: Deadline) -> Sequence[tuple[Subset, float]]:
    search.offer(best_of(step.solutions, search.k))
    search.renumber(step.first)
    drive(search, Stop(step.first + step.iterations, deadline.left))
    return ((search.best, search.best_value),)


def _run_poss(search: Poss, step: Step, deadline: Deadline) -> Sequence[tuple[Subset, float]]:
    insert(search, step.solutions)
    search._count[archive.ITERATION] = step.first
    drive(search, Stop(step.first + step.iterations, deadline.left))
    return tuple((z.members, z.value) for z in search.archived)


def insert(search: Poss, solutions: tuple[tuple[Subset, float], ...]) -> None:
    """Offer a search the subsets that are better than its own, each computed from the nearest one in its archive."""
    best = search._memory[archive.BEST]
    for S, value in solutions:
        if value < best[0, len(S)]:
            search._make_room()
            search.objective.fetch_rows(S)
            kernel.merge_external(search._memory.P, np.asarray(S, np.int64), len(S))
            search._flush_trace()

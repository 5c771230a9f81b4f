"""Simulate N workers in this process, to measure the quality and to count the rounds of a search for any N.

The workers take turns by a simulated clock. Wall times say nothing about a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop
from dsel.search.ask_tell import LostTask, Task, TaskResult
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.slice_work import SliceRules, run_slice
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import TASK_SECONDS, Dispatcher
from dsel.search.runtime.schedule import Schedule

#: Simulated seconds per iteration.
_SECONDS = 1e-6
#: Tasks of each worker in a search.
_TASKS = 16
#: Largest relative deviation of a task's simulated time.
_JITTER = 0.5


class SimulatedWorkers:
    """An executor of N simulated workers with one queued task each, like `DaskExecutor`.

    work: returns what the worker of this number finds in a task. seconds: of a unit. jitter: relative deviation of a
    task's time.
    """

    def __init__(
        self, work: Callable[[int, Task], Any], workers: int, seconds: float, jitter: float = 0.0, seed: int = 0
    ) -> None:
        self.workers = self.target_parallelism = workers
        self.now = 0.0
        self._work, self._seconds, self._jitter = work, seconds, jitter
        self._busy: dict[int, tuple[float, Task]] = {}
        self._waiting: list[Task] = []
        self._pace = np.random.default_rng(seed)

    @property
    def free_slots(self) -> int:
        return 2 * self.workers - len(self._busy) - len(self._waiting)

    def use(self, work: object) -> None:
        """Do nothing: the work never changes."""

    def submit(self, task: Task) -> None:
        self._waiting.append(task)
        self._begin()

    def _begin(self) -> None:
        for w in range(self.workers):
            if w not in self._busy and self._waiting:
                task = self._waiting.pop(0)
                seconds = self._seconds * task.units * (1.0 + self._jitter * (2.0 * self._pace.random() - 1.0))
                self._busy[w] = self.now + seconds, task

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        """Return the task that ends next."""
        w = min(self._busy, key=lambda w: self._busy[w][0])
        self.now, task = self._busy.pop(w)
        found = self._work(w, task)
        self._begin()
        return [(task, TaskResult(found, self._seconds * task.units))]

    def close(self) -> None:
        self._waiting.clear()


def least_found(objective: DenseObjective, k: int, workers: int, iterations: int, seed: int) -> float:
    """Return the least f that PPOSS-asy finds on a number of simulated workers."""
    stop = Stop(iterations=iterations)
    length = max(iterations // (_TASKS * workers), 1)
    search = SlicedSearch(objective, SliceRules(k, seed), Schedule(length=length, order="arrival"), stop)
    engines = [SliceRules(k, seed).search(objective, 8 << 30) for _ in range(workers)]  # each has its own archive
    executor = SimulatedWorkers(
        lambda w, task: run_slice(engines[w], task.payload), workers, _SECONDS, _JITTER, seed
    )  # fmt: skip
    Dispatcher(search, executor, stop, clock=lambda: executor.now).run()
    return search.best_value


def counted_speed(objective: DenseObjective, k: int, workers: int, iterations: int, processors: int) -> float:
    """Return the evaluations in the time of one, where nothing else takes time: PPOSS, or PPOSS-asy for 0 processors.

    It is the number of evaluations over the critical path. A synchronous round waits for its slowest worker, and a
    worker whose offspring is known already has nothing to evaluate.
    """
    stop = Stop(iterations=iterations)
    schedule = Schedule(processors=processors) if processors else Schedule(order="arrival")
    search = CriterionSearch(objective.n, k, schedule, stop, seed=1)
    executor = SimulatedWorkers(
        lambda w, task: tuple(objective.value(S) for S in task.payload), workers, TASK_SECONDS
    )  # fmt: skip
    Dispatcher(search, executor, stop, clock=lambda: executor.now).run()
    return search.evaluations * TASK_SECONDS / executor.now

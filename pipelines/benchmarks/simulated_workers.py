"""Simulate N workers in this process, to measure the quality of the asynchronous search for any N.

The workers take turns by a simulated clock. Wall times say nothing about a cluster.
"""

from __future__ import annotations

import numpy as np

from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop
from dsel.search.pareto.slice_work import SliceRules, run_slice
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.ask_tell import LostTask, Task, TaskResult
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import Schedule

#: Simulated seconds per iteration.
_SECONDS = 1e-6
#: Tasks of each worker in a search.
_TASKS = 16
#: Largest relative deviation of a task's simulated time.
_JITTER = 0.5


class SimulatedWorkers:
    """An executor of N simulated workers, each with its own archive and one queued task, like `DaskExecutor`."""

    def __init__(self, objective: DenseObjective, k: int, seed: int, workers: int) -> None:
        self.workers = self.target_parallelism = workers
        self.now = 0.0
        self._engines = [SliceRules(k, seed).search(objective, 8 << 30) for _ in range(workers)]
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
                seconds = _SECONDS * task.units * (1.0 + _JITTER * (2.0 * self._pace.random() - 1.0))
                self._busy[w] = self.now + seconds, task

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        """Return the task that ends next."""
        w = min(self._busy, key=lambda w: self._busy[w][0])
        self.now, task = self._busy.pop(w)
        found = run_slice(self._engines[w], task.payload)
        self._begin()
        return [(task, TaskResult(found, _SECONDS * task.units))]

    def close(self) -> None:
        self._waiting.clear()


def least_found(objective: DenseObjective, k: int, workers: int, iterations: int, seed: int) -> float:
    """Return the least f that PPOSS-asy finds on a number of simulated workers."""
    stop = Stop(iterations=iterations)
    length = max(iterations // (_TASKS * workers), 1)
    search = SlicedSearch(objective, SliceRules(k, seed), Schedule(length=length, order="arrival"), stop)
    executor = SimulatedWorkers(objective, k, seed, workers)
    Dispatcher(search, executor, stop, clock=lambda: executor.now).run()
    return search.best_value

"""An executor whose results arrive in any order, and that loses tasks."""

from __future__ import annotations

import pickle
import random

from dsel.search.ask_tell import ExecutorOptions, LostTask, SerialExecutor, Task, TaskResult, Work


class ShuffledExecutor(SerialExecutor):
    """Three workers whose results arrive in any order; each third task is lost once. The work is sent as bytes."""

    workers = target_parallelism = 3

    def __init__(self, work: Work, options: ExecutorOptions | None = None) -> None:
        super().__init__(pickle.loads(pickle.dumps(work)), options)
        self._order, self._polls = random.Random(3), 0

    @property
    def free_slots(self) -> int:
        return 3 - len(self._submitted)

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        waiting = list(self._submitted)
        chosen = self._order.choice(waiting)
        self._submitted.remove(chosen)
        self._polls += 1
        return [(chosen, LostTask("gone", False) if self._polls % 3 == 0 else self._work(chosen))]

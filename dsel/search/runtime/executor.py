"""The executor protocol: how a search sends tasks to workers and gets their results back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from dsel.search.runtime.ask_tell import LostTask, Task, TaskResult

#: Small picklable function that releases what a process caches between tasks.
Cleanup = Callable[[], None]


def call_all(functions: Iterable[Cleanup]) -> None:
    """Call the functions one after the other."""
    for function in functions:
        function()


class Work(Protocol):
    """Picklable function that a worker calls with each task."""

    def __call__(self, task: Task) -> TaskResult: ...

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions to call after the search in every process that ran tasks, so that no memory stays in use."""


class Executor(Protocol):
    """Runs tasks. Each task comes back once, in any order, as a result or as lost."""

    @property
    def workers(self) -> int:
        """Number of tasks that can run at the same time now, at least 1."""

    @property
    def target_parallelism(self) -> int:
        """Number of tasks to divide the work into: more than `workers` if more workers may join."""

    @property
    def free_slots(self) -> int:
        """Number of tasks to submit now so that no worker is idle."""

    def use(self, work: Work) -> None:
        """Run the tasks that are submitted from now on by other work."""

    def submit(self, task: Task) -> None:
        """Submit a task.

        Parameters
        ----------
        task : Task
            A task with a new key.

        Raises
        ------
        ClusterError
            If no worker can take it any more.
        """

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        """Return the tasks that have ended.

        Parameters
        ----------
        seconds : float
            Time limit to wait for the first one.

        Returns
        -------
        list of (Task, TaskResult or LostTask)
            Empty if no task has ended in time.

        Raises
        ------
        ClusterError
            If no result can arrive any more.
        """

    def close(self) -> None:
        """Cancel all tasks and release the workers' memory."""


@dataclass(frozen=True)
class ExecutorOptions:
    """Options of an executor.

    Parameters
    ----------
    evaluation_limit : float, optional
        Seconds that one evaluation may take. None: no limit.
    processes : int, default 1
        Number of local processes to start if there is no cluster.
    """

    evaluation_limit: float | None = None
    processes: int = 1


ExecutorFactory = Callable[[Work, ExecutorOptions], Executor]


class SerialExecutor:
    """Runs one task after another in this process."""

    workers = target_parallelism = 1

    def __init__(self, work: Work, options: ExecutorOptions | None = None) -> None:
        self._work = work
        self._submitted: deque[Task] = deque()

    @property
    def free_slots(self) -> int:
        """One task at a time, so that the next one uses all results so far."""
        return 1 - len(self._submitted)

    def use(self, work: Work) -> None:
        """Run the next tasks by other work."""
        self._work = work

    def submit(self, task: Task) -> None:
        """Queue a task; `poll` runs it."""
        self._submitted.append(task)

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        """Run the next task."""
        if not self._submitted:
            time.sleep(seconds)
            return []
        task = self._submitted.popleft()
        return [(task, self._work(task))]

    def close(self) -> None:
        """Drop what is queued, and release memory."""
        self._submitted.clear()
        call_all(self._work.cleanup())

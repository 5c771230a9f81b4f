"""The executor protocol: how a search sends tasks to workers and gets their results back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from dsel.errors import DselError
from dsel.objective.shared_rows import PublishedInputs
from dsel.search.pareto.archive import Subset


@dataclass(frozen=True)
class Slice:
    """Iterations [start, stop) from a snapshot of the archive.

    solutions: (subset, f) of the snapshot, oldest first, without the empty set. target: the slice ends as soon as f is
    at or below it.
    parents: the first size of the subsets that may be drawn as parents, and how many sizes there are from it on, modulo
    2k; None for all.
    inputs: for an objective on demand, what the client has published of it. The result then has the whole archive.
    """

    start: int
    stop: int
    solutions: tuple[tuple[Subset, float], ...]
    target: float | None = field(default=None, kw_only=True)
    parents: tuple[int, int] | None = field(default=None, kw_only=True)
    inputs: PublishedInputs | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Task:
    """One unit of work for a worker.

    Parameters
    ----------
    key : str
        Unique among all tasks.
    payload : tuple of Subset, or Slice
        The subsets to evaluate, or the iterations to run.
    """

    key: str
    payload: tuple[Subset, ...] | Slice

    @property
    def units(self) -> int:
        """Number of evaluations, or iterations, in the task."""
        return self.payload.stop - self.payload.start if isinstance(self.payload, Slice) else len(self.payload)


@dataclass(frozen=True)
class TaskResult:
    """What a worker returns for a task.

    Parameters
    ----------
    found : tuple
        For subsets: f of each, in their order; only of the first ones if `error` stopped the task. For a slice:
        (subset, f) of each archived solution that the snapshot did not hold.
    seconds : float
        Duration of the work.
    error : DselError, optional
        What stopped the task.
    """

    found: tuple[Any, ...]
    seconds: float
    error: DselError | None = None


@dataclass(frozen=True)
class LostTask:
    """A task without a result.

    Parameters
    ----------
    why : str
        Reason, for logs and errors.
    suspect : bool
        Whether the task may be the cause: its workers died or hung while they ran it.
    """

    why: str
    suspect: bool


#: Small picklable function that releases what a process caches between tasks.
Cleanup = Callable[[], None]


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
        for function in self._work.cleanup():
            function()

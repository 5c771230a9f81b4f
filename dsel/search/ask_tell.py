"""The protocol of everything that runs on workers: searches ask for work and are told its results.

The executor protocol: how a search sends tasks to workers and gets their results back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dsel.errors import DselError


@dataclass(frozen=True)
class Task:
    """One unit of work for a worker.

    Parameters
    ----------
    key : str
        Unique among all tasks.
    payload : object
        What the work of the search needs.
    units : int
        How many evaluations, iterations or nodes there are, about.
    items : tuple of hashable
        What is repeated if the task is lost. An item that is lost too often ends the run. A tuple is a subset.
    """

    key: str
    payload: Any
    units: int = 1
    items: tuple[Hashable, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """What a worker returns for a task.

    Parameters
    ----------
    found : object
        What the search is told.
    seconds : float
        Duration of the work.
    error : DselError, optional
        What stopped the task.
    units : int, optional
        How many of its units are done; None for all.
    """

    found: Any
    seconds: float
    error: DselError | None = None
    units: int | None = None


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


class AskTell:
    """A search that allows several tasks at the same time: the base of everything that runs on workers.

    It is consistent between any two calls. Tasks that are out when its `state` is saved are asked for again.

    Attributes
    ----------
    iteration : int
        Iterations so far, as the search counts them.
    last_gain : int
        The iteration at which `best_value` last decreased.
    first_units : int
        The most units of the first tasks, before their duration is known.
    changed_work : Work, optional
        What runs the next tasks, if that changes during the search.
    """

    iteration: int
    last_gain: int
    first_units = 1
    changed_work: Any = None

    def ask(self, most: int, workers: int) -> Task | None:
        """Return the next task of at most `most` units, for this number of workers, or None if none is ready."""
        raise NotImplementedError

    def tell(self, task: Task, result: TaskResult) -> None:
        """Merge the result of a task."""
        raise NotImplementedError

    def requeue(self, task: Task, suspect: bool) -> None:
        """Ask for a lost task again; if it is suspect, for each of its items alone."""
        raise NotImplementedError

    def finished(self) -> str | None:
        """Return why the search has ended, or None before."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, as JSON holds it."""
        raise NotImplementedError

    @property
    def best_value(self) -> float:
        """The least f of a subset of at most k columns so far."""
        raise NotImplementedError

    @property
    def total(self) -> float:
        """||Y||^2, or another scale of f."""
        raise NotImplementedError

    @property
    def completed(self) -> int:
        """Number of iterations whose outcome is known."""
        return self.iteration

    @property
    def evaluations(self) -> int:
        """Number of evaluations whose outcome is known; by default of iterations."""
        return self.completed

    @property
    def solutions(self) -> int:
        """Number of solutions in the archive."""
        return 0

    def drain_events(self) -> Sequence[tuple[tuple[int, ...], float]]:
        """Return what was offered to the archive since the last call, in that order."""
        return ()


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

"""The protocol of everything that runs on workers: searches ask for work and are told its results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

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

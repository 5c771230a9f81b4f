"""What a worker does with the tasks of a search with a criterion: it evaluates subsets."""

from __future__ import annotations

import inspect
import math
import numbers
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.npz import parser_lock
from dsel.errors import CriterionError
from dsel.objective.objective_interface import Objective
from dsel.objective.objective_on_workers import ObjectiveFile, unload
from dsel.search.ask_tell import Cleanup, Task, TaskResult
from dsel.search.method import SearchTask
from dsel.search.pareto.archive import ClientArchive, IsolationFunction, Subset

#: Evaluations that run in this process: key of the task -> subset, and start time (time.monotonic).
_running: dict[str, tuple[Subset, float]] = {}


def running() -> dict[str, tuple[Subset, float]]:
    """Return the evaluations that run in this process: task key -> subset, and seconds so far."""
    now = time.monotonic()
    return {key: (S, now - since) for key, (S, since) in dict(_running).items()}


def takes_data(criterion: Callable[..., Any]) -> bool:
    """Return whether a criterion is f(S, data): it has at least two parameters without a default."""
    try:
        with parser_lock:  # Python parses the signature of a function that is written in C
            parameters = inspect.signature(criterion).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in plain and p.default is p.empty for p in parameters) >= 2


def bind(criterion: Callable[..., Any], data: Any) -> Callable[[Subset], Any]:
    """Return the criterion as a function of the subset alone."""
    return (lambda S: criterion(S, data)) if takes_data(criterion) else criterion


def number(value: Any, members: Subset) -> float:
    """Return the value of a criterion as float. Raise CriterionError unless it is a real number or +inf."""
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(scalar, bool) or not isinstance(scalar, numbers.Real):
        raise CriterionError(
            f"The criterion returned {value!r} for the columns {list(members)}.", "It must return a real number."
        )
    try:
        real = float(scalar)
    except OverflowError:
        raise CriterionError(
            f"The criterion returned a number beyond float64's range for the columns {list(members)}.", "Rescale it."
        ) from None
    if not real > -math.inf:
        raise CriterionError(
            f"The criterion returned {real} for the columns {list(members)}.",
            "Return +inf for a subset that is not allowed.",
        )
    return real


def cannot_travel(error: Exception) -> CriterionError:
    """Return the error for a custom function that cannot be pickled."""
    return CriterionError(
        f"The criterion cannot be sent to a worker: {type(error).__name__}: {error}.",
        "It must not hold locks, open files or connections: open them inside the function.",
    )


def failure(what: str, members: Subset, error: BaseException) -> CriterionError:
    """Return the error for a custom function that failed, with the subset and the traceback."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return CriterionError(f"The {what} failed on the columns {list(members)}:\n{text}\n", "Fix it and start again.")


@dataclass(frozen=True)
class EvaluateSubsets:
    """Work that evaluates a criterion on each subset of a task.

    Parameters
    ----------
    criterion : callable
        f(S), or f(S, data). S are ascending columns of the data.
    data : object
        Second argument of the criterion.
    columns : tuple of tuple of int
        The columns of the data for each local column or group.
    included : tuple of int
        Columns of the data that belong to every subset.
    """

    criterion: Callable[..., Any]
    data: Any
    columns: tuple[tuple[int, ...], ...]
    included: tuple[int, ...] = ()

    def __call__(self, task: Task) -> TaskResult:
        criterion = bind(self.criterion, self.data)
        values: list[float] = []
        start = time.perf_counter()
        error = None
        for S in task.payload:
            members = tuple(sorted([*self.included, *(column for j in S for column in self.columns[j])]))
            _running[task.key] = members, time.monotonic()
            try:
                values.append(self._value(criterion, members))
            except CriterionError as failed:
                error = failed
                break
            finally:
                _running.pop(task.key, None)
        return TaskResult(tuple(values), time.perf_counter() - start, error, len(values))

    @classmethod
    def of_task(cls, task: SearchTask) -> EvaluateSubsets:
        """Return the work of a search by the criterion of a task."""
        assert task.criterion is not None
        items, columns = task.subject, task.objective.columns
        in_data = (tuple(int(columns[j]) for j in items.members([item])) for item in range(items.n))
        return cls(task.criterion, task.data, tuple(in_data), task.always)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions that release the data and the objective."""
        data: tuple[Cleanup, ...] = () if self.data is None else self.data.cleanup()
        return (*data, *objective_cleanup(self.criterion.objective)) if isinstance(self.criterion, ValueOf) else data

    def _value(self, criterion: Callable[[Subset], Any], members: Subset) -> float:
        try:
            value = criterion(members)
        except (Exception, SystemExit) as error:
            raise failure("criterion", members, error) from None
        return number(value, members)


@dataclass(frozen=True)
class ValueOf:
    """Criterion that returns f of a quadratic objective. objective: its arrays, or the file that holds them."""

    objective: ObjectiveFile | Objective

    def __call__(self, S: Subset) -> float:
        opened = self.objective.load() if isinstance(self.objective, ObjectiveFile) else self.objective
        return opened.value(S)


def objective_cleanup(objective: ObjectiveFile | Objective) -> tuple[Cleanup, ...]:
    """Return the functions that release an objective that was read from a file."""
    return (partial(unload, objective.digest),) if isinstance(objective, ObjectiveFile) else ()


class EvaluatedSearch(ClientArchive):
    """A search on any criterion, by ask and tell. A task is some subsets; its result is f of them.

    Every value is kept, so that no subset is evaluated twice. The empty set has one only where columns are included.

    Parameters
    ----------
    k : int
        The size limit.
    isolation : callable
        Subsets compete only where this function of a subset has the same value.

    Attributes
    ----------
    values : dict
        f of each evaluated subset.
    """

    def __init__(self, k: int, isolation: IsolationFunction) -> None:
        super().__init__(k, isolation, math.inf)
        self.values: dict[Subset, float] = {}
        self._open: list[Subset] = []
        self._submitted: dict[str, tuple[Subset, ...]] = {}
        self._suspects: set[Subset] = set()

    @property
    def empty_value(self) -> float:
        """f of the included columns alone; +inf if it is not known, or if there are none."""
        return self.values.get((), math.inf)

    @property
    def total(self) -> float:
        """The scale of f: |f| of the first evaluated subset if that is finite and not 0, else 1."""
        first = abs(next(iter(self.values.values()), 1.0))
        return first if 0.0 < first < math.inf else 1.0

    @property
    def evaluations(self) -> int:
        """The number of known values. Each took one evaluation."""
        return len(self.values)

    def _next_task(self, size: int) -> Task | None:
        """Return a task of at most `size` open subsets. A suspect subset gets its own task."""
        if not self._open:
            return None
        size = next((max(i, 1) for i, S in enumerate(self._open[:size]) if S in self._suspects), size)
        subsets, self._open = tuple(self._open[:size]), self._open[size:]
        task = Task(self._next_key(), subsets, len(subsets), subsets)
        self._submitted[task.key] = subsets
        return task

    def _receive(self, task: Task, values: Sequence[Any]) -> list[Subset]:
        """Store the values and return their subsets. Subsets without a value are open again."""
        subsets = self._submitted.pop(task.key)
        for members, value in zip(subsets, values, strict=False):
            self.values[members] = number(value, members)
            self._events.append((members, self.values[members]))
        self._open = [*(S for S in subsets[len(values) :] if S not in self.values), *self._open]
        return list(subsets[: len(values)])

    def requeue(self, task: Task, suspect: bool) -> None:
        """Request the subsets of a lost task again; if they are suspect, each alone."""
        if suspect:
            self._suspects.update(self._submitted[task.key])
        self._receive(task, ())

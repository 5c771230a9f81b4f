"""What a worker does with a task: evaluate subsets, or run a slice of iterations.

Module-level caches hold what a worker reuses between tasks. `cleanup` returns functions that empty them.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from dsel._lib.npz import parser_lock
from dsel.errors import CriterionError
from dsel.objective.base import Objective
from dsel.objective.objective_file import ObjectiveFile, unload
from dsel.search.parallel.executor import Cleanup, Slice, Task, TaskResult
from dsel.search.parallel.iteration_slices import SliceRunner
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.evaluation_memo import failure, number

#: Evaluations that run in this process: key of the task -> subset, and start time (time.monotonic).
_running: dict[str, tuple[Subset, float]] = {}
#: Runners with their archives and tables, by run. Only the last run has any: they are large.
_runners: dict[str, list[SliceRunner]] = {}
#: Runs that have ended. A slice that ends later leaves nothing in memory.
_ended: deque[str] = deque(maxlen=1000)
_lock = threading.Lock()


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


@dataclass(frozen=True)
class EvaluateSubsets:
    """Work that evaluates a criterion on each subset of a task.

    Parameters
    ----------
    criterion : callable
        f(S), or f(S, data). S are ascending columns of the data.
    data : object
        Second argument of the criterion.
    columns : tuple of int
        Column of the data for each local column.
    included : tuple of int
        Columns of the data that belong to every subset.
    """

    criterion: Callable[..., Any]
    data: Any
    columns: tuple[int, ...]
    included: tuple[int, ...] = ()

    def __call__(self, task: Task) -> TaskResult:
        assert not isinstance(task.payload, Slice)
        criterion = bind(self.criterion, self.data)
        values: list[float] = []
        start = time.perf_counter()
        error = None
        for S in task.payload:
            members = tuple(sorted([*self.included, *(self.columns[j] for j in S)]))
            _running[task.key] = members, time.monotonic()
            try:
                values.append(self._value(criterion, members))
            except CriterionError as failed:
                error = failed
                break
            finally:
                _running.pop(task.key, None)
        return TaskResult(tuple(values), time.perf_counter() - start, error)

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


def call_all(functions: Iterable[Cleanup]) -> None:
    """Call the functions one after the other."""
    for function in functions:
        function()


def _release_run(run: str) -> None:
    """Release the runners of a run that has ended."""
    with _lock:
        _ended.append(run)
        _runners.pop(run, None)


@dataclass(frozen=True)
class RunSlices:
    """Work that runs the iterations of a slice in compiled code.

    Parameters
    ----------
    objective : ObjectiveFile or Objective
        The arrays, or the file that holds them.
    k : int
        Largest subset size.
    seed : int
        Seed of all draws.
    isolation : {"none", "min-index"}
        Subsets compete only with subsets of the same isolation value.
    exchange_every : int
        Iterations between two exchange searches; 0 for never.
    memory : int
        Bytes for the tables of one archive. A worker has one archive per slice that it runs at the same time.
    run : str
        Name of the run. Workers use it to tell runs apart.

    Raises
    ------
    CapacityError
        If the tables need more than `memory`.
    """

    objective: ObjectiveFile | Objective
    k: int
    seed: int
    isolation: Isolation = "none"
    exchange_every: int = 0
    memory: int = 8 << 30
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, task: Task) -> TaskResult:
        assert isinstance(task.payload, Slice)
        with _lock:
            idle = _runners.get(self.run)
            runner = idle.pop() if idle else None  # no other thread may use it now
        if runner is None:
            opened = self.objective.load() if isinstance(self.objective, ObjectiveFile) else self.objective
            runner = SliceRunner(opened, self.k, self.seed, self.isolation, self.exchange_every, self.memory)
        start = time.perf_counter()
        found = runner.run(task.payload)
        seconds = time.perf_counter() - start
        with _lock:
            for other in [other for other in _runners if other != self.run]:
                del _runners[other]
            if not (is_over := self.run in _ended):
                _runners.setdefault(self.run, []).append(runner)
        if is_over:  # this task has read it after the run released it
            call_all(objective_cleanup(self.objective))
        return TaskResult(found, seconds)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions that release the runners and the objective."""
        return (partial(_release_run, self.run), *objective_cleanup(self.objective))

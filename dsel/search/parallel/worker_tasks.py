"""What is done on a worker with a package: values of subsets by a criterion, or a slice of iterations.

Module-level caches are what a worker keeps from one package to the next; `let_go` empties them when all is done.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from dsel.errors import CriterionError
from dsel.objective.base import Objective
from dsel.objective.objective_file import ObjectiveFile, unload
from dsel.search.parallel.executor import Answer, LetGo, Package, Slice
from dsel.search.parallel.iteration_slices import SliceEngine
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.evaluation_memo import failure, number

#: Evaluations that run in this process: key of the package -> subset, and since when (time.monotonic).
_running: dict[str, tuple[Subset, float]] = {}
#: Search engines with their archives and tables, by the run they belong to: the last run's alone, for they are large.
_engines: dict[str, list[SliceEngine]] = {}
#: Runs that are over: a slice that was still being made then leaves nothing behind.
_over: deque[str] = deque(maxlen=1000)
_lock = threading.Lock()


def running() -> dict[str, tuple[Subset, float]]:
    """Evaluations that run in this process now: the subset, and for how many seconds so far."""
    now = time.monotonic()
    return {key: (S, now - since) for key, (S, since) in dict(_running).items()}


def takes_data(criterion: Callable[..., Any]) -> bool:
    """Whether a criterion is f(S, data) by its signature: it has two parameters without a default, or more."""
    try:
        parameters = inspect.signature(criterion).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in plain and p.default is p.empty for p in parameters) >= 2


def bind(criterion: Callable[..., Any], data: Any) -> Callable[[Subset], Any]:
    """The criterion as a function of the subset alone."""
    return (lambda S: criterion(S, data)) if takes_data(criterion) else criterion


@dataclass(frozen=True)
class EvaluateSubsets:
    """f of each subset of a package. columns: of the local ones, those of the data; included: always with them.

    data: second argument of the criterion, for f(S, data). The criterion is asked for ascending columns of the data.
    """

    criterion: Callable[..., Any]
    data: Any
    columns: tuple[int, ...]
    included: tuple[int, ...] = ()

    def __call__(self, package: Package) -> Answer:
        assert not isinstance(package.load, Slice)
        criterion = bind(self.criterion, self.data)
        values: list[float] = []
        start = time.perf_counter()
        error = None
        for S in package.load:
            members = tuple(sorted([*self.included, *(self.columns[j] for j in S)]))
            _running[package.key] = members, time.monotonic()
            try:
                values.append(self._value(criterion, members))
            except CriterionError as failed:
                error = failed
                break
            finally:
                _running.pop(package.key, None)
        return Answer(tuple(values), time.perf_counter() - start, error)

    def let_go(self) -> tuple[LetGo, ...]:
        """Of the data and of the objective."""
        data: tuple[LetGo, ...] = () if self.data is None else self.data.let_go()
        return (*data, *_of(self.criterion.objective)) if isinstance(self.criterion, ValueOf) else data

    def _value(self, criterion: Callable[[Subset], Any], members: Subset) -> float:
        try:
            value = criterion(members)
        except (Exception, SystemExit) as error:
            raise failure("criterion", members, error) from None
        return number(value, members)


@dataclass(frozen=True)
class ValueOf:
    """f of a quadratic objective, as a criterion. objective: where its arrays stand, or they themselves."""

    objective: ObjectiveFile | Objective

    def __call__(self, S: Subset) -> float:
        opened = self.objective.load() if isinstance(self.objective, ObjectiveFile) else self.objective
        return opened.value(S)


def _of(objective: ObjectiveFile | Objective) -> tuple[LetGo, ...]:
    return (partial(unload, objective.digest),) if isinstance(objective, ObjectiveFile) else ()


def _end(run: str) -> None:
    """Let go of the engines of a run that is over."""
    with _lock:
        _over.append(run)
        _engines.pop(run, None)


@dataclass(frozen=True)
class RunSlices:
    """The iterations of a slice by the compiled engine. objective: where its arrays stand, or they themselves. memory:
    bytes for the tables of an archive; there is one for each slice that a worker makes at a time. run: the name of the
    run, that workers may tell it from others.

    Errors: CapacityError where the tables need more than `memory`."""

    objective: ObjectiveFile | Objective
    k: int
    seed: int
    isolation: Isolation = "none"
    memory: int = 8 << 30
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, package: Package) -> Answer:
        assert isinstance(package.load, Slice)
        with _lock:
            idle = _engines.get(self.run)
            engine = idle.pop() if idle else None  # taken out: another thread takes another one
        if engine is None:
            opened = self.objective.load() if isinstance(self.objective, ObjectiveFile) else self.objective
            engine = SliceEngine(opened, self.k, self.seed, self.isolation, self.memory)
        start = time.perf_counter()
        survivors = engine.run(package.load)
        seconds = time.perf_counter() - start
        with _lock:
            for other in [other for other in _engines if other != self.run]:
                del _engines[other]
            if self.run not in _over:
                _engines.setdefault(self.run, []).append(engine)
        return Answer(survivors, seconds)

    def let_go(self) -> tuple[LetGo, ...]:
        """Of the engines and of the objective."""
        return (partial(_end, self.run), *_of(self.objective))

"""What the methods on workers share: their options, and a search whose tasks an executor runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pydantic import Field

from dsel.config.types import Float, Int
from dsel.objective.base import Objective
from dsel.objective.objective_file import ObjectiveFile, save_objective
from dsel.search.anytime import Stop
from dsel.search.method import SearchTask
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome
from dsel.search.parallel.dispatcher import AskTellSearch, Dispatcher
from dsel.search.parallel.executor import ExecutorOptions, Work
from dsel.search.parallel.journal import columns_of, journalled_values
from dsel.search.parallel.synchronous import AskTellMemo
from dsel.search.parallel.worker_tasks import EvaluateSubsets, ValueOf
from dsel.search.pareto.archive import Isolation, IsolationFunction
from dsel.search.pareto.options import ArchiveOptions
from dsel.search.placement import SearchOn


class SearchOnWorkers(AskTellSearch, Protocol):
    """A search whose tasks an executor runs, with what its outcome needs."""

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """The improvements of the best subset."""

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the best subset of every size."""

    def counts(self) -> dict[str, int]:
        """Return the counts of the search."""


class WorkerOptions(ArchiveOptions):
    """Options of every search on workers.

    The tables of an archive may take `memory` bytes in each thread of each worker.

    Parameters
    ----------
    evaluation_limit : float, optional
        Seconds that one evaluation of a custom criterion or isolation function may take. After that its worker is
        given up and another worker evaluates the subset.
    processes : int
        Worker processes of this machine, where there is no Dask cluster. They are spawned, so that a script needs
        ``if __name__ == "__main__":``.
    search_on : {"auto", "client", "workers"}
        Where the search runs: in this process, or by tasks on the workers of the cluster. "auto": on workers where
        there are some and the search is long or calls a custom function. `dsel plan` and the result say which.
    """

    evaluation_limit: Float | None = Field(None, gt=0)
    processes: Int = Field(1, ge=1)
    search_on: SearchOn = "auto"

    def conflict(self, criterion: bool) -> str:
        if self.evaluation_limit is not None and not self.calls_function(criterion):
            return "evaluation_limit: only with a custom criterion or isolation function, whose evaluations it limits"
        return super().conflict(criterion)


@contextmanager
def objective_for_workers(task: SearchTask) -> Iterator[Objective | ObjectiveFile]:
    """Provide the objective from where workers read it, while the search lasts."""
    folder = task.shared_folder
    if folder is None:
        yield task.objective
        return
    stored = save_objective(task.objective, folder)
    try:
        yield stored
    finally:
        stored.place.unlink(missing_ok=True)


def isolation_of(task: SearchTask) -> Isolation | IsolationFunction:
    """Return the isolation of local columns. A user's function gets columns of the data."""
    return own_isolation(task) or task.options.isolation


def own_isolation(task: SearchTask) -> IsolationFunction | None:
    """Return the user's isolation function, of local columns; None where there is none."""
    function, objective = task.options.isolation, task.objective
    return (lambda S: function(tuple(sorted(objective.in_data(S))))) if callable(function) else None


def run_evaluations(task: SearchTask, search: SearchOnWorkers, stop: Stop) -> SearchOutcome:
    """Run a search whose subsets workers evaluate: by the user's criterion, or f under a custom isolation function."""
    if task.criterion is None:
        with objective_for_workers(task) as objective:
            work = EvaluateSubsets(ValueOf(objective), None, tuple(range(task.objective.n)))
            return run_on_workers(task, search, work, stop)
    columns = tuple(int(j) for j in task.objective.columns)
    work = EvaluateSubsets(task.criterion, task.data, columns, task.objective.included)
    return run_on_workers(task, search, work, stop)


def run_on_workers(task: SearchTask, search: SearchOnWorkers, work: Work, stop: Stop) -> SearchOutcome:
    """Run a search whose tasks an executor runs, and record its events in the journal."""
    options, journal = task.options, task.journal
    if journal is not None:
        if isinstance(search, AskTellMemo):
            search.recall(journalled_values(journal.path))
        event = "started" if task.state is None else "resumed"
        columns = columns_of(task.objective, task.k)
        journal.write(event, iterations=search.iteration, solutions=search.archive.state(), **columns)
    executor = task.executor(work, ExecutorOptions(options.evaluation_limit, options.processes))
    dispatcher = Dispatcher(search, executor, stop, journal, in_data=_data_columns(task.objective))
    ended = dispatcher.run(task.on_slice)
    counts: dict[str, Any] = {**search.counts(), **dispatcher.stats.counts()}
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def _data_columns(objective: Objective) -> Callable[[Any], list[int]]:
    return lambda S: sorted(objective.in_data(S))

"""Run a search by slices, or by overlapping iterations with a custom criterion, on whatever executor the task has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

from dsel.objective.on_demand import OnDemandObjective
from dsel.objective.shared_rows import RowPublisher
from dsel.search.method import SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.parallel.executor import SerialExecutor
from dsel.search.parallel.on_workers import (
    isolation_of,
    objective_for_workers,
    own_isolation,
    run_evaluations,
    run_on_workers,
)
from dsel.search.pareto.warm_start import warm_start
from dsel.search.slices.criterion import OverlappingPoss
from dsel.search.slices.runner import RunSnapshotSlices, SliceRules
from dsel.search.slices.search import SlicedSearch


def is_sliced(task: SearchTask) -> bool:
    """Return whether a search has several slices at a time: the saved one, if there is one."""
    return task.options.size.slices > 1 if task.state is None else "slices" in task.state


def run_by_slices(task: SearchTask, processors: int = 0) -> SearchOutcome:
    """Run POSS, or PPOSS with some processors, by slices on the quadratic objective."""
    objective, options = task.objective, task.options
    stop = options.stop(task.k, objective)
    every = options.exchange_interval(objective.n, task.k, objective.has_gram)
    rules = SliceRules(task.k, task.seed, options.isolation, every, processors)
    rules.search(objective, options.memory).warm_up()  # workers on this machine find what is compiled
    with _published(task) as (task, publisher):
        if task.state is None:
            search = SlicedSearch(objective, rules, options.size, stop, publisher)
            stop = warm_start(search, options, task.seed, stop, task.start)
        else:
            search = SlicedSearch.restore(objective, task.state, stop, publisher)
            objective.fetch_rows(sorted({j for point in search.archived for j in point.members}))
        with objective_for_workers(task) if publisher is None else nullcontext(publisher.place) as shared:
            work = RunSnapshotSlices(shared, search.rules, options.memory)
            return replace(run_on_workers(task, search, work, stop), notes=options.notes(objective))


@contextmanager
def _published(task: SearchTask) -> Iterator[tuple[SearchTask, RowPublisher | None]]:
    """Provide a publisher of Gram rows where they are fetched on demand, or a task that stays in this process."""
    if task.objective.has_gram:
        yield task, None
    elif task.shared_folder is None or not isinstance(task.objective, OnDemandObjective):
        yield replace(task, executor=SerialExecutor, shared_folder=None), None
    else:
        with closing(RowPublisher(task.objective, task.shared_folder)) as publisher:
            yield task, publisher


def run_overlapping(task: SearchTask) -> SearchOutcome:
    """Run POSS with a user's function, several iterations at a time."""
    options = task.options
    stop = options.stop(task.k, task.objective)
    if task.state is None:
        search = OverlappingPoss(
            task.objective.n, task.k, slices=options.size.slices, stop=stop, seed=task.seed,
            isolation=isolation_of(task),
        )  # fmt: skip
    else:
        search = OverlappingPoss.restore(task.state, stop, own_isolation(task))
    search.swaps = options.swaps
    return run_evaluations(task, search, stop)

"""Run the method of a request on an objective."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from dsel._lib.blas import one_blas_thread
from dsel.data.criterion_data import ColumnData
from dsel.data.dataset import Dataset
from dsel.objective.base import ItemObjective, Objective
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.planning.validation import ValidatedRequest
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.greedy.polish import polish
from dsel.search.method import SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.search.pareto.criterion import Criterion
from dsel.search.pareto.evaluations import EvaluateSubsets, takes_data
from dsel.search.runtime.ask_tell import Task
from dsel.selection.context import RunContext


def run_method(
    dataset: Dataset, objective: Objective, validated: ValidatedRequest, context: RunContext,
    rows: DatasetRows | None = None,
) -> SearchOutcome:  # fmt: skip
    """Run the method, unless the included columns leave nothing to choose."""
    request = validated.request
    criterion = validated.criterion
    data = ColumnData(dataset) if criterion is not None and takes_data(criterion) else None
    groups = validated.items.local(objective.columns)
    k = min(request.limit - validated.included, validated.subject(objective).n)
    if k == 0:
        included = tuple(sorted(objective.included))
        value = objective.c if criterion is None else _value_of(criterion, data, included)
        return SearchOutcome((FrontPoint(0, value, ()),))
    engine = context.search_engine
    shared_folder = None if engine.in_process or not context.shares_folder else context.shared_folder
    task = SearchTask(
        objective, k, request.seed, validated.options, state=context.state, on_slice=context.on_slice,
        criterion=criterion, rows=rows, data=data, executor=engine.executor, journal=context.journal,
        runner=None if engine.in_process else on_workers(engine.executor), on_workers=not engine.in_process,
        shared_folder=shared_folder, groups=groups, start=_start(objective, context),
    )  # fmt: skip
    with threads_for(task.subject):
        outcome = validated.method.run(task)
        return outcome if request.polish == "none" else polish(task.subject, task.k, outcome)


def _value_of(criterion: Criterion, data: ColumnData | None, included: tuple[int, ...]) -> float:
    """Return the criterion of the included columns alone."""
    result = EvaluateSubsets(criterion, data, (), included)(Task("included", ((),)))
    if result.error is not None:
        raise result.error
    return float(result.found[0])


def threads_for(subject: ItemObjective) -> AbstractContextManager[None]:
    """Return a block in which BLAS has one thread for groups: their matrices are small, and threads would wait."""
    return nullcontext() if subject.groups is None else one_blas_thread()


def _start(objective: Objective, context: RunContext) -> tuple[tuple[int, ...], ...]:
    """Return the subsets to start from in local columns. One with a column that may not be chosen is left out."""
    if not context.start:
        return ()
    place = {int(j): i for i, j in enumerate(objective.columns)}
    included = {int(j) for j in objective.included}
    found = (tuple(j for j in subset if j not in included) for subset in context.start)
    subsets = (tuple(sorted(place[j] for j in subset)) for subset in found if all(j in place for j in subset))
    return tuple(dict.fromkeys(subset for subset in subsets if subset))

"""Run the method of a request on an objective.

The errors of a front from the data, where the search ran on an approximation.

What a selection is compared with: forward selection on the same objective, and the best approximation of X.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel.data.criterion_data import ColumnData
from dsel.data.dataset import Dataset
from dsel.objective.base import ItemObjective, Objective
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.planning.representations.base import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.greedy.exchange import polish
from dsel.search.greedy.path import forward
from dsel.search.method import Criterion, SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome, improving
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


#: f and the residual sum of squares by the columns of a subset.
Errors = dict[tuple[int, ...], tuple[float, float]]


def recomputed_front(
    outcome: SearchOutcome, objective: Objective, validated: ValidatedRequest, prepared: Prepared
) -> tuple[SearchOutcome, Errors]:
    """Return the outcome with the errors of the data, without points that are now worse than smaller ones.

    Where the objective is exact, the outcome is returned as it is, with no errors. A custom criterion stays what it is.
    """
    if prepared.errors is None:
        return outcome, {}
    subsets = [objective.in_data(point.members) for point in outcome.front]
    found = prepared.errors([np.sort(np.asarray(S, np.int64)) for S in subsets], validated.request.lam)
    errors = {tuple(sorted(S)): error for S, error in zip(subsets, found, strict=True)}
    if validated.criterion is not None:
        return outcome, errors
    points = [replace(point, value=f) for point, (f, _) in zip(outcome.front, found, strict=True)]
    outcome = replace(outcome, front=improving(points), bound_notes=())
    return _with_bound_on_data(outcome, objective, validated, prepared), errors


def _with_bound_on_data(
    outcome: SearchOutcome, objective: Objective, validated: ValidatedRequest, prepared: Prepared
) -> SearchOutcome:  # fmt: skip
    """Return the outcome with bounds that hold for the data, and its certificates about values of the data.

    Subsets that depend on each other in the objective need not do so in the data. What they may explain more lowers the
    bound, too.
    """
    assert prepared.left_out is not None
    value = outcome.best(validated.request.limit - validated.included).value
    lost = prepared.left_out(validated.most_columns)

    def lowered(bound: float, dependent_gap: float) -> float:
        return min(max(bound - lost - dependent_gap * objective.total, 0.0), value)

    counts = {name: v for name, v in outcome.counts.items() if name not in ("weighted_suboptimality", "near_copies")}
    certificates = tuple(
        replace(one, value=value, bound=lowered(one.bound, one.dependent_gap), indices=tuple(objective.in_data(
            outcome.best(validated.request.limit - validated.included).members)), dependent_gap=0.0, near_copies=())
        for one in outcome.certificates
    )  # fmt: skip
    if "bound" in counts:
        bound = lowered(counts["bound"], counts.pop("dependent_gap", 0.0))
        judged = Certificate(0, value, bound, objective.total, rounding_error=counts.get("rounding_error", 0.0))
        counts |= {"bound": bound, "status": judged.status, "proven": judged.proven, "suboptimality": judged.gap}
    ended = "complete" if outcome.ended == "proven" and not counts.get("proven") else outcome.ended
    return replace(outcome, counts=counts, certificates=certificates, ended=ended)


#: Operations that forward selection may take: a second or two.
_OPERATIONS = 1e9
#: The largest subsets that are compared. The values of a path to k columns cost O(k^4).
_LARGEST = 500
#: The eigenvalues of K are computed for at most this many columns: about a second.
_MOST_EIGENVALUES = 2000


def forward_reference(subject: ItemObjective, k: int) -> tuple[FrontPoint, ...]:
    """Return the best subset of each size on the path of forward selection, or nothing where that is not cheap.

    It is cheap where the objective holds the Gram matrix and n k^2 is small. It reads no data.
    """
    k = min(k, subject.n)
    if not subject.has_gram or not 0 < k <= _LARGEST or subject.columns_of.n * k * k > _OPERATIONS:
        return ()
    with threads_for(subject):
        return forward(subject, k).front


def rank_error(objective: Objective, size: int) -> float | None:
    """Return the share of ||X||^2 that the best approximation of X of rank `size` leaves; None where it is not cheap.

    objective: over all columns, for Y = X. It is the share of the other eigenvalues of K. It reads no data.
    """
    if not objective.has_gram or objective.eigen_factor is not None or objective.n > _MOST_EIGENVALUES:
        return None
    values = np.maximum(np.linalg.eigvalsh(objective.K), 0.0)
    left = float(values[: max(values.size - size, 0)].sum() / values.sum())
    return left if left > 8.0 * values.size * np.finfo(float).eps else 0.0

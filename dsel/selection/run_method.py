"""Run the method of a request on an objective, and judge what it found.

The errors of a front are recomputed from the data, where the search ran on an approximation. A selection is compared
with forward selection on the same objective, and with the best approximation of X. Methods that score subsets on the
rows of the data have errors on left-out and held-out rows.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel.data.criterion_data import ColumnData
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.passes.cross_validation.column_rows import ColumnRows
from dsel.passes.cross_validation.disk_cache import DiskCache, cache_width
from dsel.passes.cross_validation.held_out import held_out_moments
from dsel.passes.cross_validation.rows import DatasetRows, FoldRows, check_intercept
from dsel.passes.statistics import Statistics
from dsel.planning.plan import Plan
from dsel.planning.rounds import chunk_columns
from dsel.search.ask_tell import Task
from dsel.search.cross_validation.rounds import fits_along
from dsel.search.exact.certificate import REDUCED, nothing_to_choose
from dsel.search.exact.guarantee import Limits
from dsel.search.greedy.exchange import polish
from dsel.search.greedy.path import NO_GAIN, backward, forward, largest
from dsel.search.method import Criterion, SearchTask
from dsel.search.outcome import FrontPoint, PathPoint, SearchOutcome, improving
from dsel.search.pareto.evaluations import EvaluateSubsets, takes_data
from dsel.selection.context import RunContext, SelectionRun
from dsel.selection.record_values import PathRow


def run_method(run: SelectionRun) -> SearchOutcome:
    """Run the method, unless the included columns leave nothing to choose."""
    validated, objective, context = run.validated, run.objective, run.context
    criterion = validated.criterion
    data = ColumnData(run.dataset) if criterion is not None and takes_data(criterion) else None
    k = run.reachable
    if k == 0:
        value = objective.c if criterion is None else _value_of(criterion, data, tuple(run.always))
        proof = replace(nothing_to_choose(objective, Limits(objective).guarantee(0).error), size=validated.included)
        return SearchOutcome((FrontPoint(0, value, ()),), certificates=() if criterion is not None else (proof,))
    engine, runner = context.search_engine, None
    if not engine.in_process:
        from dsel.search.exact.trees_on_workers import on_workers

        runner = on_workers(engine.executor)
    shared_folder = None if engine.in_process or not context.shares_folder else context.shared_folder
    task = SearchTask(
        objective, k, validated.request.seed, validated.options, state=context.state, on_slice=context.on_slice,
        criterion=criterion, rows=run.rows, data=data, executor=engine.executor, journal=context.journal,
        runner=runner, on_workers=not engine.in_process,
        shared_folder=shared_folder, groups=validated.items.local(objective.columns), included=validated.included,
        always=tuple(run.always), start=_start(objective, context),
    )  # fmt: skip
    with threads_for(task.subject):
        outcome = validated.method.run(task)
        return outcome if validated.request.polish == "none" else polish(task.subject, task.k, outcome)


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


def recomputed_front(run: SelectionRun, outcome: SearchOutcome) -> tuple[SearchOutcome, Errors]:
    """Return the outcome with the errors of the data, without points that are now worse than smaller ones.

    Where the objective is exact, the outcome is returned as it is, with no errors. A custom criterion stays what it is.
    """
    if run.prepared.errors is None:
        return outcome, {}
    subsets = [run.objective.in_data(point.members) for point in outcome.front]
    recomputed = run.prepared.errors([np.sort(np.asarray(S, np.int64)) for S in subsets], run.validated.request.lam)
    errors = {tuple(sorted(S)): error for S, error in zip(subsets, recomputed, strict=True)}
    if run.validated.criterion is not None:
        return outcome, errors
    points = [replace(point, value=f) for point, (f, _) in zip(outcome.front, recomputed, strict=True)]
    outcome = replace(outcome, front=improving(points))
    return _with_bound_on_data(run, outcome), errors


def _with_bound_on_data(run: SelectionRun, outcome: SearchOutcome) -> SearchOutcome:
    """Return the outcome with bounds that hold for the data, and its certificates about values of the data.

    Subsets that depend on each other in the objective need not do so in the data. What they may explain more lowers the
    bound, too.
    """
    assert run.prepared.left_out is not None
    lost, total = run.prepared.left_out(run.validated.most_columns), run.objective.total
    certificates = []
    for proof in outcome.certificates:
        best = outcome.best(proof.size - run.validated.included)
        bound = max(proof.bound - lost - proof.dependent_gap * total, 0.0)
        lowered = replace(proof, bound=bound, dependent_gap=0.0, near_copies=(), method=f"{proof.method}{REDUCED}")
        certificates.append(lowered.about(proof.size, best.value, run.objective.in_data(best.members)))
    proven = all(proof.proven for proof in certificates)
    ended = "complete" if outcome.ended == "proven" and not proven else outcome.ended
    return replace(outcome, certificates=tuple(certificates), ended=ended)


#: Operations that forward selection may take: a second or two.
_OPERATIONS = 1e9
#: The most columns that backward elimination begins with. It takes about 0.01 s.
_MOST_DELETED = 125
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


def greedy_references(subject: ItemObjective, k: int) -> tuple[FrontPoint, ...]:
    """Return the best subsets on the paths of forward selection and backward elimination, as far as these are cheap.

    Backward elimination keeps columns that explain much together, but little alone. Of many columns, it begins with
    those that forward selection takes first. It reads no data.
    """
    points, objective = forward_reference(subject, k), subject.columns_of
    if not points or (objective.n > _MOST_DELETED and subject.groups is not None):
        return points
    with threads_for(subject):
        if objective.n <= _MOST_DELETED:
            return points + backward(subject, min(k, subject.n)).front
        first = objective.subset(_MOST_DELETED)
        while first.size < _MOST_DELETED and (gains := first.gains()).max() > NO_GAIN * objective.total:
            if not first.insert(largest(gains)):
                break
        kept = sorted(first.members)
        found = backward(objective.restrict(kept), min(k, len(kept))).front
        return points + tuple(replace(p, members=tuple(kept[j] for j in p.members)) for p in found)


def rank_error(objective: Objective, size: int) -> float | None:
    """Return the share of ||X||^2 that the best approximation of X of rank `size` leaves; None where it is not cheap.

    objective: over all columns, for Y = X. It is the share of the other eigenvalues of K. It reads no data.
    """
    if not objective.has_gram or objective.eigen_factor is not None or objective.n > _MOST_EIGENVALUES:
        return None
    values = np.maximum(np.linalg.eigvalsh(objective.K), 0.0)
    left = float(values[: max(values.size - size, 0)].sum() / values.sum())
    return left if left > 8.0 * values.size * np.finfo(float).eps else 0.0


log = logging.getLogger("dsel")


def scored_rows(run: SelectionRun, plan: Plan) -> DatasetRows | None:
    """Return the rows that the method scores subsets on; None for methods that do not.

    Folds are scored by their moments where the Gram matrix is held.
    """
    dataset, validated, prepared = run.dataset, run.validated, run.prepared
    request, cv, statistics = validated.request, validated.requirements.cross_validation, prepared.statistics
    if cv is None:
        return None
    options: dict[str, Any] = {
        "fill": statistics.mean_x if request.missing == "mean" else None, "engine": run.context.engine
    }  # fmt: skip
    if prepared.folds is not None:
        assert validated.partition is not None
        assert isinstance(statistics, Statistics)
        return FoldRows(dataset, statistics, request.preprocess, prepared.folds, validated.partition, **options)
    options |= {"loss": cv.loss, "intercept": cv.intercept, "disk": _disk_cache(run, plan)}
    if prepared.factor is not None:
        return ColumnRows(prepared.factor, statistics, request.preprocess, folds=validated.partition, **options)
    return DatasetRows(dataset, statistics, request.preprocess, **options)


def _disk_cache(run: SelectionRun, plan: Plan) -> DiskCache | None:
    """Return the cache on disk that the plan asks for."""
    dataset, validated = run.dataset, run.validated
    request, cv = validated.request, validated.requirements.cross_validation
    if plan.rewrite_every is None or cv is None:
        return None
    log.info("%s: the cache on disk is rewritten every %d rounds", request.method, plan.rewrite_every)
    columns = chunk_columns(plan.chosen, dataset)
    key = {
        "preprocess": request.preprocess, "loss": cv.loss, "missing": request.missing,
        "intercept": check_intercept(cv.intercept, request.preprocess),
    }  # fmt: skip
    return DiskCache(
        dataset, every=plan.rewrite_every, first=validated.include.size, folder=run.context.scratch,
        width=cache_width(dataset, cv.loss, columns), key=key, optional=cv.rewrite_every == "auto", columns=columns,
    )  # fmt: skip


def path_rows(run: SelectionRun, outcome: SearchOutcome) -> tuple[PathRow, ...]:
    """Return the steps of a search, with their errors on held-out rows if there are any (one pass over those)."""
    dataset, rows, held_out = run.dataset, run.rows, run.validated.held_out
    assert rows is not None
    tests: list[float | None] = [None] * len(outcome.path)
    if held_out is not None:
        start = run.always
        if outcome.path and outcome.path[0].action == "remove":
            start = sorted({*start, *(p.column for p in outcome.path), *(outcome.chosen or ())})
        fits = fits_along(rows.problem(run.validated.request.lam), outcome.path, start)
        tests = held_out_moments(held_out, fits, rows.transform, run.context.engine)[0].tolist()
    labelled = rows.transform.loss == "zero-one"
    N = dataset.n_targets

    def row(point: PathPoint, test: float | None) -> PathRow:
        error = point.error / rows.weight
        return PathRow(
            point.action, point.column, str(dataset.features[point.column]), point.size,
            error / N if labelled else error, 1.0 - error / N if labelled else None,
            test if test is None or not labelled else test / N,
            1.0 - test / N if labelled and test is not None else None,
        )  # fmt: skip

    return tuple(row(point, test) for point, test in zip(outcome.path, tests, strict=True))

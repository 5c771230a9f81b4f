"""Errors on left-out and held-out rows, for methods that score subsets on the rows of the data."""

from __future__ import annotations

import logging
from typing import Any

from dsel._lib.types import Floats
from dsel.data.dataset import Dataset
from dsel.passes.cross_validation.column_rows import ColumnRows
from dsel.passes.cross_validation.disk_cache import DiskCache, row_width
from dsel.passes.cross_validation.fold_rows import FoldRows
from dsel.passes.cross_validation.held_out import held_out_errors
from dsel.passes.cross_validation.rows import AnyStatistics, DatasetRows, check_intercept
from dsel.passes.statistics import Statistics
from dsel.planning.plan import Plan
from dsel.planning.planned_rounds import chunk_columns
from dsel.planning.representations.base import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.cross_validation.rounds import fits_along
from dsel.search.outcome import PathPoint, SearchOutcome
from dsel.selection.context import RunContext
from dsel.selection.size_curve import PathRow

log = logging.getLogger("dsel")


def scored_rows(
    dataset: Dataset, validated: ValidatedRequest, prepared: Prepared, plan: Plan, context: RunContext
) -> DatasetRows | None:
    """Return the rows that the method scores subsets on; None for methods that do not.

    Folds are scored by their moments where the Gram matrix is held.
    """
    request, cv, statistics = validated.request, validated.requirements.cross_validation, prepared.statistics
    if cv is None:
        return None
    assert isinstance(statistics, AnyStatistics)
    options: dict[str, Any] = {
        "fill": statistics.mean_x if request.missing == "mean" else None, "engine": context.engine
    }  # fmt: skip
    if prepared.folds is not None:
        assert validated.partition is not None
        assert isinstance(statistics, Statistics)
        return FoldRows(dataset, statistics, request.preprocess, prepared.folds, validated.partition, **options)
    options |= {"loss": cv.loss, "intercept": cv.intercept, "disk": _disk_cache(dataset, validated, plan, context)}
    if prepared.factor is not None:
        return ColumnRows(prepared.factor, statistics, request.preprocess, folds=validated.partition, **options)
    return DatasetRows(dataset, statistics, request.preprocess, **options)


def _disk_cache(dataset: Dataset, validated: ValidatedRequest, plan: Plan, context: RunContext) -> DiskCache | None:
    """Return the cache on disk that the plan asks for."""
    request, cv = validated.request, validated.requirements.cross_validation
    if plan.fold_every is None or cv is None:
        return None
    log.info("%s: the cache on disk is rewritten every %d rounds", request.method, plan.fold_every)
    columns = chunk_columns(plan.chosen, dataset)
    key = {
        "preprocess": request.preprocess, "loss": cv.loss, "missing": request.missing,
        "intercept": check_intercept(cv.intercept, request.preprocess),
    }  # fmt: skip
    return DiskCache(
        dataset, every=plan.fold_every, first=validated.include.size, folder=context.scratch,
        width=row_width(dataset, cv.loss) if columns is None else 0, key=key,
        optional=cv.rewrite_every == "auto", columns=columns,
    )  # fmt: skip


def held_out_path(
    validated: ValidatedRequest, rows: DatasetRows, outcome: SearchOutcome, context: RunContext
) -> Floats:
    """Return the error of each step on held-out rows, in one pass over them."""
    held_out = validated.held_out
    assert held_out is not None
    start = [int(j) for j in validated.include]
    if outcome.path and outcome.path[0].action == "remove":
        start = sorted({*start, *(p.column for p in outcome.path), *(outcome.chosen or ())})
    problem = rows.problem(validated.request.lam)
    return held_out_errors(held_out, fits_along(problem, outcome.path, start), rows.transform, context.engine)


def path_rows(
    dataset: Dataset, validated: ValidatedRequest, rows: DatasetRows, outcome: SearchOutcome, context: RunContext
) -> tuple[PathRow, ...]:
    """Return the steps of a search, with their errors on held-out rows if there are any (one pass over those)."""
    tests: list[float | None] = [None] * len(outcome.path)
    if validated.held_out is not None:
        tests = held_out_path(validated, rows, outcome, context).tolist()
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

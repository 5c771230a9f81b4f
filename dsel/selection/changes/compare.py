"""Compare a run with the previous one: what entered and left, whether that is better, and what drifted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.errors import DataError
from dsel.objective.base import Objective
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales
from dsel.planning.validation import ValidatedRequest
from dsel.selection.changes.drift import drift
from dsel.selection.changes.previous import COLUMNS, ColumnSummary, PreviousRun
from dsel.selection.changes.resampling import MOST_COLUMNS, part_sums
from dsel.selection.result import Selection
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")


def comparing(folder: AnyPath, previous: PreviousRun | None) -> Callable[..., Selection]:
    """Return a function that compares a result with the previous run, and saves what the next run compares with.

    The function has the arguments of `RunContext.compare`. A comparison that fails does not lose the selection.
    """

    def compare(
        dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales, whole: Objective, fit: Fit,
        selection: Selection, engine: Engine,
    ) -> Selection:  # fmt: skip
        ColumnSummary.of(statistics).save(folder / COLUMNS)
        if previous is None:
            return selection
        try:
            changes = compare_runs(dataset, validated, statistics, whole, fit, selection, previous, engine)
        except (DataError, ArithmeticError, ValueError, LookupError) as error:
            log.warning("the comparison with run %s failed: %r", previous.name, error)
            return selection
        return replace(selection, changes=changes)

    return compare


def compare_runs(
    dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales, whole: Objective, fit: Fit,
    selection: Selection, previous: PreviousRun, engine: Engine,
) -> dict[str, Any]:  # fmt: skip
    """Return what changed since the previous run, ready for JSON.

    Parameters
    ----------
    dataset, validated : Dataset, ValidatedRequest
        The data and the request of this run.
    statistics : ColumnScales
        Means and scales of the columns.
    whole : Objective
        f over all columns.
    fit : Fit
        The fit on the chosen columns.
    selection : Selection
        The result of this run.
    previous : PreviousRun
        The run to compare with.
    engine : Engine
        Where the pass over the columns of both selections runs.

    Returns
    -------
    dict
        See the page on nightly runs for the keys.
    """
    old = previous.selection
    place = {str(label): j for j, label in enumerate(dataset.features)}
    members = [place[label] for label in old.labels if label in place]
    gone = [label for label in old.labels if label not in place]
    rows_before = old.shape[0]
    appended = dataset.m > rows_before and dataset.row_part is None and not dataset.window
    entered = [label for label in selection.labels if label not in set(old.labels)]
    left = [label for label in old.labels if label not in set(selection.labels)]
    found: dict[str, Any] = {
        "run": previous.name, "rows_before": rows_before, "rows": dataset.m,
        "new_rows": dataset.m - rows_before if appended else None,
        "entered": entered, "left": left, "changed": bool(entered or left),
        "previous_error": None, "previous_r2": None, "error": fit.error, "on_new_rows": None, "comparison": None,
        "drift": None, "bound": None, "status": None, "distance": None,
    }  # fmt: skip
    if not gone:
        found["previous_error"] = fit.error if not found["changed"] else whole.value(_local(whole, members))
        found["previous_r2"] = 1.0 - found["previous_error"] / fit.total
    if previous.columns is not None and previous.columns.mean_x.size == dataset.n:
        now = ColumnSummary.of(statistics)
        found["drift"] = drift(previous.columns, now, dataset.features.tolist(), selection.indices, appended)
    if not gone and dataset.n_targets:
        _compare_rows(found, dataset, validated, statistics, selection, members, old, engine, appended)
    return found


def _local(whole: Objective, members: list[int]) -> list[int]:
    place = {int(j): i for i, j in enumerate(whole.columns)}
    return [place[j] for j in members if j in place]


def _compare_rows(
    found: dict[str, Any], dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales,
    selection: Selection, members: list[int], old: Selection, engine: Engine, appended: bool,
) -> None:  # fmt: skip
    """Add what a pass over the columns of both selections tells. It reads the new rows only, if both are the same."""
    request = validated.request
    columns = np.union1d(np.asarray(members, np.int64), np.asarray(selection.indices, np.int64))
    if columns.size + dataset.n_targets > MOST_COLUMNS or not columns.size:
        return
    if not (found["changed"] or appended):
        return
    scaling = statistics.scaling(request.preprocess)
    sums = part_sums(
        dataset, columns, scaling, first_new=found["rows_before"] if appended else dataset.m,
        only_new=not found["changed"], centered=request.preprocess in ("standardize", "center"), lam=request.lam,
        fill=statistics.mean_x if request.missing == "mean" else None, engine=engine,
    )  # fmt: skip
    if appended and old.coefficients.shape == (len(old.indices), dataset.n_targets):
        found["on_new_rows"] = sums.predicted(members, old.coefficients, old.intercept, scaling)
    if found["changed"]:
        found["comparison"] = sums.compare(members, selection.indices, request.seed)


def with_bound(selection: Selection) -> Selection:
    """Return the selection with the certified bound, and how far the previous selection is from it."""
    if selection.changes is None:
        return selection
    rows = [row for row in selection.certificate if row["size"] == selection.k]
    if not rows:
        return selection
    bound, status, before = float(rows[0]["bound"]), rows[0]["status"], selection.changes["previous_error"]
    distance = None if before is None or status == "no-useful-bound" else max(before - bound, 0.0)
    return replace(selection, changes={**selection.changes, "bound": bound, "status": status, "distance": distance})

"""Compare a run with the previous one: what entered and left, whether that is better, and what drifted.

The two subsets are compared on resampled parts of the rows, and the fit of the previous run is tried on the new rows
alone. For that, one pass sums Z'Z of Z = [1, X_U, Y] over parts of consecutive rows, where U holds the columns of both
subsets. Each error is then a small least-squares problem on a weighted sum of these matrices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.data.labels import Labels
from dsel.engine.engine_protocol import Engine
from dsel.errors import DataError
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.refit import Fit
from dsel.passes.statistics import Scaling
from dsel.search.exact.certificate_words import began_again, claim, effort, scope
from dsel.selection.alternatives import changed_verdicts, other_subsets
from dsel.selection.changes.drift import COLUMNS, ColumnSummary, appends_of, drift, weight_of_values
from dsel.selection.context import SelectionRun
from dsel.selection.loss_search import LossSearch
from dsel.selection.result import Selection, open_selection
from dsel.selection.search_sizes import residual_and_freedom
from dsel.storage.paths import AnyPath


@dataclass(frozen=True, eq=False)
class PreviousRun:
    """The last good run of the same job.

    Parameters
    ----------
    name : str
        The name of its folder.
    selection : Selection
        Its result.
    columns : ColumnSummary, optional
        Means and scales of its columns.
    """

    name: str
    selection: Selection
    columns: ColumnSummary | None = None

    @classmethod
    def open(cls, folder: AnyPath) -> PreviousRun:
        """Return the run in a folder. Raises the errors of `open_selection`."""
        selection = open_selection(folder)
        return cls(folder.name, selection, ColumnSummary.open(folder / COLUMNS, selection.request.missing))

    def comes_before(self, dataset: Dataset) -> bool:
        """Return whether the rows of the run are the first rows of the data."""
        known = () if self.columns is None else self.columns.appends
        whole = not dataset.window and self.selection.request.rows is None
        return whole and (not known or appends_of(dataset)[: len(known)] == known)

    def subsets(self, features: Labels) -> tuple[tuple[int, ...], ...]:
        """Return the subsets of its front and its answer as columns of data with these labels, found by label.

        A subset with a column that the data do not have is left out.
        """
        selection = self.selection
        place = {str(label): j for j, label in enumerate(features)}
        rows = [row.indices for row in selection.front if row.indices]
        found = []
        for indices in (*rows, selection.indices):
            members = [place.get(selection.label(j), -1) for j in indices]
            if members and min(members) >= 0:
                found.append(tuple(sorted(members)))
        return tuple(dict.fromkeys(found))


#: The number of parts of the rows, which are drawn with replacement, and the number of draws.
PARTS, DRAWS = 32, 400
#: With more columns and targets than this, the sums would take too much memory.
MOST_COLUMNS = 300
_PIECE_ROWS = 1 << 14
#: A smaller share of the squares of the targets is rounding.
_ROUNDING = 1e-12
#: The error of columns may be below the bound by this share of it at most because of rounding.
_BELOW = 1e-7


@dataclass(frozen=True)
class PartSums:
    """Sums of Z'Z over parts of the rows, Z = [1, X_U, Y] preprocessed.

    Parameters
    ----------
    columns : ndarray of int, shape (u,)
        The columns U, ascending.
    parts : ndarray, shape (PARTS, 1 + u + N, 1 + u + N)
        The sums of each part.
    new : ndarray, shape (1 + u + N, 1 + u + N)
        The sum over the new rows.
    centered : bool
        Whether columns are centered, so that a fit has an intercept.
    lam : float
        The ridge penalty.
    """

    columns: Ints
    parts: Floats
    new: Floats
    centered: bool
    lam: float

    def rss(self, S: Sequence[int], sums: Floats) -> float:
        """Return ||Y - X_S A||^2 over the rows of these sums, A with the ridge penalty."""
        if self.centered:
            first: Floats = sums[0]
            sums = sums - np.outer(first, first) / (float(first[0]) or 1.0)
        members, targets = 1 + np.searchsorted(self.columns, np.asarray(S, np.int64)), 1 + self.columns.size
        total = float(np.trace(sums[targets:, targets:]))
        if not members.size:
            return total
        K = sums[np.ix_(members, members)] + self.lam * np.eye(members.size)
        B = sums[members, targets:]
        A = np.linalg.lstsq(K, B, rcond=None)[0]
        return total - float(np.vdot(B, A)) - self.lam * float(np.vdot(A, A))

    def predicted(self, S: Sequence[int], coefficients: Floats, intercept: Floats, scaling: Scaling) -> dict[str, Any]:
        """Return the error and R2 on the new rows of a fit in units of the data. Targets are in preprocessed units."""
        u, N = self.columns.size, self.new.shape[0] - 1 - self.columns.size
        chosen = np.asarray(S, np.int64)
        weights = np.zeros((self.new.shape[0], N))
        weights[0] = (intercept + scaling.center_x[chosen] @ coefficients - scaling.center_y) / scaling.scale_y
        scale = scaling.scale_x[chosen][:, None] / scaling.scale_y
        weights[1 + np.searchsorted(self.columns, chosen)] = coefficients * scale
        weights[1 + u :] = -np.eye(N)
        error = float(np.vdot(weights, self.new @ weights))
        total, rounding = self.rss((), self.new), _ROUNDING * float(np.trace(self.new[1 + u :, 1 + u :]))
        return {"error": max(error, 0.0), "r2": 1.0 - error / total if total > rounding else None}

    def compare(self, before: Sequence[int], now: Sequence[int], seed: int) -> dict[str, Any]:
        """Return by how much the R2 of `now` is above that of `before`, with its interval.

        The parts are drawn with replacement. Both subsets are fitted to each draw, so the comparison is paired.
        """
        rng = np.random.default_rng((seed, PARTS, DRAWS))
        counts = rng.multinomial(PARTS, np.full(PARTS, 1.0 / PARTS), size=DRAWS)
        gains = []
        for draw in counts:
            sums = np.tensordot(draw.astype(np.float64), self.parts, axes=1)
            total = self.rss((), sums)
            gains.append((self.rss(before, sums) - self.rss(now, sums)) / total if total > 0.0 else 0.0)
        low, high = (float(value) for value in np.quantile(gains, [0.025, 0.975]))
        whole = self.parts.sum(axis=0)
        gain = (self.rss(before, whole) - self.rss(now, whole)) / self.rss((), whole)
        return {
            "gain": gain, "low": low, "high": high, "parts": PARTS, "draws": DRAWS, "beyond_splitting": bool(low > 0.0),
        }  # fmt: skip


def part_sums(
    dataset: Dataset, columns: Ints, scaling: Scaling, *, first_new: int, only_new: bool, centered: bool, lam: float,
    fill: Floats | None, engine: Engine,
) -> PartSums:  # fmt: skip
    """Return the sums of the parts in one pass over the columns.

    Parameters
    ----------
    dataset : Dataset
        The data, with targets.
    columns : ndarray of int
        U, ascending.
    scaling : Scaling
        Centers and scales of all columns.
    first_new : int
        The first new row.
    only_new : bool
        Read the new rows only.
    centered, lam
        As in `PartSums`.
    fill : ndarray of shape (n,), optional
        Values that replace NaN.
    engine : Engine
        Where the pass runs.
    """
    size = 1 + columns.size + dataset.n_targets
    scaled = Scaling(scaling.center_x[columns], scaling.scale_x[columns], scaling.center_y, scaling.scale_y)
    row_pass = RowPass(
        "comparison", dataset, _sums_of_block, np.add, 8 * (PARTS + 1) * size**2, 2 * dataset.m * size**2, columns,
        whole=False, ranges=((first_new, dataset.m),) if only_new else None,
    )  # fmt: skip
    found = row_pass.run(
        engine, scaling=scaled, fill=None if fill is None else fill[columns], m=dataset.m, first_new=first_new
    )  # fmt: skip
    return PartSums(columns, found[:PARTS], found[PARTS], centered, lam)


def _sums_of_block(
    x: Any, y: Any, block: Block, scaling: Scaling, fill: Floats | None, m: int, first_new: int
) -> NDArray[np.float64]:
    """Return Z'Z of the rows of a block by part, and last that of its new rows."""
    size = 1 + x.shape[1] + y.shape[1]
    sums = np.zeros((PARTS + 1, size, size))
    for start in range(0, x.shape[0], _PIECE_ROWS):
        rows = dense_rows(x, start, start + _PIECE_ROWS, fill)
        targets = dense_rows(y, start, start + _PIECE_ROWS)
        X, Y = (rows - scaling.center_x) / scaling.scale_x, (targets - scaling.center_y) / scaling.scale_y
        Z = np.hstack([np.ones((len(rows), 1)), X, Y])
        if block.w is not None:
            Z *= np.sqrt(block.w[start : start + len(rows), None])
        numbers = block.start + start + np.arange(len(rows))
        parts = numbers * PARTS // m
        for place, mine in [*((part, parts == part) for part in np.unique(parts)), (PARTS, numbers >= first_new)]:
            sums[place] += Z[mine].T @ Z[mine]
    return sums


log = logging.getLogger("dsel")


def comparing(folder: AnyPath, previous: PreviousRun | None) -> Callable[..., Selection]:
    """Return a function that compares a result with the previous run, and saves what the next run compares with.

    The function has the arguments of `RunContext.compare`. It replaces the changes that an earlier answer of the run
    had. A comparison that fails does not lose the selection.
    """

    def compare(run: SelectionRun, fit: Fit, selection: Selection, search: LossSearch | None = None) -> Selection:
        _summary(run).save(folder / COLUMNS)
        if previous is None:
            return selection
        try:
            changes = compare_runs(run, fit, selection, previous, search)
        except (DataError, ArithmeticError, ValueError, LookupError) as error:
            log.warning("the comparison with run %s failed: %r", previous.name, error)
            return replace(selection, changes=None)
        return replace(selection, changes=changes)

    return compare


def _summary(run: SelectionRun) -> ColumnSummary:
    statistics, missing = run.prepared.statistics, run.validated.request.missing
    weight = weight_of_values(run.dataset, missing, statistics.weight, run.context)
    return ColumnSummary.of(statistics, weight, run.dataset)


def compared_again(
    run: SelectionRun, fit: Fit, selection: Selection, before: Selection, search: LossSearch | None = None
) -> Selection:
    """Return a selection whose answer replaced that of `before` with its own changes since the previous run.

    Where the context does not compare, as without the previous run, the labels and the errors alone are compared.
    """
    if run.context.compare is not None:
        return run.context.compare(run, fit, selection, search)
    if (known := before.changes) is None:
        return selection
    old = [label for label in before.names if label not in set(known["entered"])] + list(known["left"])
    changes = {**known, **_labels_that_changed(old, selection.names), "error": fit.error, "comparison": None}
    if drifted := known["drift"]:
        columns = [{**column, "chosen": column["label"] in selection.names} for column in drifted["columns"]]
        changes["drift"] = {**drifted, "columns": columns}
    return replace(selection, changes=changes)


def _labels_that_changed(old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
    entered = [label for label in new if label not in set(old)]
    left = [label for label in old if label not in set(new)]
    return {"entered": entered, "left": left, "changed": bool(entered or left)}


def compare_runs(
    run: SelectionRun, fit: Fit, selection: Selection, previous: PreviousRun, search: LossSearch | None = None
) -> dict[str, Any]:
    """Return what changed since the previous run, ready for JSON. The page on nightly runs describes the keys.

    Parameters
    ----------
    run : SelectionRun
        This run.
    fit : Fit
        The fit on the chosen columns.
    selection : Selection
        The result of this run.
    previous : PreviousRun
        The run to compare with.
    search : LossSearch, optional
        The fits by another loss than the squared error. Errors are then its deviances with the penalty.
    """
    dataset, old = run.dataset, previous.selection
    column = {str(label): j for j, label in enumerate(dataset.features)}
    members = [column[label] for label in old.names if label in column]
    gone = len(members) < len(old.names)
    rows_before = old.shape[0]
    appended = dataset.m > rows_before and dataset.row_part is None and previous.comes_before(dataset)
    changes: dict[str, Any] = {
        "run": previous.name, "size_before": len(old.groups or old.names), "rows_before": rows_before,
        "rows": dataset.m,
        "new_rows": dataset.m - rows_before if appended else None,
        **_labels_that_changed(old.names, selection.names),
        "previous_error": None, "previous_r2": None, "error": fit.error, "on_new_rows": None, "comparison": None,
        "drift": None, "bound": None, "status": None, "distance": None, "verdicts": {}, "verdicts_about": "",
    }  # fmt: skip
    if not gone:
        before, rss = _errors(run, members, search) if changes["changed"] else (fit.error, fit.rss)
        changes |= {"previous_error": before, "previous_r2": 1.0 - rss / fit.total}
    now = _summary(run)
    if previous.columns is not None and previous.columns.has_columns_of(now):
        labels, same = dataset.features.tolist(), appended and old.weights == selection.weights
        changes["drift"] = drift(previous.columns, now, labels, selection.indices, same)
    predicts = appended and not gone and _predicted(old) == _predicted(selection)
    if search is not None:
        changes["on_new_rows"] = search.on_new_rows(old, members) if predicts else None
    elif not gone and dataset.n_targets:
        changes |= _compare_rows(run, selection, members, old, changes["changed"], predicts)
    return changes


def _predicted(selection: Selection) -> tuple[Any, ...]:
    """Return what the coefficients of a selection predict."""
    return selection.request.loss, selection.targets, selection.request.offset


def _errors(run: SelectionRun, members: list[int], search: LossSearch | None) -> tuple[float, float]:
    """Return the error of columns of the data, and their error without the penalty."""
    if search is not None:
        fit = search.fit_on(members)
        return fit.value, fit.deviance
    error = run.whole.value(members)
    return error, residual_and_freedom(run.whole, members)[0] if run.whole.lam else error


def _compare_rows(
    run: SelectionRun, selection: Selection, members: list[int], old: Selection, changed: bool, predicts: bool
) -> dict[str, Any]:
    """Return what a pass over the columns of both selections tells; over the new rows only, if both are the same.

    predicts: whether there are new rows, and the coefficients of the previous selection predict their targets.
    """
    dataset, statistics, request = run.dataset, run.prepared.statistics, run.validated.request
    columns = np.union1d(np.asarray(members, np.int64), np.asarray(selection.indices, np.int64))
    if columns.size + dataset.n_targets > MOST_COLUMNS or not columns.size or not (changed or predicts):
        return {}
    scaling = statistics.scaling(request.preprocess)
    sums = part_sums(
        dataset, columns, scaling, first_new=old.shape[0] if predicts else dataset.m, only_new=not changed,
        centered=request.preprocess in ("standardize", "center"), lam=request.lam,
        fill=statistics.mean_x if request.missing == "mean" else None, engine=run.context.engine,
    )  # fmt: skip
    compared: dict[str, Any] = {}
    if predicts and old.coefficients.shape == (len(old.indices), dataset.n_targets):
        compared["on_new_rows"] = sums.predicted(members, old.coefficients, old.intercept, scaling)
    if changed:
        compared["comparison"] = sums.compare(members, selection.indices, request.seed)
    return compared


def with_verdicts(selection: Selection, previous: Selection | None) -> Selection:
    """Return the selection with the columns whose verdict differs from that of the previous run."""
    if selection.changes is None or previous is None:
        return selection
    lists = previous.alternatives, selection.alternatives
    verdicts = {label: list(pair) for label, pair in changed_verdicts(*lists).items()}
    changes = {**selection.changes, "verdicts": verdicts, "verdicts_about": other_subsets(*lists)}
    return replace(selection, changes=changes)


def with_bound(selection: Selection) -> Selection:
    """Return the selection with the certified bound, and how far the previous selection is from it."""
    if selection.changes is None:
        return selection
    rows = [row for row in selection.certificate if row["size"] == selection.k]
    if not rows:
        return selection
    bound, status, before = float(rows[0]["bound"]), rows[0]["status"], selection.changes["previous_error"]
    larger = selection.changes.get("size_before", 0) > selection.k  # the bound is about at most k columns
    distance = None if before is None or larger or status == "no-useful-bound" else before - bound
    if distance is not None and distance < 0.0:  # today the previous columns may not be chosen, unless it is rounding
        distance = 0.0 if distance > -_BELOW * bound else None
    found: dict[str, Any] = {"bound": bound, "status": status, "distance": distance, "scope": scope(rows[0])}
    if (words := claim(rows[0])) is not None:
        proved = f"{words[0].upper()}{words[1:]}: {effort(rows[0])}"
        found["proof"] = ". ".join(filter(None, (proved, began_again(rows[0]).rstrip("."))))
    return replace(selection, changes={**selection.changes, **found})

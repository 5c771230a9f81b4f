"""Counts of rows by class and predicted probability, in one pass over the columns of a few fits.

A job's result has no rows. These counts are enough for the ROC curve, its area, the calibration and the confusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.objective.losses.loss import Loss
from dsel.passes.loss_data import LossData, columns_of, keeps, one_target
from dsel.passes.loss_fits import LossFit
from dsel.passes.reduce_blocks import RowPass

#: Rows are counted in bins of the logarithm of the odds, of 1 / 128 each from -16 to 16.
BINS, _WIDTH = 4096, 1.0 / 128.0
#: The number of rows that are processed at a time. Up to this many that this process holds are not put into bins.
_ROWS = 65_536


@dataclass(frozen=True)
class ClassTable:
    """Counts of the rows of one fit.

    Parameters
    ----------
    bins : (c, 2, B) array
        For each class against all others the weight of the rows that are not in it and of those that are, by the
        logarithm of its odds. c is 1 for two classes: the second one against the first. B is BINS, or the number of
        rows where each value has a bin.
    sums : (c, B) array
        The weighted sum of the probabilities of these rows.
    confusion : (q, q) array
        The weight of the rows of each class by the predicted class.
    """

    bins: Floats
    sums: Floats
    confusion: Floats

    def __add__(self, other: ClassTable) -> ClassTable:
        return ClassTable(self.bins + other.bins, self.sums + other.sums, self.confusion + other.confusion)

    def roc(self, number: int) -> tuple[Floats, Floats]:
        """Return the shares of false and of true positives at every bin, from (0, 0) to (1, 1)."""
        found = [np.append(0.0, np.cumsum(part[::-1])) for part in self.bins[number]]
        with np.errstate(invalid="ignore"):
            false, true = (sums / sums[-1] for sums in found)
        return false, true

    @property
    def auc(self) -> float:
        """The area under the ROC curve, the mean over classes; NaN where a class has no rows."""
        curves = [self.roc(number) for number in range(len(self.bins))]
        return float(np.mean([np.trapezoid(true, false) for false, true in curves]))

    def calibration(self, number: int, parts: int = 10) -> tuple[Floats, Floats]:
        """Return the mean probability and the share of a class, in about equal parts of the rows by probability."""
        weight = self.bins[number].sum(axis=0)
        middle = (np.cumsum(weight) - weight / 2.0) / max(float(weight.sum()), 1e-300)
        part = np.minimum((middle * parts).astype(int), parts - 1)
        total = np.bincount(part, weight, parts)
        there = total > 0.0
        found = (np.bincount(part, values, parts)[there] for values in (self.sums[number], self.bins[number, 1]))
        predicted, observed = (values / total[there] for values in found)
        return predicted, observed


def class_tables(problem: LossData, fits: Sequence[LossFit]) -> list[ClassTable]:
    """Return the counts of each fit, in one pass over the union of the columns, or without one if they are kept.

    Of a few rows that are kept, each value has a bin, so that areas are exact.
    """
    union = np.unique(np.concatenate([fit.columns for fit in fits]))
    columns = union if union.size else np.zeros(1, np.int64)
    places = tuple((np.searchsorted(columns, fit.columns), *fit.in_data_units(problem.scaling)) for fit in fits)
    arguments: dict[str, Any] = {"fits": places, "fill": None if problem.fill is None else problem.fill[columns]}
    dataset, targets = problem.dataset, problem.targets
    if dataset.in_memory or keeps(dataset, columns.size, problem.loss):
        X = columns_of(problem, columns)
        rows = Block(0, dataset.m, X, targets.y.reshape(dataset.m, -1), w=targets.w, offset=targets.offset)
        return _block_tables(rows.x, rows.y, rows, loss=problem.loss, exact=dataset.m <= _ROWS, **arguments)
    size = 8 * len(fits) * 6 * BINS
    work = 2 * dataset.m * sum(fit.columns.size for fit in fits)
    per_block = partial(_block_tables, loss=problem.loss)
    row_pass = RowPass("counts of classes", dataset, per_block, _add, size, work, columns, share=True, whole=False)
    found: list[ClassTable] = row_pass.run(problem.engine, **arguments)
    return found


def _add(a: list[ClassTable], b: list[ClassTable]) -> list[ClassTable]:
    return [one + other for one, other in zip(a, b, strict=True)]


def _block_tables(
    x: Any, y: Any, block: Block, *, loss: Loss, fits: tuple[tuple[Ints, Floats, Any], ...], fill: Floats | None,
    exact: bool = False,
) -> list[ClassTable]:  # fmt: skip
    """Return the counts of a block. fits: places of the columns, coefficients and intercept in units of the data."""
    found: list[ClassTable] = []
    for start in range(0, x.shape[0], _ROWS):
        z = dense_rows(x, start, start + _ROWS, fill)
        rows = slice(start, start + len(z))
        t = loss.encode(one_target(dense_rows(y, rows.start, rows.stop)))
        w = np.ones(len(t)) if block.w is None else block.w[rows]
        base = np.zeros(len(t)) if block.offset is None else block.offset[rows]
        parts = [_counted(loss, (z[:, S] @ b + b0).T + base, t.astype(np.int64), w, exact) for S, b, b0 in fits]
        found = _add(found, parts) if found else parts
    return found


def _counted(loss: Loss, eta: Floats, y: Ints, w: Floats, exact: bool) -> ClassTable:
    """Return the counts of rows with linear predictors (r,) or (t, r), classes y (r,) and weights w (r,).

    exact: whether each value has a bin.
    """
    if loss.contrasts is None:
        p, inside = loss.mean(eta)[None], y[None] == 1
        predicted, q, odds = (eta > 0.0).astype(np.int64), 2, eta[None]
    else:
        of_classes = loss.mean(eta.T @ loss.contrasts.T)
        p, q = of_classes.T, of_classes.shape[1]
        predicted, inside = of_classes.argmax(axis=1), y[None] == np.arange(q)[:, None]
        odds = np.log(np.maximum(p, 1e-300)) - np.log1p(-np.minimum(p, 1.0 - 1e-16))
    B = y.size if exact else BINS
    if exact:
        bin_of = np.array([np.unique(one, return_inverse=True)[1] for one in odds])
    else:
        bin_of = np.clip(odds / _WIDTH + B / 2, 0, B - 1).astype(np.int64)
    bins = [np.bincount(B * i + b, w, 2 * B).reshape(2, B) for i, b in zip(inside, bin_of, strict=True)]
    sums = [np.bincount(b, w * one, B) for one, b in zip(p, bin_of, strict=True)]
    confusion = np.bincount(q * y + predicted, w, q * q).reshape(q, q)
    return ClassTable(np.array(bins), np.array(sums), np.asarray(confusion, np.float64))

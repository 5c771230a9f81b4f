"""Passes for quadratic models of a loss about a fit, and what all passes of a loss cost.

The model is a weighted least-squares problem: with the curvature c_i and the slope s_i of the deviance, rows have the
weights w_i c_i / 2 and the targets eta_i - s_i / c_i. Its Gram matrix takes one pass, and a search on it takes none.
For a loss that is not a sum over rows, this process computes weights and targets of all rows, and passes read them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.objective.losses.loss import Loss, LossOfRows
from dsel.objective.losses.squared import Squared
from dsel.passes.data_pass import PassCost
from dsel.passes.loss_data import LossData, Targets, columns_of, fits_in_place, keeps, most_kept, one_target, read_pass
from dsel.passes.loss_fits import COMPLETE_FITS, ROWS, STEP_BYTES, LossFit
from dsel.passes.moments import Moments, block_moments, merge
from dsel.passes.reduce_blocks import PerBlock, RowPass

#: Models that a search takes at least, which is typical, and at most: the last ones are about the next best subsets.
FEWEST_MODELS, MOST_MODELS = 4, COMPLETE_FITS
#: Up to this many columns, fits find the order of gain; of more, the quadratic model about their fit.
ORDERED_BY_FITS = 30
#: A model has at most this many columns: of wider data those with the largest scores.
MOST_MODELLED = 1500
#: Columns of the subsets that are fitted after each model, typically, and those that a pass for them reads on average.
_FITTED_COLUMNS, _READ_COLUMNS = 50, 16
#: Fits that take a step together, on average.
_FITS = 12


def model_pass(problem: LossData, columns: Ints | None) -> RowPass:
    """Return the pass that sums the Gram matrix of a quadratic model. Arguments: those of `_block_model`."""
    dataset = problem.dataset
    n = dataset.n if columns is None else columns.size
    per_block = partial(_block_model, loss=problem.loss, where=dataset.name)
    return RowPass(
        "model of the loss", dataset, per_block, merge, 8 * n * (n + 1), dataset.m * n * (n + 2), columns, share=True
    )


def model_moments(problem: LossData, fit: LossFit, columns: Ints) -> Moments:
    """Return the moments of the quadratic model about a fit, over some ascending columns.

    The columns must contain those of the fit.
    """
    problem = problem if problem.loss.by_rows else as_squares(problem, fit)
    whole = columns.size == problem.dataset.n
    b, b0 = fit.in_data_units(problem.scaling)
    moments: Moments = model_pass(problem, None if whole else columns).run(
        problem.engine, members=np.searchsorted(columns, fit.columns), b=b, b0=b0,
        fill=None if problem.fill is None else problem.fill[columns],
    )  # fmt: skip
    return moments


def as_squares(problem: LossData, fit: LossFit) -> LossData:
    """Return the squared error that has the slope and the curvature of the loss at a fit, row by row."""
    rows, at = rows_at(problem, fit)
    weight, step = rows.working_response(at)
    target = at - step if problem.targets.offset is None else at - step - problem.targets.offset
    dataset = problem.dataset.with_rows("model", weight, target[:, None])
    return replace(problem, dataset=dataset, loss=Squared(), targets=Targets(target, weight, None))


def rows_at(problem: LossData, fit: LossFit) -> tuple[LossOfRows, Floats]:
    """Return the loss of all rows together, and the linear predictors of a fit with the offset."""
    targets, loss, order = problem.targets, problem.loss, np.argsort(fit.columns)
    b, b0 = fit.in_data_units(problem.scaling)
    y = loss.encode(targets.y)
    w = loss.row_weights(y, targets.w)
    eta = columns_of(problem, fit.columns[order]) @ b[order] + b0
    at = eta if targets.offset is None else (eta.T + targets.offset).T
    return loss.of_rows(y, np.ones(len(y)) if w is None else w), at


def _block_model(
    x: Any, y: Any, block: Block, *, loss: Loss, where: str, members: Ints, b: Floats, b0: Any, fill: Floats | None
) -> Moments:
    """Return the moments of the quadratic model of a block: weights w c / 2, targets eta - s / c less the offset."""
    chosen = x[:, members]
    eta = np.empty((x.shape[0], *b.shape[1:]))
    for start in range(0, x.shape[0], ROWS):
        z = dense_rows(chosen, start, start + ROWS, None if fill is None else fill[members])
        eta[start : start + ROWS] = z @ b + b0
    t = loss.encode(one_target(dense_rows(y, 0, x.shape[0])))
    w = loss.row_weights(t, block.w)
    at = eta if block.offset is None else (eta.T + block.offset).T
    weight, step = loss.of_rows(t, np.ones(len(t)) if w is None else w).working_response(at)
    target = eta - step
    place = f"{where}, rows {block.start} to {block.stop - 1}"
    return block_moments(x, target.reshape(len(target), -1), fill, place, block.start, weight)


def score_columns(problem: LossData, fit: LossFit) -> Floats:
    """Return (n,) by how much the deviance falls at first if a scaled column enters a fit: |X'slope|, in one pass."""
    problem = problem if problem.loss.by_rows else as_squares(problem, fit)
    b, b0 = fit.in_data_units(problem.scaling)
    per_block = partial(_block_scores, loss=problem.loss)
    found = scores_pass(problem.dataset, per_block).run(
        problem.engine, members=fit.columns, b=b, b0=b0, fill=problem.fill
    )
    centered = found[:-1] - np.multiply.outer(problem.scaling.center_x, found[-1])
    size = np.abs(centered) if centered.ndim == 1 else np.sqrt(np.square(centered).sum(axis=1))
    return np.asarray(size / problem.scaling.scale_x)


def scores_pass(dataset: Dataset, per_block: PerBlock) -> RowPass:
    """Return the pass that sums X'slope. Arguments: those of `_block_scores`."""
    size, flops = 8 * dataset.n, 2 * dataset.m * dataset.n
    return RowPass("scores of columns", dataset, per_block, np.add, size, flops, share=True)


def _block_scores(
    x: Any, y: Any, block: Block, *, loss: Loss, members: Ints, b: Floats, b0: Any, fill: Floats | None
) -> Floats:
    """Return X'slope of a block, and the sum of the slopes after it."""
    total = np.zeros((x.shape[1] + 1, *b.shape[1:]))
    for start in range(0, x.shape[0], ROWS):
        z = dense_rows(x, start, start + ROWS, fill)
        rows = slice(start, start + len(z))
        eta = z[:, members] @ b + b0
        eta = eta if block.offset is None else (eta.T + block.offset[rows]).T
        t = loss.encode(one_target(dense_rows(y, rows.start, rows.stop)))
        slope, w = loss.slope(t, eta), loss.row_weights(t, None if block.w is None else block.w[rows])
        slope = slope if w is None else (slope.T * w).T
        total[:-1] += z.T @ slope
        total[-1] += slope.sum(axis=0)
    return total


def loss_costs(
    dataset: Dataset, k: int, loss: Loss, *, searches: int = 1, sizes: int = 0, begins_elsewhere: bool = False
) -> list[PassCost]:
    """Return the costs of the passes that a loss typically takes in addition to those of the squared error.

    searches: how many there are, with those on the rows outside each fold. sizes: for how many sizes each of them ends
    with a model. begins_elsewhere: whether the first model is not the squared error, which that on all rows needs none.
    """
    kept = keeps(dataset, min(dataset.n, max(k, _FITTED_COLUMNS)), loss) and not fits_in_place(dataset, loss)
    columns = np.unique(np.linspace(0, dataset.n - 1, max(k, _READ_COLUMNS)).astype(np.int64))  # in many chunks
    n, modelled = min(dataset.n, MOST_MODELLED), None if dataset.n <= MOST_MODELLED else np.arange(MOST_MODELLED)
    squares = (8 * n * n, dataset.m * n * n)
    model = RowPass("model", dataset, _block_model, merge, *squares, modelled, share=True).cost()
    width = (min(k, dataset.n) + 1) * loss.outputs
    batches = 1 if kept else math.ceil(_FITS * 8 * width**2 / STEP_BYTES)
    flops = 0 if kept else 2 * dataset.m * _FITS * width**2 // batches
    one = replace(read_pass(dataset, columns).cost(), passes=0, flops=flops)
    models = searches * (FEWEST_MODELS + sizes) - (not begins_elsewhere) + (k > ORDERED_BY_FITS)
    more = most_kept(dataset) > k  # the second model is about the fit of more columns
    times = searches * (FEWEST_MODELS + sizes + more if kept else 5 * FEWEST_MODELS + 3 * sizes + 7 * more)
    if kept and dataset.n <= _FITTED_COLUMNS:
        times = min(times, 2)  # each column is read once: the second read takes what the first one has left
    scores = [scores_pass(dataset, _block_scores).cost()] * (models if modelled is not None else 0)
    chosen = replace(read_pass(dataset, columns[:k]).cost(), passes=0)
    rounds = 0 if kept or k > ORDERED_BY_FITS else 3 * (k - 1)  # of about three steps each
    return [
        *([PassCost.total("scores of columns", scores)] if scores else []),
        PassCost.total("model of the loss", [model] * models),
        PassCost.total("fits of the loss", [one] * (times * batches) + [chosen] * rounds),
    ]

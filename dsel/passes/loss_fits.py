"""Passes for losses: fits of many small subsets at the same time.

A fit minimizes F(S) = sum_i w_i d(y_i, eta_i) + lam |b|^2 by damped Newton steps. Each step of all subsets is one pass
over the union of their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.objective.losses.loss import Loss, LossOfRows
from dsel.passes.cross_validation.held_out import mean_and_error
from dsel.passes.endless_fits import EndOfFit
from dsel.passes.loss_data import LossData, columns_of, fits_in_place, keeps, one_target, too_many_rows
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Scaling

#: Newton steps at most; 4 to 8 are usual. Huber's loss takes more.
MOST_STEPS = 60
#: A fit ends where the next step would lower F by less than this share of it.
_TOLERANCE = 1e-13
#: The share of the working curvature is divided by the first number after a step that helps, and multiplied by the
#: second after one that does not. It is at least the third.
_BOLDER, _SAFER, _LEAST_SAFE = 4.0, 16.0, 1e-4
#: This number of rows is processed at a time: their columns stay in the cache.
ROWS = 4096
#: Fewer where the curvatures of a loss with several outputs would take more than this number of bytes.
_CURVATURE_BYTES = 8 << 20
#: Fits whose Hessians take more than this number of bytes take several passes for a step.
STEP_BYTES = 32 << 20
#: F falls by about half of a step's decrement, so by less than this number of decrements.
_HOPE = 10.0
#: Of each size, this number of fits is complete where others end early.
COMPLETE_FITS = 8


@dataclass(frozen=True)
class LossFit:
    """The fit of one subset.

    Parameters
    ----------
    columns : (s,) array of int
        Columns of the data.
    value : float
        F(S), with the penalty.
    deviance : float
        F(S) without the penalty.
    coefficients : (s,) or (s, t) array
        Those of the scaled columns, for each of t outputs of the loss where there are several.
    intercept : float or (t,) array
        That of the scaled columns; 0 without one.
    infinite : bool
        Whether the fit does not end, because the columns separate the classes or order the events.
    endless : array of int
        Of a fit that is not infinite, the columns whose coefficients are: the deviance has a limit, but no minimum.
    converged : bool
        Whether the fit came to its end, and was not stopped before by the number of steps or by rounding.
    """

    columns: Ints
    value: float
    deviance: float
    coefficients: Floats
    intercept: Any
    infinite: bool = False
    endless: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    converged: bool = True

    def with_column(self, j: int) -> Floats:
        """Return the coefficients and the intercept where a fit with one more column may begin."""
        b = np.insert(self.coefficients, np.searchsorted(self.columns, j), 0.0, axis=0)
        return np.concatenate([b, np.asarray(self.intercept)[None]])

    def in_data_units(self, scaling: Scaling) -> tuple[Floats, Any]:
        """Return the coefficients and the intercept for the columns as they are in the data."""
        b = (self.coefficients.T / scaling.scale_x[self.columns]).T
        return b, self.intercept - scaling.center_x[self.columns] @ b

    @property
    def point(self) -> Floats:
        """The coefficients, and the intercept as the last row: (s + 1,) or (s + 1, t)."""
        return np.concatenate([self.coefficients, np.asarray(self.intercept)[None]])


def fit_subsets(
    problem: LossData, subsets: Sequence[Ints], starts: Sequence[Floats | None] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[LossFit]:  # fmt: skip
    """Return the fit of each subset of columns.

    Parameters
    ----------
    problem : LossData
        The loss and the data.
    subsets : sequence of (s,) int arrays
        Columns of the data. An empty one is the fit of the intercept.
    starts : sequence of (s + 1,) or (s + 1, t) arrays or None, optional
        Where each fit begins: the coefficients of the scaled columns, and the intercept.
    sizes : sequence of int, optional
        The size of each subset. Of each size, fits that do not come near the COMPLETE_FITS best ones end early: their F
        is too large, but above that of the others. By default all fits are complete.

    Returns
    -------
    list of LossFit
        In the order of `subsets`.

    Notes
    -----
    Columns that fit into KEPT_BYTES are read once. Others take about five passes over the union of the columns,
    whatever the number of subsets, as long as their Hessians take at most STEP_BYTES: O(m s^2 t^2) operations for each
    subset and pass, with t outputs of the loss.
    """
    if not len(subsets):
        return []
    first = [None] * len(subsets) if starts is None else starts
    fits = [_Newton(problem, np.asarray(S, np.int64), b) for S, b in zip(subsets, first, strict=True)]
    union = np.unique(np.concatenate([fit.columns for fit in fits]))
    if not (problem.loss.by_rows or keeps(problem.dataset, union.size, problem.loss)):
        half = len(subsets) // 2  # fits of fewer columns at a time
        if not half:
            raise too_many_rows(problem.loss, problem.dataset, union.size)
        return fit_subsets(problem, subsets[:half], first[:half]) + fit_subsets(problem, subsets[half:], first[half:])
    rows = _kept(problem, union)
    for _ in range(MOST_STEPS):
        active = [fit for fit in fits if not fit.done]
        if not active:
            break
        for some in _batches(active):
            for fit, parts in zip(some, _sums_at(problem, some, rows, union), strict=True):
                fit.tell(*parts)
        if sizes is not None:
            _end_hopeless(fits, sizes)
    return [fit.result() for fit in fits]


def _batches(fits: Sequence[_Newton]) -> Iterator[list[_Newton]]:
    """Yield fits whose Hessians take at most STEP_BYTES together, or one at a time."""
    some: list[_Newton] = []
    for fit in fits:
        if some and 8 * sum(other.trial.size**2 for other in (*some, fit)) > STEP_BYTES:
            yield some
            some = []
        some.append(fit)
    yield some


def _end_hopeless(fits: Sequence[_Newton], sizes: Sequence[int]) -> None:
    """End the fits whose F will stay above that of the COMPLETE_FITS best ones of their size."""
    for size in set(sizes):
        same = [fit for fit, other in zip(fits, sizes, strict=True) if other == size]
        if len(same) > COMPLETE_FITS:
            limit = sorted(fit.value for fit in same)[COMPLETE_FITS - 1]
            for fit in same:
                fit.done = fit.done or fit.value - _HOPE * fit.decrement > limit


def _sums_at(
    problem: LossData, active: Sequence[_Newton], rows: Block | None, union: Ints, **options: Any
) -> _Sums:  # fmt: skip
    """Return the deviances at the trial points, and their derivatives. rows: with the columns `union`, if kept."""
    needed = np.unique(np.concatenate([fit.columns for fit in active])) if rows is None else union
    read = needed if needed.size or rows is not None else np.zeros(1, np.int64)  # a pass needs a column
    arguments: dict[str, Any] = {
        "fits": tuple((np.searchsorted(read, fit.columns), fit.trial, fit.safe) for fit in active),
        "center": problem.scaling.center_x[read], "scale": problem.scaling.scale_x[read],
        "fill": None if problem.fill is None else problem.fill[read], **options,
    }  # fmt: skip
    if rows is not None:
        return _block_fits(rows.x, rows.y, rows, loss=problem.loss, intercept=problem.intercept, **arguments)
    found: _Sums = fits_pass(problem, active, read).run(problem.engine, **arguments)
    return found


def deviances(problem: LossData, fits: Sequence[LossFit]) -> list[float]:
    """Return the deviance of each fit on the rows of the data, in one pass or without one if the columns are kept."""
    union = np.unique(np.concatenate([fit.columns for fit in fits]))
    points = [_Newton(problem, fit.columns, fit.point) for fit in fits]
    rows = _kept(problem, union)
    return [deviance for some in _batches(points) for deviance, _, _ in _sums_at(problem, some, rows, union)]


def mean_deviances(problem: LossData, fits: Sequence[LossFit]) -> tuple[Floats, Floats]:
    """Return (len(fits),) the deviance per row of each fit and its standard error, for a loss that is a sum over rows.

    Takes one pass over the columns, or none if they are kept.
    """
    union, w = np.unique(np.concatenate([fit.columns for fit in fits])), problem.targets.w
    points, rows = [_Newton(problem, fit.columns, fit.point) for fit in fits], _kept(problem, union)
    sums = np.array(_sums_at(problem, points, rows, union, of_rows=_moments_of_rows), np.float64).T
    m = float(problem.dataset.m)
    return mean_and_error(sums, *((m, m) if w is None else (float(w.sum()), float(w @ w))))


def _kept(problem: LossData, columns: Ints) -> Block | None:
    """Return all rows of these columns, or None if a pass takes them. Reads the columns that were not read before."""
    dataset, loss = problem.dataset, problem.loss
    if fits_in_place(dataset, loss) or not keeps(dataset, columns.size, loss):
        return None
    if not keeps(dataset, len(problem.columns) + columns.size, loss):
        for j in [j for j in problem.columns if j not in columns]:
            del problem.columns[j]
    targets = problem.targets
    X = columns_of(problem, columns)
    return Block(0, len(X), X, targets.y.reshape(len(X), -1), w=targets.w, offset=targets.offset)


def fits_pass(problem: LossData, fits: Sequence[_Newton], columns: Ints) -> RowPass:
    """Return the pass of one Newton step of some fits. Arguments: those of `_block_fits`."""
    squares = sum(fit.trial.size**2 for fit in fits)
    per_block = partial(_block_fits, loss=problem.loss, intercept=problem.intercept)
    return RowPass(
        "fits of the loss", problem.dataset, per_block, _add, 8 * squares, 2 * problem.dataset.m * squares,
        columns, share=True, whole=False,
    )  # fmt: skip


class _Newton:
    """The damped Newton steps of one subset.

    A loss may have a working curvature above its second derivative, with which every step descends, but slowly.
    `safe` is its share in the next step: less after a step that helps, more after one that does not.
    """

    def __init__(self, problem: LossData, columns: Ints, start: Floats | None = None) -> None:
        self.problem, self.columns = problem, columns
        outputs = problem.loss.outputs
        shape = (columns.size + 1,) if outputs == 1 else (columns.size + 1, outputs)
        self.trial: Floats = np.zeros(shape) if start is None else start
        if start is None and problem.intercept:
            self.trial[-1] = problem.first_constant
        self._intercept = problem.intercept and problem.loss.has_intercept
        if not problem.loss.has_intercept:
            self.trial = np.append(self.trial[:-1], 0.0)
        self.best = self.trial
        self.value, self.deviance, self.done, self.infinite = np.inf, np.inf, False, False
        self.decrement, self.safe = np.inf, 1.0
        self._mixes = outputs == 1 and type(problem.loss).working_curvature is not Loss.working_curvature
        self._step: Floats = np.zeros(shape)
        deviations = np.ones(columns.size) if problem.deviations is None else problem.deviations[columns]
        self._end = EndOfFit(deviations) if problem.lam == 0.0 and problem.loss.endless else None

    def tell(self, deviance: float, g: Floats, H: Floats) -> None:
        """Take the sums of a pass at the trial point, and choose the next one."""
        lam, s = self.problem.lam, self.columns.size
        penalty = np.repeat([2.0 * lam, 0.0], [self.trial[:s].size, self.trial[s:].size])
        value = deviance + lam * float(np.vdot(self.trial[:s], self.trial[:s]))
        if not value <= self.value:  # a step too long, or nothing left to gain but rounding
            self._step = self._step / 4.0
            self.trial = self.best + self._step
            self.safe = min(1.0, _SAFER * self.safe)
            unit = 0.0 if self.problem.loss.link == "identity" else 1.0  # without a link, targets have any unit
            size = unit + np.abs(self.best).max(initial=0.0)
            self.done = bool(np.abs(self._step).max(initial=0.0) <= 1e-12 * size)
            self._judge()
            return
        self.best, self.value, self.deviance = self.trial, value, deviance
        self.safe = max(self.safe / _BOLDER, _LEAST_SAFE) if self._mixes else 1.0
        g, H = g + penalty * self.trial.ravel(), H + np.diag(penalty)
        free = slice(None) if self._intercept else slice(0, self.trial[:s].size)
        step = np.zeros(self.trial.size)
        if H[free, free].size:
            step[free] = _solve(H[free, free], -g[free])
        self.decrement = float(-g @ step)
        self._step = step.reshape(self.trial.shape)
        self.trial = self.best + self._step
        self.done = self.decrement <= _TOLERANCE * max(abs(value), 1e-300)
        if self._end is not None:
            self._end.add((self.best, value, deviance), self._step, self.decrement)
            self._judge()

    def _judge(self) -> None:
        """Say whether the fit is infinite, and end it where its coefficients became large."""
        best = self.best, self.value, self.deviance
        where = None if self._end is None else self._end.infinite_at(best, converged=self.done)
        if where is not None:
            self.infinite = self.done = True
            self.best, self.value, self.deviance = where

    def result(self) -> LossFit:
        """Return the fit."""
        s = self.columns.size
        intercept = float(self.best[s]) if self.best.ndim == 1 else self.best[s]
        converged = self.done and self.decrement >= -_TOLERANCE * abs(self.value)
        endless = self.columns[:0]
        if self._end is not None and not self.infinite:
            endless = self.columns[self._end.endless(self.best)]
        return LossFit(
            self.columns, self.value, self.deviance, self.best[:s], intercept, self.infinite, endless, converged
        )


def _solve(H: Floats, g: Floats) -> Floats:
    """Return the solution of a positive semidefinite system, the shortest one where columns depend on each other.

    What is short is measured in units by which the diagonal is 1, so that the units of the columns do not matter.
    """
    diagonal = np.diag(H)
    unit = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    H, g = H / unit / unit[:, None], g / unit
    try:
        factor = scipy.linalg.cho_factor(H)
        if np.diag(factor[0]).min() > 1e-7 * np.diag(factor[0]).max():
            return np.asarray(scipy.linalg.cho_solve(factor, g)) / unit
    except scipy.linalg.LinAlgError:
        pass
    return np.asarray(scipy.linalg.lstsq(H, g, cond=1e-12)[0]) / unit


#: By subset: the deviance, its gradient and its Hessian; or its moments.
_Sums = list[tuple[Any, Any, Any]]


def _add(a: _Sums, b: _Sums) -> _Sums:
    return [(d + e, g + h, H + K) for (d, g, H), (e, h, K) in zip(a, b, strict=True)]


def _block_fits(
    x: Any, y: Any, block: Block, *, loss: Loss, intercept: bool, fits: tuple[tuple[Ints, Floats, float], ...],
    center: Floats, scale: Floats, fill: Floats | None, of_rows: Callable[..., Any] | None = None,
) -> _Sums:  # fmt: skip
    """Return the deviance of each subset on the rows of a block, with its derivatives at the trial points.

    fits: the places of the columns, the trial point, and the share of the working curvature, see `_Newton`. of_rows:
    the sums in place of these.
    """
    sums: _Sums = [(0.0, 0.0, 0.0)] * len(fits)
    if of_rows is None:
        of_rows, sums = _sums_of_rows, [(0.0, np.zeros(b.size), np.zeros((b.size, b.size))) for _, b, _ in fits]
    most = max(min(ROWS, _CURVATURE_BYTES // (8 * loss.outputs**2)), 64)
    size = most if loss.by_rows else max(x.shape[0], 1)
    for start in range(0, x.shape[0], size):
        z = dense_rows(x, start, start + size, fill)
        z = (z - center) / scale
        t = loss.encode(one_target(dense_rows(y, start, start + size)))
        w = loss.row_weights(t, None if block.w is None else block.w[start : start + size])
        rows = loss.of_rows(t, np.ones(len(t)) if w is None else w)
        base = np.zeros(len(t)) if block.offset is None else block.offset[start : start + size]
        sums = _add(sums, [of_rows(rows, z[:, places], b, base, intercept, safe) for places, b, safe in fits])
    return sums


def _sums_of_rows(
    rows: LossOfRows, Z: Floats, b: Floats, offset: Floats, intercept: bool, safe: float
) -> tuple[float, Floats, Floats]:  # fmt: skip
    """Return the value of a loss on rows, with its derivatives by the coefficients b (s + 1,) or (s + 1, t)."""
    eta = _predictors(Z, b, offset)
    Z = np.hstack([Z, np.full((len(Z), 1), 1.0 if intercept else 0.0)])
    return rows.value(eta), (Z.T @ rows.slope(eta)).ravel(), rows.hessian(eta, Z, safe)


def _moments_of_rows(
    rows: LossOfRows, Z: Floats, b: Floats, offset: Floats, *_: Any
) -> tuple[float, float, float]:  # fmt: skip
    """Return what `mean_and_error` takes of the deviances of rows."""
    d = rows.loss.deviance(rows.y, _predictors(Z, b, offset))
    return float(rows.w @ d), float(rows.w**2 @ d), float(rows.w**2 @ d**2)


def _predictors(Z: Floats, b: Floats, offset: Floats) -> Floats:
    """Return the linear predictors of rows."""
    return np.asarray(((Z @ b[:-1] + b[-1]).T + offset).T)

"""Passes for losses: fits of many small subsets at the same time.

A fit minimizes F(S) = sum_i w_i d(y_i, eta_i) + lam |b|^2 by damped Newton steps. Each step of all subsets is one pass
over the union of their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, StoredRows, TransposedRows, dense_rows, fill_missing, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import CapacityError
from dsel.objective.losses.loss import Loss, LossOfRows
from dsel.passes.moments import require_finite
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
#: Columns of at most this many bytes are read once, and all Newton steps run in this process.
KEPT_BYTES = 512 << 20
#: Rows of columns that are read into this process are merged on workers up to this size.
_RANGE_BYTES = 16 << 20
#: Of each size, this number of fits is complete where others end early.
COMPLETE_FITS = 8
#: A coefficient of a column with standard deviation 1 beyond this says that the fit may be infinite. Outliers need such
#: coefficients, too. Infinite ones grow by the same in each step, by more than the second number as a share.
_INFINITE, _GROWING = 30.0, 1e-4
#: The fit is infinite after as many steps beyond, or if this share of the deviance at the start is left.
_STEPS_BEYOND, _SEPARATED = 25, 1e-6
#: The decrement of a fit with an end falls faster at each of the last steps. Where the best coefficient is infinite, it
#: falls by e at each step. The number of last steps that count, and the share of the one before that is left.
_LAST_STEPS, _SLOW = 5, 0.1
#: Such a coefficient still grows by this share, and by this share of the one that grows most.
_STILL_GROWING, _LEAST_GROWTH = 1e-5, 0.01


@dataclass(frozen=True)
class Targets:
    """The targets of all rows as they are in the data, and the weights and offsets where there are any.

    y: (m,), or (m, q) for classes that are a column of 0 and 1 each, and for a target of several columns.
    """

    y: Floats
    w: Floats | None
    offset: Floats | None


@dataclass(frozen=True)
class LossData:
    """A loss on the rows of a dataset.

    Parameters
    ----------
    dataset : Dataset
        The data, with one target or a column of 0 and 1 for each class.
    loss : Loss
        The loss, fitted to the targets.
    scaling : Scaling
        Centers and scales of the columns: coefficients and `lam` are those of the scaled columns.
    targets : Targets
        The targets, weights and offsets of all rows.
    lam : float
        The ridge penalty.
    intercept : bool
        Whether fits have an intercept, which is not penalized, or a constant that changes nothing.
    fill : (n,) array, optional
        Values that replace NaN.
    engine : Engine
        Where the passes run.
    columns : dict
        The columns that were read into this process, by their numbers.
    deviations : (n,) array, optional
        Standard deviations of the scaled columns; by default 1.
    """

    dataset: Dataset
    loss: Loss
    scaling: Scaling
    targets: Targets
    lam: float = 0.0
    intercept: bool = True
    fill: Floats | None = None
    engine: Engine = THREADS
    columns: dict[int, Floats] = field(default_factory=dict)
    deviations: Floats | None = None

    @property
    def weight_sum(self) -> float:
        """The sum of the weights of the rows, times those of their classes."""
        w = self.loss.row_weights(self.loss.encode(self.targets.y), self.targets.w)
        return float(self.dataset.m if w is None else w.sum())

    def in_units(self, unit: Floats) -> LossData:
        """Return the loss with the scaled columns divided by units (n,), which matter to a penalty only."""
        deviations = None if self.deviations is None else self.deviations / unit
        return replace(self, scaling=replace(self.scaling, scale_x=self.scaling.scale_x * unit), deviations=deviations)


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


def loss_targets(dataset: Dataset) -> Targets:
    """Return the targets, weights and offsets of all rows. Reads no X."""
    blocks = dataset.blocks
    ys = [load_block(b.y.compute() if b.lazy else b.y, dataset.target_columns) for b in blocks]
    y = np.concatenate([one_target(dense_rows(part, 0, part.shape[0])) for part in ys])
    w = None
    if dataset.weighted:
        parts = [(load_weights(b.w), b.stop - b.start) for b in blocks]
        w = np.concatenate([np.ones(rows) if part is None else part for part, rows in parts])
    offsets = [b.offset.read() if isinstance(b.offset, StoredRows) else b.offset for b in blocks]
    return Targets(y, w, None if offsets[0] is None else np.concatenate(offsets))


def one_target(y: Floats) -> Floats:
    """Return one target (r,) of a block, or its columns of 0 and 1 for classes (r, q) as they are."""
    return y[:, 0] if y.shape[1] == 1 else y


def checked_targets(dataset: Dataset, loss: Loss) -> Targets:
    """Return the targets of all rows. Reads no X. Errors: DataError where the loss cannot take them."""
    targets = loss_targets(dataset)
    require_finite(targets.y.reshape(dataset.m, -1), dataset.name, "Y", 0)
    loss.fitted_to(targets.y, targets.w)
    return targets


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


def _sums_at(problem: LossData, active: Sequence[_Newton], rows: Block | None, union: Ints) -> _Sums:
    """Return the deviances at the trial points, and their derivatives. rows: with the columns `union`, if kept."""
    needed = np.unique(np.concatenate([fit.columns for fit in active])) if rows is None else union
    read = needed if needed.size or rows is not None else np.zeros(1, np.int64)  # a pass needs a column
    arguments: dict[str, Any] = {
        "fits": tuple((np.searchsorted(read, fit.columns), fit.trial, fit.safe) for fit in active),
        "center": problem.scaling.center_x[read], "scale": problem.scaling.scale_x[read],
        "fill": None if problem.fill is None else problem.fill[read],
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


def on_rows(problem: LossData, there: NDArray[np.bool_]) -> LossData:
    """Return the loss on some of the rows (m,): others have the weight 0."""
    dataset, w = problem.dataset, problem.targets.w
    weight = there.astype(np.float64) if w is None else w * there
    dataset = dataset.with_rows("fold", weight)
    return replace(problem, dataset=dataset, targets=replace(problem.targets, w=weight))


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


def columns_of(problem: LossData, columns: Ints) -> Floats:
    """Return (m, s) some ascending columns as they are in the data, in one pass over those not read before."""
    dataset, known = problem.dataset, problem.columns
    missing = np.array([j for j in columns if int(j) not in known], np.int64)
    if missing.size:
        read = read_columns(dataset, missing, problem.fill, problem.engine)
        known.update({int(j): np.ascontiguousarray(read[:, i]) for i, j in enumerate(missing)})
    return np.stack([known[int(j)] for j in columns], axis=1) if columns.size else np.empty((dataset.m, 0))


def read_columns(
    dataset: Dataset, columns: Ints, fill: Floats | None, engine: Engine = THREADS, *, whole: bool = False
) -> Floats:  # fmt: skip
    """Return (m, s) some ascending columns as they are in the data, with `fill` (n,) in place of NaN, in one read.

    whole: whether the read counts as a pass over the data, because it takes all columns that may be chosen.
    """
    parts = replace(read_pass(dataset, columns), whole=whole).run(engine)
    read = np.concatenate([x for _, x in sorted(parts, key=lambda part: part[0])])
    fill_missing(read, None if fill is None else fill[columns])
    return read


def keeps(dataset: Dataset, columns: int, loss: Loss) -> bool:
    """Return whether this number of columns is read once and kept in this process: not those of a copy."""
    # of a copy, workers read little for a step, and share the work, if a loss is a sum over rows
    by_columns = isinstance(dataset.blocks[0].x, TransposedRows) and loss.by_rows
    return dataset.in_memory or (not by_columns and 8 * dataset.m * (columns + 3) <= KEPT_BYTES)


def fits_in_place(dataset: Dataset, loss: Loss) -> bool:
    """Return whether each step of a fit reads the data where they are in memory, without a copy of its columns."""
    return dataset.in_memory and loss.by_rows


def too_many_rows(loss: Loss, dataset: Dataset, columns: int) -> CapacityError:
    """Return the error for a loss whose rows depend on each other, and of which this process cannot hold the rows."""
    return CapacityError(
        f'loss="{loss.name}" compares each row with others, so this process holds all rows of the columns of a fit: '
        f"{dataset.m:,} rows of {columns} columns are more than {format_bytes(KEPT_BYTES)}.",
        "Select fewer columns, or from a part of the rows (rows).",
    )


def read_pass(dataset: Dataset, columns: Ints) -> RowPass:
    """Return the pass that reads some columns into this process, few rows at a time, so that workers hold little."""
    row_bytes, ranges = 8 * (columns.size + 3), [(0, 0)]
    for b in dataset.blocks:
        first = ranges[-1][0]
        if b.start > first and (b.stop - first) * row_bytes > _RANGE_BYTES:
            ranges.append((b.start, b.stop))
        else:
            ranges[-1] = (first, b.stop)
    size = row_bytes * max(stop - start for start, stop in ranges)
    return RowPass("columns", dataset, _block_rows, _join, size, 0, columns, whole=False, ranges=tuple(ranges))


_Rows = list[tuple[int, Floats]]


def _block_rows(x: Any, y: Any, block: Block) -> _Rows:
    """Return the rows of a block as an array, with the number of the first one."""
    return [(block.start, dense_rows(x, 0, x.shape[0]))]


def _join(a: _Rows, b: _Rows) -> _Rows:
    return [*a, *b]


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
        self._intercept = problem.intercept and problem.loss.has_intercept
        if not problem.loss.has_intercept:
            self.trial = np.append(self.trial[:-1], 0.0)
        self.best = self.trial
        self.value, self.deviance, self.done, self.infinite = np.inf, np.inf, False, False
        self.decrement, self.safe = np.inf, 1.0
        self._mixes = outputs == 1 and type(problem.loss).working_curvature is not Loss.working_curvature
        self._step: Floats = np.zeros(shape)
        deviations = problem.deviations
        self._deviations = np.ones(columns.size) if deviations is None else deviations[columns]
        self._first, self._steps_beyond, self._growth = np.inf, 0, 0.0
        self._where_beyond: tuple[Floats, float, float] | None = None
        self._decrements: list[float] = []
        self._newton_step = self._step

    def tell(self, deviance: float, g: Floats, H: Floats) -> None:
        """Take the sums of a pass at the trial point, and choose the next one."""
        lam, s = self.problem.lam, self.columns.size
        penalty = np.repeat([2.0 * lam, 0.0], [self.trial[:s].size, self.trial[s:].size])
        value = deviance + lam * float(np.vdot(self.trial[:s], self.trial[:s]))
        if not value <= self.value:  # a step too long, or nothing left to gain but rounding
            self._step = self._step / 4.0
            self.trial = self.best + self._step
            self.safe = min(1.0, _SAFER * self.safe)
            self.done = bool(np.abs(self._step).max(initial=0.0) <= 1e-12 * (1.0 + np.abs(self.best).max(initial=0.0)))
            if self.done:
                self._judge(converged=True)
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
        self._newton_step = self._step
        self._decrements = [*self._decrements[1 - _LAST_STEPS :], self.decrement]
        self.trial = self.best + self._step
        if not np.isfinite(self._first):
            self._first = deviance
        self.done = self.decrement <= _TOLERANCE * max(abs(value), 1e-300)
        if lam == 0.0 and self.problem.loss.endless:
            sizes = np.abs(self.best[:s].T * self._deviations)
            beyond = sizes > _INFINITE
            if self.decrement > 0.0:  # else rounding made the step
                grown = np.abs(self._step[:s].T * self._deviations)[beyond] / sizes[beyond]
                self._growth = float(grown.max(initial=0.0))
            self._steps_beyond += int(beyond.any())
            if beyond.any() and self._where_beyond is None:
                self._where_beyond = self.best, self.value, self.deviance
            self._judge(converged=self.done)

    def _judge(self, *, converged: bool) -> None:
        """Say that the fit is infinite, and end it where its coefficients became large, if they would grow on."""
        over = self._steps_beyond >= _STEPS_BEYOND or self.deviance <= _SEPARATED * self._first
        if self._where_beyond is None or not (self._growth > _GROWING and (converged or over)):
            return
        self.infinite = self.done = True
        self.best, self.value, self.deviance = self._where_beyond

    def result(self) -> LossFit:
        """Return the fit."""
        s = self.columns.size
        intercept = float(self.best[s]) if self.best.ndim == 1 else self.best[s]
        converged = self.done and self.decrement >= -_TOLERANCE * abs(self.value)
        return LossFit(
            self.columns, self.value, self.deviance, self.best[:s], intercept, self.infinite, self._endless(), converged
        )

    def _endless(self) -> Ints:
        """Return the columns whose coefficients would grow without an end, while the deviance stays nearly the same."""
        found, last = self.columns[:0], np.array(self._decrements)
        if self.infinite or not self.done or self.problem.lam > 0.0 or not self.problem.loss.endless:
            return found
        if last.size < _LAST_STEPS or not (last > 0.0).all() or (last[1:] < _SLOW * last[:-1]).any():
            return found
        s = self.columns.size
        b, step = (part[:s].reshape(s, -1) for part in (self.best, self._newton_step))
        size = np.linalg.norm(step, axis=1)
        grown = size * self._deviations
        same = (b * step).sum(axis=1) > _STILL_GROWING * np.square(b).sum(axis=1)
        return np.asarray(self.columns[same & (grown > _LEAST_GROWTH * grown.max(initial=0.0))])


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


#: By subset: the deviance, its gradient and its Hessian.
_Sums = list[tuple[float, Floats, Floats]]


def _add(a: _Sums, b: _Sums) -> _Sums:
    return [(d + e, g + h, H + K) for (d, g, H), (e, h, K) in zip(a, b, strict=True)]


def _block_fits(
    x: Any, y: Any, block: Block, *, loss: Loss, intercept: bool, fits: tuple[tuple[Ints, Floats, float], ...],
    center: Floats, scale: Floats, fill: Floats | None,
) -> _Sums:  # fmt: skip
    """Return the deviance of each subset on the rows of a block, with its derivatives at the trial points.

    fits: the places of the columns, the trial point, and the share of the working curvature, see `_Newton`.
    """
    sums: _Sums = [(0.0, np.zeros(b.size), np.zeros((b.size, b.size))) for _, b, _ in fits]
    most = max(min(ROWS, _CURVATURE_BYTES // (8 * loss.outputs**2)), 64)
    size = most if loss.by_rows else max(x.shape[0], 1)
    for start in range(0, x.shape[0], size):
        z = dense_rows(x, start, start + size, fill)
        z = (z - center) / scale
        t = loss.encode(one_target(dense_rows(y, start, start + size)))
        w = loss.row_weights(t, None if block.w is None else block.w[start : start + size])
        rows = loss.of_rows(t, np.ones(len(t)) if w is None else w)
        base = np.zeros(len(t)) if block.offset is None else block.offset[start : start + size]
        sums = _add(sums, [_sums_of_rows(rows, z[:, places], b, base, intercept, safe) for places, b, safe in fits])
    return sums


def _sums_of_rows(
    rows: LossOfRows, Z: Floats, b: Floats, offset: Floats, intercept: bool, safe: float
) -> tuple[float, Floats, Floats]:  # fmt: skip
    """Return the value of a loss on rows, with its derivatives by the coefficients b (s + 1,) or (s + 1, t)."""
    Z = np.hstack([Z, np.full((len(Z), 1), 1.0 if intercept else 0.0)])
    eta = ((Z[:, :-1] @ b[:-1] + b[-1]).T + offset).T
    return rows.value(eta), (Z.T @ rows.slope(eta)).ravel(), rows.hessian(eta, Z, safe)


def without_scale_of_targets(scaling: Scaling) -> Scaling:
    """Return the scaling of the columns, with targets as they are."""
    return replace(scaling, center_y=np.zeros(1), scale_y=np.ones(1))

"""The error of a selection, recomputed from the data on the chosen columns by orthogonal factorization.

This is a tall-skinny QR of [X_S | Y] in a tree. Each block is factored, and its targets are split into the part in the
span and the residual. The small factors are stacked and factored again (Demmel et al., "Communication-optimal parallel
and sequential QR", 2012). Squared residuals are only added, so nothing cancels. There are no normal equations.

The QR factors of [X_S | Y] for a store that grows: they are saved, and only new segments are read.

The factors of some rows are about the means of these rows, in the units of the data. So they do not change if other
rows follow, which change the means and scales. Two parts are merged by one more row, the difference of their means
(the update of Chan, Golub and LeVeque, 1983, for factors in place of sums). At the end the columns of R are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.data.store.reader import Store
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.passes.execution.pass_checkpoints import storable
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Scaling, Statistics
from dsel.passes.statistics_cache import Range, SegmentSums, StatisticsCache


@storable
@dataclass
class CenteredFactors:
    """The QR factorization of some rows about their means.

    Parameters
    ----------
    weight : float
        The sum of the weights of the rows.
    mean_x, mean_y : ndarray of shapes (s,) and (N,)
        The weighted means.
    R : ndarray of shape (r, s)
        The triangular factor of X_S.
    C : ndarray of shape (r, N)
        Q'Y.
    left, total : ndarray of shape (N,)
        The squared residual and the squared norm of each target.
    """

    weight: float
    mean_x: Floats
    mean_y: Floats
    R: Floats
    C: Floats
    left: Floats
    total: Floats


def grows(dataset: Dataset) -> bool:
    """Return whether rows were appended to the store, so that its segments are listed."""
    return isinstance(dataset.store, Store) and len(dataset.store.row_ranges or ()) > 0


def check_sums(dataset: Dataset, columns: Ints, cache: StatisticsCache | None) -> SegmentSums:
    """Return the factors on these ascending columns, as far as they are saved."""
    return SegmentSums(dataset, cache, "check", {}, by_segment=False, replaced={"columns": columns.tolist()})


def check_pass(dataset: Dataset, columns: Ints, ranges: tuple[Range, ...]) -> RowPass:
    """Return the pass that factors the ascending columns, over some ranges of rows. Argument: chosen."""
    s, N, read = columns.size, dataset.n_targets or dataset.n, columns if dataset.n_targets else None
    size, flops = 8 * (s + 3) * (s + N), 2 * dataset.m * s * (s + 2 * N)
    return RowPass("check", dataset, _centered_block_factors, merge_centered, size, flops, read, ranges=ranges)


def likely_check_pass(dataset: Dataset, most: int, cache: StatisticsCache | None) -> RowPass | None:
    """Return the pass that is left if the same columns are chosen as before; None if it is not saved.

    most: the most columns that can be chosen.
    """
    found = check_sums(dataset, np.empty(0, np.int64), cache).saved_for
    columns = np.asarray((found or {}).get("columns", ()), np.int64)
    if not 0 < columns.size <= most:
        return None
    return check_pass(dataset, columns, check_sums(dataset, columns, cache).missing)


def centered_factors(dataset: Dataset, columns: Ints, engine: Engine, cache: StatisticsCache | None) -> CenteredFactors:
    """Return the factors of all rows on the ascending columns; where Y = X all columns are the targets."""
    chosen = np.arange(columns.size) if dataset.n_targets else columns

    found: CenteredFactors = check_sums(dataset, columns, cache).total(
        lambda ranges: check_pass(dataset, columns, ranges).run_ranges(engine, chosen=chosen), merge_centered
    )
    return found


def with_means(found: CenteredFactors) -> CenteredFactors:
    """Return the factors of the rows as they are, not about their means."""
    root = np.sqrt(found.weight)
    return _stacked(found.weight, found, [(found.R, found.C), (root * found.mean_x[None], root * found.mean_y[None])])


def merge_centered(a: CenteredFactors, b: CenteredFactors) -> CenteredFactors:
    """Factor the rows of a and b together."""
    weight = a.weight + b.weight
    share = b.weight / weight if weight else 0.0
    root = np.sqrt(a.weight * share)
    d_x, d_y = b.mean_x - a.mean_x, b.mean_y - a.mean_y
    both = CenteredFactors(
        weight, a.mean_x + share * d_x, a.mean_y + share * d_y, a.R, a.C, a.left + b.left, a.total + b.total
    )
    return _stacked(weight, both, [(a.R, a.C), (b.R, b.C), (root * d_x[None], root * d_y[None])])


def _stacked(weight: float, about: CenteredFactors, parts: list[tuple[Floats, Floats]]) -> CenteredFactors:
    """Factor parts one below the other. The last one is a row that the norms do not contain yet."""
    R, C, left = _factor(np.vstack([R for R, _ in parts]), np.vstack([C for _, C in parts]))
    total = about.total + np.square(parts[-1][1][0])
    return CenteredFactors(weight, about.mean_x, about.mean_y, R, C, about.left + left, total)


def _factor(Z: Floats, T: Floats) -> tuple[Floats, Floats, Floats]:
    Q, R = np.linalg.qr(Z)
    C = Q.T @ T
    return R, C, np.square(T - Q @ C).sum(axis=0)


def _centered_block_factors(x: Any, y: Any, block: Block, chosen: Ints) -> CenteredFactors:
    """Factor one block, in pieces. chosen: places of the columns in x. y None: all columns of x are the targets."""
    width = x.shape[1] + (0 if y is None else y.shape[1])
    result: CenteredFactors | None = None
    for rows, t, w in _pieces(x, y, block.w, width):
        piece = _piece_factors(rows[:, chosen], rows if t is None else t, np.ones(len(rows)) if w is None else w)
        result = piece if result is None else merge_centered(result, piece)
    assert result is not None
    return result


def _pieces(
    x: Any, y: Any, w: Floats | None, width: int, fill: Floats | None = None
) -> Iterator[tuple[Floats, Floats | None, Floats | None]]:
    """Yield some rows of x, y and w, as many as float64 of _PIECE_BYTES hold. width: the columns that are used."""
    step = max(1, _PIECE_BYTES // (8 * max(width, 1)))
    for start in range(0, x.shape[0], step):
        rows = slice(start, start + step)
        yield (
            dense_rows(x, rows.start, rows.stop, fill), None if y is None else dense_rows(y, rows.start, rows.stop),
            None if w is None else w[rows],
        )  # fmt: skip


def _piece_factors(Z: Floats, T: Floats, w: Floats) -> CenteredFactors:
    weight = float(w.sum())
    over = weight or 1.0
    mean_x, mean_y, root = w @ Z / over, w @ T / over, np.sqrt(w)[:, None]
    Z, T = (Z - mean_x) * root, (T - mean_y) * root
    R, C, left = _factor(Z, T)
    return CenteredFactors(weight, mean_x, mean_y, R, C, left, np.square(T).sum(axis=0))


_PIECE_BYTES = 32 << 20


@storable
@dataclass
class QRFactors:
    """The QR factorization of some rows.

    R: (r, s) of the columns X_S. C: (r, N) Q'Y. left: the squared residual. total: ||Y||^2.
    """

    R: Floats
    C: Floats
    left: float
    total: float


@dataclass(frozen=True)
class Fit:
    """Least squares (or ridge) of the preprocessed Y on the chosen columns, in their order.

    error: f(S), with the ridge penalty. rss: without it. total: ||Y||^2. coefficients: (s, N). gains: (s,) by how much
    each column lowers f after those before it. gram: (s, s) X_S'X_S of the preprocessed columns. intercept: (N,) that
    of a loss for the scaled columns, whose targets are as they are in the data; None for the squared error.
    """

    error: float
    rss: float
    total: float
    coefficients: Floats
    gains: Floats
    gram: Floats
    intercept: Floats | None = None


def factor(Z: Floats, T: Floats) -> QRFactors:
    """Factor one block of rows: Z (r, s), T (r, N)."""
    Q, R = np.linalg.qr(Z)
    C = Q.T @ T
    total = float(np.vdot(T, T))
    rest = T - Q @ C
    return QRFactors(R, C, float(np.vdot(rest, rest)), total)


def merge_factors(a: QRFactors, b: QRFactors) -> QRFactors:
    """Factor the rows of a and b together."""
    joint = factor(np.vstack([a.R, b.R]), np.vstack([a.C, b.C]))
    return QRFactors(joint.R, joint.C, a.left + b.left + joint.left, a.total + b.total)


def _block_factors(x: Any, y: Any, block: Block, chosen: Ints, scaling: Scaling, fill: Floats | None) -> QRFactors:
    """Factor one block. Rows are multiplied by the square root of their weight.

    chosen: places of the columns S in x. y None: all columns of x are the targets. fill: values that replace NaN.
    """
    width = x.shape[1] if y is None else chosen.size + y.shape[1]
    result: QRFactors | None = None
    for rows, t, w in _pieces(x, y, block.w, width, fill):
        rows = (rows - scaling.center_x) / scaling.scale_x
        Z, T = rows[:, chosen], rows if t is None else (t - scaling.center_y) / scaling.scale_y
        if w is not None:
            Z, T = Z * np.sqrt(w[:, None]), T * np.sqrt(w[:, None])
        piece = factor(Z, T)
        result = piece if result is None else merge_factors(result, piece)
    assert result is not None
    return result


def refit(
    dataset: Dataset, S: Ints, scaling: Scaling, lam: float = 0.0, *, usable: NDArray[np.bool_],
    fill: Floats | None = None, engine: Engine = THREADS, cache: StatisticsCache | None = None,
) -> Fit:  # fmt: skip
    """Return f(S), recomputed from the data in one pass over the columns S (all columns where Y = X).

    S: columns of the data in any order; coefficients have that order. usable: (n,) the columns that count as targets
    where Y = X (constant columns have nothing to explain). fill: (n,) values that replace NaN. cache: where the factors
    of a store that grows are saved.
    """
    ascending = np.sort(S)
    columns = ascending if dataset.n_targets else np.flatnonzero(usable)
    N = dataset.n_targets or columns.size
    if fill is None and grows(dataset):
        found = _scaled(centered_factors(dataset, ascending, engine, cache), dataset, scaling, ascending, columns)
    else:
        found = refit_pass(dataset, S.size, N, columns).run(
            engine, chosen=np.searchsorted(columns, ascending), fill=None if fill is None else fill[columns],
            scaling=Scaling(scaling.center_x[columns], scaling.scale_x[columns], scaling.center_y, scaling.scale_y),
        )  # fmt: skip
    return _fit(found, S, lam)


def fit_of_sums(statistics: Statistics, S: Ints, preprocess: Preprocess, lam: float = 0.0) -> Fit:
    """Return f(S) from the Gram matrix, for rows that are not there.

    S: columns in their order, which are independent with the penalty, as the search chooses them. Where Y = X the
    targets are the columns that can be used.
    """
    scaling, K = statistics.scaling(preprocess), statistics.K[S]
    if preprocess in ("unit", "none"):
        K = K + statistics.weight * np.outer(statistics.mean_x[S], statistics.mean_x)
    K = K / np.outer(scaling.scale_x[S], scaling.scale_x)
    if statistics.unsupervised:
        usable = ~statistics.unusable(preprocess)
        B, total = K[:, usable], float(statistics.preprocessed_squares(preprocess)[usable].sum())
    else:
        of_all, total = statistics.targets(preprocess, statistics.B)
        B = of_all[S]
    gram = K[:, S]
    L = np.linalg.cholesky(gram + lam * np.eye(S.size))
    Z = scipy.linalg.solve_triangular(L, B, lower=True)
    b = np.asarray(scipy.linalg.solve_triangular(L, Z, lower=True, trans="T"))
    gains = np.square(Z).sum(axis=1)
    error = max(total - float(gains.sum()), 0.0)
    return Fit(error, _without_penalty(error, b, lam), total, b, gains, gram)


def _fit(found: QRFactors, S: Ints, lam: float) -> Fit:
    """Return the fit on the columns S from the factors of the ascending columns."""
    penalized, N = found, found.C.shape[1]
    if lam > 0.0:
        penalty = QRFactors(np.sqrt(lam) * np.eye(S.size), np.zeros((S.size, N)), 0.0, 0.0)
        penalized = merge_factors(found, penalty)
    coefficients = scipy.linalg.solve_triangular(penalized.R, penalized.C) if S.size else found.C
    rss = _without_penalty(penalized.left, coefficients, lam)
    back = np.empty(S.size, np.int64)
    back[np.argsort(S, kind="stable")] = np.arange(S.size)
    P = found.R[:, back]
    return Fit(
        penalized.left, rss, found.total, np.asarray(coefficients)[back], _gains(P, found.C, lam), np.asarray(P.T @ P)
    )


def _without_penalty(error: float, b: Floats, lam: float) -> float:
    if lam == 0.0:  # squares of coefficients may be out of range
        return error
    return max(error - lam * float(np.vdot(b, b)), 0.0)


def _scaled(found: CenteredFactors, dataset: Dataset, scaling: Scaling, S: Ints, columns: Ints) -> QRFactors:
    """Return the factors of the preprocessed columns. columns: the targets where Y = X."""
    if not scaling.center_x.any() and not scaling.center_y.any():
        found = with_means(found)  # nothing is centered, or all means are 0
    C, left, total, scale = found.C, found.left, found.total, scaling.scale_y
    if not dataset.n_targets:
        C, left, total, scale = C[:, columns], left[columns], total[columns], scaling.scale_x[columns]
    return QRFactors(
        found.R / scaling.scale_x[S], C / scale, float((left / scale**2).sum()), float((total / scale**2).sum())
    )


def _gains(P: Floats, C: Floats, lam: float) -> Floats:
    """Return (s,) by how much each column lowers f after those before it, from X_S = Q P and C = Q'Y."""
    s = P.shape[1]
    if lam > 0.0:
        P, C = np.vstack([P, np.sqrt(lam) * np.eye(s)]), np.vstack([C, np.zeros((s, C.shape[1]))])
    gains = np.zeros(s)
    ordered = np.square(factor(P, C).C).sum(axis=1)
    gains[: ordered.size] = ordered
    return gains


def refit_pass(dataset: Dataset, size: int, N: int, columns: Ints | None = None) -> RowPass:
    """Return the pass that factors X_S and N targets. Arguments: those of `_block_factors`."""
    flops = 2 * dataset.m * size * (size + 2 * N)
    return RowPass("check", dataset, _block_factors, merge_factors, 8 * size * (size + N), flops, columns)

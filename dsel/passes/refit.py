"""The error of a selection, recomputed from the data on the chosen columns by orthogonal factorization.

This is a tall-skinny QR of [X_S | Y] in a tree. Each block is factored, and its targets are split into the part in the
span and the residual. The small factors are stacked and factored again (Demmel et al., "Communication-optimal parallel
and sequential QR", 2012). Squared residuals are only added, so nothing cancels. There are no normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.passes.centered_factors import CenteredFactors, centered_factors, grows, with_means
from dsel.passes.execution.stored_values import storable
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.segment_sums import SumsCache
from dsel.passes.statistics import Scaling

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
    each column lowers f after those before it. gram: (s, s) X_S'X_S of the preprocessed columns.
    """

    error: float
    rss: float
    total: float
    coefficients: Floats
    gains: Floats
    gram: Floats


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
    step = max(1, _PIECE_BYTES // (8 * max(width, 1)))
    result: QRFactors | None = None
    for start in range(0, x.shape[0], step):
        rows = dense_rows(x, start, start + step)
        if fill is not None:
            where, which = np.nonzero(np.isnan(rows))
            rows[where, which] = fill[which]
        rows = (rows - scaling.center_x) / scaling.scale_x
        Z = rows[:, chosen]
        T = rows if y is None else (dense_rows(y, start, start + step) - scaling.center_y) / scaling.scale_y
        if block.w is not None:
            root = np.sqrt(block.w[start : start + step, None])
            Z, T = Z * root, T * root
        piece = factor(Z, T)
        result = piece if result is None else merge_factors(result, piece)
    assert result is not None
    return result


def refit(
    dataset: Dataset, S: Ints, scaling: Scaling, lam: float = 0.0, *, usable: NDArray[np.bool_],
    fill: Floats | None = None, engine: Engine = THREADS, cache: SumsCache | None = None,
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
    penalized = found
    if lam > 0.0:
        penalty = QRFactors(np.sqrt(lam) * np.eye(S.size), np.zeros((S.size, N)), 0.0, 0.0)
        penalized = merge_factors(found, penalty)
    coefficients = scipy.linalg.solve_triangular(penalized.R, penalized.C) if S.size else found.C
    rss = penalized.left
    if lam > 0.0:  # without a penalty, squares of coefficients may be out of range
        rss = max(rss - lam * float(np.vdot(coefficients, coefficients)), 0.0)
    back = np.empty(S.size, np.int64)
    back[np.argsort(S, kind="stable")] = np.arange(S.size)
    P = found.R[:, back]
    return Fit(
        penalized.left, rss, found.total, np.asarray(coefficients)[back], _gains(P, found.C, lam), np.asarray(P.T @ P)
    )


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

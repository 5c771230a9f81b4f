"""The error of a selection, from the data on the chosen columns, by orthogonal factorisation.

A tall-skinny QR of [X_S | Y] in a tree: each block is factored, its targets split into the part in the span and the
part left over, and the small factors are stacked and factored again (Demmel et al., "Communication-optimal parallel
and sequential QR", 2012). Squared residuals are only ever added, so nothing cancels; no normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.data.dataset import Block, Dataset, dense_rows
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.passes.reduce_blocks import reduce_blocks
from dsel.passes.statistics import Scaling

_PIECE_BYTES = 32 << 20


@dataclass
class Factor:
    """R: (r, s) of the columns X_S, C: (r, N) Q'Y; `left` the squared residual and `total` ||Y||^2, summed so far."""

    R: Floats
    C: Floats
    left: float
    total: float


@dataclass(frozen=True)
class Fit:
    """Least squares (or ridge) of the preprocessed Y on the chosen columns: error is f(S), rss without the penalty."""

    error: float
    rss: float
    total: float
    coefficients: Floats  # (s, N)


def factor(Z: Floats, T: Floats) -> Factor:
    """Factor one block: Z (r, s), T (r, N)."""
    Q, R = np.linalg.qr(Z)
    C = Q.T @ T
    total = float(np.vdot(T, T))
    rest = T - Q @ C
    return Factor(R, C, float(np.vdot(rest, rest)), total)


def merge_factors(a: Factor, b: Factor) -> Factor:
    """Factor of the rows of a and b together."""
    joint = factor(np.vstack([a.R, b.R]), np.vstack([a.C, b.C]))
    return Factor(joint.R, joint.C, a.left + b.left + joint.left, a.total + b.total)


def _factor_block(
    x: Any, y: Any, block: Block, chosen: NDArray[np.int64], scaling: Scaling, fill: Floats | None
) -> Factor:
    """Rows enter times the square root of their weight. chosen: places in x's columns of the selection; y None means
    that all of x are the targets."""
    width = x.shape[1] if y is None else chosen.size + y.shape[1]
    step = max(1, _PIECE_BYTES // (8 * max(width, 1)))
    result: Factor | None = None
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
    dataset: Dataset,
    S: NDArray[np.int64],
    scaling: Scaling,
    lam: float = 0.0,
    *,
    usable: NDArray[np.bool_],
    fill: Floats | None = None,
    engine: Engine = THREADS,
) -> Fit:
    """Recompute f(S) from the data. Reads the columns S (all columns where Y = X) once.

    S: indices in the data, any order; coefficients come in that order. usable: (n,) columns that count as targets
    where Y = X (constant ones have nothing to explain). fill: what stands for NaN.
    """
    ascending = np.sort(S)
    if dataset.n_targets:
        columns, chosen = ascending, np.arange(S.size)
        scaling = Scaling(scaling.center_x[columns], scaling.scale_x[columns], scaling.center_y, scaling.scale_y)
    else:
        columns = np.flatnonzero(usable)
        chosen = np.searchsorted(columns, ascending)
        scaling = Scaling(scaling.center_x[columns], scaling.scale_x[columns], scaling.center_y, scaling.scale_y)
    fill = None if fill is None else fill[columns]
    N = dataset.n_targets or columns.size
    per_block = partial(_factor_block, chosen=chosen, scaling=scaling, fill=fill)
    whole = reduce_blocks(
        dataset, per_block, merge_factors, name="refit", partial_bytes=8 * S.size * (S.size + N),
        columns=columns, engine=engine,
    )  # fmt: skip
    rss_and_penalty = whole
    if lam > 0.0:
        penalty = Factor(np.sqrt(lam) * np.eye(S.size), np.zeros((S.size, N)), 0.0, 0.0)
        rss_and_penalty = merge_factors(whole, penalty)
    coefficients = scipy.linalg.solve_triangular(rss_and_penalty.R, rss_and_penalty.C) if S.size else whole.C
    error = rss_and_penalty.left
    rss = error - lam * float(np.vdot(coefficients, coefficients))
    back = np.empty(S.size, np.int64)
    back[np.argsort(S, kind="stable")] = np.arange(S.size)
    return Fit(error, rss, whole.total, np.asarray(coefficients)[back])

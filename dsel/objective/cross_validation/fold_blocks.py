"""K-fold errors of ridge regression on S, S + j and S - i without the Gram matrices of the folds, for few rows.

Let H be the coordinates of all rows in an orthonormal basis of S, as in dsel.objective.cross_validation.leave_one_out,
and e the residuals. The residuals of the rows f of a fold under the model fitted without them are those of
leave-one-out, with a matrix in place of its divisor:

    M e_f   with   M = (I - U_f U_f' - H_f H_f')^-1,   U_f U_f' the intercept's part of the leverages.

Under S + j they are (M^-1 - R_j R_j' / delta_j)^-1 (e_f - R_j T_j / delta_j), and by Sherman and Morrison

    p + kappa b   with   p = M e_f,  b = M R_j,  tau = T_j / delta_j,
                         kappa = (R_j'p - tau R_j'b) / (delta_j - R_j'b) - tau.

So a fold of r rows costs r^2 operations per column instead of r. Under S - i the same holds with v = h F, -A_ii and w_i
in the places of R_j, delta_j and T_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.losses import UNDETERMINED


@dataclass(frozen=True, eq=False)
class FoldBlock:
    """The rows of a fold, M, and p = M e. M is None where the other rows do not determine a model."""

    rows: Ints
    M: Floats | None
    p: Floats


def fold_blocks(folds: Sequence[Ints], e: Floats, h: Floats, u: Floats) -> list[FoldBlock]:
    """Return the blocks of some folds. e: (m, N) residuals; h: (m, s); u: (m,) roots of the intercept's leverages."""
    return [_block(rows, e[rows], h[rows], u[rows]) for rows in folds]


def _block(rows: Ints, e: Floats, h: Floats, u: Floats) -> FoldBlock:
    left = np.eye(rows.size) - h @ h.T - np.outer(u, u)
    values, V = scipy.linalg.eigh(left)
    if values.size and values[0] <= UNDETERMINED:
        return FoldBlock(rows, None, np.zeros_like(e))
    M = (V / values) @ V.T
    return FoldBlock(rows, M, M @ e)


def error_of_subset(blocks: Sequence[FoldBlock]) -> float:
    """Return the squared error of S over the folds."""
    return sum(float("inf") if block.M is None else float(np.square(block.p).sum()) for block in blocks)


def errors_of_changes(blocks: Sequence[FoldBlock], R: Floats, delta: Floats, T: Floats) -> Floats:
    """Return (w,) the squared errors over the folds with each column of R (m, w) inserted. delta (w,), T (w, N)."""
    errors = np.zeros(R.shape[1])
    tau = T / np.where(delta != 0.0, delta, np.inf)[:, None]
    for block in blocks:
        if block.M is None:
            return np.full(R.shape[1], np.inf)
        R_f = R[block.rows]
        b = block.M @ R_f
        rb, bb = np.einsum("rw,rw->w", R_f, b), np.einsum("rw,rw->w", b, b)
        rest = delta - rb
        rest = np.where(np.abs(rest) > UNDETERMINED * np.abs(delta), rest, np.nan)
        for t in range(T.shape[1]):
            p = block.p[:, t]
            kappa = (p @ R_f - tau[:, t] * rb) / rest - tau[:, t]
            errors += float(p @ p) + kappa * (2.0 * (p @ b) + kappa * bb)
    return np.where(np.isnan(errors), np.inf, errors)

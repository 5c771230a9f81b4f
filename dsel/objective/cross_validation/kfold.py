"""K-fold cross-validated error of ridge regression on S, S + j and S - i, from the Gram matrices of the folds alone.

Let w, P, A (see `LooRound`), delta and T be those of the rows outside a fold, and K', B', y'y those of the rows inside,
with the same means. The residuals of the fold under S + j are e - R_j beta_j, beta_j = T_j / delta_j, and its squared
error is

    E_S - 2 beta_j r_j + beta_j^2 q_j,   r_j = B'_j - K'_jS w - P_j' (B'_S - K'_SS w),
                                         q_j = K'_jj - 2 K'_jS P_j + P_j' K'_SS P_j

and under S - i, with h = A_i / A_ii,  E_S + 2 w_i h' (B'_S - K'_SS w) + w_i^2 h' K'_SS h.

For few rows, the K-fold errors on S, S + j and S - i are computed without the Gram matrices of the folds.

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
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.leave_one_out import LooProblem, LooRound, n_errors, prepare
from dsel.objective.cross_validation.losses import UNDETERMINED, ridge_spectrum


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows outside a fold as a problem, and the moments of the rows inside it.

    K (n, n), B (n, N) and yy = ||Y||^2 are in preprocessed units, centered at the means of the rows outside.
    """

    outside: LooProblem
    K: Floats
    B: Floats
    yy: float


def fold_errors(fold: Fold, round: LooRound, lam: float) -> Floats:
    """Return the squared errors of the fold's rows, in the layout of `losses.block_errors`. O(n s^2).

    They are inf where the rows outside do not determine the coefficients.
    """
    S = round.members
    try:
        inner = prepare(replace(fold.outside, lam=lam), S)
    except np.linalg.LinAlgError:  # lam = 0, and S is dependent on these rows, and so is every subset with S
        return np.full(n_errors(round), np.inf)
    P, w, A = inner.P, inner.w, inner.A
    K_S, B_S = fold.K[S], fold.B[S]
    K_SS = K_S[:, S]
    rest = B_S - K_SS @ w  # X_S' e
    flat = np.zeros(n_errors(round))
    base = fold.yy - float(np.vdot(w, B_S)) - float(np.vdot(w, rest))
    flat[0] = base
    if round.insert:
        beta = inner.T / np.where(inner.delta > 0.0, inner.delta, np.inf)[:, None]
        r = fold.B - K_S.T @ w - P.T @ rest
        q = np.diag(fold.K) - 2.0 * np.einsum("sn,sn->n", K_S, P)
        q = q + np.einsum("sn,sn->n", P, K_SS @ P)
        flat[1 : 1 + round.n] = base - 2.0 * (beta * r).sum(axis=1) + np.square(beta).sum(axis=1) * q
    if round.remove:
        h = A / np.diag(A)  # column i is that of member i
        cross = (w * (h.T @ rest)).sum(axis=1)
        squares = np.square(w).sum(axis=1) * np.einsum("si,si->i", h, K_SS @ h)
        flat[1 + round.n :] = base + 2.0 * cross + squares
    return flat


def fold_ridge_errors(fold: Fold, lams: Floats, members: Ints) -> Floats:
    """Return (lams,) the squared errors of the fold's rows with the columns `members`. O(n^3)."""
    outside = ridge_spectrum(fold.outside, members, lams)
    V = outside.V
    K, B = V.T @ fold.K[np.ix_(members, members)] @ V, V.T @ fold.B[members]
    errors = np.empty(lams.size)
    for l in range(lams.size):
        w = outside.VB * outside.shrink[:, l, None]
        errors[l] = fold.yy - 2.0 * np.vdot(w, B) + np.vdot(w, K @ w)
    return errors


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

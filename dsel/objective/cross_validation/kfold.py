"""K-fold cross-validated error of ridge regression on S, S + j and S - i, from the Gram matrices of the folds alone.

Let w, P, A (see `LooRound`), delta and T be those of the rows outside a fold, and K', B', y'y those of the rows inside,
with the same means. The residuals of the fold under S + j are e - R_j beta_j, beta_j = T_j / delta_j, and its squared
error is

    E_S - 2 beta_j r_j + beta_j^2 q_j,   r_j = B'_j - K'_jS w - P_j' (B'_S - K'_SS w),
                                         q_j = K'_jj - 2 K'_jS P_j + P_j' K'_SS P_j

and under S - i, with h = A_i / A_ii,  E_S + 2 w_i h' (B'_S - K'_SS w) + w_i^2 h' K'_SS h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.leave_one_out import LooProblem, LooRound, n_errors, prepare


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
    ix = np.ix_(members, members)
    values, V = scipy.linalg.eigh(fold.outside.gram.block(members))
    shrink = 1.0 / (np.maximum(values, 0.0)[:, None] + lams)
    VB, K, B = V.T @ fold.outside.B[members], V.T @ fold.K[ix] @ V, V.T @ fold.B[members]
    errors = np.empty(lams.size)
    for l in range(lams.size):
        w = VB * shrink[:, l, None]
        errors[l] = fold.yy - 2.0 * np.vdot(w, B) + np.vdot(w, K @ w)
    return errors

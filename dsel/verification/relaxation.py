"""Check the bound of a convex relaxation, from the diagonal and weights in the log.

With a diagonal D > 0 for which K - D is positive semidefinite, and for any A (n, N), no k columns explain more than

    <A, (K - D) A> + the k largest of |row j of B - (K - D) A|^2 / d_j.

So only the sign of K - D must be checked, and one value computed: where A comes from does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel.verification.problem import EPSILON, EXTENDED, Extended, Problem


def relaxation_bound(problem: Problem, k: int, d: Sequence[float], z: Sequence[float]) -> float:
    """Return the lower bound on f of all subsets of at most k columns, -inf if K - D is not positive. O(n^3).

    Parameters
    ----------
    problem : Problem
        The problem, summed from the data.
    k : int
        The most columns to choose.
    d, z : sequences of float
        The diagonal of D and the weights from which A follows, for columns of norm 1.

    Returns
    -------
    float
        The bound.
    """
    n = problem.n
    norms = np.sqrt(problem.floor / EXTENDED(DEPENDENCE_TOLERANCE))
    unit = np.sqrt(np.maximum(np.diag(problem.K), EXTENDED(0)))
    D, weights = np.asarray(d, EXTENDED) * (unit / norms) ** 2, np.asarray(z, np.float64)
    if D.size != n or weights.size != n or not (D > 0).all() or not (weights > 0).all():
        return float("-inf")
    K = problem.K / norms[:, None] / norms[None, :]
    B = problem.B / norms[:, None]
    H = K - np.diag(D)
    if not _positive_definite(H):
        return float("-inf")
    system = np.asarray(H + np.diag(D / weights), np.float64)
    A = np.linalg.solve(system, np.asarray(B, np.float64)).astype(EXTENDED)
    HA = H @ A
    g = np.sort(((B - HA) ** 2).sum(axis=1) / D)
    return float(problem.c - (A * HA).sum() - g[n - min(k, n) :].sum())


def _positive_definite(H: Extended) -> bool:
    """Return whether a matrix with a diagonal of at most 1 is positive definite by more than rounding."""
    H = H.copy()
    for a in range(H.shape[0]):
        if not H[a, a] > 16 * H.shape[0] * EPSILON:
            return False
        H[a + 1 :, a + 1 :] -= np.outer(H[a + 1 :, a] / H[a, a], H[a, a + 1 :])
    return True

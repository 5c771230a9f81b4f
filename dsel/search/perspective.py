"""A lower bound from convex relaxation, which sees how many columns may be chosen even with a single target.

With K - D positive semidefinite for a diagonal D > 0, columns Q explain, for any A (n, N),

    max_C 2 <B, C> - <C, K C>  <=  <A, (K - D) A> + sum over Q of g_j,    g_j = |row j of B - (K - D) A|^2 / d_j

(C is zero outside Q; <C, (K - D) C> lies above its tangent at A), so that no k columns explain more than that with the
k largest g. The least such bound over A is the perspective relaxation of Guenluek and Linderoth ("Perspective
reformulations of mixed integer nonlinear programs", Math. Programming 2010), here approached by Frank-Wolfe steps over
z in [0, 1]^n, sum z = k. It is strong where the columns are not too dependent, and worthless where they are: d_j is a
share of what column j has that the others have not.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel.objective.memory import Floats
from dsel.search.bounds import Problem, column_norms

#: Steps at most, and as many as take about so many multiplications; with fewer than a few steps it is not worth it.
_STEPS, _WORK, _FEWEST = 400, 3e9, 10
#: Columns whose correlations have an eigenvalue below this are dependent to rounding.
_SMALLEST = 1e-9


def perspective_bound(problem: Problem, k: int) -> float:
    """Lower bound on f over all subsets of at most k columns; 0 where there is none of this kind. O(steps n^3)."""
    n = problem.n
    steps = int(min(_STEPS, _WORK / max(n, 1) ** 3))
    norms = column_norms(problem.K)
    K, B = problem.K / np.outer(norms, norms), problem.B / norms[:, None]
    if steps < _FEWEST or k >= n or float(np.linalg.eigvalsh(K)[0]) < _SMALLEST:
        return 0.0
    d = _diagonal(K)
    return max(problem.c - _explained(K, B, d, k, steps), 0.0)


def _diagonal(K: Floats) -> Floats:
    """d (n,) with K - diag(d) positive semidefinite: a multiple of what each column has that the others have not."""
    alone = 1.0 / np.diag(np.linalg.inv(K))
    scale = np.sqrt(alone)
    share = float(np.linalg.eigvalsh(K / np.outer(scale, scale))[0])
    return np.asarray(0.999 * max(share, 0.0) * alone)


def _explained(K: Floats, B: Floats, d: Floats, k: int, steps: int) -> float:
    """Upper bound on what k columns explain: the best over the steps."""
    n = K.shape[0]
    if float(d.min()) <= 0.0:
        return float("inf")
    H = K - np.diag(d)
    z = np.full(n, k / n)
    best = float("inf")
    for step in range(steps):
        A = scipy.linalg.solve(H + np.diag(d / np.maximum(z, 1e-9)), B, assume_a="pos")
        HA = H @ A
        g = np.square(B - HA).sum(axis=1) / d
        top = np.argpartition(-g, k - 1)[:k]
        best = min(best, float(np.vdot(A, HA)) + float(g[top].sum()))
        z *= (step + 1.0) / (step + 3.0)
        z[top] += 2.0 / (step + 3.0)
    return best

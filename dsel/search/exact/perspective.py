"""A lower bound from convex relaxation, which depends on the number of columns to choose even with a single target.

With K - D positive semidefinite for a diagonal D > 0, columns Q explain, for any A (n, N),

    max_C 2 <B, C> - <C, K C>  <=  <A, (K - D) A> + sum over Q of g_j,    g_j = |row j of B - (K - D) A|^2 / d_j

(C is zero outside Q, and <C, (K - D) C> lies above its tangent at A). So no k columns explain more than the right-hand
side with the k largest g. The least such bound over A is the perspective relaxation of Guenluek and Linderoth
("Perspective reformulations of mixed integer nonlinear programs", Math. Programming 2010). It is approached by
Frank-Wolfe steps over z in [0, 1]^n, sum z = k. The least over D as well is a semidefinite relaxation (Dong, Chen,
Linderoth, "Regularization vs. relaxation", 2015). It is approached by alternating rounds: Newton steps with a
logarithmic barrier for D, then steps for z. With one target, an interior-point method takes its place
(dsel.search.exact.perspective_tree.semidefinite).

The bound is strong if the columns are nearly independent, and useless if they are not: d_j is a share of the part of
column j that is orthogonal to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem, column_norms
from dsel.search.exact.perspective_tree.semidefinite import seconds_of, solve

#: Most steps, most multiplications of all steps, and fewest steps that are worthwhile.
_STEPS, _WORK, _FEWEST = 400, 3e9, 10
#: Most rounds for D and z, most multiplications of all rounds, and multiplications of a round over n^3.
_ROUNDS, _WORK_OF_ROUNDS, _ROUND = 12, 5e9, 80
_STEPS_PER_ROUND, _NEWTON_STEPS = 150, 20
#: Most seconds of a relaxation that comes before a search.
_QUICK = 0.1
#: If the correlation matrix has an eigenvalue below this, the columns are dependent up to rounding.
_SMALLEST = 1e-9
#: Share of D that is used, so that K - D is positive definite in spite of rounding.
_INSIDE = 0.999
#: No element of D becomes smaller than this share of its first value: its column's g would be rounding.
_FLOOR = 0.05
#: Weight of the barrier in the first round, as a share of ||Y||^2.
_BARRIER = 1e-4


def affordable(n: int, k: int) -> bool:
    """Return whether the relaxation is worth its time for k of n columns."""
    return _steps(n) >= _FEWEST and k < n


def quick(problem: BoundProblem) -> bool:
    """Return whether the relaxation takes so little time that it comes before a search."""
    return problem.N == 1 and seconds_of(problem.n) <= _QUICK


@dataclass(frozen=True)
class Relaxation:
    """A bound of the relaxation, and what it follows from.

    bound: a lower bound on f, 0 if it is useless. d: the diagonal D, for columns of norm 1. z: the columns' weights, at
    which A = (K - D + D / z)^-1 B gives the bound.
    """

    bound: float
    d: tuple[float, ...] = ()
    z: tuple[float, ...] = ()


def perspective_bound(problem: BoundProblem, k: int, deadline: Deadline | None = None) -> float:
    """Return a lower bound on f of all subsets of at most k columns, or 0 if this bound is useless. O(steps n^3)."""
    return relaxation_of(problem, k, deadline).bound


def relaxation_of(problem: BoundProblem, k: int, deadline: Deadline | None = None) -> Relaxation:
    """Return the relaxation for subsets of at most k columns. O(steps n^3).

    Every step has a valid bound, so that it may end at a deadline. Rounding is worth as much as for other bounds
    (dsel.search.exact.guarantee): K - D stays positive definite by a margin, and g is a sum of squares.
    """
    n, deadline = problem.n, deadline or Deadline(None)
    useless = Relaxation(0.0)
    if not affordable(n, k):
        return useless
    norms = column_norms(np.diag(problem.K))
    K, B = problem.K / np.outer(norms, norms), problem.B / norms[:, None]
    if B.shape[1] == 1:
        found = solve(K, B[:, 0], np.zeros(n, np.bool_), k, problem.c, 0.0, deadline)
        if found is None or not found.bound < problem.c:
            return useless
        return Relaxation(
            problem.c - found.bound, tuple(found.d.tolist()), tuple(np.maximum(found.bound_z, _SMALLEST).tolist())
        )
    try:
        best, d, z = _least_explained(K, B, k, problem.c, deadline)
    except np.linalg.LinAlgError:  # K - D is singular to rounding
        return useless
    if not best < problem.c:
        return useless
    return Relaxation(problem.c - best, tuple(d.tolist()), tuple(np.maximum(z, _SMALLEST).tolist()))


def _steps(n: int) -> int:
    return int(min(_STEPS, _WORK / max(n, 1) ** 3))


def _least_explained(
    K: Floats, B: Floats, k: int, c: float, deadline: Deadline
) -> tuple[float, Floats, Floats]:  # fmt: skip
    """Return an upper bound on what k columns explain, with its d and z; inf if the columns are nearly dependent."""
    n = K.shape[0]
    nothing = np.zeros(n)
    if not float(np.linalg.eigvalsh(K)[0]) >= _SMALLEST:
        return float("inf"), nothing, nothing
    d = _diagonal(K)
    if not float(d.min()) > 0.0:
        return float("inf"), nothing, nothing
    best, best_z, z = _explained(K, B, d, k, _steps(n), deadline)
    best_d = d
    lowest = _FLOOR * d
    for round in range(int(min(_ROUNDS, _WORK_OF_ROUNDS / (_ROUND * n**3)))):
        if deadline.passed:
            break
        d = _sharper(K, B, d, z, lowest, _BARRIER * c / (round + 1), deadline)
        explained, at, toward = _explained(K, B, _INSIDE * d, k, _STEPS_PER_ROUND, deadline)
        if explained < best:
            best, best_d, best_z = explained, _INSIDE * d, at
        z += (toward - z) * 2.0 / (round + 2)
    return best, best_d, best_z


def _diagonal(K: Floats) -> Floats:
    """Return d (n,) with K - diag(d) positive semidefinite, a multiple of each column's part outside the others."""
    alone = 1.0 / np.diag(np.linalg.inv(K))
    scale = np.sqrt(alone)
    share = float(np.linalg.eigvalsh(K / np.outer(scale, scale))[0])
    return np.asarray(_INSIDE * max(share, 0.0) * alone)


def _explained(K: Floats, B: Floats, d: Floats, k: int, steps: int, deadline: Deadline) -> tuple[float, Floats, Floats]:
    """Return an upper bound on what k columns explain, the best of all steps, its z (n,), and the last z."""
    n = K.shape[0]
    H = K - np.diag(d)
    z = np.full(n, k / n)
    best, best_z = float("inf"), z
    for step in range(steps):
        if deadline.passed:
            break
        A = scipy.linalg.solve(H + np.diag(d / np.maximum(z, _SMALLEST)), B, assume_a="pos")
        HA = H @ A
        g = np.square(B - HA).sum(axis=1) / d
        top = np.argpartition(-g, k - 1)[:k]
        explained = float(np.vdot(A, HA)) + float(g[top].sum())
        if explained < best:
            best, best_z = explained, z.copy()
        z *= (step + 1.0) / (step + 3.0)
        z[top] += 2.0 / (step + 3.0)
    return best, best_z, z


def _sharper(
    K: Floats, B: Floats, d: Floats, z: Floats, lowest: Floats, barrier: float, deadline: Deadline
) -> Floats:  # fmt: skip
    """Return d (n,) >= lowest at which z explains less, with K - diag(d) positive definite.

    Newton's method minimizes <B, (K + diag(r d))^-1 B> - barrier log det(K - diag(d)), r = 1/z - 1.
    """
    r = 1.0 / np.maximum(z, _SMALLEST) - 1.0

    def value(d: Floats) -> float:
        try:
            L = np.linalg.cholesky(K - np.diag(d))
        except np.linalg.LinAlgError:
            return float("inf")
        A = scipy.linalg.solve(K + np.diag(r * d), B, assume_a="pos")
        return float(np.vdot(B, A)) - 2.0 * barrier * float(np.log(np.diag(L)).sum())

    now = value(d)
    for _ in range(_NEWTON_STEPS):
        if deadline.passed:
            break
        inverse, inside = np.linalg.inv(K + np.diag(r * d)), np.linalg.inv(K - np.diag(d))
        A = inverse @ B
        slope = barrier * np.diag(inside) - r * np.square(A).sum(axis=1)
        curve = 2.0 * np.outer(r, r) * inverse * (A @ A.T) + barrier * np.square(inside)
        free = (d > lowest) | (slope < 0.0)
        if not free.any():
            return d
        step = np.zeros(d.size)
        step[free] = -np.linalg.lstsq(curve[np.ix_(free, free)], slope[free], rcond=None)[0]
        share, before = 1.0, now
        while share > _SMALLEST:
            trial = np.maximum(d + share * step, lowest)
            then = value(trial)
            if then < now:
                d, now = trial, then
                break
            share *= 0.5
        if before - now <= 1e-6 * abs(before):
            break
    return d

"""The perspective relaxation of a node for several targets, where a row of coefficients is in or out as a whole.

K and D are those of `dsel.search.exact.perspective_tree.relaxation`, B (n, N) holds the products with the targets. With
A (n, N) in place of b, and g_j = |row j of B - (K - D) A|^2 / d_j, no subset of the node explains more than

    <A, (K - D) A> + sum over F of g_j + the q largest other g_j.

For given weights z the best A is (K - D + D / z)^-1 B. What it explains,

    phi(z) = <B, A>,

is concave, its slope in z_j is g_j, and its second derivatives are -2 (R R')_ij G_ij / (d_i d_j), where the rows of R
are those of B - (K - D) A, and G = ((K - D)^-1 + Z / D)^-1. So a Newton step needs matrices of the columns with weights
only, for any number of targets. For one target, signs of coefficients tell more (`relaxation.relax`).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective_tree.coordinate_descent import largest, scaled, squares, weights
from dsel.search.exact.perspective_tree.relaxation import CLOSE, Mask, Problem, Relaxed

#: Most steps of a relaxation, and most columns that enter in one step.
_STEPS, _ENTERING = 60, 40
#: phi and the bound agree to this share.
_CONVERGED = 1e-7
#: Rounds of a Newton step, in each of which weights at their limits are fixed.
_ROUNDS = 20
_HALVINGS = 12
#: Weights of at most this size are zero.
_NOTHING = 1e-9
#: Seconds of a step, about: a constant, and the factors of s^3 and of s n N for s columns with weights.
_STEP_SECONDS, _SECONDS = 4e-4, (2e-10, 5e-10)


def relax_rows(
    problem: Problem, fixed: Mask, free: Mask, q: int, A: Floats, enough: float, close: float = CLOSE
) -> Relaxed:  # fmt: skip
    """Return the relaxation of a node, from the coefficients A (n, N) of its parent.

    The other arguments are those of `dsel.search.exact.perspective_tree.relaxation.relax`.
    """
    node = _Node(problem, fixed, free, q)
    z = fixed.astype(np.float64)
    z[free] = weights(np.sqrt(problem.d[free] * squares(A[free])), q)
    point = node.at(z)
    best, steps = point, 0
    while steps < _STEPS:
        if best.bound <= enough or best.bound - point.explained < _CONVERGED * abs(best.bound):
            break
        if enough < point.explained and best.bound - point.explained < close * (point.explained - enough):
            break
        after = node.after(point)
        if after is None:
            break
        point, steps = after, steps + 1
        best = point if point.bound < best.bound else best
    return Relaxed(best.bound, best.A, node.seconds)


class _Point:
    """Weights z (n,), the best coefficients A (n, N) for them, and what follows from both.

    explained: phi(z). bound: no subset of the node explains more. S: the columns with weights. R (n, N), g (n,): see
    the module.
    """

    def __init__(self, problem: Problem, fixed: Mask, free: Mask, q: int, z: Floats) -> None:
        K, B, d = problem.K, problem.c, problem.d
        self.z, self.S = z, np.flatnonzero(z)
        S, root = self.S, np.sqrt(z[self.S])
        M = root[:, None] * K[np.ix_(S, S)] * root
        M[np.diag_indices(S.size)] += d[S] * (1.0 - z[S])
        C = scipy.linalg.solve(M, scaled(root, B[S]), assume_a="pos", check_finite=False) if S.size else B[S]
        self.A = np.zeros_like(B)
        self.A[S] = scaled(root, C)
        HA = K[S].T @ self.A[S]
        HA[S] -= scaled(d[S], self.A[S])
        self.R = B - HA
        self.g = squares(self.R) / d
        self.explained = float(np.vdot(B[S], self.A[S]))
        self.bound = float(np.vdot(self.A[S], HA[S]) + self.g[fixed].sum()) + largest(self.g[free], q)


class _Node:
    """A node: its columns, and steps between points. seconds: about how long they took."""

    def __init__(self, problem: Problem, fixed: Mask, free: Mask, q: int) -> None:
        self._problem, self._fixed, self._free, self._q = problem, fixed, free, q
        self.seconds = 0.0

    def at(self, z: Floats) -> _Point:
        """Return the point with these weights."""
        point = _Point(self._problem, self._fixed, self._free, self._q, z)
        self.seconds += _STEP_SECONDS + _SECONDS[0] * point.S.size**3 + _SECONDS[1] * point.S.size * point.A.size
        return point

    def after(self, point: _Point) -> _Point | None:
        """Return a point that explains more, or None if no step finds one."""
        for direction in (self._newton(point), self._to_vertex(point)):
            share = 1.0
            while direction is not None and share > 2.0**-_HALVINGS:
                z = np.clip(point.z + share * direction, 0.0, 1.0)
                z[z < _NOTHING] = 0.0
                found = self.at(z)
                if found.explained > point.explained + 1e-12 * abs(point.explained):
                    return found
                share *= 0.5
        return None

    def _to_vertex(self, point: _Point) -> Floats:
        """Return the direction to the q free columns with the largest slopes, which is never down."""
        columns = np.flatnonzero(self._free)
        top = columns[np.argsort(-point.g[columns], kind="stable")[: self._q]]
        direction = np.where(self._free, -point.z, 0.0)
        direction[top] += 1.0
        return direction

    def _working_set(self, point: _Point) -> Ints:
        """Return the free columns with weights, and those that should get one."""
        z, g, free = point.z, point.g, self._free
        partial = free & (z > 0.0) & (z < 1.0)
        level = float(z[partial] @ g[partial] / z[partial].sum()) if partial.any() else 0.0
        columns = np.flatnonzero(free & (z == 0.0) & (g > level))
        most = max(_ENTERING, self._q)
        if columns.size > most:
            columns = columns[np.argsort(-g[columns], kind="stable")[:most]]
        return np.flatnonzero(free & (z > 0.0) | np.isin(np.arange(z.size), columns))

    def _newton(self, point: _Point) -> Floats | None:
        """Return the step (n,) to the maximum of the quadratic model, among weights in [0, 1] that sum to q.

        It is found by a primal-dual active-set method: in each round, weights that would leave [0, 1] are fixed at
        their limits, and those whose slope points inside are no longer fixed.
        """
        W = self._working_set(point)
        z, g, N = point.z[W], point.g[W], self._curvature(point, W)
        if N is None:
            return None
        low, high = np.zeros(W.size, np.bool_), z == 1.0
        for _ in range(_ROUNDS):
            solved = _inside_limits(N, g, z, low, high, self._q - float(z.sum()))
            if solved is None:
                return None
            step, slope = solved
            inside = ~(low | high)
            below, above = inside & (step < -z), inside & (step > 1.0 - z)
            after = (low & (slope <= 0.0) | below, high & (slope >= 0.0) | above)
            if (after[0] == low).all() and (after[1] == high).all():
                found = np.zeros(point.z.size)
                found[W] = step
                return found
            low, high = after
        return None

    def _curvature(self, point: _Point, W: Ints) -> Floats | None:
        """Return minus the second derivatives of phi in the weights of W, or None if they are singular."""
        K, d, fixed = self._problem.K, self._problem.d, np.flatnonzero(self._fixed)
        S = np.concatenate([W, fixed])
        H = K[np.ix_(S, S)]
        H[np.diag_indices(S.size)] -= d[S]
        root = np.sqrt(point.z[S])
        M = root[:, None] * H * root
        M[np.diag_indices(S.size)] += d[S]
        HW = root[:, None] * H[:, : W.size]
        try:
            G = H[: W.size, : W.size] - HW.T @ scipy.linalg.solve(M, HW, assume_a="pos", check_finite=False)
        except np.linalg.LinAlgError:
            return None
        R = scaled(1.0 / d[W], point.R[W])
        N = np.asarray(2.0 * (R @ R.T) * G)
        N[np.diag_indices(W.size)] += 1e-10 * float(np.diag(N).max(initial=0.0)) + 1e-300
        return N


def _inside_limits(
    N: Floats, g: Floats, z: Floats, low: Mask, high: Mask, missing: float
) -> tuple[Floats, Floats] | None:  # fmt: skip
    """Return the step that maximizes g'x - x'Nx / 2 with sum x = missing, and the slope there less its multiplier.

    Weights z that are `low` go to 0, and those that are `high` to 1.
    """
    step, inside = np.where(low, -z, np.where(high, 1.0 - z, 0.0)), np.flatnonzero(~(low | high))
    if not inside.size:
        return None
    right = np.column_stack([(g - N @ step)[inside], np.ones(inside.size)])
    try:
        both = scipy.linalg.solve(N[np.ix_(inside, inside)], right, assume_a="pos", check_finite=False)
    except np.linalg.LinAlgError:
        return None
    multiplier = float(both[:, 0].sum() - missing + step.sum()) / float(both[:, 1].sum())
    step[inside] = both[:, 0] - multiplier * both[:, 1]
    return step, g - N @ step - multiplier

"""The perspective relaxation with the best diagonal D: a semidefinite relaxation, by an interior-point method.

For weights z and a diagonal d, with w_j = d_j (1 / z_j - 1), the relaxation explains

    phi(z, d) = c'(K + W)^-1 c

of one target, or the sum over several. It is concave in z and, because w is linear in d, convex in d. The columns that
are fixed in have z = 1. The largest value over z in [0, 1], sum z = q, is the relaxation's bound for d. The least such
bound over d with K - D positive semidefinite is that of a semidefinite relaxation (Dong, Chen, Linderoth,
"Regularization vs. relaxation", 2015). The saddle point is approached along the central path of logarithmic barriers
for both, by Newton steps. Each d on the way gives a valid bound. About twelve steps of O(n^3) suffice. Beginning at the
parent's point takes more steps, because it is near to the boundary.

This lower bound depends on the number of columns to choose even with a single target.

With K - D positive semidefinite for a diagonal D > 0, columns Q explain, for any A (n, N),

    max_C 2 <B, C> - <C, K C>  <=  <A, (K - D) A> + sum over Q of g_j,    g_j = |row j of B - (K - D) A|^2 / d_j

(C is zero outside Q, and <C, (K - D) C> lies above its tangent at A). So no k columns explain more than the right-hand
side with the k largest g. The least such bound over A is the perspective relaxation of Guenluek and Linderoth
("Perspective reformulations of mixed integer nonlinear programs", Math. Programming 2010), where a row of coefficients
is in or out as a whole. The least over D as well is a semidefinite relaxation (Dong, Chen, Linderoth, "Regularization
vs. relaxation", 2015). It is computed by an interior-point method (dsel.search.exact.perspective.semidefinite).

The bound is strong if the columns are nearly independent, and useless if they are not: d_j is a share of the part of
column j that is orthogonal to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf, dpotri

from dsel._lib.types import Floats
from dsel.objective.few_targets import column_norms
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.perspective.coordinate_descent import inner, largest, products, scaled, squares
from dsel.search.exact.perspective.relaxation import Mask

#: Share of D that is used, so that K - D is positive semidefinite in spite of rounding.
_INSIDE = 0.999
#: No element of D becomes smaller: the column's g would be rounding.
_SMALLEST = 1e-7
#: Weights of the barriers at first and at last, as shares of ||Y||^2, and which share of one the next one is.
_FROM, _TO, _LOWER = 1e-2, 2e-6, 0.35
_STEPS = 20
#: The steps end where one lowers the bound by less than this share of what it is above the best subset.
_LITTLE = 0.01
#: A step goes this share of the way to the boundary at most. One of the second share is nearly a whole step.
_TO_BOUNDARY, _WHOLE = 0.8, 0.8
_SHORTEST = 1e-3
_LEAST_WEIGHT = 1e-12
#: Steps of the power method for the first d.
_POWERS = 15
#: Seconds of a Newton step, about: a constant, and the factor of n^3.
_STEP_SECONDS, _SECONDS = 3e-4, 1.1e-9


@dataclass(frozen=True, eq=False)
class Solved:
    """The relaxation at a node.

    bound: no subset explains more. d, bound_z (n,), b (n,) or (n, N): what gave it. z (n,): the last weights. seconds:
    about how long it took, see `seconds_of`.
    """

    bound: float
    d: Floats
    b: Floats
    bound_z: Floats
    z: Floats
    seconds: float


def seconds_of(n: int, steps: int = _STEPS) -> float:
    """Return about how long these steps take for n columns, which does not depend on the machine."""
    return steps * (_STEP_SECONDS + _SECONDS * n**3)


def solve(
    K: Floats, c: Floats, fixed: Mask, q: int, total: float, enough: float, deadline: Deadline | None = None
) -> Solved | None:  # fmt: skip
    """Return the relaxation of a node, or None if its columns are nearly dependent. O(steps n^3).

    K (n, n) and c, (n,) for one target or (n, N), are those of the node's columns, of which `fixed` are in. q, less
    than the others, may be added.
    total: ||Y||^2. enough: a node that explains at most this is pruned, and no bound needs to be less.
    deadline: when the steps end, if they have not before.
    """
    path = _Path(K, c, fixed, q)
    if not path.start(_FROM * total):
        return None
    path.follow(_TO * total, enough, deadline or Deadline(None))
    return Solved(path.bound, path.bound_d, path.bound_b, path.bound_z, path.z, seconds_of(K.shape[0], path.steps))


class _Path:
    """Newton steps for one node. bound, bound_d, bound_b, bound_z: the least bound, and what gave it.

    z, d: the present point. low, high, small, X: the multipliers of z >= 0, z <= 1, d >= 1e-7, and of K - D.
    """

    def __init__(self, K: Floats, c: Floats, fixed: Mask, q: int) -> None:
        self._K, self._c, self._fixed, self._q = K, c, fixed, q
        self._free = np.flatnonzero(~fixed)
        self.bound, self.steps = float("inf"), 0
        self.bound_b, self.bound_d = c, np.zeros(K.shape[0])
        self.bound_z = self.z = self.d = self.bound_d
        self._low = self._high = self._small = self.z
        self._X = self._inverse = K  # the multiplier, and the inverse of K - D

    def start(self, mu: float) -> bool:
        """Begin in the middle, with barriers of weight mu, or return False if the columns are nearly dependent.

        d is in proportion to each column's part outside the others.
        """
        n, factor = self._K.shape[0], _cholesky(self._K)
        if factor is None:
            return False
        inverse = _inverse(factor)
        alone = 1.0 / np.diag(inverse)
        if not (np.isfinite(alone).all() and float(alone.min()) > 0.0):
            return False
        root = np.sqrt(alone)
        d, factor = 0.5 / _largest_eigenvalue(inverse * np.outer(root, root)) * alone, None
        while factor is None and float(d.min()) > 4.0 * _SMALLEST:
            d *= 0.9
            factor = _cholesky(self._K, -d)
        if factor is None:
            return False
        zf = np.full(self._free.size, self._q / self._free.size)
        self.z, self.d, self._inverse = np.ones(n), d, _inverse(factor)
        self.z[self._free] = zf
        self._low, self._high, self._small = mu / zf, mu / (1.0 - zf), mu / (d - _SMALLEST)
        self._X = mu * self._inverse
        return True

    def follow(self, last: float, enough: float, deadline: Deadline) -> None:
        """Follow the path to barriers of weight `last`, while the bound improves enough."""
        while self.steps < _STEPS and not deadline.passed:
            mu, before = max(_LOWER * self._weight(), last), self.bound
            share = self._step(mu)
            if share == 0.0:
                return
            self._find_bound()
            if self.bound <= enough:
                return
            if share >= _WHOLE and mu <= last and before - self.bound < _LITTLE * (self.bound - enough):
                return

    def _weight(self) -> float:
        """Return the weight of the barriers that the point and the multipliers are for."""
        z, d = self.z[self._free], self.d
        products = float(self._low @ z + self._high @ (1.0 - z) + self._small @ (d - _SMALLEST))
        matrix = float(np.vdot(self._X, self._K)) - float(np.diag(self._X) @ d)
        return (products + matrix) / (2 * z.size + 2 * d.size)

    def _find_bound(self) -> None:
        """Compute the bound at the point, from b = (K + W)^-1 c. It is valid for any b, and d with K - D inside."""
        d = _INSIDE * self.d
        factor = _cholesky(self._K, d * (1.0 / np.maximum(self.z, _LEAST_WEIGHT) - 1.0))
        if factor is None:
            return
        b = scipy.linalg.cho_solve((factor, True), self._c, check_finite=False)
        Qb = self._K @ b - scaled(d, b)
        g = squares(self._c - Qb) / d
        bound = inner(b, Qb) + float(g[self._fixed].sum()) + largest(g[self._free], self._q)
        if bound < self.bound:
            self.bound, self.bound_d, self.bound_b, self.bound_z = bound, d, b, self.z

    def _step(self, mu: float) -> float:
        """Take a Newton step for the saddle point, and return the share of it, 0 if there is none.

        The unknowns are the changes of z (of free columns), of d, and the multiplier of sum z = q. That of z is
        eliminated first: its block is negative definite.
        """
        c, z, d, free, inside = self._c, self.z, self.d, self._free, self._inverse
        r = np.where(self._fixed, 0.0, 1.0 / z - 1.0)
        factor = _cholesky(self._K, r * d)
        if factor is None:
            return 0.0
        P = _inverse(factor)
        b = P @ c
        H = 2.0 * P * products(b)  # of phi in w
        zf, df, room, used = z[free], d[free], d - _SMALLEST, squares(b)
        slope = used[free] / np.square(zf)
        by_z = slope * df + mu / zf - mu / (1.0 - zf)
        by_d = mu * np.diag(inside) - used * r - mu / room
        wz = -df / np.square(zf)
        N = -(wz[:, None] * H[np.ix_(free, free)] * wz)
        N[np.diag_indices(free.size)] += 2.0 * slope * df / zf + self._low / zf + self._high / (1.0 - zf)
        C = wz[:, None] * H[free] * r
        C[np.arange(free.size), free] += slope
        D = r[:, None] * H * r + inside * self._X
        D[np.diag_indices(d.size)] += self._small / room
        change = _saddle_step(N, C, D, by_z, by_d, self._q - float(zf.sum()))
        return self._move(mu, *change) if change is not None else 0.0

    def _move(self, mu: float, dz: Floats, dd: Floats) -> float:
        """Take the largest shares of a step that stay inside, for the point and for the multipliers."""
        zf, room, inside = self.z[self._free], self.d - _SMALLEST, self._inverse
        low = mu / zf - self._low - self._low / zf * dz
        high = mu / (1.0 - zf) - self._high + self._high / (1.0 - zf) * dz
        small = mu / room - self._small - self._small / room * dd
        half = inside @ (dd[:, None] * self._X)
        X = mu * inside - self._X + 0.5 * (half + half.T)
        share = min(1.0, _room(zf, dz), _room(1.0 - zf, -dz), _room(room, dd))
        while (factor := _cholesky(self._K, -(self.d + share * dd))) is None:
            share *= 0.7
            if share < _SHORTEST:
                return 0.0
        self.z = self.z.copy()
        self.z[self._free] = zf + share * dz
        self.d, self._inverse = self.d + share * dd, _inverse(factor)
        self.steps += 1
        dual = min(1.0, _room(self._low, low), _room(self._high, high), _room(self._small, small))
        while dual > _SHORTEST and _cholesky(self._X + dual * X) is None:
            dual *= 0.7
        if dual > _SHORTEST:
            self._low, self._high = self._low + dual * low, self._high + dual * high
            self._small, self._X = self._small + dual * small, self._X + dual * X
        return share


def _saddle_step(
    N: Floats, C: Floats, D: Floats, by_z: Floats, by_d: Floats, missing: float
) -> tuple[Floats, Floats] | None:  # fmt: skip
    """Solve -N x + C y - tau = -by_z, C'x + D y = -by_d, sum x = missing, for N and D positive definite."""
    factor = _cholesky(N)
    if factor is None:
        return None
    right = np.column_stack([C, by_z, np.ones(by_z.size)])
    A = scipy.linalg.solve_triangular(factor, right, lower=True, check_finite=False)
    A, g, o = A[:, :-2], A[:, -2], A[:, -1]
    schur = _cholesky(D + A.T @ A)
    if schur is None:
        return None
    Y = scipy.linalg.cho_solve((schur, True), np.column_stack([-by_d - A.T @ g, A.T @ o]), check_finite=False)
    Ay, At = A @ Y[:, 0], A @ Y[:, 1]
    slack = float(o @ o - o @ At)
    if not slack > 0.0:
        return None
    tau = float(o @ (g + Ay) - missing) / slack
    x = scipy.linalg.solve_triangular(factor, g + Ay + tau * (At - o), lower=True, trans=1, check_finite=False)
    y = Y[:, 0] + tau * Y[:, 1]
    return (x, y) if bool(np.isfinite(x).all() and np.isfinite(y).all()) else None


def _room(value: Floats, change: Floats) -> float:
    """Return which share of a change takes a positive value most of the way to 0."""
    falls = change < 0.0
    return _TO_BOUNDARY * float((-value[falls] / change[falls]).min()) if falls.any() else 1.0


def _largest_eigenvalue(A: Floats) -> float:
    """Return the largest eigenvalue of a positive definite matrix, about, by the power method."""
    v = np.ones(A.shape[0])
    for _ in range(_POWERS):
        v /= np.linalg.norm(v)
        v = A @ v
    return float(np.linalg.norm(v))


def _cholesky(A: Floats, diagonal: Floats | None = None) -> Floats | None:
    """Return the lower factor of A with a diagonal added, or None if it is not positive definite."""
    M = np.array(A, order="F")
    if diagonal is not None:
        M[np.diag_indices(M.shape[0])] += diagonal
    factor, info = dpotrf(M, lower=1, clean=1, overwrite_a=1)
    return factor if info == 0 else None


def _inverse(factor: Floats) -> Floats:
    """Return the inverse of the matrix with this lower factor."""
    inverse, _ = dpotri(factor, lower=1)
    lower = np.tril(inverse, -1)
    return np.asarray(lower + lower.T + np.diag(np.diag(inverse)))


#: Most seconds of a relaxation, and of one that comes before a search.
_LONGEST, QUICK = 10.0, 0.1
#: Least weight of a column.
_FEWEST_COLUMNS = 1e-9


def affordable(n: int, k: int) -> bool:
    """Return whether the relaxation is worth its time for k of n columns."""
    return k < n and seconds_of(n) <= _LONGEST


@dataclass(frozen=True)
class Relaxation:
    """A bound of the relaxation, and what it follows from.

    bound: a lower bound on f, 0 if it is useless. d: the diagonal D, for columns of norm 1. z: the columns' weights, at
    which A = (K - D + D / z)^-1 B gives the bound.
    """

    bound: float
    d: tuple[float, ...] = ()
    z: tuple[float, ...] = ()


def relaxation_of(problem: BoundProblem, k: int, deadline: Deadline | None = None) -> Relaxation:
    """Return the relaxation for subsets of at most k columns. O(steps n^3).

    Every step has a valid bound, so that it may end at a deadline. Rounding is worth as much as for other bounds
    (dsel.search.exact.guarantee): K - D stays positive definite by a margin, and g is a sum of squares.
    """
    n, useless = problem.n, Relaxation(0.0)
    if not affordable(n, k):
        return useless
    norms = column_norms(np.diag(problem.K))
    K, B = problem.K / np.outer(norms, norms), problem.B / norms[:, None]
    c = B[:, 0] if problem.N == 1 else B
    found = solve(K, c, np.zeros(n, np.bool_), k, problem.c, 0.0, deadline)
    if found is None or not found.bound < problem.c:
        return useless
    return Relaxation(
        problem.c - found.bound, tuple(found.d.tolist()), tuple(np.maximum(found.bound_z, _FEWEST_COLUMNS).tolist())
    )

"""The perspective relaxation of a node, by an active-set method.

K (n, n) has a diagonal of 1, and K - D is positive semidefinite for the diagonal D > 0. With q columns to add to the
columns F that are fixed in, the relaxation maximizes

    E(b) = 2 c'b - b'(K - D)b - sum over F of d_j b_j^2 - min_z sum over the others of d_j b_j^2 / z_j,

z in [0, 1], sum z <= q. For any b, with r = c - (K - D) b and g_j = r_j^2 / d_j, no subset of the node explains more
than

    b'(K - D)b + sum over F of g_j + the q largest other g_j

because -x'(K - D)x lies below its tangent at b (Guenluek and Linderoth, "Perspective reformulations of mixed integer
nonlinear programs", Math. Programming 2010). So every step has a valid bound.

Steps of coordinate descent come first (Hazimeh, Mazumder, Saab, "Sparse regression at scale", Math. Programming 2022).
They are about a price t^2 of a column in place of their number q; t is adjusted until the weights sum to q. If that
does not suffice, Newton steps follow. Where the signs of b and the columns with z = 1 are known, the best b solves one
linear system. The steps go from one such guess to the next, with a line search.

If coefficients are limited, |b_j| <= M_j, then g_j is the largest 2 r_j b_j - d_j b_j^2 of them, see
`dsel.search.exact.perspective.coordinate_descent`. The relaxation has |b_j| <= M_j z_j then, coordinate descent alone
solves it, and D may be 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective.coordinate_descent import (
    combination,
    descend,
    gains,
    inner,
    largest,
    level,
    nonzero,
    penalty,
    scaled,
    sizes,
    weights,
)

Mask = NDArray[np.bool_]

#: Elements of D below this would make rounding count: the relaxation is useless then.
SMALLEST = 1e-7

#: Most Newton steps of a relaxation, and most columns that enter in one step.
_STEPS, _ENTERING = 60, 40
#: A node that cannot be pruned is branched on when its bound has come this close to E, as a share of E above the best.
CLOSE = 0.5
#: E and the bound agree to this share.
_CONVERGED = 1e-7
_HALVINGS = 12
#: Coefficients of at most this size are zero.
_NOTHING = 1e-12
#: Rounds of coordinate descent, each for one level t, sweeps over the columns in each, and columns that enter at most.
_LEVELS, _SWEEPS, _DESCENDING = 12, 25, 120
#: Rounds if coefficients are limited: no Newton steps follow.
_LEVELS_IN_BOX = 60
#: A sweep that changes no coefficient by more than this, over t, is the last one of a round. It is smaller by a factor
#: if the weights sum to q but for a share.
_SETTLED, _FINER, _NEAR = 1e-3, 0.1, 0.05
#: d log(sum of the weights) / d log t at first, and its limits.
_SLOPE, _SLOPES = -2.0, (-30.0, -1.0)
#: The least level t, over sqrt(g) of the first column.
_LEAST_LEVEL = 1e-6
#: Seconds of a step, about: a constant, and the factors of s^3 and of s n for s columns with coefficients.
_STEP_SECONDS, _SECONDS = 2e-4, (1e-10, 4e-10)
#: Seconds of a sweep over s columns, about, over s^2, and of the copy of their Gram matrix.
_SWEEP_SECONDS, _COPY_SECONDS = 3e-10, 1.5e-9


@dataclass(frozen=True, eq=False)
class Box:
    """A limit of the coefficients that bounds are about.

    limit (n,): the largest |b_j|. total: the largest sum of |b_j| of a subset. rounding: of the elements of K.
    """

    limit: Floats
    total: float
    rounding: float


@dataclass(frozen=True, eq=False)
class Problem:
    """K (n, n) of columns of norm 1, c (n,) their products with the target, and the diagonal d (n,) of D.

    For several targets, c is (n, N). box: the coefficients that bounds are about, of one target; None: any. D may be 0
    with a box.
    """

    K: Floats
    c: Floats
    d: Floats
    box: Box | None = None

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.d.size)

    def dual(self, b: Floats, fixed: Mask) -> tuple[float, Floats]:
        """Return b'(K - D)b and g (n,), from which the bound of coefficients b follows."""
        S = np.flatnonzero(nonzero(b) | fixed)
        Qb = combination(self.K, S, b[S]) if b.ndim == 1 else self.K[S].T @ b[S]
        Qb[S] -= scaled(self.d[S], b[S])
        return inner(b[S], Qb[S]) + self.rounding(b[S]), gains(self.c - Qb, self.d, self.limit)

    def of_columns(self, S: Ints, d: Floats) -> Problem:
        """Return the problem of some columns alone, with another diagonal (s,)."""
        box = None if self.box is None else replace(self.box, limit=self.box.limit[S])
        return Problem(self.K[np.ix_(S, S)], self.c[S], d, box)

    @property
    def limit(self) -> Floats | None:
        """The largest coefficients (n,), if they are limited."""
        return None if self.box is None else self.box.limit

    def rounding(self, b: Floats) -> float:
        """Return what the rounding of K is worth in the bound of coefficients b (s,), if D is 0."""
        if self.box is None or self.d.any():  # K - D is positive semidefinite by a margin
            return 0.0
        return self.box.rounding * (self.box.total + float(np.abs(b).sum())) ** 2

    def weights(self, b: Floats, free: Ints, q: int) -> Floats:
        """Return the weights of the free columns for coefficients b (n,), which sum to at most q."""
        size = sizes(b[free])
        return weights(size * np.sqrt(self.d[free]), q, None if self.limit is None else size / self.limit[free])

    def bound(self, b: Floats, fixed: Mask, free: Mask, q: int) -> float:
        """Return what no subset of a node explains more than, by coefficients b that need not be its own."""
        fitted, g = self.dual(b, fixed)
        return fitted + float(g[fixed].sum()) + largest(g[free], q)

    def bound_seconds(self, rows: int) -> float:
        """Return about how long `bound` takes for this many rows of coefficients."""
        return _STEP_SECONDS + _SECONDS[1] * rows * self.c.size


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxation of a node. bound: no subset explains more; b, with n rows: the coefficients that gave it.

    seconds: about how long it took, which does not depend on the machine.
    """

    bound: float
    b: Floats
    seconds: float


def relax(
    problem: Problem, fixed: Mask, free: Mask, q: int, b: Floats, enough: float, close: float = CLOSE
) -> Relaxed:  # fmt: skip
    """Return the relaxation of a node, from the coefficients b of its parent.

    fixed (n,), free (n,): the columns that are in, and those that may be added, q of them. enough: a node that explains
    at most this is pruned, and its relaxation ends there. close: it also ends if E and the bound differ by this share
    of E above `enough`.
    """
    steps = _Steps(problem, fixed, free, q, enough, close)
    steps.begin(np.where(fixed | free, b, 0.0))
    if not steps.ended:
        steps.descend()
    for _ in range(_STEPS if problem.box is None else 0):
        if steps.ended or not steps.take():
            break
    return Relaxed(steps.bound, steps.best, steps.seconds)


class _Steps:
    """The steps of one relaxation. bound, best: the least bound so far, and the b that gave it.

    ended: whether the bound is good enough.
    """

    def __init__(self, problem: Problem, fixed: Mask, free: Mask, q: int, enough: float, close: float) -> None:
        self._problem, self._fixed, self._free, self._q = problem, fixed, free, q
        self._enough, self._close = enough, close
        self._root = np.sqrt(problem.d)
        self._limit = np.full(problem.n, np.inf) if problem.limit is None else problem.limit
        self.bound, self.best, self.seconds = float("inf"), np.zeros(problem.n), 0.0
        self.ended = False

    def _move(self, b: Floats) -> None:
        """Move to coefficients b, and compute what follows from them: r, g, E and the bound."""
        K, c, d = self._problem.K, self._problem.c, self._problem.d
        S = np.flatnonzero((b != 0.0) | self._fixed)
        self.seconds += _STEP_SECONDS + _SECONDS[1] * S.size * self._problem.n
        Kb = combination(K, S, b[S])
        Qb = Kb.copy()
        Qb[S] -= d[S] * b[S]
        self._b, self._r = b, c - Qb
        self._g = gains(self._r, d, self._problem.limit)
        fitted = float(b[S] @ Qb[S] + self._g[self._fixed].sum()) + self._problem.rounding(b[S])
        bound = fitted + largest(self._g[self._free], self._q)
        if bound < self.bound:
            self.bound, self.best = bound, b
        self._E = E = self._explained(S, b[S], Kb[S])
        pruned = self.bound <= self._enough or self.bound - E < _CONVERGED * abs(self.bound)
        self.ended = pruned or (self._enough < E and self.bound - E < self._close * (E - self._enough))

    def begin(self, b: Floats) -> None:
        """Begin with coefficients b."""
        self._move(b)

    def descend(self) -> None:
        """Take steps of coordinate descent until the relaxation has ended, or progress is slow."""
        t, least = self._first_level()
        before: tuple[float, float] | None = None
        settled, W, K = _SETTLED, np.zeros(0, np.int64), np.zeros((0, 0))
        for _ in range(_LEVELS if self._problem.box is None else _LEVELS_IN_BOX):
            if self.ended:
                return
            wanted = self._descending(t)
            if not (W.size and np.isin(wanted, W, assume_unique=True).all()):
                W, K = wanted, np.ascontiguousarray(self._problem.K[np.ix_(wanted, wanted)])
                self.seconds += _COPY_SECONDS * W.size**2
            own, r = self._b[W], self._r[W]
            sweeps = descend(
                K, self._problem.d[W], self._root[W], self._limit[W], self._fixed[W], t, _SWEEPS, settled * t, own, r
            )  # fmt: skip
            self.seconds += _SWEEP_SECONDS * sweeps * W.size**2
            after = np.zeros(self._problem.n)
            after[W] = own
            self._move(after)
            size = np.abs(after[self._free])
            used = float(np.minimum(size * self._root[self._free] / t, 1.0).sum())
            if self._problem.box is not None:
                used = float(
                    np.minimum(np.maximum(size * self._root[self._free] / t, size / self._limit[self._free]), 1.0).sum()
                )
            excess = float(np.log(max(used, 0.05 * self._q) / self._q))
            if abs(excess) < _NEAR and sweeps < _SWEEPS:
                settled *= _FINER
            slope = _SLOPE
            if before is not None and abs(np.log(t) - before[0]) > 1e-9:
                slope = float(np.clip((excess - before[1]) / (np.log(t) - before[0]), *_SLOPES))
            before = (float(np.log(t)), excess)
            t = max(t * float(np.exp(np.clip(-excess / slope, -1.0, 1.0))), least)

    def _first_level(self) -> tuple[float, float]:
        """Return the level t of the present coefficients, and the least one."""
        g = self._g[self._free]
        least = max(_LEAST_LEVEL * float(g.max(initial=0.0)) ** 0.5, _NOTHING)
        t = 0.0
        if self._problem.box is None:
            t = level(np.abs(self._b[self._free]) * self._root[self._free], self._q)
        if t == 0.0 and g.size > self._q:  # few coefficients: those with the largest g should count in full
            t = float(np.partition(g, g.size - self._q - 1)[g.size - self._q - 1]) ** 0.5
        return max(t, least) if np.isfinite(t) else least, least

    def _descending(self, t: float) -> Ints:
        """Return the columns with coefficients, and those that should have one at level t."""
        used = self._fixed | (self._b != 0.0)
        entering = np.flatnonzero(self._free & ~used & (self._g > t * t))
        if entering.size > _DESCENDING:
            entering = entering[np.argpartition(-self._g[entering], _DESCENDING)[:_DESCENDING]]
        used[entering] = True
        return np.flatnonzero(used)

    def take(self) -> bool:
        """Take a Newton step, and return whether one raises E."""
        self.seconds += _SECONDS[0] * np.count_nonzero(self._b) ** 3
        A, target = self._guess(self._b, self._r, self._g)
        after = self._toward(self._b, A, target, self._E) if target is not None else None
        if after is not None:
            self._move(after)
        return after is not None

    def _explained(self, S: Ints, b: Floats, Kb: Floats) -> float:
        """Return E of coefficients b (s,) of the columns S, with K b (s,).

        With a box, that of the part of them that is inside.
        """
        c, d, inside = self._problem.c[S], self._problem.d[S], self._fixed[S]
        least = None
        if self._problem.box is not None:
            used = np.abs(b) / self._limit[S]
            share = min(
                1.0 / max(float(used[inside].max(initial=0.0)), 1.0),
                self._q / max(float(used[~inside].sum()), self._q, 1.0),
            )
            b, Kb, least = share * b, share * Kb, share * used[~inside]
        fixed = float((d[inside] * np.square(b[inside])).sum())
        others = penalty(np.abs(b[~inside]) * self._root[S][~inside], self._q, least)
        return float(2.0 * c @ b - b @ Kb + d @ np.square(b)) - fixed - others

    def _guess(self, b: Floats, r: Floats, g: Floats) -> tuple[Ints, Floats | None]:
        """Return the columns that are guessed to have coefficients, and those that are best for the guess.

        Columns with z = 1 count in full. The others share the rest of q: sum |a_j| over them, squared and divided
        by their number, is their penalty for given signs.
        """
        a = np.where(self._free, np.abs(b) * self._root, 0.0)
        t = level(a, self._q)
        entering = np.flatnonzero(self._free & (b == 0.0) & (g > t * t * (1.0 + 1e-6)))
        if entering.size > _ENTERING:
            entering = entering[np.argpartition(-g[entering], _ENTERING)[:_ENTERING]]
        sign = np.sign(b)
        sign[entering] = np.sign(r[entering])
        whole = self._free & (a > 0.0) & (a >= t)
        partial = self._free & (a > 0.0) & ~whole
        partial[entering] = True
        share = self._q - int(whole.sum())
        if share <= 0 and partial.any():  # the smallest one makes room
            in_full = np.flatnonzero(whole)
            least = in_full[a[in_full].argmin()]
            whole[least], partial[least], share = False, True, share + 1
        A = np.flatnonzero(self._fixed | whole | partial)
        M = self._problem.K[np.ix_(A, A)]
        part = np.flatnonzero(partial[A])
        M[part, part] -= self._problem.d[A[part]]
        s = np.where(partial[A], self._root[A] * sign[A], 0.0)
        if share > 0:
            M += np.outer(s, s) / share
        try:
            best = scipy.linalg.solve(M, self._problem.c[A], assume_a="pos", check_finite=False)
        except np.linalg.LinAlgError:
            return A, None
        best[partial[A] & (np.sign(best) != sign[A])] = 0.0
        return A, np.asarray(best)

    def _toward(self, b: Floats, A: Ints, target: Floats, E: float) -> Floats | None:
        """Return b after a step toward the target coefficients of the columns A, or None if none raises E."""
        K_A, start, share = self._problem.K[np.ix_(A, A)], b[A], 1.0
        for _ in range(_HALVINGS):
            trial = start + share * (target - start)
            trial[np.abs(trial) < _NOTHING] = 0.0
            if self._explained(A, trial, K_A @ trial) > E + 1e-12 * abs(E):
                after = np.zeros_like(b)
                after[A] = trial
                return after
            share *= 0.5
        return self._reweighted(b)

    def _reweighted(self, b: Floats) -> Floats | None:
        """Return the best b for the weights z of this one: a short step that always raises E, until it converges."""
        S = np.flatnonzero((b != 0.0) | self._fixed)
        d, a = self._problem.d[S], np.abs(b[S]) * self._root[S]
        z = np.ones(S.size)
        others = ~self._fixed[S]
        z[others] = weights(a[others], self._q)
        M = self._problem.K[np.ix_(S, S)]
        M[np.diag_indices(S.size)] += d * (1.0 / np.maximum(z, _NOTHING) - 1.0)
        try:
            trial = scipy.linalg.solve(M, self._problem.c[S], assume_a="pos", check_finite=False)
        except np.linalg.LinAlgError:
            return None
        trial[np.abs(trial) < _NOTHING] = 0.0
        gained = self._explained(S, trial, self._problem.K[np.ix_(S, S)] @ trial)
        before = self._explained(S, b[S], self._problem.K[np.ix_(S, S)] @ b[S])
        if not gained > before + 1e-9 * abs(before):
            return None
        after = np.zeros_like(b)
        after[S] = trial
        return after

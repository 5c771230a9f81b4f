"""Lower bounds on f of the best completion of a partial selection.

For a selection S with q columns still to choose from R:

    combined    f(S) - the q largest eigenvalues of Z_R Z_R'   (Z_R: residual cross-Gram of R given S,
                orthonormalised over R)
    eigenvalue  f(S) - the q largest eigenvalues of Y_S'Y_S    (Wan and Schweitzer, AAAI 2021, Theorem 4: the completion
                may leave the span of R; Y_S: residual targets)
    leaps       f(S) - tr(Z_R Z_R') = f(S + R)                 (Furnival and Wilson, 1974: q is not used)

No bound exceeds f of a completion by more than the errors that `dsel.search.exact.certificate.Certificate` states. This
holds for every number of rows, columns and targets, and for every rank: the bound is that of a matrix that differs from
K by a ridge and by rounding, see `orthonormalised`. A bound that is not finite is replaced by 0, so that it prunes
nothing.

The combined bound is never below the two others. Branch and bound adds to it what disjoint cores prove, given an
incumbent (dsel.search.exact.branch_and_bound.disjoint_cores).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.low_rank import ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, ridge
from dsel._lib.types import Floats, Ints
from dsel.objective.few_targets import column_norms, dense_seconds, few_targets
from dsel.objective.kernels.elimination import BORDERLINE_RATIO, eliminated
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline

BoundName = Literal["combined", "eigenvalue", "leaps"]
BOUNDS: tuple[BoundName, ...] = ("combined", "eigenvalue", "leaps")

#: A step of an elimination of at least this many columns takes long enough to look at the clock.
_MANY = 500


@dataclass(frozen=True, eq=False)
class BoundProblem:
    """A quadratic objective as the bounds use it: lam is in the diagonal of K, and targets are as few as possible.

    K: (n, n). B: (n, r) with B B' = M. floor: (n,) a subset in which others leave at most this of a column's square is
    dependent. target_gram: see `of`. deadline: a factorization that would end later raises OutOfTime.
    """

    K: Floats
    B: Floats
    c: float
    floor: Floats
    target_gram: Floats | None = None
    deadline: Deadline | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the deadline, which is that of one process."""
        return {**self.__dict__, "deadline": None}

    @classmethod
    def of(
        cls, objective: Objective, target_gram: Floats | None = None, deadline: Deadline | None = None
    ) -> BoundProblem:
        """Return the problem of an objective. O(n^3) if Y = X or N > n, and O(n^2 r) if K has a low rank r.

        target_gram: (N, N) Y'Y, for the eigenvalue bound as published. By default, only the part of the targets in the
        span of X is used, which makes that bound sharper. Raises OutOfTime if this would end after the deadline.
        """
        K = penalized(objective)
        if target_gram is not None and objective.cross is not None:
            T = np.asarray(target_gram, np.float64)
            return cls(K, objective.cross, objective.c, objective.floor, T, deadline)
        B = np.ascontiguousarray(few_targets(objective, None if deadline is None else deadline.require))
        return cls(K, B, objective.c, objective.floor, deadline=deadline)

    def until(self, deadline: Deadline | None) -> BoundProblem:
        """Return the problem with another deadline, and with all that was computed of it."""
        found = replace(self, deadline=deadline)
        found.__dict__.update({**self.__dict__, "deadline": deadline})
        return found

    @property
    def n(self) -> int:
        """The number of candidate columns."""
        return int(self.K.shape[0])

    @property
    def N(self) -> int:
        """The number of targets that are kept."""
        return int(self.B.shape[1])

    @cached_property
    def norms(self) -> Floats:
        """The norms (n,) by which rounding is judged: those of the columns before the included ones were removed."""
        before = (1.0 - 1e-14) * self.floor / DEPENDENCE_TOLERANCE
        return column_norms(np.maximum(np.diag(self.K), before))

    @cached_property
    def highest_floor(self) -> float:
        """The highest floor of a column, as a share of its squared norm."""
        diagonal = np.diag(self.K)
        return float((self.floor / np.where(diagonal > 0.0, diagonal, np.inf)).max(initial=0.0))

    @cached_property
    def T(self) -> Floats:
        """The Gram matrix (r, r) of the targets, or of their part in the span of the columns. O(n^3)."""
        return self.explained if self.target_gram is None else self.target_gram

    @cached_property
    def explained(self) -> Floats:
        """The Gram matrix (r, r) of what all columns together explain of the targets. O(n^2 times their rank)."""
        return explained_by_all(self.K, self.B, self.deadline, self.norms)

    def residual(self, S: Sequence[int], R: Sequence[int] | Ints) -> tuple[Floats, Floats, float]:
        """Return K (t, t) and B (t, r) of the columns R given S, which is independent, and f(S)."""
        r = np.asarray(R, np.int64)
        if not len(S):
            return self.K[np.ix_(r, r)], self.B[r], self.c
        s, L, W = self._factor(S)
        V = scipy.linalg.solve_triangular(L, self.K[np.ix_(s, r)], lower=True)
        f = self.c - float(np.square(W).sum())
        return self.K[np.ix_(r, r)] - V.T @ V, self.B[r] - V.T @ W, f

    def free(self, S: Sequence[int], R: Ints) -> NDArray[np.bool_]:
        """Return for which columns of R (t,) S is independent with them, by the objective's rule. S is independent.

        A column that is not free given S is not free given any superset of S. O(s^2 t).
        """
        s = np.sort(np.asarray(S, np.int64))
        floor = np.where(self.floor > 0.0, self.floor, np.inf)
        left = np.diag(self.K)[R]
        share = np.maximum(left, 0.0) / floor[R]
        if s.size:
            L = np.asarray(np.linalg.cholesky(self.K[np.ix_(s, s)]), np.float64)
            V = np.asarray(scipy.linalg.solve_triangular(L, self.K[np.ix_(s, R)], lower=True))
            inverse = np.asarray(scipy.linalg.solve_triangular(L, np.eye(s.size), lower=True))
            left = left - np.square(V).sum(axis=0)
            of_members = np.square(inverse).sum(axis=0)[:, None] + np.square(inverse.T @ V) / np.maximum(left, floor[R])
            share = np.minimum(np.maximum(left, 0.0) / floor[R], (1.0 / (of_members * floor[s][:, None])).min(axis=0))
        free = share > 1.0
        for x in np.flatnonzero((share < BORDERLINE_RATIO) & (share * BORDERLINE_RATIO > 1.0)):
            free[x] = self.independent((*S, int(R[x])))
        return np.asarray(free)

    def independent(self, S: Sequence[int]) -> bool:
        """Return whether S is independent by the objective's rule, computed to the same bits."""
        members = np.sort(np.asarray(S, np.int64))
        s = members.size
        return bool(eliminated(self.K, self.B, 0, 0.0, self.floor, members, s, np.empty((s, s))) < np.inf)

    def value(self, S: Sequence[int]) -> float:
        """Return f(S), or NaN if S is dependent."""
        members = np.sort(np.asarray(S, np.int64))
        s = members.size
        return float(eliminated(self.K, self.B, self.N, self.c, self.floor, members, s, np.empty((s, s + self.N))))

    def _factor(self, S: Sequence[int]) -> tuple[Ints, Floats, Floats]:
        """Return S ascending, the Cholesky factor L of K_SS, and W = L^-1 B_S."""
        s = np.sort(np.asarray(S, np.int64))
        L = np.asarray(np.linalg.cholesky(self.K[np.ix_(s, s)]), np.float64)
        return s, L, np.asarray(scipy.linalg.solve_triangular(L, self.B[s], lower=True))

    def _residual_targets(self, S: Sequence[int]) -> Floats:
        """Return the Gram matrix (r, r) of the residual targets given S."""
        W = self._factor(S)[2] if len(S) else self.B[:0]
        return self.T - W.T @ W

    def bound(self, S: Sequence[int], R: Sequence[int], q: int, name: BoundName = "combined") -> float:
        """Return a lower bound on f(S + Q) for all Q of at most q columns of R."""
        if q > 0 and not len(S) and len(R) == self.n:
            return self.root(q, name)
        G, B, f = self.residual(S, R)
        if q == 0 or not len(R):
            return f
        if name == "eigenvalue":
            return _below(f, self._residual_targets(S), q)
        Z = orthonormalised(G, B, self.floor[np.asarray(R, np.int64)])
        if name == "leaps":
            explained = float(np.square(Z).sum())
            return max(f - explained, 0.0) if np.isfinite(explained) else 0.0
        return _below(f, Z.T @ Z, q)

    def root(self, k: int, name: BoundName = "combined") -> float:
        """Return a lower bound on f of all subsets of at most k columns. O(n^2 times the rank of the columns)."""
        if name == "leaps":
            return _below(self.c, self.explained, self.N)
        return _below(self.c, self.T if name == "eigenvalue" else self.explained, k)


def penalized(objective: Objective) -> Floats:
    """Return K + lam I."""
    K = np.ascontiguousarray(objective.K, np.float64)
    if objective.lam > 0.0:
        K = K.copy()
        K[np.diag_indices_from(K)] += objective.lam
    return K


def require_time(deadline: Deadline | None) -> Callable[[int], None]:
    """Return a function of n that raises OutOfTime if a Cholesky factorization would end after the deadline."""

    def require(n: int) -> None:
        if deadline is not None:
            deadline.require(dense_seconds(n**3 / 3))

    return require


def orthonormalised(G: Floats, B: Floats, floor: Floats, deadline: Deadline | None = None) -> Floats:
    """Return Z (t, r): the residual of B_i over the columns after i, divided by its norm, by one elimination.

    Then sum_{l >= i} z_l z_l' is what columns i to t explain together. Dependent columns have z = 0, up to rounding.
    O(t^3 / 3).

    A ridge above rounding is added to the diagonal. Z is then finite for all finite G and B. If G with the ridge is
    positive semidefinite, |g_ia| <= sqrt(d g_ii) for pivot d, and no pivot takes more of a column than there is. The
    elimination clips g_ia to that limit, so that it cannot grow even if rounding were larger than the ridge.

    The elimination ends when the columns that are left are rounding. Their z is then at least as large as it can be.
    Raises OutOfTime at the deadline.
    """
    G, Z = G.copy(), B.astype(np.float64)
    rounding = ridge(G.shape[0]) / DEPENDENCE_TOLERANCE * floor
    diagonal = np.einsum("ii->i", G)  # a view
    diagonal += rounding
    for a in range(G.shape[0] - 1, -1, -1):
        if deadline is not None and a >= _MANY:
            deadline.require()
        if (diagonal[: a + 1] <= 2.0 * rounding[: a + 1]).all():
            Z[: a + 1] /= np.sqrt(np.where(rounding[: a + 1] > 0.0, rounding[: a + 1], np.inf))[:, None]
            break
        d = max(diagonal[a], rounding[a])
        if d <= 0.0:  # a column of zeros
            Z[a] = 0.0
            continue
        most = np.sqrt(d) * np.sqrt(np.maximum(diagonal[:a], 0.0))
        row = np.clip(G[a, :a], -most, most)  # for both sides: rounding that is not symmetric would grow
        Z[:a] -= np.outer(row / d, Z[a])
        G[:a, :a] -= np.outer(row / d, row)
        Z[a] /= np.sqrt(d)
    return Z


def explained_by_all(
    K: Floats, B: Floats, deadline: Deadline | None = None, norms: Floats | None = None
) -> Floats:  # fmt: skip
    """Return B' (K + r D)^-1 B, what all columns explain of the targets, to rounding.

    norms: sqrt(D), by default those of the columns.
    The ridge r (dsel._lib.tolerances) is more than rounding, so that no direction is dropped. It removes less than what
    `dsel.search.exact.guarantee` says from what independent columns explain. The columns are eliminated in the order of
    the largest pivot until they are rounding. The rest counts as if it were orthogonal. O(n^2 times their rank),
    and for a low rank r O(n r^2).
    """
    least = ridge(K.shape[0])
    _, Q, rest = factored(K, B, least, 4.0 * least, deadline, norms)
    return np.asarray(Q.T @ Q + rest.T @ rest / least)


def factored(
    K: Floats, B: Floats, added: float, tolerance: float, deadline: Deadline | None = None,
    norms: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Return W (r, n), Q (r, N) and the rest of B (n - r, N), with W'W = K and W'Q = B, for columns scaled to norm 1.

    W is a Cholesky factor in the order of the largest pivot, whose columns have the order of K. It ends when all pivots
    are at most the tolerance, so that r is the rank. added: to the diagonal. norms: by which columns are divided, by
    default their own. O(n^2 r), and O(n r^2) for a low rank.
    """
    norms = column_norms(np.diag(K)) if norms is None else norms
    found = pivoted_cholesky(ScaledMatrix.of(K, norms, added), tolerance, require_time(deadline))
    scaled, pivots = B / norms[:, None], found.pivots
    Q = scipy.linalg.solve_triangular(found.triangle, scaled[pivots], lower=True, check_finite=False)
    rest = np.delete(scaled, pivots, axis=0) - np.delete(found.W, pivots, axis=1).T @ Q
    return found.W, np.asarray(Q), np.asarray(rest)


def _below(f: float, H: Floats, q: int) -> float:
    """Return f less the q largest eigenvalues of H, at least 0; 0 if H is not finite."""
    return max(f - _largest(H, q), 0.0) if np.isfinite(H).all() else 0.0


def _largest(H: Floats, q: int) -> float:
    if q >= H.shape[0]:
        return float(np.trace(H))
    return float(np.maximum(np.linalg.eigvalsh(H)[H.shape[0] - q :], 0.0).sum())

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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.objective.kernels.elimination import NOISE_RATIO, eliminated

BoundName = Literal["combined", "eigenvalue", "leaps"]
BOUNDS: tuple[BoundName, ...] = ("combined", "eigenvalue", "leaps")

#: Eigenvalues of K or M of at most this share of the largest are rounding.
_ROUNDING = 1e-14
#: Pivots within this factor of their floor are computed again as the objective does, to the last bit.
_BORDERLINE = 10.0


@dataclass(frozen=True, eq=False)
class BoundProblem:
    """A quadratic objective as the bounds use it: lam is in the diagonal of K, and targets are as few as possible.

    K: (n, n). B: (n, r) with B B' = M. floor: (n,) a column with a pivot at or below it is dependent. target_gram: see
    `of`.
    """

    K: Floats
    B: Floats
    c: float
    floor: Floats
    target_gram: Floats | None = None

    @classmethod
    def of(cls, objective: Objective, target_gram: Floats | None = None) -> BoundProblem:
        """Return the problem of an objective. O(n^3) if Y = X or N > n.

        target_gram: (N, N) Y'Y, for the eigenvalue bound as published. By default, only the part of the targets in the
        span of X is used, which makes that bound sharper.
        """
        K = objective.K + objective.lam * np.eye(objective.n)
        if target_gram is not None and objective.cross is not None:
            return cls(K, objective.cross, objective.c, objective.floor, np.asarray(target_gram, np.float64))
        B = np.ascontiguousarray(few_targets(objective))
        if objective.cross is None and objective.moments is None:  # B'K^+B follows, whatever the scale of the columns
            values = np.linalg.norm(B, axis=0)  # eigenvalues of X'X: B is its eigenvectors times them
            return cls(K, B, objective.c, objective.floor, np.diag(values**2 / (values + objective.lam)))
        return cls(K, B, objective.c, objective.floor)

    @property
    def n(self) -> int:
        """The number of candidate columns."""
        return int(self.K.shape[0])

    @property
    def N(self) -> int:
        """The number of targets that are kept."""
        return int(self.B.shape[1])

    @cached_property
    def highest_floor(self) -> float:
        """The highest floor of a column, as a share of its squared norm."""
        diagonal = np.diag(self.K)
        return float((self.floor / np.where(diagonal > 0.0, diagonal, np.inf)).max(initial=0.0))

    @cached_property
    def T(self) -> Floats:
        """The Gram matrix (r, r) of the targets, or of their part in the span of the columns. O(n^3)."""
        return _explained_by_all(self.K, self.B) if self.target_gram is None else self.target_gram

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
        """Return which columns of R (t,) are independent of S, which is independent itself, by the objective's rule.

        The rule: no pivot is at or below its floor, with the columns in the order of their indices. A column that
        depends on S depends on every superset of S. O(s t (s + 1)).
        """
        s = np.sort(np.asarray(S, np.int64))
        left = np.diag(self.K)[R]
        V = np.zeros((0, R.size))
        if s.size:
            L = np.asarray(np.linalg.cholesky(self.K[np.ix_(s, s)]), np.float64)
            V = np.asarray(scipy.linalg.solve_triangular(L, self.K[np.ix_(s, R)], lower=True))
        left = left - np.vstack([np.zeros((1, R.size)), np.cumsum(np.square(V), axis=0)])  # (s + 1, t) given members
        place = np.searchsorted(s, R)
        share = np.maximum(left[place, np.arange(R.size)], 0.0) / np.where(self.floor[R] > 0.0, self.floor[R], np.inf)
        for p, l in enumerate(s.tolist()):  # the pivot of a member after j is smaller given j
            pivot = L[p, p] ** 2 * np.maximum(left[p + 1], 0.0) / np.where(left[p] > 0.0, left[p], np.inf)
            share = np.where(place <= p, np.minimum(share, pivot / self.floor[l]), share)
        free = share > 1.0
        for x in np.flatnonzero((share < _BORDERLINE) & (share * _BORDERLINE > 1.0)):
            free[x] = self.independent((*S, int(R[x])))
        return np.asarray(free)

    def independent(self, S: Sequence[int]) -> bool:
        """Return whether S is independent by the objective's rule, computed to the same bits."""
        members = np.sort(np.asarray(S, np.int64))
        s = members.size
        return bool(eliminated(self.K, self.B, 0, 0.0, self.floor, members, s, np.empty((s, s))) < np.inf)

    def value(self, S: Sequence[int]) -> float:
        """Return f(S) by pivots in the order of indices, or NaN if S is dependent."""
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


def few_targets(objective: Objective) -> Floats:
    """Return B (n, r) with B B' = M, and r as small as the rank of M allows, to rounding.

    The targets descend by what single columns explain of them (of their squares if Y = X).
    """
    norms = column_norms(objective.K + objective.lam * np.eye(objective.n))
    if objective.moments is not None:
        values, vectors = scipy.linalg.eigh(objective.moments / np.outer(norms, norms))
        real = (values > _ROUNDING * max(float(values[-1]), 0.0))[::-1]
        return np.asarray(norms[:, None] * vectors[:, ::-1][:, real] * np.sqrt(values[::-1][real]))
    if objective.cross is None:
        values, vectors = scipy.linalg.eigh(objective.K)
        real = (np.abs(values) > _ROUNDING * float(np.abs(values).max(initial=0.0)))[::-1]
        return np.asarray(vectors[:, ::-1][:, real] * values[::-1][real])
    if objective.cross.shape[1] == 1:
        return objective.cross
    U, values, _ = scipy.linalg.svd(objective.cross / norms[:, None], full_matrices=False)
    real = values > _ROUNDING * max(float(values[0]), 0.0)
    return np.asarray(norms[:, None] * U[:, real] * values[real]) if real.any() else objective.cross[:, :1]


def column_norms(K: Floats) -> Floats:
    """Return sqrt(K_jj), or 1 for a column of zeros. Rounding is judged after the columns are divided by them."""
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    return np.where(norms > 0.0, norms, 1.0)


def orthonormalised(G: Floats, B: Floats, floor: Floats) -> Floats:
    """Return Z (t, r): the residual of B_i over the columns after i, divided by its norm, by one elimination.

    Then sum_{l >= i} z_l z_l' is what columns i to t explain together. Dependent columns have z = 0, up to rounding.
    O(t^3 / 3).

    Z is finite for all finite G and B. If G is positive semidefinite, |g_ia| <= sqrt(d g_ii) for pivot d. Beyond the
    rank, G is rounding, which may violate this, and repeated division by the ridge would let it grow without limit. The
    elimination therefore clips g_ia to that limit. No pivot then takes more of a column than there is: diagonals only
    decrease, and stay >= 0. If the limit holds anyway, no bit changes.
    """
    G, Z = G.copy(), B.astype(np.float64)
    for a in range(G.shape[0] - 1, -1, -1):
        d = max(G[a, a], 0.0) + NOISE_RATIO * floor[a]
        if d <= 0.0:  # a column of zeros
            Z[a] = 0.0
            continue
        most = np.sqrt(d) * np.sqrt(np.maximum(np.diag(G)[:a], 0.0))
        u = np.clip(G[:a, a], -most, most) / d
        Z[:a] -= np.outer(u, Z[a])
        G[:a, :a] -= np.outer(u, np.clip(G[a, :a], -most, most))
        Z[a] /= np.sqrt(d)
    return Z


def _explained_by_all(K: Floats, B: Floats) -> Floats:
    """Return B' K^+ B, the Gram matrix of the targets' part in the span of the columns."""
    norms = column_norms(K)
    values, vectors = scipy.linalg.eigh(K / np.outer(norms, norms))
    real = values > 1e-13 * max(float(values[-1]), 0.0)
    Q = (vectors[:, real] / np.sqrt(values[real])).T @ (B / norms[:, None])
    return np.asarray(Q.T @ Q)


def _below(f: float, H: Floats, q: int) -> float:
    """Return f less the q largest eigenvalues of H, at least 0; 0 if H is not finite."""
    return max(f - _largest(H, q), 0.0) if np.isfinite(H).all() else 0.0


def _largest(H: Floats, q: int) -> float:
    if q >= H.shape[0]:
        return float(np.trace(H))
    return float(np.maximum(np.linalg.eigvalsh(H)[H.shape[0] - q :], 0.0).sum())

"""Lower bounds on what the best completion of a partial selection can reach.

For a selection S with q columns still to choose from R:

    combined    f(S) - the q largest eigenvalues of Z_R Z_R'   (Z_R: residual cross-Gram of R given S,
                orthonormalised over R)
    eigenvalue  f(S) - the q largest eigenvalues of Y_S'Y_S    (Wan and Schweitzer, AAAI 2021, Theorem 4: the completion
                may leave the span of R; Y_S: residual targets)
    leaps       f(S) - tr(Z_R Z_R') = f(S + R)                 (Furnival and Wilson, 1974: q is not used)

None is above the value of any completion, but for two things. Rounding: a small multiple of n eps ||Y||^2. The ridge:
at most the share of ||Y||^2 that dsel.objective.conditioning.missed gives, which is nothing to speak of unless
columns are nearly dependent. This holds for every number of rows, columns and targets and every rank: what is computed
is the bound of a matrix that differs from K by the ridge and by rounding, see `orthonormalised`. A bound that is not
finite is 0 here and prunes nothing in a search.

combined is never below the two others. Branch and bound adds to the combined one what disjoint cores prove
(dsel.search.exact.disjoint_cores), which needs an incumbent to say anything.
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

#: Directions of K or M with at most this share of the largest eigenvalue are rounding.
_ROUNDING = 1e-14
#: Pivots within this factor of their floor are computed again, to the last bit.
_BORDER = 10.0


@dataclass(frozen=True, eq=False)
class BoundProblem:
    """A quadratic objective as the bounds use it: lam has gone into K's diagonal, and the targets are as few as can be.

    K: (n, n). B: (n, r) with B B' = M. floor: (n,) pivots at or below it are dependent. target_gram: see `of`.
    """

    K: Floats
    B: Floats
    c: float
    floor: Floats
    target_gram: Floats | None = None

    @classmethod
    def of(cls, objective: Objective, target_gram: Floats | None = None) -> BoundProblem:
        """The problem of an objective. O(n^3) where Y = X or N > n.

        target_gram: (N, N) Y'Y of the targets behind `cross`, for the eigenvalue bound as published. Without it the
        part of the targets in the span of X stands for them, which makes that bound sharper.
        """
        K = objective.K + objective.lam * np.eye(objective.n)
        if target_gram is not None and objective.cross is not None:
            return cls(K, objective.cross, objective.c, objective.floor, np.asarray(target_gram, np.float64))
        B = np.ascontiguousarray(few_targets(objective))
        if objective.cross is None and objective.moments is None:  # B'K^+B is known, however the columns are scaled
            values = np.linalg.norm(B, axis=0)  # eigenvalues of X'X: B is its eigenvectors times them
            return cls(K, B, objective.c, objective.floor, np.diag(values**2 / (values + objective.lam)))
        return cls(K, B, objective.c, objective.floor)

    @property
    def n(self) -> int:
        """Number of candidate columns."""
        return int(self.K.shape[0])

    @property
    def N(self) -> int:
        """Number of targets kept."""
        return int(self.B.shape[1])

    @cached_property
    def highest_floor(self) -> float:
        """Highest floor of a column, as a share of its squared norm."""
        diagonal = np.diag(self.K)
        return float((self.floor / np.where(diagonal > 0.0, diagonal, np.inf)).max(initial=0.0))

    @cached_property
    def T(self) -> Floats:
        """(r, r) Gram matrix of the targets behind B, or of their part in the span of the columns. O(n^3)."""
        return _explained_by_all(self.K, self.B) if self.target_gram is None else self.target_gram

    def residual(self, S: Sequence[int], R: Sequence[int] | Ints) -> tuple[Floats, Floats, float]:
        """Given S (independent): K of R (t, t), B of R (t, r) and f(S)."""
        r = np.asarray(R, np.int64)
        if not len(S):
            return self.K[np.ix_(r, r)], self.B[r], self.c
        s, L, W = self._factor(S)
        V = scipy.linalg.solve_triangular(L, self.K[np.ix_(s, r)], lower=True)
        f = self.c - float(np.square(W).sum())
        return self.K[np.ix_(r, r)] - V.T @ V, self.B[r] - V.T @ W, f

    def free(self, S: Sequence[int], R: Ints) -> NDArray[np.bool_]:
        """(t,) which columns of R are independent of S, which is so itself, by the objective's rule: no pivot is at or
        below its floor when columns are taken in the order of their indices, whatever the order in which they were
        chosen. What depends on S depends on all that holds S. O(s t (s + 1))."""
        s = np.sort(np.asarray(S, np.int64))
        left = np.diag(self.K)[R]
        V = np.zeros((0, R.size))
        if s.size:
            L = np.asarray(np.linalg.cholesky(self.K[np.ix_(s, s)]), np.float64)
            V = np.asarray(scipy.linalg.solve_triangular(L, self.K[np.ix_(s, R)], lower=True))
        left = left - np.vstack([np.zeros((1, R.size)), np.cumsum(np.square(V), axis=0)])  # (s + 1, t) given members
        place = np.searchsorted(s, R)
        share = np.maximum(left[place, np.arange(R.size)], 0.0) / np.where(self.floor[R] > 0.0, self.floor[R], np.inf)
        for p, l in enumerate(s.tolist()):  # a member after j loses what j takes of it
            pivot = L[p, p] ** 2 * np.maximum(left[p + 1], 0.0) / np.where(left[p] > 0.0, left[p], np.inf)
            share = np.where(place <= p, np.minimum(share, pivot / self.floor[l]), share)
        free = share > 1.0
        for x in np.flatnonzero((share < _BORDER) & (share * _BORDER > 1.0)):  # too near to say so in this way
            free[x] = self.independent((*S, int(R[x])))
        return np.asarray(free)

    def independent(self, S: Sequence[int]) -> bool:
        """Whether no column of S depends on those before it in the order of indices, to the objective's own bits."""
        members = np.sort(np.asarray(S, np.int64))
        s = members.size
        return bool(eliminated(self.K, self.B, 0, 0.0, self.floor, members, s, np.empty((s, s))) < np.inf)

    def value(self, S: Sequence[int]) -> float:
        """f(S) by pivots in the order of indices, NaN where S is dependent."""
        members = np.sort(np.asarray(S, np.int64))
        s = members.size
        return float(eliminated(self.K, self.B, self.N, self.c, self.floor, members, s, np.empty((s, s + self.N))))

    def _factor(self, S: Sequence[int]) -> tuple[Ints, Floats, Floats]:
        """S ascending, the Cholesky factor L of K_SS, and W = L^-1 B_S."""
        s = np.sort(np.asarray(S, np.int64))
        L = np.asarray(np.linalg.cholesky(self.K[np.ix_(s, s)]), np.float64)
        return s, L, np.asarray(scipy.linalg.solve_triangular(L, self.B[s], lower=True))

    def _residual_targets(self, S: Sequence[int]) -> Floats:
        """(r, r) Gram matrix of the targets' residuals given S."""
        W = self._factor(S)[2] if len(S) else self.B[:0]
        return self.T - W.T @ W

    def bound(self, S: Sequence[int], R: Sequence[int], q: int, name: BoundName = "combined") -> float:
        """Lower bound on f(S + Q) over all Q of at most q columns of R."""
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
    """B (n, r) with B B' = M and r as small as the rank of M allows (to rounding), the targets in descending order of
    what columns alone explain of them (of their squares where Y = X)."""
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
    """sqrt(K_jj), 1 for a column of zeros. What is small beside others is judged after dividing by them."""
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    return np.where(norms > 0.0, norms, 1.0)


def orthonormalised(G: Floats, B: Floats, floor: Floats) -> Floats:
    """Z (t, r): the residual of B_i over the columns after i, divided by its norm, by one elimination from the end.

    sum_{l >= i} z_l z_l' is then what columns i to t explain together. Dependent columns have z = 0 but for rounding.
    O(t^3 / 3).

    Z is finite for every finite G and B. With a positive semidefinite G, |g_ia| <= sqrt(d g_ii) for pivot d. Past the
    rank G is rounding and need not be so; divided by the ridge again and again it would grow without end. Held to that
    limit, no pivot takes more of a column than there is: diagonals only fall, and stay >= 0. Where the limit holds
    anyway, no bit changes.
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
    """B' K^+ B, the Gram matrix of the targets' part in the span of the columns."""
    norms = column_norms(K)
    values, vectors = scipy.linalg.eigh(K / np.outer(norms, norms))
    real = values > 1e-13 * max(float(values[-1]), 0.0)
    Q = (vectors[:, real] / np.sqrt(values[real])).T @ (B / norms[:, None])
    return np.asarray(Q.T @ Q)


def _below(f: float, H: Floats, q: int) -> float:
    """f less the q largest eigenvalues of H, at least 0; 0 where H is not finite."""
    return max(f - _largest(H, q), 0.0) if np.isfinite(H).all() else 0.0


def _largest(H: Floats, q: int) -> float:
    if q >= H.shape[0]:
        return float(np.trace(H))
    return float(np.maximum(np.linalg.eigvalsh(H)[H.shape[0] - q :], 0.0).sum())

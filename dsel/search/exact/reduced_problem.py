"""The eigen-reduced problem of Wan and Schweitzer (AAAI 2021, section 4), in which their heuristic values are computed.

With YY' = U_y D_y U_y' and XX' = U_x D_x U_x', zero eigenvalues dropped (eq. 8):

    W = U_x'X (r_x, n)        D_y (r_y,)        P = D_y^(1/2) U_y' U_x (r_y, r_x)

For a selection with orthonormal basis Q of its columns of W, H = D_y - (PQ)(PQ)' has the eigenvalues of the residual
targets' Y_S Y_S' (Lemma 3), and adding a column changes H by rank one (eq. 10). Everything follows from K = X'X,
B = X'Y and Y'Y; lam > 0 is lam in K's diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.objective.dense import QuadraticObjective
from dsel.objective.kernels.elimination import STEEP_RATIO
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.bounds import Problem, column_norms, few_targets
from dsel.search.exact.projection import beside
from dsel.search.exact.secular_equation import downdated

_ROUNDING = 1e-13
#: With at most this share of a column's squared norm outside U_x, U_x spans the columns.
_COMPLETE = 1e-10


@dataclass(frozen=True)
class Children:
    """What inserting each of `columns` (t,) brings: u (t,) the error, l (t,) a lower bound on what follows.

    steep: (t,) so little of the column is left beside S that l and u say nothing.
    """

    columns: Ints
    l: Floats
    u: Floats
    steep: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reduced:
    """W, D_y (descending) and P; `rest`: the part of c = ||Y||^2 outside them.

    left_out: so much of ||Y||^2 may be explained outside W, D and P. With P_T the projection on any columns T and Y_r
    the targets that W, D and P hold, ||P_T Y|| <= ||P_T Y_r|| + left_out^(1/2), and ||P_T Y_r|| is at most that of
    the columns of W; so what a truncated reduction leaves out weakens the bound and never breaks it. complete: whether
    nothing is left out, of columns and targets, so that the errors here are those of the data.

    Columns are scaled to norm 1 first, which changes no span. floor: (n,) squared residual norms at or below it are of
    dependent columns.
    """

    W: Floats
    D: Floats
    P: Floats
    rest: float
    floor: Floats
    left_out: float = 0.0
    complete: bool = True

    @classmethod
    def given(cls, W: Floats, D: Floats, P: Floats, c: float, squares: Floats) -> Reduced:
        """From a decomposition made elsewhere, of any rank, such as a randomized one of data that are not in memory
        (Halko et al., 2011). D: the squared singular values of U_y'Y, with U_y turned so that U_y'YY'U_y is diagonal;
        P = D^(1/2) U_y'U_x.

        c: ||Y||^2. squares: (n,) squared norms of the columns of X (with lam, where there is one). What the columns may
        explain of the targets outside U_y, and outside U_x where U_x does not span X, is `left_out`.
        """
        inside = np.einsum("rn,rn->n", W, W)
        whole = bool((squares - inside <= _COMPLETE * squares).all())
        outside_y = max(c - float(D.sum()), 0.0)
        outside_x = max(float(D.sum() - np.square(P).sum()), 0.0)
        left = np.sqrt(outside_y) + (0.0 if whole else np.sqrt(outside_x))
        complete = whole and left == 0.0
        norms = np.where(squares > 0.0, np.sqrt(squares), 1.0)
        W, P, rest = np.ascontiguousarray(W / norms), np.ascontiguousarray(P), max(c - float(D.sum()), 0.0)
        return cls(W, D, P, rest, np.full(W.shape[1], _ROUNDING), float(left**2), complete)

    @classmethod
    def of(cls, objective: QuadraticObjective, target_gram: Floats | None = None) -> Reduced:
        """From an objective's K and B. O(n^3 + N^3).

        target_gram: (N, N) Y'Y, for the published bound where Y is not in the span of X. Without it the part of Y in
        that span is taken (all of it where Y = X): the rest is the same for all selections, so that the bound is at
        least as sharp.
        """
        if isinstance(objective, OnDemandObjective) and objective.reduced_factor is not None:
            return cls._of_W(objective, objective.reduced_factor)
        if target_gram is None or objective.cross is None:
            return cls._made(objective, few_targets(objective), None)
        return cls._made(objective, objective.cross, np.asarray(target_gram, np.float64))

    @classmethod
    def _of_W(cls, objective: OnDemandObjective, W: Floats) -> Reduced:
        """Y = X from W and D alone: U_y = U_x, so that P = D^(1/2). O(r n)."""
        D = np.asarray(objective.through)
        kept = _ROUNDING * float(D.max(initial=0.0)) < D
        norms = np.sqrt(np.where(objective.diagonal > 0.0, objective.diagonal, 1.0))
        rest = max(objective.c - float(D[kept].sum()), 0.0)
        floor = np.maximum(objective.floor / norms**2, _ROUNDING)
        return cls(np.ascontiguousarray(W[kept] / norms), D[kept], np.diag(np.sqrt(D[kept])), rest, floor)

    @classmethod
    def _made(cls, objective: QuadraticObjective, B: Floats, T: Floats | None) -> Reduced:
        K = objective.K + objective.lam * np.eye(objective.n)
        norms = column_norms(K)
        values, V = scipy.linalg.eigh(K / np.outer(norms, norms))
        real = values > _ROUNDING * max(float(values[-1]), 0.0)
        root = np.sqrt(values[real])
        W = np.ascontiguousarray(root[:, None] * V[:, real].T)
        seen = (V[:, real] / root).T @ (B / norms[:, None])  # U_x'Y (r_x, N)
        T = T if T is not None else seen.T @ seen
        D, V_y = scipy.linalg.eigh(T)
        kept = _ROUNDING * float(D.max(initial=0.0)) < D
        D, V_y = D[kept][::-1], V_y[:, kept][:, ::-1]
        rest = max(objective.c - float(D.sum()), 0.0)
        return cls(W, D, np.ascontiguousarray(V_y.T @ seen.T), rest, np.maximum(objective.floor / norms**2, _ROUNDING))

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.W.shape[1])

    @cached_property
    def _seen(self) -> Floats:
        return np.ascontiguousarray(self.P @ self.W)

    @cached_property
    def _own(self) -> Floats:
        return np.asarray(np.einsum("rn,rn->n", self.W, self.W))

    def _below(self, explained: Floats) -> Floats:
        """Least error of selections that explain at most so much here."""
        if not self.complete:
            explained = np.square(np.sqrt(np.maximum(explained, 0.0)) + np.sqrt(self.left_out))
        below: Floats = np.maximum(self.rest + float(self.D.sum()) - explained, 0.0)
        return below

    def root(self, k: int) -> tuple[float, float]:
        """l and u of the empty selection, k columns to choose."""
        l = self._below(np.asarray(self.D[:k].sum()))
        return float(l), self.rest + float(self.D.sum())

    def children(self, S: Sequence[int], q: int, problem: Problem | None = None) -> Children:
        """All independent columns that can be added to S, q columns to choose in all (that one included).

        One eigendecomposition of the parent's H, then the secular equation for all children (section 4.3). problem: by
        whose rule columns are independent of S, which is asked where W leaves a doubt; without it W decides.
        O(s n (r_x + r_y) + r_y^3).
        """
        chosen = np.asarray(S, np.int64)
        squares, Z, Z_S = np.empty(self.n), np.empty((self.D.size, self.n)), np.empty((chosen.size, self.D.size))
        determinant = beside(self.W, self.P, self._seen, chosen, self._own, squares, Z, Z_S)
        open_ = squares > self.floor
        if problem is not None:
            # In whatever order, no pivot of S and j is below their determinant, which is not below that of W.
            highest = max(float(self.floor.max(initial=0.0)), problem.highest_floor)
            doubtful = determinant * squares <= STEEP_RATIO * highest
            doubtful[chosen] = False
            open_ = ~doubtful
            if doubtful.any():
                open_[doubtful] = problem.free(S, np.flatnonzero(doubtful))
        open_[chosen] = False
        columns = np.flatnonzero(open_)
        left, floor = squares[columns], self.floor[columns]
        Z = Z[:, columns] / np.where(left > floor, np.sqrt(np.maximum(left, floor)), np.inf)
        return self._bounded(columns, Z, Z_S, q, left <= STEEP_RATIO * floor)

    def _bounded(self, columns: Ints, Z: Floats, Z_S: Floats, q: int, steep: NDArray[np.bool_]) -> Children:
        """Theorem 4 for every child: Z (r_y, t) the directions that the columns add to Z_S (s, r_y)."""
        everything = float(self.D.sum())
        explained = float(np.square(Z_S).sum()) + np.einsum("rt,rt->t", Z, Z)
        u = np.maximum(self.rest + everything - explained, 0.0)
        after = min(q - 1, self.D.size)
        if after == self.D.size:
            explained = np.full(columns.size, everything)
        elif after > 0:
            values, V = np.linalg.eigh(np.diag(self.D) - Z_S.T @ Z_S)
            top = downdated(values[::-1].copy(), V[:, ::-1].T @ Z, after)
            explained = explained + np.maximum(top, 0.0).sum(axis=0)
        return Children(columns, self._below(explained), u, steep)

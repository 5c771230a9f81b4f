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

import numpy as np
import scipy.linalg

from dsel.objective.memory import Floats, Ints
from dsel.objective.on_demand import OnDemandObjective
from dsel.objective.quadratic import QuadraticObjective
from dsel.search.bounds import column_norms, few_targets
from dsel.search.secular import downdated

_ROUNDING = 1e-13


@dataclass(frozen=True)
class Children:
    """What inserting each of `columns` (t,) brings: u (t,) the error, l (t,) a lower bound on what follows."""

    columns: Ints
    l: Floats
    u: Floats


@dataclass(frozen=True, eq=False)
class Reduced:
    """W, D_y (descending) and P; `rest`: the part of c = ||Y||^2 outside them, which no column explains.

    Columns are scaled to norm 1 first, which changes no span. floor: (n,) squared residual norms at or below it are of
    dependent columns.
    """

    W: Floats
    D: Floats
    P: Floats
    rest: float
    floor: Floats

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
        kept = _ROUNDING * max(float(D[0]), 0.0) < D
        norms = np.sqrt(np.where(objective.diagonal > 0.0, objective.diagonal, 1.0))
        rest = max(objective.c - float(D[kept].sum()), 0.0)
        floor = np.maximum(objective.floor / norms**2, _ROUNDING)
        return cls(W[kept] / norms, D[kept], np.diag(np.sqrt(D[kept])), rest, floor)

    @classmethod
    def _made(cls, objective: QuadraticObjective, B: Floats, T: Floats | None) -> Reduced:
        K = objective.K + objective.lam * np.eye(objective.n)
        norms = column_norms(K)
        values, V = scipy.linalg.eigh(K / np.outer(norms, norms))
        real = values > _ROUNDING * max(float(values[-1]), 0.0)
        root = np.sqrt(values[real])
        W = root[:, None] * V[:, real].T
        seen = (V[:, real] / root).T @ (B / norms[:, None])  # U_x'Y (r_x, N)
        T = T if T is not None else seen.T @ seen
        D, V_y = scipy.linalg.eigh(T)
        kept = _ROUNDING * max(float(D[-1]), 0.0) < D
        D, V_y = D[kept][::-1], V_y[:, kept][:, ::-1]
        rest = max(objective.c - float(D.sum()), 0.0)
        return cls(W, D, V_y.T @ seen.T, rest, np.maximum(objective.floor / norms**2, _ROUNDING))

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.W.shape[1])

    def root(self, k: int) -> tuple[float, float]:
        """l and u of the empty selection, k columns to choose."""
        u = self.rest + float(self.D.sum())
        return u - float(self.D[:k].sum()), u

    def children(self, S: Sequence[int], q: int) -> Children:
        """All independent columns that can be added to S, q columns to choose in all (that one included).

        One eigendecomposition of the parent's H, then the secular equation for all children (section 4.3).
        """
        chosen = np.asarray(S, np.int64)
        Q = np.linalg.qr(self.W[:, chosen])[0] if chosen.size else np.zeros((self.W.shape[0], 0))
        left = self.W - Q @ (Q.T @ self.W)
        squares = np.einsum("rn,rn->n", left, left)
        free = squares > self.floor
        free[chosen] = False
        columns = np.flatnonzero(free)
        Z = self.P @ (left[:, columns] / np.sqrt(squares[columns]))
        Z_S = self.P @ Q
        parent = self.rest + float(self.D.sum()) - float(np.square(Z_S).sum())
        u = np.maximum(parent - np.einsum("rt,rt->t", Z, Z), 0.0)
        after = min(q - 1, self.D.size)
        if after == 0:
            return Children(columns, u, u)
        if after == self.D.size:
            return Children(columns, np.full(columns.size, self.rest), u)
        values, V = np.linalg.eigh(np.diag(self.D) - Z_S @ Z_S.T)
        top = downdated(values[::-1].copy(), V[:, ::-1].T @ Z, after)
        return Children(columns, np.maximum(u - np.maximum(top, 0.0).sum(axis=0), 0.0), u)

"""The eigen-reduced problem of Wan and Schweitzer (AAAI 2021, section 4), in which their bounds are computed.

With YY' = U_y D_y U_y' and XX' = U_x D_x U_x', zero eigenvalues dropped (eq. 8):

    W = U_x'X (r_x, n)        D_y (r_y,)        P = D_y^(1/2) U_y' U_x (r_y, r_x)

Let Q be an orthonormal basis of a selection's columns of W. H = D_y - (PQ)(PQ)' has the eigenvalues of the residual
targets' Y_S Y_S' (Lemma 3), and adding a column changes H by rank one (eq. 10). Everything follows from K = X'X,
B = X'Y and Y'Y. lam > 0 is added to the diagonal of K.

The nodes of best-first search are here, and their children in the search tree of the combined bound.

Compiled functions compute what a selection leaves of columns, and of the targets' part in them.

W (r_x, n), P (r_y, r_x): the eigen-reduced problem, see dsel.search.exact.astar.reduced_problem. S (s,): the selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats, Ints
from dsel.objective.few_targets import column_norms, few_targets
from dsel.objective.kernels.elimination import BORDERLINE_RATIO
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.astar.projection import project_out
from dsel.search.exact.astar.secular_equation import downdated
from dsel.search.exact.bounds import BoundProblem, factored, orthonormalised, penalized

#: Eigenvalues of D_y of at most this share of the largest, and squared residual norms of unit columns, are rounding.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Children:
    """The results of inserting each of `columns` (t,): u (t,) the error, l (t,) a lower bound on what follows.

    unreliable: (t,) whether the column is so nearly dependent on S that l and u are rounding.
    """

    columns: Ints
    l: Floats
    u: Floats
    unreliable: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """W, D_y (descending) and P of columns scaled to norm 1, which changes no span.

    rest: the part of c = ||Y||^2 outside D_y. floor: (n,) a subset in which others leave at most this of a column's
    square is dependent. lost: an upper limit of what ||Y||^2 has in directions that were dropped as rounding.
    whole_targets: D_y includes the part of Y that no column explains, as published.
    """

    W: Floats
    D: Floats
    P: Floats
    rest: float
    floor: Floats
    lost: float = 0.0
    whole_targets: bool = False

    @classmethod
    def of(
        cls, objective: Objective, target_gram: Floats | None = None, deadline: Deadline | None = None
    ) -> ReducedProblem:
        """Return the reduced problem of an objective. O(n^3 + N^3), and O(n^2 r) if K has a low rank r.

        target_gram: (N, N) Y'Y, for the published bound if Y is not in the span of X. By default, only the part of Y in
        that span is used (all of it if Y = X). The rest is the same for all selections, so the bound is at least as
        sharp. Raises OutOfTime if this would end after the deadline.
        """
        if objective.eigen_factor is not None:
            return cls._of_factor(objective, *objective.eigen_factor)
        if target_gram is None or objective.cross is None:
            B = few_targets(objective, None if deadline is None else deadline.require)
            return cls._of_gram(objective, B, None, deadline)
        return cls._of_gram(objective, objective.cross, np.asarray(target_gram, np.float64), deadline)

    @classmethod
    def _of_factor(cls, objective: Objective, W: Floats, D: Floats, P: Floats) -> ReducedProblem:
        """Return the reduced problem from W, D and P. Where Y = X, U_y = U_x, so that P = D^(1/2). O(r n)."""
        square = objective.cross is None  # D belongs to the rows of W
        kept = _ROUNDING * float(D.max(initial=0.0)) < D
        norms = np.sqrt(np.where(objective.diagonal > 0.0, objective.diagonal, 1.0))
        rest = max(objective.c - float(D[kept].sum()), 0.0)
        floor = np.maximum(objective.floor / norms**2, _ROUNDING)
        lost = float(D[~kept].sum())
        W = W[kept] if square else W
        P = P[np.ix_(kept, kept)] if square else P[kept]
        return cls(np.ascontiguousarray(W / norms), D[kept], np.ascontiguousarray(P), rest, floor, lost)

    @classmethod
    def _of_gram(cls, objective: Objective, B: Floats, T: Floats | None, deadline: Deadline | None) -> ReducedProblem:
        """Return the reduced problem of K and B (n, N). T: (N, N) Y'Y, or None for the part of Y in the span of X."""
        K = penalized(objective)
        tolerance = ridge(objective.n)
        W, UY, left = factored(K, B, 0.0, tolerance, deadline)  # in any orthonormal basis U_x of the columns
        whole = T is not None
        T = T if T is not None else UY.T @ UY
        D, V_y = scipy.linalg.eigh(T)
        kept = _ROUNDING * float(D.max(initial=0.0)) < D
        D, V_y = D[kept][::-1], V_y[:, kept][:, ::-1]
        rest = max(objective.c - float(D.sum()), 0.0)
        floor = np.maximum(objective.floor / column_norms(np.diag(K)) ** 2, _ROUNDING)
        lost = float(np.square(left).sum()) / tolerance + max(float(np.trace(T) - D.sum()), 0.0)
        return cls(W, D, np.ascontiguousarray(V_y.T @ UY.T), rest, floor, lost, whole)

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.W.shape[1])

    @property
    def rank(self) -> int:
        """Number of rows of W, 0 without W."""
        return int(self.W.shape[0])

    @cached_property
    def _PW(self) -> Floats:
        return np.ascontiguousarray(self.P @ self.W)

    @cached_property
    def _norms(self) -> Floats:
        """Squared norms of the columns of W."""
        return np.asarray(np.einsum("rn,rn->n", self.W, self.W))

    def _error(self, explained: Floats) -> Floats:
        """Return the error of selections that explain this much of D_y."""
        error: Floats = np.maximum(self.rest + float(self.D.sum()) - explained, 0.0)
        return error

    def root(self, k: int) -> tuple[float, float]:
        """Return l and u of the empty selection with k columns to choose."""
        return float(self._error(np.asarray(self.D[:k].sum()))), self.rest + float(self.D.sum())

    def bound(self, S: Sequence[int], q: int) -> float:
        """Return l of S with q columns to choose. O(s n r_x + r_y^3)."""
        Q = np.linalg.qr(self.W[:, np.asarray(S, np.int64)])[0]
        PQ = self.P @ Q
        explained = np.asarray(np.square(PQ).sum())
        if q > 0 and self.D.size:
            values = np.linalg.eigvalsh(np.diag(self.D) - PQ @ PQ.T)
            explained = explained + np.maximum(values[max(self.D.size - q, 0) :], 0.0).sum()
        found = float(self._error(explained))
        return found if np.isfinite(found) else 0.0

    def children(self, S: Sequence[int], q: int, problem: BoundProblem | None = None) -> Children:
        """Return all independent columns that can be added to S, with q columns to choose, this one included.

        One eigendecomposition of the parent's H serves all children, by the secular equation (section 4.3). problem:
        its rule decides whether a column is independent of S if W leaves a doubt; by default W decides.
        O(s n (r_x + r_y) + r_y^3).
        """
        chosen = np.asarray(S, np.int64)
        squares, Z, Z_S = np.empty(self.n), np.empty((self.D.size, self.n)), np.empty((chosen.size, self.D.size))
        determinant = project_out(self.W, self.P, self._PW, chosen, self._norms, squares, Z, Z_S)
        # The others leave each column of S and j at least their determinant, which is not below that of W.
        highest = max(float(self.floor.max(initial=0.0)), 0.0 if problem is None else problem.highest_floor)
        doubtful = determinant * squares <= BORDERLINE_RATIO * highest
        doubtful[chosen] = False
        independent = ~doubtful
        if doubtful.any():
            places = np.flatnonzero(doubtful)
            independent[places] = self._free(S, places) if problem is None else problem.free(S, places)
        independent[chosen] = False
        columns = np.flatnonzero(independent)
        left, floor = squares[columns], self.floor[columns]
        Z = Z[:, columns] / np.where(left > floor, np.sqrt(np.maximum(left, floor)), np.inf)
        return self._bounded(columns, Z, Z_S, q, left <= BORDERLINE_RATIO * floor)

    def _free(self, S: Sequence[int], R: Ints) -> NDArray[np.bool_]:
        """Return for which columns of R (t,) S is independent with them, as `BoundProblem.free`, from W."""
        Q, T = np.linalg.qr(self.W[:, np.asarray(S, np.int64)])
        within = Q.T @ self.W[:, R]
        left = np.square(self.W[:, R] - Q @ within).sum(axis=0)
        return independent_with(T.T, within, left, self.floor[np.asarray(S, np.int64)], self.floor[R])

    def _bounded(self, columns: Ints, Z: Floats, Z_S: Floats, q: int, unreliable: NDArray[np.bool_]) -> Children:
        """Return the children with l and u of Theorem 4. Z (r_y, t): directions the columns add to Z_S (s, r_y)."""
        everything = float(self.D.sum())
        explained = float(np.square(Z_S).sum()) + np.einsum("rt,rt->t", Z, Z)
        u = self._error(explained)
        after = min(q - 1, self.D.size)
        if after == self.D.size:
            explained = np.full(columns.size, everything)
        elif after > 0:
            values, V = np.linalg.eigh(np.diag(self.D) - Z_S.T @ Z_S)
            top = downdated(values[::-1].copy(), V[:, ::-1].T @ Z, after)
            explained = explained + np.maximum(top, 0.0).sum(axis=0)
        return Children(columns, self._error(explained), u, unreliable)


def independent_with(L: Floats, V: Floats, left: Floats, floor_S: Floats, floor: Floats) -> NDArray[np.bool_]:
    """Return for which columns j (t,) the subset S + j is independent, if S is.

    L (s, s): Cholesky factor of K_SS. V (s, t): L^-1 K_Sj. left (t,): what S leaves of the squares of the columns j.
    floor_S (s,), floor (t,): of S and of the columns j.
    """
    free = left > floor
    if L.shape[0]:
        inverse = scipy.linalg.solve_triangular(L, np.eye(L.shape[0]), lower=True)
        diagonal = np.square(inverse).sum(axis=0)[:, None] + np.square(inverse.T @ V) / np.where(free, left, np.inf)
        free &= (diagonal * floor_S[:, None] < 1.0).all(axis=0)
    return np.asarray(free)


_Mask = NDArray[np.bool_]

#: Eigendecompositions between two looks at the clock.
_AT_A_TIME = 256


@dataclass(slots=True)
class Node:
    """A subset with l <= f <= u for the best subset of k columns that holds it.

    allowed: in the search tree, the columns that may still be added; None in the graph. terminal: no column can be
    added, so that l = u, as for a node of k columns.
    """

    members: tuple[int, ...]
    l: float
    u: float
    allowed: tuple[int, ...] | None
    terminal: bool = False


def tree_children(problem: BoundProblem, node: Node, q: int, deadline: Deadline | None = None) -> list[Node]:
    """Return a child for each independent column that may be added, largest gain first, with its combined bound.

    A child may only add the columns after its own, so that the tree makes each subset once. q: columns to choose, the
    child's included. Raises OutOfTime at the deadline.
    """
    assert node.allowed is not None
    R = np.asarray(node.allowed, np.int64)
    if not R.size:
        return []
    G, B, f = problem.residual(node.members, R)
    independent = problem.free(node.members, R)
    unreliable = independent & (np.diag(G) <= BORDERLINE_RATIO * problem.floor[R])  # pivots may be rounding
    gain = _gains(problem, node, R, np.diag(G), B, f, independent & ~unreliable, unreliable)
    order = np.argsort(-gain, kind="stable")
    R, gain, G, B = R[order], gain[order], G[np.ix_(order, order)], B[order]
    independent, unreliable = independent[order], unreliable[order]
    lower = f - gain
    if q > 1:
        explained = _explained(problem, R, G, B, gain, q, independent & ~unreliable, deadline)
        lower = np.where(unreliable | ~np.isfinite(explained), node.l, f - explained)
    return [
        Node((*node.members, int(R[i])), max(float(lower[i]), node.l), float(f - gain[i]), tuple(R[i + 1 :].tolist()))
        for i in np.flatnonzero(independent)
    ]


def _gains(
    problem: BoundProblem, node: Node, R: Ints, d: Floats, B: Floats, f: float, reliable: _Mask, unreliable: _Mask
) -> Floats:
    """Return what each column of R (t,) with pivot d (t,) explains alone; 0 if it is dependent."""
    gain = np.where(reliable, np.square(B).sum(axis=1) / np.where(reliable, d, 1.0), 0.0)
    for x in np.flatnonzero(unreliable):
        gain[x] = f - problem.value((*node.members, int(R[x])))
    return gain


def _explained(
    problem: BoundProblem, R: Ints, G: Floats, B: Floats, gain: Floats, q: int, reliable: _Mask,
    deadline: Deadline | None,
) -> Floats:  # fmt: skip
    """Return an upper bound (t,) on what column i of R and q - 1 later columns explain together."""
    Z = orthonormalised(G, B, problem.floor[R], deadline)
    A = np.cumsum((Z[:, :, None] * Z[:, None, :])[::-1], axis=0)[::-1]
    trace: Floats = np.einsum("tii->t", A)
    after = min(q - 1, problem.N)
    if problem.N == 1 or after >= problem.N or not np.isfinite(trace).all():
        return trace
    w = B / np.sqrt(np.where(reliable, np.diag(G), 1.0))[:, None]
    explained = np.empty(R.size)
    for start in range(0, R.size, _AT_A_TIME):
        if deadline is not None:
            deadline.require()
        part = slice(start, start + _AT_A_TIME)
        values = np.linalg.eigvalsh(A[part] - w[part, :, None] * w[part, None, :])[:, problem.N - after :]
        explained[part] = np.maximum(values, 0.0).sum(axis=1)
    return np.asarray(np.minimum(trace, gain + explained))

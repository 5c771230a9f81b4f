"""The objective over groups of columns: f of the union of some groups, and what each other group would gain.

A group that is partly dependent, such as all columns of a one-hot code, counts with the columns that are independent of
those before them. Everything is NumPy: what s columns leave of the others is computed from K and B, in O(s^2 n).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.column_objective import independent_columns
from dsel.objective.few_targets import few_targets
from dsel.objective.objective_interface import ItemObjective, Objective


def items_of(objective: Objective, groups: Sequence[Ints] | None, included_size: int = 0) -> ItemObjective:
    """Return the objective over groups of columns, or that over single columns where there are no groups."""
    return objective if groups is None else GroupedObjective(objective, groups, included_size)


class GroupedObjective:
    """Error f(S) of groups S, numbered 0 to n - 1: that of all of their columns.

    Parameters
    ----------
    objective : Objective
        The objective over the columns, with the whole Gram matrix.
    groups : sequence of arrays of int
        The local columns of each group.
    included_size : int
        How many other groups are always chosen.
    """

    def __init__(self, objective: Objective, groups: Sequence[Ints], included_size: int = 0) -> None:
        self.columns_of, self.included_size = objective, included_size
        self.groups = [np.asarray(group, np.int64) for group in groups]
        self.c, self.total, self.has_gram = objective.c, objective.total, objective.has_gram
        self._last: tuple[tuple[int, ...], tuple[Floats, Floats]] | None = None

    @property
    def n(self) -> int:
        """The number of groups."""
        return len(self.groups)

    @cached_property
    def K(self) -> Floats:
        """(columns, columns) K with the penalty on its diagonal."""
        return np.asarray(self.columns_of.K + self.columns_of.lam * np.eye(self.columns_of.n))

    @cached_property
    def B(self) -> Floats:
        """(columns, r) cross-moments B with B B' = M."""
        return few_targets(self.columns_of)

    @cached_property
    def independent(self) -> list[Ints]:
        """The columns of each group without those that depend on columns of the group before them."""
        return [independent_columns(self.columns_of, group.tolist()) for group in self.groups]

    def most_columns(self, k: int) -> int:
        """Return how many columns k groups can have, those that depend on others too."""
        return int(np.sort([columns.size for columns in self.groups])[-k:].sum())

    def without_dependent(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the ascending groups: a group may have dependent columns, and stays."""
        return tuple(sorted(S))

    def rank(self, S: Iterable[int]) -> int:
        """Return how many groups of S have a column that is independent of all the other groups."""
        members = list(S)
        every = self.basis(members).size
        if every == sum(self.independent[g].size for g in members):
            return sum(self.independent[g].size > 0 for g in members)
        return sum(every > self.basis([h for h in members if h != g]).size for g in members)

    def basis(self, S: Sequence[int]) -> Ints:
        """Return the ascending columns of some groups that are independent of those before them."""
        return independent_columns(self.columns_of, [j for g in S for j in self.independent[g].tolist()])

    @cached_property
    def _batches(self) -> list[tuple[Ints, Ints]]:
        """Groups with the same number of independent columns: their numbers (b,), and their columns (b, p)."""
        sizes = np.array([columns.size for columns in self.independent])
        batches = []
        for p in np.unique(sizes[sizes > 0]).tolist():
            numbers = np.flatnonzero(sizes == p)
            batches.append((numbers, np.stack([self.independent[g] for g in numbers])))
        return batches

    def members(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the ascending columns of some groups."""
        return tuple(sorted(int(j) for g in S for j in self.groups[g]))

    def within(self, columns: Iterable[int]) -> list[int]:
        """Return the ascending groups that have a column among these."""
        chosen = set(columns)
        return [g for g, group in enumerate(self.groups) if not chosen.isdisjoint(group.tolist())]

    def subset(self, limit: int) -> GroupState:
        """Return an empty subset of at most `limit` groups that changes by one group at a time."""
        return GroupState(self, limit)

    def in_data(self, S: Iterable[int]) -> list[int]:
        """Return the columns of the data of some groups, included ones too."""
        return self.columns_of.in_data(self.members(S))

    def value(self, S: Iterable[int]) -> float:
        """Return f of some groups."""
        return self.columns_of.value(self.members(S))

    def gains(self, S: Sequence[int], *, alone: bool = False) -> Floats:
        """Return (n,) the decrease of f when each group enters; 0 for members, and for groups that depend on S.

        alone: the decrease of the squared residuals instead, if only one group is fitted to them.
        """
        basis, residual = self._residual(S)
        gains = np.zeros(self.n)
        for numbers, columns in self._batches:
            V = basis[:, columns]  # (s, b, p)
            K = self.K[columns[:, :, None], columns[:, None, :]]
            gains[numbers], rank = self._explained(K - np.einsum("sbp,sbq->bpq", V, V), residual[columns], columns)
            if alone:
                gains[numbers] = np.where(rank > 0, self._explained(K, residual[columns], columns)[0], 0.0)
        gains[list(S)] = 0.0
        return gains

    def _residual(self, S: Sequence[int]) -> tuple[Floats, Floats]:
        """Return L^-1 K_S: (s, columns) and the residual of B (columns, r) given the groups S; the last are kept."""
        last = self._last
        if last is None or last[0] != tuple(S):
            self._last = last = tuple(S), self._eliminated(S)
        return last[1]

    def _eliminated(self, S: Sequence[int]) -> tuple[Floats, Floats]:
        columns = self.basis(S)
        if not columns.size:
            return np.empty((0, self.K.shape[0])), self.B
        L = np.linalg.cholesky(self.K[np.ix_(columns, columns)])
        basis = np.asarray(scipy.linalg.solve_triangular(L, self.K[columns], lower=True))
        return basis, self.B - basis.T @ scipy.linalg.solve_triangular(L, self.B[columns], lower=True)

    def _explained(self, G: Floats, R: Floats, columns: Ints) -> tuple[Floats, Ints]:
        """Return (b,) tr(R' G^+ R) for blocks G (b, p, p) and R (b, p, r), by elimination, and the ranks."""
        G, R, floor = G.copy(), R.copy(), self.columns_of.floor[columns]
        explained, rank = np.zeros(G.shape[0]), np.zeros(G.shape[0], np.int64)
        for a in range(G.shape[1]):
            free = G[:, a, a] > floor[:, a]
            d = np.where(free, G[:, a, a], 1.0)
            explained += np.where(free, np.square(R[:, a]).sum(axis=1) / d, 0.0)
            rank += free
            u = np.where(free[:, None], G[:, :, a] / d[:, None], 0.0)
            R -= u[:, :, None] * R[:, a][:, None, :]
            G -= u[:, :, None] * G[:, a][:, None, :]
        return explained, rank


class GroupState:
    """A set S of at most `limit` groups that changes by one group at a time, as `SubsetState` for columns.

    A group that depends on the others may enter: it adds nothing to f. What S leaves is computed when it is asked for.
    """

    def __init__(self, objective: GroupedObjective, limit: int) -> None:
        self.objective, self.limit = objective, limit
        self._members: list[int] = []

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self._members)

    @property
    def members(self) -> list[int]:
        """S in order of arrival."""
        return list(self._members)

    @property
    def value(self) -> float:
        """f(S)."""
        return self.objective.value(self._members)

    def insert(self, g: int) -> bool:
        """Insert a group, and return True. Errors: OptionError."""
        if g in self._members or self.size >= self.limit:
            raise OptionError(f"Group {g} is in the subset already, or the subset holds {self.limit} groups.")
        self._members.append(g)
        return True

    def delete(self, g: int) -> None:
        """Delete a member."""
        self._members.remove(g)

    def gains(self) -> Floats:
        """Return (n,) the decrease of f when each group is inserted; 0 for members and groups that depend on S."""
        return self.objective.gains(self._members)

    def correlations(self) -> Floats:
        """Return (n,) the decrease of the squared residuals if only one group is fitted to them, as OMP compares it.

        It is 0 for members, and for groups that depend on them.
        """
        return self.objective.gains(self._members, alone=True)

    def residual_norms(self) -> Floats:
        """Return (n,) the squared norm of what S leaves of each group; 0 for members and groups that depend on S."""
        basis, _ = self.objective._residual(self._members)
        left = np.einsum("jj->j", self.objective.K) - np.square(basis).sum(axis=0)
        left[left <= self.objective.columns_of.floor] = 0.0
        norms = np.array([left[columns].sum() for columns in self.objective.independent])
        norms[self._members] = 0.0
        return norms

    def losses(self) -> Floats:
        """Return (s,) the increase of f when each member is deleted, in the order of `members`.

        If no column depends on those of other groups, this takes one factorization, otherwise one for each member.
        """
        inverse, w, own = self._fit()
        if any(own[g].size < self.objective.independent[g].size for g in self._members):
            f = self.value
            return np.array([self.objective.value([h for h in self._members if h != g]) - f for g in self._members])
        blocks = [(inverse[np.ix_(own[g], own[g])], w[own[g]]) for g in self._members]
        return np.array([float(np.vdot(w_g, np.linalg.solve(A, w_g))) if w_g.size else 0.0 for A, w_g in blocks])

    def zeroing_costs(self) -> Floats:
        """Return (s,) the increase of f if one member's coefficients become zero: tr(w_g' K_gg w_g)."""
        _, w, own = self._fit()
        columns = self.objective.basis(self._members)
        K = [self.objective.K[np.ix_(columns[own[g]], columns[own[g]])] for g in self._members]
        return np.array([float(np.vdot(w[own[g]], K_g @ w[own[g]])) for g, K_g in zip(self._members, K, strict=True)])

    def _fit(self) -> tuple[Floats, Floats, dict[int, Ints]]:
        """Return the inverse of K_SS, the coefficients (s, r), and which of these columns each member has."""
        columns = self.objective.basis(self._members)
        inverse = np.asarray(np.linalg.inv(self.objective.K[np.ix_(columns, columns)]), np.float64)
        own = {g: np.isin(columns, self.objective.independent[g]).nonzero()[0] for g in self._members}
        return inverse, inverse @ self.objective.B[columns], own

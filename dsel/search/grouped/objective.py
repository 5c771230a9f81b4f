"""The objective over groups of columns: f of the union of some groups, and what each other group would gain.

A group that is partly dependent, such as all columns of a one-hot code, counts with the columns that are independent of
those before them. Everything is NumPy: a state is computed from K and B when it is needed, in O(s^2 n) for s columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.objective.dependence import independent_columns
from dsel.search.exact.bounds import few_targets
from dsel.search.outcome import FrontPoint


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
        self.c, self.total = objective.c, objective.total

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
        """Return the groups that have a column among these."""
        chosen = set(columns)
        return [g for g, group in enumerate(self.groups) if chosen.intersection(group.tolist())]

    def in_data(self, S: Iterable[int]) -> list[int]:
        """Return the columns of the data of some groups, included ones too."""
        return self.columns_of.in_data(self.members(S))

    def value(self, S: Iterable[int]) -> float:
        """Return f of some groups."""
        return self.columns_of.value(self.members(S))

    def point(self, S: Iterable[int]) -> FrontPoint:
        """Return a point of a front: its size counts groups, its members are columns."""
        members = self.members(S)
        return FrontPoint(len(set(S)), self.columns_of.value(members), members)

    def gains(self, S: Sequence[int]) -> Floats:
        """Return (n,) the decrease of f when each group enters; 0 for members, and for groups that depend on S."""
        basis, residual = self._residual(S)
        gains = np.zeros(self.n)
        for numbers, columns in self._batches:
            V = basis[:, columns]  # (s, b, p)
            G = self._blocks(columns) - np.einsum("sbp,sbq->bpq", V, V)
            gains[numbers] = self._explained(G, residual[columns], columns)[0]
        gains[list(S)] = 0.0
        return gains

    def correlations(self, S: Sequence[int]) -> Floats:
        """Return (n,) the decrease of the squared residuals given S if only one group is fitted to them.

        It is 0 for members, and for groups that depend on them.
        """
        basis, residual = self._residual(S)
        scores = np.zeros(self.n)
        for numbers, columns in self._batches:
            V = basis[:, columns]
            G = self._blocks(columns)
            rank = self._explained(G - np.einsum("sbp,sbq->bpq", V, V), residual[columns], columns)[1]
            scores[numbers] = np.where(rank > 0, self._explained(G, residual[columns], columns)[0], 0.0)
        scores[list(S)] = 0.0
        return scores

    def _blocks(self, columns: Ints) -> Floats:
        """Return (b, p, p) the diagonal blocks of K."""
        return self.K[columns[:, :, None], columns[:, None, :]]

    def _residual(self, S: Sequence[int]) -> tuple[Floats, Floats]:
        """Return L^-1 K_S: (s, columns) and the residual of B (columns, r) given the groups S."""
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

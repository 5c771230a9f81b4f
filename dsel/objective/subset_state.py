"""One subset that changes by one column at a time, with the gains and losses of every next step."""

from __future__ import annotations

import numpy as np

from dsel._lib.kernel_loading import load_kernels
from dsel._lib.positive_definite import inverse
from dsel._lib.types import Bools, Floats
from dsel.errors import OptionError
from dsel.objective.kernels import layout
from dsel.objective.kernels import neighbour_table as table
from dsel.objective.kernels.elimination import RARE, evaluate
from dsel.objective.objective_interface import Objective


class SubsetState:
    """A subset S of at most `limit` columns of an objective (local indices).

    A step costs O(n s); the deletion of a column that nearly depends on the others costs O(n s^2).
    """

    def __init__(self, objective: Objective, limit: int) -> None:
        self.objective = objective
        self.limit = limit
        #: The tables of the compiled kernels, with S in slot 0.
        self.tables = objective.subset_tables(limit, 1)
        self.clear()

    def clear(self) -> None:
        """Make S the empty set."""
        table.clear(self.tables.P, 0)

    @property
    def size(self) -> int:
        """Number of members."""
        return int(self.tables[layout.STATUS][0, layout.SIZE])

    @property
    def members(self) -> list[int]:
        """S in order of arrival; a deletion moves the last column to the free place."""
        return [int(j) for j in self.tables[layout.S][0, : self.size]]

    @property
    def value(self) -> float:
        """f(S)."""
        return float(self.tables[layout.F][0])

    @property
    def _neighbours(self) -> Floats:
        table: Floats = self.tables[layout.NEIGHBOURS][0]
        return table

    def _outside(self) -> Bools:
        return np.asarray(self.tables[layout.POSITION][0] < 0)

    def insertable(self) -> Bools:
        """Return (n,) whether each column can be inserted: it is outside S, and S is independent with it."""
        left, floor, s = self._neighbours[layout.TOLERANCE], self.objective.floor, self.size
        free = np.asarray(self._outside() & (left > floor))
        if s == 0:
            return free
        A, members = self.tables[layout.A][0, :s, :s], self.members
        kept = 1.0 / (np.diag(A) * floor[members])  # what members keep, over their floor; a column takes a share of it
        doubtful = np.flatnonzero(free & (left * kept.min() <= self.objective.diagonal + self.objective.lam))
        if doubtful.size:
            a = A @ self.objective.rows(members)[:, doubtful]
            limits = floor[members][:, None]  # they enter before squares are taken: columns may have any scale
            after = np.diag(A)[:, None] * limits + np.square(a * np.sqrt(limits) / np.sqrt(left[doubtful]))
            free[doubtful] = (after < 1.0).all(axis=0)
        return free

    def gains(self) -> Floats:
        """Return (n,) the decrease of f when each column is inserted; 0 for members and columns that depend on S."""
        insertable = self.insertable()
        d = np.where(insertable, self._neighbours[layout.TOLERANCE], 1.0)
        return np.where(insertable, np.maximum(self._neighbours[layout.MOMENT], 0.0) / d, 0.0)

    def losses(self) -> Floats:
        """Return (s,) the increase of f when each member is deleted, in the order of `members`."""
        s = self.size
        kept, inner = np.diag(self.tables[layout.A][0, :s, :s]), self.tables[layout.G][0, :s]
        return np.asarray(
            (np.square(inner).sum(axis=1) if self.objective.few_targets else np.diag(inner[:, :s])) / kept
        )

    def correlations(self) -> Floats:
        """Return (n,) the decrease of the squared residuals if only one column is fitted to them, as OMP compares it.

        It is 0 for members and for columns that depend on them.
        """
        free = self.insertable() & (self.objective.scale > 0.0)
        scale = np.where(free, self.objective.scale, 1.0)
        return np.where(free, np.maximum(self._neighbours[layout.MOMENT], 0.0) / scale, 0.0)

    def zeroing_costs(self) -> Floats:
        """Return (s,) the increase of f if one member's coefficients become zero: |w_i|^2 (K_ii + lam)."""
        s = self.size
        norms = self.objective.rows(self.members)[np.arange(s), self.members] + self.objective.lam
        return np.asarray(self.losses() * np.diag(self.tables[layout.A][0, :s, :s]) * norms)

    def residual_norms(self) -> Floats:
        """Return (n,) the squared norm of what S leaves of each column; 0 for members and columns that depend on S."""
        return np.where(self.insertable(), self._neighbours[layout.TOLERANCE], 0.0)

    def insert(self, j: int) -> bool:
        """Insert column j; return False and do nothing if S depends on it or it on S. Errors: OptionError."""
        if not self._outside()[j]:
            raise OptionError(f"Column {j} is in the subset already.")
        if self.size >= self.limit:
            raise OptionError(f"The subset holds {self.limit} columns already, its limit.")
        self.objective.fetch_rows([int(j)], lambda: np.argsort(-self.gains(), kind="stable"))
        return bool(table.insert(self.tables.P, 0, int(j)))

    def delete(self, j: int) -> None:
        """Delete member j. Errors: OptionError."""
        if self._outside()[j]:
            raise OptionError(f"Column {j} is not in the subset.")
        i = int(self.tables[layout.POSITION][0, j])
        inexact = self.tables[layout.A][0, i, i] * self.objective.floor[j] * table.INEXACT_RATIO > 1.0
        table.delete(self.tables.P, 0, int(j))
        if inexact or not np.isfinite(self.value):  # the square of a coefficient of a tiny column may overflow
            self.refresh()

    def refresh(self) -> None:
        """Recompute the table from the objective by BLAS-3. O(n s^2)."""
        tables, S, s, obj = self.tables, self.members, self.size, self.objective
        row, K_S = tables[layout.NEIGHBOURS][0], obj.rows(S)
        tables[layout.F][0] = obj.value(S)
        A = inverse(K_S[:, S] + obj.lam * np.eye(s))
        tables[layout.A][0, :s, :s] = A = (A + A.T) / 2.0
        a = A @ K_S
        row[layout.TOLERANCE] = obj.diagonal + obj.lam - np.einsum("sn,sn->n", K_S, a)
        if obj.few_targets:
            assert obj.cross is not None
            tables[layout.G][0, :s] = w = A @ obj.cross[S]
            row[layout.RESIDUAL :] = (obj.cross - K_S.T @ w).T
            row[layout.MOMENT] = np.square(row[layout.RESIDUAL :]).sum(axis=0)
        else:
            M_S = obj.moment_rows(S)
            tables[layout.G][0, :s, :s] = A @ M_S[:, S] @ A
            change = np.einsum("sn,sn->n", a, M_S[:, S] @ a - 2.0 * M_S)
            row[layout.MOMENT] = obj.moment_diagonal + change


#: The kernels that insertions and deletions call.
INSERTION_KERNELS = (table.clear, table.insert, evaluate)
DELETION_KERNELS = (*INSERTION_KERNELS, table.delete)


def load_subset_kernels(deletes: bool = False) -> None:
    """Compile what insertions into a `SubsetState` and, if asked, deletions usually need, once on a machine."""
    load_kernels(*(DELETION_KERNELS if deletes else INSERTION_KERNELS), without=RARE)

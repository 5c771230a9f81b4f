"""One subset that grows and shrinks a column at a time, with what every next step would bring at hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.objective.kernels import layout
from dsel.objective.kernels import neighbour_table as table


class SubsetState:
    """A subset S of an objective's columns (local indices), at most `limit` of them.

    A step costs O(n s), the deletion of a column that nearly depends on the others O(n s^2).
    """

    def __init__(self, objective: Objective, limit: int, S: Iterable[int] = ()) -> None:
        self.objective = objective
        self.limit = limit
        self._memory = objective.subset_tables(limit, 1)
        table.clear(self._memory.P, 0)
        for j in S:
            if not self.insert(j):
                raise OptionError(f"Column {j} depends on the columns before it.", "Leave it out.")

    @property
    def size(self) -> int:
        """Number of members."""
        return int(self._memory[layout.STATUS][0, layout.SIZE])

    @property
    def members(self) -> list[int]:
        """S, in order of arrival (a deletion moves the last one to the place that became free)."""
        return [int(j) for j in self._memory[layout.S][0, : self.size]]

    @property
    def value(self) -> float:
        """f(S)."""
        return float(self._memory[layout.F][0])

    def _outside(self) -> NDArray[np.bool_]:
        return np.asarray(self._memory[layout.POSITION][0] < 0)

    def free(self) -> NDArray[np.bool_]:
        """(n,) which columns could be inserted: outside S and independent of it."""
        return np.asarray(
            self._outside() & (self._memory[layout.NEIGHBOURS][0, layout.TOLERANCE] > self.objective.floor)
        )

    def gains(self) -> Floats:
        """(n,) decrease of f when each column is inserted; 0 for members and for columns that depend on S."""
        free = self.free()
        d = np.where(free, self._memory[layout.NEIGHBOURS][0, layout.TOLERANCE], 1.0)
        return np.where(free, np.maximum(self._memory[layout.NEIGHBOURS][0, layout.MOMENT], 0.0) / d, 0.0)

    def losses(self) -> Floats:
        """(s,) increase of f when each member is deleted, in the order of `members`."""
        return np.asarray([table.member_loss(self._memory.P, 0, i) for i in range(self.size)])

    def residual_moments(self) -> Floats:
        """(n,) what column j sees of the targets' residuals, not divided by its tolerance (OMP's criterion)."""
        return np.where(self._outside(), np.maximum(self._memory[layout.NEIGHBOURS][0, layout.MOMENT], 0.0), 0.0)

    def insert(self, j: int) -> bool:
        """Insert column j; False, and nothing changes, where it depends on S."""
        if not self._outside()[j]:
            raise OptionError(f"Column {j} is in the subset already.")
        if self.size >= self.limit:
            raise OptionError(f"The subset holds {self.limit} columns already, its limit.")
        self.objective.fetch_rows([int(j)], lambda: np.argsort(-self.gains(), kind="stable"))
        return bool(table.insert(self._memory.P, 0, int(j)))

    def delete(self, j: int) -> None:
        """Delete member j."""
        if self._outside()[j]:
            raise OptionError(f"Column {j} is not in the subset.")
        i = int(self._memory[layout.POSITION][0, j])
        steep = self._memory[layout.A][0, i, i] * self.objective.floor[j] * table.STEEP > 1.0
        table.delete(self._memory.P, 0, int(j))
        if steep:
            self._refresh()

    def _refresh(self) -> None:
        """Compute the table from the objective by BLAS-3, independently of earlier steps. O(n s^2)."""
        memory, S, s, obj = self._memory, self.members, self.size, self.objective
        row, K_S = memory[layout.NEIGHBOURS][0], obj.rows(S)
        memory[layout.F][0] = obj.value(S)
        A = np.linalg.inv(K_S[:, S] + obj.lam * np.eye(s))
        memory[layout.A][0, :s, :s] = A = (A + A.T) / 2.0
        a = A @ K_S
        row[layout.TOLERANCE] = obj.diagonal + obj.lam - np.einsum("sn,sn->n", K_S, a)
        if obj.few_targets:
            assert obj.cross is not None
            memory[layout.G][0, :s] = w = A @ obj.cross[S]
            row[layout.RESIDUAL :] = (obj.cross - K_S.T @ w).T
            row[layout.MOMENT] = np.square(row[layout.RESIDUAL :]).sum(axis=0)
        else:
            M_S = obj.moment_rows(S)
            memory[layout.G][0, :s, :s] = A @ M_S[:, S] @ A
            seen = np.einsum("sn,sn->n", a, M_S[:, S] @ a - 2.0 * M_S)
            row[layout.MOMENT] = obj.moment_diagonal + seen

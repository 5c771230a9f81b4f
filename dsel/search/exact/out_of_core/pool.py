"""The columns of wide data that are in memory, and products of all columns with combinations of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats, Ints
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective

#: The largest number of bytes of columns in memory, and of columns.
_BYTES, _MOST = 1 << 30, 4096
#: The rows of a Gram matrix in memory are not known.
_ROWS_UNKNOWN = 400


class ColumnPool:
    """Some columns and their Gram matrix, scaled to norm 1 before included columns were removed.

    columns: (p,) local indices of the columns, in the order in which they came. gram (p, p), cross (p,): their products
    with each other and with the target. norms (n,): of all columns, by which they are divided. passes: over the data
    so far. batches: how many columns came at a time.
    """

    def __init__(self, objective: Objective) -> None:
        assert objective.cross is not None
        self._objective = objective
        norms = np.sqrt(np.maximum(objective.scale - objective.lam, 0.0))
        self.norms = np.where(norms > 0.0, norms, np.inf)
        self.all_cross: Floats = objective.cross[:, 0] / self.norms
        self.columns: Ints = np.empty(0, np.int64)
        self.place: Ints = np.full(objective.n, -1, np.int64)
        self.gram: Floats = np.empty((0, 0))
        self.passes = 0
        self.batches: list[int] = []
        rows = min(objective.n, _ROWS_UNKNOWN)
        if isinstance(objective, OnDemandObjective):
            rows = objective.factor.shape[0]
            self._data: Floats = np.empty((rows, 0))
        #: Rows of the data, or a guess.
        self.rows = rows
        self.limit = min(_MOST, max(_BYTES // (8 * rows), 64), objective.n)
        #: Rounding of a product of two columns of norm 1.
        self.rounding = ridge(max(rows, objective.n if objective.has_gram else 0) + self.limit)

    @property
    def cross(self) -> Floats:
        """(p,) products of the columns with the target."""
        return self.all_cross[self.columns]

    def add(self, columns: Ints) -> None:
        """Read columns that are not in the pool yet."""
        new = np.unique(columns[self.place[columns] < 0])
        if new.size:
            self.add_in_order(new)

    def add_in_order(self, new: Ints, batches: Sequence[int] = ()) -> None:
        """Read different columns that are not in the pool yet, and keep their order.

        batches: how many at a time their products are computed; all by default. The last bits depend on that.
        """
        objective = self._objective
        if isinstance(objective, OnDemandObjective):
            self._data = np.hstack([self._data, objective.data_columns(new)])
        for part in np.split(new, np.cumsum(batches)[:-1]) if batches else [new]:
            self._multiply(part)

    def _multiply(self, new: Ints) -> None:
        """Add the products of columns whose data have been read."""
        objective, everything, p = self._objective, np.concatenate([self.columns, new]), self.columns.size
        if isinstance(objective, OnDemandObjective):
            data = np.ascontiguousarray(self._data[:, : everything.size])
            block = objective.gram_block(everything, new, data, data[:, p:])
        else:
            block = objective.K[np.ix_(everything, new)]
        block = block / np.outer(self.norms[everything], self.norms[new])
        gram = np.empty((everything.size, everything.size))
        gram[:p, :p], gram[:, p:], gram[p:, :p] = self.gram, block, block[:p].T
        self.place[new] = np.arange(p, everything.size)
        self.gram, self.columns = gram, everything
        self.batches.append(int(new.size))

    def enter(self, columns: Ints) -> int:
        """Add as many of these columns as there is room for, and return how many."""
        columns = columns[: max(self.limit - self.columns.size, 0)]
        self.add(columns)
        return int(columns.size)

    def combinations(self, b: Floats) -> Floats:
        """Return (c, n) the products of all columns with the combinations b (p, c) of those in the pool.

        One pass, unless K is in memory.
        """
        weights = b / self.norms[self.columns, None]
        used = np.flatnonzero(weights.any(axis=1))
        objective, S = self._objective, self.columns[used]
        if isinstance(objective, OnDemandObjective):
            self.passes += 1
            found = objective.gram_combinations(S, self._data[:, used], weights[used])
        else:
            found = weights[used].T @ objective.K[S]
        return np.asarray(found / self.norms)

    def objective_of(self, columns: Ints) -> DenseObjective:
        """Return the objective over some columns of the pool."""
        objective, at = self._objective, self.place[columns]
        assert objective.cross is not None
        norms = np.where(np.isfinite(self.norms[columns]), self.norms[columns], 0.0)
        K = self.gram[np.ix_(at, at)] * np.outer(norms, norms)
        return DenseObjective(
            K=K, cross=objective.cross[columns], c=objective.c, lam=objective.lam, columns=objective.columns[columns],
            included=objective.included, scale=objective.scale[columns], total=objective.total,
        )  # fmt: skip

"""A pass for proofs by a loss: the products of all scaled columns with many dual vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.data.blocks import dense_rows
from dsel.data.dataset import Dataset
from dsel.passes.columns.column_blocks import Arguments, Cell, ColumnBlocks, ColumnPass
from dsel.passes.data_pass import PassCost
from dsel.passes.loss_data import LossData, read_columns, read_pass

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LossColumns:
    """The scaled columns of the data of a loss.

    Parameters
    ----------
    data : LossData
        The loss and the data.
    allowed : (n,) array of bool
        The columns that may be chosen.
    copy : Dataset, optional
        The same data with a copy of X by columns, of which `read` reads few columns without the others.
    """

    data: LossData
    allowed: Bools
    copy: Dataset | None = None

    @cached_property
    def _blocks(self) -> ColumnBlocks:
        return ColumnBlocks(self.data.dataset)

    def products(self, duals: Floats, errors: Floats) -> Floats:
        """Return the most that the size of each product can be, rounding included. One pass over the data.

        Parameters
        ----------
        duals : (m, b) array
            The dual vectors.
        errors : (b,) array
            By how much each of them may be wrong, as a norm.

        Returns
        -------
        (n, b) array
            |z_j'a| for each scaled column z_j and each dual vector a.
        """
        scaling, dataset = self.data.scaling, self.data.dataset
        fill = np.zeros(dataset.n) if self.data.fill is None else self.data.fill
        whole = ColumnPass(
            "products with dual vectors", self._blocks, _cell_products, np.add, _stack, 2 * duals.shape[1],
            8 * dataset.n * (duals.shape[1] + 1),
        )  # fmt: skip
        found = whole.run(
            self.data.engine, per_column=np.stack([scaling.center_x, scaling.scale_x, fill]),
            shared=(np.ascontiguousarray(duals), self.data.fill is not None),
        )  # fmt: skip
        lengths = (dataset.m + 8.0) * _EPS * np.linalg.norm(duals, axis=0) + errors
        rounding = np.outer(np.sqrt(found[:, -1]), lengths)
        return np.asarray(np.abs(found[:, :-1]) + (1.0 + 1e-12) * rounding)

    def reads(self, dataset: Dataset) -> list[PassCost]:
        """Return what a proof typically reads of a dataset besides its passes: a few columns, four times."""
        columns = np.arange(0, dataset.n, 30)
        return [read_pass(dataset, columns).cost()] * 4

    def read(self, columns: Ints) -> Floats:
        """Return (m, s) some ascending columns, scaled. The read of all that may be chosen is a pass over the data."""
        scaling, whole = self.data.scaling, columns.size == np.count_nonzero(self.allowed)
        X = read_columns(self.copy or self.data.dataset, columns, self.data.fill, self.data.engine, whole=whole)
        return np.asarray((X - scaling.center_x[columns]) / scaling.scale_x[columns])


def _cell_products(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    """Return (w, b + 1) the products of the columns of a cell with the dual vectors, and their squared norms."""
    center, scale, fill = arguments.columns
    duals, filled = arguments.shared
    z = dense_rows(x, 0, x.shape[0], fill if filled else None)
    z = (z - center) / scale
    return np.column_stack([z.T @ duals[cell.start : cell.stop], np.einsum("ij,ij->j", z, z)])


def _stack(parts: list[Floats]) -> Floats:
    return np.concatenate(parts)

"""The values of new rows in the dtypes of a store, which must hold them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_matrix

from dsel._lib.text import FIRST_ROW
from dsel.data.formats.source import Array, lost
from dsel.errors import DataError

_SPARSE: Final = "the sparse X"


def kept_dtype(found: np.dtype[Any], wanted: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of new values: that of the store if it may not hold all values of `found`, else `found`."""
    return found if np.can_cast(found, wanted, "safe") else wanted


@dataclass(frozen=True)
class ExactValues:
    """Converts the values of a source to the dtypes of a store.

    Parameters
    ----------
    source, store : str
        What messages call both.
    counting : str
        What messages say about the numbers of rows.
    """

    source: str
    store: str
    counting: str = FIRST_ROW

    def of(self, values: Array, dtype: np.dtype[Any], part: str, labels: Sequence[str], first_row: int) -> Array:
        """Return values, shape (rows, columns), in a dtype. Raises DataError that names the first one it does not hold.

        part: what the values are, such as X. labels: the names of the columns.
        """
        if values.dtype == dtype:
            return values
        is_lost = lost(values, dtype, exact=True)
        if is_lost is not None:
            row, column = np.argwhere(is_lost)[0].tolist()
            raise self._error(values[row, column], dtype, part, first_row + row, labels[column])
        return values.astype(dtype)

    def of_sparse(self, rows: csr_matrix, dtype: np.dtype[Any], labels: Sequence[str], first_row: int) -> Array:
        """Return the values of rows of a sparse X in a dtype, with the errors of `of`."""
        is_lost = lost(rows.data, dtype, exact=True)
        if is_lost is not None:
            first = int(is_lost.argmax())
            row = int(np.searchsorted(rows.indptr, first, side="right")) - 1
            raise self._error(rows.data[first], dtype, _SPARSE, first_row + row, labels[rows.indices[first]])
        return np.asarray(rows.data.astype(dtype, copy=False))

    def _error(self, value: Any, dtype: np.dtype[Any], part: str, row: int, label: str) -> DataError:
        is_missing = bool(np.isnan(value))
        column = f", column {label!r}," if label else ""
        return DataError(
            f"{self.source} does not fit {self.store}: the value in row {row}{column} is "
            f"{'missing' if is_missing else value}, and {dtype}, the dtype of {part} in the store, does not hold it "
            f"({self.counting}).",
            _remedy(value.dtype, dtype, part, is_missing),
        )


def _remedy(found: np.dtype[Any], wanted: np.dtype[Any], part: str, is_missing: bool) -> str:
    if is_missing and part != _SPARSE:  # no option leaves rows of a sparse X out
        return 'Fill it in, or give missing="rows", which leaves such rows out.'
    if part in ("X", _SPARSE) and wanted.kind == "f":
        return f'Give dtype="{wanted}", which rounds the values.'
    if part in ("X", _SPARSE):
        return f'Correct the value, or ingest the old rows again with dtype="{found}", and append to that store.'
    how = f"Write the column as {wanted}" if wanted.kind == "f" else "Correct the value"
    return f"{how}, or ingest the old rows again with {found} in that column, and append to that store."

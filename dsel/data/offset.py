"""Offsets of the linear predictor: one known number for each row, such as the logarithm of an exposure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import suggest
from dsel.data.blocks import StoredRows
from dsel.data.dataset import Dataset
from dsel.data.formats.annotated import is_annotated
from dsel.data.frames import (
    collected,
    columns_of,
    frame_labels,
    is_series,
    label_of,
    named_in,
    require_no_target,
    split_targets,
)
from dsel.data.labels import is_a
from dsel.data.schema import METADATA_FILE
from dsel.data.store.array import StoredArray
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.data.weights import OR_A_LABEL, stored_variable
from dsel.errors import DataError, OptionError

#: Stands in a request for an option that was data in memory; a colon and a name may follow.
IN_MEMORY = "data in memory"


def split_offset(X: Any, offset: Any, Y: Any = None) -> tuple[Any, Any]:
    """Return X without the column that `offset` names, and this column. Others are returned as they are.

    It is a column of a frame or of obs of AnnData, or a variable of an xarray Dataset. A whole number is a label where
    whole numbers name all columns of the frame, and it is one of them. Errors: DataError for a name that does not
    exist; OptionError if Y names it, too.
    """
    offset = label_of(X, offset)
    if not isinstance(offset, str):
        return X, offset
    require_no_target(offset, named_in(X, Y), "offset")
    X = collected(X)
    if is_a(X, "xarray", "Dataset"):
        if offset not in X:
            raise DataError(f"X has no variable {offset!r} for offset.", suggest(offset, [*map(str, X)], listed=8))
        return X.drop_vars(offset), X[offset]
    if is_annotated(X):
        return X, columns_of(X.obs, offset, "obs of the AnnData object")
    return split_targets(X, offset) if frame_labels(X) is not None else (X, offset)


def with_name(recorded: Any, offset: Any) -> Any:
    """Return what a request records of an offset; that of a column in memory has the name of the column."""
    named = is_series(offset) or is_a(offset, "xarray", "DataArray")
    return f"{recorded}: {offset.name}" if named and offset.name else recorded


def in_memory(recorded: Any) -> bool:
    """Return whether a recorded option was data in memory, perhaps with the name of a column."""
    return isinstance(recorded, str) and recorded.partition(": ")[0] == IN_MEMORY


def name_of(recorded: str) -> str:
    """Return the name of a recorded column in memory; empty if it had none."""
    return recorded.partition(": ")[2]


def unnamed(offset: str) -> OptionError:
    """Return the error for the name of an offset where the data have no names."""
    return OptionError(
        f"offset is {offset!r}. A name is of a column of a frame, or of a variable of a store.",
        "For other data in memory it is one number for each row.",
    )


def names_target(dataset: Dataset, offset: Any) -> bool:
    """Return whether an offset is the name of a target of a store, and of no other variable over its samples."""
    store = dataset.store
    if not isinstance(offset, str) or not isinstance(store, Store) or offset not in store.targets:
        return False
    return not (store.path / offset / METADATA_FILE).is_file()


def with_offset(dataset: Dataset, offset: Any) -> Dataset:
    """Return the dataset with an offset for each row: an array, or the name of a variable or a target of a store.

    Labelled values come in the order of the rows, as Y does. Errors: OptionError for a name without a store; DataError
    for other labels than those of X, for a wrong shape, and for values that are not finite.
    """
    if isinstance(offset, str):
        if dataset.store is None:
            raise unnamed(offset)
        stored, first = _stored(dataset, dataset.store, offset), dataset.first_row
        _require_numbers(np.asarray(stored.read(first, first + dataset.m)), dataset.m, f"{offset} of {dataset.name}")
        blocks = [replace(b, offset=StoredRows(stored, first + b.start, first + b.stop)) for b in dataset.blocks]
        return replace(dataset, blocks=tuple(blocks))
    offset = dataset.in_order(offset, "offset")
    values = np.asarray(offset.compute() if hasattr(offset, "compute") else offset)
    values = values[:, 0] if values.shape == (dataset.m, 1) else values
    _require_numbers(values, dataset.m, "offset")
    values = values.astype(np.float64)
    return replace(dataset, blocks=tuple(replace(b, offset=values[b.start : b.stop]) for b in dataset.blocks))


def _stored(dataset: Dataset, store: Store | SparseStore, name: str) -> StoredArray:
    """Return the offset of a store by its name. Errors: DataError where there is none."""
    if isinstance(store, Store) and store.y is not None and names_target(dataset, name):
        return store.y.column(store.targets.tolist().index(name))
    return stored_variable(store, name, "offset", "offsets")


def _require_numbers(values: NDArray[Any], m: int, what: str) -> None:
    if values.shape != (m,) or values.dtype.kind not in "fiub":
        raise DataError(
            f"{what} has shape {values.shape} and dtype {values.dtype}, and X has {m} rows.",
            f"An offset is one number for each row{OR_A_LABEL if values.ndim == 0 else ''}.",
        )
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise DataError(f"{what} is not finite in {wrong.size} rows, first in row {wrong[0]}.", "Correct the offset.")

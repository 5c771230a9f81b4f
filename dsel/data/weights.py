"""Weights of the samples, checked before they are used.

With weights w every sum over the rows becomes sum_i w_i (...). A row of weight 2 counts as two equal rows, a row of
weight 0 not at all. Weights are not normalized. So with a ridge penalty their scale matters, as the row count does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, shorten
from dsel._lib.types import Floats
from dsel.data import schema
from dsel.data.schema import bounds
from dsel.data.store.array import StoredArray, open_array
from dsel.data.store.reader import Store
from dsel.data.store.segments import visible_rows
from dsel.data.store.sparse import SparseStore
from dsel.errors import DataError, OptionError
from dsel.storage.paths import as_path, list_names

#: Stored weights are checked in pieces of this many rows.
_ROWS = 1 << 20
#: The largest weight is at most this, and at least its inverse: squares of data have to stay in float64's range.
_LARGEST: Final = 1e100

#: What errors say where a store lacks a variable.
ADD_VARIABLE: Final = 'add it as in "Add a variable over the samples" on the page "Bring in your data"'
#: What errors say where one number was given for all rows.
OR_A_LABEL: Final = ", or the label of a column of a frame. A number is a label where numbers name all columns"


@dataclass(frozen=True)
class Weights:
    """The weights of all samples, shape (m,), the name of their variable, and how many of them are not 0."""

    name: str
    values: StoredArray | Floats
    positive: int

    def window(self, start: int, stop: int) -> Weights:
        """Return the same weights, of which only those of the rows [start, stop) of a store count."""
        assert isinstance(self.values, StoredArray)
        pieces = pairwise(bounds(stop - start, _ROWS))
        found = (self.values.read(start + a, start + b) for a, b in pieces)
        return replace(self, positive=sum(int(np.count_nonzero(w)) for w in found))

    @property
    def itemsize(self) -> int:
        """Bytes per weight."""
        if isinstance(self.values, StoredArray):
            return int(open_array(self.values.path, self.values.variable).array.dtype.itemsize)
        return 8


def store_weights(store: Store | SparseStore, asked: Any) -> Weights | None:
    """Return the weights of a store; None if there are none.

    `asked` is None for the variable `weight` if there is one, False for none, or the name of a variable. In a sparse
    store it is the name of a column of obs. Raises OptionError for any other value, DataError if the variable does not
    exist or is not one number >= 0 per sample. Reads the weights once.
    """
    name = weight_variable(asked, has_default=store.has_weight)
    if name is None:
        return None
    return _checked(stored_variable(store, name, "sample_weight", "weights"), store.shape[0])


def stored_variable(store: Store | SparseStore, name: str, option: str, what: str) -> StoredArray:
    """Return a variable of a store over its samples. Errors: DataError naming the option where there is none."""
    if isinstance(store, SparseStore):
        return store.column(name, option)
    if not (store.path / name / schema.METADATA_FILE).is_file():
        found = [part for part in sorted(list_names(store.path)) if _is_over_samples(store, part)]
        raise DataError(
            f"{store.path} has no variable {name} of {what}; of numbers over its samples it has "
            f"{shorten(found) or 'none'}.",
            f"Name such a variable with {option}, or {ADD_VARIABLE}.",
        )
    return StoredArray(str(store.path), name)


def _is_over_samples(store: Store, name: str) -> bool:
    """Return whether a store has a variable of this name with a number for each sample."""
    if not (store.path / name / schema.METADATA_FILE).is_file():
        return False
    array = open_array(str(store.path), name).array
    return (
        array.ndim == 1 and array.shape[0] >= store.shape[0] and schema.stored_dtype(np.dtype(array.dtype)) is not None
    )


def weight_variable(asked: Any, *, has_default: bool) -> str | None:
    """Return the name of the variable with the weights, or None for no weights."""
    if asked is None:
        return schema.WEIGHT if has_default else None
    if asked is False:
        return None
    if not isinstance(asked, str) or not asked or "/" in asked.strip("/"):
        shown = repr(asked) if isinstance(asked, str | int | float) else f"a {type(asked).__name__}"
        raise OptionError(
            f"sample_weight is {shown}.",
            "For a store it is the name of a variable over the samples, or False for none.",
        )
    return asked


def _checked(array: StoredArray, m: int) -> Weights:
    where = f"{array.variable} of {array.path}"
    handle = open_array(array.path, array.variable).array
    appended = len(handle.shape) == 1 and handle.shape[0] > m and visible_rows(as_path(array.path)) == m
    if (handle.shape != (m,) and not appended) or schema.stored_dtype(np.dtype(handle.dtype)) is None:
        raise DataError(
            f"{where} has shape {handle.shape} and dtype {handle.dtype}, and X has {m} rows.",
            "Weights are one number for each sample.",
        )
    edges = bounds(m, max(handle.chunks[0], _ROWS))
    positive = _require_valid(((a, array.read(a, b)) for a, b in pairwise(edges)), where)
    return Weights(array.variable.rsplit("/", 1)[-1], array, positive)


def array_weights(asked: Any, m: int) -> Weights:
    """Return weights that are in memory. Raises OptionError and DataError."""
    if isinstance(asked, str | bool):
        raise OptionError(f"sample_weight is {asked!r}.", "For data in memory it is one number for each row.")
    try:
        values = np.asarray(asked.compute() if hasattr(asked, "compute") else asked)
    except ValueError as error:
        raise DataError(f"sample_weight cannot be an array: {error}.", "Give one number for each row.") from error
    if values.shape == (m, 1):
        values = values[:, 0]
    if values.shape != (m,) or values.dtype.kind not in "fiub":
        raise DataError(
            f"sample_weight has shape {values.shape} and dtype {values.dtype}, and X has {m} rows.",
            f"Weights are one number for each sample{OR_A_LABEL if values.ndim == 0 else ''}.",
        )
    found = np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
    return Weights("sample_weight", found, _require_valid([(0, found)], "sample_weight"))


def as_weights(values: Sequence[float] | NDArray[Any]) -> Floats | None:
    """Return the weights of a block as float64, or None if all are 1: such a block is summed without weights."""
    found = np.asarray(values, np.float64)
    return None if (found == 1.0).all() else found


def _require_valid(pieces: Iterable[tuple[int, NDArray[Any]]], where: str) -> int:
    """Return how many weights are not 0. Pieces: first row and weights.

    Errors: DataError unless all weights are finite and >= 0, and one is > 0.
    """
    total, largest, positive = 0.0, 0.0, 0
    for first, piece in pieces:
        w = np.asarray(piece, np.float64)
        for wrong, kind in ((np.isnan(w), "NaN"), (np.isinf(w), "infinite"), (w < 0.0, "negative")):
            if wrong.any():
                rows = np.flatnonzero(wrong) + first
                shown = shorten(map(str, rows.tolist()))
                raise DataError(
                    f"{where} has {kind} values: {rows.size}, in row{'s' if rows.size > 1 else ''} {shown} "
                    f"({FIRST_ROW}).",
                    "Weights are finite numbers >= 0.",
                )
        total, largest = total + float(w.sum()), max(largest, float(w.max(initial=0.0)))
        positive += int(np.count_nonzero(w))
    if not total > 0.0:
        raise DataError(f"{where}: the weights add up to 0.", "At least one must be > 0.")
    if not 1.0 / _LARGEST <= largest <= _LARGEST:
        raise DataError(
            f"{where}: the largest weight is {largest:g}, and products with it leave float64's range.",
            f"Multiply the weights by a constant, so that the largest is between {1.0 / _LARGEST:g} and {_LARGEST:g}.",
        )
    return positive

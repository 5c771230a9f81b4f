"""Weights of the samples: how much each row counts, checked before anything is read with them.

Under weights w every sum over rows becomes sum_i w_i (...): a row of weight 2 is that row twice, one of weight 0 is not
there. Weights are not normalised, so with a ridge penalty their scale matters as the number of rows does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.data import schema as names
from dsel.data.chunking import bounds
from dsel.data.store.array import StoredArray, open_array
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.errors import DataError, OptionError
from dsel.storage.paths import list_names

#: Stored weights are looked through so many rows at a time.
_ROWS = 1 << 20


@dataclass(frozen=True)
class Weights:
    """(m,) weights by the name they have in the store, or in memory: `of` gives those of some rows, or their place."""

    name: str
    values: StoredArray | Floats

    @property
    def itemsize(self) -> int:
        """Bytes a weight."""
        if isinstance(self.values, StoredArray):
            return int(open_array(self.values.path, self.values.variable).array.dtype.itemsize)
        return 8


def find_weights(store: Store | SparseStore, asked: Any) -> Weights | None:
    """The weights of a store: by default its variable `weight` if it has one, none for False, else the variable named
    (of a sparse store always a column of obs that is named).

    Errors: OptionError for what is neither; DataError for a variable that is not there, is not one number a sample, or
    holds what cannot be a weight. Cost: reads them once.
    """
    name = named(asked, store.has_weight)
    if name is None:
        return None
    if isinstance(store, SparseStore):
        return stored_weights(store.column(name, "sample_weight"), store.shape[0])
    array = StoredArray(str(store.path), name)
    if not (store.path / name / names.METADATA_FILE).is_file():
        found = sorted(part for part in list_names(store.path) if (store.path / part / names.METADATA_FILE).is_file())
        raise DataError(
            f"{store.path} has no variable {name} of weights; it has {names.shorten(found)}.",
            "Name one of them with sample_weight, or leave it out.",
        )
    return stored_weights(array, store.shape[0])


def named(asked: Any, by_convention: bool) -> str | None:
    """The name of the variable asked for."""
    if asked is None:
        return names.WEIGHT if by_convention else None
    if asked is False:
        return None
    if not isinstance(asked, str) or not asked or "/" in asked.strip("/"):
        raise OptionError(
            f"sample_weight is {_shown(asked)}.",
            "For a store it is the name of a variable over its samples, or False for none.",
        )
    return asked


def stored_weights(array: StoredArray, m: int) -> Weights:
    """Weights that are a stored array of one dimension, checked."""
    where = f"{array.variable} of {array.path}"
    handle = open_array(array.path, array.variable).array
    if handle.shape != (m,) or names.stored_dtype(np.dtype(handle.dtype)) is None:
        raise DataError(
            f"{where} has shape {handle.shape} and dtype {handle.dtype}, and X has {m} rows.",
            "Weights are one number for each sample.",
        )
    step = max(handle.chunks[0], _ROWS)
    edges = bounds(m, step)
    _check(((a, array.read(a, b)) for a, b in pairwise(edges)), where)
    return Weights(array.variable.rsplit("/", 1)[-1], array)


def given_weights(asked: Any, m: int) -> Weights:
    """Weights from memory, checked. Errors: OptionError, DataError."""
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
            "Weights are one number for each sample.",
        )
    found = np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
    _check([(0, found)], "sample_weight")
    return Weights("sample_weight", found)


def as_weights(values: Sequence[float] | NDArray[Any]) -> Floats | None:
    """Weights of a block as float64; None where all are 1, so that such a block is summed as one without weights."""
    found = np.asarray(values, np.float64)
    return None if (found == 1.0).all() else found


def _check(pieces: Iterable[tuple[int, NDArray[Any]]], where: str) -> None:
    total = 0.0
    for first, piece in pieces:
        w = np.asarray(piece, np.float64)
        for wrong, kind in ((np.isnan(w), "NaN"), (np.isinf(w), "infinite"), (w < 0.0, "negative")):
            if wrong.any():
                rows = np.flatnonzero(wrong) + first
                shown = names.shorten(map(str, rows[:6].tolist()))
                raise DataError(
                    f"{where} has {kind} values: {rows.size} in rows {first} to {first + w.size}, the first in row "
                    f"{rows[0]} (rows {shown}).",
                    "Weights are finite numbers >= 0.",
                )
        total += float(w.sum())
    if not 0.0 < total < np.inf:
        raise DataError(f"{where}: the weights add up to {total:g}.", "At least one must be > 0, in float64's range.")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"

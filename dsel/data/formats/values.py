"""Values of a source: which dtype they are stored in, and their conversion without silent loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel.data.formats.base import Array
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, OptionError

EXACT_INTEGERS: Final = 2.0**53  # a larger float64 may be a rounded integer


def wanted_dtype(dtype: str | None, found: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype in which values of dtype `found` are stored: the option `dtype` if given, else the same.

    Raises OptionError if the option is no numeric dtype, DataError if `found` cannot be stored.
    """
    if dtype is not None:
        try:
            asked = stored_dtype(np.dtype(dtype))
        except TypeError:
            asked = None
        if asked is None:
            raise OptionError(f"dtype={dtype!r} is not a numeric dtype.", "Use float32, float64, int8, ... .")
        require_real(found, where)
        return asked
    require_real(found, where)
    kept = stored_dtype(found)
    if kept is None:
        raise DataError(f"{where} has dtype {found}, which Zarr cannot store.", 'Give dtype="float64".')
    return kept


def require_real(dtype: np.dtype[Any], where: str) -> None:
    """Raise DataError unless `dtype` holds real numbers; extended precision counts, since it can be converted."""
    if dtype.kind in "biuf":
        return
    if dtype.kind == "c":
        raise DataError(f"{where} has complex values ({dtype}).", "Store real and imaginary parts as columns.")
    kind = "Python objects" if dtype.kind == "O" else "values that are not numbers"
    raise DataError(f"{where} has dtype {dtype}: {kind}.", "Encode them as numbers and save the array again.")


def put(out: Array, values: Array, source: str, first_row: int, columns: Sequence[str] | None = None) -> None:
    """Assign `values` to `out`, converting the dtype, and refuse a value that `out` cannot hold.

    Rounding of floats is accepted. Overflow to infinity is not, nor any change of an integer.

    Parameters
    ----------
    out, values : ndarray, shape (r, c)
        Where to write, and what.
    source : str
        What messages call the file.
    first_row : int
        The row of the source at which `values` begins.
    columns : sequence of str, optional
        The names of the columns, for messages.

    Raises
    ------
    DataError
        If a value does not fit; it names the first one, its row and its column.
    """
    with np.errstate(all="ignore"):
        out[...] = values.astype(out.dtype, copy=False)
    is_lost = lost(values, out.dtype)
    if is_lost is not None:
        row, column = (int(i) for i in np.argwhere(is_lost)[0])
        name = repr(columns[column]) if columns is not None else str(column)
        raise DataError(
            f"{source}: row {first_row + row}, column {name}: the value {values[row, column]} does not fit "
            f"{out.dtype} ({int(is_lost.sum())} such values in this block).",
            'Give a wider dtype, such as dtype="float64".',
        )


def lost(values: Array, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Return where `dtype` cannot hold a value, by the rules of `put`; None if it holds all of them."""
    if values.dtype == dtype or values.dtype.kind == "b" or np.can_cast(values.dtype, dtype, "safe"):
        return None
    with np.errstate(all="ignore"):
        found = values.astype(dtype)
        if dtype.kind == "f":
            is_lost = np.isinf(found) & np.isfinite(values)
        else:
            limits = np.iinfo(dtype)
            is_lost = (found.astype(values.dtype) != values) | (values < limits.min) | (values > limits.max)
            if values.dtype.kind == "f":
                is_lost |= np.abs(values) > EXACT_INTEGERS
    return np.asarray(is_lost) if is_lost.any() else None

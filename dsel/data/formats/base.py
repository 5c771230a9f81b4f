"""What every format offers: a header that is known at once, and a reader that fills rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, stat

Array = NDArray[Any]
EXACT_INTEGERS: Final = 2.0**53  # above it a float64 may already be a rounded integer


class Reader(Protocol):
    """Reads a source from some row on, in order."""

    def fill(self, x: Array, y: Array | None, samples: Array | None) -> None:
        """Put the next len(x) rows into `x` (r x n) and, where the source has them, `y` (r x N) and `samples`
        (r).

        The arrays may be memory maps far larger than memory: only a few megabytes are handled at a time.
        Errors: DataError naming the file, row, column and value that cannot be used.
        """

    def close(self) -> None:
        """Let go of the file."""


class Source(Protocol):
    """The header of a source. Everything here is known without reading the values."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    has_samples: bool

    @property
    def y_shape(self) -> tuple[int, int] | None: ...
    @property
    def y_dtype(self) -> np.dtype[Any] | None: ...
    @property
    def features(self) -> Sequence[str] | None: ...
    @property
    def targets(self) -> Sequence[str] | None: ...

    def identity(self) -> dict[str, Any]:
        """What the values depend on, as JSON: two equal identities mean the same values."""

    def open(self, start: int, scratch: Path) -> Reader:
        """A reader that begins at row `start`; `scratch` is a folder for temporary files."""


def file_identity(path: AnyPath) -> dict[str, Any]:
    """Path, size and time of change (in object storage, the tag) of a file: what tells that it is still the same."""
    found = stat(path)
    return {"path": str(path.resolve()), "size": found.size, "tag": found.tag}


def wanted_dtype(dtype: str | None, found: np.dtype[Any], where: str) -> np.dtype[Any]:
    """The dtype in which values of dtype `found` are stored: the option when given, else the same.

    Errors: OptionError for an option that is no numeric dtype, DataError when `found` is none and nothing was
    asked.
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
    """DataError unless `dtype` holds real numbers (extended precision counts: it can be converted)."""
    if dtype.kind in "biuf":
        return
    if dtype.kind == "c":
        raise DataError(f"{where} has complex values ({dtype}).", "Store real and imaginary parts as columns.")
    kind = "Python objects" if dtype.kind == "O" else "values that are not numbers"
    raise DataError(f"{where} has dtype {dtype}: {kind}.", "Encode them as numbers and save the array again.")


def find_columns(names: Sequence[str], wanted: Sequence[str | int], option: str, where: str) -> list[int]:
    """Positions of the `wanted` columns, each given by its name or else by its index.

    Errors: OptionError naming the column that is not there (with the names nearest to it) or given twice.
    """
    found: list[int] = []
    position_of = {name: i for i, name in enumerate(names)}
    for column in wanted:
        position = position_of.get(str(column)) if isinstance(column, str) else None
        if position is None:
            position = _index(column, len(names))
        if position is None:
            near = get_close_matches(str(column), names, n=3) or list(names[:3])
            raise OptionError(
                f"{option}={column!r}: {where} has {len(names)} columns and none of that name or index.",
                f"Did you mean one of {shorten(map(repr, near))}?",
            )
        if position in found:
            raise OptionError(f"{option}: column {names[position]!r} is given twice.", "Give it once.")
        found.append(position)
    return found


def _index(column: str | int, count: int) -> int | None:
    try:
        index = int(column)
    except ValueError:
        return None
    return index % count if -count <= index < count else None


def put(out: Array, values: Array, source: str, first_row: int, columns: Sequence[str] | None = None) -> None:
    """Assign `values` to `out`, converting the dtype; refuse a value that `out` cannot hold.

    `first_row` and `columns` say where the block is in the source. Rounding of floats is not loss; overflow
    to infinity is, and so is any change of an integer.

    Errors: DataError naming the first value that does not fit, its row and column.
    """
    if values.dtype == out.dtype or values.dtype.kind == "b" or np.can_cast(values.dtype, out.dtype, "safe"):
        out[...] = values
        return
    with np.errstate(all="ignore"):
        out[...] = values.astype(out.dtype)
        if out.dtype.kind == "f":
            lost = np.isinf(out) & np.isfinite(values)
        else:
            limits = np.iinfo(out.dtype)
            lost = (out.astype(values.dtype) != values) | (values < limits.min) | (values > limits.max)
            if values.dtype.kind == "f":
                lost |= np.abs(values) > EXACT_INTEGERS
    if lost.any():
        row, column = (int(i) for i in np.argwhere(lost)[0])
        name = repr(columns[column]) if columns is not None else str(column)
        raise DataError(
            f"{source}: row {first_row + row}, column {name}: the value {values[row, column]} does not fit "
            f"{out.dtype} ({int(lost.sum())} such values in this block).",
            'Give a wider dtype, such as dtype="float64".',
        )

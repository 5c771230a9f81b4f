"""What a file format is: a name, the suffixes of its files, and a function that opens a file as a `Source`.

To add a format, write one module that ends with one `Format`, and list it in `dsel.data.formats.registry`. A format in
a package of its own is listed under the entry-point group ``dsel.formats`` of that package instead, by its name:

    [project.entry-points."dsel.formats"]
    matlab = "my_package.matlab:FORMAT"

`dsel ingest` then reads such files. A format whose files fit into memory takes a few lines:

    import scipy.io
    from dsel.data.formats.arrays import ArraySource
    from dsel.data.formats.base import Format

    def open_matlab(path, options):
        with path.open("rb") as file:
            arrays = scipy.io.loadmat(file)
        return ArraySource(arrays["X"], arrays.get("Y"), name=path.name, files=[path], dtype=options.dtype)

    FORMAT = Format("matlab", (".mat",), open_matlab)

A format for large files returns a `Source` of its own, which opens a `Reader`; `npy.py` is an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import suggest
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, stat

Array = NDArray[Any]
EXACT_INTEGERS: Final = 2.0**53  # a larger float64 may be a rounded integer


@dataclass(frozen=True)
class SourceOptions:
    """Options of `dsel.ingest` that say which parts of a file are what.

    Parameters
    ----------
    y : AnyPath, optional
        A second file with the targets.
    target : tuple of str or int
        The columns of a table that become Y, by name or index.
    index : str or int, optional
        The column of a table with the sample labels.
    weight : str or int, optional
        Where the weights of the samples are: a column of a table, an array of an archive, or a second file.
    dtype : str, optional
        The dtype of X; by default that of the source.
    """

    y: AnyPath | None = None
    target: tuple[str | int, ...] = ()
    index: str | int | None = None
    weight: str | int | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Format:
    """A file format.

    Parameters
    ----------
    name : str
        The name, which is also the name of the entry point.
    suffixes : tuple of str
        The suffixes of its files in lower case, such as ``(".npy",)``. A suffix may have two dots.
    open : callable
        ``open(path, options)`` returns a `Source`. It reads what it needs to know the shape, and no more.
    takes : frozenset of str
        The options that the format takes, out of "y", "target", "index" and "weight". dsel refuses the others.
    instead : str
        What to do in place of an option that is refused: one sentence.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[AnyPath, SourceOptions], Source]
    takes: frozenset[str] = frozenset()
    instead: str = ""


@dataclass
class Rows:
    """Arrays that a reader fills with consecutive rows.

    Parameters
    ----------
    x : ndarray, shape (r, n)
        Rows of X.
    y : ndarray, shape (r, n_targets), optional
        Rows of Y, if the source has targets.
    w : ndarray, shape (r,), optional
        Weights, if the source has any.
    samples : ndarray of str, shape (r,), optional
        Labels of the rows, if the source has any.
    """

    x: Array
    y: Array | None = None
    w: Array | None = None
    samples: Array | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice) -> Rows:
        """Return views of some of the rows."""
        parts = (None if part is None else part[rows] for part in (self.y, self.w, self.samples))
        return Rows(self.x[rows], *parts)


class Reader(ABC):
    """Reads the rows of a source in order, from one row on."""

    @abstractmethod
    def fill(self, rows: Rows) -> None:
        """Fill `rows` with the next ``len(rows)`` rows.

        The arrays may be memory maps far larger than memory, so handle a few megabytes at a time. Use `put` to convert
        values, so that a value that does not fit is refused.

        Raises
        ------
        DataError
            If a value cannot be used; it names the file, the row, the column and the value.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class Source(ABC):
    """An opened file. All attributes are known without reading the values.

    Attributes
    ----------
    name : str
        The name of the file, recorded in the store.
    shape : tuple of int
        The shape of X, (m, n).
    dtype : dtype
        The dtype in which X is stored (see `wanted_dtype`).
    n_targets : int
        The number of columns of Y; 0 if there is no Y.
    y_dtype, w_dtype : dtype, optional
        The dtypes of Y and of the weights; None if there are none.
    features, targets : sequence of str, optional
        Labels of the columns of X and of Y.
    has_samples : bool
        Whether the rows have labels.
    """

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    n_targets: int = 0
    y_dtype: np.dtype[Any] | None = None
    w_dtype: np.dtype[Any] | None = None
    features: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    has_samples: bool = False

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the values depend on, as JSON: two equal identities mean equal values (see `file_identity`)."""

    @abstractmethod
    def open(self, start: int, scratch: Path) -> Reader:
        """Return a reader that begins at row `start`; `scratch` is a folder for temporary files."""


def file_identity(path: AnyPath) -> dict[str, Any]:
    """Return the path, the size and the tag of a file. They change if the file does."""
    found = stat(path)
    return {"path": str(path.resolve()), "size": found.size, "tag": found.tag}


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


@dataclass(frozen=True)
class TableColumns:
    """What the columns of a table are, by position. X has all columns that are nothing else, in the same order."""

    features: list[int]
    targets: list[int]
    index: int | None
    weight: int | None

    @classmethod
    def of(cls, names: Sequence[str], options: SourceOptions, where: str) -> TableColumns:
        """Find the columns that the options name.

        Raises OptionError for a column that does not exist, with suggestions, or that is named twice; DataError if no
        column is left for X.
        """
        targets = [_position(names, column, "target", where) for column in options.target]
        index = None if options.index is None else _position(names, options.index, "index", where)
        weight = None if options.weight is None else _position(names, options.weight, "weight", where)
        taken = [*targets, *(column for column in (index, weight) if column is not None)]
        for i, column in enumerate(taken):
            if column in taken[:i]:
                raise OptionError(f"{where}: column {names[column]!r} is given twice.", "Give it once.")
        features = [i for i in range(len(names)) if i not in set(taken)]
        if not features:
            raise DataError(f"{where} has no column left for X.", "Name fewer columns as targets or index.")
        return cls(features, targets, index, weight)


def _position(names: Sequence[str], column: str | int, option: str, where: str) -> int:
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    try:
        index = int(column)
    except ValueError:
        index = len(names)
    if -len(names) <= index < len(names):
        return index % len(names)
    raise OptionError(
        f"{option}={column!r}: {where} has {len(names)} columns and none of that name or index.",
        suggest(str(column), names),
    )


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

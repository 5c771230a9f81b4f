"""What a file format is: a name, the suffixes of its files, and a function that opens a file as a `Source`.

To add a format, write one module that ends with one `Format`, and list it in `dsel.data.formats.registry`. A format in
a separate package is listed under the entry-point group ``dsel.formats`` of that package instead, by its name:

    [project.entry-points."dsel.formats"]
    matlab = "my_package.matlab:FORMAT"

`dsel ingest` then reads such files. A format whose files fit into memory takes a few lines:

    import scipy.io
    from dsel.data.formats.arrays import ArraySource
    from dsel.data.formats.source import Format

    def open_matlab(path, options):
        with path.open("rb") as file:
            arrays = scipy.io.loadmat(file)
        return ArraySource(arrays["X"], arrays.get("Y"), name=path.name, files=[path], dtype=options.dtype)

    FORMAT = Format("matlab", (".mat",), open_matlab)

A format for large files returns its own `Source`, which opens a `Reader`; `npy.py` is an example.

What a source with a sparse X is: row blocks in CSR, with columns over the samples.

Values of a source: which dtype they are stored in, and their conversion without silent loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW
from dsel._lib.types import Ints
from dsel.config.ingest_request import Missing, SourceOptions
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, MissingExtraError, OptionError
from dsel.storage.paths import AnyPath, stat

__all__ = ["OPTIONS", "Array", "Format", "Missing", "Reader", "Rows", "Source", "SourceOptions", "file_identity"]

Array = NDArray[Any]

#: The options of `SourceOptions` that a format takes only if it lists them.
OPTIONS: Final = tuple(
    o.name for o in fields(SourceOptions) if "help" in o.metadata and o.name not in ("missing", "dtype")
)


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
        ``open(path, options)`` returns a `Source`, or a `SparseSource` for a sparse X. It reads what it needs to know
        the shape, and no more.
    takes : frozenset of str
        The options that the format takes, out of the names in `OPTIONS`. dsel refuses the others.
    instead : str
        What to do in place of an option that is refused: one sentence.
    folders : bool
        Whether a source of this format may be a folder.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[AnyPath, SourceOptions], Source | SparseSource]
    takes: frozenset[str] = frozenset()
    instead: str = ""
    folders: bool = False


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

    @classmethod
    def of(cls, source: Source, count: int, empty: Callable[..., Array] = np.empty) -> Rows:
        """Return new arrays for `count` rows of a source; ``empty(shape, dtype)`` makes them."""
        return cls(
            empty((count, source.shape[1]), source.dtype),
            None if source.y_dtype is None else empty((count, source.n_targets), source.y_dtype),
            None if source.w_dtype is None else empty((count,), source.w_dtype),
            np.empty(count, dtype=object) if source.has_samples else None,
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def parts(self) -> tuple[Array | None, ...]:
        """X, Y, the weights and the labels."""
        return self.x, self.y, self.w, self.samples

    def __getitem__(self, rows: slice | Ints) -> Rows:
        """Return some of the rows: views for a slice."""
        return Rows(self.x[rows], *(None if part is None else part[rows] for part in self.parts[1:]))


class Reader(ABC):
    """Reads the rows of a source in order, from one row on."""

    @abstractmethod
    def fill(self, rows: Rows) -> None:
        """Fill `rows` with the next ``len(rows)`` rows.

        The arrays may be memory maps far larger than memory, so handle a few megabytes at a time. Use
        `dsel.data.formats.source.put` to convert values, so that a value that does not fit is refused.

        Raises
        ------
        DataError
            If a value cannot be used; it names the file, the row, the column and the value.
        """

    def close(self) -> None:
        """Close the file, if one is open."""
        return


class PieceReader(Reader):
    """Hands out the rows of pieces in order, which a generator yields. It is closed with the reader."""

    def __init__(self, pieces: Generator[Rows, None, None]) -> None:
        self._pieces = pieces
        self._rest: Rows | None = None

    def fill(self, rows: Rows) -> None:
        done = 0
        while done < len(rows):
            if self._rest is None or not len(self._rest):
                self._rest = next(self._pieces)
            count = min(len(self._rest), len(rows) - done)
            for part, to in zip(self._rest[:count].parts, rows[done : done + count].parts, strict=True):
                if part is not None and to is not None:
                    to[...] = part
            self._rest, done = self._rest[count:], done + count

    def close(self) -> None:
        self._pieces.close()


class AnySource(ABC):
    """An opened file with a dense or a sparse X. All attributes are known when it is open.

    Attributes
    ----------
    name : str
        The name of the file, recorded in the store.
    shape : tuple of int
        The shape of X, (m, n).
    dtype : dtype
        The dtype in which X is stored (see `dsel.data.formats.source.wanted_dtype`).
    features, targets : sequence of str, optional
        Labels of the columns of X and of Y.
    sources : sequence of str, optional
        For each column of X the column of the source that it comes from, if some became several columns.
    classes : dict of str to list of str
        The classes of each target that became one column for each class, in the order of these columns.
    types, target_types : dict of str to int
        The number of columns of the source by type, for the report: those of X, and those of Y.
    notes : tuple of str
        Sentences for the report.
    """

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    features: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    sources: Sequence[str] | None = None
    classes: Mapping[str, Sequence[str]] = MappingProxyType({})
    types: Mapping[str, int] = MappingProxyType({})
    target_types: Mapping[str, int] = MappingProxyType({})
    notes: tuple[str, ...] = ()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the values depend on, as JSON: two equal identities mean equal values (see `file_identity`)."""

    def take_over(self, other: AnySource) -> None:
        """Give this source the attributes of another one."""
        kind = Source if isinstance(other, Source) else SparseSource
        for name in (*AnySource.__annotations__, *kind.__annotations__):
            setattr(self, name, getattr(other, name))


class Source(AnySource):
    """An opened file with a dense X. Its attributes are known without reading the values.

    Attributes
    ----------
    n_targets : int
        The number of columns of Y; 0 if there is no Y.
    y_dtype, w_dtype : dtype, optional
        The dtypes of Y and of the weights; None if there are none.
    has_samples : bool
        Whether the rows have labels.
    """

    n_targets: int = 0
    y_dtype: np.dtype[Any] | None = None
    w_dtype: np.dtype[Any] | None = None
    has_samples: bool = False

    @abstractmethod
    def open(self, start: int, scratch: Path) -> Reader:
        """Return a reader that begins at row `start`; `scratch` is a folder for temporary files."""


class DerivedSource(Source):
    """A source that changes the rows of another one, and has its attributes."""

    def __init__(self, source: Source) -> None:
        self.take_over(source)
        self.source = source

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    @abstractmethod
    def pieces(self, start: int, scratch: Path) -> Generator[Rows, None, None]:
        """Yield the changed rows from row `start` on."""

    def open(self, start: int, scratch: Path) -> Reader:
        return PieceReader(self.pieces(start, scratch))


#: Rows that are examined or changed together have about this many bytes.
BUFFER_BYTES: Final = 8_000_000


def buffer_rows(source: Source) -> int:
    """Return the number of rows of a source that are examined or changed together."""
    m, n = source.shape
    return max(1, min(m, BUFFER_BYTES // max(1, n * source.dtype.itemsize)))


def buffers(source: Source, start: int, scratch: Path) -> Iterator[Rows]:
    """Yield all rows from `start` on in new arrays of `buffer_rows` rows."""
    m, height = source.shape[0], buffer_rows(source)
    with closing(source.open(start, scratch)) as reader:
        for first in range(start, m, height):
            rows = Rows.of(source, min(height, m - first))
            reader.fill(rows)
            yield rows


def import_extra(module: str, package: str, extra: str, where: Any) -> Any:
    """Import a module that reads `where`. Raises MissingExtraError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"Reading {where} needs {package}, which is not installed.", f"pip install 'dsel[{extra}]'"
        ) from error


def file_identity(path: AnyPath) -> dict[str, Any]:
    """Return the path, the size and the tag of a file. They change if the file does."""
    found = stat(path)
    return {"path": str(path.resolve()), "size": found.size, "tag": found.tag}


#: A row block has about this many values.
BLOCK_VALUES = 1 << 18


@dataclass(frozen=True)
class SparseBlock:
    """Consecutive rows of a sparse source.

    Parameters
    ----------
    start : int
        The first row.
    first : int
        The number of stored values before it.
    rows : scipy.sparse.csr_matrix, shape (r, n)
        The rows.
    columns : dict of str to ndarray, shape (r,)
        The targets and the weights of the rows.
    samples : sequence, optional
        The labels of the rows.
    """

    start: int
    first: int
    rows: Any
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    samples: Sequence[Any] | None = None


class SparseSource(AnySource):
    """An opened file with a sparse X.

    Attributes
    ----------
    stored : int
        The number of stored values.
    columns : dict of str to dtype
        The columns over the samples.
    targets : tuple of str
        Those of them that are targets.
    weight : str, optional
        That of them that holds weights.
    first_column : int, optional
        The number of the first column of X, in a file that numbers its columns.
    """

    stored: int
    columns: Mapping[str, np.dtype[Any]] = MappingProxyType({})
    targets: tuple[str, ...] = ()
    weight: str | None = None
    first_column: int | None = None

    @abstractmethod
    def blocks(self, start: int) -> Iterator[SparseBlock]:
        """Yield the row blocks in order, beginning with one that contains row `start`."""


EXACT_INTEGERS: Final = 2.0**53  # a larger float64 may be a rounded integer


def wanted_dtype(dtype: str | None, found: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype in which values of dtype `found` are stored: the option `dtype` if given, else the same.

    Raises OptionError if the option is no numeric dtype, DataError if `found` cannot be stored.
    """
    try:
        asked = stored_dtype(np.dtype(found if dtype is None else dtype))
    except TypeError:
        asked = None
    if dtype is not None and asked is None:
        raise OptionError(f"dtype={dtype!r} is not a numeric dtype.", "Use float32, float64, int8, ... .")
    require_real(found, where)
    if asked is None:
        raise DataError(f"{where} has dtype {found}, which Zarr cannot store.", 'Give dtype="float64".')
    return asked


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
            f"{out.dtype} ({int(is_lost.sum())} such values in this block; {FIRST_ROW}).",
            'Give a wider dtype, such as dtype="float64".',
        )


def lost(values: Array, dtype: np.dtype[Any], *, exact: bool = False) -> NDArray[np.bool_] | None:
    """Return where `dtype` cannot hold a value, by the rules of `put`; None if it holds all of them.

    exact: floats must not be rounded.
    """
    if values.dtype == dtype or values.dtype.kind == "b" or np.can_cast(values.dtype, dtype, "safe"):
        return None
    with np.errstate(all="ignore"):
        found = values.astype(dtype)
        if dtype.kind == "f":
            is_lost = np.isinf(found) & np.isfinite(values)
            if exact:
                is_lost |= (found.astype(values.dtype) != values) & (values == values)  # NaN stays
        else:
            limits = np.iinfo(dtype)
            is_lost = (found.astype(values.dtype) != values) | (values < limits.min) | (values > limits.max)
            if values.dtype.kind == "f":
                is_lost |= np.abs(values) > EXACT_INTEGERS
    return np.asarray(is_lost) if is_lost.any() else None

"""Arrays that another library reads by rows: HDF5, NetCDF, Zarr, AnnData.

`parts_of` finds X, Y and so on among named arrays: in HDF5 files, and in Zarr groups whose dimensions have no names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, shorten, suggest
from dsel.data.formats.source import (
    Array,
    Format,
    Reader,
    Rows,
    Source,
    SourceOptions,
    file_identity,
    import_extra,
    put,
    wanted_dtype,
)
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, add_files, walk

PIECE_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class LazyArray:
    """A matrix of which rows can be read.

    Parameters
    ----------
    where : str
        What messages call it.
    shape : tuple of int
        Rows and columns.
    dtype : dtype
        The dtype of the values.
    read : callable
        ``read(start, stop)`` returns these rows, shape (stop - start, columns).
    chunk_rows : int
        Rows of a chunk, which is read as a whole.
    strip : callable, optional
        ``strip(start, stop, columns)`` returns a slice of the columns, of an array that is stored by columns.
    """

    where: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Array]
    chunk_rows: int = 1
    strip: Callable[[int, int, slice], Array] | None = None

    @classmethod
    def of(cls, array: Any, where: str) -> LazyArray:
        """Return an array of h5py or Zarr, or of numpy; one of one dimension becomes one column."""
        if len(array.shape) not in (1, 2):
            raise DataError(f"{where} has shape {array.shape}.", "It must have two dimensions: (samples, features).")
        columns = array.shape[1] if len(array.shape) == 2 else 1

        def read(start: int, stop: int) -> Array:
            return np.asarray(array[start:stop]).reshape(stop - start, columns)

        chunks = getattr(array, "chunks", None)
        return cls(where, (array.shape[0], columns), np.dtype(array.dtype), read, chunks[0] if chunks else 1)

    @property
    def step(self) -> int:
        """Rows that are read at once: a few megabytes, in whole chunks if they are not larger."""
        rows = max(1, PIECE_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        return rows - rows % self.chunk_rows if rows > self.chunk_rows else rows

    def fill(self, out: Array, first: int) -> None:
        """Fill `out` with the rows from `first` on, a few megabytes at a time."""
        last, n = first + len(out), self.shape[1]
        if self.strip is not None:
            width = max(1, PIECE_BYTES // (max(1, len(out)) * self.dtype.itemsize))
            for columns in (slice(j, j + width) for j in range(0, n, width)):
                names = [str(j) for j in range(n)[columns]]
                put(out[:, columns], self.strip(first, last, columns), self.where, first, names)
            return
        edges = [first, *range(first - first % self.step + self.step, last, self.step), last]
        for start, stop in pairwise(edges):
            put(out[start - first : stop - first], _read(self, start, stop), self.where, start)


@dataclass(frozen=True)
class Parts:
    """The arrays of one data set. `types` and `classes` are as in `Source`."""

    x: LazyArray
    y: LazyArray | None = None
    w: LazyArray | None = None
    features: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    samples: Callable[[int, int], Sequence[Any]] | None = None
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class LazySource(Source):
    """Arrays in a file that is opened by another library.

    Parameters
    ----------
    open_parts : callable
        Opens the file and returns a context manager with its `Parts`. It is called again for every reader.
    name : str
        The name of the file, recorded in the store.
    identity : dict
        What the values depend on.
    dtype : str, optional
        The dtype in which X is stored; by default its own.
    """

    def __init__(
        self, open_parts: Callable[[], AbstractContextManager[Parts]], name: str, identity: dict[str, Any],
        dtype: str | None,
    ) -> None:  # fmt: skip
        self.name, self._open, self._identity = name, open_parts, identity
        with open_parts() as parts:
            self.describe(parts, dtype)
            self.types = {str(parts.x.dtype): parts.x.shape[1]}

    def describe(self, parts: Parts, dtype: str | None) -> None:
        """Set the attributes of a source with these parts."""
        x, y, w = parts.x, parts.y, parts.w
        self.shape, self.dtype = x.shape, wanted_dtype(dtype, x.dtype, x.where)
        for part in (y, w):
            if part is not None and part.shape[0] != x.shape[0]:
                raise DataError(
                    f"{part.where} has {part.shape[0]} rows and {x.where} has {x.shape[0]}.",
                    "It needs one row for each sample of X.",
                )
        if y is not None:
            self.n_targets, self.y_dtype = y.shape[1], wanted_dtype(None, y.dtype, y.where)
        if w is not None:
            self.w_dtype = wanted_dtype(None, w.dtype, w.where)
        self.features, self.targets, self.classes = parts.features, parts.targets, parts.classes
        self.has_samples, self.notes = parts.samples is not None, parts.notes

    def identity(self) -> dict[str, Any]:
        return self._identity

    def open(self, start: int, scratch: Path) -> Reader:
        return LazyReader(self._open, start)


class LazyReader(Reader):
    """Reads the rows of parts from row `start` on."""

    def __init__(self, open_parts: Callable[[], AbstractContextManager[Parts]], start: int) -> None:
        self._stack, self._row = ExitStack(), start
        self._parts = self._stack.enter_context(open_parts())

    def fill(self, rows: Rows) -> None:
        parts, first = self._parts, self._row
        last = first + len(rows)
        outs = ((parts.x, rows.x), (parts.y, rows.y), (parts.w, None if rows.w is None else rows.w[:, None]))
        for array, out in outs:
            if array is not None and out is not None:
                array.fill(out, first)
        if rows.samples is not None and parts.samples is not None:
            rows.samples[:] = [str(label) for label in parts.samples(first, last)]
        self._row = last

    def close(self) -> None:
        self._stack.close()


def _read(array: LazyArray, start: int, stop: int) -> Array:
    try:
        return array.read(start, stop)
    except OSError:
        raise
    except (RuntimeError, ValueError, KeyError) as error:  # of h5py and zarr, for damaged chunks
        raise DataError(
            f"{array.where} cannot be read at row {start} and after ({FIRST_ROW}): {error}.",
            "Copy or write the file again.",
        ) from error


def tree_identity(path: AnyPath) -> dict[str, Any]:
    """Return what the content of a file, or of all the files of a folder, depends on."""
    if path.is_file():
        return {"files": [file_identity(path)]}
    digest = hashlib.blake2b(digest_size=16)
    add_files(digest, walk(path))
    return {"folder": str(path.resolve()), "digest": digest.hexdigest()}


#: Y, its labels, and the classes of each target that became several columns; no Y without targets.
Targets = tuple[LazyArray | None, list[str] | None, dict[str, list[str]]]


def target_columns(values: Sequence[Array], names: Sequence[str], where: str) -> Targets:
    """Return targets in memory as Y with labels; targets of text become a column of zeros and ones for each class."""
    if not names:
        return None, None, {}
    parts: list[NDArray[Any]] = []
    labels: list[str] = []
    classes: dict[str, list[str]] = {}
    for column, name in zip(values, names, strict=True):
        if column.ndim > 1:
            parts.append(column)
            labels += [f"{name}{j}" for j in range(column.shape[1])] if column.shape[1] > 1 else [name]
        elif column.dtype.kind in "OUST":
            words = np.array([str(value) for value in column], dtype=object)
            classes[name] = sorted(set(words.tolist()))
            parts.append((words[:, None] == np.array(classes[name], dtype=object)).astype(np.uint8))
            labels += [f"{name}={level}" for level in classes[name]]
        else:
            parts.append(column[:, None])
            labels.append(name)
    stacked = np.concatenate(parts, axis=1)
    return LazyArray.of(stacked, f"{shorten(names)} of {where}"), labels, classes


#: Arrays that are found without being named.
_X, _Y, _FEATURES, _TARGETS, _SAMPLES = "X", ("Y", "y"), "feature_names", "target_names", "sample_names"
TAKES: Final = frozenset(("target", "index", "weight", "variable"))
INSTEAD: Final = "Arrays are named by variable (X), target (Y), weight and index (the labels of the samples)."


def open_hdf5(path: AnyPath, options: SourceOptions) -> Source:
    """Open an HDF5 file by h5py."""
    return LazySource(
        partial(_hdf5_parts, path, options), path.name,
        {**tree_identity(path), "parts": [options.variable, list(options.target), options.index, options.weight]},
        options.dtype,
    )  # fmt: skip


@contextmanager
def hdf5_file(path: AnyPath) -> Iterator[Any]:
    """Open an HDF5 file for reading. Raises DataError if it is none, MissingExtraError without h5py."""
    h5py = import_extra("h5py", "h5py", "hdf5", path)
    with ExitStack() as stack:
        source = path if isinstance(path, Path) else stack.enter_context(path.open("rb"))
        try:
            file = stack.enter_context(h5py.File(source, "r"))
        except OSError as error:
            if error.errno is not None:  # such as a lock
                raise
            raise DataError(
                f"{path} cannot be read as an HDF5 file: {error}.", "Copy or write the file again."
            ) from error
        yield file


@contextmanager
def _hdf5_parts(path: AnyPath, options: SourceOptions) -> Iterator[Parts]:
    with hdf5_file(path) as file:
        found: dict[str, Any] = {}

        def collect(name: str, item: Any) -> None:
            if "pandas_type" in item.attrs:
                raise DataError(f"{path} was written by pandas.", "Write the table with to_parquet instead of to_hdf.")
            if hasattr(item, "shape"):
                found[name] = item

        file.visititems(collect)
        yield parts_of(found, str(path), options)


def parts_of(arrays: dict[str, Any], where: str, options: SourceOptions) -> Parts:
    """Return what the named arrays are. Raises OptionError for names that do not exist, DataError if X is unclear."""

    def array(name: Any, option: str) -> str:
        return named(arrays, str(name).strip("/"), option, where)

    x = _choose_x(arrays, where, options)
    folder = x.rpartition("/")[0]
    near = {name[len(folder) + 1 if folder else 0 :]: name for name in arrays if name.startswith(folder)}
    matrix = LazyArray.of(arrays[x], f"{x} of {where}")
    names = [array(name, "target") for name in options.target]
    if not names:
        names = [near[name] for name in _Y if name in near and near[name] != x][:1]
    y, targets, classes = _targets(arrays, names, matrix.shape[0], where)
    if y is not None and not options.target and not classes:
        targets = _labels(arrays.get(near.get(_TARGETS, "")), y.shape[1])
    weight = None if options.weight is None else array(options.weight, "weight")
    index = near.get(_SAMPLES) if options.index is None else array(options.index, "index")
    return Parts(
        matrix, y, None if weight is None else LazyArray.of(arrays[weight], f"{weight} of {where}"),
        _labels(arrays.get(near.get(_FEATURES, "")), matrix.shape[1]), targets,
        None if index is None else lambda start, stop: words(arrays[index], start, stop), classes,
    )  # fmt: skip


def words(array: Any, start: int, stop: int) -> list[str]:
    """Return values as text; HDF5 may hold text as bytes."""
    values = np.asarray(array[start:stop]).ravel()
    values = values.astype(str) if values.dtype.kind in "mM" else values
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _targets(arrays: dict[str, Any], names: list[str], rows: int, where: str) -> Targets:
    """Return one numeric target as it is, so that it is read by rows, and others in memory."""
    wrong = [f"{name} {arrays[name].shape}" for name in names if arrays[name].shape[:1] != (rows,)]
    if wrong:
        raise DataError(
            f"{where}: X has {rows} rows, and the targets have shapes {', '.join(wrong)}.",
            "Y needs one row for each sample of X.",
        )
    if len(names) == 1 and stored_dtype(np.dtype(arrays[names[0]].dtype)) is not None:
        y = LazyArray.of(arrays[names[0]], f"{names[0]} of {where}")
        return y, [names[0]] if y.shape[1] == 1 else None, {}
    values = [
        np.array(words(arrays[name], 0, rows), dtype=object)
        if np.dtype(arrays[name].dtype).kind in "OST"
        else np.asarray(arrays[name][...])
        for name in names
    ]
    return target_columns(values, names, where)


def _choose_x(arrays: dict[str, Any], where: str, options: SourceOptions) -> str:
    if options.variable is not None:
        return named(arrays, options.variable.strip("/"), "variable", where)
    if _X in arrays:
        return _X
    matrices = [
        name for name, array in arrays.items()
        if len(array.shape) == 2 and stored_dtype(np.dtype(array.dtype)) is not None and name not in options.target
    ]  # fmt: skip
    if len(matrices) == 1:
        return matrices[0]
    shown = shorten((f"{name} {arrays[name].shape}" for name in sorted(matrices or arrays)), 8)
    raise DataError(
        f"{where} has {len(matrices)} matrices of numbers: {shown or 'it holds no arrays'}.",
        "Name the one that is X with variable.",
    )


def named(known: Collection[str], name: str, option: str, where: str, what: str = "array") -> str:
    """Return the name that an option gives. Raises OptionError if it is not known."""
    if name in known:
        return name
    raise OptionError(f"{option}={name!r}: {where} has no such {what}.", suggest(name, sorted(known), listed=8))


def _labels(array: Any, count: int) -> list[str] | None:
    return None if array is None or array.shape != (count,) else words(array, 0, count)


HDF5 = Format("hdf5", (".h5", ".hdf5", ".hdf", ".he5"), open_hdf5, TAKES, INSTEAD)

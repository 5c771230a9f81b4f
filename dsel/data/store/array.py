"""One array of a store: a small name that pickles well, reads blocks, and reports lost or damaged chunks."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.labels import Labels, as_labels
from dsel.data.schema import ATTR_FORMAT, ATTR_SEGMENTS, METADATA_FILE, bounds
from dsel.errors import DataError, DselError, OptionError
from dsel.storage.paths import AnyPath, ObjectPath, as_path, described_array, stat, zarr_store
from dsel.storage.zarr_store import LostChunkError

if TYPE_CHECKING:
    import zarr

Array = NDArray[Any]
#: For so long a process relies on the metadata of a group in object storage.
TAG_SECONDS = 5.0
_TAGS: dict[str, tuple[float, str]] = {}
#: Of several threads, one asks for metadata, and the others wait for what it finds.
_OPENING = Lock()
REMEDY = "Restore the store from a copy, or ingest the source again."


@dataclass(frozen=True)
class ArrayHandle:
    """An open array. If it is `complete`, dsel has written it, and an absent chunk is a lost one.

    `strict` is the same array for reading values. An absent chunk is an error there, also in a store that dsel did not
    write, unless the fill value is NaN: no other value says that values are missing.
    """

    array: zarr.Array[Any]
    complete: bool
    files: tuple[int, int]  # rows and columns of one file: a chunk, or a shard
    strict: zarr.Array[Any]


@dataclass(frozen=True)
class StoredArray:
    """A variable of a store, with two dimensions or one. Each process opens it once; it pickles to three strings.

    `tag` is that of the metadata of a group in object storage when the store was opened. It saves requests.
    """

    path: str
    variable: str
    tag: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what is read."""
        return as_number(np.dtype(open_array(self.path, self.variable, self.tag).array.dtype))

    def read(self, start: int, stop: int, columns: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> Array:
        """Read rows [start, stop).

        Parameters
        ----------
        start, stop : int
            The rows.
        columns : sequence of int, optional
            The columns to read, in ascending order. Only the chunks that contain them are read.

        Returns
        -------
        ndarray, shape (r, n), (r, len(columns)), or (r,) for a variable of one dimension
            A new array in C order; bool is returned as uint8.

        Raises
        ------
        OptionError
            If rows or columns do not exist.
        DataError
            If a chunk is lost, incomplete or fails its checksum; it names the chunk and its rows.
        """
        handle = open_array(self.path, self.variable, self.tag)
        if stop > handle.array.shape[0]:  # rows were appended since this process opened the array
            forget_tag(self.path)
            handle = open_array(self.path, self.variable)
        wanted = None if columns is None else np.asarray(columns, dtype=np.intp)
        m, n = (*handle.array.shape, 1)[:2]
        if not 0 <= start <= stop <= m:
            raise OptionError(f"{self.variable} of {self.path} has rows 0 to {m}.", f"Not {start} to {stop}.")
        if wanted is not None and wanted.size and (wanted[0] < 0 or wanted[-1] >= n or (np.diff(wanted) <= 0).any()):
            raise OptionError(
                f"Columns to read from {self.variable} of {self.path} must be ascending, from 0 to at most {n - 1}.",
                f"Got {shorten(map(str, wanted.tolist()))}.",
            )
        if stop == start or (wanted is not None and not wanted.size):
            width = handle.array.shape[1:] if wanted is None else (wanted.size,)
            return np.empty((stop - start, *width), as_number(handle.array.dtype))
        try:
            return _select(handle.strict, slice(start, stop), wanted)
        except (MemoryError, DselError):
            raise
        except Exception as error:  # a codec may raise any exception
            raise self._unreadable(handle, start, stop, wanted, error) from error

    def bytes_read(self, start: int, stop: int, columns: NDArray[np.integer[Any]] | None = None) -> int:
        """Return the uncompressed bytes of the chunks (or shards) that reading rows [start, stop) needs."""
        handle = open_array(self.path, self.variable, self.tag)
        (height, width), (down, across) = handle.files, (*handle.array.shape, 1)[:2]
        if columns is not None:
            touched = np.unique(np.asarray(columns) // width)
            across = int(np.minimum((touched + 1) * width, across).sum() - (touched * width).sum())
        rows = min(-(-stop // height) * height, max(down, stop)) - start // height * height if stop > start else 0
        return rows * across * int(handle.array.dtype.itemsize)

    def column(self, j: int) -> StoredColumn:
        """Return column j of a variable with two dimensions."""
        return StoredColumn(self.path, self.variable, self.tag, j)

    def _unreadable(
        self, handle: ArrayHandle, start: int, stop: int, columns: Array | None, error: Exception
    ) -> DataError:
        """Find out which chunk cannot be read, by reading each of them alone."""
        for index in _files_of(handle, start, stop, columns):
            (rows, width), (i, j) = handle.files, index
            try:
                handle.strict[(slice(i * rows, (i + 1) * rows), slice(j * width, (j + 1) * width))[: handle.array.ndim]]
            except DselError:
                raise
            except LostChunkError:
                if not handle.complete:
                    return DataError(
                        f"{self._name(handle, index)} is not there. Zarr may leave out zeros, or it is "
                        "lost: its fill value cannot tell.",
                        "If it is lost, restore it. If its values are zeros, copy the store with dsel ingest.",
                    )
                return DataError(f"{self._name(handle, index)} is lost: its file does not exist.", REMEDY)
            except Exception as alone:
                what = f"{self._name(handle, index)} cannot be read"
                return DataError(f"{what}: {describe_error(alone)}", REMEDY)
        return DataError(
            f"{self.variable} in {self.path}, rows {start} to {stop - 1}, cannot be read: {describe_error(error)}",
            "Each chunk alone can be read, so try again.",
        )

    def _name(self, handle: ArrayHandle, index: tuple[int, int]) -> str:
        row = index[0] * handle.files[0]
        last = min(row + handle.files[0], handle.array.shape[0]) - 1
        key = chunk_key(handle.array, index)
        return (
            f"Chunk {index[: handle.array.ndim]} of {self.variable} in {self.path} (file {key}, rows {row} to {last})"
        )


@dataclass(frozen=True)
class StoredColumn(StoredArray):
    """One column of a variable with two dimensions, read as a variable with one dimension."""

    j: int = 0

    def read(self, start: int, stop: int, columns: object = None) -> Array:
        """Read rows [start, stop), shape (r,). There are no `columns` to choose."""
        return super().read(start, stop, [self.j])[:, 0]

    def bytes_read(self, start: int, stop: int, columns: object = None) -> int:
        """Return the uncompressed bytes of the chunks (or shards) that reading rows [start, stop) needs."""
        return super().bytes_read(start, stop, np.array([self.j]))


def open_array(path: str, variable: str, tag: str = "") -> ArrayHandle:
    """Return the open array, from the cache of this process unless its metadata have changed.

    tag: that of the metadata of a group in object storage when the store was opened, if the caller knows it. Then
    nothing is asked for: each pass ends with a look at the tag, and notices a store that was replaced meanwhile.

    Raises DataError if the metadata cannot be read.
    """
    try:
        store = as_path(path)
        # A store in object storage is replaced in place. During that time the metadata of its group are absent.
        if not isinstance(store, ObjectPath):
            tag = _metadata_tag(store / variable)
        tag = tag or _recent_tag(path)
        with _OPENING:
            return _open_array(path, variable, tag)
    except DselError:
        raise
    except Exception as error:  # zarr may raise any exception
        raise DataError(f"{variable} of {path} cannot be opened: {describe_error(error)}", REMEDY) from error


def metadata_file(folder: AnyPath) -> AnyPath | None:
    """Return the metadata file of the array in `folder`, of Zarr format 3 or 2; None if there is no array."""
    files = (folder / name for name in (METADATA_FILE, ".zarray"))
    return next((file for file in files if file.is_file()), None)


def _metadata_tag(folder: AnyPath) -> str:
    """Return a tag that changes with the metadata of a group or array. Raises FileNotFoundError."""
    for name in (METADATA_FILE, ".zarray", ".zgroup"):
        with suppress(FileNotFoundError):
            return stat(folder / name).tag
    raise FileNotFoundError(f"There are no Zarr metadata in {folder}.")


def group_tag(path: str) -> str:
    """Return the tag of the metadata of a store in object storage; empty for other data, and if there are none."""
    store = as_path(path)
    if not isinstance(store, ObjectPath):
        return ""
    try:
        return _metadata_tag(store)
    except FileNotFoundError:
        return "absent"


def forget_tag(path: str | AnyPath) -> None:
    """Look at the metadata of a group in object storage again before its arrays are used the next time."""
    _TAGS.pop(str(path), None)


def _recent_tag(path: str) -> str:
    """Return the tag of a group in object storage, at most a few seconds old: a request per read would be slow."""
    seen, tag = _TAGS.get(path, (-math.inf, ""))
    if time.monotonic() - seen <= TAG_SECONDS:
        return tag
    with _OPENING:
        seen, tag = _TAGS.get(path, (-math.inf, ""))
        if time.monotonic() - seen > TAG_SECONDS:
            tag = _metadata_tag(as_path(path))
            _TAGS[path] = time.monotonic(), tag
    return tag


@lru_cache(maxsize=64)
def _open_array(path: str, variable: str, changed: str) -> ArrayHandle:
    import zarr

    store = as_path(path)
    known = None
    if isinstance(store, ObjectPath):  # one request; on disk Zarr reads the metadata
        with suppress(FileNotFoundError):
            known = json.loads(metadata_bytes(store / variable / METADATA_FILE))
    found = None if known is not None else metadata_file(store / variable)
    zarr_format: Literal[2, 3] = 2 if found is not None and found.name == ".zarray" else 3
    complete = _is_complete(path, changed) if isinstance(store, ObjectPath) else is_complete(store)

    def opened(complete: bool) -> zarr.Array[Any]:
        if known is not None:
            return described_array(store / variable, known, complete=complete)  # type: ignore[no-any-return]
        there = zarr_store(store / variable, complete=complete)
        return zarr.open_array(there, mode="r", zarr_format=zarr_format)

    array = opened(complete)
    shape = array.shards or array.chunks
    files = (shape[0], shape[1] if len(shape) > 1 else 1)
    fill = array.metadata.fill_value
    is_clear = complete or (isinstance(fill, float | np.floating) and np.isnan(fill))
    return ArrayHandle(array, complete, files, array if is_clear else opened(complete=True))


def is_complete(store: AnyPath) -> bool:
    """Return whether dsel has written the store, so that every chunk must exist."""
    return ATTR_FORMAT in read_attributes(store)


@lru_cache(maxsize=64)
def _is_complete(path: str, changed: str) -> bool:
    """Return the same for a group in object storage whose metadata have the tag `changed`."""
    return is_complete(as_path(path))


def read_attributes(folder: AnyPath) -> dict[str, Any]:
    """Return the attributes of a group or array, of Zarr format 3 or 2; empty if there are none."""
    for name, key in ((METADATA_FILE, "attributes"), (".zattrs", None)):
        try:
            file = folder / name
            found = json.loads(metadata_bytes(file))
            return dict(found if key is None else found.get(key, {}))
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return {}


def metadata_bytes(file: AnyPath) -> bytes:
    """Return the content of a file of metadata. Where a listing knows its tag, it is read once for each tag."""
    is_listed = isinstance(file, ObjectPath) and file.is_listed()
    return _read_once(file, stat(file).tag) if is_listed else file.read_bytes()


@lru_cache(maxsize=64)
def _read_once(file: AnyPath, tag: str) -> bytes:
    return file.read_bytes()


def read_labels(path: AnyPath, variable: str, count: int) -> Labels | None:
    """Return labels as str; None if the store has none. Numbers, such as positions, become their decimal text."""
    if metadata_file(path / variable) is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns about fixed-length strings, which xarray writes
        handle = open_array(str(path), variable)
        try:
            values = np.asarray(handle.array[:count] if ATTR_SEGMENTS in read_attributes(path) else handle.array[...])
        except DselError:
            raise
        except Exception as error:  # zarr may raise any exception
            raise DataError(
                f"The labels {variable} of {path} cannot be read: {describe_error(error)}", REMEDY
            ) from error
    if values.shape != (count,):
        raise DataError(f"{path}: {variable} has shape {values.shape} for {count} labels.", "Write one for each.")
    return as_labels(values.tolist())


def chunk_key(array: zarr.Array[Any], index: tuple[int, ...]) -> str:
    """Return the file of a chunk (or shard) relative to the folder of the array, such as c/0/3."""
    return array.metadata.encode_chunk_key(index[: array.ndim])


def describe_error(error: Exception) -> str:
    """Return the class and the first line of an error of another library."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:200]}".rstrip(": .") + "."


def _files_of(handle: ArrayHandle, start: int, stop: int, columns: Array | None) -> Iterator[tuple[int, int]]:
    """Return the indices of the chunks (or shards) that contain the rows and columns."""
    rows, width = handle.files
    if columns is None:
        across: Sequence[int] = range(len(bounds((*handle.array.shape, 1)[1], width)) - 1)
    else:
        across = np.unique(columns // width).tolist()
    return product(range(start // rows, (stop - 1) // rows + 1), across)


def _select(array: zarr.Array[Any], rows: slice, columns: Array | None) -> Array:
    if columns is None:
        values = np.asarray(array[rows])
    elif columns[-1] - columns[0] == columns.size - 1:  # adjacent columns: a slice is faster
        values = np.asarray(array[rows, int(columns[0]) : int(columns[-1]) + 1])
    else:
        values = np.asarray(array.oindex[rows, columns])
    own = np.ascontiguousarray(values.astype(as_number(values.dtype), copy=False))
    return own if own.flags.owndata and own.flags.writeable else own.copy()


def as_number(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the native dtype of the numbers that are read: truth values become uint8."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")

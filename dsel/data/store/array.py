"""One array of a store, as workers see it: a small picklable name that reads blocks and vouches for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.chunking import bounds
from dsel.data.schema import ATTR_FORMAT, METADATA_FILE
from dsel.errors import DataError, DselError, OptionError
from dsel.storage.paths import AnyPath, ObjectPath, as_path, stat, zarr_store

if TYPE_CHECKING:
    import zarr

Array = NDArray[Any]
REMEDY = "Restore the store from a copy, or ingest the source again."


@dataclass(frozen=True)
class ArrayHandle:
    """An open array. `complete`: it was written by dsel, so an absent chunk is a lost one."""

    array: zarr.Array[Any]
    complete: bool
    files: tuple[int, int]  # rows and columns of what one file holds: a chunk, or a shard


@dataclass(frozen=True)
class StoredArray:
    """A variable of a store, of two dimensions or one. Each process opens it once; pickled it is two strings."""

    path: str
    variable: str

    def read(self, start: int, stop: int, columns: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> Array:
        """Rows [start, stop) (r x n), or of these only the sorted `columns` (r x len(columns)); (r,) of one dimension.

        Always a fresh array in C order, bool as uint8. Only the chunks that are needed are read.
        Errors: OptionError for rows or columns that are not there; DataError for a chunk that is lost, cut
        off or fails its checksum, naming it and its rows.
        """
        handle = open_array(self.path, self.variable)
        wanted = None if columns is None else np.asarray(columns, dtype=np.intp)
        self._check_range(handle.array.shape, start, stop, wanted)
        if stop == start or (wanted is not None and not wanted.size):
            width = handle.array.shape[1:] if wanted is None else (wanted.size,)
            return np.empty((stop - start, *width), _as_number(handle.array.dtype))
        if handle.complete:
            self._require_files(handle, start, stop, wanted)
        try:
            return _select(handle.array, slice(start, stop), wanted)
        except (MemoryError, DselError):
            raise
        except Exception as error:  # a codec may raise anything at all
            raise self._unreadable(handle, start, stop, wanted, error) from error

    def bytes_read(self, start: int, stop: int, columns: NDArray[np.integer[Any]] | None = None) -> int:
        """Bytes that rows [start, stop) take, uncompressed; of the columns whole chunks."""
        handle = open_array(self.path, self.variable)
        width, across = handle.files[1], (*handle.array.shape, 1)[1]
        if columns is not None:
            touched = np.unique(np.asarray(columns) // width)
            across = int(np.minimum((touched + 1) * width, across).sum() - (touched * width).sum())
        return (stop - start) * across * int(handle.array.dtype.itemsize)

    def read_tile(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        """Rows [start, stop) and columns [left, right), as `read` has them."""
        (start, stop), (left, right) = rows, columns
        handle = open_array(self.path, self.variable)
        wanted = np.arange(left, right)
        self._check_range(handle.array.shape, start, stop, wanted)
        if handle.complete:
            self._require_files(handle, start, stop, wanted)
        try:
            values = np.asarray(handle.array[start:stop, left:right])
        except (MemoryError, DselError):
            raise
        except Exception as error:  # a codec may raise anything at all
            raise self._unreadable(handle, start, stop, wanted, error) from error
        return _own(values)

    def _check_range(self, shape: tuple[int, ...], start: int, stop: int, columns: Array | None) -> None:
        m, n = (*shape, 1)[:2]
        if not 0 <= start <= stop <= m:
            raise OptionError(f"{self.variable} of {self.path} has rows 0 to {m}.", f"Not {start} to {stop}.")
        if columns is None or not columns.size:
            return
        if columns[0] < 0 or columns[-1] >= n or (np.diff(columns) <= 0).any():
            raise OptionError(
                f"Columns to read from {self.variable} of {self.path} must rise from 0 to at most {n - 1}.",
                f"Got {shorten(map(str, columns.tolist()))}.",
            )

    def _require_files(self, handle: ArrayHandle, start: int, stop: int, columns: Array | None) -> None:
        for index in _files_of(handle, start, stop, columns):
            if not (as_path(self.path) / self.variable / chunk_key(handle.array, index)).is_file():
                raise DataError(f"{self._name(handle, index)} is lost: its file is not there.", REMEDY)

    def _unreadable(
        self, handle: ArrayHandle, start: int, stop: int, columns: Array | None, error: Exception
    ) -> DataError:
        """Find which chunk it was by reading each alone."""
        for index in _files_of(handle, start, stop, columns):
            (rows, width), (i, j) = handle.files, index
            try:
                handle.array[(slice(i * rows, (i + 1) * rows), slice(j * width, (j + 1) * width))[: handle.array.ndim]]
            except DselError:
                raise
            except Exception as alone:
                what = f"{self._name(handle, index)} cannot be read"
                return DataError(f"{what}: {describe_error(alone)}", REMEDY)
        return DataError(
            f"{self.variable} in {self.path}, rows {start} to {stop}: unreadable: {describe_error(error)}",
            "Each chunk alone can be read, so try again.",
        )

    def _name(self, handle: ArrayHandle, index: tuple[int, int]) -> str:
        row = index[0] * handle.files[0]
        last = min(row + handle.files[0], handle.array.shape[0])
        key = chunk_key(handle.array, index)
        return (
            f"Chunk {index[: handle.array.ndim]} of {self.variable} in {self.path} (file {key}, rows {row} to {last})"
        )


def open_array(path: str, variable: str) -> ArrayHandle:
    """The open array, from the cache of this process unless its metadata changed since.

    Errors: DataError when the metadata cannot be read.
    """
    try:
        place = as_path(path)
        # A store in a bucket is replaced in place, and while that lasts its own metadata are not there.
        sign = place if isinstance(place, ObjectPath) else place / variable
        return _open_array(path, variable, _metadata_tag(sign))
    except DselError:
        raise
    except Exception as error:  # zarr raises what its many parts raise
        raise DataError(f"{variable} of {path} cannot be opened: {describe_error(error)}", REMEDY) from error


def metadata_file(folder: AnyPath) -> AnyPath | None:
    """The metadata of the array in `folder`, of Zarr format 3 or 2; None where there is none."""
    files = (folder / name for name in (METADATA_FILE, ".zarray"))
    return next((file for file in files if file.is_file()), None)


def _metadata_tag(folder: AnyPath) -> str:
    """What changes when the metadata of a group or array do, of Zarr format 3 or 2. Errors: FileNotFoundError."""
    for name in (METADATA_FILE, ".zarray", ".zgroup"):
        with suppress(FileNotFoundError):
            return stat(folder / name).tag
    raise FileNotFoundError(f"There are no Zarr metadata in {folder}.")


@lru_cache(maxsize=64)
def _open_array(path: str, variable: str, changed: str) -> ArrayHandle:
    import zarr

    place = as_path(path)
    found = metadata_file(place / variable)
    zarr_format: Literal[2, 3] = 2 if found is not None and found.name == ".zarray" else 3
    array = zarr.open_array(zarr_store(place / variable), mode="r", zarr_format=zarr_format)
    shape = array.shards or array.chunks
    files = (shape[0], shape[1] if len(shape) > 1 else 1)
    return ArrayHandle(array, is_complete(place), files)


def is_complete(store: AnyPath) -> bool:
    """Whether dsel wrote the store, and so every chunk has to be there."""
    try:
        group = json.loads((store / METADATA_FILE).read_text())
    except (OSError, ValueError):
        return False
    return ATTR_FORMAT in group.get("attributes", {})


def chunk_key(array: zarr.Array[Any], index: tuple[int, ...]) -> str:
    """The file of a chunk (or shard), relative to the folder of the array, such as c/0/3. An array of one dimension
    counts as one column."""
    return array.metadata.encode_chunk_key(index[: array.ndim])


def describe_error(error: Exception) -> str:
    """The kind and the first line of an error of another library."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:200]}".rstrip(": ") + "."


def _files_of(handle: ArrayHandle, start: int, stop: int, columns: Array | None) -> Iterator[tuple[int, int]]:
    """Indices of the chunks (or shards) that hold the rows and columns."""
    rows, width = handle.files
    if columns is None:
        across: Sequence[int] = range(len(bounds((*handle.array.shape, 1)[1], width)) - 1)
    else:
        across = np.unique(columns // width).tolist()
    return product(range(start // rows, (stop - 1) // rows + 1), across)


def _select(array: zarr.Array[Any], rows: slice, columns: Array | None) -> Array:
    values = np.asarray(array[rows] if columns is None else array.oindex[rows, columns])
    return _own(values)


def _own(values: Array) -> Array:
    own = np.ascontiguousarray(values.astype(_as_number(values.dtype), copy=False))
    return own if own.flags.owndata and own.flags.writeable else own.copy()


def _as_number(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")

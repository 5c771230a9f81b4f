"""What a store contains, checked once when it is opened."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from dsel._lib.text import counted, shorten
from dsel.data import schema
from dsel.data.formats.registry import find_format
from dsel.data.labels import Labels, as_labels, default_labels, require_unique
from dsel.data.schema import bounds
from dsel.data.store.array import (
    REMEDY,
    ArrayHandle,
    StoredArray,
    as_number,
    chunk_key,
    describe_error,
    forget_tag,
    group_tag,
    is_complete,
    metadata_bytes,
    open_array,
    read_attributes,
    read_labels,
)
from dsel.data.store.segments import Segment, read_segments, segment_ranges, visible_rows
from dsel.errors import DataError, MissingInputError
from dsel.storage.object_store import listed_once
from dsel.storage.paths import AnyPath, FileInfo, ObjectPath, add_files, as_path, walk

#: The most columns, and the most chunks in one direction, of a store.
_MOST_COLUMNS, _MOST_PIECES = 100_000_000, 10_000_000


@dataclass(frozen=True)
class AnyStore:
    """What stores with a dense and with a sparse X have in common."""

    path: AnyPath
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    features: Labels
    row_bounds: list[int]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the group."""
        return read_attributes(self.path)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The rows of each append, in order. Lists the files of the store when it is first used."""
        with listed_once(self.path):
            return read_segments(self.path, self.shape[0])


@dataclass(frozen=True)
class Store(AnyStore):
    """A data set on disk or in object storage. Call `open_store` to open one.

    Attributes
    ----------
    path : Path or ObjectPath
        Where the store is.
    x, y : StoredArray
        X and Y; y is None if there is no Y.
    shape : tuple of int
        The shape of X, (m, n).
    n_targets : int
        The number of columns of Y.
    dtype : dtype
        The dtype of X.
    features, targets : ndarray of str
        The labels of the columns of X and Y.
    row_bounds : list of int
        0, ..., m: the row blocks, each made of whole chunks (or shards).
    column_bounds : list of int
        0, ..., n: where chunks are divided by columns; [0, n] for full rows.
    row_ranges : tuple of (int, int), or None
        The rows [start, stop) of each segment; None if nothing was appended to the store.
    """

    x: StoredArray
    y: StoredArray | None
    n_targets: int
    targets: Labels
    column_bounds: list[int]
    row_ranges: tuple[tuple[int, int], ...] | None

    @cached_property
    def samples(self) -> Labels | None:
        """Labels of the rows, read when they are first used; None if there are none."""
        return read_labels(self.path, schema.SAMPLE, self.shape[0])

    @cached_property
    def sources(self) -> Labels | None:
        """For each feature the column of the source that it was made from; None if all are columns as they were."""
        return read_labels(self.path, schema.SOURCE, self.shape[1])

    @property
    def has_weight(self) -> bool:
        """Whether the variable `weight` exists."""
        return (self.path / schema.WEIGHT / schema.METADATA_FILE).is_file()

    @property
    def nbytes(self) -> int:
        """Bytes of X, uncompressed."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk (or shard) of X, uncompressed."""
        width = self.column_bounds[1] - self.column_bounds[0]
        return (self.row_bounds[1] - self.row_bounds[0]) * width * self.dtype.itemsize

    def absent_chunks(self) -> list[str]:
        """Return the chunk files, such as X/c/0/3, that do not exist. Lists the files of the store."""
        return [f"{name}/{key}" for name in self.variables() for key in _absent(self.path, name, self.shape[0])]

    def unwritten_chunks(self) -> tuple[int, int]:
        """Return how many chunks of X do not exist, so that their values are missing, and how many it has in all.

        In a store that dsel wrote, all exist. Lists the files of X elsewhere.
        """
        array = open_array(str(self.path), schema.X).array
        if is_complete(self.path):
            return 0, array.nchunks
        return len(_absent(self.path, schema.X, self.shape[0])), array.nchunks

    def fingerprint(self, *more: str) -> str:
        """Return a digest that changes when the store is written to.

        It covers metadata, and sizes and times of all files (in object storage, tags), not contents; of the variables
        of the schema, and of those in `more`. Raises DataError if a chunk is absent from a store that dsel wrote.
        Lists the files of the store.
        """
        digest = hashlib.blake2b(digest_size=16)
        with listed_once(self.path):
            _require_all_chunks(self)
            for name in [*self.variables(), *(name for name in more if name not in schema.DIMENSIONS)]:
                folder = self.path / name
                digest.update(name.encode() + b"\0" + metadata_bytes(folder / schema.METADATA_FILE))
                add_files(digest, files_of(folder))
        return digest.hexdigest()

    def variables(self) -> list[str]:
        """Return the names of the variables of the schema that exist."""
        return [name for name in schema.DIMENSIONS if (self.path / name / schema.METADATA_FILE).is_file()]


def open_store(path: str | AnyPath) -> Store:
    """Open a store and check that it follows the schema (dsel.data.schema).

    Parameters
    ----------
    path : str or path
        The store: a path, or an s3://, gs:// or az:// URL.

    Returns
    -------
    Store
        What the store contains.

    Raises
    ------
    MissingInputError
        If there is no store; the message says what there is instead.
    DataError
        If X is missing, not a matrix of numbers, or encoded, if Y does not fit it, if labels repeat, or if a chunk is
        lost.

    Notes
    -----
    Reads metadata and the labels of features and targets, no values.

    Examples
    --------
    >>> import dsel
    >>> store = dsel.open_store("data.zarr")  # doctest: +SKIP
    >>> store.x.read(0, 100, columns=[2, 5])  # doctest: +SKIP
    """
    path = as_path(path).absolute()
    with listed_once(path):
        return _open_store(path)


def _open_store(path: AnyPath) -> Store:
    _require_store(path)
    forget_tag(path)
    x = _open_variable(path, schema.X)
    y = _open_variable(path, schema.Y) if (path / schema.Y).exists() else None
    (m, n), n_targets = x.array.shape, 0
    visible = visible_rows(path)
    if visible is not None and visible > m:
        raise DataError(f"{path}: X has {m} rows, and {visible} are listed in its segments.", REMEDY)
    m = visible or m
    if y is not None:
        rows, n_targets = y.array.shape
        if rows != m and (visible is None or rows < m):
            raise DataError(f"{path}: X has {m} rows and Y has {rows}.", "Y needs one row for each sample of X.")
    tag = group_tag(str(path))
    store = Store(
        path=path,
        x=StoredArray(str(path), schema.X, tag),
        y=StoredArray(str(path), schema.Y, tag) if y is not None else None,
        shape=(m, n),
        n_targets=n_targets,
        dtype=as_number(x.array.dtype),
        features=column_labels(path, schema.FEATURE, "feature", "x", n),
        targets=column_labels(path, schema.TARGET, "target", "y", n_targets),
        row_bounds=bounds(m, x.files[0]),
        column_bounds=bounds(n, x.files[1]),
        row_ranges=segment_ranges(path),
    )
    _require_all_chunks(store)
    return store


def _require_store(path: AnyPath) -> None:
    if (path / schema.METADATA_FILE).is_file():
        try:
            kind = json.loads(metadata_bytes(path / schema.METADATA_FILE)).get("node_type")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            file = path / schema.METADATA_FILE
            raise DataError(f"{file} cannot be read: {describe_error(error)}", REMEDY) from error
        if kind == "array":
            remedy = f"Give the array, zarr.open_array({str(path)!r}), or make a store: dsel ingest {path} STORE.zarr"
            if (path.parent / schema.METADATA_FILE).is_file():
                remedy = f"Give the group that contains it: {path.parent}"
            raise MissingInputError(f"{path} is a single Zarr array.", remedy)
        return
    is_there, staging = path.exists(), schema.staging_path(path)
    # In object storage the lock of an ingest may stay, which does not count.
    is_begun = (staging / "progress.json").is_file() if isinstance(path, ObjectPath) else staging.exists()
    if is_begun and (isinstance(path, ObjectPath) or not is_there):
        raise MissingInputError(
            f"{path} is not complete: its ingest was interrupted, or is still running.",
            "If it was interrupted, run the same ingest again: it continues.",
        )
    if not is_there:
        raise MissingInputError(f"There is no store {path}.", "Check the path, or create it with dsel ingest.")
    if path.is_file() and find_format(path) is not None:
        raise MissingInputError(
            f"{path} is a {path.suffix} file, not a store.", f"Create one: dsel ingest {path.name} {path.stem}.zarr"
        )
    if any((path / name).exists() for name in (".zgroup", ".zarray", ".zmetadata")):
        raise MissingInputError(f"{path} is in Zarr format 2.", "Write it again in format 3 (zarr_format=3).")
    raise MissingInputError(f"{path} is not a Zarr store: it has no {schema.METADATA_FILE}.", "Check the path.")


def _open_variable(path: AnyPath, variable: str) -> ArrayHandle:
    """Open X or Y, and check its dimensions, dtype and encoding."""
    if not (path / variable / schema.METADATA_FILE).is_file():
        arrays = (entry.key.partition(f"/{schema.METADATA_FILE}") for entry in walk(path))
        found = sorted(name for name, is_array, _ in arrays if is_array and "/" not in name)
        raise DataError(
            f"{path} has no variable {variable}; it has {shorten(found) or 'none'}.",
            f"Name the data matrix X, with dimensions {schema.DIMENSIONS[schema.X]}, or write a store by dsel ingest.",
        )
    handle = open_array(str(path), variable)
    array, wanted = handle.array, schema.DIMENSIONS[variable]
    found_names = array.metadata.dimension_names  # type: ignore[union-attr]
    where = f"{variable} of {path}"
    if found_names is None or tuple(found_names) != wanted:
        remedy = f"They must be {wanted}. Open a cube by xarray.open_zarr(path, chunks={{}}), or ingest it."
        if found_names is None and array.ndim == 2:
            remedy = f"Write the array with dimension_names={wanted}, or ingest it."
        if found_names is not None and tuple(found_names) == wanted[::-1]:
            remedy = f"It is transposed: write ds[{variable!r}].transpose(*{wanted}) with xarray."
        raise DataError(f"{where} has dimensions {found_names}.", remedy)
    if 0 in array.shape:
        raise DataError(f"{where} is empty: its shape is {array.shape}.", "It needs rows and columns.")
    if schema.stored_dtype(np.dtype(array.dtype)) is None:
        kind = "complex" if array.dtype.kind == "c" else "not numeric"
        raise DataError(f"{where} is {kind} ({array.dtype}).", "Store it as real numbers of at most 8 bytes.")
    _require_plain(where, dict(array.attrs))
    _require_few_chunks(where, handle)
    return handle


def _require_few_chunks(where: str, handle: ArrayHandle) -> None:
    """Raise DataError for a shape, or for chunks, that only damaged or forged metadata have."""
    shape, chunks = handle.array.shape, (*handle.files, 1)[: handle.array.ndim]
    if 0 in chunks:
        raise DataError(f"{where} has chunks of shape {chunks}.", REMEDY)
    pieces = [-(-size // step) for size, step in zip(shape, chunks, strict=True)]
    if max(pieces) > _MOST_PIECES or (len(shape) > 1 and shape[1] > _MOST_COLUMNS):
        raise DataError(
            f"{where} has shape {shape} in chunks of shape {chunks}: too many columns, or chunks in one direction.",
            f"At most {_MOST_COLUMNS:,} columns and {_MOST_PIECES:,} chunks are read. If the shape is wrong, restore "
            "the store from a copy.",
        )


def _require_plain(where: str, attributes: dict[str, Any]) -> None:
    """Raise DataError if an encoding of xarray changes the meaning of the stored values."""
    kind, unit = str(attributes.get("dtype", "")), str(attributes.get("units", ""))
    if kind.startswith(("timedelta64", "datetime64")) or ("calendar" in attributes and " since " in unit):
        raise DataError(
            f"{where} has times, stored as integers ({kind or unit}): a missing one would be a number.",
            "Write them as numbers: (ds['X'] / np.timedelta64(1, 's')).to_zarr(...) with xarray.",
        )
    fill = attributes.get("_FillValue")
    if isinstance(fill, str):  # xarray writes floats as base64
        try:
            fill = struct.unpack("<d", base64.b64decode(fill))[0]
        except (ValueError, struct.error):
            fill = None
    encoded: dict[str, Any] = {key: attributes[key] for key in ("scale_factor", "add_offset") if key in attributes}
    missing = attributes.get("missing_value", fill)
    if isinstance(missing, int | float) and not np.isnan(missing):
        encoded["_FillValue"] = missing
    if encoded:
        raise DataError(
            f"{where} is encoded ({encoded}): the numbers on disk are not the values.",
            "Write it decoded: ds.drop_encoding().to_zarr(...) with xarray.",
        )


def column_labels(path: AnyPath, variable: str, what: str, prefix: str, count: int) -> Labels:
    """Return the labels of the columns, or x0, x1, ... if the store has none. Raises DataError if labels repeat."""
    labels = read_labels(path, variable, count) if count else None
    if labels is None:
        return as_labels(default_labels(prefix, count))
    require_unique(labels.tolist(), what, str(path), "Give every column a unique name.")
    return labels


def _require_all_chunks(store: Store) -> None:
    """Raise DataError if a chunk is absent from a store that dsel wrote; elsewhere it means fill values."""
    if not is_complete(store.path):
        return
    absent = store.absent_chunks()
    if absent:
        raise DataError(f"{store.path} has lost {counted(len(absent), 'chunk')}: {shorten(absent)}.", REMEDY)


def _absent(path: AnyPath, variable: str, rows: int) -> list[str]:
    array = open_array(str(path), variable).array
    present = {entry.key for entry in files_of(path / variable)}
    by_rows = schema.DIMENSIONS[variable][0] == schema.SAMPLE
    shape = (min(rows, array.shape[0]), *array.shape[1:]) if by_rows else array.shape
    counts = [ceil(size / step) for size, step in zip(shape, array.shards or array.chunks, strict=True)]
    keys = (chunk_key(array, index) for index in product(*map(range, counts)))
    return [key for key in keys if key not in present]


def files_of(folder: AnyPath) -> Iterator[FileInfo]:
    """Yield all chunk files of an array."""
    return (entry for entry in walk(folder) if not entry.key.endswith(schema.METADATA_FILE))

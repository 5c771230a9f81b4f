"""Writing a store: whole row blocks, one after the other, each aligned with the chunks.

A block is all the columns of one row of chunks, so no chunk is written twice. After each block the progress
file of the staging folder is replaced: the same call, interrupted at any moment, goes on from there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np
from dask.utils import format_bytes

from dsel._lib.versions import versions
from dsel.data import schema
from dsel.data.chunking import bounds
from dsel.data.formats.base import Array, Reader, Source
from dsel.data.labels import require_unique
from dsel.data.store.staging import DISK_FULL, Staging, check_place, output_errors, staging_of
from dsel.errors import CapacityError, DataError, OptionError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, walk, zarr_store

if TYPE_CHECKING:
    import zarr

Progress = Callable[[int, int], None]

OptionalArray = TypeVar("OptionalArray", Array, Array | None)

COMPRESSIONS: Final = ("none", "zstd", "lz4")


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did: shapes of X and Y, how they are stored, what it cost, and where it went on from."""

    shape: tuple[int, int]
    targets: int
    dtype: str
    chunks: tuple[int, int]
    bytes_written: int
    seconds: float
    resumed_rows: int


@dataclass(frozen=True)
class Plan:
    """What is to be written where. Two equal `key`s mean byte for byte the same chunks."""

    source: Source
    store: AnyPath
    chunks: tuple[int, int]
    compression: str
    memory: int  # bytes that one band of rows may take
    weighted: bool = False  # the last column of the source's Y are weights of the rows

    @property
    def staging(self) -> Staging:
        return staging_of(self.store)

    @property
    def key(self) -> dict[str, Any]:
        source = self.source
        return {
            "format": schema.FORMAT_VERSION,
            "source": source.identity(),
            "shape": list(source.shape),
            "dtype": str(source.dtype),
            "chunks": list(self.chunks),
            "compression": self.compression,
            **({"weighted": True} if self.weighted else {}),
        }

    @property
    def targets(self) -> int:
        """Columns of Y."""
        return 0 if self.source.y_shape is None else self.source.y_shape[1] - self.weighted

    @property
    def y_columns(self) -> int:
        """Columns in a chunk of Y: its rows are those of X, and it is not larger than a chunk of X."""
        if not self.targets or self.source.y_dtype is None:
            return 0
        largest = self.chunks[1] * self.source.dtype.itemsize // self.source.y_dtype.itemsize
        return max(1, min(self.targets, largest))

    @property
    def band_bytes(self) -> int:
        """Bytes on disk of one row of chunks, uncompressed. Chunks at the edge are stored whole."""
        (rows, columns), (_, n) = self.chunks, self.source.shape
        total = ceil(n / columns) * columns * self.source.dtype.itemsize
        if self.source.y_dtype is not None:
            pieces = ceil(self.targets / self.y_columns) if self.targets else 0
            total += (pieces * self.y_columns + self.weighted) * self.source.y_dtype.itemsize
        return rows * total


def write_store(
    plan: Plan, *, overwrite: bool, progress: Progress | None, attributes: dict[str, Any] | None = None
) -> IngestReport:
    """Write the source of `plan` into its store, going on where an interrupted call with an equal key
    stopped.

    `progress(rows_done, rows)` is called after each block. Memory: one band of rows if it fits `plan.memory`
    (otherwise the band lies in a temporary file), and a few copies of one chunk.

    Errors: OutputError (store exists, folder missing or not writable, another process writes it),
    CapacityError (disk), DataError (a value that cannot be stored; a source that changed meanwhile).
    """
    began = time.perf_counter()
    _check_source(plan.source)
    check_place(plan.store, overwrite)
    with output_errors(plan.store), plan.staging.locked() as lock:
        check_place(plan.store, overwrite)  # another process may have finished meanwhile
        key = json.loads(json.dumps(plan.key))
        start = plan.staging.rows_done(key)
        if start == 0:
            plan.staging.clear()
        _check_disk(plan, start)
        if start == 0:
            _create_arrays(plan)
            plan.staging.save(key, 0)
        if start < plan.source.shape[0]:
            _write_bands(plan, key, start, progress, lock)
        if json.loads(json.dumps(plan.key)) != key:
            plan.staging.clear()
            raise DataError(f"{plan.source.name} changed while it was read.", "Start again when it is at rest.")
        lock.require()
        _create_group(plan, attributes or {})
        plan.staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    seconds = time.perf_counter() - began
    return IngestReport(
        plan.source.shape, plan.targets, str(plan.source.dtype), plan.chunks, size, seconds, resumed_rows=start
    )


def _check_source(source: Source) -> None:
    remedy = "Both X and Y need at least one row and one column."
    if 0 in source.shape:
        raise DataError(f"{source.name}: X has shape {source.shape[0]} x {source.shape[1]}.", remedy)
    if source.y_shape is not None and 0 in source.y_shape:
        raise DataError(f"{source.name}: Y has shape {source.y_shape[0]} x {source.y_shape[1]}.", remedy)
    for labels, what in ((source.features, "feature"), (source.targets, "target")):
        if labels is not None:
            require_unique(labels, what, source.name, "Give every column a name of its own.")


def _check_disk(plan: Plan, start: int) -> None:
    bands = ceil((plan.source.shape[0] - start) / plan.chunks[0])
    spool = plan.band_bytes if plan.band_bytes > plan.memory else 0
    if isinstance(plan.store, ObjectPath):
        needed, free = spool, shutil.disk_usage(plan.staging.scratch).free
    else:
        needed, free = bands * plan.band_bytes + spool, shutil.disk_usage(plan.store.parent).free
    if plan.compression == "none" and needed > free:
        raise CapacityError(
            f"{plan.store} needs {format_bytes(needed)} more on a disk with {format_bytes(free)} free.",
            "Free some space, choose another disk, or try compression or a narrower dtype.",
        )


def _create_group(plan: Plan, attributes: dict[str, Any]) -> None:
    """The group's metadata, last: without them there is no store."""
    import zarr

    (plan.staging.group / schema.METADATA_FILE).unlink(missing_ok=True)  # of a call interrupted just before its end
    zarr.create_group(
        zarr_store(plan.staging.group),
        attributes={
            schema.ATTR_FORMAT: schema.FORMAT_VERSION,
            schema.ATTR_VERSION: versions()["dsel"],
            schema.ATTR_SOURCE: plan.source.name,
            schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
            **attributes,
        },
    )


def _create_arrays(plan: Plan) -> None:
    source, group = plan.source, plan.staging.group
    (m, n), (rows, columns) = source.shape, plan.chunks
    _create(group, schema.X, (m, n), (rows, columns), source.dtype, plan.compression)
    if source.y_dtype is not None and plan.targets:
        _create(group, schema.Y, (m, plan.targets), (rows, plan.y_columns), source.y_dtype, plan.compression)
    if source.y_dtype is not None and plan.weighted:
        _create(group, schema.WEIGHT, (m,), (rows,), source.y_dtype, plan.compression)
    if source.has_samples:
        _create(group, schema.SAMPLE, (m,), (rows,), "string", plan.compression)
    for variable, labels in ((schema.FEATURE, source.features), (schema.TARGET, source.targets)):
        if labels is not None:
            count = (len(labels),)
            array = _create(group, variable, count, count, "string", plan.compression)
            array[:] = np.array(labels, dtype=object)


def _create(
    group: AnyPath,
    variable: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any] | str,
    compression: str,
) -> zarr.Array[Any]:
    """An empty array. A lost chunk of floats reads as NaN, not as zeros; chunks of zeros are written too."""
    is_float = not isinstance(dtype, str) and dtype.kind == "f"
    import zarr

    return zarr.create_array(
        zarr_store(group / variable),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=_codecs(compression),
        filters=None,
        fill_value=np.nan if is_float else "" if isinstance(dtype, str) else 0,
        dimension_names=schema.DIMENSIONS[variable],
        config={"write_empty_chunks": True},
    )


def _codecs(compression: str) -> list[Any]:
    """Compressor, if any, and always the checksum: it costs little and finds every damaged chunk."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    if compression not in COMPRESSIONS:
        raise OptionError(f"compression={compression!r} is not known.", f"Use one of {', '.join(COMPRESSIONS)}.")
    if compression == "none":
        return [Crc32cCodec()]
    kind: Literal["zstd", "lz4"] = "zstd" if compression == "zstd" else "lz4"
    return [BloscCodec(cname=kind, clevel=3, shuffle="shuffle"), Crc32cCodec()]


def _write_bands(plan: Plan, key: dict[str, Any], start: int, progress: Progress | None, lock: Lock) -> None:
    """Fill one row of chunks after the other, from row `start` (a chunk boundary) on."""
    source, (rows, columns) = plan.source, plan.chunks
    m, n = source.shape
    arrays = _arrays(plan)
    reader = source.open(start, plan.staging.scratch)
    try:
        x = _band(plan, (rows, n), source.dtype)
        y = None
        if source.y_shape is not None and source.y_dtype is not None:
            y = _band(plan, (rows, source.y_shape[1]), source.y_dtype)
        samples = np.empty(rows, dtype=object) if source.has_samples else None
        for first in range(start, m, rows):
            count = min(rows, m - first)
            _fill(reader, _head(x, count), _head(y, count), _head(samples, count))
            lock.require()
            _store(arrays[schema.X], first, x[:count], columns)
            if y is not None and plan.targets:
                _store(arrays[schema.Y], first, y[:count, : plan.targets], plan.y_columns)
            if y is not None and plan.weighted:
                arrays[schema.WEIGHT][first : first + count] = y[:count, -1]
            if samples is not None:
                arrays[schema.SAMPLE][first : first + count] = samples[:count]
            plan.staging.save(key, first + count)
            if progress is not None:
                progress(first + count, m)
    finally:
        reader.close()


def _head(band: OptionalArray, count: int) -> OptionalArray:
    return band if band is None else band[:count]


def _fill(reader: Reader, x: Array, y: Array | None, samples: Array | None) -> None:
    try:
        reader.fill(x, y, samples)
    except OSError as error:  # of the source: not to be mistaken for one of the store
        if error.errno in DISK_FULL:
            raise
        raise DataError(f"The source cannot be read: {error}.", "Check the file and its disk.") from error


def _band(plan: Plan, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Room for one row of chunks: in memory, or, for wide data, in a temporary file."""
    if int(np.prod(shape, dtype=object)) * dtype.itemsize <= plan.memory:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=plan.staging.scratch) as file:  # nameless: it is gone when the map is
        return np.memmap(file, dtype, "w+", shape=shape)


def _arrays(plan: Plan) -> dict[str, zarr.Array[Any]]:
    """The arrays that grow with the rows, opened to be written."""
    import zarr

    found = {}
    for variable in (schema.X, schema.Y, schema.SAMPLE, schema.WEIGHT):
        array = plan.staging.group / variable
        if (array / schema.METADATA_FILE).is_file():
            # Not stored; open_array ignores config=, and zarr.config is all threads'.
            found[variable] = zarr.open_array(zarr_store(array), mode="r+").with_config({"write_empty_chunks": True})
    return found


def _store(array: zarr.Array[Any], first: int, band: Array, columns: int) -> None:
    """Write a band chunk by chunk: one encoded chunk at a time in memory."""
    edges = bounds(band.shape[1], columns)
    for left, right in pairwise(edges):
        array[first : first + len(band), left:right] = band[:, left:right]

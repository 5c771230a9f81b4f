"""Writing a store, one row of chunks after the other.

The rows of one row of chunks are written together, so that no chunk is written twice. After each the progress file of
the staging area is replaced. If the call is interrupted, the same call continues from there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from dask.utils import format_bytes

from dsel._lib.disk import DISK_FULL
from dsel._lib.versions import versions
from dsel.data import schema
from dsel.data.formats.base import Array, Reader, Rows, Source
from dsel.data.ingest_report import IngestReport, report_of
from dsel.data.labels import require_unique
from dsel.data.schema import bounds
from dsel.data.store.column_profile import ColumnProfile
from dsel.data.store.staging import Staging, check_place, output_errors, staging_of
from dsel.errors import CapacityError, DataError, OptionError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, walk, zarr_store

if TYPE_CHECKING:
    import zarr

Progress = Callable[[int, int], None]

COMPRESSIONS: Final = ("none", "zstd", "lz4")


@dataclass(frozen=True)
class WritePlan:
    """What is written where. Two plans with equal keys write the same chunks, byte for byte."""

    source: Source
    store: AnyPath
    chunks: tuple[int, int]
    compression: str
    memory: int  # bytes that the rows of one row of chunks may take

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
            **({} if source.w_dtype is None else {"weights": str(source.w_dtype)}),
        }

    @property
    def y_columns(self) -> int:
        """Columns of a chunk of Y. It has as many rows as a chunk of X, and is not larger."""
        if self.source.y_dtype is None:
            return 0
        largest = self.chunks[1] * self.source.dtype.itemsize // self.source.y_dtype.itemsize
        return max(1, min(self.source.n_targets, largest))

    @property
    def band_bytes(self) -> int:
        """Bytes on disk of one row of chunks, uncompressed. Chunks at the edge are stored in full."""
        source, (rows, columns) = self.source, self.chunks
        total = ceil(source.shape[1] / columns) * columns * source.dtype.itemsize
        if source.y_dtype is not None:
            total += ceil(source.n_targets / self.y_columns) * self.y_columns * source.y_dtype.itemsize
        if source.w_dtype is not None:
            total += source.w_dtype.itemsize
        return rows * total


def write_store(
    plan: WritePlan, *, overwrite: bool, progress: Progress | None, attributes: dict[str, Any] | None = None
) -> IngestReport:
    """Write the source of `plan` into its store, and continue where an interrupted call with an equal key stopped.

    `progress(rows_done, rows)` is called after each row of chunks. Memory: the rows of one row of chunks if they fit
    into `plan.memory` (otherwise they are in a temporary file), and a few copies of one chunk.

    Raises OutputError (the store exists, the folder is missing or not writable, another process writes it),
    CapacityError (disk), and DataError (a value cannot be stored, or the source has changed meanwhile).
    """
    began = time.perf_counter()
    _require_unique_labels(plan.source)
    check_place(plan.store, overwrite)
    with output_errors(plan.store), plan.staging.locked() as lock:
        check_place(plan.store, overwrite)  # another process may have finished meanwhile
        key = json.loads(json.dumps(plan.key))
        start = plan.staging.rows_done(key)
        text = plan.staging.state().get("profile") if start else None
        start = start if text else 0
        profile = ColumnProfile.from_text(text) if text else ColumnProfile.empty(plan.source.shape[1])
        if start == 0:
            plan.staging.clear()
        _check_disk(plan, start)
        if start == 0:
            _create_arrays(plan)
            plan.staging.save(key, 0, profile=profile.to_text())
        if start < plan.source.shape[0]:
            _write_bands(plan, key, start, progress, lock, profile)
        if json.loads(json.dumps(plan.key)) != key:
            plan.staging.clear()
            raise DataError(f"{plan.source.name} changed while it was read.", "Start again when nothing writes to it.")
        lock.require()
        _create_group(plan, attributes or {})
        plan.staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    return report_of(plan.source, profile, plan.chunks, size, time.perf_counter() - began, resumed_rows=start)


def _require_unique_labels(source: Source) -> None:
    for labels, what in ((source.features, "feature"), (source.targets, "target")):
        if labels is not None:
            require_unique(labels, what, source.name, "Give every column a unique name.")


def _check_disk(plan: WritePlan, start: int) -> None:
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


def _create_group(plan: WritePlan, attributes: dict[str, Any]) -> None:
    """Write the metadata of the group, last: without them there is no store."""
    import zarr

    (plan.staging.group / schema.METADATA_FILE).unlink(
        missing_ok=True
    )  # left by a call interrupted just before its end
    zarr.create_group(
        zarr_store(plan.staging.group),
        attributes={
            schema.ATTR_FORMAT: schema.FORMAT_VERSION,
            schema.ATTR_VERSION: versions()["dsel"],
            schema.ATTR_SOURCE: plan.source.name,
            schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="microseconds"),  # tells replaced stores apart
            **({schema.ATTR_CLASSES: plan.source.classes} if plan.source.classes else {}),
            **attributes,
        },
    )


def _create_arrays(plan: WritePlan) -> None:
    source, group = plan.source, plan.staging.group
    (m, n), (rows, columns) = source.shape, plan.chunks
    _create(group, schema.X, (m, n), (rows, columns), source.dtype, plan.compression)
    if source.y_dtype is not None:
        _create(group, schema.Y, (m, source.n_targets), (rows, plan.y_columns), source.y_dtype, plan.compression)
    if source.w_dtype is not None:
        _create(group, schema.WEIGHT, (m,), (rows,), source.w_dtype, plan.compression)
    if source.has_samples:
        _create(group, schema.SAMPLE, (m,), (rows,), "string", plan.compression)
    named = ((schema.FEATURE, source.features), (schema.TARGET, source.targets), (schema.SOURCE, source.sources))
    for variable, labels in named:
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
    """Create an empty array. A lost chunk of floats is read as NaN, not as zeros; chunks of zeros are written, too."""
    is_float = not isinstance(dtype, str) and dtype.kind == "f"
    import zarr

    return zarr.create_array(
        zarr_store(group / variable),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=compressors(compression),
        filters=None,
        fill_value=np.nan if is_float else "" if isinstance(dtype, str) else 0,
        dimension_names=schema.DIMENSIONS[variable],
        config={"write_empty_chunks": True},
    )


def compressors(compression: str) -> list[Any]:
    """Return the compressor, if any, and always the checksum: it costs little and finds every damaged chunk."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    if compression not in COMPRESSIONS:
        raise OptionError(f"compression={compression!r} is not known.", f"Use one of {', '.join(COMPRESSIONS)}.")
    if compression == "none":
        return [Crc32cCodec()]
    kind: Literal["zstd", "lz4"] = "zstd" if compression == "zstd" else "lz4"
    return [BloscCodec(cname=kind, clevel=3, shuffle="shuffle"), Crc32cCodec()]


def _write_bands(
    plan: WritePlan, key: dict[str, Any], start: int, progress: Progress | None, lock: Lock, profile: ColumnProfile
) -> None:
    """Write one row of chunks after the other, from row `start` (a chunk boundary) on."""
    source, height = plan.source, plan.chunks[0]
    m = source.shape[0]
    arrays = _arrays(plan)
    reader = source.open(start, plan.staging.scratch)
    try:
        band = new_band(source, height, plan.memory, plan.staging.scratch)
        for first in range(start, m, height):
            rows = band[: min(height, m - first)]
            fill_band(reader, rows)
            lock.require()
            last = first + len(rows)
            store_band(arrays, first, rows)
            profile.add(rows.x, first)
            plan.staging.save(key, last, profile=profile.to_text())
            if progress is not None:
                progress(last, m)
    finally:
        reader.close()


def fill_band(reader: Reader, rows: Rows) -> None:
    """Fill rows from a source. Raises DataError if it cannot be read."""
    try:
        reader.fill(rows)
    except OSError as error:  # of the source, not of the store
        if error.errno in DISK_FULL:
            raise
        raise DataError(f"The source cannot be read: {error}.", "Check the file and its disk.") from error


def new_band(source: Source, height: int, memory: int, scratch: Path) -> Rows:
    """Return empty arrays for the rows of one row of chunks. What is larger than `memory` is a file in `scratch`."""

    def empty(columns: int, dtype: np.dtype[Any]) -> Array:
        return _empty((height, columns), dtype, memory, scratch)

    return Rows(
        empty(source.shape[1], source.dtype),
        None if source.y_dtype is None else empty(source.n_targets, source.y_dtype),
        None if source.w_dtype is None else np.empty(height, source.w_dtype),
        np.empty(height, dtype=object) if source.has_samples else None,
    )


def _empty(shape: tuple[int, int], dtype: np.dtype[Any], memory: int, scratch: Path) -> Array:
    """Return an array in memory, or for wide data in a temporary file."""
    if int(np.prod(shape, dtype=object)) * dtype.itemsize <= memory:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=scratch) as file:  # it has no name, so it disappears with the map
        return np.memmap(file, dtype, "w+", shape=shape)


def _arrays(plan: WritePlan) -> dict[str, zarr.Array[Any]]:
    """Open the arrays that have rows, for writing."""
    import zarr

    found = {}
    for variable in (schema.X, schema.Y, schema.SAMPLE, schema.WEIGHT):
        array = plan.staging.group / variable
        if (array / schema.METADATA_FILE).is_file():
            # Not stored. open_array ignores config=, and zarr.config belongs to all threads.
            found[variable] = zarr.open_array(zarr_store(array), mode="r+").with_config({"write_empty_chunks": True})
    return found


def store_band(arrays: Mapping[str, zarr.Array[Any]], first: int, rows: Rows) -> None:
    """Write rows, of which the first is row `first`, to the arrays by name."""
    parts = ((schema.X, rows.x), (schema.Y, rows.y), (schema.WEIGHT, rows.w), (schema.SAMPLE, rows.samples))
    for name, part in parts:
        if part is not None:
            _store(arrays[name], first, part)


def _store(array: zarr.Array[Any], first: int, band: Array) -> None:
    """Write rows chunk by chunk, so that memory holds one encoded chunk at a time."""
    if band.ndim == 1:
        array[first : first + len(band)] = band
        return
    for left, right in pairwise(bounds(band.shape[1], (array.shards or array.chunks)[1])):
        array[first : first + len(band), left:right] = band[:, left:right]

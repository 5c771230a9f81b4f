"""Writing a store: one with a dense X one row of chunks after the other, one with a sparse X block by block.

The rows of one row of chunks are written together, so that no chunk is written twice. After each the progress file of
the staging area is replaced. If the call is interrupted, the same call continues from there.

A sparse store has the layout of AnnData. Chunks are written when they are full, each once. The progress file says from
which row a later call continues, how many values are before that row, and how much of each array is already written.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.disk import DISK_FULL
from dsel._lib.versions import versions
from dsel.config.ingest_request import IngestRequest, Progress
from dsel.data import schema
from dsel.data.formats.source import Array, Rows, Source, SparseBlock, SparseSource
from dsel.data.ingest_report import ColumnProfile, IngestReport, report_of
from dsel.data.labels import default_labels, require_unique
from dsel.data.schema import bounds
from dsel.data.store.sparse import DATA, INDICES, INDPTR, SAMPLES
from dsel.data.store.staging import Staging, check_place, output_errors, staging_of
from dsel.errors import CapacityError, DataError, OptionError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, walk, zarr_store

if TYPE_CHECKING:
    import zarr

#: ``save(rows, **more)`` records how many rows are written, and what else a later call needs to continue.
Save = Callable[..., None]

COMPRESSIONS: Final = ("none", "zstd", "lz4")

#: What is saved before the first row of a dense, or of a sparse X is written.
FIRST_ROWS: Final[dict[str, Any]] = {"rows": 0, "profile": ""}
FIRST_VALUES: Final[dict[str, Any]] = {"rows": 0, "values": 0, "written": {}}


@dataclass(frozen=True)
class StorePlan(ABC):
    """What is written where. Two plans with equal keys write the same chunks, byte for byte."""

    source: Source | SparseSource
    store: AnyPath
    compression: str
    #: What `write` begins with: no rows, and what else it saves.
    first_state: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise OptionError(f"compression={self.compression!r} is not known.", f"Use one of {known}.")

    @property
    def staging(self) -> Staging:
        return staging_of(self.store)

    @property
    def stored_key(self) -> dict[str, Any]:
        """The key as JSON gives it back."""
        stored: dict[str, Any] = json.loads(json.dumps(self.key))
        return stored

    @property
    @abstractmethod
    def key(self) -> dict[str, Any]:
        """What the written chunks depend on."""

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the group that only this kind of store has."""
        return {}

    @abstractmethod
    def create_arrays(self) -> None:
        """Create all arrays, those with a value for each row empty."""

    @abstractmethod
    def write(self, state: dict[str, Any], save: Save, progress: Progress | None, lock: Lock) -> ColumnProfile | None:
        """Write the rows from those on that `state` has, and save the state. Return what the columns hold, if known."""

    @property
    @abstractmethod
    def chunk_shape(self) -> tuple[int, ...]:
        """Rows and columns of a chunk of X; of a sparse X, values."""

    def check_disk(self, start: int) -> None:
        """Raise CapacityError if the rows from `start` on cannot fit."""
        return

    def create(
        self, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any] | str,
        attributes: dict[str, Any] | None = None,
    ) -> zarr.Array[Any]:  # fmt: skip
        """Create an empty array. A lost chunk of floats is read as NaN, not as zeros; chunks of zeros are written."""
        import zarr

        is_float = not isinstance(dtype, str) and dtype.kind == "f"
        return zarr.create_array(
            zarr_store(self.staging.group / name), shape=shape, chunks=chunks, dtype=dtype,
            compressors=compressors(self.compression), filters=None, attributes=attributes,
            fill_value=np.nan if is_float else "" if isinstance(dtype, str) else 0,
            dimension_names=schema.DIMENSIONS.get(name), config={"write_empty_chunks": True},
        )  # fmt: skip

    def open(self, names: Iterable[str]) -> dict[str, zarr.Array[Any]]:
        """Open the arrays that exist, for writing."""
        import zarr

        folders = {name: self.staging.group / name for name in names}
        return {
            # Not stored. open_array ignores config=, and zarr.config belongs to all threads.
            name: zarr.open_array(zarr_store(folder), mode="r+").with_config({"write_empty_chunks": True})
            for name, folder in folders.items()
            if (folder / schema.METADATA_FILE).is_file()
        }

    def create_group(self, more: dict[str, Any]) -> None:
        """Write the metadata of the group, last: without them there is no store."""
        import zarr

        source, group = self.source, self.staging.group
        (group / schema.METADATA_FILE).unlink(missing_ok=True)  # left by a call interrupted just before its end
        classes = {name: list(found) for name, found in source.classes.items()}
        attributes = {
            **self.attributes, schema.ATTR_FORMAT: schema.FORMAT_VERSION, schema.ATTR_VERSION: versions()["dsel"],
            schema.ATTR_SOURCE: source.name,
            schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="microseconds"),  # tells replaced stores apart
            **({schema.ATTR_CLASSES: classes} if classes else {}), **more,
        }  # fmt: skip
        zarr.create_group(zarr_store(group), attributes=attributes)


def write_store(plan: StorePlan, request: IngestRequest, attributes: dict[str, Any] | None = None) -> IngestReport:
    """Write the source of `plan` into its store, and continue where an interrupted call with an equal key stopped.

    `request.progress(rows_done, rows)` is called after each row of chunks or block. For a dense X, memory
    holds the rows of one row of chunks, and a few copies of one chunk. Rows that do not fit into `plan.memory` are in a
    temporary file. For a sparse X, memory holds a few blocks and chunks.

    Raises OutputError (the store exists, the folder is missing or not writable, another process writes it),
    CapacityError (disk), and DataError (labels repeat, a value cannot be stored, or the source has changed meanwhile).
    """
    began = time.perf_counter()
    source, staging = plan.source, plan.staging
    for labels, what in ((source.features, "feature"), (source.targets, "target")):
        if labels is not None:
            require_unique(labels, what, source.name, "Give every column a unique name.")
    check_place(plan.store, request.overwrite)
    with output_errors(plan.store), staging.locked() as lock:
        check_place(plan.store, request.overwrite)  # another process may have finished meanwhile
        key = plan.stored_key
        state = staging.state() if staging.rows_done(key) else {}
        if not plan.first_state.keys() <= state.keys():
            state = plan.first_state
        start = int(state["rows"])
        if start == 0:
            staging.clear()
        plan.check_disk(start)
        if start == 0:
            plan.create_arrays()
            staging.save(key, **state)
        profile = plan.write(state, partial(staging.save, key), request.progress, lock)
        if plan.stored_key != key:
            staging.clear()
            raise DataError(f"{source.name} changed while it was read.", "Start again when nothing writes to it.")
        lock.require()
        plan.create_group({**(attributes or {}), **({} if profile is None else _missing(profile))})
        staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    return report_of(source, profile, plan.chunk_shape, size, time.perf_counter() - began, start)


def _missing(profile: ColumnProfile) -> dict[str, int]:
    """Return the attributes of a store that say how many values are missing."""
    counts = {schema.ATTR_MISSING: profile.missing, schema.ATTR_MISSING_TARGETS: profile.missing_targets}
    return {name: int(count.sum()) for name, count in counts.items() if count.any()}


@dataclass(frozen=True)
class WritePlan(StorePlan):
    """A dense store."""

    source: Source
    chunks: tuple[int, int]
    memory: int  # bytes that the rows of one row of chunks may take
    first_state: ClassVar = FIRST_ROWS

    @property
    def key(self) -> dict[str, Any]:
        source = self.source
        return {
            "format": schema.FORMAT_VERSION, "source": source.identity(), "shape": list(source.shape),
            "dtype": str(source.dtype), "chunks": list(self.chunks), "compression": self.compression,
            **({} if source.w_dtype is None else {"weights": str(source.w_dtype)}),
        }  # fmt: skip

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

    def check_disk(self, start: int) -> None:
        bands = ceil((self.source.shape[0] - start) / self.chunks[0])
        spool = self.band_bytes if self.band_bytes > self.memory else 0
        if isinstance(self.store, ObjectPath):
            needed, free = spool, shutil.disk_usage(self.staging.scratch).free
        else:
            needed, free = bands * self.band_bytes + spool, shutil.disk_usage(self.store.parent).free
        if self.compression == "none" and needed > free:
            raise CapacityError(
                f"{self.store} needs {format_bytes(needed)} more on a disk with {format_bytes(free)} free.",
                "Free some space, choose another disk, or try compression or a narrower dtype.",
            )

    def create_arrays(self) -> None:
        source, ((m, n), (rows, columns)) = self.source, (self.source.shape, self.chunks)
        self.create(schema.X, (m, n), (rows, columns), source.dtype)
        if source.y_dtype is not None:
            self.create(schema.Y, (m, source.n_targets), (rows, self.y_columns), source.y_dtype)
        if source.w_dtype is not None:
            self.create(schema.WEIGHT, (m,), (rows,), source.w_dtype)
        if source.has_samples:
            self.create(schema.SAMPLE, (m,), (rows,), "string")
        named = ((schema.FEATURE, source.features), (schema.TARGET, source.targets), (schema.SOURCE, source.sources))
        for variable, labels in named:
            if labels is not None:
                count = (len(labels),)
                self.create(variable, count, count, "string")[:] = np.array(labels, dtype=object)

    def write(self, state: dict[str, Any], save: Save, progress: Progress | None, lock: Lock) -> ColumnProfile:
        edges = bounds(self.source.shape[0], self.chunks[0])
        left = [edge for edge in edges if edge >= state["rows"]]
        return write_bands(
            self.source, self.open(ROW_VARIABLES), left, 0, state, save, progress, lock, memory=self.memory,
            scratch=self.staging.scratch,
        )  # fmt: skip

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return self.chunks


def compressors(compression: str) -> list[Any]:
    """Return the compressor, if any, and always the checksum: it costs little and finds every damaged chunk."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    if compression == "none":
        return [Crc32cCodec()]
    kind: Literal["zstd", "lz4"] = "zstd" if compression == "zstd" else "lz4"
    return [BloscCodec(cname=kind, clevel=3, shuffle="shuffle"), Crc32cCodec()]


#: The variables of a dense store that have a value for each row.
ROW_VARIABLES: Final = (schema.X, schema.Y, schema.SAMPLE, schema.WEIGHT)


def write_bands(
    source: Source, arrays: Mapping[str, zarr.Array[Any]], edges: Sequence[int], before: int, state: dict[str, Any],
    save: Save, progress: Progress | None, lock: Lock, *, memory: int, scratch: Path,
) -> ColumnProfile:  # fmt: skip
    """Write one row of chunks after the other, save the state after each, and return what the columns hold.

    Parameters
    ----------
    source : Source
        The rows.
    arrays : mapping of str to zarr.Array
        The arrays by name, with their final lengths.
    edges : sequence of int
        The row of the arrays to begin with, and the ends of the rows of chunks.
    before : int
        The rows that the arrays have before those of the source.
    state : dict
        What an interrupted call saved.
    save, progress, lock
        As for `StorePlan.write`.
    memory : int
        Bytes that the rows of one row of chunks may take. Larger ones are in a file in `scratch`.
    scratch : Path
        A folder for temporary files.
    """
    text = state["profile"]
    profile = ColumnProfile.from_text(text) if text else ColumnProfile.empty(source.shape[1], source.n_targets)
    bands = list(pairwise(edges))
    if not bands:
        return profile
    with closing(source.open(edges[0] - before, scratch)) as reader:
        band = Rows.of(source, max(b - a for a, b in bands), partial(_empty, memory, scratch))
        for a, b in bands:
            rows = band[: b - a]
            try:
                reader.fill(rows)
            except OSError as error:  # of the source, not of the store
                if error.errno in DISK_FULL:
                    raise
                raise DataError(f"The source cannot be read: {error}.", "Check the file and its disk.") from error
            lock.require()
            parts = ((schema.X, rows.x), (schema.Y, rows.y), (schema.WEIGHT, rows.w), (schema.SAMPLE, rows.samples))
            for name, part in parts:
                if part is not None:
                    _store(arrays[name], a, part)
            profile.add(rows.x, a, rows.y)
            save(b - before, profile=profile.to_text())
            if progress is not None:
                progress(b - before, source.shape[0])
    return profile


def _empty(memory: int, scratch: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in memory, or for wide data in a temporary file."""
    if len(shape) == 1 or int(np.prod(shape, dtype=object)) * dtype.itemsize <= memory:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=scratch) as file:  # it has no name, so it disappears with the map
        return np.memmap(file, dtype, "w+", shape=shape)


def _store(array: zarr.Array[Any], first: int, band: Array) -> None:
    """Write rows chunk by chunk, so that memory holds one encoded chunk at a time."""
    if band.ndim == 1:
        array[first : first + len(band)] = band
        return
    for left, right in pairwise(bounds(band.shape[1], (array.shards or array.chunks)[1])):
        array[first : first + len(band), left:right] = band[:, left:right]


#: Values, and rows, in a chunk.
CHUNK_VALUES: Final = 1 << 21
CHUNK_ROWS: Final = 1 << 20

_ARRAY: Final = {"encoding-type": "array", "encoding-version": "0.2.0"}
_TEXT: Final = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


@dataclass(frozen=True)
class SparsePlan(StorePlan):
    """A sparse store."""

    source: SparseSource
    first_state: ClassVar = FIRST_VALUES

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (min(CHUNK_VALUES, max(1, self.source.stored)),)

    @property
    def key(self) -> dict[str, Any]:
        source = self.source
        return {
            "format": schema.FORMAT_VERSION, "sparse": True, "source": source.identity(),
            "shape": list(source.shape), "stored": source.stored, "dtype": str(source.dtype),
            "chunks": [*self.chunk_shape, CHUNK_ROWS], "compression": self.compression,
            "columns": {name: str(dtype) for name, dtype in source.columns.items()},
        }  # fmt: skip

    @property
    def attributes(self) -> dict[str, Any]:
        source = self.source
        return {
            "encoding-type": "anndata", "encoding-version": "0.1.0", schema.ATTR_TARGETS: list(source.targets),
            **({} if source.weight is None else {schema.ATTR_WEIGHT: source.weight}),
        }  # fmt: skip

    def create_arrays(self) -> None:
        """Create the arrays and the groups X, obs and var."""
        import zarr

        source, (m, n), values = self.source, self.source.shape, self.chunk_shape
        index = np.dtype(np.int32 if n < 1 << 31 else np.int64)
        rows = (max(1, min(m, CHUNK_ROWS)),)
        self.create(DATA, (source.stored,), values, source.dtype)
        self.create(INDICES, (source.stored,), values, index)
        self.create(INDPTR, (m + 1,), (min(m + 1, CHUNK_ROWS),), np.dtype(np.int64))
        self.create(SAMPLES, (m,), rows, "string", _TEXT)
        for name, dtype in source.columns.items():
            self.create(f"obs/{name}", (m,), rows, dtype, _ARRAY)
        labels = source.features if source.features is not None else default_labels("x", n)
        self.create("var/_index", (n,), (max(1, n),), "string", _TEXT)[:] = np.array(labels, dtype=object)
        table = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
        groups: dict[str, dict[str, Any]] = {
            "X": {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [m, n]},
            "obs": {**table, "column-order": list(source.columns)},
            "var": {**table, "column-order": []},
        }
        for name, attributes in groups.items():
            zarr.create_group(zarr_store(self.staging.group / name), attributes=attributes, overwrite=False)

    def write(self, state: dict[str, Any], save: Save, progress: Progress | None, lock: Lock) -> None:
        arrays = self.open((DATA, INDICES, INDPTR, SAMPLES, *(f"obs/{name}" for name in self.source.columns)))
        write_values(self.source, arrays, state, save, progress, lock)


class _Appender:
    """Writes consecutive values to an array, in whole chunks. Values that were written before are skipped.

    It holds one chunk at most, so that memory does not grow with the array.
    """

    def __init__(self, array: Any, position: int, written: int) -> None:
        self._array, self._position, self.written = array, position, written
        self._chunk = array.chunks[0]
        self._buffer: Array | None = None
        self._held = 0

    def append(self, values: Array) -> None:
        skip = min(len(values), max(0, self.written - self._position))
        self._position += len(values)
        values = values[skip:]
        while len(values):
            room = self._chunk - (self.written + self._held) % self._chunk
            part, values = values[:room], values[room:]
            if self._buffer is None:
                dtype = part.dtype if part.dtype.kind == "O" else self._array.dtype
                self._buffer = np.empty(min(self._chunk, self._array.shape[0]), dtype)
            self._buffer[self._held : self._held + len(part)] = part
            self._held += len(part)
            if len(part) == room:
                self._write()
        if self._position == self._array.shape[0]:
            self._write()

    def _write(self) -> None:
        if self._buffer is not None and self._held:
            self._array[self.written : self.written + self._held] = self._buffer[: self._held]
            self.written += self._held
            self._held = 0


def write_values(
    source: SparseSource, arrays: Mapping[str, Any], state: dict[str, Any], save: Save,
    progress: Progress | None, lock: Lock, *, rows: int = 0, values: int = 0,
) -> None:  # fmt: skip
    """Write the blocks of a source to the arrays of a store, block by block.

    Parameters
    ----------
    source : SparseSource
        The rows.
    arrays : mapping of str to zarr.Array
        The arrays by name, with their final lengths.
    state : dict
        What an interrupted call saved: rows and values before the block to continue with, and the length written of
        each array.
    save : callable
        ``save(rows, values=..., written=...)`` saves that after each block.
    progress : callable, optional
        Called as ``progress(rows_done, rows)``.
    lock : Lock
        It must be held while something is written.
    rows, values : int
        The rows and values that the arrays have before these.
    """
    start, written = int(state["rows"]), state["written"]
    before = {name: values if name in (DATA, INDICES) else rows + (name == INDPTR and rows > 0) for name in arrays}
    positions = {
        name: values + state["values"] if name in (DATA, INDICES) else rows + start + (name == INDPTR)
        for name in arrays
    }  # fmt: skip
    is_new = not rows and not start
    if is_new:
        positions[INDPTR] = 0
    appenders = {
        name: _Appender(array, positions[name], written.get(name, before[name])) for name, array in arrays.items()
    }  # fmt: skip
    if is_new:
        appenders[INDPTR].append(np.zeros(1, np.int64))
    ends: list[tuple[int, int]] = [(start, state["values"])]  # rows, and the values before them
    for block in _from_row(source, start):
        lock.require()
        _append(appenders, block, rows, values)
        stop, last = block.start + block.rows.shape[0], block.first + int(block.rows.nnz)
        ends.append((stop, last))
        written = {name: appender.written for name, appender in appenders.items()}
        whole_values = min(written[DATA], written[INDICES]) - values
        whole_rows = min(length for name, length in written.items() if name not in (DATA, INDICES)) - rows
        row, end = max((pair for pair in ends if pair[0] <= whole_rows and pair[1] <= whole_values), default=ends[0])
        ends = [pair for pair in ends if pair[0] >= row]
        save(row, values=end, written=written)
        if progress is not None:
            progress(stop, source.shape[0])


def _append(appenders: dict[str, _Appender], block: SparseBlock, before: int, values: int) -> None:
    """Append a block to the arrays that have these rows and values before the source."""
    rows = block.rows
    appenders[DATA].append(np.asarray(rows.data))
    appenders[INDICES].append(np.asarray(rows.indices))
    appenders[INDPTR].append(np.asarray(rows.indptr[1:], np.int64) + block.first + values)
    labels = block.samples
    if labels is None:
        labels = [str(before + i) for i in range(block.start, block.start + rows.shape[0])]
    appenders[SAMPLES].append(np.array(labels, dtype=object))
    for name, column in block.columns.items():
        appenders[f"obs/{name}"].append(np.asarray(column))


def _from_row(source: SparseSource, start: int) -> Iterator[SparseBlock]:
    """Yield the blocks from row `start` on; the first may have to be cut."""
    if start == source.shape[0]:
        return
    for block in source.blocks(start):
        cut = max(0, start - block.start)
        if not cut:
            yield block
            continue
        before = int(block.rows.indptr[cut])
        columns = {name: values[cut:] for name, values in block.columns.items()}
        samples = None if block.samples is None else block.samples[cut:]
        yield SparseBlock(start, block.first + before, block.rows[cut:], columns, samples)

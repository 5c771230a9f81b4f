"""Writing a sparse store in the layout of AnnData, block by block.

Chunks are written when they are full, each once. The progress file says from which row a later call continues, how many
values are before that row, and how much of each array is already written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import numpy as np

from dsel._lib.versions import versions
from dsel.data import schema
from dsel.data.formats.base import Array, SparseBlock, SparseSource
from dsel.data.ingest_report import IngestReport
from dsel.data.labels import default_labels, require_unique
from dsel.data.store.staging import Staging, check_place, output_errors, staging_of
from dsel.data.store.writer import Progress, compressors
from dsel.errors import DataError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, walk, zarr_store

#: Values, and rows, in a chunk.
CHUNK_VALUES: Final = 1 << 21
CHUNK_ROWS: Final = 1 << 20

#: The arrays of a store: values, their columns, the ends of the rows, and labels of the rows.
DATA, INDICES, INDPTR, SAMPLES = "X/data", "X/indices", "X/indptr", "obs/_index"
_ARRAY: Final = {"encoding-type": "array", "encoding-version": "0.2.0"}
_TEXT: Final = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


@dataclass(frozen=True)
class SparsePlan:
    """What is written where. Two plans with equal keys write the same chunks, byte for byte."""

    source: SparseSource
    store: AnyPath
    compression: str

    @property
    def staging(self) -> Staging:
        return staging_of(self.store)

    @property
    def chunk_values(self) -> int:
        return min(CHUNK_VALUES, max(1, self.source.stored))

    @property
    def key(self) -> dict[str, Any]:
        source = self.source
        return {
            "format": schema.FORMAT_VERSION, "sparse": True, "source": source.identity(),
            "shape": list(source.shape), "stored": source.stored, "dtype": str(source.dtype),
            "chunks": [self.chunk_values, CHUNK_ROWS], "compression": self.compression,
            "columns": {name: str(dtype) for name, dtype in source.columns.items()},
        }  # fmt: skip


def write_sparse_store(
    plan: SparsePlan, *, overwrite: bool, progress: Progress | None, attributes: dict[str, Any] | None = None
) -> IngestReport:
    """Write the source of `plan` into its store, and continue where an interrupted call with an equal key stopped.

    `progress(rows_done, rows)` is called after each block. Memory: a few blocks and chunks.

    Raises OutputError, CapacityError, and DataError if the source has changed meanwhile or labels repeat.
    """
    began = time.perf_counter()
    source, staging = plan.source, plan.staging
    if source.features is not None:
        require_unique(list(source.features), "feature", source.name, "Give every column a unique name.")
    check_place(plan.store, overwrite)
    with output_errors(plan.store), staging.locked() as lock:
        check_place(plan.store, overwrite)
        key = json.loads(json.dumps(plan.key))
        start = staging.rows_done(key)
        state = staging.state() if start else {"rows": 0, "values": 0, "written": {}}
        if start == 0:
            staging.clear()
            _create(plan)
            staging.save(key, 0)
        write_values(source, _open_arrays(plan), state, partial(staging.save, key), progress, lock)
        if json.loads(json.dumps(plan.key)) != key:
            staging.clear()
            raise DataError(f"{source.name} changed while it was read.", "Start again when nothing writes to it.")
        lock.require()
        _create_group(plan, attributes or {})
        staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    notes = (*source.notes, *(f"targets are {', '.join(source.targets)}" for _ in source.targets[:1]))
    return IngestReport(
        source.shape, len(source.targets), str(source.dtype), (plan.chunk_values,), size, time.perf_counter() - began,
        resumed_rows=start, types={str(source.dtype): source.shape[1]}, stored=source.stored, notes=notes,
        classes={name: list(found) for name, found in source.classes.items()},
    )  # fmt: skip


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
            self._hold(part)
            if len(part) == room:
                self._write()
        if self._position == self._array.shape[0]:
            self._write()

    def _hold(self, part: Array) -> None:
        if self._buffer is None:
            dtype = part.dtype if part.dtype.kind == "O" else self._array.dtype
            self._buffer = np.empty(min(self._chunk, self._array.shape[0]), dtype)
        self._buffer[self._held : self._held + len(part)] = part
        self._held += len(part)

    def _write(self) -> None:
        if self._buffer is not None and self._held:
            self._array[self.written : self.written + self._held] = self._buffer[: self._held]
            self.written += self._held
            self._held = 0


def write_values(
    source: SparseSource, arrays: Mapping[str, Any], state: dict[str, Any], save: Callable[..., None],
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
        enough = [
            (row, end) for row, end in ends
            if values + end <= min(appenders[DATA].written, appenders[INDICES].written)
            and all(rows + row <= part.written for name, part in appenders.items() if name not in (DATA, INDICES))
        ]  # fmt: skip
        row, end = enough[-1] if enough else ends[0]
        ends = [one for one in ends if one[0] >= row]
        save(row, values=end, written={name: part.written for name, part in appenders.items()})
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


def _create(plan: SparsePlan) -> None:
    """Create the arrays and the groups X, obs and var."""
    import zarr

    source, group = plan.source, plan.staging.group
    (m, n), values = source.shape, plan.chunk_values
    index = np.dtype(np.int32 if n < 1 << 31 else np.int64)
    rows = min(m, CHUNK_ROWS)
    _array(plan, DATA, source.stored, values, source.dtype, {})
    _array(plan, INDICES, source.stored, values, index, {})
    _array(plan, INDPTR, m + 1, min(m + 1, CHUNK_ROWS), np.dtype(np.int64), {})
    _array(plan, SAMPLES, m, rows, "string", _TEXT)
    for name, dtype in source.columns.items():
        _array(plan, f"obs/{name}", m, rows, dtype, _ARRAY)
    labels = source.features if source.features is not None else default_labels("x", n)
    _array(plan, "var/_index", n, n, "string", _TEXT)[:] = np.array(labels, dtype=object)
    table = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
    groups: dict[str, dict[str, Any]] = {
        "X": {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [m, n]},
        "obs": {**table, "column-order": list(source.columns)},
        "var": {**table, "column-order": []},
    }
    for name, attributes in groups.items():
        zarr.create_group(zarr_store(group / name), attributes=attributes, overwrite=False)


def _array(
    plan: SparsePlan, name: str, size: int, chunk: int, dtype: np.dtype[Any] | str, attributes: dict[str, Any]
) -> Any:
    """Create an array of one dimension; as in dense stores, every chunk is written and has a checksum."""
    import zarr

    is_float = not isinstance(dtype, str) and dtype.kind == "f"
    return zarr.create_array(
        zarr_store(plan.staging.group / name), shape=(size,), chunks=(max(1, chunk),), dtype=dtype,
        compressors=compressors(plan.compression), filters=None,
        fill_value=np.nan if is_float else "" if isinstance(dtype, str) else 0, attributes=attributes,
        config={"write_empty_chunks": True},
    )  # fmt: skip


def _open_arrays(plan: SparsePlan) -> dict[str, Any]:
    import zarr

    names = [DATA, INDICES, INDPTR, SAMPLES, *(f"obs/{name}" for name in plan.source.columns)]
    opened = {name: zarr.open_array(zarr_store(plan.staging.group / name), mode="r+") for name in names}
    return {name: array.with_config({"write_empty_chunks": True}) for name, array in opened.items()}


def _create_group(plan: SparsePlan, more: dict[str, Any]) -> None:
    """Write the metadata of the group, last: without them there is no store."""
    import zarr

    (plan.staging.group / schema.METADATA_FILE).unlink(missing_ok=True)
    source = plan.source
    attributes: dict[str, Any] = {
        "encoding-type": "anndata", "encoding-version": "0.1.0",
        schema.ATTR_FORMAT: schema.FORMAT_VERSION, schema.ATTR_VERSION: versions()["dsel"],
        schema.ATTR_SOURCE: source.name, schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="microseconds"),
        schema.ATTR_TARGETS: list(source.targets), **more,
    }  # fmt: skip
    if source.weight is not None:
        attributes[schema.ATTR_WEIGHT] = source.weight
    if source.classes:
        attributes[schema.ATTR_CLASSES] = {name: list(found) for name, found in source.classes.items()}
    zarr.create_group(zarr_store(plan.staging.group), attributes=attributes)

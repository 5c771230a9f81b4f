"""Writing a sparse store in the layout of AnnData, block by block.

Chunks are written when they are full, each once. The progress file says from which row a later call continues, how many
values are before that row, and how much of each array is already written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from dsel._lib.versions import versions
from dsel.data import schema
from dsel.data.formats.base import Array
from dsel.data.formats.sparse import SparseBlock, SparseSource
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

_DATA, _INDICES, _INDPTR, _SAMPLES = "X/data", "X/indices", "X/indptr", "obs/_index"
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


def write_sparse_store(plan: SparsePlan, *, overwrite: bool, progress: Progress | None) -> IngestReport:
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
        state = staging.state() if start else {"values": 0, "written": {}}
        if start == 0:
            staging.clear()
            _create(plan)
            staging.save(key, 0)
        _write_blocks(plan, key, start, state, progress, lock)
        if json.loads(json.dumps(plan.key)) != key:
            staging.clear()
            raise DataError(f"{source.name} changed while it was read.", "Start again when nothing writes to it.")
        lock.require()
        _create_group(plan)
        staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    notes = (*source.notes, *(f"targets are {', '.join(source.targets)}" for _ in source.targets[:1]))
    return IngestReport(
        source.shape, len(source.targets), str(source.dtype), (plan.chunk_values,), size, time.perf_counter() - began,
        resumed_rows=start, types={str(source.dtype): source.shape[1]}, stored=source.stored, notes=notes,
        classes={name: list(found) for name, found in source.classes.items()},
    )  # fmt: skip


class _Appender:
    """Writes consecutive values to an array, in whole chunks. Values that were written before are skipped."""

    def __init__(self, array: Any, position: int, written: int) -> None:
        self._array, self._position, self.written = array, position, written
        self._parts: list[Array] = []
        self._held = 0

    def append(self, values: Array) -> None:
        skip = min(len(values), max(0, self.written - self._position))
        self._position += len(values)
        if skip < len(values):
            self._parts.append(values[skip:])
            self._held += len(values) - skip
        chunk = self._array.chunks[0]
        is_last = self._position == self._array.shape[0]
        count = self._held if is_last else self._held - self._held % chunk
        if count:
            held = np.concatenate(self._parts)
            for first in range(0, count, chunk):
                piece = held[first : min(first + chunk, count)]
                self._array[self.written : self.written + len(piece)] = piece
                self.written += len(piece)
            self._parts, self._held = [held[count:]], len(held) - count


def _write_blocks(
    plan: SparsePlan, key: dict[str, Any], start: int, state: dict[str, Any], progress: Progress | None, lock: Lock
) -> None:
    source, m = plan.source, plan.source.shape[0]
    written = state["written"]
    arrays = _open_arrays(plan)
    positions = {name: state["values"] if name in (_DATA, _INDICES) else start + (name == _INDPTR) for name in arrays}
    if not start:
        positions[_INDPTR] = 0
    appenders = {name: _Appender(array, positions[name], written.get(name, 0)) for name, array in arrays.items()}
    if not start:
        appenders[_INDPTR].append(np.zeros(1, np.int64))
    ends: list[tuple[int, int]] = [(start, state["values"])]  # rows, and the values before them
    for block in _from_row(source, start):
        lock.require()
        _append(appenders, block)
        stop, values = block.start + block.rows.shape[0], block.first + int(block.rows.nnz)
        ends.append((stop, values))
        enough = [
            (row, before) for row, before in ends
            if before <= min(appenders[_DATA].written, appenders[_INDICES].written)
            and all(row <= part.written for name, part in appenders.items() if name not in (_DATA, _INDICES))
        ]  # fmt: skip
        row, before = enough[-1] if enough else ends[0]
        ends = [end for end in ends if end[0] >= row]
        done = {name: part.written for name, part in appenders.items()}
        plan.staging.save(key, row, values=before, written=done)
        if progress is not None:
            progress(stop, m)


def _append(appenders: dict[str, _Appender], block: SparseBlock) -> None:
    rows = block.rows
    appenders[_DATA].append(np.asarray(rows.data))
    appenders[_INDICES].append(np.asarray(rows.indices))
    appenders[_INDPTR].append(np.asarray(rows.indptr[1:], np.int64) + block.first)
    labels = block.samples
    if labels is None:
        labels = [str(i) for i in range(block.start, block.start + rows.shape[0])]
    appenders[_SAMPLES].append(np.array(labels, dtype=object))
    for name, values in block.columns.items():
        appenders[f"obs/{name}"].append(np.asarray(values))


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
    _array(plan, _DATA, source.stored, values, source.dtype, {})
    _array(plan, _INDICES, source.stored, values, index, {})
    _array(plan, _INDPTR, m + 1, min(m + 1, CHUNK_ROWS), np.dtype(np.int64), {})
    _array(plan, _SAMPLES, m, rows, "string", _TEXT)
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

    names = [_DATA, _INDICES, _INDPTR, _SAMPLES, *(f"obs/{name}" for name in plan.source.columns)]
    opened = {name: zarr.open_array(zarr_store(plan.staging.group / name), mode="r+") for name in names}
    return {name: array.with_config({"write_empty_chunks": True}) for name, array in opened.items()}


def _create_group(plan: SparsePlan) -> None:
    """Write the metadata of the group, last: without them there is no store."""
    import zarr

    (plan.staging.group / schema.METADATA_FILE).unlink(missing_ok=True)
    source = plan.source
    attributes: dict[str, Any] = {
        "encoding-type": "anndata", "encoding-version": "0.1.0",
        schema.ATTR_FORMAT: schema.FORMAT_VERSION, schema.ATTR_VERSION: versions()["dsel"],
        schema.ATTR_SOURCE: source.name, schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        schema.ATTR_TARGETS: list(source.targets),
    }  # fmt: skip
    if source.weight is not None:
        attributes[schema.ATTR_WEIGHT] = source.weight
    if source.classes:
        attributes[schema.ATTR_CLASSES] = {name: list(found) for name, found in source.classes.items()}
    zarr.create_group(zarr_store(plan.staging.group), attributes=attributes)

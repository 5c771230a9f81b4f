"""Writing a sparse X, block by block.

The store has the layout of AnnData. Chunks are written when they are full, each once. The progress file says from which
row a later call continues, how many values are before that row, and how much of each array is already written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from dsel.config.ingest_request import Progress
from dsel.data import schema
from dsel.data.formats.source import Array, SparseBlock, SparseSource
from dsel.data.labels import default_labels
from dsel.data.store.sparse import DATA, INDICES, INDPTR, SAMPLES
from dsel.data.store.writer import Save, StorePlan
from dsel.storage.locks import Lock
from dsel.storage.paths import zarr_store

if TYPE_CHECKING:
    pass

#: Values, and rows, in a chunk.
CHUNK_VALUES: Final = 1 << 21
CHUNK_ROWS: Final = 1 << 20

#: What is saved before the first row is written.
FIRST_VALUES: Final[dict[str, Any]] = {"rows": 0, "values": 0, "written": {}}

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
        classes = {name: list(levels) for name, levels in source.classes.items()}
        return {
            "encoding-type": "anndata", "encoding-version": "0.1.0", schema.ATTR_TARGETS: list(source.targets),
            **({} if source.weight is None else {schema.ATTR_WEIGHT: source.weight}),
            **({schema.ATTR_CLASSES: classes} if classes else {}),
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

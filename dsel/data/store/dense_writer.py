"""Writing a dense X, one row of chunks after the other.

The rows of one row of chunks are written together, so that no chunk is written twice.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.disk import DISK_FULL
from dsel.config.ingest_request import Progress
from dsel.data import schema
from dsel.data.formats.source import Array, Rows, Source
from dsel.data.ingest_report import ColumnProfile
from dsel.data.schema import bounds
from dsel.data.store.writer import Save, StorePlan
from dsel.errors import CapacityError, DataError
from dsel.storage.locks import Lock
from dsel.storage.paths import ObjectPath

if TYPE_CHECKING:
    import zarr

#: The variables of a dense store that have a value for each row.
ROW_VARIABLES: Final = (schema.X, schema.Y, schema.SAMPLE, schema.WEIGHT)
#: What is saved before the first row is written.
FIRST_ROWS: Final[dict[str, Any]] = {"rows": 0, "profile": ""}


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

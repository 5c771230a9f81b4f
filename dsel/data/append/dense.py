"""Append rows to a store with a dense X.

Append rows to a store with a sparse X.

The arrays of a store while rows are appended: written beyond what readers see, and published at the end.

The order of an append, under the lock that keeps other writers out:

1. The list of segments records that an append has begun.
2. The chunks are written. The last one that holds old rows is replaced as a whole, and its old rows stay as they are.
3. The arrays get their new lengths.
4. The list of segments gets the new one. This write, of the metadata of the group, publishes the rows.

Readers take the number of rows from the list of segments. So before step 4 they see the old rows, and afterwards all.
What an append wrote that did not reach step 4 lies beyond these rows, and the next append replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from dsel._lib.types import Ints
from dsel.data import schema
from dsel.data.append.matching import StoreColumns, match_source, match_sparse
from dsel.data.formats.base import Source, SparseBlock, SparseSource
from dsel.data.labels import default_labels
from dsel.data.store.array import open_array, read_labels
from dsel.data.store.column_profile import ColumnProfile
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.data.store.sparse_writer import DATA, INDICES, INDPTR, SAMPLES, write_values
from dsel.data.store.staging import Staging
from dsel.data.store.writer import Progress, fill_band, new_band, store_band
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, walk, write_bytes, zarr_store


@dataclass(frozen=True)
class GrowingArray:
    """An array of a store to which rows are appended.

    Parameters
    ----------
    store : AnyPath
        The store.
    name : str
        The array in it, such as X or obs/weight.
    first, last : int
        Its length before and after the append.
    """

    store: AnyPath
    name: str
    first: int
    last: int

    @property
    def folder(self) -> AnyPath:
        return self.store / self.name

    @property
    def height(self) -> int:
        """Length of one file: a chunk, or a shard."""
        return int(self._metadata()["chunk_grid"]["configuration"]["chunk_shape"][0])

    def open(self) -> Any:
        """Return the array with its new length, for writing. Its metadata stay as they are."""
        import zarr

        metadata = json.dumps(self._metadata(self.last)).encode()
        array = zarr.open_array(zarr_store(self.folder, metadata=metadata), mode="r+")
        return array.with_config({"write_empty_chunks": True})

    def publish(self) -> None:
        """Write the new length."""
        write_metadata(self.folder, self._metadata(self.last))

    def remove_unpublished(self) -> None:
        """Remove chunks that lie beyond the old length, which another append wrote and did not publish."""
        beyond = ceil(self.first / self.height)
        for number, key in list(self._chunks()):
            if number >= beyond:
                (self.folder / key).unlink()

    def _chunks(self) -> Iterator[tuple[int, str]]:
        """Yield the row of chunks and the key of each file, such as c/3/0."""
        for entry in walk(self.folder):
            parts = entry.key.split("/")
            if parts[0] == "c" and len(parts) > 1 and all(part.isdigit() for part in parts[1:]):
                yield int(parts[1]), entry.key

    def _metadata(self, length: int | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / schema.METADATA_FILE).read_text())
        if length is not None:
            found["shape"][0] = length
        return found


def remove_temporary(folder: AnyPath) -> None:
    """Remove temporary files on disk, below an array or directly in a group, that a killed writer left."""
    if isinstance(folder, ObjectPath):
        return
    for left in (*folder.glob(f".{schema.METADATA_FILE}-*"), *folder.glob("c/**/*.partial")):
        left.unlink(missing_ok=True)


def write_metadata(folder: AnyPath, metadata: Mapping[str, Any]) -> None:
    """Replace the metadata of a group or an array; readers see the old or the new ones."""
    write_bytes(folder / schema.METADATA_FILE, json.dumps(metadata, indent=2).encode())


_OF_ROWS = (schema.X, schema.Y, schema.WEIGHT, schema.SAMPLE)


def columns_of(store: Store) -> StoreColumns:
    """Return what rows must have to be appended to a store."""

    def dtype(name: str) -> np.dtype[Any] | None:
        return np.dtype(open_array(str(store.path), name).array.dtype) if _has(store, name) else None

    sources = read_labels(store.path, schema.SOURCE, store.shape[1])
    return StoreColumns(
        name=str(store.path), features=store.features.tolist(), named=_has(store, schema.FEATURE), dtype=store.dtype,
        targets=store.targets.tolist(), targets_named=_has(store, schema.TARGET), y_dtype=dtype(schema.Y),
        w_dtype=dtype(schema.WEIGHT), has_samples=_has(store, schema.SAMPLE),
        sources=None if sources is None else sources.tolist(), classes=store.attributes.get(schema.ATTR_CLASSES, {}),
    )  # fmt: skip


def _has(store: Store, name: str) -> bool:
    return (store.path / name / schema.METADATA_FILE).is_file()


@dataclass(frozen=True)
class DenseRows:
    """The rows of a source that are appended to a store with a dense X.

    Parameters
    ----------
    source : Source
        The rows, with the columns of the store.
    store : Store
        The store.
    memory : int
        Bytes that the rows of one row of chunks may take.
    """

    source: Source
    store: Store
    memory: int

    @classmethod
    def of(cls, source: Source, store: Store, memory: int) -> DenseRows:
        """Return the rows of a source in the order of columns of the store. Raises DataError if they do not fit."""
        return cls(match_source(source, columns_of(store)), store, memory)

    @property
    def rows(self) -> int:
        return self.source.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows of X and Y."""
        source = self.source
        y = 0 if source.y_dtype is None else source.n_targets * source.y_dtype.itemsize
        return source.shape[0] * (source.shape[1] * source.dtype.itemsize + y)

    @property
    def arrays(self) -> list[GrowingArray]:
        m = self.store.shape[0]
        names = (name for name in _OF_ROWS if _has(self.store, name))
        return [GrowingArray(self.store.path, name, m, m + self.rows) for name in names]

    @property
    def description(self) -> dict[str, Any]:
        """Return what the written chunks depend on."""
        source = self.source
        return {"source": source.identity(), "shape": list(source.shape), "dtype": str(source.dtype)}

    def write(self, state: dict[str, Any], staging: Staging, progress: Progress | None, lock: Lock) -> ColumnProfile:
        """Write the rows one row of chunks after the other, from those that `state` has, and save it after each."""
        source, first, n = self.source, self.store.shape[0], self.source.shape[1]
        text = state.get("profile")
        profile = ColumnProfile.from_text(text) if text else ColumnProfile.empty(n)
        start = int(state["rows"]) if text else 0
        arrays = {array.name: array.open() for array in self.arrays}
        edges = list(self._edges(first + start))
        if len(edges) < 2:
            return profile
        height = max(b - a for a, b in pairwise(edges))
        with closing(source.open(start, staging.scratch)) as reader:
            band = new_band(source, height, self.memory, staging.scratch)
            for a, b in pairwise(edges):
                rows = band[: b - a]
                fill_band(reader, rows)
                lock.require()
                store_band(arrays, a, rows)
                profile.add(rows.x, a)
                staging.save(state["key"], b - first, profile=profile.to_text())
                if progress is not None:
                    progress(b - first, self.rows)
        return profile

    def publish(self) -> None:
        """Write the new lengths of the arrays."""
        for array in self.arrays:
            array.publish()

    def _edges(self, start: int) -> Iterator[int]:
        """Yield the row `start`, the ends of the rows of chunks after it, and the last row."""
        height, last = open_array(str(self.store.path), schema.X).files[0], self.store.shape[0] + self.rows
        yield start
        yield from range((start // height + 1) * height, last, height)
        if start < last:
            yield last


@dataclass(frozen=True)
class SparseRows:
    """The rows of a source that are appended to a store with a sparse X.

    Parameters
    ----------
    source : SparseSource
        The rows, with the columns of the store.
    store : SparseStore
        The store.
    """

    source: SparseSource
    store: SparseStore

    @classmethod
    def of(cls, source: SparseSource, store: SparseStore) -> SparseRows:
        """Return the rows of a source in the columns of the store. Raises DataError if they do not fit."""
        obs = {name: np.dtype(open_array(str(store.path), f"obs/{name}").array.dtype) for name in store.obs}
        labels = store.features.tolist()
        columns = StoreColumns(
            name=str(store.path), features=labels, named=labels != default_labels("x", len(labels)),
            dtype=store.dtype, classes=store.attributes.get(schema.ATTR_CLASSES),
        )  # fmt: skip
        n = source.shape[1]
        if source.features is None and n < len(labels):  # the last columns of a text file may have no value
            n = len(labels)
        places = match_sparse(source.features, n, source.dtype, source.columns, source.name, columns, obs)
        return cls(MatchedSparse(source, store, places, obs), store)

    @property
    def rows(self) -> int:
        return self.source.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the values and of their columns."""
        indices = open_array(str(self.store.path), INDICES).array.dtype.itemsize
        return self.source.stored * (self.store.dtype.itemsize + int(indices))

    @property
    def arrays(self) -> list[GrowingArray]:
        (m, _), stored = self.store.shape, self.store.stored
        path, rows = self.store.path, self.rows
        values = [GrowingArray(path, name, stored, stored + self.source.stored) for name in (DATA, INDICES)]
        others = [GrowingArray(path, name, m, m + rows) for name in (SAMPLES, *(f"obs/{c}" for c in self.store.obs))]
        return [*values, GrowingArray(path, INDPTR, m + 1, m + 1 + rows), *others]

    @property
    def description(self) -> dict[str, Any]:
        """Return what the written chunks depend on."""
        source = self.source
        return {"source": source.identity(), "shape": list(source.shape), "stored": source.stored}

    def write(self, state: dict[str, Any], staging: Staging, progress: Progress | None, lock: Lock) -> None:
        """Write the rows block by block, from those that `state` has, and save it after each."""
        start = {"rows": 0, "values": 0, "written": {}} | state
        save = partial(staging.save, state["key"])
        arrays = {array.name: array.open() for array in self.arrays}
        write_values(
            self.source, arrays, start, save, progress, lock, rows=self.store.shape[0], values=self.store.stored
        )  # fmt: skip

    def publish(self) -> None:
        """Write the new lengths of the arrays, and the shape of X, which AnnData reads."""
        for array in self.arrays:
            array.publish()
        folder = self.store.path / schema.X
        metadata = json.loads((folder / schema.METADATA_FILE).read_text())
        metadata["attributes"]["shape"] = [self.store.shape[0] + self.rows, self.store.shape[1]]
        write_metadata(folder, metadata)


class MatchedSparse(SparseSource):
    """A sparse source with the columns of a store."""

    def __init__(
        self, source: SparseSource, store: SparseStore, places: Ints, obs: Mapping[str, np.dtype[Any]]
    ) -> None:
        for name in SparseSource.__annotations__:
            setattr(self, name, getattr(source, name))
        self._source, self._places, self._obs = source, places, obs
        self.shape, self.features = (source.shape[0], store.shape[1]), store.features.tolist()

    def identity(self) -> dict[str, Any]:
        return self._source.identity()

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        from scipy.sparse import csr_matrix

        for block in self._source.blocks(start):
            found, r = block.rows, block.rows.shape[0]
            rows = csr_matrix((found.data, self._places[found.indices], found.indptr), shape=(r, self.shape[1]))
            rows.sort_indices()
            columns = {name: block.columns.get(name, np.zeros(r, dtype)) for name, dtype in self._obs.items()}
            yield SparseBlock(block.start, block.first, rows, columns, block.samples)

"""The rows that are appended to a store with a dense or a sparse X, and the arrays that grow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, ClassVar

import numpy as np

from dsel.config.ingest_request import Progress
from dsel.data import schema
from dsel.data.append.matching import MatchedSparse, StoreColumns, match_source, match_sparse
from dsel.data.formats.source import Source, SparseSource
from dsel.data.ingest_report import ColumnProfile
from dsel.data.labels import default_labels
from dsel.data.store import dense_writer, sparse_writer
from dsel.data.store.array import open_array, read_labels
from dsel.data.store.reader import Store
from dsel.data.store.sparse import DATA, INDICES, INDPTR, SAMPLES, SparseStore
from dsel.data.store.staging import Staging
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, described_array, walk, write_bytes


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

    def open(self) -> Any:
        """Return the array with its new length, for writing. Its metadata stay as they are."""
        return described_array(self.folder, self._metadata()).with_config({"write_empty_chunks": True})

    def publish(self) -> None:
        """Write the new length."""
        write_metadata(self.folder, self._metadata())

    def remove_unpublished(self) -> None:
        """Remove chunks that lie beyond the old length, which another append wrote and did not publish."""
        height = int(self._metadata()["chunk_grid"]["configuration"]["chunk_shape"][0])  # of a chunk, or a shard
        for entry in list(walk(self.folder)):
            chunk = re.fullmatch(r"c/(\d+)(/\d+)*", entry.key)  # such as c/3/0
            if chunk and int(chunk[1]) >= ceil(self.first / height):
                (self.folder / entry.key).unlink()

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata with the new length."""
        found: dict[str, Any] = json.loads((self.folder / schema.METADATA_FILE).read_text())
        found["shape"][0] = self.last
        return found


def write_metadata(folder: AnyPath, metadata: Mapping[str, Any]) -> None:
    """Replace the metadata of a group or an array; readers see the old or the new ones."""
    write_bytes(folder / schema.METADATA_FILE, json.dumps(metadata, indent=2).encode())


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
    #: What `write` begins with: no rows, and what else it saves.
    first_state: ClassVar = dense_writer.FIRST_ROWS

    @classmethod
    def of(cls, source: Source, store: Store, memory: int) -> DenseRows:
        """Return the rows of a source in the order of columns of the store. Raises DataError if they do not fit."""
        return cls(match_source(source, columns_of(store)), store, memory)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory."""
        source = self.source
        y = 0 if source.y_dtype is None else source.n_targets * source.y_dtype.itemsize
        return source.shape[0] * (source.shape[1] * source.dtype.itemsize + y)

    @property
    def arrays(self) -> list[GrowingArray]:
        """The arrays that grow."""
        m = self.store.shape[0]
        names = (name for name in dense_writer.ROW_VARIABLES if _has(self.store, name))
        return [GrowingArray(self.store.path, name, m, m + self.source.shape[0]) for name in names]

    @property
    def description(self) -> dict[str, Any]:
        """What the written chunks depend on."""
        source = self.source
        return {"source": source.identity(), "shape": list(source.shape), "dtype": str(source.dtype)}

    def write(self, state: dict[str, Any], staging: Staging, progress: Progress | None, lock: Lock) -> ColumnProfile:
        """Write the rows from those on that `state` has, and save it. Return what the columns hold."""
        before = self.store.shape[0]
        start, last = before + int(state["rows"]), before + self.source.shape[0]
        height = open_array(str(self.store.path), schema.X).files[0]
        edges = [start, *range((start // height + 1) * height, last, height), *([last] if start < last else [])]
        return dense_writer.write_bands(
            self.source, {array.name: array.open() for array in self.arrays}, edges, before, state,
            partial(staging.save, state["key"]), progress, lock, memory=self.memory, scratch=staging.scratch,
        )  # fmt: skip


@dataclass(frozen=True)
class SparseRows:
    """The rows of a source that are appended to a store with a sparse X, with the methods of `DenseRows`."""

    source: SparseSource
    store: SparseStore
    first_state: ClassVar = sparse_writer.FIRST_VALUES

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
        places = match_sparse(source, n, columns, obs)
        return cls(MatchedSparse(source, store, places, obs), store)

    @property
    def nbytes(self) -> int:
        indices = open_array(str(self.store.path), INDICES).array.dtype.itemsize
        return self.source.stored * (self.store.dtype.itemsize + int(indices))

    @property
    def arrays(self) -> list[GrowingArray]:
        (m, _), stored = self.store.shape, self.store.stored
        path, rows = self.store.path, self.source.shape[0]
        obs = (SAMPLES, *(f"obs/{column}" for column in self.store.obs))
        last = stored + self.source.stored
        values = [GrowingArray(path, name, stored, last) for name in (DATA, INDICES)]
        others = [GrowingArray(path, name, m, m + rows) for name in obs]
        return [*values, GrowingArray(path, INDPTR, m + 1, m + 1 + rows), *others]

    @property
    def description(self) -> dict[str, Any]:
        source = self.source
        return {"source": source.identity(), "shape": list(source.shape), "stored": source.stored}

    def write(self, state: dict[str, Any], staging: Staging, progress: Progress | None, lock: Lock) -> None:
        sparse_writer.write_values(
            self.source, {array.name: array.open() for array in self.arrays}, state,
            partial(staging.save, state["key"]), progress, lock, rows=self.store.shape[0], values=self.store.stored,
        )  # fmt: skip

    def publish_shape(self) -> None:
        """Write the shape of X, which AnnData reads."""
        folder = self.store.path / schema.X
        metadata = json.loads((folder / schema.METADATA_FILE).read_text())
        metadata["attributes"]["shape"] = [self.store.shape[0] + self.source.shape[0], self.store.shape[1]]
        write_metadata(folder, metadata)

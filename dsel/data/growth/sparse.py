"""Append rows to a store with a sparse X."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.types import Ints
from dsel.data import schema
from dsel.data.formats.sparse import SparseBlock, SparseSource
from dsel.data.growth.matching import StoreColumns, match_sparse
from dsel.data.growth.publication import GrowingArray, write_metadata
from dsel.data.labels import default_labels
from dsel.data.store.array import open_array
from dsel.data.store.sparse import SparseStore
from dsel.data.store.sparse_writer import DATA, INDICES, INDPTR, SAMPLES, write_values
from dsel.data.store.staging import Staging
from dsel.data.store.writer import Progress
from dsel.storage.locks import Lock


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

"""Append rows to a store with a dense X."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dsel.data import schema
from dsel.data.formats.base import Source
from dsel.data.growth.matching import StoreColumns, match_source
from dsel.data.growth.publication import GrowingArray
from dsel.data.store.array import open_array, read_labels
from dsel.data.store.column_profile import ColumnProfile
from dsel.data.store.reader import Store
from dsel.data.store.staging import Staging
from dsel.data.store.writer import Progress, fill_band, new_band, store_band
from dsel.storage.locks import Lock

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

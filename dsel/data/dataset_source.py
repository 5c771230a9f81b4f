"""Data in memory as a source for a store: the row blocks that `dsel.select` reads, whatever object they come from."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.formats.annotated import WEIGHT
from dsel.data.formats.source import (
    PieceReader,
    Reader,
    Rows,
    Source,
    SourceOptions,
    SparseBlock,
    SparseSource,
    buffer_rows,
    put,
    wanted_dtype,
)
from dsel.data.labels import Labels, coordinate_values, default_labels, is_a
from dsel.data.schema import SOURCE

_FLOAT: Final = np.dtype(np.float64)


def source_of(dataset: Dataset, options: SourceOptions) -> Source | SparseSource:
    """Return a dataset in memory, or one that is computed lazily, as a source of a dense or a sparse store."""
    first = dataset.blocks[0]
    is_sparse = not first.lazy and hasattr(first.x, "tocsr")
    return SparseDatasetSource(dataset, options) if is_sparse else DatasetSource(dataset, options)


class DatasetSource(Source):
    """A dataset with a dense X. One row block is in memory at a time."""

    def __init__(self, dataset: Dataset, options: SourceOptions) -> None:
        self.name, self.shape, self._blocks = "arrays", (dataset.m, dataset.n), dataset.blocks
        self._identity = {"object": uuid4().hex}
        self.dtype = wanted_dtype(options.dtype, dataset.dtype or _FLOAT, "X")
        self.features, self.targets = _given(dataset.features, "x"), _given(dataset.targets, "y")
        self.n_targets = dataset.n_targets
        if self.n_targets:
            self.y_dtype = wanted_dtype(None, _dtype(dataset.blocks[0].y), "Y")
        if dataset.weights is not None:
            self.w_dtype = _FLOAT
        self.classes, self.notes = dataset.classes, dataset.notes
        labels = dataset.row_labels if is_a(dataset.row_labels, "xarray", "DataArray") else None
        self._samples = [] if labels is None else list(map(str, coordinate_values(labels, whole=False)))
        self.has_samples = labels is not None
        sources = dataset.coordinates.get(SOURCE)
        self.sources = None if sources is None else sources.tolist()

    def identity(self) -> dict[str, Any]:
        return self._identity

    def open(self, start: int, scratch: Path) -> Reader:
        return PieceReader(self._pieces(start))

    def _pieces(self, start: int) -> Generator[Rows, None, None]:
        step = buffer_rows(self)
        for block in self._blocks:
            if block.stop <= start:
                continue
            x, y = _values(block)
            for first in range(max(0, start - block.start), len(x), step):
                piece, row = slice(first, min(first + step, len(x))), block.start + first
                rows = Rows.of(self, piece.stop - first)
                put(rows.x, x[piece], "X", row, self.features)
                if rows.y is not None:
                    put(rows.y, y[piece], "Y", row, self.targets)
                if rows.w is not None:
                    rows.w[:] = block.w[piece]
                if rows.samples is not None:
                    rows.samples[:] = self._samples[row : row + len(rows)]
                yield rows


class SparseDatasetSource(SparseSource):
    """A dataset in memory with a sparse X."""

    def __init__(self, dataset: Dataset, options: SourceOptions) -> None:
        self.name, self.shape, self._blocks = "arrays", (dataset.m, dataset.n), dataset.blocks
        self._identity = {"object": uuid4().hex}
        self.dtype = wanted_dtype(options.dtype, dataset.dtype or _FLOAT, "X")
        self.features, self.classes = _given(dataset.features, "x"), dataset.classes
        self.targets = tuple(label.replace("/", "_") for label in dataset.targets.tolist())  # a slash is a folder
        self.stored = sum(int(block.x.nnz) for block in dataset.blocks)
        self.columns = dict.fromkeys(self.targets, _FLOAT)
        if dataset.n_targets:
            self.columns = dict.fromkeys(self.targets, wanted_dtype(None, _dtype(dataset.blocks[0].y), "Y"))
        if dataset.weights is not None:
            self.weight = WEIGHT
            self.columns[WEIGHT] = _FLOAT

    def identity(self) -> dict[str, Any]:
        return {**self._identity, "dtype": str(self.dtype)}

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        before = 0
        for block in self._blocks:
            first, before = before, before + int(block.x.nnz)
            if block.stop > start:
                columns = {} if block.y is None else dict(zip(self.targets, np.asarray(block.y).T, strict=True))
                columns |= {} if block.w is None else {WEIGHT: np.asarray(block.w)}
                yield SparseBlock(block.start, first, block.x.astype(self.dtype), columns)


def _given(labels: Labels, prefix: str) -> list[str] | None:
    """Return labels; None for those that a store without labels has."""
    found: list[str] = labels.tolist()
    return None if found == default_labels(prefix, len(found)) else found


def _dtype(part: Any) -> np.dtype[Any]:
    """Return the dtype of Y. Blocks that are computed later have none, and are stored as float64."""
    found = getattr(part, "dtype", None)
    return found if isinstance(found, np.dtype) else _FLOAT


def _values(block: Block) -> tuple[Any, Any]:
    """Return X and Y of a block as arrays."""
    if not block.lazy:
        return block.x, block.y
    from dask.base import compute

    x, y = compute(block.x, block.y)  # type: ignore[no-untyped-call]
    return np.asarray(x), None if y is None else np.asarray(y)

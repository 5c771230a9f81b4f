"""A source with weights of its rows: they travel as the last column of Y, and the writer splits them off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsel.data.formats.base import Array, Reader, Source, file_identity, put, wanted_dtype
from dsel.data.formats.npy import NpyArray, NpyRows
from dsel.errors import DataError


class WeightedSource:
    """`inner` and one more column in Y: from an array of its own, or (None) the last target that `inner` has."""

    def __init__(self, inner: Source, weights: NpyArray | None) -> None:
        self.name, self.shape, self.dtype = inner.name, inner.shape, inner.dtype
        self.has_samples, self.features = inner.has_samples, inner.features
        self._inner, self._weights = inner, weights
        if weights is None:
            self.targets = None if inner.targets is None else list(inner.targets)[:-1] or None
            self.y_shape, self.y_dtype = inner.y_shape, inner.y_dtype
            return
        if weights.columns != 1 or weights.rows != self.shape[0]:
            raise DataError(
                f"{weights.where} has shape {weights.shape} and X {self.shape[0]} rows.",
                "Weights are one number for each sample.",
            )
        self.targets = None if inner.targets is None else list(inner.targets)
        self.y_shape = (self.shape[0], (0 if inner.y_shape is None else inner.y_shape[1]) + 1)
        own = wanted_dtype(None, weights.dtype, weights.where)
        self.y_dtype = own if inner.y_dtype is None else np.result_type(own, inner.y_dtype)

    def identity(self) -> dict[str, Any]:
        weights = self._weights
        of = None if weights is None else {**file_identity(weights.path), "member": weights.member}
        return {**self._inner.identity(), "weight": of}

    def open(self, start: int, scratch: Path) -> Reader:
        reader = self._inner.open(start, scratch)
        return reader if self._weights is None else _Joined(reader, NpyRows(self._weights, start, scratch))


class _Joined:
    """Fills all columns of Y but the last by one reader, and the last from an array."""

    def __init__(self, reader: Reader, weights: NpyRows) -> None:
        self._reader, self._weights = reader, weights

    def fill(self, x: Array, y: Array | None, samples: Array | None) -> None:
        assert y is not None
        self._reader.fill(x, y[:, :-1] if y.shape[1] > 1 else None, samples)
        first = self._weights.row
        for at, _, values in self._weights.pieces(len(y)):
            put(y[at, -1:], values, self._weights.array.where, first + at.start)

    def close(self) -> None:
        self._reader.close()
        self._weights.close()

"""Arrays in memory as a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel.data.formats.base import Array, Reader, Rows, Source, file_identity, put, wanted_dtype
from dsel.data.labels import require_unique
from dsel.errors import DataError
from dsel.storage.paths import AnyPath


class ArraySource(Source):
    """X, and optionally Y, weights and labels, in memory.

    Parameters
    ----------
    x : array, shape (m, n)
        The data matrix.
    y : array, shape (m, N) or (m,), optional
        The targets.
    features, targets, samples : sequence of str, optional
        Labels of the columns of X and of Y, and of the rows.
    weight : array, shape (m,), optional
        Weights of the samples.
    name : str
        The name of the file, recorded in the store.
    files : sequence of AnyPath
        The files that the arrays come from. An interrupted ingest continues only if they are named and unchanged.
    dtype : str, optional
        The dtype in which X is stored; by default its own.

    Raises
    ------
    DataError
        If shapes, dtypes or labels do not fit.
    """

    def __init__(
        self, x: Array, y: Array | None = None, *, features: Sequence[str] | None = None,
        targets: Sequence[str] | None = None, samples: Sequence[str] | None = None, weight: Array | None = None,
        name: str = "arrays", files: Sequence[AnyPath] = (), dtype: str | None = None,
    ) -> None:  # fmt: skip
        if x.ndim != 2:
            raise DataError(f"X has shape {x.shape}.", "It must have two dimensions: (samples, features).")
        self.name, self._files, self._token, self._x = name, tuple(files), uuid4().hex, x
        self.shape = (x.shape[0], x.shape[1])
        self.dtype = wanted_dtype(dtype, x.dtype, "X")
        self._y = y.reshape(-1, 1) if y is not None and y.ndim == 1 else y
        if self._y is not None:
            if self._y.ndim != 2 or len(self._y) != len(x) or not self._y.shape[1]:
                raise DataError(
                    f"Y has shape {self._y.shape} and X has {len(x)} rows.", "Y must be (samples, targets)."
                )
            self.n_targets = self._y.shape[1]
            self.y_dtype = wanted_dtype(None, self._y.dtype, "Y")
        self._w = None if weight is None else np.asarray(weight)
        if self._w is not None:
            if self._w.shape != (len(x),):
                raise DataError(
                    f"weight has shape {self._w.shape} and X {len(x)} rows.", "Give one number for each row."
                )
            self.w_dtype = wanted_dtype(None, self._w.dtype, "weight")
        self.features = _labels(features, "feature", self.shape[1])
        self.targets = _labels(targets, "target", self.n_targets)
        self._samples = None if samples is None else np.array([str(label) for label in samples], dtype=object)
        if self._samples is not None and len(self._samples) != len(x):
            raise DataError(f"{len(self._samples)} sample labels for {len(x)} rows.", "Give one for each row.")
        self.has_samples = self._samples is not None

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(file) for file in self._files]} if self._files else {"object": self._token}

    def open(self, start: int, scratch: Path) -> Reader:
        return _ArrayReader(Rows(self._x, self._y, self._w, self._samples), start)


class _ArrayReader(Reader):
    def __init__(self, source: Rows, start: int) -> None:
        self._source, self._row = source, start

    def fill(self, rows: Rows) -> None:
        part = self._source[self._row : self._row + len(rows)]
        put(rows.x, part.x, "X", self._row)
        if rows.y is not None and part.y is not None:
            put(rows.y, part.y, "Y", self._row)
        if rows.w is not None and part.w is not None:
            put(rows.w[:, None], part.w[:, None], "weight", self._row)
        if rows.samples is not None and part.samples is not None:
            rows.samples[:] = part.samples
        self._row += len(rows)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _labels(labels: Sequence[str] | None, what: str, count: int) -> list[str] | None:
    if labels is None:
        return None
    if len(labels) != count:
        raise DataError(f"{len(labels)} {what} labels for {count} columns.", "Give one for each column.")
    found = [str(label) for label in labels]
    require_unique(found, what, "arrays", "Give every column a unique name.")
    return found

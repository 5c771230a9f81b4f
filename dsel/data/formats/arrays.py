"""Arrays in memory as a source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import numpy as np

from dsel.data.formats.lazy_arrays import LazyArray, LazySource, Parts
from dsel.data.formats.source import Array, file_identity
from dsel.data.labels import require_unique
from dsel.errors import DataError
from dsel.storage.paths import AnyPath


class ArraySource(LazySource):
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
        if y is not None:
            y = y.reshape(-1, 1) if y.ndim == 1 else y
            if y.ndim != 2 or len(y) != len(x) or not y.shape[1]:
                raise DataError(f"Y has shape {y.shape} and X has {len(x)} rows.", "Y must be (samples, targets).")
        w = None if weight is None else np.asarray(weight)
        if w is not None and w.shape != (len(x),):
            raise DataError(f"weight has shape {w.shape} and X {len(x)} rows.", "Give one number for each row.")
        if samples is not None and len(samples) != len(x):
            raise DataError(f"{len(samples)} sample labels for {len(x)} rows.", "Give one for each row.")
        parts = Parts(
            LazyArray.of(x, "X"), None if y is None else LazyArray.of(y, "Y"),
            None if w is None else LazyArray.of(w, "weight"), _labels(features, "feature", x.shape[1]),
            _labels(targets, "target", 0 if y is None else y.shape[1]),
            None if samples is None else lambda start, stop: samples[start:stop],
        )  # fmt: skip
        super().__init__(lambda: nullcontext(parts), name, {"object": uuid4().hex}, dtype)
        self._files, self.types = tuple(files), {}

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(file) for file in self._files]} if self._files else self._identity


def _labels(labels: Sequence[str] | None, what: str, count: int) -> list[str] | None:
    if labels is None:
        return None
    if len(labels) != count:
        raise DataError(f"{len(labels)} {what} labels for {count} columns.", "Give one for each column.")
    found = [str(label) for label in labels]
    require_unique(found, what, "arrays", "Give every column a unique name.")
    return found

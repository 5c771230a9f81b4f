"""From a file or from arrays to a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel.data.chunking import DEFAULT_WORKER_MEMORY, choose_chunks
from dsel.data.formats import open_source
from dsel.data.formats.base import Array, Reader, Source, put, wanted_dtype
from dsel.data.labels import require_unique
from dsel.data.store.writer import COMPRESSIONS, IngestReport, Plan, Progress, write_store
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, as_path

__all__ = ["IngestReport", "ingest", "ingest_arrays", "write_source"]


def ingest(
    source: str | AnyPath,
    store: str | AnyPath,
    *,
    y: str | AnyPath | None = None,
    target: Sequence[str | int] = (),
    index: str | int | None = None,
    weight: str | int | None = None,
    dtype: str | None = None,
    compression: str = "none",
    worker_memory: int | None = None,
    chunks: tuple[int, int] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """Write the file `source` (.npy, .npz, .csv, .tsv, .parquet) into a new `store`, whatever its size. Either may be
    an s3://, gs:// or az:// URL.

    `y`: a second .npy file with the targets. `target`, `index`: columns of a table that become Y and the
    sample labels, by name or position. `weight`: the column of a table, the array of an .npz or a second .npy file that
    holds weights of the rows. `dtype`: of X (default: the source's own, float64 for text).
    `compression`: none, zstd or lz4. `chunks`: rows and columns of a chunk, chosen for `worker_memory` bytes
    (default 1 GiB) when not given. `progress(rows_done, rows)` is called after each row of chunks.

    Interrupted, the same call goes on at the last finished row of chunks, if neither the source nor the
    options changed, and starts clean otherwise. The values are stored as they are: NaN is found by the
    statistics pass.

    Cost: one pass over the source (text: two), memory up to about half of `worker_memory`.
    Errors: MissingInputError, OptionError, DataError, MissingExtraError about the source; OutputError and
    CapacityError about the store.
    """
    targets = None if y is None else as_path(y)
    opened = open_source(as_path(source), y=targets, target=tuple(target), index=index, dtype=dtype, weight=weight)
    return write_source(
        opened,
        as_path(store),
        compression=compression,
        worker_memory=worker_memory,
        chunks=chunks,
        overwrite=overwrite,
        progress=progress,
        weighted=weight is not None,
    )


def ingest_arrays(
    x: Array,
    store: str | AnyPath,
    *,
    y: Array | None = None,
    features: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    samples: Sequence[str] | None = None,
    weight: Array | None = None,
    compression: str = "none",
    chunks: tuple[int, int] | None = None,
    overwrite: bool = False,
) -> IngestReport:
    """Write arrays that are in memory, X (m x n) and optionally Y (m x N or m) and weights (m,), into a new `store`.

    features, targets, samples: labels of X's columns, Y's columns and the rows, by default x0, y0, ...; compression:
    none, zstd or lz4; chunks: rows and columns of a chunk of X, by default those that suit a worker of 1 GiB.
    Errors: DataError for shapes, dtypes or labels that do not fit; OptionError for chunks or a compression that there
    are not; OutputError and CapacityError about the store.
    """
    source = ArraySource(x, y, features, targets, samples, weight)
    return write_source(
        source,
        as_path(store),
        compression=compression,
        chunks=chunks,
        overwrite=overwrite,
        weighted=weight is not None,
    )


def write_source(
    source: Source,
    store: AnyPath,
    *,
    compression: str = "none",
    worker_memory: int | None = None,
    chunks: tuple[int, int] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    attributes: dict[str, Any] | None = None,
    weighted: bool = False,
) -> IngestReport:
    """Write an opened source; `attributes` are added to those of the group; `weighted`: the last column of its Y are
    weights of the rows. See `ingest`."""
    if compression not in COMPRESSIONS:
        raise OptionError(f"compression={compression!r} is not known.", f"Use one of {', '.join(COMPRESSIONS)}.")
    memory = DEFAULT_WORKER_MEMORY if worker_memory is None else worker_memory
    if 0 in source.shape:
        raise DataError(
            f"{source.name}: X has shape {source.shape[0]} x {source.shape[1]}.",
            "X needs at least one row and one column.",
        )
    if chunks is None:
        chunks = choose_chunks(source.shape, source.dtype.itemsize, worker_memory=memory)
    elif min(chunks) < 1:
        raise OptionError(f"chunks={chunks}: a chunk has at least one row and one column.", "Leave it out.")
    fitted = (min(chunks[0], source.shape[0]), min(chunks[1], source.shape[1]))
    plan = Plan(source, store.absolute(), fitted, compression, memory=max(1, memory // 4), weighted=weighted)
    return write_store(plan, overwrite=overwrite, progress=progress, attributes=attributes)


class ArraySource:
    """Arrays in memory as a source. It has no identity, so an interrupted write of it starts clean."""

    name = "arrays"

    def __init__(
        self,
        x: Array,
        y: Array | None,
        features: Sequence[str] | None,
        targets: Sequence[str] | None,
        samples: Sequence[str] | None,
        weight: Array | None = None,
    ) -> None:
        if x.ndim != 2:
            raise DataError(f"X has shape {x.shape}.", "It must have two dimensions: (samples, features).")
        self._token = uuid4().hex
        self._x = x
        self._y = _with_weight(y.reshape(-1, 1) if y is not None and y.ndim == 1 else y, weight, len(x))
        self.shape = (x.shape[0], x.shape[1])
        self.dtype = wanted_dtype(None, x.dtype, "X")
        self.y_shape = self.y_dtype = None
        if self._y is not None:
            if self._y.ndim != 2 or len(self._y) != len(x):
                raise DataError(
                    f"Y has shape {self._y.shape} and X has {len(x)} rows.", "Y must be (samples, targets)."
                )
            self.y_shape = (self._y.shape[0], self._y.shape[1])
            self.y_dtype = wanted_dtype(None, self._y.dtype, "Y")
        self.features = _labels(features, "feature", self.shape[1])
        self.targets = _labels(targets, "target", 0 if self.y_shape is None else self.y_shape[1] - (weight is not None))
        self._samples = None if samples is None else [str(label) for label in samples]
        if self._samples is not None and len(self._samples) != len(x):
            raise DataError(f"{len(self._samples)} sample labels for {len(x)} rows.", "Give one for each row.")
        self.has_samples = self._samples is not None

    def identity(self) -> dict[str, Any]:
        return {"object": self._token}

    def open(self, start: int, scratch: Path) -> Reader:
        return _ArrayReader(self._x, self._y, self._samples)


def _with_weight(y: Array | None, weight: Array | None, rows: int) -> Array | None:
    """Y with the weights as one more column."""
    if weight is None:
        return y
    if np.shape(weight) != (rows,) or (y is not None and len(y) != rows):
        raise DataError(f"weight has shape {np.shape(weight)} and X {rows} rows.", "Give one number for each row.")
    column = np.asarray(weight).reshape(-1, 1)
    return column if y is None else np.hstack([y, column])


class _ArrayReader:
    def __init__(self, x: Array, y: Array | None, samples: list[str] | None) -> None:
        self._x, self._y, self._samples = x, y, samples
        self._row = 0

    def fill(self, x: Array, y: Array | None, samples: Array | None) -> None:
        rows = slice(self._row, self._row + len(x))
        put(x, self._x[rows], "X", self._row)
        if y is not None and self._y is not None:
            put(y, self._y[rows], "Y", self._row)
        if samples is not None and self._samples is not None:
            samples[:] = np.array(self._samples[rows], dtype=object)
        self._row += len(x)

    def close(self) -> None:
        """Nothing is open."""


def _labels(labels: Sequence[str] | None, what: str, count: int) -> list[str] | None:
    if labels is None:
        return None
    if len(labels) != count:
        raise DataError(f"{len(labels)} {what} labels for {count} columns.", "Give one for each column.")
    found = [str(label) for label in labels]
    require_unique(found, what, "arrays", "Give every column a name of its own.")
    return found

"""From a file, or from arrays in memory, to a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel.data.chunking import DEFAULT_WORKER_MEMORY, choose_chunks
from dsel.data.formats.arrays import ArraySource
from dsel.data.formats.base import Array, Source, SourceOptions
from dsel.data.formats.registry import open_source
from dsel.data.store.writer import COMPRESSIONS, IngestReport, Progress, WritePlan, write_store
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
    """Write a file of any size into a new store.

    Parameters
    ----------
    source : str or path
        A .npy, .npz, .csv, .tsv or .parquet file, or a file of another installed format. A path, or an s3://, gs:// or
        az:// URL.
    store : str or path
        The store to write, a path or a URL.
    y : str or path, optional
        A second .npy file with the targets.
    target : sequence of str or int
        The columns of a table that become Y, by name or position.
    index : str or int, optional
        The column of a table with the sample labels.
    weight : str or int, optional
        The weights of the samples: the column of a table, the array of an .npz file, or a .npy file.
    dtype : str, optional
        The dtype of X. By default that of the source, float64 for text.
    compression : {"none", "zstd", "lz4"}
        How chunks are compressed.
    worker_memory : int, optional
        The memory of a worker in bytes, for which the chunks are chosen. 1 GiB by default.
    chunks : tuple of int, optional
        Rows and columns of a chunk of X.
    overwrite : bool
        Whether an existing store is replaced.
    progress : callable, optional
        Called as ``progress(rows_done, rows)`` after each row of chunks.

    Returns
    -------
    IngestReport
        Shapes, chunks, bytes and seconds.

    Raises
    ------
    MissingInputError, OptionError, DataError, MissingExtraError
        If the source cannot be read, or an option does not apply to it.
    OutputError, CapacityError
        If the store cannot be written.

    Notes
    -----
    If a call is interrupted, the same call continues after the last complete row of chunks. It starts from the
    beginning if the source or the options have changed. Values are stored as they are; NaN is found when the data are
    used. The source is read once, text twice. The memory needed is at most about half of `worker_memory`.

    Examples
    --------
    >>> import dsel
    >>> dsel.ingest("table.csv", "table.zarr", target=["price"], index="name")  # doctest: +SKIP
    """
    options = SourceOptions(None if y is None else as_path(y), tuple(target), index, weight, dtype)
    return write_source(
        open_source(as_path(source), options),
        as_path(store),
        compression=compression,
        worker_memory=worker_memory,
        chunks=chunks,
        overwrite=overwrite,
        progress=progress,
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
    """Write arrays in memory into a new store.

    Parameters
    ----------
    x : array, shape (m, n)
        The data matrix.
    store : str or path
        The store to write, a path or a URL.
    y : array, shape (m, N) or (m,), optional
        The targets.
    features, targets, samples : sequence of str, optional
        Labels of the columns of X and Y and of the rows.
    weight : array, shape (m,), optional
        Weights of the samples.
    compression, chunks, overwrite
        As for `ingest`; the chunks are chosen for a worker of 1 GiB.

    Returns
    -------
    IngestReport
        Shapes, chunks, bytes and seconds.

    Raises
    ------
    DataError
        If shapes, dtypes or labels do not fit.
    OptionError
        If the chunks or the compression are not possible.
    OutputError, CapacityError
        If the store cannot be written.
    """
    source = ArraySource(x, y, features=features, targets=targets, samples=samples, weight=weight)
    return write_source(source, as_path(store), compression=compression, chunks=chunks, overwrite=overwrite)


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
) -> IngestReport:
    """Write an opened source into a store, and add `attributes` to those of its group. See `ingest`."""
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
    plan = WritePlan(source, store.absolute(), fitted, compression, memory=max(1, memory // 4))
    return write_store(plan, overwrite=overwrite, progress=progress, attributes=attributes)

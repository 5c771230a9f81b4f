"""From a file, or from arrays in memory, to a store.

What an ingest did, and what the data are like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final, Unpack

from dsel._lib.text import shorten
from dsel.config.ingest_request import IngestKeywords, IngestRequest, SourceOptions, with_options
from dsel.data import frames, schema
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset_source import source_of
from dsel.data.formats import annotated, labelled
from dsel.data.formats.arrays import ArraySource
from dsel.data.formats.missing import without_missing_values
from dsel.data.formats.registry import format_of as path_format
from dsel.data.formats.registry import open_source, require_options
from dsel.data.formats.source import Array, Format, Source, SparseSource
from dsel.data.formats.tables import arrow
from dsel.data.in_memory import align, is_data_array, is_xarray_dataset
from dsel.data.ingest_report import IngestReport
from dsel.data.schema import DEFAULT_WORKER_MEMORY, choose_chunks
from dsel.data.store.array import metadata_file
from dsel.data.store.dense_writer import WritePlan
from dsel.data.store.sparse_writer import SparsePlan
from dsel.data.store.staging import check_place
from dsel.data.store.writer import write_store
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, as_path

__all__ = ["IngestReport", "ingest", "ingest_arrays", "write_source"]


@with_options(IngestRequest)
def ingest(source: Any, store: str | AnyPath, **options: Unpack[IngestKeywords]) -> IngestReport:
    """Write a file of any size, a folder, a data frame or an array into a new store.

    Parameters
    ----------
    source : str, path, DataFrame, array, sparse matrix, Dataset or AnnData
        A file: .csv, .tsv (also .gz, .bz2, .zst), .parquet, .arrow, .feather, .npy, .npz, .h5, .nc, .zarr, .h5ad,
        .svm, or one of another installed format. A folder of Parquet files. A path, or an s3://, gs:// or az:// URL.
        Or a DataFrame of pandas, polars or Dask, a table of Arrow, a Dataset of xarray, an AnnData object. Or an array
        of numpy, Dask or xarray or a sparse matrix, with `y` and `weight` as in `dsel.select`.
    store : str or path
        The store to write, a path or a URL.
    **options

    Returns
    -------
    IngestReport
        Shapes, types, missing values, constants, equal columns, categories, and the cost.

    Raises
    ------
    MissingInputError, OptionError, DataError, MissingExtraError
        If the source cannot be read, or an option does not apply to it. A DataError about a table lists all problems
        of all columns.
    OutputError, CapacityError
        If the store cannot be written.

    Notes
    -----
    If a call on files is interrupted, the same call continues after the last complete row of chunks. It starts from
    the beginning if the source or the options have changed. Numbers are stored as they are. A table is read twice,
    other sources once, and once more if `missing` is not "keep". The memory needed is at most about half of
    `worker_memory`.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import dsel
    >>> table = pd.DataFrame({"size": [1.5, 2.0, 3.5], "colour": ["red", "blue", "red"], "price": [1, 2, 3]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = dsel.ingest(table, f"{folder}/data.zarr", target="price", categorical="colour")
    ...     labels = dsel.open_store(f"{folder}/data.zarr").features.tolist()
    >>> labels, report.categories
    (['size', 'colour=blue', 'colour=red'], {'colour': 2})
    """
    arrays, named = split_arrays(options)
    request = IngestRequest.of(**named)
    place = as_path(store)
    check_place(place.absolute(), request.overwrite)  # before the source is examined
    opened = open_any(source, request, **arrays)
    if isinstance(opened, SparseSource):
        if request.missing != "keep" or request.chunks is not None or request.chunk_rows is not None:
            raise OptionError("A sparse X has no missing values and no chunks of columns.", "Leave these options out.")
        recorded = _recorded(replace(request, first_column=opened.first_column))
        return write_store(SparsePlan(opened, place.absolute(), request.compression), request, recorded)
    return write_source(
        without_missing_values(opened, request.missing, request.scanned), place, request, _recorded(request)
    )


def _recorded(options: SourceOptions) -> dict[str, Any]:
    """Return the attribute with the options that an append takes over. A file with weights is not one of them."""
    found = options.recorded()
    if isinstance(options.weight, str) and as_path(options.weight).is_file():
        del found["weight"]
    return {schema.ATTR_OPTIONS: found} if found else {}


#: What data take that have y or weight in memory, or no labels.
_ARRAYS: Final = Format(
    "array", (), open_source, frozenset(("weight", "dates")),
    "Give the targets as an array (y) and the weights, too (weight), or make a DataFrame with labels.",
)  # fmt: skip


#: Objects in memory with labels: how they are known, and as what they are read.
_OBJECTS: Final = (
    (annotated.is_annotated, annotated.H5AD, annotated.open_object),
    (is_xarray_dataset, labelled.NETCDF, labelled.open_dataset),
    (arrow.is_frame, arrow.PARQUET, arrow.open_frame),
)


def split_arrays(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of the options y and weight that are data in memory, and all other options."""
    in_memory = {
        name for name in ("y", "weight")
        if options.get(name) is not None and not isinstance(options[name], str | int | PathLike | AnyPath)
    }  # fmt: skip
    others = options.keys() - in_memory
    return {name: options[name] for name in in_memory}, {name: options[name] for name in others}


def format_of(source: Any, alone: bool) -> Format | None:
    """Return the format by whose options a source is read, or None. alone: without targets or weights in memory."""
    if isinstance(source, str | AnyPath):
        return path_format(as_path(source))
    if is_data_array(source) and alone:
        return labelled.NETCDF
    found = (kind for is_kind, kind, _ in _OBJECTS if is_kind(source) and _is_read_by(kind, source, alone))
    return next(found, _ARRAYS)


def _is_read_by(kind: Format, source: Any, alone: bool) -> bool:
    """Return whether an object is read as of this format, and not as an array."""
    return alone or (kind is arrow.PARQUET and not arrow.is_dask_frame(source))


def open_any(source: Any, options: SourceOptions, *, y: Any = None, weight: Any = None) -> Source | SparseSource:
    """Open a path, or an object in memory, with targets and weights in memory if there are any."""
    alone = y is None and weight is None
    if isinstance(source, str | AnyPath):
        path = as_path(source)
        if not alone:
            remedy = "Name a column of the file (target, weight), or read the file and give it as an object."
            raise OptionError(
                f"{'weight' if y is None else 'y'} is data in memory, and the source is the file {source}.",
                labelled.ZARR.instead if metadata_file(path) else remedy,
            )
        return open_source(path, options)
    if is_data_array(source) and alone:
        source = source.to_dataset(name="X")
    if y is not None and options.target:
        raise OptionError(f"target={shorten(map(repr, options.target))} and y both give targets.", "Leave one out.")
    for is_kind, kind, opened in _OBJECTS:
        if is_kind(source) and _is_read_by(kind, source, alone):
            require_options(kind, options, f"data of type {type(source).__name__}")
            if not alone:
                source, options = frames.joined(*align(source, y, weight), options)
            return opened(source, options)
    if not (hasattr(source, "shape") or isinstance(source, Sequence) or is_xarray_dataset(source)):
        raise OptionError(
            f"source is a {type(source).__name__}.", "Give a path, a DataFrame, an array, a Dataset or AnnData."
        )
    require_options(
        _ARRAYS, options, f"data of type {type(source).__name__}{'' if alone else ' with y or weight in memory'}"
    )
    weight = options.weight if weight is None else weight
    try:
        dataset = as_dataset(source, y, sample_weight=weight, categories="refuse", dates=options.dates)
    except DataError as error:
        remedy = error.remedy.replace('use categories="groups"', "give a frame in memory: X.compute()")
        if remedy == error.remedy:
            raise
        raise DataError(error.what, remedy) from error  # a Dask frame holds text
    return source_of(dataset, options)


def ingest_arrays(
    x: Array, store: str | AnyPath, *, y: Array | None = None, features: Sequence[str] | None = None,
    targets: Sequence[str] | None = None, samples: Sequence[str] | None = None, weight: Array | None = None,
    compression: str = "none", chunks: tuple[int, int] | None = None, overwrite: bool = False,
) -> IngestReport:  # fmt: skip
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
    request = IngestRequest(compression=compression, chunks=chunks, overwrite=overwrite)
    return write_source(source, as_path(store), request)


def write_source(
    source: Source, store: AnyPath, request: IngestRequest, attributes: dict[str, Any] | None = None
) -> IngestReport:
    """Write an opened source into a store, and add `attributes` to those of its group. See `ingest`."""
    chunks, chunk_rows = request.chunks, request.chunk_rows
    if chunk_rows is not None and chunk_rows < 1:
        raise OptionError(f"chunk_rows is {chunk_rows}.", "It is a number of rows >= 1.")
    memory = DEFAULT_WORKER_MEMORY if request.worker_memory is None else request.worker_memory
    if 0 in source.shape:
        raise DataError(
            f"{source.name}: X has shape {source.shape[0]} x {source.shape[1]}.",
            "X needs at least one row and one column.",
        )
    if chunks is None:
        chunks = choose_chunks(source.shape, source.dtype.itemsize, worker_memory=memory)
    elif not isinstance(chunks, tuple | list) or len(chunks) != 2 or min(chunks) < 1:
        raise OptionError(f"chunks={chunks}: a chunk has at least one row and one column.", "Leave it out.")
    fitted = (chunk_rows or min(chunks[0], source.shape[0]), min(chunks[1], source.shape[1]))
    plan = WritePlan(source, store.absolute(), request.compression, fitted, memory=max(1, memory // 4))
    return write_store(plan, request, attributes)

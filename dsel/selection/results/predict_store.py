"""Predictions for every row of a store, written to a Zarr group block by block.

    variable     dimensions        kind     meaning
    prediction   (sample, target)  number   the predicted targets, in their own units
    target       (target,)         label    their names
    sample       (sample,)         label    the names of the rows, if the store has them

Each task reads the chosen columns of some rows, and writes whole chunks of predictions. The group appears when it is
complete.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np

from dsel._lib.types import Floats
from dsel._lib.versions import versions
from dsel.data import schema
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import Block, StoredRows
from dsel.data.dataset import Dataset
from dsel.data.offset import with_offset
from dsel.data.schema import bounds
from dsel.data.store.array import metadata_file, open_array
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.data.store.staging import check_place, output_errors, staging_of
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import OutputError
from dsel.passes.reduce_blocks import RowPass
from dsel.selection.record import SelectionRecord
from dsel.selection.results.apply import (
    Kind,
    LinearModel,
    StoredColumns,
    chosen_offset,
    require_kind,
)
from dsel.selection.saved import consolidate
from dsel.storage.paths import AnyPath, as_path, is_inside, zarr_store

PREDICTION: Final = "prediction"
#: A chunk of predictions has about this many bytes at most.
CHUNK_BYTES: Final = 16 << 20
#: The number of tasks, if the chunks of the store are small enough.
_TASKS: Final = 32
ATTR_PREDICTION: Final = "dsel_prediction"  # int, the version of this layout
_FORMAT: Final = 1


@dataclass(frozen=True)
class PredictionReport:
    """What `predict_store` wrote.

    Parameters
    ----------
    shape : tuple of int
        Rows and targets.
    columns : int
        Columns of X that were read.
    bytes_read : int
        Bytes of X that were read, uncompressed, in whole chunks.
    seconds : float
        Wall time.
    """

    shape: tuple[int, int]
    columns: int
    bytes_read: int
    seconds: float


def predict_store(
    selection: SelectionRecord,
    store: str | AnyPath,
    out: str | AnyPath,
    *,
    offset: Any = None,
    kind: Kind = "mean",
    engine: Engine = THREADS,
    overwrite: bool = False,
) -> PredictionReport:
    """Write the predictions of a selection for all rows of a store.

    Parameters
    ----------
    selection : Selection
        What predicts. Its columns are found in the store by label.
    store : str or path
        The data: a store, as for `dsel.select`. It may lack the columns of some values of a category.
    out : str or path
        The Zarr group to write, with the variable `prediction` (sample, target).
    offset : str or (m,) array, optional
        What is added to the linear predictor of each row: the name of a variable, or the numbers. A selection that was
        made with a variable of its store finds it by its name.
    kind : {"mean", "link"}
        The expected targets, such as probabilities, or the linear predictors.
    engine : Engine
        Where the rows are read and written. By default threads of this process.
    overwrite : bool
        Whether to replace a Zarr group at `out`.

    Returns
    -------
    PredictionReport
        Shape, bytes and time.

    Raises
    ------
    MissingInputError, DataError
        The store cannot be read, or lacks chosen columns. The error names them.
    OutputError, CapacityError
        `out` exists, is in the store, or cannot be written.

    Notes
    -----
    Reads the chunks with chosen columns once. A task holds a block of rows of these columns and one chunk of
    predictions. `out` appears when it is complete; after an interruption there is nothing.
    """
    began = time.perf_counter()
    require_kind(kind)
    dataset = as_dataset(store, unsupervised=True, sample_weight=False)
    columns = StoredColumns.of(selection, dataset)
    path, source = as_path(out).absolute(), as_path(store).absolute()
    if is_inside(path, source) or is_inside(source, path):
        raise OutputError(f"{path} and the store {source} are in each other.", "Choose another place.")
    check_place(path, overwrite)
    targets = list(selection.predicted)
    rows = _chunk_rows(dataset, len(selection), len(targets))
    aligned = replace(dataset, blocks=_blocks(dataset, rows))
    offset = chosen_offset(selection, offset, stored=True)
    if offset is not None:
        aligned = with_offset(aligned, np.full(dataset.m, offset) if isinstance(offset, int | float) else offset)
    mean = selection.loss.mean if selection.by_loss and kind == "mean" else None
    staging = staging_of(path)
    with output_errors(path), staging.locked() as lock:
        check_place(path, overwrite)  # another process may have finished meanwhile
        staging.clear()
        _create_arrays(staging.group, dataset, targets, rows)
        model = replace(LinearModel.of(selection), flat=False)
        work = 2 * dataset.m * len(selection) * len(targets)
        row_pass = RowPass("predictions", aligned, _write_block, operator.add, 8, work, columns.read, whole=False)
        written = row_pass.run(
            engine, columns=columns, model=model, mean=mean, group=str(staging.group), source=str(source)
        )
        assert written == dataset.m
        lock.require()
        _create_group(staging.group, selection, source)
        staging.publish()
    return PredictionReport(
        (dataset.m, len(targets)), len(selection), row_pass.cost().bytes_read, time.perf_counter() - began
    )


def _chunk_rows(dataset: Dataset, s: int, N: int) -> int:
    """Return the rows of a chunk of predictions: whole chunks of the store, unless these are large."""
    height = dataset.blocks[0].stop if isinstance(dataset.store, Store) else 1
    fit = max(1, min(CHUNK_BYTES // (8 * max(s, N, 1)), max(height, -(-dataset.m // _TASKS))))
    return min(dataset.m, fit // height * height if fit >= height else fit)


def _blocks(dataset: Dataset, rows: int) -> tuple[Block, ...]:
    """Return blocks of this number of rows."""
    store, edges = dataset.store, bounds(dataset.m, rows)
    assert store is not None
    if isinstance(store, SparseStore):
        parts: list[Any] = replace(store, row_bounds=edges, ends=store.ends_at(edges)).blocks()
    else:
        parts = [StoredRows(store.x, a, b) for a, b in pairwise(edges)]
    return tuple(Block(a, b, part, None) for (a, b), part in zip(pairwise(edges), parts, strict=True))


def _write_block(
    x: Any, y: Any, block: Block, columns: StoredColumns, model: LinearModel, mean: Callable[[Floats], Floats] | None,
    group: str, source: str,
) -> int:  # fmt: skip
    """Predict and write the rows of a block, and return their number.

    columns: x has those that are read. mean: of a loss, for each linear predictor.
    """
    import zarr

    folder = as_path(group)
    values: Floats = model(columns.take(x))
    values = values if block.offset is None else values + block.offset[:, None]
    values = values if mean is None else mean(values)
    array = zarr.open_array(zarr_store(folder / PREDICTION), mode="r+")
    array.with_config({"write_empty_chunks": True})[block.start : block.stop] = values
    if metadata_file(folder / schema.SAMPLE) is not None:
        labels = open_array(source, schema.SAMPLE).array[block.start : block.stop]
        names = zarr.open_array(zarr_store(folder / schema.SAMPLE), mode="r+")
        names[block.start : block.stop] = np.array([str(label) for label in np.asarray(labels).tolist()], dtype=object)
    return block.stop - block.start


def _create_arrays(group: AnyPath, dataset: Dataset, targets: list[str], rows: int) -> None:
    import zarr
    from zarr.codecs import Crc32cCodec

    shape = (dataset.m, len(targets))
    zarr.create_array(
        zarr_store(group / PREDICTION), shape=shape, chunks=(rows, shape[1]), dtype=np.float64, filters=None,
        compressors=[Crc32cCodec()], fill_value=np.nan, dimension_names=(schema.SAMPLE, schema.TARGET),
    )  # fmt: skip
    labels = zarr.create_array(
        zarr_store(group / schema.TARGET), shape=shape[1:], dtype="string", dimension_names=(schema.TARGET,)
    )
    labels[:] = np.array(targets, dtype=object)
    if isinstance(dataset.store, Store) and metadata_file(dataset.store.path / schema.SAMPLE) is not None:
        zarr.create_array(
            zarr_store(group / schema.SAMPLE), shape=shape[:1], chunks=(rows,), dtype="string",
            dimension_names=(schema.SAMPLE,),
        )  # fmt: skip


def _create_group(group: AnyPath, selection: SelectionRecord, source: AnyPath) -> None:
    """Write the metadata of the group, last: without them there is no group."""
    import zarr

    attributes = {
        ATTR_PREDICTION: _FORMAT,
        schema.ATTR_VERSION: versions()["dsel"],
        schema.ATTR_SOURCE: str(source),
        schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        "columns": list(selection.labels),
    }
    zarr.create_group(zarr_store(group), zarr_format=3, attributes=attributes)
    consolidate(zarr_store(group))

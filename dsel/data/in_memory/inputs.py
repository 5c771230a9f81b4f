"""Data in memory: from numpy, scipy sparse, pandas, Dask and xarray objects to matrices, labels and row blocks.

The optional libraries are recognised by the name of a type, so that none of them is imported here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.blocks import Block
from dsel.data.in_memory.frames import frame_labels, frame_matrix, is_series
from dsel.data.labels import Labels, as_labels, default_labels, require_unique
from dsel.data.weights import weight_variable
from dsel.errors import DataError

#: Arrays without chunks are cut into blocks of about this many bytes.
BLOCK_BYTES = 64 << 20


def is_pandas(data: Any) -> bool:
    """Return whether `data` is a DataFrame or a Series of pandas."""
    return _is(data, "pandas", "DataFrame") or _is(data, "pandas", "Series")


def is_data_array(data: Any) -> bool:
    """Return whether `data` is an xarray DataArray."""
    return _is(data, "xarray", "DataArray")


def is_xarray_dataset(data: Any) -> bool:
    """Return whether `data` is an xarray Dataset."""
    return _is(data, "xarray", "Dataset")


def xarray_variables(dataset: Any, Y: Any, unsupervised: bool, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return X, Y and the weights of an xarray Dataset: its own Y if none is given, its `weight` or the one named."""
    if Y is None and "Y" in dataset and not unsupervised:
        Y = dataset["Y"]
    if "X" not in dataset:
        raise DataError(
            f"The Dataset has no variable X, only {shorten(map(str, dataset.variables))}.",
            "Rename the data matrix to X, or pass it alone.",
        )
    if sample_weight is None or isinstance(sample_weight, str | bool):
        name = weight_variable(sample_weight, has_default="weight" in dataset)
        if name is not None and name not in dataset:
            raise DataError(f"The Dataset has no variable {name}, only {shorten(map(str, dataset.variables))}.")
        sample_weight = sample_weight if name is None else dataset[name]
    return dataset["X"], Y, sample_weight


def column_labels(data: Any, prefix: str, count: int) -> Labels:
    """Return the labels of the columns of X (prefix x) or Y (prefix y): those of a frame or xarray, or x0, x1, ..."""
    what, where = ("feature", "X") if prefix == "x" else ("target", "Y")
    names: Any = default_labels(prefix, count)
    labels = frame_labels(data)
    if labels is not None:
        names = labels
    elif is_data_array(data) and data.ndim == 2 and data.dims[1] in data.coords:
        names = [str(name) for name in data.coords[data.dims[1]].values.tolist()]
    elif count == 1 and _is_named(data):
        names = [data.name]
    require_unique(names, what, where, "Give every column a unique name.")
    return as_labels(names)


def _is_named(data: Any) -> bool:
    """Return whether a target of one dimension has a name."""
    named = is_series(data) or (is_data_array(data) and data.ndim == 1)
    return named and isinstance(data.name, str) and data.name != ""


def feature_coordinates(data: Any) -> dict[str, Labels]:
    """Return the coordinates of the columns of an xarray array, other than their labels."""
    if not _is(data, "xarray", "DataArray") or data.ndim != 2:
        return {}
    dims = (data.dims[1],)
    found = {str(name): one for name, one in data.coords.items() if one.dims == dims and name != data.dims[1]}
    return {name: as_labels(one.values.tolist()) for name, one in found.items()}


def as_matrix(data: Any, what: str) -> Any:
    """Return X or Y as a numpy, Dask or CSR matrix of numbers, with NaN where it was masked.

    A Y of one dimension becomes one column. Raises DataError that says what `data` is and what it should be.
    """
    if frame_labels(data) is not None or is_series(data):
        data = frame_matrix(data, what)
    if is_data_array(data):
        data = data.data
    sparse, lazy = hasattr(data, "tocsr"), _is(data, "dask", "Array")
    if sparse and what == "Y":
        data, sparse = _dense(data), False
    if not (sparse or lazy):
        try:
            data = np.asanyarray(data)
        except ValueError as error:
            raise DataError(
                f"{what} is no matrix: {error}", "Give rows of one length (of an AnnData: its X)."
            ) from error
    if lazy and np.isnan(data.shape).any():
        raise DataError(f"{what} is a Dask array of unknown chunk sizes.", "Call compute_chunk_sizes() on it first.")
    if data.ndim == 1 and what == "Y":
        data = data[:, None]
    _require_real_matrix(data, what)
    if lazy:  # the kind of a block is known only once it is computed
        return data.map_blocks(_dense_block, what=what, dtype=data.dtype, meta=np.empty((0, 0), data.dtype))
    return _checked_rows(data, what) if sparse else _dense(data)


def _checked_rows(data: Any, what: str) -> Any:
    """Return a sparse matrix by rows whose column numbers exist: compiled code of scipy does not check them."""
    try:
        if data.format in ("csr", "csc"):
            data.check_format(full_check=True)
        return data.tocsr()
    except ValueError as error:
        raise DataError(f"{what} is no valid sparse matrix: {error}.", "Build it again from its values.") from error


def _require_real_matrix(data: Any, what: str) -> None:
    if data.ndim != 2:
        columns = "targets" if what == "Y" else "features"
        raise DataError(f"{what} has shape {data.shape}.", f"It must have two dimensions: samples x {columns}.")
    if data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
        is_text = what == "Y" and data.dtype.kind in "OUST"
        more = " Give classes as numbers, or use a selector of dsel.sklearn, which takes classes." if is_text else ""
        raise DataError(f"{what} has dtype {data.dtype}.", f"It must be real numbers of at most 8 bytes.{more}")


def row_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    """Return the blocks of two matrices: the chunks of a Dask X, otherwise slices of about 64 MiB."""
    if _is(x, "dask", "Array"):
        return _dask_blocks(x, y)
    if _is(y, "dask", "Array"):
        y = np.asarray(y.compute())
    m = x.shape[0]
    rows = max(1, BLOCK_BYTES // max(1, 8 * x.shape[1]))
    edges = [*range(0, m, rows), m]
    return tuple(Block(a, b, x[a:b], None if y is None else y[a:b]) for a, b in pairwise(edges))


def _dask_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    import dask.array as da

    x = x.rechunk({1: -1})
    if y is not None:
        y = y if _is(y, "dask", "Array") else da.from_array(y)  # type: ignore[no-untyped-call]
        y = y.rechunk((x.chunks[0], -1))
    edges = np.concatenate([[0], np.cumsum(x.chunks[0])]).tolist()
    xs = x.to_delayed().ravel().tolist()
    ys = [None] * len(xs) if y is None else y.to_delayed().ravel().tolist()
    rows = zip(pairwise(edges), xs, ys, strict=True)
    return tuple(Block(a, b, part, targets, lazy=True) for (a, b), part, targets in rows if a < b)


def _dense_block(data: Any, what: str, block_info: Any = None) -> NDArray[Any]:
    """Return a block of a Dask array as a dense array. Errors: DataError where it has another shape than declared."""
    block = _dense(data)
    declared = tuple(b - a for a, b in block_info[0]["array-location"]) if block_info else block.shape
    if block.shape != declared:
        raise DataError(
            f"A block of {what} has shape {block.shape}, and its Dask array declares {declared}.",
            "Correct the chunks or the shape that the array was made with (map_blocks, from_delayed).",
        )
    return block


def _dense(data: Any) -> NDArray[Any]:
    """Return a dense array, with NaN where it was masked."""
    for dense in ("toarray", "todense"):
        if hasattr(data, dense):
            data = getattr(data, dense)()
            break
    if isinstance(data, np.ma.MaskedArray):
        data = data.astype(np.float64) if data.dtype.kind != "f" else data
        data = data.filled(np.nan)
    return np.asarray(data)


def _is(value: Any, module: str, name: str) -> bool:
    kind = type(value)
    return kind.__name__ == name and kind.__module__.split(".")[0] == module

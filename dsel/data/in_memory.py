"""Data in memory: from numpy, scipy sparse, pandas, Dask and xarray objects to matrices, labels and row blocks.

The optional libraries are recognised by the name of a type, so that none of them is imported here.

Bring the rows of X, Y and the weights together: by labels where both have labels, otherwise by position.

xarray objects are matched by the names of their dimensions and by their coordinates. pandas objects with different
indexes are refused, since their rows may be in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.blocks import Block
from dsel.data.formats import labelled
from dsel.data.frames import frame_labels, is_series, names_columns
from dsel.data.labels import Labels, as_labels, coordinate_values, default_labels, is_a, require_unique
from dsel.data.schema import bounds
from dsel.data.weights import weight_variable
from dsel.errors import DataError

#: Arrays without chunks are cut into blocks of about this many bytes.
BLOCK_BYTES = 64 << 20


def is_data_array(data: Any) -> bool:
    """Return whether `data` is an xarray DataArray."""
    return is_a(data, "xarray", "DataArray")


def is_xarray_dataset(data: Any) -> bool:
    """Return whether `data` is an xarray Dataset."""
    return is_a(data, "xarray", "Dataset")


def xarray_variables(dataset: Any, Y: Any, unsupervised: bool, sample_weight: Any) -> tuple[Any, Any, Any, list[str]]:
    """Return X, Y and the weights of an xarray Dataset, as `dsel.ingest` finds them, and the variables that are left.

    Its own Y if none is given, or the variables that Y names; its `weight`, or the one named.
    """
    if Y is None and "Y" in dataset and not unsupervised:
        Y = dataset["Y"]
    named = [Y] if isinstance(Y, str) else Y if names_columns(Y) and not unsupervised else []
    own = labelled.own_targets(dataset, named)
    if own is not None:
        flat = isinstance(Y, str) and own.shape[1] == 1
        Y, named = own[:, 0].rename(str(own[own.dims[1]].values[0])) if flat else own, []
    if missing := [name for name in named if name not in dataset]:
        _, labels, classes = labelled.labels_of_targets(dataset)
        missing = [name for name in missing if name not in {*labels, *classes}] or missing
        raise DataError(f"The Dataset has no variable {shorten(missing)}, only {shorten(map(str, dataset.variables))}.")
    if named:
        Y = dataset[Y] if isinstance(Y, str) else dataset[named].to_array("target").T
    if sample_weight is None or isinstance(sample_weight, str | bool):
        name = weight_variable(sample_weight, has_default="weight" in dataset)
        if name is not None and name not in dataset:
            raise DataError(f"The Dataset has no variable {name}, only {shorten(map(str, dataset.variables))}.")
        named = [*named, name]
        sample_weight = sample_weight if name is None else dataset[name]
    X = labelled.matrix_variable(dataset, {*named, "Y"} - {None})
    other = {*named, "Y", X.name, *(X["feature"].values.tolist() if X.name is None else ())}
    left = [str(name) for name, values in dataset.data_vars.items() if name not in other and X.dims[0] in values.dims]
    return X, Y, sample_weight, [] if unsupervised or Y is not None else left


def column_labels(data: Any, prefix: str, count: int, given: list[str] | None = None) -> Labels:
    """Return the labels of the columns of X (prefix x) or Y (prefix y): those of a frame or xarray, or x0, x1, ...

    given: labels that a conversion has made, which replace those of the data.
    """
    what, where = ("feature", "X") if prefix == "x" else ("target", "Y")
    names: Any = default_labels(prefix, count)
    labels = given or frame_labels(data)
    if labels is not None:
        names = labels
    elif is_data_array(data) and data.ndim == 2 and data.dims[1] in data.coords:
        names = [*map(str, coordinate_values(data.coords[data.dims[1]]))]
    elif count == 1 and (is_series(data) or (is_data_array(data) and data.ndim == 1)):
        names = names if data.name is None or data.name == "" else [str(data.name)]
    require_unique(names, what, where, "Give every column a unique name.")
    return as_labels(names)


def feature_coordinates(data: Any) -> dict[str, Labels]:
    """Return the coordinates of the columns of an xarray array, other than their labels."""
    if not is_data_array(data) or data.ndim != 2:
        return {}
    dims = (data.dims[1],)
    found = {str(name): one for name, one in data.coords.items() if one.dims == dims and name != data.dims[1]}
    return {name: as_labels(coordinate_values(one)) for name, one in found.items()}


def as_matrix(data: Any, what: str) -> Any:
    """Return X or Y as a numpy, Dask or CSR matrix of numbers, with NaN where it was masked.

    A Y of one dimension becomes one column. Frames are numbers by then (`numbers_of`). Raises DataError that
    says what `data` is and what it should be.
    """
    if is_data_array(data):
        data = data.data
    data = _as_dask(data)
    sparse, lazy = hasattr(data, "tocsr"), is_a(data, "dask", "Array")
    if sparse and what == "Y":
        data, sparse = _dense(data), False
    if not (sparse or lazy):
        given = type(data).__name__
        try:
            data = np.asanyarray(data)
        except ValueError as error:
            raise DataError(
                f"{what} is no matrix: {error}", "Give rows of one length (of an AnnData: its X)."
            ) from error
        if data.ndim == 0:
            other = ", or the name of a column of a frame" if what == "Y" else ", or the path of a store"
            raise DataError(f"{what} is one value of type {given}.", f"Give an array, a data frame{other}.")
    if lazy and np.isnan(data.shape).any():
        raise DataError(f"{what} is a Dask array of unknown chunk sizes.", "Call compute_chunk_sizes() on it first.")
    if data.ndim == 1 and what == "Y":
        data = data[:, None]
    _require_real_matrix(data, what)
    if lazy:  # the kind of a block is known only once it is computed
        return data.map_blocks(_dense_block, what=what, dtype=data.dtype, meta=np.empty((0, 0), data.dtype))
    return _checked_rows(data, what) if sparse else _dense(data)


class _Slices:
    """A chunked array of another library, which is read slice by slice. Its name is in errors of Dask."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.shape, self.dtype, self.ndim = tuple(data.shape), np.dtype(data.dtype), len(data.shape)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        return np.asarray(self._data[key])


def _as_dask(data: Any) -> Any:
    """Return a chunked array of another library as a Dask array, so that it stays lazy; anything else as it is.

    Arrays with Dask's collection protocol bring their graph. Others, such as those of Cubed, Zarr and HDF5, are read
    slice by slice.
    """
    chunks = getattr(data, "chunks", None)
    reads = hasattr(data, "__dask_graph__") or hasattr(data, "__getitem__")
    is_array = isinstance(chunks, tuple) and hasattr(data, "dtype") and reads
    if not is_array or is_a(data, "dask", "Array"):  # a report of an ingest has chunks and a dtype, too
        return data
    import dask.array as da

    if not hasattr(data, "__dask_graph__"):
        return da.from_array(_Slices(data), chunks=chunks)  # type: ignore[no-untyped-call]
    keys = data.__dask_keys__()
    graph = data.__dask_optimize__(data.__dask_graph__(), keys)
    while isinstance(keys[0], list):
        keys = keys[0]
    return da.Array(dict(graph), keys[0][0], chunks, dtype=data.dtype, meta=np.empty((0,) * data.ndim, data.dtype))  # type: ignore[no-untyped-call]


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
        remedy = f"It must have two dimensions: samples x {columns}."
        raise DataError(f"{what} has shape {data.shape}.", remedy)
    if data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
        objects = " Convert it by astype(float)." if data.dtype.kind == "O" else ""
        raise DataError(f"{what} has dtype {data.dtype}.", f"It must be real numbers of at most 8 bytes.{objects}")


def row_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    """Return the blocks of two matrices: the chunks of a Dask X, otherwise slices of about 64 MiB."""
    if is_a(x, "dask", "Array"):
        return _dask_blocks(x, y)
    if is_a(y, "dask", "Array"):
        y = np.asarray(y.compute())
    m = x.shape[0]
    rows = max(1, BLOCK_BYTES // max(1, 8 * x.shape[1]))
    return tuple(Block(a, b, x[a:b], None if y is None else y[a:b]) for a, b in pairwise(bounds(m, rows)))


def _dask_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    import dask.array as da

    x = x.rechunk({1: -1})
    if y is not None:
        y = y if is_a(y, "dask", "Array") else da.from_array(y)  # type: ignore[no-untyped-call]
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
    if hasattr(data, "toarray") or hasattr(data, "todense"):
        data = data.toarray() if hasattr(data, "toarray") else data.todense()
    if isinstance(data, np.ma.MaskedArray):
        data = data.astype(np.float64) if data.dtype.kind != "f" else data
        data = data.filled(np.nan)
    return np.asarray(data)


#: Names that samples and columns have by convention, as in a store.
_SAMPLE, _COLUMNS = "sample", ("feature", "target")


def align(X: Any, Y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return X, Y and the weights with the same samples in the same order, samples in the first dimension.

    Parameters
    ----------
    X, Y, weights : array-like or None
        Data in memory. Objects without labels are returned as they are.

    Returns
    -------
    tuple
        X, Y and the weights. xarray objects are transposed and reordered to the samples of X.

    Raises
    ------
    DataError
        If dimensions do not match, if coordinates have different labels, or if the indexes of pandas objects differ.
    """
    others = {"Y": Y, "sample_weight": weights}
    if is_data_array(X):
        arrays = [other for other in others.values() if is_data_array(other)]
        X = _samples_first(X, arrays) if X.ndim < 3 else labelled.flattened(X, [str(d) for a in arrays for d in a.dims])
    return X, *(matched(X, other, name) for name, other in others.items())


def other_dates(given: Any, aligned: Any, others: list[Any]) -> Iterator[str]:
    """Yield a note where nothing but their order has said which dimension has the samples, and another has dates.

    given: X of the user. aligned: the same with the samples first. others: Y and the weights.
    """
    if not is_data_array(given) or given.ndim < 2:
        return
    sample = aligned.dims[0]
    shared = any(is_data_array(other) and sample in other.dims for other in others)
    dated = [dim for dim in given.dims if dim in given.coords and given[dim].dtype.kind == "M"]
    if dated and sample not in dated and not shared and sample not in labelled.SAMPLES:
        yield (
            f"the samples are along the dimension {sample!r}, the first one, but {dated[0]!r} has dates: if they are "
            f"the samples, give X.transpose({dated[0]!r}, ...)"
        )


def _samples_first(X: Any, others: list[Any]) -> Any:
    """Return X with the dimension of the samples first: the one that Y or the weights share, or the one so named."""
    if X.ndim != 2:
        return X
    shared = {dim for other in others for dim in other.dims if dim in X.dims}
    if len(shared) > 1:
        raise DataError(
            f"Y or the weights share the dimensions {shorten(sorted(map(str, shared)))} with X.",
            "Only the samples may be shared: rename the other dimension.",
        )
    named_second = X.dims[1] == _SAMPLE or X.dims[0] in _COLUMNS
    return X.transpose(shared.pop() if shared else X.dims[named_second], ...)


def row_labels(X: Any) -> Any:
    """Return the labels of the rows of what `align` returned as X, for `matched`; None if X has none."""
    if is_a(X, "pandas", "DataFrame"):
        return X.iloc[:, :0]
    return X[X.dims[0]] if is_data_array(X) and X.dims[0] in X.indexes else None


def matched(X: Any, other: Any, name: str, index: str | None = None) -> Any:
    """Return values of the rows, such as Y or weights, in the order of the samples of X. Errors: as for `align`.

    X: what `align` returned, or its `row_labels`. index: how a user writes these labels, by default as of data in
    memory.
    """
    if is_data_array(other):
        other = _transposed(X, other)
    given, found = _row_index(X), _row_index(other)
    labels, own = _as_moments(given, found)
    by_label = is_data_array(other) and is_data_array(X)
    if labels is None or own is None or labels.equals(own) or (len(labels) != len(own) and not by_label):
        return other
    if not by_label:
        pairs = enumerate(zip(labels, own, strict=True))
        row = next((i for i, (a, b) in pairs if a is not b and a != b), 0)
        index = index or (f"X.indexes[{json.dumps(str(X.dims[0]))}]" if is_data_array(X) else "X.index")
        index = index if labels is given else f"pandas.to_datetime({index})"
        values = name if own is found else f"{name}.set_axis(pandas.to_datetime({name}.index))"
        same = f"order ({values}.loc[{index}])" if not len(labels.difference(own, sort=False)) else "labels"
        raise DataError(
            f"The indexes of X and {name} differ: row {row} is {labels[row]} in X and {own[row]} in {name}.",
            f"Give them the same {same}, or pass {name}.to_numpy() if the rows belong together as they are.",
        )
    if not (labels.is_unique and own.is_unique):
        raise DataError(
            f"The coordinates {X.dims[0]} of X and {name} differ, and labels occur more than once.",
            f"Make the labels unique, or pass {name}.values if the rows belong together as they are.",
        )
    missing = labels.difference(own)
    if len(missing):
        raise DataError(
            f"{name} has no rows for {len(missing)} of the {len(labels)} samples of X: {shorten(map(str, missing))}.",
            f"Give both the same samples, for example by xarray.align(X, {name}).",
        )
    other = other if own is found else other.assign_coords({X.dims[0]: own})
    return other.sel({X.dims[0]: labels})


def _as_moments(labels: Any, own: Any) -> tuple[Any, Any]:
    """Return two indexes as moments if one has moments, or no labels of the other one, and text can be read as such.

    Text may write a day with or without its time.
    """
    kinds = [getattr(getattr(index, "dtype", None), "kind", "") for index in (labels, own)]
    if sorted(kinds) != ["M", "O"] and (kinds != ["O", "O"] or labels.isin(own).any()):
        return labels, own
    import pandas as pd

    with suppress(ValueError, TypeError):  # of objects that are no dates
        read = [
            pd.to_datetime(index, format="ISO8601") if kind == "O" else index
            for index, kind in zip((labels, own), kinds, strict=True)
        ]
        if all(index.dtype.kind == "M" for index in read):  # others have several time zones
            return read[0], read[1]
    return labels, own


def matched_by_text(read_labels: Callable[[], Labels | None], other: Any, name: str) -> Any:
    """Return values of the rows in the order of a store, whose labels are text. Errors: as for `align`.

    read_labels: called where the values have labels; without labels in the store, the values are in its order.
    """
    other = _transposed(None, other) if is_data_array(other) else other
    own = _row_index(other)
    if own is None or (labels := read_labels()) is None:
        return other
    import xarray as xr

    index = "dsel.open_store(X).samples"
    if getattr(own.dtype, "kind", "") in "mM":
        labels, index = _in_words_of(labels, own, index)
    elif getattr(own.dtype, "kind", "") in "iu":
        index += ".astype(int)"
    if is_data_array(other):
        other = other.rename({other.dims[0]: _SAMPLE}).assign_coords({_SAMPLE: as_labels(own)})
    else:
        other = other.set_axis(as_labels(own))
    X = xr.DataArray(labels, coords={_SAMPLE: labels}, dims=_SAMPLE)
    return matched(X, other, name, index)


def _in_words_of(labels: Labels, own: Any, index: str) -> tuple[Labels, str]:
    """Return labels of an index of moments or durations in the words of pandas, and how a user writes this index.

    Labels that are no such values are returned as they are. Stores of earlier versions have whole numbers of
    nanoseconds.
    """
    import pandas as pd

    word, options = ("timedelta", {}) if own.dtype.kind == "m" else ("datetime", {"format": "ISO8601"})
    parse = getattr(pd, f"to_{word}")
    with suppress(ValueError):
        return as_labels(parse(labels, **options)), index
    with suppress(ValueError, OverflowError):
        return as_labels(parse(labels.astype(np.int64))), f"pandas.to_{word}({index}.astype(int))"
    return labels, index


def _transposed(X: Any, other: Any) -> Any:
    """Return a DataArray with the samples in its first dimension."""
    if is_data_array(X) and X.dims[0] in other.dims:
        return other.transpose(X.dims[0], ...)
    if other.ndim == 2 and (other.dims[1] == _SAMPLE or other.dims[0] in _COLUMNS):
        return other.transpose()
    return other


def _row_index(data: Any) -> Any:
    """Return the labels of the rows as a pandas Index; None if they have none."""
    if is_a(data, "pandas", "DataFrame") or is_a(data, "pandas", "Series"):
        return data.index
    if is_data_array(data) and data.ndim and data.dims[0] in data.indexes:
        return data.indexes[data.dims[0]]
    return None

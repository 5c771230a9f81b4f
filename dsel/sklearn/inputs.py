"""What estimators accept as X and y: arrays and frames by scikit-learn's checks, Dask and xarray objects lazily.

Targets become the numbers that a selection explains: classes become columns of 0 and 1.

Data that are not in a store have a digest, so that searches of parameters compute their statistics once. Arrays in
memory are hashed. A Dask array has a name that follows from its graph. Two graphs may read different values under equal
names, if a file was written to between them; so the objects at the leaves of the graph count, too.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from dsel._lib.blas import usable_cores
from dsel.data.classes import class_labels, one_hot, with_plain_columns
from dsel.data.formats.annotated import is_annotated
from dsel.data.formats.labelled import flattened, matrix_variable
from dsel.data.frames import collected, frame_labels
from dsel.data.in_memory import is_data_array, is_xarray_dataset
from dsel.data.labels import coordinate_values, is_a, require_unique
from dsel.errors import DataError

_CLASS_DTYPES = ("category", "boolean", "Boolean", "Categorical", "Enum")


def opened_input(X: Any) -> Any:
    """Return X of `fit` or `transform` in a form that has rows and columns.

    The matrix of AnnData, a DataFrame of a LazyFrame or of an Arrow table, a matrix of an xarray cube, and an array
    with NaN where it was masked.
    """
    if is_annotated(X):
        return X.X
    if isinstance(X, np.ma.MaskedArray):
        return with_plain_columns(X)
    X = collected(X)
    if is_a(X, "pyarrow", "Table"):
        return X.to_pandas()
    if is_xarray_dataset(X):
        X = matrix_variable(X, {"Y", "weight"})
    return flattened(X) if is_data_array(X) and X.ndim > 2 else X


def is_lazy_or_labelled(X: Any) -> bool:
    """Return whether X is a Dask array or frame, or an xarray object, which scikit-learn would turn into NumPy."""
    module = type(X).__module__.split(".")[0]
    return module == "xarray" or hasattr(X, "__dask_graph__")


#: What the error says if X has NaN where it must not.
NAN_IN_X = 'Input X contains NaN. Fill it in, or fit with missing="mean".'


def check_training_data(estimator: Any, X: Any, y: Any, allow_nan: bool) -> tuple[Any, Any]:
    """Return X and y of `fit`, checked, and set `n_features_in_` and `feature_names_in_`.

    Errors: ValueError and TypeError, as scikit-learn's checks raise them.
    """
    if is_lazy_or_labelled(X):
        X = open_lazy(X)
        estimator.n_features_in_ = len(X.columns) if hasattr(X, "columns") else int(X.shape[1])
        names = feature_names(X)
        if names is not None:
            estimator.feature_names_in_ = names
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return X, y
    if _has_other_columns(X):  # text, categories or dates, which become numbers as in dsel.select
        return validate_data(estimator, X, skip_check_array=True), y
    # Frames may mix dtypes, and int arrays are kept as they are.
    dtype = [np.float64, np.float32] if hasattr(X, "columns") else "numeric"
    options: dict[str, Any] = {
        "accept_sparse": "csr", "dtype": dtype, "ensure_all_finite": "allow-nan" if allow_nan else True,
        "ensure_min_samples": 2,
    }  # fmt: skip
    if y is None or hasattr(y, "__dask_graph__") or type(y).__module__.split(".")[0] == "xarray":
        return _validated(estimator, X, **options), y
    X, checked = _validated(estimator, X, y, multi_output=True, **options)
    return X, y if str(getattr(y, "dtype", "")).split("(")[0] in _CLASS_DTYPES else checked


def check_rows(estimator: Any, X: Any, allow_nan: bool) -> Any:
    """Return X of `predict`, checked, lazy as it is; frames with text, categories or dates stay frames.

    Errors: ValueError.
    """
    X = opened_input(X)
    if is_lazy_or_labelled(X):
        return check_features(estimator, X)
    if frame_labels(X) is not None and (estimator._source is not None or _has_other_columns(X)):
        return validate_data(estimator, X, reset=False, skip_check_array=True)
    finite = "allow-nan" if allow_nan else True
    return _validated(estimator, X, reset=False, accept_sparse="csr", ensure_all_finite=finite)


def _validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Return what `validate_data` returns. Its error for NaN in X names other estimators: name the remedy here."""
    try:
        return validate_data(estimator, X, *y, **options)
    except ValueError as error:
        if "Input X contains NaN" not in str(error):
            raise
        raise ValueError(NAN_IN_X) from error


def column_names(X: Any) -> list[str] | None:
    """Return the labels of the columns of a frame, a table or AnnData; None for others.

    Errors: DataError for equal ones.
    """
    names = [str(name) for name in X.var_names] if is_annotated(X) else frame_labels(X)
    require_unique(names or [], "feature", "X", "Give every column a unique name.")
    return names


def _has_other_columns(X: Any) -> bool:
    """Return whether a frame of pandas or polars has columns that are no numbers, which `dsel.select` converts."""
    if frame_labels(X) is None:
        return False
    return not all(
        dtype.kind in "fiub" if hasattr(dtype, "kind") else dtype.is_numeric() or str(dtype) in ("Boolean", "Null")
        for dtype in set(X.dtypes)
    )


def with_objects(X: Any) -> Any:
    """Return a frame of pandas with objects in place of dates and durations, which no array holds next to numbers."""
    dated = is_a(X, "pandas", "DataFrame") and any(dtype.kind in "mM" for dtype in set(X.dtypes))
    return X.astype(object) if dated else X


def open_lazy(X: Any) -> Any:
    """Return X as a Dask array or an xarray DataArray with samples first. Errors: ValueError."""
    if hasattr(X, "to_dask_array"):
        return X
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got an array with shape {X.shape} instead. Reshape your data.")
    return X.transpose() if hasattr(X, "dims") and X.dims[0] == "feature" else X


def feature_names(X: Any) -> NDArray[np.object_] | None:
    """Return the labels of the columns of a lazy or labelled X, None if it has none, or some that are not text."""
    names: list[Any] = []
    if hasattr(X, "columns"):
        names = list(X.columns)
    elif hasattr(X, "dims") and X.dims[1] in X.coords:
        names = coordinate_values(X.coords[X.dims[1]])
    return np.array(names, dtype=object) if names and all(isinstance(name, str) for name in names) else None


def check_features(estimator: Any, X: Any) -> Any:
    """Return X of `transform`, lazy as it is, if it has the columns of `fit`. Errors: ValueError."""
    X = open_lazy(X)
    count = len(X.columns) if hasattr(X, "columns") else X.shape[1]
    if count != estimator.n_features_in_:
        raise ValueError(
            f"X has {count} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features "
            "as input."
        )
    names, expected = feature_names(X), getattr(estimator, "feature_names_in_", None)
    if names is not None and expected is not None and not np.array_equal(names, expected):
        raise ValueError(
            "The feature names should match those that were passed during fit, in the same order. Unexpected or moved: "
            f"{', '.join(str(a) for a, b in zip(names, expected, strict=True) if a != b)}."
        )
    return X


def in_memory(X: Any, names: NDArray[np.object_] | None) -> Any:
    """Return what `check_features` returned as an array or, with names, as a DataFrame."""
    values = X.compute() if hasattr(X, "compute") else X
    if names is None or hasattr(values, "columns"):
        return values
    import pandas as pd

    return pd.DataFrame(np.asarray(values), columns=names)


def spread_columns(X: Any, support: NDArray[np.bool_], names: NDArray[np.object_]) -> Any:
    """Return a lazy or labelled X with columns of zeros where `support` is False."""
    if hasattr(X, "columns"):
        X = X.to_dask_array(lengths=True)
    if X.shape[1] != support.sum():
        raise ValueError("X has a different shape than during fitting.")
    if hasattr(X, "dims"):
        import xarray as xr

        sample, feature = X.dims
        kept = {name: coord for name, coord in X.coords.items() if coord.dims in ((sample,), ())}
        return xr.DataArray(_spread_matrix(X.data, support), {**kept, feature: names}, dims=(sample, feature))
    return _spread_matrix(X, support)


def _spread_matrix(X: Any, support: NDArray[np.bool_]) -> Any:
    if not hasattr(X, "map_blocks"):
        return _spread_block(X, support)
    X = X.rechunk({1: -1})
    return X.map_blocks(_spread_block, support, chunks=(X.chunks[0], (support.size,)), dtype=X.dtype)


def _spread_block(block: Any, support: NDArray[np.bool_]) -> NDArray[Any]:
    block = block.toarray() if hasattr(block, "toarray") else np.asarray(block)
    spread = np.zeros((block.shape[0], support.size), block.dtype)
    spread[:, support] = block
    return spread


#: Arrays are hashed in pieces of this many bytes, on all cores.
_PIECE = 16 << 20

_numbers = itertools.count()
#: The number of each leaf, by the id of its object.
_leaves: dict[int, tuple[weakref.ref[Any], int]] = {}


def data_digest(*parts: Any) -> str | None:
    """Return a digest of arrays, sparse matrices, frames and Dask arrays; None where there is none.

    Reads every byte of arrays in memory, and nothing of Dask arrays.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        token = _token(part)
        if token is None:
            return None
        digest.update(token)
    return digest.hexdigest()


def _token(part: Any) -> bytes | None:
    if part is None:
        return b"none"
    if hasattr(part, "dims") and hasattr(part, "data"):  # an xarray DataArray
        return _token(part.data)
    if hasattr(part, "__dask_graph__"):
        return _lazy_token(part)
    if hasattr(part, "tocsr"):
        return b"sparse" + str(part.shape).encode() + b"".join(map(_hash, (part.data, part.indices, part.indptr)))
    values = np.asarray(part)
    return None if values.dtype.kind == "O" else _hash(values)


def _hash(values: NDArray[Any]) -> bytes:
    """Return a hash of dtype, shape and values."""
    fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    flat = np.ascontiguousarray(values.T if fortran else values).reshape(-1).view(np.uint8)
    pieces = [flat[i : i + _PIECE] for i in range(0, flat.size, _PIECE)]
    head = f"{values.dtype.str} {values.shape} {fortran}".encode()
    with ThreadPoolExecutor(max(1, min(len(pieces), usable_cores()))) as pool:
        hashes = pool.map(lambda piece: hashlib.blake2b(piece, digest_size=16).digest(), pieces)
        return head + b"".join(hashes)


def _lazy_token(part: Any) -> bytes | None:
    """Return the name of a Dask array, and the numbers of the leaves of its graph."""
    graph = part.__dask_graph__()
    if not hasattr(graph, "layers") or not hasattr(part, "name"):
        return None
    numbers = sorted(_leaf_number(layer) for name, layer in graph.layers.items() if not graph.dependencies[name])
    return f"dask {part.name} {numbers}".encode()


def _leaf_number(layer: Any) -> int:
    """Return the number of a leaf. An object that is gone leaves no number behind for another at its address."""
    key = id(layer)
    found = _leaves.get(key)
    if found is not None and found[0]() is layer:
        return found[1]
    number = next(_numbers)
    _leaves[key] = weakref.ref(layer, lambda _: _leaves.pop(key, None)), number
    return number


Task = Literal["auto", "classification", "regression"]


@dataclass(frozen=True)
class EncodedTarget:
    """Targets as numbers.

    Parameters
    ----------
    Y : array, DataFrame or Dask array
        The targets, shape (m,) or (m, N).
    classes : ndarray or list of ndarray, optional
        The classes of y, sorted; a list for several columns of classes. None for numbers.
    names : sequence of str
        The labels of the columns of classes.
    """

    Y: Any
    classes: NDArray[Any] | list[NDArray[Any]] | None = None
    names: Sequence[str] = ()


def encode_target(y: Any, task: Task, names: Sequence[str] | None = None) -> EncodedTarget:
    """Return y as numbers.

    Two classes become one column, 1 for the second of the sorted classes. More classes become a column each. Under
    ``task="auto"``, text, booleans and categories are classes, and numbers are numbers. names: of the targets.

    Errors: ValueError where a class is missing, or there is only one.
    """
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}.")
    lazy = hasattr(y, "compute")
    if task == "regression" or (lazy and task == "auto" and _is_number(y)):
        return EncodedTarget(y)
    values = class_labels(y.compute() if lazy else y)
    if values is None and task == "auto":
        return EncodedTarget(_as_numbers(y))
    columns = np.asarray(y.compute() if lazy else y) if values is None else values
    single = columns.ndim == 1
    columns = columns[:, None] if single else columns
    prefixes = [f"{name}=" for name in names or ([] if single else [f"y{j}" for j in range(columns.shape[1])])] or [""]
    merged: dict[str, NDArray[np.float64]] = {}
    classes: list[NDArray[Any]] = []
    for column, prefix in zip(columns.T, prefixes, strict=True):
        if task == "auto" and class_labels(column) is None and not single:
            merged[prefix[:-1]] = column.astype(np.float64)  # next to classes
            continue
        part, found = _indicators(column, prefix)
        merged |= part
        classes.append(found)
    return EncodedTarget(np.column_stack([*merged.values()]), classes[0] if single else classes, [*merged])


def _as_numbers(y: Any) -> Any:
    """Return y, with numbers in place of objects. Errors: ValueError."""
    if getattr(getattr(y, "dtype", None), "kind", "") != "O":
        return y
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Unknown label type: y holds objects that are neither text nor numbers ({error}).") from error


def _indicators(values: NDArray[Any], prefix: str) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
    """Return columns of 0 and 1 by name, and the sorted classes. Errors: ValueError."""
    try:
        return one_hot(values, prefix)
    except DataError as error:
        raise ValueError(str(error)) from error


def _is_number(y: Any) -> bool:
    """Return whether a lazy y has a dtype of numbers."""
    dtype = getattr(y, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iuf"

"""Data frames of pandas, polars, Dask and Arrow as matrices of numbers; columns of another kind are named.

The libraries are recognised by the name of a type, so that none of them is imported here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.errors import DataError


def frame_labels(data: Any) -> list[str] | None:
    """Return the labels of the columns of a DataFrame or an Arrow table; None for anything else."""
    if type(data).__name__ == "DataFrame" and hasattr(data, "columns"):
        return [str(name) for name in data.columns]
    if type(data).__name__ == "Table" and hasattr(data, "column_names"):
        return [str(name) for name in data.column_names]
    return None


def is_series(data: Any) -> bool:
    """Return whether `data` is a Series of pandas, polars or Dask."""
    return type(data).__name__ == "Series" and hasattr(data, "dtype") and hasattr(data, "name")


def frame_matrix(data: Any, what: str) -> Any:
    """Return a frame or a Series as a NumPy or Dask array of numbers, NaN where values are missing.

    Booleans count as 0 and 1. A Dask frame is read once for the lengths of its partitions. Errors: DataError naming the
    columns that are not numbers.
    """
    if hasattr(data, "to_dask_array"):
        columns = [(data.name, data.dtype)] if is_series(data) else list(data.dtypes.items())
        _require(what, [(n, dtype) for n, dtype in columns if getattr(dtype, "kind", "O") not in "fiub"])
        if not _is_plain({dtype for _, dtype in columns}):
            data = data.map_partitions(_as_floats, what)
        return data.to_dask_array(lengths=True)
    if type(data).__name__ == "Table":
        data = data.to_pandas()
    if type(data).__module__.split(".")[0] == "polars":
        return _from_polars(data, what)
    return _from_pandas(data, what)


def _is_plain(dtypes: set[Any]) -> bool:
    """Return whether columns of these dtypes together are an array of numbers in NumPy."""
    numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "fiu" for dtype in dtypes)
    return numbers or dtypes == {np.dtype(bool)}


def _as_floats(part: Any, what: str) -> Any:
    """Return a partition of a Dask frame or Series with columns of floats."""
    values = _from_pandas(part, what).astype(np.float64)
    return type(part)(values, index=part.index, **({} if values.ndim == 1 else {"columns": part.columns}))


def _from_pandas(data: Any, what: str) -> NDArray[Any]:
    dtypes = set(data.dtypes) if data.ndim == 2 else {data.dtype}
    if _is_plain(dtypes):
        return np.asarray(data.to_numpy())
    columns = [data.iloc[:, j] for j in range(data.shape[1])] if data.ndim == 2 else [data]
    values = [_numbers(column) for column in columns]
    _require(what, [(c.name, c.dtype) for c, found in zip(columns, values, strict=True) if found is None])
    matrix = np.empty((len(data), len(columns)), _common_dtype(values))
    for j, found in enumerate(values):
        matrix[:, j] = found
    return matrix if data.ndim == 2 else matrix[:, 0]


def _common_dtype(columns: list[Any]) -> np.dtype[Any]:
    """Return the float that holds all columns: float32 if they are float32 and booleans."""
    return np.result_type(np.float32, *(np.uint8 if c.dtype.kind == "b" else c.dtype for c in columns))


def _numbers(column: Any) -> NDArray[Any] | None:
    """Return a column of pandas as numbers, or None if it does not hold any."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return np.asarray(column.to_numpy())
    if str(column.dtype) == "category" or getattr(column.dtype, "kind", "O") in "mMc":
        return None
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        return None


def _from_polars(data: Any, what: str) -> NDArray[Any]:
    columns = data.get_columns() if hasattr(data, "get_columns") else [data]
    wrong = [(c.name, c.dtype) for c in columns if not (c.dtype.is_numeric() or str(c.dtype) == "Boolean")]
    _require(what, wrong)
    found = np.asarray(data.to_numpy())
    return found if found.dtype.kind in "fiub" else found.astype(np.float64)


def _require(what: str, wrong: list[tuple[Any, Any]]) -> None:
    """Raise DataError if there are columns that do not hold numbers: their names and dtypes."""
    if not wrong:
        return
    message = (
        f"{len(wrong)} columns of {what} do not hold numbers: {shorten(f'{n!r} ({dtype})' for n, dtype in wrong)}."
    )
    if len(wrong) == 1:
        name, dtype = wrong[0]
        message = f"{what if name is None else f'Column {name!r} of {what}'} does not hold numbers, but {dtype}."
    remedy = "Drop them, or convert them: text and categories with pandas.get_dummies, dates to numbers."
    if what == "Y":
        remedy = "For classes, give a column of 0 and 1 for each (pandas.get_dummies), or use dsel.sklearn."
    raise DataError(message, remedy)

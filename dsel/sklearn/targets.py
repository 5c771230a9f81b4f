"""Targets of estimators as the numbers that a selection explains: classes become columns of 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
    """

    Y: Any
    classes: NDArray[Any] | list[NDArray[Any]] | None = None


def encode_target(y: Any, task: Task) -> EncodedTarget:
    """Return y as numbers.

    Two classes become one column, 1 for the second of the sorted classes. More classes become a column each. Under
    ``task="auto"``, text, booleans and categories are classes, and numbers are numbers.

    Errors: ValueError where a class is missing, or there is only one.
    """
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}.")
    lazy = hasattr(y, "compute")
    if task == "regression" or (lazy and task == "auto" and _is_number(y)):
        return EncodedTarget(y)
    values = _labels(y.compute() if lazy else y)
    if values is None and task == "auto":
        return EncodedTarget(_as_numbers(y))
    columns = np.asarray(y.compute() if lazy else y) if values is None else values
    single = columns.ndim == 1
    parts = [_one_hot(columns, "")] if single else [_one_hot(columns[:, j], f"y{j}=") for j in range(columns.shape[1])]
    merged = {name: column for part, _ in parts for name, column in part.items()}
    classes = [found for _, found in parts]
    import pandas as pd

    return EncodedTarget(pd.DataFrame(merged), classes[0] if single else classes)  # its labels name the targets


def _labels(y: Any) -> NDArray[Any] | None:
    """Return y as an array of classes if it holds text, booleans or categories, else None."""
    kind = getattr(y, "dtype", None)
    categorical = str(kind).split("(")[0] in ("category", "Categorical", "Enum")
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if categorical or values.dtype.kind in "USTb":
        return values
    if values.dtype.kind != "O":
        return None
    flat = values.ravel().tolist()
    if all(isinstance(label, bool | np.bool_) for label in flat):
        return values.astype(bool)
    return values if any(isinstance(label, str) for label in flat) else None


def _as_numbers(y: Any) -> Any:
    """Return y, with numbers in place of objects. Errors: ValueError."""
    if getattr(getattr(y, "dtype", None), "kind", "") != "O":
        return y
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Unknown label type: y holds objects that are neither text nor numbers ({error}).") from error


def _one_hot(values: NDArray[Any], prefix: str) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
    """Return columns of 0 and 1 by name, and the sorted classes."""
    if values.dtype.kind == "O":
        absent = [label is None or label != label for label in values.tolist()]
        if any(absent):
            raise ValueError(f"Input y contains NaN: the class in row {absent.index(True)} is missing.")
        if any(isinstance(label, str) for label in values.tolist()):
            values = np.array([str(label) for label in values.tolist()])
    classes = np.unique(values)
    if classes.size < 2:
        raise ValueError(f"y has {classes.size} class: a selection needs at least two classes.")
    kept = classes[1:] if classes.size == 2 else classes
    return {f"{prefix}{label}": (values == label).astype(np.float64) for label in kept.tolist()}, classes


def _is_number(y: Any) -> bool:
    """Return whether a lazy y has a dtype of numbers."""
    dtype = getattr(y, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iuf"

"""Classes that targets hold: text, booleans or categories, as columns of 0 and 1."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, shorten
from dsel.errors import DataError

#: The dtypes of categories in pandas and polars.
CLASS_DTYPES: Final = ("category", "Categorical", "Enum")
#: Text with more different values, of which at most this share is no number, holds numbers and not classes.
_MOST_CLASSES, _FEW_OTHERS = 20, 0.1


def class_labels(y: Any) -> NDArray[Any] | None:
    """Return y as an array of classes if it holds text, booleans or categories, else None."""
    kind = getattr(y, "dtype", None)
    categorical = str(kind).split("(")[0] in CLASS_DTYPES
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


def one_hot(values: NDArray[Any], prefix: str) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
    """Return columns of 0 and 1 by name, and the sorted classes.

    Two classes become one column, 1 for the second one; more classes a column each. Errors: DataError where a class is
    missing, or there is only one.
    """
    if values.dtype.kind == "O":
        absent = [i for i, label in enumerate(values.tolist()) if _is_missing(label)]
        if absent:
            of = f" of {prefix.removesuffix('=')!r}" if prefix else ""
            what = f"class{of} in row {absent[0]} is"
            if len(absent) > 1:
                what = f"classes{of} in rows {shorten(map(str, absent))} are"
            raise DataError(
                f"Input y contains NaN: the {what} missing ({FIRST_ROW}).",
                "Leave such rows out, or give them a class of their own.",
            )
        if any(isinstance(label, str) for label in values.tolist()):
            values = np.array([str(label) for label in values.tolist()])
    classes = np.unique(values)
    _require_no_numbers(values, classes)
    if classes.size < 2:
        raise DataError(f"y has {classes.size} class: a selection needs at least two classes.", "Check the column.")
    kept = classes[1:] if classes.size == 2 else classes
    return {f"{prefix}{label}": (values == label).astype(np.float64) for label in kept.tolist()}, classes


def _is_missing(label: Any) -> bool:
    return label is None or type(label).__name__ == "NAType" or label != label  # pandas.NA has no truth value


def _require_no_numbers(values: NDArray[Any], classes: NDArray[Any]) -> None:
    """Raise DataError if text has many different values that are numbers, all or nearly all of them."""
    if values.dtype.kind != "U" or classes.size <= _MOST_CLASSES:
        return
    other = [i for i, value in enumerate(values.tolist()) if not _is_number(value)]
    if len(other) <= _FEW_OTHERS * values.size:
        but = f", but row {other[0]} is {str(values[other[0]])[:60]!r}" if other else ""
        raise DataError(
            f"The targets are text ({classes.size} different values) that holds numbers{but}.",
            "Convert them to numbers.",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

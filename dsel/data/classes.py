"""Targets that hold classes (text, booleans, categories) or several fields, as columns; those of a store by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, shorten
from dsel.data.labels import Labels, target_places
from dsel.errors import DataError

#: The dtypes of categories in pandas and polars.
CLASS_DTYPES: Final = ("category", "Categorical", "Enum")
#: Text with more different values, of which at most this share is no number, holds numbers and not classes.
MOST_CLASSES, _FEW_OTHERS = 20, 0.1


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
    if values.dtype.kind != "U" or classes.size <= MOST_CLASSES:
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


def stored_targets(
    labels: Labels, stored: Mapping[str, list[str]], targets: Sequence[str | int] | None
) -> tuple[NDArray[np.int64] | None, dict[str, list[str]]]:
    """Return the columns of Y in a store that are used, None for all, and the classes that they are of.

    stored: the classes of each target that became columns. Two classes are one column, as they are for a frame.
    """
    columns = {name: [f"{name}={level}" for level in levels] for name, levels in stored.items()}
    if targets is not None:
        asked: list[str | int] = []
        for one in targets:
            asked += [one] if one in labels else columns.get(str(one), [one])
        chosen = target_places(asked, labels)
    else:
        chosen = np.arange(len(labels))
    names = labels[chosen].tolist()
    first = {of[0] for of in columns.values() if len(of) == 2 and set(of) <= set(names)}
    chosen = chosen[[name not in first for name in names]]
    left = set(labels[chosen].tolist())
    used = {name: set(of[1:] if len(of) == 2 else of) for name, of in columns.items()}
    classes = {name: list(stored[name]) for name, of in used.items() if of and of <= left}
    return None if len(chosen) == len(labels) and targets is None else chosen, classes


def with_plain_columns(Y: Any) -> Any:
    """Return a structured array as columns (m, q), those of numbers before booleans, and NaN where numbers are masked.

    Anything else is returned as it is. So times come before events, as `sksurv.util.Surv` has them in the other order.
    """
    if isinstance(Y, np.ma.MaskedArray) and Y.dtype.kind in "fiub":
        return np.ma.filled(Y if Y.dtype.kind == "f" else Y.astype(np.float64), np.nan)
    fields = getattr(getattr(Y, "dtype", None), "fields", None)
    if not isinstance(Y, np.ndarray) or not fields:
        return Y
    order = sorted(fields, key=lambda name: fields[name][0].kind == "b")
    return np.column_stack([np.asarray(Y[name]).reshape(len(Y)) for name in order])

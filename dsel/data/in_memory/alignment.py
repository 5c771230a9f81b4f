"""Bring the rows of X, Y and the weights together: by labels where both have labels, otherwise by position.

xarray objects are matched by the names of their dimensions and by their coordinates. pandas objects with different
indexes are refused, since their rows may be in any order.
"""

from __future__ import annotations

from typing import Any

from dsel._lib.text import shorten
from dsel.data.in_memory.inputs import is_data_array, is_pandas
from dsel.errors import DataError

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
        X = _samples_first(X, [other for other in others.values() if is_data_array(other)])
    return X, *(_matched(X, other, name) for name, other in others.items())


def _samples_first(X: Any, others: list[Any]) -> Any:
    """Return X with the dimension of the samples first: the one that Y or the weights share, or the one so named."""
    if X.ndim != 2:
        return X
    shared = {dim for other in others for dim in other.dims if dim in X.dims}
    if len(shared) > 1:
        raise DataError(
            f"Y and sample_weight share the dimensions {shorten(sorted(map(str, shared)))} with X.",
            "Only the samples may be shared: rename the other dimension.",
        )
    named_second = X.dims[1] == _SAMPLE or X.dims[0] in _COLUMNS
    return X.transpose(shared.pop() if shared else X.dims[named_second], ...)


def _matched(X: Any, other: Any, name: str) -> Any:
    """Return Y or the weights in the order of the samples of X."""
    if is_data_array(other):
        other = _transposed(X, other)
    labels, own = _row_index(X), _row_index(other)
    if labels is None or own is None or len(labels) != len(own) or labels.equals(own):
        return other
    if not is_data_array(other) or not is_data_array(X):
        _refuse_different_index(labels, own, name)
    if not (labels.is_unique and own.is_unique):
        raise DataError(
            f"The coordinates {X.dims[0]} of X and {name} differ, and labels occur more than once.",
            f"Make the labels unique, or pass {name}.values if the rows belong together as they are.",
        )
    missing = labels.difference(own)
    if len(missing):
        raise DataError(
            f"{name} has no rows for {len(missing)} of the {len(labels)} samples of X: {shorten(map(str, missing))}.",
            "Give X and its targets the same samples, for example by xarray.align(X, Y).",
        )
    return other.sel({X.dims[0]: labels})


def _transposed(X: Any, other: Any) -> Any:
    """Return a DataArray with the samples in its first dimension."""
    if is_data_array(X) and X.dims[0] in other.dims:
        return other.transpose(X.dims[0], ...)
    if other.ndim == 2 and (other.dims[1] == _SAMPLE or other.dims[0] in _COLUMNS):
        return other.transpose()
    return other


def _row_index(data: Any) -> Any:
    """Return the labels of the rows as a pandas Index; None if they have none."""
    if is_pandas(data):
        return data.index
    if is_data_array(data) and data.ndim and data.dims[0] in data.indexes:
        return data.indexes[data.dims[0]]
    return None


def _refuse_different_index(labels: Any, own: Any, name: str) -> None:
    pairs = enumerate(zip(labels, own, strict=True))
    row = next((i for i, (a, b) in pairs if a is not b and a != b), 0)
    raise DataError(
        f"The indexes of X and {name} differ: row {row} is {labels[row]} in X and {own[row]} in {name}.",
        f"Give them the same order ({name}.loc[X.index]), or pass {name}.to_numpy() if the rows belong together as "
        "they are.",
    )

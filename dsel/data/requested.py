"""The data that a request names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset, as_dataset
from dsel.data.divide_rows import select_rows


def dataset_of(request: SelectionRequest, X: Any, Y: Any = None) -> Dataset:
    """Return the data of a request: the rows, targets and weights that it names. Only labels are read.

    Errors: those of `as_dataset` and `select_rows`.
    """
    dataset = as_dataset(
        X, Y, targets=request.targets, unsupervised=request.unsupervised, sample_weight=request.sample_weight,
        categories=request.categories, dates=request.dates, exclude=request.exclude,
    )  # fmt: skip
    asked = (request.offset, getattr(request.choose_k, "row_groups", None), request.options.get("row_groups"))
    also_read = tuple(name for name in asked if isinstance(name, str))
    return select_rows(replace(dataset, also_read=also_read) if also_read else dataset, request.rows)

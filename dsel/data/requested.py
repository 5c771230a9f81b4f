"""The data that a request names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import select_rows
from dsel.data.offset import names_target
from dsel.errors import OptionError


def dataset_of(request: SelectionRequest, X: Any, Y: Any = None) -> Dataset:
    """Return the data of a request: the rows, targets and weights that it names. Only labels are read.

    The offset of a store may be one of its targets, which is then none. Errors: those of `as_dataset` and
    `select_rows`, and OptionError if the offset is also asked for as a target.
    """

    def read(targets: Sequence[str | int] | None) -> Dataset:
        return as_dataset(
            X, Y, targets=targets, unsupervised=request.unsupervised, sample_weight=request.sample_weight,
            categories=request.categories, dates=request.dates, exclude=request.exclude,
            missing=request.missing,
        )  # fmt: skip

    dataset = read(request.targets)
    if names_target(dataset, request.offset) and request.offset in dataset.targets:
        if request.targets is not None or dataset.n_targets == 1:
            raise OptionError(f"{request.offset} is the offset and a target.", "Name another column as the target.")
        dataset = read([label for label in dataset.targets.tolist() if label != request.offset])
    asked = (request.offset, getattr(request.choose_k, "row_groups", None), request.options.get("row_groups"))
    also_read = tuple(name for name in asked if isinstance(name, str))
    return select_rows(replace(dataset, also_read=also_read) if also_read else dataset, request.rows)

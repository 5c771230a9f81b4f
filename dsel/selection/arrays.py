"""The arrays and attributes of a selection, as selection.zarr and an xarray Dataset hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.selection.result import Selection


def arrays_of(selection: Selection) -> dict[str, tuple[NDArray[Any], tuple[str, ...]]]:
    """Return the arrays of selection.zarr with their dimensions."""
    width = max((len(row.indices) for row in selection.front), default=1) or 1
    members = np.full((len(selection.front), width), -1, np.int64)
    for i, row in enumerate(selection.front):
        members[i, : len(row.indices)] = row.indices
    trace = np.array([[t.iteration, t.size, t.error] for t in selection.trace], np.float64).reshape(-1, 3)
    arrays: dict[str, tuple[NDArray[Any], tuple[str, ...]]] = {
        "selected": (np.array(selection.labels, dtype=object), ("selected",)),
        "indices": (np.asarray(selection.indices, np.int64), ("selected",)),
        "coefficients": (selection.coefficients, ("selected", "target")),
        "intercept": (selection.intercept, ("target",)),
        "front_size": (np.array([row.size for row in selection.front], np.int64), ("front",)),
        "front_error": (np.array([row.error for row in selection.front], np.float64), ("front",)),
        "front_r2": (np.array([row.r2 for row in selection.front], np.float64), ("front",)),
        "front_members": (members, ("front", "place")),
        "trace": (trace, ("improvement", "iteration_size_error")),
        **({} if selection.statistics is None else selection.statistics.arrays()),
    }
    if selection.targets:
        arrays["target"] = (np.array(selection.targets, dtype=object), ("target",))
    if selection.fill is not None:
        arrays["fill"] = (selection.fill, ("selected",))
    return arrays


def attributes_of(selection: Selection) -> dict[str, Any]:
    """Return what was asked and the main figures, as the attributes of selection.zarr.

    Returns
    -------
    dict
        JSON types.
    """
    return {
        "method": selection.method, "k": selection.k, "lam": selection.lam, "preprocess": selection.preprocess,
        "missing": selection.request.missing, "seed": selection.seed, "error": selection.error, "r2": selection.r2,
        "shape": list(selection.shape), "source": selection.source, "ended": selection.ended,
        "dsel_version": selection.versions.get("dsel", ""),
    }  # fmt: skip

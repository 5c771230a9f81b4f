"""The errors of a front from the data, where the search ran on an approximation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsel.objective.base import Objective
from dsel.planning.representations.base import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.outcome import SearchOutcome, improving

#: f and the residual sum of squares by the columns of a subset.
Errors = dict[tuple[int, ...], tuple[float, float]]


def recomputed_front(
    outcome: SearchOutcome, objective: Objective, validated: ValidatedRequest, prepared: Prepared
) -> tuple[SearchOutcome, Errors]:
    """Return the outcome with the errors of the data, without points that are now worse than smaller ones.

    Where the objective is exact, the outcome is returned as it is, with no errors. A custom criterion stays what it is.
    """
    if prepared.errors is None:
        return outcome, {}
    subsets = [objective.in_data(point.members) for point in outcome.front]
    found = prepared.errors([np.sort(np.asarray(S, np.int64)) for S in subsets], validated.request.lam)
    errors = {tuple(sorted(S)): error for S, error in zip(subsets, found, strict=True)}
    if validated.criterion is not None:
        return outcome, errors
    points = [replace(point, value=f) for point, (f, _) in zip(outcome.front, found, strict=True)]
    return replace(outcome, front=improving(points)), errors

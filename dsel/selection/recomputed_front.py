"""The errors of a front from the data, where the search ran on an approximation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsel.objective.base import Objective
from dsel.planning.representations.base import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.exact.certificate import Certificate
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
    outcome = replace(outcome, front=improving(points), bound_notes=())
    return _with_bound_on_data(outcome, objective, validated, prepared), errors


def _with_bound_on_data(
    outcome: SearchOutcome, objective: Objective, validated: ValidatedRequest, prepared: Prepared
) -> SearchOutcome:  # fmt: skip
    """Return the outcome with bounds that hold for the data, and its certificates about values of the data.

    Subsets that depend on each other in the objective need not do so in the data. What they may explain more lowers the
    bound, too.
    """
    assert prepared.left_out is not None
    value = outcome.best(validated.request.limit - validated.included).value
    lost = prepared.left_out(validated.most_columns)

    def lowered(bound: float, dependent_gap: float) -> float:
        return min(max(bound - lost - dependent_gap * objective.total, 0.0), value)

    counts = {name: v for name, v in outcome.counts.items() if name not in ("weighted_suboptimality", "near_copies")}
    certificates = tuple(
        replace(one, value=value, bound=lowered(one.bound, one.dependent_gap), indices=tuple(objective.in_data(
            outcome.best(validated.request.limit - validated.included).members)), dependent_gap=0.0, near_copies=())
        for one in outcome.certificates
    )  # fmt: skip
    if "bound" in counts:
        bound = lowered(counts["bound"], counts.pop("dependent_gap", 0.0))
        judged = Certificate(0, value, bound, objective.total, rounding_error=counts.get("rounding_error", 0.0))
        counts |= {"bound": bound, "status": judged.status, "proven": judged.proven, "suboptimality": judged.gap}
    ended = "complete" if outcome.ended == "proven" and not counts.get("proven") else outcome.ended
    return replace(outcome, counts=counts, certificates=certificates, ended=ended)

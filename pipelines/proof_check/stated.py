"""What proofs state: the only place that knows the fields of certificates."""

from __future__ import annotations

from typing import Any

from dsel.search.exact.certificate import Certificate
from dsel.search.exact.root_bound import RootBound


def rounding_of(certificate: Certificate) -> float:
    """Return the share of ||Y||^2 that rounding in the proof may be worth."""
    return certificate.error


def dependent_gap_of(certificate: Certificate) -> float:
    """Return the share of ||Y||^2 by which a dependent subset may be better."""
    return certificate.excluded


def certificate_of(search: Any) -> Certificate:
    """Return what a search has proved so far. Its `nodes` say whether it is finished."""
    objective = search.objective
    value = objective.value(search.best)
    return Certificate(
        len(objective.included) + search.k, value, search.proved, objective.total,
        tuple(objective.in_data(search.best)), method=f"{search.kind} {search.bound_name}",
        error=search.guarantee.error, excluded=search.guarantee.hidden(value, objective),
        nodes=int(search.done and not isinstance(search, RootBound)),
        coefficients=getattr(search, "limit", 0.0) / objective.total,
    )  # fmt: skip

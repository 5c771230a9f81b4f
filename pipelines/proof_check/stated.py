"""What proofs state: the only place that knows the fields of certificates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsel.search.exact.certificate import Certificate
from dsel.search.exact.root_bound import RootBound


def rounding_of(certificate: Certificate) -> float:
    """Return the share of ||Y||^2 that rounding in the proof may be worth."""
    return certificate.rounding_error


def dependent_gap_of(certificate: Certificate) -> float:
    """Return the share of ||Y||^2 by which a dependent subset may be better."""
    return certificate.dependent_gap


def certificate_of(search: Any) -> Certificate:
    """Return what a search has proved so far. Its `nodes` say whether it is finished."""
    finished = int(search.done and not isinstance(search, RootBound))
    certificate: Certificate = search.certificate()
    return replace(certificate, nodes=finished, method=f"{search.kind} {search.bound_name}")

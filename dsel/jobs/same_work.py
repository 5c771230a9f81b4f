"""Whether two jobs ask for the same, in other words: an option that is given as its default is one that is left out."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from dsel.config.request import SelectionRequest
from dsel.config.size_rule import SizeRule
from dsel.config.types import parse_duration
from dsel.errors import DselError


def is_same_work(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether two identities are of the same work, see `dsel.jobs.locations.identity_of`."""
    return before == now or _resolved(before) == _resolved(now)


def is_same_search(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether two identities are of the same search: what is asked to be proved of its answer may differ."""
    return is_same_work(_without_proofs(before), _without_proofs(now))


def _without_proofs(identity: dict[str, Any]) -> dict[str, Any]:
    job = {name: value for name, value in identity.get("job", {}).items() if name not in ("certify", "alternatives")}
    return {**identity, "job": job}


def _resolved(identity: dict[str, Any]) -> dict[str, Any]:
    """Return an identity with options that differ from their defaults, and with the rule for k and the loss in full.

    An identity that this version cannot read stays as it is.
    """
    from dsel.objective.losses.registry import find_loss  # here: a job in the same words imports no method
    from dsel.planning.size_plan import resolved_rule
    from dsel.search.registry import find_method

    job = identity.get("job", {})
    try:
        request = SelectionRequest(**{name: job[name] for name in SelectionRequest.model_fields.keys() & job.keys()})
        method, loss = find_method(request.method), find_loss(request.loss)
        options = method.options(**request.options)
        full: dict[str, Any] = {"loss": loss, "choose_k": None}
        if request.k == "auto":
            full["choose_k"] = resolved_rule(request.choose_k or SizeRule(), method, loss)
        for name in {"certify", "alternatives"} & job.keys():
            full[name] = {**job[name], "time": parse_duration(job[name]["time"])}
    except (DselError, ValidationError, LookupError, TypeError):
        return identity
    full["options"] = {name: getattr(options, name) for name in type(options).model_fields if options.is_changed(name)}
    return {**identity, "job": {**job, **full}}

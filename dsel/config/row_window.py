"""Which rows of a store a selection uses: the last or the first ones, or those between two values of a coordinate."""

from __future__ import annotations

import math
import numbers
from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator

_FORMS = "write last: 90 (segments), last: 0.2 (a share of the rows), first: the same, or time: [from, to]"


def _window(value: Any) -> Any:
    """Validate a window at once, so that an error is one sentence."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"it must be one key: {_FORMS}")
    ((name, wanted),) = value.items()
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{name!r} is not a key: {_FORMS}")
    if name in ("last", "first"):
        return {name: _count(name, wanted)}
    if not isinstance(wanted, list | tuple) or len(wanted) != 2:
        raise ValueError(f"{name}: write [from, to], with null for an open end")
    low, high = (_bound(name, one) for one in wanted)
    if low is None and high is None:
        raise ValueError(f"{name}: give one of the two ends at least")
    if low is not None and high is not None and isinstance(low, str) != isinstance(high, str):
        raise ValueError(f"{name}: both ends must be numbers, or both text")
    return {name: [low, high]}


def _count(name: str, wanted: Any) -> int | float:
    if isinstance(wanted, bool) or not isinstance(wanted, numbers.Real):
        raise ValueError(f"{name}: it must be a number of segments, or a share of the rows below 1")
    if isinstance(wanted, numbers.Integral):
        if int(wanted) < 1:
            raise ValueError(f"{name}: it must be at least 1 segment")
        return int(wanted)
    share = float(wanted)
    if not 0.0 < share < 1.0:
        raise ValueError(f"{name}: {share:g} is not a share of the rows: it must be above 0 and below 1")
    return share


def _bound(name: str, value: Any) -> float | int | str | None:
    if isinstance(value, date):  # YAML reads 2026-08-01 as a date
        return value.isoformat()
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise ValueError(f"{name}: {value!r} is neither a number, nor a time as text, nor null")


#: ``{"last": 90}`` (segments), ``{"last": 0.2}`` (a share of the rows), ``{"first": ...}`` the same, or
#: ``{"time": [from, to]}`` with the name of a variable over the samples: values >= from and < to, None for an open end.
RowWindow = Annotated[dict[str, Any] | None, BeforeValidator(_window)]

"""Durations as people write them."""

from __future__ import annotations

import math
import re

from dsel.errors import OptionError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|min|s|m|h|d)")


def parse_duration(text: str | float) -> float:
    """Seconds in 90s, 10m, 2h, 1h30m, 1.5h, or a plain number of seconds. Errors: OptionError.

    >>> parse_duration("1h30m")
    5400.0
    """
    try:
        seconds = float(text)
    except ValueError:
        parts = _PART.findall(str(text))
        if not parts or _PART.sub("", str(text)).strip():
            raise OptionError(f"{text!r} is no duration.", "Write it as 90s, 10m, 2h or 1h30m.") from None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise OptionError(f"{text!r} is no duration above 0.", "Write it as 90s, 10m, 2h or 1h30m.")
    return seconds

"""Numbers of bytes as text, such as 1.50 GiB, as Dask reads and writes them. Importing Dask for this takes 0.1 s."""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = "kMGTP"
_SIZE: Final = re.compile(r"(?P<number>.*?)(?P<prefix>[kmgtp]?)(?P<binary>i?)b?", re.IGNORECASE | re.DOTALL)


def format_bytes(size: float, *, up: bool = False) -> str:
    """Return a number of bytes with a unit of 1024, 1024^2, ... bytes. up: rounded up, as a limit that suffices.

    Examples
    --------
    >>> format_bytes(12_345_678), format_bytes(12_345_678, up=True), format_bytes(800)
    ('11.77 MiB', '11.78 MiB', '800 B')
    """
    for power in range(len(_UNITS), 0, -1):
        if size >= 0.9 * 1024**power:
            number = size / 1024**power
            return f"{math.ceil(100 * number) / 100 if up else number:.2f} {_UNITS[power - 1]}iB"
    return f"{size} B"


def parse_bytes(size: float | str) -> int:
    """Return the number of bytes of a text such as ``"1GiB"`` or ``"800 MB"``. Raises ValueError.

    Examples
    --------
    >>> parse_bytes("1kiB"), parse_bytes("5.4 kB"), parse_bytes("1e6")
    (1024, 5400, 1000000)
    """
    if not isinstance(size, str):
        return int(size)
    found = _SIZE.fullmatch(size.replace(" ", ""))
    assert found is not None, "all text matches"
    number, prefix, binary = found["number"] or "1", found["prefix"].lower(), found["binary"]
    if binary and not prefix:
        raise ValueError(f"{size!r} is no number of bytes")
    return int(float(number) * (1024 if binary else 1000) ** (_UNITS.lower().find(prefix) + 1 if prefix else 0))

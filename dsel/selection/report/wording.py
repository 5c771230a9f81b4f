"""Numbers, durations and sentences of the HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsel._lib.text import shorten
from dsel.selection.plots.labels import printable
from dsel.selection.result import Selection


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with so many significant digits, and a real minus sign."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}g}".replace("-", "−")


def share(value: float) -> str:
    """Return a share in percent."""
    return f"{value:.2%}".replace("%", " %").replace("-", "−")


def duration(seconds: float) -> str:
    """Return a duration in the unit that people would use."""
    if seconds < 60.0:
        return f"{seconds:.2f} s" if seconds < 10.0 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def names(labels: Sequence[str], limit: int = 5) -> str:
    """Return labels in one line, at most `limit` of them."""
    return shorten([printable(label) for label in labels], limit) or "none"


def subject(selection: Selection) -> str:
    """Return what is explained: X itself, a target by name, or several targets."""
    if selection.unsupervised:
        return "X"
    return printable(selection.targets[0]) if len(selection.targets) == 1 else f"{len(selection.targets)} targets"


def headline(selection: Selection) -> str:
    """Return the result in one sentence."""
    n = selection.shape[1]
    if selection.criterion is not None:
        return f"{len(selection)} of {n:,} columns, criterion {number(selection.criterion, 6)}"
    return f"{len(selection)} of {n:,} columns explain {share(selection.r2)} of {subject(selection)}"


def proof(row: dict[str, Any]) -> str:
    """Return what a certificate proves, as a sentence."""
    size = f"{row['size']} column{'' if row['size'] == 1 else 's'}"
    if row["proven"]:
        return f"Proved optimal: no {size} explain more than R² {row['r2']:.6f}."
    return (
        f"No {size} explain more than R² {row['r2_bound']:.4f}; the best known explain {row['r2']:.4f}. "
        f"The error is at most {share(row['relative_gap'])} above the least possible."
    )


def certificate_of_choice(selection: Selection) -> dict[str, Any] | None:
    """Return the certificate that covers the chosen number of columns, or None."""
    rows = [row for row in selection.certificate if row["size"] >= (len(selection.groups) or len(selection))]
    return min(rows, key=lambda row: row["size"], default=None)

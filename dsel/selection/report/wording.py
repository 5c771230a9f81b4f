"""Numbers, durations and sentences of the HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsel._lib.text import shorten
from dsel.search.exact.certificate import caveat, claim, covered
from dsel.selection.plots.style import counted, printable
from dsel.selection.result import Selection


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with this number of significant digits, and a real minus sign."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}g}".replace("-", "−")


def aligned(value: float | None) -> str:
    """Return a number with six significant digits, zeros included, for a column of a table."""
    return "–" if value is None or not np.isfinite(value) else f"{value:#.6g}".rstrip(".").replace("-", "−")


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


def search_end(selection: Selection) -> str:
    """Return how long the search took and why it ended, as sentences."""
    ends = {
        "complete": "It ran to its end.",
        "iterations": "It made all iterations that were asked for.",
        "seconds": "The time limit ended it.",
        "patience": "It ended because nothing better was found for a long time.",
        "target": "It ended at the target.",
        "bound": "It ended at the proved bound: nothing is better.",
    }
    steps = f"The search took {selection.iterations:,} iterations of {selection.method}."
    return f"{steps} {ends.get(selection.ended, f'It ended by {selection.ended}.')}"


def explained(selection: Selection) -> str:
    """Return the name of the sum of gains: R^2, or with a ridge penalty what is left of it."""
    return "1 − f / ‖Y‖²" if selection.lam else "R²"


def headline(selection: Selection) -> str:
    """Return the result in one sentence."""
    columns = f"{len(selection):,} of {selection.shape[1]:,} columns"
    if selection.groups:
        columns = f"{counted(len(selection.groups), True)} with {columns}"
    if selection.criterion is not None:
        return f"{columns}, criterion {number(selection.criterion, 6)}"
    return f"{columns} explain {share(selection.r2)} of {subject(selection)}"


def proof(selection: Selection, row: dict[str, Any]) -> str:
    """Return what a certificate proves, in sentences: about R^2, or with a ridge penalty about the error f(S)."""
    return " ".join(filter(None, [_proved(selection, row), printable(caveat(row, selection.label))]))


def _proved(selection: Selection, row: dict[str, Any]) -> str:
    size, words = counted(row["size"], bool(selection.groups)), claim(row)
    size += " without such near-copies" if row["status"] == "optimal-except-near-copies" else ""
    if selection.lam:
        if words is not None:
            return f"{_sentence(words)}: no {size} have a smaller error f(S) than {number(row['value'], 6)}."
        known = f"No {size} have an error f(S) below {number(row['bound'], 6)}; the best known has "
        known += f"{number(row['value'], 6)}."
    elif words is not None:
        return f"{_sentence(words)}: no {size} explain more than R² {row['r2']:.6f}."
    else:
        known = f"No {size} explain more than R² {row['r2_bound']:.4f}; the best known explain {row['r2']:.4f}."
    if row["coefficients"]:
        known = f"{_sentence(covered(row['coefficients']))}: {known[0].lower()}{known[1:]}"
    useless = "No useful bound. " if row["status"] == "no-useful-bound" else ""
    return f"{useless}{known} The error could be at most {share(row['relative_gap'])} lower."


def _sentence(words: str) -> str:
    return (words[0].upper() + words[1:]).replace("||Y||^2", "‖Y‖²")


def proofs(selection: Selection) -> list[str]:
    """Return what the certificates prove: the choice first, then the other sizes together."""
    choice = certificate_of_choice(selection)
    if choice is None:
        return []
    others = [row for row in selection.certificate if row is not choice and row["size"]]
    proven = [str(row["size"]) for row in others if row["status"] == "optimal"]
    text = [proof(selection, choice)]
    if proven:
        counting = "groups" if selection.groups else "columns"
        text.append(f"The best subsets of {shorten(proven, 12)} {counting} are proved optimal, too.")
    if len(proven) < len(others):
        text.append("The table shows what is proved for the other sizes.")
    return text


def certificate_of_choice(selection: Selection) -> dict[str, Any] | None:
    """Return the certificate that covers the chosen number of columns, or None."""
    rows = [row for row in selection.certificate if row["size"] >= (len(selection.groups) or len(selection))]
    return min(rows, key=lambda row: row["size"], default=None)

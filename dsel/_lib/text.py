"""Words in messages: lists that are cut short, and suggestions for a misspelled name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def shorten(items: Iterable[str], limit: int = 5) -> str:
    """Return the first `limit` items, separated by commas, and how many more there are."""
    everything = list(items)
    rest = len(everything) - limit
    return ", ".join(everything[:limit]) + (f" and {rest} more" if rest > 0 else "")


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known names similar to `word`, or lists the first known names."""
    names = list(known)
    close = [repr(name) for name in get_close_matches(word, names, n=3, cutoff=0.4)]
    if not close:
        return f"Known: {shorten(names, 8)}."
    return f"Did you mean {', '.join(close[:-1])}{' or ' if close[1:] else ''}{close[-1]}?"

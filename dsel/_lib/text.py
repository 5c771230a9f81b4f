"""Words in messages: lists that are cut short, and suggestions for a misspelled name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def shorten(items: Iterable[str], limit: int = 5) -> str:
    """Return the first `limit` items, separated by commas, and how many more there are."""
    everything = list(items)
    rest = len(everything) - limit
    return ", ".join(everything[:limit]) + (f" and {rest} more" if rest > 0 else "")


def suggest(word: str, known: Iterable[str], *, closest: int = 1, listed: int | None = None) -> str:
    """Return a sentence that suggests the known names similar to `word`, or lists the known names.

    Case, and "-" or "_", make no difference.

    Parameters
    ----------
    word : str
        The unknown name.
    known : iterable of str
        The known names.
    closest : int
        How many names to suggest at most.
    listed : int, optional
        How many names to list at most; by default all.
    """
    names = list(known)
    by_key = {_key(name): name for name in reversed(names)}
    key = _key(word)
    close = [key] if key in by_key else get_close_matches(key, by_key, n=closest, cutoff=0.75)
    if not close and len(key) > 2:
        close = [known for known in reversed(by_key) if known.startswith(key)][:closest]
    if close:
        return f"Did you mean {' or '.join(repr(by_key[key]) for key in close)}?"
    return f"Known: {shorten(names, listed or len(names)) or 'none'}."


def _key(name: str) -> str:
    return name.lower().replace("_", "-")

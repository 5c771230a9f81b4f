"""Checks of numbers that every search shares."""

from __future__ import annotations

from dsel.errors import OptionError

SEED_LIMIT = 2**63


def check_size(k: int, n: int) -> None:
    """Raise OptionError unless 1 <= k <= n."""
    if not 1 <= k <= n:
        raise OptionError(f"k is {k}, but there are {n} columns to choose from.", "1 <= k <= columns.")


def check_seed(seed: int) -> None:
    """Raise OptionError unless 0 <= seed < 2^63."""
    if not 0 <= seed < SEED_LIMIT:
        raise OptionError(f"seed is {seed}; it is a whole number from 0 to 2^63 - 1.")

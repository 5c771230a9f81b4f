"""What every search asks of the numbers it is given."""

from __future__ import annotations

from dsel.errors import OptionError

SEED_LIMIT = 2**63


def check_size(k: int, n: int) -> None:
    """Refuse a k that no subset of n candidate columns can have. Errors: OptionError."""
    if not 1 <= k <= n:
        raise OptionError(f"k is {k}, but there are {n} columns to choose from.", "1 <= k <= columns.")


def check_seed(seed: int) -> None:
    """Refuse a seed that random streams cannot be keyed by. Errors: OptionError."""
    if not 0 <= seed < SEED_LIMIT:
        raise OptionError(f"seed is {seed}; it is a whole number from 0 to 2^63 - 1.")

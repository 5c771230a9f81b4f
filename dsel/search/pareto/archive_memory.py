"""The memory that the tables of an archive take."""

from __future__ import annotations

from dsel.errors import CapacityError
from dsel.objective.kernels.layout import subset_table_bytes

#: Bytes of an archive's tables up to which it also keeps those of subsets that left it.
_MOST_BYTES = 1 << 29


def size_limit(k: int, n: int, any_size: bool) -> int:
    """Return what an archive has in place of k: it holds subsets of fewer than twice as many of the n columns."""
    return max(k, n // 2 + 1) if any_size else k


def most_members(n: int, k: int) -> int:
    """Return the number of columns of the largest archived subset: |S| < 2k."""
    return min(2 * k - 1, n)


def first_slots(k: int) -> int:
    """Return the number of tables at the beginning. With isolation "none" an archive never needs more."""
    return 2 * k + 3


def table_bytes(n: int, few_targets: int, k: int, slots: int) -> int:
    """Return the bytes of the tables of some subsets of n columns. few_targets: N, or 0 if M is stored instead."""
    return subset_table_bytes(n, few_targets, most_members(n, k), slots)


def restart_slots(n: int, few_targets: int, k: int) -> int:
    """Return the number of tables of an archive that restarts often: also of subsets that left, if they are small."""
    slots = 2 * first_slots(k)
    return slots if table_bytes(n, few_targets, k, slots) <= _MOST_BYTES else first_slots(k)


def check_tables(n: int, few_targets: int, k: int, slots: int, memory_limit: int) -> None:
    """Raise CapacityError if the tables take more than `memory_limit` bytes."""
    need = table_bytes(n, few_targets, k, slots)
    if need > memory_limit:
        raise CapacityError(
            f"The archive's tables need {need:,} bytes for {slots} subsets of up to {most_members(n, k)} of "
            f"{n} columns; {memory_limit:,} bytes are allowed.",
            "Use a smaller k, isolation 'none', leave out any_size, or raise the option memory.",
        )

"""What the tables of a Pareto search's archive take, known before there are any."""

from __future__ import annotations

from dsel.errors import CapacityError
from dsel.objective.kernels.layout import subset_table_bytes


def most_members(n: int, k: int) -> int:
    """Columns of the largest subset that an archive holds: |S| < 2k."""
    return min(2 * k - 1, n)


def first_slots(k: int) -> int:
    """Subsets for which there is room at the beginning: with isolation "none" no archive holds more."""
    return 2 * k + 3


def table_bytes(n: int, few_targets: int, k: int, slots: int) -> int:
    """Bytes of the tables of so many subsets of n columns. few_targets: N, 0 where M is kept instead."""
    return subset_table_bytes(n, few_targets, most_members(n, k), slots)


def check_tables(n: int, few_targets: int, k: int, slots: int, memory_limit: int) -> None:
    """Refuse tables that take more than so many bytes. Errors: CapacityError."""
    need = table_bytes(n, few_targets, k, slots)
    if need > memory_limit:
        raise CapacityError(
            f"The archive's tables need {need / 2**30:.1f} GiB for {slots} subsets of up to {most_members(n, k)} of "
            f"{n} columns; {memory_limit / 2**30:.1f} GiB are allowed.",
            "Use a smaller k, isolation 'none', or let the option memory be more.",
        )

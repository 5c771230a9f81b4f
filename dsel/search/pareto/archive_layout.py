"""The arrays of a Pareto archive, for its compiled kernels: the tables of its subsets, and its own.

An archive holds solutions that do not dominate each other, at most one for every (isolation class, size). k is the
largest size asked for. Subsets of fewer than `sizes` columns are archived: 2k, or n and one or two more for all sizes.

The memory that the tables of an archive take.
"""

from __future__ import annotations

from typing import NewType

from dsel._lib.kernel_arrays import Layout
from dsel.errors import CapacityError
from dsel.objective.kernels.layout import TABLES, SubsetTables, subset_table_bytes

ArchiveTables = NewType("ArchiveTables", SubsetTables)
ARCHIVE = Layout[ArchiveTables]("ArchiveTables", base=TABLES)

ORDER = ARCHIVE.int_vector("ORDER", "(slots,) slots in use, oldest first; COUNT[MEMBERS] of them")
PARENTS = ARCHIVE.int_vector("PARENTS", "(slots,) scratch: slots of the subsets that may be drawn as parents")
FREE = ARCHIVE.int_vector("FREE", "(slots,) a queue of the slots not in use")
#: CLASS of a slot without a subset. Others that are not in use still have the tables of the subset that left them.
NO_SUBSET = -1
SLOT = ARCHIVE.int_matrix("SLOT", "(classes, sizes) slot of that class and size, -1 if none")
BEST = ARCHIVE.matrix("BEST", "(classes, sizes) least f in that class up to that size, without the empty set")
TRACE = ARCHIVE.matrix("TRACE", "(rows, 3) iteration, size, f at every improvement of the best f with size <= k")
COUNT = ARCHIVE.int_vector("COUNT", "(COUNTERS,)")
ITERATION, MEMBERS, TRACED, LOOKED_UP, VALUED, EVALUATED, ACCEPTED, REBUILT, LAST_GAIN, COUNTERS = range(10)

CDF = ARCHIVE.vector("CDF", "distribution of the number of flips, see dsel._lib.rng.binomial_cdf")
FLIPS = ARCHIVE.int_vector("FLIPS", "(max(n, 2 sizes),) scratch: columns to flip")
CANDIDATE = ARCHIVE.int_vector("CANDIDATE", "(2 sizes + 1,) scratch: a subset, ascending; last, on demand, its size")
RULES = ARCHIVE.int_vector("RULES", "(5,) LIMIT, MIN_INDEX, SEED, EXCHANGE_EVERY, VALUES")
#: LIMIT: k. MIN_INDEX: 1 where only subsets with the same least index compete. EXCHANGE_EVERY: iterations between
#: exchange searches, 0 for none.
#: VALUES: 1 where offspring of several flips get a value from their parent's table first, 0 where all are evaluated.
LIMIT, MIN_INDEX, SEED, EXCHANGE_EVERY, VALUES = range(5)
PARENT_SIZES = ARCHIVE.int_vector("PARENT_SIZES", "(sizes,) 1 where subsets of that size may be drawn as parents")
STOP_AT = ARCHIVE.vector("STOP_AT", "(1,) stop when f of some subset of size <= k is at or below this")

#: Why a kernel returned. FULL: there is no room in the archive or its trace. ROWS_NEEDED: rows of the columns in
#: CANDIDATE are missing; PAIRS_NEEDED: entries of the flipped columns are not known. The iteration is then repeated.
DONE, TARGET_REACHED, FULL, ROWS_NEEDED, PAIRS_NEEDED, REFUSED = range(6)


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

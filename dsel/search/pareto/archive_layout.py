"""The arrays of a Pareto archive, for its compiled kernels: the tables of its subsets, and its own.

An archive holds solutions that do not dominate each other, at most one for every (isolation class, size). k is the
largest size asked for. Subsets of fewer than `sizes` columns are archived: 2k, or n and one or two more for all sizes.
"""

from __future__ import annotations

from typing import NewType

from dsel._lib.kernel_arrays import Layout
from dsel.objective.kernels.layout import TABLES, SubsetTables

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
RULES = ARCHIVE.int_vector("RULES", "(6,) LIMIT, MIN_INDEX, SEED, EXCHANGE_EVERY, FIRST_SIZE, SIZES")
#: LIMIT: k. MIN_INDEX: 1 where only subsets with the same least index compete. EXCHANGE_EVERY: iterations between
#: exchange searches, 0 for none. FIRST_SIZE, SIZES: the first size of parents, and how many sizes, modulo `sizes`.
LIMIT, MIN_INDEX, SEED, EXCHANGE_EVERY, FIRST_SIZE, SIZES = range(6)
STOP_AT = ARCHIVE.vector("STOP_AT", "(1,) stop when f of some subset of size <= k is at or below this")

#: Why a kernel returned. FULL: there is no room in the archive or its trace. ROWS_NEEDED: rows of the columns in
#: CANDIDATE are missing; PAIRS_NEEDED: entries of the flipped columns are not known. The iteration is then repeated.
DONE, TARGET_REACHED, FULL, ROWS_NEEDED, PAIRS_NEEDED, REFUSED = range(6)

"""The arrays of the compiled branch and bound (dsel.search.exact.branch_and_bound.kernel).

A node is a subset S and an ordered list R of columns that may still be added; depth 0 is the node that a search starts
from. n columns, N targets, at most k columns; K = X'X, B = X'Y, lam the ridge penalty. G and B of a node are given S.
"""

from __future__ import annotations

from typing import NewType

from dsel._lib.kernel_arrays import Layout
from dsel._lib.types import Ints

BranchState = NewType("BranchState", Ints)
#: The first slot is beyond those of the other layouts, so that checked kernels tell them apart.
BRANCH = Layout[BranchState]("BranchState", first=1000)

# The problem.
ROOT_GRAM = BRANCH.matrix("ROOT_GRAM", "(n, n) K + lam I")
ROOT_CROSS = BRANCH.matrix("ROOT_CROSS", "(n, N) B")
ROOT_TARGETS = BRANCH.matrix("ROOT_TARGETS", "(N, N) Gram matrix of the targets, for the eigenvalue bound alone")
FLOOR = BRANCH.vector("FLOOR", "(n,) by column: a pivot at or below this is that of a dependent column")
NUMBERS = BRANCH.vector("NUMBERS", "(7,) INCUMBENT, MARGIN, PRUNED, TOTAL, REST, RIDGE, LISTED_BELOW")
#: REST: the least f that columns after the crossing allow, from the last order in which they were bounded. RIDGE: what
#: the bounds add to a column's square, over its floor. LISTED_BELOW: where subsets are listed, all below this f are.
#: Between it and INCUMBENT, only those that decide about a column are.
INCUMBENT, MARGIN, PRUNED, TOTAL, REST, RIDGE, LISTED_BELOW = range(7)

# The nodes on the way to the present one.
GRAM = BRANCH.cube("GRAM", "(depths, n, n) G")
CROSS = BRANCH.cube("CROSS", "(depths, n, N) B")
TARGETS = BRANCH.cube("TARGETS", "(depths, N, N) residual Gram matrix of the targets, for the eigenvalue bound alone")
ALLOWED = BRANCH.int_matrix("ALLOWED", "(depths, n) the columns of R")
CHILDREN = BRANCH.int_matrix("CHILDREN", "(depths, n) places in R of the children; the last one is visited first")
LOWER = BRANCH.matrix("LOWER", "(depths, n) lower bound on f of child i")
FRAME = BRANCH.int_matrix("FRAME", "(depths, 3) T, LEFT, CHOSEN")
#: T: columns in R. LEFT: children not visited yet. CHOSEN: the column that led to the node.
T, LEFT, CHOSEN = range(3)
ERROR = BRANCH.matrix("ERROR", "(4, depths) F_OF_S, BELOW, SHARE, ROOM")
#: F_OF_S: f(S). BELOW: a lower bound on f below S. SHARE: the product, over the members in the order of the search, of
#: pivot / squared norm. ROOM: least ratio of a member's squared norm to its floor.
F_OF_S, BELOW, SHARE, ROOM = range(4)

# The state of the search.
COUNT = BRANCH.int_vector("COUNT", "(COUNTERS,)")
#: DEPTH is that of the present node, -1 at the end. Q: columns to choose at depth 0. BOUND: which bound. BEST_SIZE: of
#: the subset in BEST, -1 for none. OPENED: whether depth 0 is. CAREFUL: bound every child as well as possible, not only
#: well enough to see that it cannot be pruned. PAIRS: whether the last two columns are found by comparing all pairs.
#: BASE_SIZE: of BASE. CORES: least number of columns to choose for which cores are sought. NOT_FINITE: bounds of
#: children that are not finite, and prune nothing. LOGGING: whether the tree is written to LOG. LOGGED, LOGGED_BOUNDS:
#: numbers in LOG and LOG_BOUNDS. LOG_LIMIT: the kernel stops when LOG has more numbers. STOP: another thread sets
#: it to 1 to stop the kernel within a node, which then stays open. WORK_DONE: elements of matrices that were copied or
#: updated. WORK_LIMIT: the kernel visits no further node from this WORK_DONE on. LISTING: whether all subsets of
#: exactly Q more columns that are better than INCUMBENT are listed, and it does not change. LISTED: subsets in LIST.
#: OVERFLOW: LIST is full, and the node that is visited stays open. LACKING: columns that LACKED marks.
(
    DEPTH, Q, NODES, BOUND, BEST_SIZE, OPENED, CAREFUL, PAIRS, BASE_SIZE, CORES, NOT_FINITE, LOGGING, LOGGED,
    LOGGED_BOUNDS, LOG_LIMIT, STOP, WORK_DONE, WORK_LIMIT, LISTING, LISTED, OVERFLOW, LACKING, COUNTERS,
) = range(23)  # fmt: skip
COMBINED, EIGENVALUE, LEAPS = range(3)
BEST = BRANCH.int_vector("BEST", "(k,) members chosen below depth 0 of the best subset found")
BASE = BRANCH.int_vector("BASE", "(k,) columns of S at depth 0")
START = BRANCH.int_vector("START", "(n + k,) columns of S ascending, then of R, from which a node is made")

# The list of subsets, see `dsel.search.exact.near_best`.
LIST = BRANCH.int_matrix("LIST", "(room, k) members of a subset, ascending")
LIST_VALUES = BRANCH.vector("LIST_VALUES", "(room,) f of the subsets")
WANTED = BRANCH.int_vector("WANTED", "(n,) 1 for each column of which it is not known whether a listed subset has it")
LACKED = BRANCH.int_vector("LACKED", "(n,) 1 for each column of which it is not known whether a listed subset lacks it")

# The proof log (dsel.search.exact.branch_and_bound.log_records).
LOG = BRANCH.int_vector("LOG", "(room,) records")
LOG_BOUNDS = BRANCH.vector("LOG_BOUNDS", "(room,) the bounds of the records, in their order")
CHILD_BOUND = BRANCH.vector("CHILD_BOUND", "(n,) by place: a lower bound on f of a child that was pruned when listed")
CORE_BOUND = BRANCH.vector("CORE_BOUND", "(k + 2,) by core: a lower bound on f without its columns")

# Scratch.
WORK = BRANCH.matrix("WORK", "(n, n)")
WORK_CROSS = BRANCH.matrix("WORK_CROSS", "(n, N)")
LEADING = BRANCH.cube("LEADING", "(2, r, r) A, and A - w w', of the r leading targets")
WHOLE = BRANCH.cube("WHOLE", "(2, N, N) A, and A - w w'")
MOMENTS = BRANCH.matrix("MOMENTS", "(2, n) |b_i|^2, and FREE, DEPENDENT or BORDERLINE")
FREE, DEPENDENT, BORDERLINE = range(3)
MEMBERS = BRANCH.int_vector("MEMBERS", "(k + 2,) a subset, ascending")
CHECK = BRANCH.matrix("CHECK", "(k + 2, k + 2 + N)")
TRANSPOSED = BRANCH.matrix("TRANSPOSED", "(N, n) B' of the present node")
GIVEN = BRANCH.matrix("GIVEN", "(n + k, k + 2) K of START given the members of S before each")
GIVEN_CROSS = BRANCH.matrix("GIVEN_CROSS", "(k + 2, N) B of the members of S given those before")
DIRECTION = BRANCH.vector("DIRECTION", "(N,) b of a child over the norm of its column")
ORDER = BRANCH.int_vector("ORDER", "(n,) the places of R in the order of the children")
PLACES = BRANCH.int_vector("PLACES", "(n + k,) places or columns of R, or sizes of cores")
CORE = BRANCH.int_vector("CORE", "(n,) the core that a column of R is in, 0 for none")

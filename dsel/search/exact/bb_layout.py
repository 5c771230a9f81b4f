"""What the compiled branch and bound (dsel.search.exact.bb_kernel) keeps in memory: arrays, their fields, counters."""

from __future__ import annotations

# Places of the arrays in P. Depth 0 is the node that the search starts from.
GRAM = 0  # (depths, n, n) G
CROSS = 4  # (depths, n, N) B
TARGETS = 8  # (depths, N, N) residual Gram of the targets, for the eigenvalue bound alone
WORK = 12  # (n, n) scratch
WORK_CROSS = 16  # (n, N) scratch
LEADING = 20  # (2, r, r) scratch: A, and A - w w', of the r leading targets
LOWER = 24  # (depths, n) lower bound on f of child i
ERROR = 28  # (4, depths) F_OF_S, BELOW, SHARE, ROOM
FLOOR = 32  # (n,) by column: a pivot at or below this is a dependent column
NUMBERS = 36  # (4,) INCUMBENT, MARGIN, PRUNED, TOTAL
MOMENTS = 40  # (2, n) scratch: |b_i|^2, and FREE, DEPENDENT or STEEP
ALLOWED = 44  # (depths, n) the columns of R
CHILDREN = 48  # (depths, n) places in R of the children, the last one first to be visited
FRAME = 52  # (depths, 3) T, LEFT, CHOSEN
COUNT = 56  # (COUNTERS,)
BEST = 60  # (k,) members chosen below depth 0 of the best subset found
ROOT_GRAM = 64  # (n, n) K + lam I
ROOT_CROSS = 68  # (n, N)
ROOT_TARGETS = 72  # (N, N)
START = 76  # (n + k,) columns of S ascending, then of R, for `_from_root`
BASE = 80  # (k,) columns of S at depth 0
MEMBERS = 84  # (k + 2,) scratch: a subset, ascending
CHECK = 88  # (k + 2, k + 2 + N) scratch
WHOLE = 96  # (2, N, N) scratch: A, and A - w w'
CORE = 92  # (n,) scratch: which core a column of R is in, 0 for none

INCUMBENT, MARGIN, PRUNED, TOTAL = range(4)
T, LEFT, CHOSEN = range(3)
#: f(S); a lower bound on f below S; product of the shares of the members' squared norms that were their pivots, in the
#: order of the search; least ratio of a member's squared norm to its floor.
F_OF_S, BELOW, SHARE, ROOM = range(4)
FREE, DEPENDENT, STEEP = range(3)
#: DEPTH is that of the present node, -1 at the end. Q: columns to choose at depth 0. BOUND: which bound. BEST_SIZE: of
#: the subset in BEST, -1 for none. OPENED: whether depth 0 is. CAREFUL: bound every child as well as can be, not only
#: well enough to see that it cannot be pruned. PAIRS: whether the last two columns are found by looking at all pairs.
#: BASE_SIZE: of BASE. CORES: least number of columns to choose with which cores are looked for. NOT_FINITE: bounds of
#: children that are not finite, and prune nothing.
DEPTH, Q, NODES, BOUND, BEST_SIZE, OPENED, CAREFUL, PAIRS, BASE_SIZE, CORES, NOT_FINITE, COUNTERS = range(12)
COMBINED, EIGENVALUE, LEAPS = range(3)

"""The inner loop of branch and bound over a quadratic objective, compiled.

A node is a subset S of size s, and an ordered list R of t columns that may still be added, q of them. It holds the
residual Gram G (t, t) of R and its residual cross-Gram B (t, N), both given S; lam stands in G's diagonal. Its
children choose one column i of R and may use those after it. With z_i the residual of i orthonormalised over the
columns after it (one elimination of G from the end backwards), A_i = sum_{l >= i} z_l z_l' is what all of R from i on
can explain, and with w_i = b_i / sqrt(g_ii)

    |w_i|^2 + the q - 1 largest eigenvalues of A_i - w_i w_i'

bounds what child i and any q - 1 columns after it explain: they span no more than R from i on, and have rank q - 1.
R is ordered so that A grows as late as it can: the next column from the end is that of the least |z|^2. Pairs (q = 2)
are all looked at, without bounds.

With the combined bound a node also knows "cores": sets of columns without which R is pruned, so that every better
subset holds one column of each. q + 1 disjoint cores leave no better subset, however much all columns explain
together; that is how q tells where a single direction holds nearly everything and the eigenvalues say nothing. With q
disjoint cores all columns outside of them are dropped; the children are those of the smallest core.

A subset is dependent when a pivot is at or below its floor with the columns in the order of their indices, as
`QuadraticObjective.value` has it, in whatever order the search came to them; what is dependent stays so with more
columns. The running factor decides where its pivots are far above the floor. Where they are not ("steep"), and for
every subset that seems better than the incumbent, those pivots and f are computed from the root (`eliminated`).
"""

from __future__ import annotations

import numpy as np

from dsel.compiled import compiled
from dsel.objective.evaluate import STEEP_RATIO, eliminated
from dsel.objective.memory import Floats, Ints, cube, int_matrix, int_vector, matrix, vector

# Places of the arrays in P. Depth 0 is the node that the search starts from.
GRAM = 0  # (depths, n, n) G
CROSS = 4  # (depths, n, N) B
TARGETS = 8  # (depths, N, N) residual Gram of the targets, for the eigenvalue bound alone
WORK = 12  # (n, n) scratch
WORK_CROSS = 16  # (n, N) scratch
SMALL = 20  # (2, N, N) scratch: A, and A - w w'
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
#: BASE_SIZE: of BASE. CORES: least number of columns to choose with which cores are looked for.
DEPTH, Q, NODES, BOUND, BEST_SIZE, OPENED, CAREFUL, PAIRS, BASE_SIZE, CORES, COUNTERS = range(11)
COMBINED, EIGENVALUE, LEAPS = range(3)

#: A pivot of at most this share of a column's squared norm is rounding: the column adds nothing to a bound. It is far
#: below the tolerance of dependence, but not below what several trifling pivots multiply to in another order
#: (dsel.objective.near_dependence says whether there are such).
_ROUNDING = 1e-5  # of FLOOR, itself 1e-7 of the squared norm
#: No place in R; and no targets, for the pivots alone.
_NONE, _PIVOTS = np.int64(-1), np.int64(0)


@compiled(fast=True)
def _top(H: Floats, q: int) -> float:
    """Sum of the q largest eigenvalues of a symmetric matrix."""
    N = H.shape[0]
    if q <= 0:
        return 0.0
    total = 0.0
    if q >= N:
        for a in range(N):
            total += H[a, a]
        return total
    values = np.linalg.eigvalsh(H)
    for a in range(q):
        total += max(values[N - 1 - a], 0.0)
    return total


@compiled(fast=True)
def _gather(P: Ints, d: int, i: int, l: int) -> int:
    """S at depth d with the places i and l of its R (-1: none) in MEMBERS, ascending; how many they are."""
    members, base, count = int_vector(P, MEMBERS), int_vector(P, BASE), int_vector(P, COUNT)
    frame, allowed = int_matrix(P, FRAME), int_matrix(P, ALLOWED)
    size = 0
    for a in range(count[BASE_SIZE] + d + 2):
        if a < count[BASE_SIZE]:
            j = base[a]
        elif a < count[BASE_SIZE] + d:
            j = frame[a - count[BASE_SIZE] + 1, CHOSEN]
        else:
            place = i if a == count[BASE_SIZE] + d else l
            if place < 0:
                continue
            j = allowed[d, place]
        p = size
        while p > 0 and members[p - 1] > j:
            members[p] = members[p - 1]
            p -= 1
        members[p] = j
        size += 1
    return size


@compiled(fast=True)
def _checked(P: Ints, d: int, i: int, l: int, targets: int) -> float:
    """f(S with i and l) as the objective values it, NaN where its columns depend on each other; see `eliminated`."""
    size = _gather(P, d, i, l)
    return eliminated(
        matrix(P, ROOT_GRAM), matrix(P, ROOT_CROSS), targets, vector(P, NUMBERS)[TOTAL], vector(P, FLOOR),
        int_vector(P, MEMBERS), size, matrix(P, CHECK),
    )  # fmt: skip


@compiled(fast=True)
def _dependent(P: Ints, d: int, i: int) -> bool:
    """Whether the columns of S and i depend on each other in the order of their indices: with more they do, too."""
    return not _checked(P, d, i, _NONE, _PIVOTS) < np.inf


@compiled(fast=True)
def _record(P: Ints, d: int, i: int, l: int) -> None:
    """Note S with the places i and l of its R (-1: none), if it is independent and better than the incumbent."""
    frame, best, allowed = int_matrix(P, FRAME), int_vector(P, BEST), int_matrix(P, ALLOWED)
    count = int_vector(P, COUNT)
    f = _checked(P, d, i, l, matrix(P, ROOT_CROSS).shape[1])
    if not f < vector(P, NUMBERS)[INCUMBENT]:
        return
    vector(P, NUMBERS)[INCUMBENT] = f
    size = d
    for a in range(d):
        best[a] = frame[a + 1, CHOSEN]
    if i >= 0:
        best[size] = allowed[d, i]
        size += 1
    if l >= 0:
        best[size] = allowed[d, l]
        size += 1
    count[BEST_SIZE] = size


@compiled(fast=True)
def _singles(P: Ints, d: int) -> None:
    """|b_i|^2 of every column of R, which of them depend on S, and the best subset of one more column."""
    gram, cross, moments = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, MOMENTS)
    frame, allowed, floor = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR)
    numbers = vector(P, NUMBERS)
    f = matrix(P, ERROR)[F_OF_S, d]
    for i in range(frame[d, T]):
        m = 0.0
        for a in range(cross.shape[1]):
            m += cross[i, a] * cross[i, a]
        moments[0, i] = m
        moments[1, i] = FREE
        if gram[i, i] <= STEEP_RATIO * floor[allowed[d, i]]:
            moments[1, i] = DEPENDENT if _dependent(P, d, i) else STEEP
        if moments[1, i] == STEEP or (moments[1, i] == FREE and f - m / gram[i, i] < numbers[INCUMBENT]):
            _record(P, d, i, _NONE)


@compiled(fast=True)
def _pairs(P: Ints, d: int) -> None:
    """The best subset of two more columns."""
    gram, cross, moments = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, MOMENTS)
    frame, allowed, floor = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR)
    numbers, work = vector(P, NUMBERS), matrix(P, WORK)
    f = matrix(P, ERROR)[F_OF_S, d]
    N = cross.shape[1]
    diagonal, inner, steep = work[0], work[1], work[2]
    for i in range(frame[d, T]):
        diagonal[i] = gram[i, i]
        steep[i] = STEEP_RATIO * floor[allowed[d, i]]
    for i in range(1, frame[d, T]):
        if moments[1, i] == DEPENDENT:
            continue
        need = f - numbers[INCUMBENT]
        g_ii = gram[i, i]
        m_ii = moments[0, i]
        steep_i = steep[i]
        hits = 0
        b_i = cross[i, 0]
        for l in range(i):
            g = gram[i, l]
            if N == 1:
                inner[l] = b_i * cross[l, 0]
            else:
                m = 0.0
                for a in range(N):
                    m += cross[i, a] * cross[l, a]
                inner[l] = m
        for l in range(i):
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            hits += 1 if explained > need * det or det <= steep[l] * g_ii + steep_i * diagonal[l] else 0
        if hits == 0:
            continue
        for l in range(i):
            if moments[1, l] == DEPENDENT:
                continue
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            if explained > (f - numbers[INCUMBENT]) * det or det <= steep[l] * g_ii + steep_i * diagonal[l]:
                _record(P, d, i, l)


@compiled(fast=True)
def _spread(H: Floats, w: Floats, q: int) -> float:
    """Sum of the q largest diagonal elements of H - w w': no more than that of the q largest eigenvalues (Schur)."""
    N = H.shape[0]
    total = 0.0
    last = np.inf
    taken = 0
    while taken < q:
        largest = -np.inf
        for x in range(N):
            h = H[x, x] - w[x] * w[x]
            if largest < h < last:
                largest = h
        if largest <= 0.0:
            break
        for x in range(N):
            if taken < q and H[x, x] - w[x] * w[x] == largest:
                total += largest
                taken += 1
        last = largest
    return total


@compiled(fast=True)
def _prepare(P: Ints, d: int, order: Ints) -> None:
    """Copies of G and B of depth d in that order in the scratch matrices, and A = 0."""
    gram, cross, work, work_cross = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, WORK), matrix(P, WORK_CROSS)
    A = cube(P, SMALL)[0]
    N = cross.shape[1]
    for i in range(order.size):
        row = order[i]
        for l in range(order.size):
            work[i, l] = gram[row, order[l]]
        for x in range(N):
            work_cross[i, x] = cross[row, x]
    for x in range(N):
        for y in range(N):
            A[x, y] = 0.0


@compiled(fast=True)
def _eliminate(P: Ints, a: int, N: int) -> None:
    """Take column a's direction out of the columns before it, in the scratch matrices."""
    work, cross = matrix(P, WORK), matrix(P, WORK_CROSS)
    d = work[a, a]
    for i in range(a):
        u = work[i, a] / d
        for l in range(a):
            work[i, l] -= u * work[a, l]
        for x in range(N):
            cross[i, x] -= u * cross[a, x]


@compiled(fast=True)
def _exchange(P: Ints, order: Ints, i: int, l: int, N: int) -> None:
    """Columns i and l of the scratch matrices change places."""
    work, cross = matrix(P, WORK), matrix(P, WORK_CROSS)
    if i == l:
        return
    order[i], order[l] = order[l], order[i]
    for x in range(l + 1):
        work[i, x], work[l, x] = work[l, x], work[i, x]
    for x in range(l + 1):
        work[x, i], work[x, l] = work[x, l], work[x, i]
    for x in range(N):
        cross[i, x], cross[l, x] = cross[l, x], cross[i, x]


@compiled(fast=True)
def _least(P: Ints, d: int, first: int, a: int, N: int, order: Ints) -> int:
    """Of the columns first..a the one that adds least to what those after a explain."""
    work, cross, floor, allowed = matrix(P, WORK), matrix(P, WORK_CROSS), vector(P, FLOOR), int_matrix(P, ALLOWED)
    chosen = a
    least = np.inf
    for i in range(first, a + 1):
        z = 0.0
        if work[i, i] > _ROUNDING * floor[allowed[d, order[i]]]:
            for x in range(N):
                z += cross[i, x] * cross[i, x]
            z /= work[i, i]
        if z < least:
            least = z
            chosen = i
    return chosen


@compiled(fast=True)
def _absorb(P: Ints, d: int, first: int, a: int, order: Ints) -> float:
    """Put that column of first..a at place a which adds least to A, and add it; what it adds."""
    work, cross, A = matrix(P, WORK), matrix(P, WORK_CROSS), cube(P, SMALL)[0]
    floor, allowed = vector(P, FLOOR), int_matrix(P, ALLOWED)
    N = cross.shape[1]
    if first < a:
        _exchange(P, order, _least(P, d, first, a, N, order), a, N)
    if work[a, a] <= _ROUNDING * floor[allowed[d, order[a]]]:
        return 0.0
    z = 0.0
    for x in range(N):
        z += cross[a, x] * cross[a, x]
        for y in range(N):
            A[x, y] += cross[a, x] * cross[a, y] / work[a, a]
    _eliminate(P, a, N)
    return z / work[a, a]


@compiled(fast=True)
def _least_gain_last(P: Ints, d: int, first: int, a: int, order: Ints) -> None:
    """Put that of the columns first..a at place a which alone explains least."""
    gram, moments = cube(P, GRAM)[d], matrix(P, MOMENTS)
    p = first
    for i in range(first + 1, a + 1):
        if moments[0, order[i]] * gram[order[p], order[p]] < moments[0, order[p]] * gram[order[i], order[i]]:
            p = i
    order[p], order[a] = order[a], order[p]


@compiled(fast=True)
def _suffix_bound(P: Ints, q: int, top: float, trace: float, slack: float, exact: bool) -> float:
    """At least the q largest eigenvalues of A: `top` is that already; their sum, where it may be within the slack."""
    small = cube(P, SMALL)
    kind = int_vector(P, COUNT)[BOUND]
    if kind == LEAPS or q >= small.shape[1]:
        return trace
    if top <= slack:
        return top
    small[1, 0, :] = 0.0
    if not exact and _spread(small[0], small[1, 0], q) > slack:
        return trace
    return min(_top(small[0], q), trace)


@compiled(fast=True)
def _child_bound(P: Ints, d: int, j: int, q: int, trace: float, slack: float, exact: bool) -> float:
    """What child j, a place in the order before, and q - 1 columns after it can explain."""
    gram, cross, small = cube(P, GRAM)[d], cube(P, CROSS)[d], cube(P, SMALL)
    kind = int_vector(P, COUNT)[BOUND]
    N = cross.shape[1]
    if kind == LEAPS or (kind == COMBINED and (trace <= slack or q - 1 >= N)):
        return trace
    A, H = small[0], small[1]
    if kind == EIGENVALUE:
        A = cube(P, TARGETS)[d]
    w = cross[j] / np.sqrt(gram[j, j])
    gain = matrix(P, MOMENTS)[0, j] / gram[j, j]
    if not exact and gain + _spread(A, w, q - 1) > slack:
        return trace if kind == COMBINED else np.inf
    for x in range(N):
        for y in range(N):
            H[x, y] = A[x, y] - w[x] * w[y]
    bound = gain + _top(H, q - 1)
    return min(trace, bound) if kind == COMBINED else bound


@compiled(fast=True)
def _list_children(P: Ints, d: int, q: int, order: Ints, first: int, split: int) -> int:
    """Order the columns first.. of R, those from split on before the others, bound the children and list those that may
    hold a better subset. The place from which on (downwards) not all are pruned, first - 1 where there is none."""
    frame, children = int_matrix(P, FRAME), int_matrix(P, CHILDREN)
    numbers, lower, count = vector(P, NUMBERS), matrix(P, LOWER), int_vector(P, COUNT)
    f, below = matrix(P, ERROR)[F_OF_S, d], matrix(P, ERROR)[BELOW, d]
    slack = f - numbers[INCUMBENT] + numbers[MARGIN]
    kind = count[BOUND]
    exact = d == 0 or count[CAREFUL] > 0
    single = matrix(P, WORK_CROSS).shape[1] == 1 and count[CAREFUL] == 0
    _prepare(P, d, order)
    trace = 0.0
    top = 0.0  # at least the q largest eigenvalues of A
    reached = -1.0  # what the columns looked at so far can explain, where that is not enough
    listed = 0
    crossed = kind == EIGENVALUE
    crossing = order.size - 1 if crossed else first - 1
    for a in range(order.size - 1, first - 1, -1):
        lowest = split if a >= split else first
        ordered = crossed and (single or kind == EIGENVALUE)  # A is not needed any more
        if ordered:
            _least_gain_last(P, d, lowest, a, order)
        else:
            z = _absorb(P, d, lowest, a, order)
            trace += z
            top += z
        if not crossed:
            top = _suffix_bound(P, q, top, trace, slack, exact)
            if top <= slack:
                reached = top
                continue
            crossed = True
            crossing = a
        j = order[a]
        known = ordered and kind != EIGENVALUE
        bound = f - below if known else _child_bound(P, d, j, q, trace, slack, exact)
        if bound <= slack:
            numbers[PRUNED] = min(numbers[PRUNED], f - bound)
            continue
        children[d, listed] = a
        lower[d, listed] = max(f - bound, below)
        listed += 1
    if reached >= 0.0:
        numbers[PRUNED] = min(numbers[PRUNED], f - reached)
    frame[d, LEFT] = listed
    return crossing


@compiled(fast=True)
def _next_core(P: Ints, d: int, q: int, order: Ints, split: int) -> int:
    """Order R so that the columns before split come last, and find how many of those from split on explain too little
    together with q columns of the others left out of count: the place below which a core lies, see `_cores`."""
    numbers = vector(P, NUMBERS)
    f = matrix(P, ERROR)[F_OF_S, d]
    slack = f - numbers[INCUMBENT] + numbers[MARGIN]
    exact = False
    _prepare(P, d, order)
    trace = 0.0
    top = 0.0
    reached = 0.0
    for a in range(order.size - 1, -1, -1):
        z = _absorb(P, d, a if a >= split else np.int64(0), a, order)
        trace += z
        top += z
        if a > split:
            continue
        top = _suffix_bound(P, q, top, trace, slack, exact)
        if top > slack:
            numbers[PRUNED] = min(numbers[PRUNED], f - reached)
            return a
        reached = top
    numbers[PRUNED] = min(numbers[PRUNED], f - reached)
    return -1


@compiled(fast=True)
def _cores(P: Ints, d: int, q: int, order: Ints, crossing: int) -> int:
    """Disjoint sets of columns of which every better subset holds one; how many; q + 1: there is no better subset.

    Without the columns of such a set, a core, the bound prunes. The first is that of the children, `order` up to
    `crossing`; the next one is looked for among the columns that are in none.
    """
    core = int_vector(P, CORE)
    t = order.size
    for a in range(t):
        core[order[a]] = 1 if a <= crossing else 0
    found = 1
    trial = np.empty(t, np.int64)
    while found <= q:
        split = 0
        for a in range(t):
            if core[a] == 0:
                trial[split] = a
                split += 1
        held = split
        for a in range(t):
            if core[a] > 0:
                trial[held] = a
                held += 1
        place = _next_core(P, d, q, trial, split)
        if place >= split:
            return found
        found += 1
        for a in range(place + 1):
            core[trial[a]] = found
        if place < 0:
            return q + 1
    return found


@compiled(fast=True)
def _narrow(P: Ints, d: int, q: int, order: Ints, found: int) -> None:
    """List the children of the smallest core instead; with q cores a better subset has one of each and nothing else."""
    core = int_vector(P, CORE)
    t = order.size
    sizes = np.zeros(found + 1, np.int64)
    for a in range(t):
        sizes[core[a]] += 1
    least = 1
    for x in range(2, found + 1):
        if sizes[x] < sizes[least]:
            least = x
    dropped = sizes[0] if found == q else 0
    if least == 1 and dropped == 0:
        return
    place = 0
    for turn in range(3):  # what is dropped, the core, the others
        for a in range(t):
            out = dropped > 0 and core[a] == 0
            if (turn == 0 and out) or (turn == 1 and core[a] == least) or (turn == 2 and not out and core[a] != least):
                order[place] = a
                place += 1
    _list_children(P, d, q, order, dropped, dropped + sizes[least])


@compiled(fast=True)
def _branch(P: Ints, d: int, q: int) -> None:
    """Order R, bound its children and list those that may hold a better subset."""
    frame, children, moments = int_matrix(P, FRAME), int_matrix(P, CHILDREN), matrix(P, MOMENTS)
    lower, count = matrix(P, LOWER), int_vector(P, COUNT)
    t = frame[d, T]
    order = np.empty(t, np.int64)
    place = 0
    first = 0
    steep = 0
    for state in (DEPENDENT, STEEP, FREE):
        for i in range(t):
            if moments[1, i] == state:
                order[place] = i
                place += 1
                first += 1 if state != FREE else 0
                steep += 1 if state == STEEP else 0
    crossing = _list_children(P, d, q, order, first, first)
    if count[BOUND] == COMBINED and first == 0 and frame[d, LEFT] > 0 and q >= count[CORES]:
        found = _cores(P, d, q, order, crossing)
        if found > q:
            frame[d, LEFT] = 0
        else:
            _narrow(P, d, q, order, found)
    for a in range(first - 1, first - steep - 1, -1):
        children[d, frame[d, LEFT]] = a
        lower[d, frame[d, LEFT]] = matrix(P, ERROR)[BELOW, d]
        frame[d, LEFT] += 1
    if frame[d, LEFT] > 0:
        _arrange(P, d, order)


@compiled(fast=True)
def _arrange(P: Ints, d: int, order: Ints) -> None:
    """Put R, G and B of depth d into the new order."""
    gram, cross, work, work_cross = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, WORK), matrix(P, WORK_CROSS)
    allowed = int_matrix(P, ALLOWED)
    t = order.size
    N = cross.shape[1]
    for i in range(t):
        row = order[i]
        for l in range(t):
            work[i, l] = gram[row, order[l]]
        for x in range(N):
            work_cross[i, x] = cross[row, x]
    columns = np.empty(t, np.int64)
    for i in range(t):
        columns[i] = allowed[d, order[i]]
    for i in range(t):
        allowed[d, i] = columns[i]
        for l in range(t):
            gram[i, l] = work[i, l]
        for x in range(N):
            cross[i, x] = work_cross[i, x]


@compiled(fast=True)
def _open(P: Ints, d: int) -> None:
    """Look at the node at depth d: its own neighbours, and which children are to be visited."""
    frame, count = int_matrix(P, FRAME), int_vector(P, COUNT)
    q = count[Q] - d
    frame[d, LEFT] = 0
    _singles(P, d)
    if q == 2 and count[PAIRS] > 0:
        _pairs(P, d)
    elif q >= 2:
        _branch(P, d, q)


@compiled(fast=True)
def _descend(P: Ints, d: int, i: int) -> bool:
    """Make child i of the node at depth d the node at depth d + 1, without columns that depend on it; False where it
    depends on S itself."""
    gram, cross, columns = cube(P, GRAM), cube(P, CROSS), int_vector(P, START)
    frame, allowed, floor, count = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR), int_vector(P, COUNT)
    error, targets, root, moved = matrix(P, ERROR), cube(P, TARGETS), matrix(P, ROOT_GRAM), int_matrix(P, CHILDREN)
    t = frame[d, T]
    N = cross.shape[2]
    g = gram[d, i, i]
    j = allowed[d, i]
    error[SHARE, d + 1] = error[SHARE, d] * g / root[j, j]
    error[ROOM, d + 1] = min(error[ROOM, d], root[j, j] / floor[j])
    if error[SHARE, d + 1] * error[ROOM, d + 1] <= STEEP_RATIO and _dependent(P, d, i):
        return False
    frame[d + 1, CHOSEN] = j
    if g <= STEEP_RATIO * floor[j]:
        s = _gather(P, d, i, _NONE)
        for a in range(s):
            columns[a] = int_vector(P, MEMBERS)[a]
        for a in range(i + 1, t):
            columns[s + a - i - 1] = allowed[d, a]
        _from_root(P, d + 1, s, t - i - 1)
        return True
    gain = 0.0
    for x in range(N):
        gain += cross[d, i, x] * cross[d, i, x]
    error[F_OF_S, d + 1] = error[F_OF_S, d] - gain / g
    kept = 0
    parent, child = gram[d], gram[d + 1]
    whole = True
    for a in range(i + 1, t):
        if parent[a, a] - parent[i, a] * parent[i, a] / g <= floor[allowed[d, a]]:
            whole = False
    if whole:
        first = i + 1
        kept = t - first
        for a in range(kept):
            u = parent[i, first + a] / g
            allowed[d + 1, a] = allowed[d, first + a]
            for b in range(kept):
                child[a, b] = parent[first + a, first + b] - u * parent[i, first + b]
            for x in range(N):
                cross[d + 1, a, x] = cross[d, first + a, x] - u * cross[d, i, x]
    else:
        for a in range(i + 1, t):
            left = parent[a, a] - parent[i, a] * parent[i, a] / g
            if left <= floor[allowed[d, a]] and not _checked(P, d, i, a, _PIVOTS) < np.inf:
                continue
            u = parent[i, a] / g
            allowed[d + 1, kept] = allowed[d, a]
            for x in range(N):
                cross[d + 1, kept, x] = cross[d, a, x] - u * cross[d, i, x]
            for b in range(kept):
                l = moved[d + 1, b]
                child[kept, b] = parent[a, l] - u * parent[i, l]
                child[b, kept] = child[kept, b]
            child[kept, kept] = parent[a, a] - u * parent[i, a]
            moved[d + 1, kept] = a
            kept += 1
    frame[d + 1, T] = kept
    if count[BOUND] == EIGENVALUE:
        for x in range(N):
            for y in range(N):
                targets[d + 1, x, y] = targets[d, x, y] - cross[d, i, x] * cross[d, i, y] / g
    return True


@compiled(fast=True)
def _from_root(P: Ints, d: int, s: int, t: int) -> None:
    """Make depth d the node of S = START[:s] (ascending, independent) and R = START[s:s + t]. O(s (s + t)^2)."""
    gram, cross, root, root_cross = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, ROOT_GRAM), matrix(P, ROOT_CROSS)
    columns, allowed, frame, floor = (
        int_vector(P, START),
        int_matrix(P, ALLOWED),
        int_matrix(P, FRAME),
        vector(P, FLOOR),
    )
    error = matrix(P, ERROR)
    N = root_cross.shape[1]
    f = vector(P, NUMBERS)[TOTAL]
    rows = np.empty((s + t, s))  # K given the members of S before, column by column
    rows_cross = np.empty((s, N))
    error[SHARE, d] = 1.0
    error[ROOM, d] = np.inf
    for p in range(s):
        for i in range(s + t):
            g = root[columns[i], columns[p]]
            for a in range(p):
                g -= rows[i, a] * rows[p, a]
            rows[i, p] = g
        j = columns[p]
        error[SHARE, d] *= rows[p, p] / root[j, j]
        error[ROOM, d] = min(error[ROOM, d], root[j, j] / floor[j])
        scale = 1.0 / np.sqrt(rows[p, p])
        for i in range(s + t):
            rows[i, p] *= scale
        for x in range(N):
            b = root_cross[j, x]
            for a in range(p):
                b -= rows[p, a] * rows_cross[a, x]
            rows_cross[p, x] = b * scale
            f -= rows_cross[p, x] * rows_cross[p, x]
    for i in range(t):
        allowed[d, i] = columns[s + i]
        for l in range(t):
            gram[i, l] = root[columns[s + i], columns[s + l]]
        for x in range(N):
            cross[i, x] = root_cross[columns[s + i], x]
        for a in range(s):
            u = rows[s + i, a]
            for l in range(t):
                gram[i, l] -= u * rows[s + l, a]
            for x in range(N):
                cross[i, x] -= u * rows_cross[a, x]
    if int_vector(P, COUNT)[BOUND] == EIGENVALUE:
        _residual_targets(P, d, rows_cross)
    frame[d, T] = t
    frame[d, LEFT] = 0
    error[F_OF_S, d] = f


@compiled(fast=True)
def _residual_targets(P: Ints, d: int, explained: Floats) -> None:
    """The residual Gram matrix of the targets at depth d: what the rows of `explained` (s, N) leave."""
    targets, root = cube(P, TARGETS)[d], matrix(P, ROOT_TARGETS)
    for x in range(root.shape[0]):
        for y in range(root.shape[0]):
            targets[x, y] = root[x, y]
            for a in range(explained.shape[0]):
                targets[x, y] -= explained[a, x] * explained[a, y]


@compiled(fast=True)
def begin(P: Ints, s: int, t: int) -> None:
    """Make depth 0 the node of S = START[:s] (ascending) and R = START[s:s + t]; nothing is left of a dependent S."""
    count, base, columns = int_vector(P, COUNT), int_vector(P, BASE), int_vector(P, START)
    count[DEPTH] = -1
    count[OPENED] = 0
    count[BEST_SIZE] = -1
    count[BASE_SIZE] = s
    for a in range(s):
        base[a] = columns[a]
    if _checked(P, np.int64(0), _NONE, _NONE, _PIVOTS) < np.inf:
        count[DEPTH] = 0
        _from_root(P, np.int64(0), s, t)


@compiled(fast=True)
def explore(P: Ints, budget: int) -> None:
    """Depth first, for `budget` nodes or until nothing is left (COUNT[DEPTH] < 0).

    A node counts when it is opened: when its bound as a child, in its parent, did not prune it.
    """
    frame, count, children = int_matrix(P, FRAME), int_vector(P, COUNT), int_matrix(P, CHILDREN)
    numbers, lower = vector(P, NUMBERS), matrix(P, LOWER)
    until = count[NODES] + budget
    if count[DEPTH] >= 0 and count[OPENED] == 0 and budget > 0:
        count[OPENED] = 1
        count[NODES] += 1
        _open(P, count[DEPTH])
    while count[DEPTH] >= 0 and count[NODES] < until:
        d = count[DEPTH]
        if frame[d, LEFT] == 0:
            count[DEPTH] -= 1
            continue
        frame[d, LEFT] -= 1
        place = frame[d, LEFT]
        if lower[d, place] >= numbers[INCUMBENT] - numbers[MARGIN]:
            numbers[PRUNED] = min(numbers[PRUNED], lower[d, place])
            continue
        if not _descend(P, d, children[d, place]):
            continue
        matrix(P, ERROR)[BELOW, d + 1] = lower[d, place]
        count[DEPTH] = d + 1
        count[NODES] += 1
        _open(P, d + 1)

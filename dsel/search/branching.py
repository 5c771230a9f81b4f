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
"""

from __future__ import annotations

import numpy as np

from dsel.compiled import compiled
from dsel.objective.memory import Floats, Ints, cube, int_matrix, int_vector, matrix, vector

# Places of the arrays in P. Depth 0 is the node that the search starts from.
GRAM = 0  # (depths, n, n) G
CROSS = 4  # (depths, n, N) B
TARGETS = 8  # (depths, N, N) residual Gram of the targets, for the eigenvalue bound alone
WORK = 12  # (n, n) scratch
WORK_CROSS = 16  # (n, N) scratch
SMALL = 20  # (2, N, N) scratch: A, and A - w w'
LOWER = 24  # (depths, n) lower bound on f of child i
ERROR = 28  # (2, depths) f(S), and a lower bound on f below S
FLOOR = 32  # (n,) by column: a pivot at or below this is a dependent column
NUMBERS = 36  # (4,) INCUMBENT, MARGIN, PRUNED
MOMENTS = 40  # (2, n) scratch: |b_i|^2, and 1 for a column that depends on S
ALLOWED = 44  # (depths, n) the columns of R
CHILDREN = 48  # (depths, n) places in R of the children, the last one first to be visited
FRAME = 52  # (depths, 3) T, LEFT, CHOSEN
COUNT = 56  # (COUNTERS,)
BEST = 60  # (k,) members chosen below depth 0 of the best subset found
ROOT_GRAM = 64  # (n, n) K + lam I
ROOT_CROSS = 68  # (n, N)
ROOT_TARGETS = 72  # (N, N)
START = 76  # (n + k,) columns of S, then of R, for `begin`

INCUMBENT, MARGIN, PRUNED = range(3)
T, LEFT, CHOSEN = range(3)
#: DEPTH is that of the present node, -1 at the end. Q: columns to choose at depth 0. BOUND: which bound. BEST_SIZE: of
#: the subset in BEST, -1 for none. OPENED: whether depth 0 is. CAREFUL: bound every child as well as can be, not only
#: well enough to see that it cannot be pruned. PAIRS: whether the last two columns are found by looking at all pairs.
DEPTH, Q, NODES, BOUND, BEST_SIZE, OPENED, CAREFUL, PAIRS, COUNTERS = range(9)
COMBINED, EIGENVALUE, LEAPS = range(3)

#: A pivot of at most this share of a column's squared norm is rounding: the column adds nothing to a bound. It is far
#: below the tolerance of dependence, so that the bound covers whatever the objective counts as independent.
_ROUNDING = 1e-5  # of FLOOR, itself 1e-7 of the squared norm


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
def _record(P: Ints, d: int, f: float, i: int, l: int) -> None:
    """Note a better subset: what is chosen on the way to depth d, and the places i and l of its R (-1: none)."""
    frame, best, allowed = int_matrix(P, FRAME), int_vector(P, BEST), int_matrix(P, ALLOWED)
    count = int_vector(P, COUNT)
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
    f = matrix(P, ERROR)[0, d]
    best = -1
    least = numbers[INCUMBENT]
    for i in range(frame[d, T]):
        m = 0.0
        for a in range(cross.shape[1]):
            m += cross[i, a] * cross[i, a]
        moments[0, i] = m
        moments[1, i] = 0.0
        if gram[i, i] <= floor[allowed[d, i]]:
            moments[1, i] = 1.0
        elif f - m / gram[i, i] < least:
            least = f - m / gram[i, i]
            best = i
    if best >= 0:
        _record(P, d, least, best, -1)


@compiled(fast=True)
def _pairs(P: Ints, d: int) -> None:
    """The best subset of two more columns."""
    gram, cross, moments = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, MOMENTS)
    frame, allowed, floor = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR)
    numbers, work = vector(P, NUMBERS), matrix(P, WORK)
    f = matrix(P, ERROR)[0, d]
    N = cross.shape[1]
    diagonal, inner = work[0], work[1]
    for i in range(frame[d, T]):
        diagonal[i] = gram[i, i]
    for i in range(1, frame[d, T]):
        if moments[1, i] > 0.0:
            continue
        need = f - numbers[INCUMBENT]
        g_ii = gram[i, i]
        m_ii = moments[0, i]
        hits = 0
        if N == 1:
            b_i = cross[i, 0]
            for l in range(i):
                g = gram[i, l]
                inner[l] = b_i * cross[l, 0]
                explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
                hits += 1 if explained > need * (g_ii * diagonal[l] - g * g) else 0
        else:
            for l in range(i):
                m = 0.0
                for a in range(N):
                    m += cross[i, a] * cross[l, a]
                inner[l] = m
            for l in range(i):
                g = gram[i, l]
                explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
                hits += 1 if explained > need * (g_ii * diagonal[l] - g * g) else 0
        if hits == 0:
            continue
        for l in range(i):
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            if moments[1, l] > 0.0 or det <= floor[allowed[d, l]] * g_ii or det <= floor[allowed[d, i]] * diagonal[l]:
                continue
            value = f - (m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]) / det
            if value < numbers[INCUMBENT]:
                _record(P, d, value, i, l)


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
def _prepare(P: Ints, d: int) -> Ints:
    """Copies of G and B of depth d in the scratch matrices, A = 0, and the present order of R."""
    gram, cross, work, work_cross = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, WORK), matrix(P, WORK_CROSS)
    A = cube(P, SMALL)[0]
    t = int_matrix(P, FRAME)[d, T]
    N = cross.shape[1]
    for i in range(t):
        for l in range(t):
            work[i, l] = gram[i, l]
        for x in range(N):
            work_cross[i, x] = cross[i, x]
    for x in range(N):
        for y in range(N):
            A[x, y] = 0.0
    return np.arange(t)


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
def _least(P: Ints, d: int, a: int, N: int, order: Ints) -> int:
    """Of the columns 0..a the one that adds least to what those after a explain."""
    work, cross, floor, allowed = matrix(P, WORK), matrix(P, WORK_CROSS), vector(P, FLOOR), int_matrix(P, ALLOWED)
    chosen = 0
    least = np.inf
    for i in range(a + 1):
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
def _absorb(P: Ints, d: int, a: int, order: Ints) -> float:
    """Put that column at place a which adds least to A, and add it; what it adds."""
    work, cross, A = matrix(P, WORK), matrix(P, WORK_CROSS), cube(P, SMALL)[0]
    floor, allowed = vector(P, FLOOR), int_matrix(P, ALLOWED)
    N = cross.shape[1]
    _exchange(P, order, _least(P, d, a, N, order), a, N)
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
def _least_gain_last(P: Ints, d: int, a: int, order: Ints) -> None:
    """Put that of the columns 0..a at place a which alone explains least."""
    gram, moments = cube(P, GRAM)[d], matrix(P, MOMENTS)
    p = 0
    for i in range(1, a + 1):
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
def _branch(P: Ints, d: int, q: int) -> None:
    """Order R, bound its children and list those that may hold a better subset."""
    frame, children, moments = int_matrix(P, FRAME), int_matrix(P, CHILDREN), matrix(P, MOMENTS)
    numbers, lower, count = vector(P, NUMBERS), matrix(P, LOWER), int_vector(P, COUNT)
    f, below = matrix(P, ERROR)[0, d], matrix(P, ERROR)[1, d]
    slack = f - numbers[INCUMBENT] + numbers[MARGIN]
    kind = count[BOUND]
    exact = d == 0 or count[CAREFUL] > 0
    single = matrix(P, WORK_CROSS).shape[1] == 1 and count[CAREFUL] == 0
    order = _prepare(P, d)
    trace = 0.0
    top = 0.0  # at least the q largest eigenvalues of A
    reached = -1.0  # what the columns looked at so far can explain, where that is not enough
    listed = 0
    crossed = kind == EIGENVALUE
    for a in range(order.size - 1, -1, -1):
        ordered = crossed and (single or kind == EIGENVALUE)  # A is not needed any more
        if ordered:
            _least_gain_last(P, d, a, order)
        else:
            z = _absorb(P, d, a, order)
            trace += z
            top += z
        if not crossed:
            top = _suffix_bound(P, q, top, trace, slack, exact)
            if top <= slack:
                reached = top
                continue
            crossed = True
            if reached >= 0.0:
                numbers[PRUNED] = min(numbers[PRUNED], f - reached)
        j = order[a]
        if moments[1, j] > 0.0:
            continue
        known = ordered and kind != EIGENVALUE
        bound = f - below if known else _child_bound(P, d, j, q, trace, slack, exact)
        if bound <= slack:
            numbers[PRUNED] = min(numbers[PRUNED], f - bound)
            continue
        children[d, listed] = a
        lower[d, listed] = max(f - bound, below)
        listed += 1
    if reached >= 0.0 and not crossed:
        numbers[PRUNED] = min(numbers[PRUNED], f - reached)
    frame[d, LEFT] = listed
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
def _descend(P: Ints, d: int, i: int) -> None:
    """Make child i of the node at depth d the node at depth d + 1; columns that depend on it are left out."""
    gram, cross = cube(P, GRAM), cube(P, CROSS)
    frame, allowed, floor, count = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR), int_vector(P, COUNT)
    error, targets = matrix(P, ERROR)[0], cube(P, TARGETS)
    t = frame[d, T]
    N = cross.shape[2]
    g = gram[d, i, i]
    frame[d + 1, CHOSEN] = allowed[d, i]
    gain = 0.0
    for x in range(N):
        gain += cross[d, i, x] * cross[d, i, x]
    error[d + 1] = error[d] - gain / g
    kept = 0
    parent, child = gram[d], gram[d + 1]
    whole = True
    for a in range(i + 1, t):
        if parent[a, a] - parent[i, a] * parent[i, a] / g <= _ROUNDING * floor[allowed[d, a]]:
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
            if parent[a, a] - parent[i, a] * parent[i, a] / g <= _ROUNDING * floor[allowed[d, a]]:
                continue
            u = parent[i, a] / g
            allowed[d + 1, kept] = allowed[d, a]
            for x in range(N):
                cross[d + 1, kept, x] = cross[d, a, x] - u * cross[d, i, x]
            for b in range(kept):
                l = int_matrix(P, CHILDREN)[d + 1, b]
                child[kept, b] = parent[a, l] - u * parent[i, l]
                child[b, kept] = child[kept, b]
            child[kept, kept] = parent[a, a] - u * parent[i, a]
            int_matrix(P, CHILDREN)[d + 1, kept] = a
            kept += 1
    frame[d + 1, T] = kept
    if count[BOUND] == EIGENVALUE:
        for x in range(N):
            for y in range(N):
                targets[d + 1, x, y] = targets[d, x, y] - cross[d, i, x] * cross[d, i, y] / g


@compiled(fast=True)
def begin(P: Ints, s: int, t: int, c: float) -> None:
    """Make depth 0 the node of S = START[:s] (independent) and R = START[s:s + t]. O(s (s + t)^2)."""
    gram, cross, root, root_cross = cube(P, GRAM)[0], cube(P, CROSS)[0], matrix(P, ROOT_GRAM), matrix(P, ROOT_CROSS)
    columns, allowed, frame = int_vector(P, START), int_matrix(P, ALLOWED), int_matrix(P, FRAME)
    targets, root_targets = cube(P, TARGETS)[0], matrix(P, ROOT_TARGETS)
    N = root_cross.shape[1]
    eigenvalue = int_vector(P, COUNT)[BOUND] == EIGENVALUE
    f = c
    rows = np.empty((s + t, s))  # K given the members of S before, column by column
    rows_cross = np.empty((s, N))
    for p in range(s):
        for i in range(s + t):
            g = root[columns[i], columns[p]]
            for a in range(p):
                g -= rows[i, a] * rows[p, a]
            rows[i, p] = g
        scale = 1.0 / np.sqrt(rows[p, p])
        for i in range(s + t):
            rows[i, p] *= scale
        for x in range(N):
            b = root_cross[columns[p], x]
            for a in range(p):
                b -= rows[p, a] * rows_cross[a, x]
            rows_cross[p, x] = b * scale
            f -= rows_cross[p, x] * rows_cross[p, x]
    for i in range(t):
        allowed[0, i] = columns[s + i]
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
    if eigenvalue:
        for x in range(N):
            for y in range(N):
                targets[x, y] = root_targets[x, y]
                for a in range(s):
                    targets[x, y] -= rows_cross[a, x] * rows_cross[a, y]
    frame[0, T] = t
    frame[0, LEFT] = 0
    matrix(P, ERROR)[0, 0] = f


@compiled(fast=True)
def explore(P: Ints, budget: int) -> None:
    """Depth first, for `budget` nodes or until nothing is left (COUNT[DEPTH] < 0)."""
    frame, count, children = int_matrix(P, FRAME), int_vector(P, COUNT), int_matrix(P, CHILDREN)
    numbers, lower = vector(P, NUMBERS), matrix(P, LOWER)
    until = count[NODES] + budget
    if count[OPENED] == 0 and budget > 0:
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
        _descend(P, d, children[d, place])
        matrix(P, ERROR)[1, d + 1] = lower[d, place]
        count[NODES] += 1
        count[DEPTH] = d + 1
        _open(P, d + 1)

"""The inner loop of branch and bound over a quadratic objective, compiled.

A node is a subset S of size s, and an ordered list R of t columns, of which q may still be added. It holds the residual
Gram matrix G (t, t) of R and its residual cross-Gram matrix B (t, N), both given S. lam is in the diagonal of G. A
child chooses one column i of R, and may use the columns after it.

Let z_i be the residual of i orthonormalised over the columns after it, from one elimination of G from the end. Then
A_i = sum_{l >= i} z_l z_l' is what all of R from i on can explain. With w_i = b_i / sqrt(g_ii),

    |w_i|^2 + the q - 1 largest eigenvalues of A_i - w_i w_i'

bounds what child i and any q - 1 columns after it explain: they span at most R from i on, and have rank q - 1. The
order of R lets A grow as late as possible: the next column from the end is that of the least |z|^2. With q = 2, all
pairs are compared without bounds.

With the combined bound, a node also uses disjoint cores (see disjoint_cores).

Which subsets are dependent, and their f, is decided by the rule of the objective (see rule).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, int_vector, matrix, vector
from dsel._lib.types import Floats, Int, Ints
from dsel.objective.kernels.elimination import BORDERLINE_RATIO
from dsel.search.exact.branch_and_bound import layout
from dsel.search.exact.branch_and_bound.disjoint_cores import branch_on_smallest_core, find_cores
from dsel.search.exact.branch_and_bound.layout import BranchState
from dsel.search.exact.branch_and_bound.log_records import (
    COMPARED,
    DEPENDENT,
    PRUNED,
    log_bound,
    log_branching,
    log_dropped,
    log_number,
)
from dsel.search.exact.branch_and_bound.rule import (
    NO_PLACE,
    PIVOTS_ALONE,
    collect_members,
    decides,
    is_dependent,
    record_if_better,
    value_by_rule,
)
from dsel.search.exact.branch_and_bound.suffix_bounds import list_children


@compiled("void(i8[::1], i8)", fast=True)
def _singles(P: BranchState, d: Int) -> None:
    """Write |b_i|^2 of each column of R and whether it depends on S; record the best subset with one more column."""
    gram, cross, moments = cube(P, layout.GRAM)[d], cube(P, layout.CROSS)[d], matrix(P, layout.MOMENTS)
    frame, allowed, floor = int_matrix(P, layout.FRAME), int_matrix(P, layout.ALLOWED), vector(P, layout.FLOOR)
    numbers = vector(P, layout.NUMBERS)
    f = matrix(P, layout.ERROR)[layout.F_OF_S, d]
    for i in range(frame[d, layout.T]):
        m = 0.0
        for a in range(cross.shape[1]):
            m += cross[i, a] * cross[i, a]
        moments[0, i] = m
        moments[1, i] = layout.FREE
        if gram[i, i] <= BORDERLINE_RATIO * floor[allowed[d, i]]:
            moments[1, i] = layout.DEPENDENT if is_dependent(P, d, i) else layout.BORDERLINE
        if moments[1, i] == layout.BORDERLINE or (
            moments[1, i] == layout.FREE and not f - m / gram[i, i] >= numbers[layout.INCUMBENT]
        ):
            record_if_better(P, d, i, NO_PLACE)


@compiled("void(i8[::1], i8)", fast=True)
def _pairs(P: BranchState, d: Int) -> None:
    """Record the best subset with two more columns. It ends early if the kernel is to stop."""
    gram, cross, moments = cube(P, layout.GRAM)[d], cube(P, layout.CROSS)[d], matrix(P, layout.MOMENTS)
    frame, allowed, floor = int_matrix(P, layout.FRAME), int_matrix(P, layout.ALLOWED), vector(P, layout.FLOOR)
    numbers, work, count = vector(P, layout.NUMBERS), matrix(P, layout.WORK), int_vector(P, layout.COUNT)
    f = matrix(P, layout.ERROR)[layout.F_OF_S, d]
    N = cross.shape[1]
    count[layout.WORK_DONE] += 3 * frame[d, layout.T] ** 2
    diagonal, inner, border = work[0], work[1], work[2]
    transposed = matrix(P, layout.TRANSPOSED)  # inner products with all columns at once are faster
    for i in range(frame[d, layout.T]):
        for a in range(N):
            transposed[a, i] = cross[i, a]
        diagonal[i] = gram[i, i]
        border[i] = BORDERLINE_RATIO * floor[allowed[d, i]]
    for i in range(1, frame[d, layout.T]):
        if moments[1, i] == layout.DEPENDENT:
            continue
        if count[layout.STOP] + count[layout.OVERFLOW] != 0:
            break
        need = f - numbers[layout.INCUMBENT]
        g_ii = gram[i, i]
        m_ii = moments[0, i]
        border_i = border[i]
        hits = 0
        for l in range(i):
            inner[l] = 0.0
        for a in range(N):
            b = cross[i, a]
            for l in range(i):
                inner[l] += b * transposed[a, l]
        for l in range(i):
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            hits += 1 if not explained <= need * det or det <= border[l] * g_ii + border_i * diagonal[l] else 0
        if hits == 0:
            continue
        for l in range(i):
            if moments[1, l] == layout.DEPENDENT:
                continue
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            if (
                not explained <= (f - numbers[layout.INCUMBENT]) * det
                or det <= border[l] * g_ii + border_i * diagonal[l]
            ):
                record_if_better(P, d, i, l)


@compiled("void(i8[::1], i8, i8)", fast=True)
def _branch(P: BranchState, d: Int, q: Int) -> None:
    """Order R, bound the children and list those that may hold a better subset."""
    frame, children, moments = int_matrix(P, layout.FRAME), int_matrix(P, layout.CHILDREN), matrix(P, layout.MOMENTS)
    lower, count = matrix(P, layout.LOWER), int_vector(P, layout.COUNT)
    t = frame[d, layout.T]
    order = int_vector(P, layout.ORDER)[:t]
    place = np.int64(0)
    first = np.int64(0)
    borderline = np.int64(0)
    for state in (layout.DEPENDENT, layout.BORDERLINE, layout.FREE):
        for i in range(t):
            if moments[1, i] == state:
                order[place] = i
                place += 1
                first += 1 if state != layout.FREE else 0
                borderline += 1 if state == layout.BORDERLINE else 0
    crossing = list_children(P, d, q, order, first, first)
    if count[layout.STOP] != 0:
        return
    begin: Int = first - borderline
    found: Int = np.int64(0)
    if count[layout.BOUND] == layout.COMBINED and first == 0 and frame[d, layout.LEFT] > 0 and q >= count[layout.CORES]:
        found = find_cores(P, d, q, order, crossing)
        if found > q:
            frame[d, layout.LEFT] = 0
        else:
            begin, crossing = branch_on_smallest_core(P, d, q, order, found, crossing)
    if count[layout.STOP] != 0:
        return
    for a in range(first - 1, first - borderline - 1, -1):
        children[d, frame[d, layout.LEFT]] = a
        lower[d, frame[d, layout.LEFT]] = matrix(P, layout.ERROR)[layout.BELOW, d]
        frame[d, layout.LEFT] += 1
    if count[layout.LOGGING] > 0:
        log_branching(P, d, q, order, first, begin, crossing, found)
    if frame[d, layout.LEFT] > 0:
        _arrange(P, d, order)


@compiled("void(i8[::1], i8, i8[::1])", fast=True)
def _arrange(P: BranchState, d: Int, order: Ints) -> None:
    """Permute R, G and B of depth d into this order."""
    gram = cube(P, layout.GRAM)[d]
    cross = cube(P, layout.CROSS)[d]
    work = matrix(P, layout.WORK)
    work_cross = matrix(P, layout.WORK_CROSS)
    allowed = int_matrix(P, layout.ALLOWED)
    t = order.size
    N = cross.shape[1]
    for i in range(t):
        row = order[i]
        for l in range(t):
            work[i, l] = gram[row, order[l]]
        for x in range(N):
            work_cross[i, x] = cross[row, x]
    columns = int_vector(P, layout.PLACES)
    for i in range(t):
        columns[i] = allowed[d, order[i]]
    for i in range(t):
        allowed[d, i] = columns[i]
        for l in range(t):
            gram[i, l] = work[i, l]
        for x in range(N):
            cross[i, x] = work_cross[i, x]


@compiled("void(i8[::1], i8)", fast=True)
def _open(P: BranchState, d: Int) -> None:
    """Visit the node at depth d: compare its supersets by one or two columns, or list its children."""
    frame, count = int_matrix(P, layout.FRAME), int_vector(P, layout.COUNT)
    q = count[layout.Q] - d
    count[layout.WORK_DONE] += frame[d, layout.T] ** 2  # the columns left, given the chosen ones
    frame[d, layout.LEFT] = 0
    _singles(P, d)
    if q == 2 and count[layout.PAIRS] > 0:
        _pairs(P, d)
    elif q >= 2:
        _branch(P, d, q)
        return
    if count[layout.LOGGING] > 0:
        log_number(P, COMPARED)


@compiled("b1(i8[::1], i8, i8)", fast=True)
def _descend(P: BranchState, d: Int, i: Int) -> bool:
    """Make child i of the node at depth d the node at depth d + 1, and return False if i depends on S.

    Columns that depend on the child are dropped.
    """
    gram, cross, columns = cube(P, layout.GRAM), cube(P, layout.CROSS), int_vector(P, layout.START)
    frame = int_matrix(P, layout.FRAME)
    allowed = int_matrix(P, layout.ALLOWED)
    floor = vector(P, layout.FLOOR)
    count = int_vector(P, layout.COUNT)
    error, targets, root = matrix(P, layout.ERROR), cube(P, layout.TARGETS), matrix(P, layout.ROOT_GRAM)
    t = frame[d, layout.T]
    N = cross.shape[2]
    g = gram[d, i, i]
    j = allowed[d, i]
    error[layout.SHARE, d + 1] = error[layout.SHARE, d] * g / root[j, j]
    error[layout.ROOM, d + 1] = min(error[layout.ROOM, d], root[j, j] / floor[j])
    if error[layout.SHARE, d + 1] * error[layout.ROOM, d + 1] <= BORDERLINE_RATIO and is_dependent(P, d, i):
        return False
    frame[d + 1, layout.CHOSEN] = j
    if g <= BORDERLINE_RATIO * floor[j]:
        s = collect_members(P, d, i, NO_PLACE)
        for a in range(s):
            columns[a] = int_vector(P, layout.MEMBERS)[a]
        for a in range(i + 1, t):
            columns[s + a - i - 1] = allowed[d, a]
        _from_root(P, d + 1, s, t - i - 1)
        return True
    gain = 0.0
    for x in range(N):
        gain += cross[d, i, x] * cross[d, i, x]
    error[layout.F_OF_S, d + 1] = error[layout.F_OF_S, d] - gain / g
    frame[d + 1, layout.T] = _given(P, d, i)
    if count[layout.BOUND] == layout.EIGENVALUE:
        for x in range(N):
            for y in range(N):
                targets[d + 1, x, y] = targets[d, x, y] - cross[d, i, x] * cross[d, i, y] / g
    return True


@compiled("i8(i8[::1], i8, i8)", fast=True)
def _given(P: BranchState, d: Int, i: Int) -> int:
    """Write R, G and B of depth d + 1, for the places after i at depth d given i, and return the size of R.

    Columns that are dependent given i are dropped.
    """
    gram, cross = cube(P, layout.GRAM), cube(P, layout.CROSS)
    allowed, floor, moved = int_matrix(P, layout.ALLOWED), vector(P, layout.FLOOR), int_matrix(P, layout.CHILDREN)
    t = int_matrix(P, layout.FRAME)[d, layout.T]
    N = cross.shape[2]
    g = gram[d, i, i]
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
        lost = int_vector(P, layout.PLACES)
        dropped = np.int64(0)
        for a in range(i + 1, t):
            left = parent[a, a] - parent[i, a] * parent[i, a] / g
            if left <= floor[allowed[d, a]] and not value_by_rule(P, d, i, a, PIVOTS_ALONE) < np.inf:
                lost[dropped] = a
                dropped += 1
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
        if int_vector(P, layout.COUNT)[layout.LOGGING] > 0 and dropped > 0:
            log_dropped(P, d, lost, dropped)
    return kept


@compiled("void(i8[::1], i8, i8, i8)", fast=True)
def _from_root(P: BranchState, d: Int, s: Int, t: Int) -> None:
    """Make depth d the node of S = START[:s] (ascending, independent) and R = START[s:s + t]. O(s (s + t)^2)."""
    gram = cube(P, layout.GRAM)[d]
    cross = cube(P, layout.CROSS)[d]
    root = matrix(P, layout.ROOT_GRAM)
    root_cross = matrix(P, layout.ROOT_CROSS)
    columns = int_vector(P, layout.START)
    allowed = int_matrix(P, layout.ALLOWED)
    frame = int_matrix(P, layout.FRAME)
    floor = vector(P, layout.FLOOR)
    error = matrix(P, layout.ERROR)
    N = root_cross.shape[1]
    f = vector(P, layout.NUMBERS)[layout.TOTAL]
    rows = matrix(P, layout.GIVEN)  # K given the earlier members of S, column by column
    rows_cross = matrix(P, layout.GIVEN_CROSS)
    error[layout.SHARE, d] = 1.0
    error[layout.ROOM, d] = np.inf
    for p in range(s):
        for i in range(s + t):
            g = root[columns[i], columns[p]]
            for a in range(p):
                g -= rows[i, a] * rows[p, a]
            rows[i, p] = g
        j = columns[p]
        error[layout.SHARE, d] *= rows[p, p] / root[j, j]
        error[layout.ROOM, d] = min(error[layout.ROOM, d], root[j, j] / floor[j])
        scale = 1.0 / np.sqrt(max(rows[p, p], floor[j]))  # independent, but several small pivots may make it rounding
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
    if int_vector(P, layout.COUNT)[layout.BOUND] == layout.EIGENVALUE:
        residual_targets(P, d, rows_cross[:s])
    frame[d, layout.T] = t
    frame[d, layout.LEFT] = 0
    error[layout.F_OF_S, d] = f


@compiled("void(i8[::1], i8, f8[:, ::1])", fast=True)
def residual_targets(P: BranchState, d: Int, explained: Floats) -> None:
    """Write the residual Gram matrix of the targets at depth d: what the rows of `explained` (s, N) leave."""
    targets, root = cube(P, layout.TARGETS)[d], matrix(P, layout.ROOT_TARGETS)
    for x in range(root.shape[0]):
        for y in range(root.shape[0]):
            targets[x, y] = root[x, y]
            for a in range(explained.shape[0]):
                targets[x, y] -= explained[a, x] * explained[a, y]


@compiled("void(i8[::1], i8, i8)", fast=True)
def begin(P: BranchState, s: Int, t: Int) -> None:
    """Make depth 0 the node of S = START[:s] (ascending) and R = START[s:s + t]; a dependent S has no open node."""
    count, base, columns = int_vector(P, layout.COUNT), int_vector(P, layout.BASE), int_vector(P, layout.START)
    count[layout.DEPTH] = -1
    count[layout.OPENED] = 0
    count[layout.BEST_SIZE] = -1
    count[layout.BASE_SIZE] = s
    for a in range(s):
        base[a] = columns[a]
    if value_by_rule(P, np.int64(0), NO_PLACE, NO_PLACE, PIVOTS_ALONE) < np.inf:
        count[layout.DEPTH] = 0
        _from_root(P, np.int64(0), s, t)


@compiled("void(i8[::1], i8)", fast=True)
def _close_again(P: BranchState, d: Int) -> None:
    """Undo the visit of the node at depth d, which was not completed, and make it an open node again."""
    count, frame = int_vector(P, layout.COUNT), int_matrix(P, layout.FRAME)
    count[layout.NODES] -= 1
    frame[d, layout.LEFT] = 0
    if d == 0:
        count[layout.OPENED] = 0
    else:
        count[layout.DEPTH] = d - 1
        frame[d - 1, layout.LEFT] += 1  # the last child that was taken


@compiled("void(i8[::1], i8)", fast=True, nogil=True)
def explore(P: BranchState, budget: Int) -> None:
    """Visit nodes depth first, until `budget` nodes are visited, none is open (COUNT[DEPTH] < 0), or the log is full.

    A node counts when it is visited, that is if its parent did not prune it.
    """
    frame, count, children = int_matrix(P, layout.FRAME), int_vector(P, layout.COUNT), int_matrix(P, layout.CHILDREN)
    numbers, lower = vector(P, layout.NUMBERS), matrix(P, layout.LOWER)
    until = count[layout.NODES] + budget
    listed = count[layout.LISTED]
    if count[layout.DEPTH] >= 0 and count[layout.OPENED] == 0 and budget > 0 and count[layout.STOP] == 0:
        count[layout.OPENED] = 1
        count[layout.NODES] += 1
        _open(P, count[layout.DEPTH])
        if count[layout.STOP] + count[layout.OVERFLOW] != 0:
            count[layout.LOGGED], count[layout.LOGGED_BOUNDS], count[layout.LISTED] = 0, 0, listed
            _close_again(P, np.int64(0))
    while (
        count[layout.DEPTH] >= 0 and count[layout.NODES] < until and count[layout.LOGGED] <= count[layout.LOG_LIMIT]
        and count[layout.STOP] + count[layout.OVERFLOW] == 0 and count[layout.WORK_DONE] < count[layout.WORK_LIMIT]
    ):  # fmt: skip
        d = count[layout.DEPTH]
        if frame[d, layout.LEFT] == 0:
            count[layout.DEPTH] -= 1
            continue
        logged, logged_bounds = count[layout.LOGGED], count[layout.LOGGED_BOUNDS]
        frame[d, layout.LEFT] -= 1
        place = frame[d, layout.LEFT]
        if lower[d, place] >= numbers[layout.INCUMBENT] - numbers[layout.MARGIN]:
            numbers[layout.PRUNED] = min(numbers[layout.PRUNED], lower[d, place])
            if count[layout.LOGGING] > 0:
                log_number(P, PRUNED)
                log_bound(P, lower[d, place])
            continue
        if (
            count[layout.LISTING] > 0 and lower[d, place] >= numbers[layout.LISTED_BELOW]
            and not decides(P, d, children[d, place])
        ):  # fmt: skip
            continue
        if not _descend(P, d, children[d, place]):
            if count[layout.LOGGING] > 0:
                log_number(P, DEPENDENT)
            continue
        matrix(P, layout.ERROR)[layout.BELOW, d + 1] = lower[d, place]
        count[layout.DEPTH] = d + 1
        count[layout.NODES] += 1
        listed = count[layout.LISTED]
        _open(P, d + 1)
        if count[layout.STOP] + count[layout.OVERFLOW] != 0:
            count[layout.LOGGED], count[layout.LOGGED_BOUNDS], count[layout.LISTED] = logged, logged_bounds, listed
            _close_again(P, d + 1)

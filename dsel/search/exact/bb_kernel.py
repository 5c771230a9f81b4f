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

With the combined bound a node also knows disjoint cores (dsel.search.exact.disjoint_cores). What is dependent:
dsel.search.exact.dependence.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints
from dsel.objective.kernels.elimination import STEEP_RATIO
from dsel.objective.kernels.layout import cube, int_matrix, int_vector, matrix, vector
from dsel.search.exact.bb_layout import (
    ALLOWED,
    BASE,
    BASE_SIZE,
    BELOW,
    BEST_SIZE,
    BOUND,
    CHILDREN,
    CHOSEN,
    COMBINED,
    CORES,
    COUNT,
    CROSS,
    DEPENDENT,
    DEPTH,
    EIGENVALUE,
    ERROR,
    F_OF_S,
    FLOOR,
    FRAME,
    FREE,
    GRAM,
    INCUMBENT,
    LEFT,
    LOWER,
    MARGIN,
    MEMBERS,
    MOMENTS,
    NODES,
    NUMBERS,
    OPENED,
    PAIRS,
    PRUNED,
    ROOM,
    ROOT_CROSS,
    ROOT_GRAM,
    ROOT_TARGETS,
    SHARE,
    START,
    STEEP,
    TARGETS,
    TOTAL,
    WORK,
    WORK_CROSS,
    Q,
    T,
)
from dsel.search.exact.dependence import NO_PLACE, PIVOTS_ALONE, checked, dependent, gather, record
from dsel.search.exact.disjoint_cores import cores, narrow
from dsel.search.exact.suffix_bounds import list_children


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
            moments[1, i] = DEPENDENT if dependent(P, d, i) else STEEP
        if moments[1, i] == STEEP or (moments[1, i] == FREE and not f - m / gram[i, i] >= numbers[INCUMBENT]):
            record(P, d, i, NO_PLACE)


@compiled(fast=True)
def _pairs(P: Ints, d: int) -> None:
    """The best subset of two more columns."""
    gram, cross, moments = cube(P, GRAM)[d], cube(P, CROSS)[d], matrix(P, MOMENTS)
    frame, allowed, floor = int_matrix(P, FRAME), int_matrix(P, ALLOWED), vector(P, FLOOR)
    numbers, work = vector(P, NUMBERS), matrix(P, WORK)
    f = matrix(P, ERROR)[F_OF_S, d]
    N = cross.shape[1]
    diagonal, inner, steep = work[0], work[1], work[2]
    turned = np.empty((N, frame[d, T]))  # so that inner products with all columns are made side by side
    for i in range(frame[d, T]):
        for a in range(N):
            turned[a, i] = cross[i, a]
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
        for l in range(i):
            inner[l] = 0.0
        for a in range(N):
            b = cross[i, a]
            for l in range(i):
                inner[l] += b * turned[a, l]
        for l in range(i):
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            hits += 1 if not explained <= need * det or det <= steep[l] * g_ii + steep_i * diagonal[l] else 0
        if hits == 0:
            continue
        for l in range(i):
            if moments[1, l] == DEPENDENT:
                continue
            g = gram[i, l]
            det = g_ii * diagonal[l] - g * g
            explained = m_ii * diagonal[l] + moments[0, l] * g_ii - 2.0 * g * inner[l]
            if not explained <= (f - numbers[INCUMBENT]) * det or det <= steep[l] * g_ii + steep_i * diagonal[l]:
                record(P, d, i, l)


@compiled(fast=True)
def _branch(P: Ints, d: int, q: int) -> None:
    """Order R, bound its children and list those that may hold a better subset."""
    frame, children, moments = int_matrix(P, FRAME), int_matrix(P, CHILDREN), matrix(P, MOMENTS)
    lower, count = matrix(P, LOWER), int_vector(P, COUNT)
    t = frame[d, T]
    order = np.empty(t, np.int64)
    place = np.int64(0)
    first = np.int64(0)
    steep = np.int64(0)
    for state in (DEPENDENT, STEEP, FREE):
        for i in range(t):
            if moments[1, i] == state:
                order[place] = i
                place += 1
                first += 1 if state != FREE else 0
                steep += 1 if state == STEEP else 0
    crossing = list_children(P, d, q, order, first, first)
    if count[BOUND] == COMBINED and first == 0 and frame[d, LEFT] > 0 and q >= count[CORES]:
        found = cores(P, d, q, order, crossing)
        if found > q:
            frame[d, LEFT] = 0
        else:
            narrow(P, d, q, order, found)
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
    error, targets, root = matrix(P, ERROR), cube(P, TARGETS), matrix(P, ROOT_GRAM)
    t = frame[d, T]
    N = cross.shape[2]
    g = gram[d, i, i]
    j = allowed[d, i]
    error[SHARE, d + 1] = error[SHARE, d] * g / root[j, j]
    error[ROOM, d + 1] = min(error[ROOM, d], root[j, j] / floor[j])
    if error[SHARE, d + 1] * error[ROOM, d + 1] <= STEEP_RATIO and dependent(P, d, i):
        return False
    frame[d + 1, CHOSEN] = j
    if g <= STEEP_RATIO * floor[j]:
        s = gather(P, d, i, NO_PLACE)
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
    frame[d + 1, T] = _given(P, d, i)
    if count[BOUND] == EIGENVALUE:
        for x in range(N):
            for y in range(N):
                targets[d + 1, x, y] = targets[d, x, y] - cross[d, i, x] * cross[d, i, y] / g
    return True


@compiled(fast=True)
def _given(P: Ints, d: int, i: int) -> int:
    """Make R, G and B of depth d + 1 those of the places after i at depth d, given i, without columns that are
    dependent then; how many are left."""
    gram, cross = cube(P, GRAM), cube(P, CROSS)
    allowed, floor, moved = int_matrix(P, ALLOWED), vector(P, FLOOR), int_matrix(P, CHILDREN)
    t = int_matrix(P, FRAME)[d, T]
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
        for a in range(i + 1, t):
            left = parent[a, a] - parent[i, a] * parent[i, a] / g
            if left <= floor[allowed[d, a]] and not checked(P, d, i, a, PIVOTS_ALONE) < np.inf:
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
    return kept


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
        scale = 1.0 / np.sqrt(max(rows[p, p], floor[j]))  # it passed, but after several trifles it may be rounding
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
    if checked(P, np.int64(0), NO_PLACE, NO_PLACE, PIVOTS_ALONE) < np.inf:
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

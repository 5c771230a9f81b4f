"""What the columns from each place of R on can add, and so which children of a node are pruned, in branch and bound."""

from __future__ import annotations

import numpy as np

from dsel.compiled import compiled
from dsel.objective.evaluate import NOISE_RATIO
from dsel.objective.memory import Floats, Ints, cube, int_matrix, int_vector, matrix, vector
from dsel.search.branching_layout import (
    ALLOWED,
    BELOW,
    BOUND,
    CAREFUL,
    CHILDREN,
    COMBINED,
    COUNT,
    CROSS,
    EIGENVALUE,
    ERROR,
    F_OF_S,
    FLOOR,
    FRAME,
    GRAM,
    INCUMBENT,
    LEAPS,
    LEFT,
    LOWER,
    MARGIN,
    MOMENTS,
    NUMBERS,
    PRUNED,
    SMALL,
    TARGETS,
    WORK,
    WORK_CROSS,
)


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
def prepare(P: Ints, d: int, order: Ints) -> None:
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
        for x in range(N):
            z += cross[i, x] * cross[i, x]
        z /= max(work[i, i], 0.0) + NOISE_RATIO * floor[allowed[d, order[i]]]
        if z < least:
            least = z
            chosen = i
    return chosen


@compiled(fast=True)
def absorb(P: Ints, d: int, first: int, a: int, order: Ints) -> float:
    """Put that column of first..a at place a which adds least to A, and add it; what it adds."""
    work, cross, A = matrix(P, WORK), matrix(P, WORK_CROSS), cube(P, SMALL)[0]
    floor, allowed = vector(P, FLOOR), int_matrix(P, ALLOWED)
    N = cross.shape[1]
    if first < a:
        _exchange(P, order, _least(P, d, first, a, N, order), a, N)
    work[a, a] = max(work[a, a], 0.0) + NOISE_RATIO * floor[allowed[d, order[a]]]
    z = 0.0
    for x in range(N):
        z += cross[a, x] * cross[a, x]
        for y in range(N):
            A[x, y] += cross[a, x] * cross[a, y] / work[a, a]
    _eliminate(P, a, N)
    return z / work[a, a]


@compiled(fast=True)
def least_gain_last(P: Ints, d: int, first: int, a: int, order: Ints) -> None:
    """Put that of the columns first..a at place a which alone explains least."""
    gram, moments = cube(P, GRAM)[d], matrix(P, MOMENTS)
    p = first
    for i in range(first + 1, a + 1):
        if moments[0, order[i]] * gram[order[p], order[p]] < moments[0, order[p]] * gram[order[i], order[i]]:
            p = i
    order[p], order[a] = order[a], order[p]


@compiled(fast=True)
def suffix_bound(P: Ints, q: int, top: float, trace: float, slack: float, exact: bool) -> float:
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
def list_children(P: Ints, d: int, q: int, order: Ints, first: int, split: int) -> int:
    """Order the columns first.. of R, those from split on before the others, bound the children and list those that may
    hold a better subset. The place from which on (downwards) not all are pruned, first - 1 where there is none."""
    frame, children = int_matrix(P, FRAME), int_matrix(P, CHILDREN)
    numbers, lower, count = vector(P, NUMBERS), matrix(P, LOWER), int_vector(P, COUNT)
    f, below = matrix(P, ERROR)[F_OF_S, d], matrix(P, ERROR)[BELOW, d]
    slack = f - numbers[INCUMBENT] + numbers[MARGIN]
    kind = count[BOUND]
    exact = d == 0 or count[CAREFUL] > 0
    single = matrix(P, WORK_CROSS).shape[1] == 1 and count[CAREFUL] == 0
    prepare(P, d, order)
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
            least_gain_last(P, d, lowest, a, order)
        else:
            z = absorb(P, d, lowest, a, order)
            trace += z
            top += z
        if not crossed:
            top = suffix_bound(P, q, top, trace, slack, exact)
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

"""Bound what the columns from each place of R on can explain, and list the children that are not pruned.

At first there are sums of the largest eigenvalues of a symmetric matrix, and cheaper bounds on them.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, int_vector, matrix, vector
from dsel._lib.types import Bool, Floats, Int, Ints
from dsel.search.exact.branch_and_bound import layout
from dsel.search.exact.branch_and_bound.layout import BranchState


@compiled("f8(f8[:, ::1], i8)", fast=True, allocates=True)
def sum_of_largest(H: Floats, q: Int) -> float:
    """Return the sum of the q largest eigenvalues of a symmetric matrix, infinity if an element is not finite."""
    N = H.shape[0]
    if q <= 0:
        return 0.0
    total = 0.0
    if q >= N:
        for a in range(N):
            total += H[a, a]
        return total
    for a in range(N):
        for b in range(N):
            if not abs(H[a, b]) < np.inf:
                return np.inf
    values = np.linalg.eigvalsh(H)
    for a in range(q):
        total += max(values[N - 1 - a], 0.0)
    return total


@compiled("f8(f8[:, ::1], f8[::1], i8)", fast=True)
def sum_of_largest_diagonal(H: Floats, w: Floats, q: Int) -> float:
    """Return the sum of the q largest diagonal elements of H - w w', at most that of the eigenvalues (Schur)."""
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


@compiled("f8(f8[:, ::1], i8, f8, f8)", fast=True)
def block_upper_bound(leading: Floats, q: Int, trace: float, slack: float) -> float:
    """Return an upper bound on the sum of the q largest eigenvalues of a positive semidefinite matrix of this trace.

    The bound is the sum of the diagonal block `leading` plus the rest of the trace, because the sum of a matrix is at
    most that of two diagonal blocks. The sum of the block itself is a lower bound (Cauchy). Returns infinity if the two
    do not decide whether the sum is within the slack.
    """
    rest = trace
    for x in range(leading.shape[0]):
        rest -= leading[x, x]
    part = sum_of_largest(leading, q)
    bound = min(part + max(rest, 0.0), trace)
    return bound if part > slack or bound <= slack else np.inf


@compiled(fast=True)
def add_outer(A: Floats, b: Floats, d: float) -> None:
    """Add b b' / d to A, for the targets of A."""
    for x in range(A.shape[0]):
        u = b[x] / d
        for y in range(A.shape[0]):
            A[x, y] += u * b[y]


@compiled(fast=True)
def subtract_outer(H: Floats, A: Floats, w: Floats) -> None:
    """Write A - w w' to H, for the targets of A."""
    for x in range(A.shape[0]):
        for y in range(A.shape[0]):
            H[x, y] = A[x, y] - w[x] * w[y]


@compiled("void(i8[::1], i8, i8[::1])", fast=True)
def copy_to_scratch(P: BranchState, d: Int, order: Ints) -> None:
    """Copy G with the ridge, and B of depth d to the scratch matrices in this order, and set A = 0."""
    gram = cube(P, layout.GRAM)[d]
    cross = cube(P, layout.CROSS)[d]
    work = matrix(P, layout.WORK)
    work_cross = matrix(P, layout.WORK_CROSS)
    floor, allowed = vector(P, layout.FLOOR), int_matrix(P, layout.ALLOWED)
    ratio = vector(P, layout.NUMBERS)[layout.RIDGE]
    N = cross.shape[1]
    int_vector(P, layout.COUNT)[layout.WORK_DONE] += order.size**2
    for i in range(order.size):
        row = order[i]
        for l in range(order.size):
            work[i, l] = gram[row, order[l]]
        work[i, i] += ratio * floor[allowed[d, row]]
        for x in range(N):
            work_cross[i, x] = cross[row, x]
    cube(P, layout.LEADING)[0] = 0.0


@compiled(fast=True)
def _eliminate(P: BranchState, a: Int, N: Int) -> None:
    """Eliminate column a from the columns before it in the scratch matrices.

    Elements are clipped as in dsel.search.exact.bounds.orthonormalised, so that rounding cannot grow. The same row is
    used for both sides: rounding that is not symmetric would grow.
    """
    work, cross = matrix(P, layout.WORK), matrix(P, layout.WORK_CROSS)
    int_vector(P, layout.COUNT)[layout.WORK_DONE] += a * a
    d = work[a, a]
    for i in range(a):
        if work[a, i] * work[a, i] > d * max(work[i, i], 0.0):
            most = np.sqrt(d) * np.sqrt(max(work[i, i], 0.0))
            work[a, i] = min(max(work[a, i], -most), most)
        work[i, a] = work[a, i]
    for i in range(a):
        u = work[i, a] / d
        for l in range(a):
            work[i, l] -= u * work[a, l]
        for x in range(N):
            cross[i, x] -= u * cross[a, x]


@compiled(fast=True)
def _exchange(P: BranchState, order: Ints, i: Int, l: Int, N: Int) -> None:
    """Exchange columns i and l of the scratch matrices."""
    work, cross = matrix(P, layout.WORK), matrix(P, layout.WORK_CROSS)
    if i == l:
        return
    order[i], order[l] = order[l], order[i]
    for x in range(order.size):
        work[i, x], work[l, x] = work[l, x], work[i, x]
    for x in range(l + 1):
        work[x, i], work[x, l] = work[x, l], work[x, i]
    for x in range(N):
        cross[i, x], cross[l, x] = cross[l, x], cross[i, x]


@compiled(fast=True)
def _least(P: BranchState, d: Int, first: Int, a: Int, N: Int, order: Ints) -> Int:
    """Return which of the columns first..a adds least to what those after a explain."""
    work = matrix(P, layout.WORK)
    cross = matrix(P, layout.WORK_CROSS)
    floor = vector(P, layout.FLOOR)
    allowed, ratio = int_matrix(P, layout.ALLOWED), vector(P, layout.NUMBERS)[layout.RIDGE]
    chosen = a
    least = np.inf
    for i in range(first, a + 1):
        z = 0.0
        for x in range(N):
            z += cross[i, x] * cross[i, x]
        z /= max(work[i, i], ratio * floor[allowed[d, order[i]]])
        if z < least:
            least = z
            chosen = i
    return chosen


@compiled("f8(i8[::1], i8, i8, i8, i8[::1])", fast=True)
def add_least(P: BranchState, d: Int, first: Int, a: Int, order: Ints) -> float:
    """Put the column of first..a that adds least to A at place a, add it, and return what it adds to the trace.

    Only the part of A for the leading targets is kept.
    """
    work, cross = matrix(P, layout.WORK), matrix(P, layout.WORK_CROSS)
    floor, allowed = vector(P, layout.FLOOR), int_matrix(P, layout.ALLOWED)
    N = cross.shape[1]
    if first < a:
        _exchange(P, order, _least(P, d, first, a, N, order), a, N)
    work[a, a] = max(work[a, a], vector(P, layout.NUMBERS)[layout.RIDGE] * floor[allowed[d, order[a]]])
    z = 0.0
    for x in range(N):
        z += cross[a, x] * cross[a, x]
    add_outer(cube(P, layout.LEADING)[0], cross[a], work[a, a])
    _eliminate(P, a, N)
    return float(z / work[a, a])


@compiled("void(i8[::1], i8, i8, i8, i8[::1])", fast=True)
def put_least_gain_last(P: BranchState, d: Int, first: Int, a: Int, order: Ints) -> None:
    """Put the column of first..a that explains least alone at place a."""
    gram, moments = cube(P, layout.GRAM)[d], matrix(P, layout.MOMENTS)
    p = first
    for i in range(first + 1, a + 1):
        if moments[0, order[i]] * gram[order[p], order[p]] < moments[0, order[p]] * gram[order[i], order[i]]:
            p = i
    order[p], order[a] = order[a], order[p]


@compiled("f8[:, ::1](i8[::1], i8, i8)", fast=True, allocates=True)
def explained_gram(P: BranchState, a: Int, t: Int) -> Floats:
    """Return A (N, N) of the columns a..t - 1 of the scratch matrices."""
    work, cross = matrix(P, layout.WORK), matrix(P, layout.WORK_CROSS)
    A: Floats = cube(P, layout.WHOLE)[0]
    A[:] = 0.0
    for i in range(a, t):
        add_outer(A, cross[i], work[i, i])
    return A


@compiled("f8[:, ::1](i8[::1], i8, i8)", fast=True, allocates=True)
def explained_gram_of_columns(P: BranchState, a: Int, t: Int) -> Floats:
    """Return Z Z' (t - a, t - a) of the columns a..t - 1, whose nonzero eigenvalues are those of A."""
    work, cross = matrix(P, layout.WORK), matrix(P, layout.WORK_CROSS)
    M = np.empty((t - a, t - a))
    for i in range(t - a):
        for l in range(i + 1):
            z = 0.0
            for x in range(cross.shape[1]):
                z += cross[a + i, x] * cross[a + l, x]
            M[i, l] = z / np.sqrt(work[a + i, a + i] * work[a + l, a + l])
            M[l, i] = M[i, l]
    return M


@compiled("f8[:, ::1](i8[::1], i8, i8, i8[::1], f8[::1])", fast=True, allocates=True)
def without_column(P: BranchState, d: Int, a: Int, order: Ints, w: Floats) -> Floats:
    """Return A - w w' for w of the column at place a or, if it is smaller, Z Z' without that column's direction."""
    work, floor, allowed = matrix(P, layout.WORK), vector(P, layout.FLOOR), int_matrix(P, layout.ALLOWED)
    m = order.size - a
    if m < w.size:
        u = np.empty(m)  # the column in the coordinates of Z
        norm = 0.0
        sound = True
        for l in range(m):
            pivot = work[a + l, a + l]
            u[l] = work[a, a + l] / np.sqrt(pivot)
            norm += u[l] * u[l]
            sound = sound and pivot > floor[allowed[d, order[a + l]]]  # otherwise u may be rounding
        if sound:
            return _projected(explained_gram_of_columns(P, a, order.size), u / np.sqrt(norm))
    H: Floats = cube(P, layout.WHOLE)[1]
    subtract_outer(H, explained_gram(P, a, order.size), w)
    return H


@compiled("f8[:, ::1](f8[:, ::1], f8[::1])", fast=True, allocates=True)
def _projected(M: Floats, u: Floats) -> Floats:
    """Overwrite M by (I - u u') M (I - u u') for a unit vector u, and return it."""
    m = u.size
    v = np.zeros(m)
    share = 0.0
    for i in range(m):
        for l in range(m):
            v[i] += M[i, l] * u[l]
        share += u[i] * v[i]
    for i in range(m):
        for l in range(m):
            M[i, l] += share * u[i] * u[l] - u[i] * v[l] - v[i] * u[l]
    return M


@compiled("f8(i8[::1], i8, i8, i8, f8, f8, f8, b1)", fast=True, allocates=True)
def suffix_bound(P: BranchState, q: Int, a: Int, t: Int, top: float, trace: float, slack: float, exact: Bool) -> float:
    """Return an upper bound on the sum of the q largest eigenvalues of A, of the columns a..t - 1.

    `top` is such a bound. The sum itself is returned if it may be within the slack.
    """
    N = matrix(P, layout.WORK_CROSS).shape[1]
    kind = int_vector(P, layout.COUNT)[layout.BOUND]
    if kind == layout.LEAPS or q >= N:
        return trace
    if top <= slack:
        return top
    leading, none = cube(P, layout.LEADING)[0], cube(P, layout.LEADING)[1]
    if not exact:
        none[0, :] = 0.0
        if sum_of_largest_diagonal(leading, none[0], q) > slack:
            return trace
        bound = block_upper_bound(leading, q, trace, slack)
        if bound < np.inf:
            return bound
    if leading.shape[0] == N:
        return min(sum_of_largest(leading, q), trace)
    return min(sum_of_largest(explained_gram_of_columns(P, a, t) if t - a < N else explained_gram(P, a, t), q), trace)


@compiled("f8(i8[::1], i8, i8, i8, i8[::1], f8, f8, b1)", fast=True, allocates=True)
def _child_bound(P: BranchState, d: Int, a: Int, q: Int, order: Ints, trace: float, slack: float, exact: Bool) -> float:
    """Return an upper bound on what the child at place a and q - 1 columns after it explain."""
    gram = cube(P, layout.GRAM)[d]
    cross = cube(P, layout.CROSS)[d]
    leading = cube(P, layout.LEADING)
    whole = cube(P, layout.WHOLE)
    kind = int_vector(P, layout.COUNT)[layout.BOUND]
    N = cross.shape[1]
    if kind == layout.LEAPS or (kind == layout.COMBINED and (trace <= slack or q - 1 >= N)):
        return trace
    j = order[a]
    w, norm = vector(P, layout.DIRECTION), np.sqrt(gram[j, j])
    for x in range(N):
        w[x] = cross[j, x] / norm
    gain: float = matrix(P, layout.MOMENTS)[0, j] / gram[j, j]
    if kind == layout.EIGENVALUE:
        targets = cube(P, layout.TARGETS)[d]
        if not exact and gain + sum_of_largest_diagonal(targets, w, q - 1) > slack:
            return np.inf
        subtract_outer(whole[1], targets, w)
        return gain + sum_of_largest(whole[1], q - 1)
    if not exact and gain + sum_of_largest_diagonal(leading[0], w, q - 1) > slack:
        return trace
    subtract_outer(leading[1], leading[0], w)
    if not exact:
        bound = gain + block_upper_bound(leading[1], q - 1, trace - gain, slack - gain)
        if bound < np.inf:
            return bound
    H = leading[1] if leading.shape[1] == N else without_column(P, d, a, order, w)
    return min(trace, gain + sum_of_largest(H, q - 1))


@compiled("i8(i8[::1], i8, i8, i8[::1], i8, i8)", fast=True)
def list_children(P: BranchState, d: Int, q: Int, order: Ints, first: Int, split: Int) -> Int:
    """Order the columns from `first` on, bound their children, and list those that may hold a better subset.

    Columns from `split` on stay behind the others. Returns the last place that is not pruned, first - 1 if there is
    none. It ends early if the kernel is to stop.
    """
    frame, children = int_matrix(P, layout.FRAME), int_matrix(P, layout.CHILDREN)
    numbers, lower, count = vector(P, layout.NUMBERS), matrix(P, layout.LOWER), int_vector(P, layout.COUNT)
    f, below = matrix(P, layout.ERROR)[layout.F_OF_S, d], matrix(P, layout.ERROR)[layout.BELOW, d]
    slack = f - numbers[layout.INCUMBENT] + numbers[layout.MARGIN]
    kind = count[layout.BOUND]
    child_bound = vector(P, layout.CHILD_BOUND)
    exact = d == 0 or count[layout.CAREFUL] > 0
    single = matrix(P, layout.WORK_CROSS).shape[1] == 1 and count[layout.CAREFUL] == 0
    copy_to_scratch(P, d, order)
    trace = 0.0
    top = 0.0  # upper bound on the q largest eigenvalues of A
    reached = -1.0  # what the columns so far can explain, while that is not enough
    listed = 0
    crossed = kind == layout.EIGENVALUE
    crossing = order.size - 1 if crossed else first - 1
    for a in range(order.size - 1, first - 1, -1):
        if count[layout.STOP] != 0:
            break
        lowest = split if a >= split else first
        ordered = crossed and (single or kind == layout.EIGENVALUE)  # A is no longer needed
        if ordered:
            put_least_gain_last(P, d, lowest, a, order)
        else:
            z = add_least(P, d, lowest, a, order)
            trace += z
            top += z
        if not crossed:
            top = suffix_bound(P, q, a, order.size, top, trace, slack, exact)
            if top <= slack:
                reached = top
                continue
            crossed = True
            crossing = a
        known = ordered and kind != layout.EIGENVALUE
        bound = f - below if known else _child_bound(P, d, a, q, order, trace, slack, exact)
        if not trace < np.inf or np.isnan(bound):  # the bound is useless
            bound = np.inf
            count[layout.NOT_FINITE] += 1
        if bound <= slack:
            child_bound[a] = f - bound
            numbers[layout.PRUNED] = min(numbers[layout.PRUNED], f - bound)
            continue
        children[d, listed] = a
        lower[d, listed] = max(f - bound, below)
        listed += 1
    if reached >= 0.0:
        numbers[layout.PRUNED] = min(numbers[layout.PRUNED], f - reached)
    numbers[layout.REST] = f - max(reached, 0.0)
    frame[d, layout.LEFT] = listed
    return crossing

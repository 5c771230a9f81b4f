"""f(S) of one subset, with the same bits whatever led to it.

This is one symmetric elimination over the columns of S in ascending order. Pivot p with tolerance d_p explains
M_pp / d_p (K = X'X, M = B B', B = X'Y); then its direction is removed from both matrices. The loops compute element by
element in a fixed order, so that the result does not depend on the compiler's vector width.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import RowAddresses, cube, int_vector, matrix, row, vector
from dsel._lib.types import Floats, Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables


@compiled("f8(i8[::1], i8, i8)")
def known_pair(P: SubsetTables, which: Int, key: Int) -> float:
    """Return the entry of K (0) or M (1) with this key among the pairs that were fetched; NaN if it was not."""
    pairs = int_vector(P, layout.PAIRS)
    low = np.int64(0)
    high = np.int64(pairs.shape[0])
    while low < high:
        middle = (low + high) // 2
        if pairs[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < pairs.shape[0] and pairs[low] == key:
        return float(matrix(P, layout.PAIR_VALUES)[which, low])
    return np.nan


@compiled()
def entry(P: SubsetTables, rows: RowAddresses[SubsetTables], j: Int, l: Int) -> float:
    """Return the entry (j, l) of K or M (`rows`), from the row of the smaller index if possible; NaN if unknown."""
    if j == l:
        return float(vector(P, layout.K_DIAGONAL)[j] if rows == layout.K else vector(P, layout.M_DIAGONAL)[j])
    addresses = int_vector(P, rows)
    a = min(j, l)
    b = max(j, l)
    if addresses[a] != 0:
        return float(row(P, rows, a)[b])
    if addresses[b] != 0:
        return float(row(P, rows, b)[a])
    return known_pair(P, 0 if rows == layout.K else 1, a * P[layout.N_COLUMNS] + b)


@compiled("Tuple((f8, i8))(i8[::1], i8[::1], i8)")
def evaluate(P: SubsetTables, members: Ints, s: Int) -> tuple[float, int]:
    """Return f(S) = c - tr((K_SS + lam I)^-1 M_SS) and the number of independent columns, S = members[:s] ascending.

    NaN where rows are fetched on demand and an entry is unknown. A column whose pivot is at or below its floor explains
    nothing and is not counted. O(s^3 / 6) multiplications with few targets, three times as many with M.
    """
    N = P[layout.N_TARGETS]
    floor, scalars = vector(P, layout.FLOOR), vector(P, layout.SCALARS)
    k, M = cube(P, layout.ELIMINATION)[0], cube(P, layout.ELIMINATION)[1]
    u = matrix(P, layout.VECTORS)[layout.U]
    for a in range(s):
        if P[layout.ON_DEMAND]:
            for b in range(a, s):
                k[a, b] = entry(P, layout.K, members[a], members[b])
        else:
            gram = row(P, layout.K, members[a])
            for b in range(a, s):
                k[a, b] = gram[members[b]]
        k[a, a] += scalars[layout.LAM]
        if N > 0:
            for t in range(N):
                M[a, t] = matrix(P, layout.B)[members[a], t]
        elif P[layout.ON_DEMAND]:
            for b in range(a, s):
                M[a, b] = entry(P, layout.M, members[a], members[b])
        else:
            cross = row(P, layout.M, members[a])
            for b in range(a, s):
                M[a, b] = cross[members[b]]
    f = scalars[layout.ERROR_OF_EMPTY]
    rank = 0
    for p in range(s):
        d = k[p, p]
        if d <= floor[members[p]]:
            continue
        rank += 1
        for a in range(p + 1, s):
            u[a] = k[p, a] / d
        m = 0.0
        if N > 0:
            for t in range(N):
                m += M[p, t] * M[p, t]
            for a in range(p + 1, s):
                for t in range(N):
                    M[a, t] -= u[a] * M[p, t]
        else:
            m = M[p, p]
            for a in range(p + 1, s):
                u_a = u[a]
                rest = M[p, a] - u_a * m
                # The compiler vectorizes loops over slices that start at 0: nearly three times as fast.
                target, source, ratio = M[a, a:s], M[p, a:s], u[a:s]
                for b in range(s - a):
                    target[b] -= u_a * source[b] + ratio[b] * rest
        f -= max(m, 0.0) / d
        for a in range(p + 1, s):
            u_a = u[a]
            target, source = k[a, a:s], k[p, a:s]
            for b in range(s - a):
                target[b] -= u_a * source[b]
    return f, rank


#: A pivot of at most this many times its floor is borderline: a running factor cannot decide whether it is above the
#: floor, and its gain is rounding. `eliminated` decides instead.
BORDERLINE_RATIO = 10.0
#: Bounds eliminate columns in other orders, where pivots may have any size. So this share of the floor (itself 1e-7 of
#: the squared norm) is added to each, like a ridge. It is more than rounding errors, and very little compared with what
#: independent columns explain (dsel.objective.conditioning says how much).
NOISE_RATIO = 1e-7


@compiled("f8(f8[:, ::1], f8[:, ::1], i8, f8, f8[::1], i8[::1], i8, f8[:, ::1])")
def eliminated(
    K: Floats, B: Floats, targets: Int, c: float, floor: Floats, members: Ints, s: Int, work: Floats
) -> float:
    """Return f(S), S = members[:s] ascending, by the pivots of `evaluate`; NaN if one is at or below its floor.

    K: with lam in its diagonal. B: (n, N) with B B' = M. targets: N, or 0 to check the pivots only (the result is c).
    work: (s, s + N) scratch. If S passes, its subsets pass, too, for their pivots are given fewer columns.
    """
    for a in range(s):
        for b in range(a, s):
            work[a, b] = K[members[a], members[b]]
        for t in range(targets):
            work[a, s + t] = B[members[a], t]
    f = c
    for p in range(s):
        d = work[p, p]
        if d <= floor[members[p]]:
            return np.nan
        m = 0.0
        for t in range(targets):
            m += work[p, s + t] * work[p, s + t]
        f -= m / d
        for a in range(p + 1, s):
            u = work[p, a] / d
            for b in range(a, s):
                work[a, b] -= u * work[p, b]
            for t in range(targets):
                work[a, s + t] -= u * work[p, s + t]
    return f

"""f(S) of one subset, with the same bits whatever led to it, and the rule that decides whether it is independent.

This is one symmetric elimination over the columns of S in ascending order. Pivot p with tolerance d_p explains
M_pp / d_p (K = X'X, M = B B', B = X'Y); then its direction is removed from both matrices. The loops compute element by
element in a fixed order, so that the result does not depend on the compiler's vector width.

S is independent if each column keeps more than its floor when all others are projected out, that is if
1 / ((K_SS + lam I)^-1)_jj > floor_j for all j of S (dsel._lib.tolerances). No order of the columns plays a part. Pivots
alone do not tell: several small ones multiply. If their product is far above the floor, it proves independence, and
nothing else is computed.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import RowAddresses, cube, int_vector, matrix, row, vector
from dsel._lib.types import Floats, Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables

#: A pivot, or product of pivots, of at most this many times the floor is borderline: a running factor cannot decide
#: whether S is independent, and gains are rounding. `eliminated` decides instead.
BORDERLINE_RATIO = 10.0


@compiled("f8(i8[::1], i8, i8)", inner=True)
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


@compiled(inner=True)
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

    NaN where rows are fetched on demand and an entry is unknown. A column that would make the columns before it
    dependent explains nothing and is not counted. O(s^3 / 6) multiplications with few targets, three times as many
    with M; up to as many again near dependence.
    """
    f, independent = _eliminate(P, members, s)
    if independent:
        return f, int(s)
    size = _keep_independent(P, members, s)
    return _eliminate(P, int_vector(P, layout.KEPT), np.int64(size))[0], size


@compiled("Tuple((f8, b1))(i8[::1], i8[::1], i8)", inner=True)
def _eliminate(P: SubsetTables, members: Ints, s: Int) -> tuple[float, bool]:
    """Return f(S) and whether S is independent; f is not a result if it is not."""
    N = P[layout.N_TARGETS]
    floor, scalars = vector(P, layout.FLOOR), vector(P, layout.SCALARS)
    k, M = cube(P, layout.ELIMINATION)[0], cube(P, layout.ELIMINATION)[1]
    u = matrix(P, layout.VECTORS)[layout.U]
    if P[layout.ON_DEMAND]:
        _load_known(P, members, s)
    for a in range(s):
        if not P[layout.ON_DEMAND]:
            gram = row(P, layout.K, members[a])
            for b in range(a, s):
                k[a, b] = gram[members[b]]
        k[a, a] += scalars[layout.LAM]
        if N > 0:
            for t in range(N):
                M[a, t] = matrix(P, layout.B)[members[a], t]
        elif not P[layout.ON_DEMAND]:
            cross = row(P, layout.M, members[a])
            for b in range(a, s):
                M[a, b] = cross[members[b]]
    f = scalars[layout.ERROR_OF_EMPTY]
    share = 1.0
    room = np.inf
    for p in range(s):
        d = k[p, p]
        if d <= floor[members[p]]:
            return f, False
        whole = vector(P, layout.K_DIAGONAL)[members[p]] + scalars[layout.LAM]
        share *= d / whole
        room = min(room, whole / floor[members[p]])
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
    if share * room <= BORDERLINE_RATIO:
        return f, tolerances_suffice(k, floor, members, s)
    return f, True


@compiled("void(i8[::1], i8[::1], i8)", inner=True)
def _load_known(P: SubsetTables, members: Ints, s: Int) -> None:
    """Write K_SS and, without targets, M_SS to ELIMINATION where rows are fetched on demand; NaN if unknown."""
    k, M = cube(P, layout.ELIMINATION)[0], cube(P, layout.ELIMINATION)[1]
    for a in range(s):
        for b in range(a, s):
            k[a, b] = entry(P, layout.K, members[a], members[b])
            if P[layout.N_TARGETS] == 0:
                M[a, b] = entry(P, layout.M, members[a], members[b])


@compiled("b1(f8[:, ::1], f8[::1], i8[::1], i8)", inner=True)
def tolerances_suffice(k: Floats, floor: Floats, members: Ints, s: Int) -> bool:
    """Return whether all columns of S keep more than their floor given the others, from the elimination of K_SS.

    k: row p holds, from column p on, what the pivots before p leave of K_SS. With the factorization L D L' of K_SS,
    the inverse of L divided by D is written below the diagonal. O(s^3 / 6).
    """
    for i in range(s):
        own = 1.0 / k[i, i]
        inverse = own
        for p in range(i + 1, s):
            x = -k[i, p] * own
            for q in range(i + 1, p):
                x -= k[q, p] * k[q, i]
            k[p, i] = x / k[p, p]
            inverse += x * k[p, i]
        if inverse * floor[members[i]] >= 1.0:
            return False
    return True


@compiled("i8(i8[::1], i8[::1], i8)", inner=True)
def _keep_independent(P: SubsetTables, members: Ints, s: Int) -> int:
    """Write the columns of S that are independent of those before them to KEPT, and return how many they are.

    A column is left out if it would make the subset dependent. O(s^3).
    """
    floor, lam = vector(P, layout.FLOOR), vector(P, layout.SCALARS)[layout.LAM]
    kept, inverse = int_vector(P, layout.KEPT), cube(P, layout.ELIMINATION)[0]
    a, row_of = cube(P, layout.ELIMINATION)[1, 0], cube(P, layout.ELIMINATION)[1, s - 1]
    size = 0
    for p in range(s):
        for i in range(size):
            row_of[i] = entry(P, layout.K, kept[i], members[p])
        d = entry(P, layout.K, members[p], members[p]) + lam
        for i in range(size):
            a[i] = 0.0
            for l in range(size):
                a[i] += inverse[i, l] * row_of[l]
            d -= a[i] * row_of[i]
        independent = d > floor[members[p]]
        for i in range(size):
            independent = independent and (inverse[i, i] + a[i] * a[i] / d) * floor[kept[i]] < 1.0
        if not independent:
            continue
        a[size] = -1.0
        for i in range(size + 1):
            inverse[size, i] = 0.0
            inverse[i, size] = 0.0
        for i in range(size + 1):
            for l in range(size + 1):
                inverse[i, l] += a[i] * a[l] / d
        kept[size] = members[p]
        size += 1
    return size


@compiled("f8(f8[:, ::1], f8[:, ::1], i8, f8, f8[::1], i8[::1], i8, f8[:, ::1])")
def eliminated(
    K: Floats, B: Floats, targets: Int, c: float, floor: Floats, members: Ints, s: Int, work: Floats
) -> float:
    """Return f(S), S = members[:s] ascending, with the bits of `evaluate`, or NaN if S is dependent.

    K: with lam in its diagonal. B: (n, N) with B B' = M. targets: N, or 0 to check independence only (the result is c).
    work: (s, s + N) scratch. O(s^3 / 6 + s^2 N).
    """
    for a in range(s):
        for b in range(a, s):
            work[a, b] = K[members[a], members[b]]
        for t in range(targets):
            work[a, s + t] = B[members[a], t]
    f = c
    share = 1.0
    room = np.inf
    for p in range(s):
        d = work[p, p]
        if d <= floor[members[p]]:
            return np.nan
        whole = K[members[p], members[p]]
        share *= d / whole
        room = min(room, whole / floor[members[p]])
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
    if share * room <= BORDERLINE_RATIO and not tolerances_suffice(work, floor, members, s):
        return np.nan
    return f


#: Kernels of `evaluate` that only dependent subsets, or rows that are fetched on demand, need. They are compiled when
#: they are first called.
RARE = (known_pair, _load_known, tolerances_suffice, _keep_independent)

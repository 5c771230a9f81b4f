"""f after several flips of one subset at once, from its neighbour table: O(s^2), whatever the number of columns n.

A lower bound on f after inserting several columns, from K alone, is enough to refuse most offspring. The exact value
also reads M and G, which are half of its memory traffic and two thirds of its arithmetic.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, matrix, row, single_matrix, vector
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import entry
from dsel.objective.kernels.layout import SubsetTables
from dsel.objective.kernels.neighbour_table import INEXACT_RATIO, gather, project


@compiled("f8(i8[::1], i8, i8[::1], i8)", fast=True)
def value_after_flips(P: SubsetTables, z: Int, flips: Ints, n_flips: Int) -> float:
    """Return f of slot z's subset with up to MOST_FLIPS columns flips[:n_flips] flipped at once.

    +inf where a column depends on others, -inf where the table is inexact. Where entries of K among the inserted
    columns are unknown, the value is a lower bound and P[GUESSED] is 1.

    To delete I and insert J: with Z = A_II^-1 a_IJ,
        D = d_JJ + a_IJ' Z,   M = m_JJ + Z' y_IJ + y_IJ' Z + Z' G_II Z,   f + tr(A_II^-1 G_II) - tr(D^-1 M).
    O(s |I|) for one insertion, O(s^2) for each more.
    """
    position, flipped = int_matrix(P, layout.POSITION), int_matrix(P, layout.FLIPPED)
    P[layout.GUESSED] = 0
    if int_matrix(P, layout.STATUS)[z, layout.INEXACT]:
        return -np.inf
    inside = np.int64(0)
    outside = np.int64(0)
    for x in range(n_flips):
        i = position[z, flips[x]]
        if i >= 0:
            flipped[0, inside] = i
            inside += 1
        else:
            flipped[1, outside] = flips[x]
            outside += 1
    for x in range(outside):
        j = flipped[1, x]
        gather(P, z, j, x)
        # For the last one, its own K_Sj and M_Sj and the others' projections are enough. One call: it is copied here.
        whole = x < outside - 1
        for b in range(1 if whole else inside):
            first = np.int64(0) if whole else flipped[0, b]
            last = int_matrix(P, layout.STATUS)[z, layout.SIZE] if whole else first + 1
            project(P, z, j, x, first, last)
    if outside > 0:
        _residual_block(P, z, outside)
    f = vector(P, layout.F)[z]
    if inside > 0:
        f = _delete_block(P, z, inside, outside)
        if f == -np.inf:
            return f
    if outside > 1 and P[layout.GUESSED]:
        return bound_block(P, f, outside)
    return _insert_block(P, f, outside)


@compiled(fast=True, inner=True)
def _residual_block(P: SubsetTables, z: Int, outside: Int) -> None:
    """Write the residual Gram matrix D and cross-moments M of the columns J, given S, to blocks 0 and 1."""
    table, vectors, flipped = cube(P, layout.NEIGHBOURS), matrix(P, layout.VECTORS), int_matrix(P, layout.FLIPPED)
    blocks = cube(P, layout.BLOCKS)
    P[layout.GUESSED] = 0
    s = int_matrix(P, layout.STATUS)[z, layout.SIZE]
    for x in range(outside):
        j = flipped[1, x]
        blocks[0, x, x] = table[z, layout.TOLERANCE, j]
        blocks[1, x, x] = table[z, layout.MOMENT, j]
        for b in range(x):
            l = flipped[1, b]
            d = 0.0
            m = 0.0
            if P[layout.N_TARGETS] > 0:
                for i in range(s):
                    d += vectors[layout.K_J + x, i] * vectors[layout.A_J + b, i]
                for target in range(P[layout.N_TARGETS]):
                    m -= table[z, layout.RESIDUAL + target, j] * table[z, layout.RESIDUAL + target, l]
            else:
                for i in range(s):
                    d += vectors[layout.K_J + x, i] * vectors[layout.A_J + b, i]
                    m += (
                        vectors[layout.MU_J + x, i] * vectors[layout.A_J + b, i]
                        + vectors[layout.K_J + x, i] * vectors[layout.Y_J + b, i]
                    )
                m -= entry(P, layout.M, j, l)
            k = entry(P, layout.K, j, l)
            if np.isnan(k):
                k = guess(P, j, l, x, b)
            elif P[layout.ON_DEMAND]:
                matrix(P, layout.UNKNOWN)[x, b] = 0.0
            blocks[0, x, b] = k - d
            blocks[0, b, x] = k - d
            blocks[1, x, b] = -m
            blocks[1, b, x] = -m


@compiled("f8(i8[::1], i8, i8, i8, i8)", fast=True, inner=True)
def guess(P: SubsetTables, j: Int, l: Int, x: Int, b: Int) -> float:
    """Return an estimate of K_jl, and write its largest possible error (Cauchy and Schwarz) to UNKNOWN[x, b]."""
    tail = vector(P, layout.TAIL)
    matrix(P, layout.UNKNOWN)[x, b] = tail[j] * tail[l]
    P[layout.GUESSED] = 1
    return _leading_part(P, j, l)


@compiled("f8(i8[::1], i8, i8)", fast=True, inner=True)
def _leading_part(P: SubsetTables, j: Int, l: Int) -> float:
    """Return the inner product of the leading coordinates of two columns."""
    leading = single_matrix(P, layout.LEADING)
    k = 0.0
    for p in range(leading.shape[1]):
        k += np.float64(leading[j, p]) * np.float64(leading[l, p])
    return k


@compiled("f8(i8[::1], f8, i8)", inner=True)
def bound_block(P: SubsetTables, f: float, outside: Int) -> float:
    """Return a lower bound on f after inserting the columns J, where entries of K among them are unknown.

    With D = E (I + O) E, E^2 the diagonal of D, the gain is tr(D^-1 M) <= sum_x (m_x / d_x) / least, for any lower
    bound `least` on the eigenvalues of I + O. There are two by Gershgorin. The first uses the largest values that
    entries of O can have. The second is for D minus the Gram matrix of the columns' other coordinates, which is
    positive semidefinite and has the squares of TAIL as its diagonal. It is better for three columns and more.
    """
    blocks, floor, flipped = cube(P, layout.BLOCKS), vector(P, layout.FLOOR), int_matrix(P, layout.FLIPPED)
    unknown, tail = matrix(P, layout.UNKNOWN), vector(P, layout.TAIL)
    D_JJ, M_JJ = blocks[0], blocks[1]
    gain = 0.0
    first = 1.0
    second = 1.0
    for x in range(outside):
        j = flipped[1, x]
        d = D_JJ[x, x]
        if INEXACT_RATIO * d <= floor[j]:
            return np.inf
        if d <= INEXACT_RATIO * floor[j]:
            return -np.inf
        gain += max(M_JJ[x, x], 0.0) / d
        largest = 0.0
        leading = 0.0
        for b in range(outside):
            if b != x:
                scale = np.sqrt(d * D_JJ[b, b]) if D_JJ[b, b] > 0.0 else 0.0
                off = unknown[max(x, b), min(x, b)]
                known = D_JJ[x, b]
                largest += (abs(known) + off) / scale if scale > 0.0 else np.inf
                k = entry(P, layout.K, j, flipped[1, b])
                if not np.isnan(k):
                    known += _leading_part(P, j, flipped[1, b]) - k
                leading += abs(known) / scale if scale > 0.0 else np.inf
        first = min(first, 1.0 - largest)
        second = min(second, 1.0 - tail[j] * tail[j] / d - leading)
    least = max(first, second)
    return f - gain / least if least > 0.0 else -np.inf


@compiled(fast=True, inner=True)
def _delete_block(P: SubsetTables, z: Int, inside: Int, outside: Int) -> float:
    """Return f after deleting the members I, and add what that changes in D and M of the columns J.

    -inf if the table is inexact for a member.
    """
    inverse, inner, vectors = cube(P, layout.A), cube(P, layout.G), matrix(P, layout.VECTORS)
    flipped = int_matrix(P, layout.FLIPPED)
    blocks, members, floor = cube(P, layout.BLOCKS), int_matrix(P, layout.S), vector(P, layout.FLOOR)
    D_JJ, M_JJ, A_II, G_II, Z, Y = blocks[0], blocks[1], blocks[2], blocks[3], blocks[4], blocks[5]
    for b in range(inside):
        i = flipped[0, b]
        for x in range(outside):
            Z[b, x] = vectors[layout.A_J + x, i]
            Y[b, x] = vectors[layout.Y_J + x, i]
        for c in range(inside):
            l = flipped[0, c]
            A_II[b, c] = inverse[z, i, l]
            G_II[b, c] = inner[z, i, l] if P[layout.N_TARGETS] == 0 else 0.0
            for target in range(P[layout.N_TARGETS]):
                G_II[b, c] += inner[z, i, target] * inner[z, l, target]
    f = vector(P, layout.F)[z]
    for b in range(inside):
        d = A_II[b, b]
        g = G_II[b, b]
        j = members[z, flipped[0, b]]
        if d * floor[j] * INEXACT_RATIO > 1.0:
            return -np.inf
        f += g / d
        for x in range(outside):
            u = Z[b, x] / d
            for l in range(x + 1):
                v = Z[b, l] / d
                D_JJ[x, l] += u * Z[b, l]
                M_JJ[x, l] += u * Y[b, l] + v * Y[b, x] + u * v * g
                D_JJ[l, x] = D_JJ[x, l]
                M_JJ[l, x] = M_JJ[x, l]
        for r in range(b + 1, inside):
            ratio = A_II[r, b] / d
            other = (G_II[r, b] - ratio * g) / d
            for x in range(outside):
                Y[r, x] += other * Z[b, x] - ratio * Y[b, x]
                Z[r, x] -= ratio * Z[b, x]
        for r in range(b + 1, inside):
            ratio = A_II[r, b] / d
            for l in range(b + 1, inside):
                other = A_II[b, l] / d
                G_II[r, l] += ratio * other * g - ratio * G_II[b, l] - other * G_II[r, b]
                A_II[r, l] -= ratio * A_II[b, l]
    return float(f)


@compiled(inner=True)
def _insert_block(P: SubsetTables, f: float, outside: Int) -> float:
    """Return f after inserting the columns J one after another, given their residual D and M."""
    blocks, floor, flipped = cube(P, layout.BLOCKS), vector(P, layout.FLOOR), int_matrix(P, layout.FLIPPED)
    D_JJ, M_JJ = blocks[0], blocks[1]
    for x in range(outside):
        d = D_JJ[x, x]
        if INEXACT_RATIO * d <= floor[flipped[1, x]]:
            return np.inf
        if d <= INEXACT_RATIO * floor[flipped[1, x]]:
            return -np.inf
        m = M_JJ[x, x]
        f -= max(m, 0.0) / d
        for a in range(x + 1, outside):
            u = D_JJ[a, x] / d
            rest = M_JJ[x, a] - u * m
            for b in range(a, outside):
                M_JJ[a, b] -= u * M_JJ[x, b] + D_JJ[b, x] / d * rest
        for a in range(x + 1, outside):
            u = D_JJ[a, x] / d
            for b in range(x + 1, outside):
                D_JJ[a, b] -= u * D_JJ[x, b]
    return f


@compiled("f8(i8[::1], i8, i8[::1], i8)", fast=True)
def bound_after_insertions(P: SubsetTables, z: Int, flips: Ints, n_flips: Int) -> float:
    """Return a lower bound on f of slot z's subset with the columns flips[:n_flips] inserted.

    -inf if there is no bound: a column is a member, the table is inexact for it, or there are more than MOST_FLIPS. All
    of K must be in memory. O(s^2) for each column but the last.

    With the residual Gram matrix D = E (I + O) E, E^2 its diagonal, and the residual cross-moments M, the gain is
    tr(D^-1 M) <= sum_x (m_x / d_x) / (1 - max_x sum_b |O_xb|), by Gershgorin's bound on the least eigenvalue of I + O.
    """
    members, position, status = int_matrix(P, layout.S), int_matrix(P, layout.POSITION), int_matrix(P, layout.STATUS)
    inverse, table, off = cube(P, layout.A), cube(P, layout.NEIGHBOURS), cube(P, layout.BLOCKS)[0]
    floor, vectors = vector(P, layout.FLOOR), matrix(P, layout.VECTORS)
    if n_flips > layout.MOST_FLIPS or status[z, layout.INEXACT]:
        return -np.inf
    gain = 0.0
    for x in range(n_flips):
        j = flips[x]
        d = table[z, layout.TOLERANCE, j]
        if position[z, j] >= 0 or d <= INEXACT_RATIO * floor[j]:
            return -np.inf
        gain += max(table[z, layout.MOMENT, j], 0.0) / d
    s = status[z, layout.SIZE]
    for x in range(n_flips):
        own = row(P, layout.K, flips[x])
        for i in range(s):
            vectors[layout.K_J + x, i] = own[members[z, i]]
        if x == n_flips - 1:
            break
        for i in range(s):
            a_i = 0.0
            for l in range(s):
                a_i += inverse[z, i, l] * vectors[layout.K_J + x, l]
            vectors[layout.A_J + x, i] = a_i
    most = 0.0
    for x in range(n_flips):
        for b in range(x):
            d = entry(P, layout.K, flips[x], flips[b])
            for i in range(s):
                d -= vectors[layout.K_J + x, i] * vectors[layout.A_J + b, i]
            off[x, b] = abs(d) / np.sqrt(table[z, layout.TOLERANCE, flips[x]] * table[z, layout.TOLERANCE, flips[b]])
            off[b, x] = off[x, b]
    for x in range(n_flips):
        total = 0.0
        for b in range(n_flips):
            if b != x:
                total += off[x, b]
        most = max(most, total)
    return vector(P, layout.F)[z] - gain / (1.0 - most) if most < 1.0 else -np.inf

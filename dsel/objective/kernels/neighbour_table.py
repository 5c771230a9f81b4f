"""Gains and losses of all single insertions and deletions, for several subsets.

For a subset S of size s, with A = (K_SS + lam I)^-1 and a_j = A K_Sj, the table holds for every column j outside S

    d_j = K_jj + lam - K_jS a_j          the squared norm of the residual of x_j on X_S (its tolerance),
    r_j = B_j - B_S' a_j, m_j = |r_j|^2  its products with the targets' residuals; with M: m_j = [a_j; -1]' M [a_j; -1].

The gain of inserting j is m_j / d_j. The loss of deleting a column i of S is G_ii / A_ii, with G = A M_SS A (with B:
w = A B_S, G = w w'). After one flip the table follows from the parent's in O(n s), from the rows K_S and M_S. For
several flips at once see dsel.objective.kernels.multi_flip.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import RowAddresses, cube, int_matrix, int_vector, matrix, row, vector
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables

#: The table is inexact for a column whose tolerance (d_j outside S, 1 / A_ii inside) is below this many times its
#: floor. With the default floor, the others leave less than 1e-3 of its squared norm then, and rounding errors grow by
#: the square of that, beyond the band of the search. The outcome is -inf, and f is evaluated from K and B instead. A
#: column is surely dependent, in whatever order `evaluate` takes the pivots, only this many times below its floor.
INEXACT_RATIO = 1e4


@compiled("void(i8[::1], i8)", fast=True)
def clear(P: SubsetTables, z: Int) -> None:
    """Make slot z the empty set."""
    diagonal, scalars = vector(P, layout.K_DIAGONAL), vector(P, layout.SCALARS)
    table, position, status = cube(P, layout.NEIGHBOURS), int_matrix(P, layout.POSITION), int_matrix(P, layout.STATUS)
    status[z, layout.SIZE] = 0
    status[z, layout.DEPTH] = 0
    vector(P, layout.F)[z] = scalars[layout.ERROR_OF_EMPTY]
    for j in range(P[layout.N_COLUMNS]):
        position[z, j] = -1
        table[z, layout.TOLERANCE, j] = diagonal[j] + scalars[layout.LAM]
        table[z, layout.MOMENT, j] = 0.0
    if P[layout.N_TARGETS] == 0:
        moments = vector(P, layout.M_DIAGONAL)
        for j in range(P[layout.N_COLUMNS]):
            table[z, layout.MOMENT, j] = moments[j]
    for target in range(P[layout.N_TARGETS]):
        for j in range(P[layout.N_COLUMNS]):
            b = matrix(P, layout.B)[j, target]
            table[z, layout.RESIDUAL + target, j] = b
            table[z, layout.MOMENT, j] += b * b


@compiled("void(i8[::1], i8, i8)", fast=True)
def copy(P: SubsetTables, source: Int, z: Int) -> None:
    """Copy slot `source` to slot z."""
    inverse, inner, table = cube(P, layout.A), cube(P, layout.G), cube(P, layout.NEIGHBOURS)
    members, position, status = int_matrix(P, layout.S), int_matrix(P, layout.POSITION), int_matrix(P, layout.STATUS)
    s = status[source, layout.SIZE]
    for x in range(status.shape[1]):
        status[z, x] = status[source, x]
    for j in range(P[layout.N_COLUMNS]):
        position[z, j] = position[source, j]
    for kind in range(table.shape[1]):
        for j in range(P[layout.N_COLUMNS]):
            table[z, kind, j] = table[source, kind, j]
    for i in range(s):
        members[z, i] = members[source, i]
        for l in range(s):
            inverse[z, i, l] = inverse[source, i, l]
        for l in range(inner.shape[2]):
            inner[z, i, l] = inner[source, i, l]
    vector(P, layout.F)[z] = vector(P, layout.F)[source]


@compiled(fast=True, inner=True)
def gather(P: SubsetTables, z: Int, j: Int, x: Int) -> None:
    """Write K_Sj and, with M, M_Sj to the vectors K_J and MU_J of flipped column number x."""
    _gather_from(P, layout.K, z, j, layout.K_J + x)
    if P[layout.N_TARGETS] == 0:
        _gather_from(P, layout.M, z, j, layout.MU_J + x)


@compiled(fast=True, inner=True)
def _gather_from(P: SubsetTables, rows: RowAddresses[SubsetTables], z: Int, j: Int, into: Int) -> None:
    """Write the entries of column j for the members, from its own row, or from theirs if that is missing."""
    members, vectors = int_matrix(P, layout.S), matrix(P, layout.VECTORS)
    s = int_matrix(P, layout.STATUS)[z, layout.SIZE]
    if int_vector(P, rows)[j] != 0:
        own = row(P, rows, j)
        for i in range(s):
            vectors[into, i] = own[members[z, i]]
    else:
        for i in range(s):
            vectors[into, i] = row(P, rows, members[z, i])[j]


@compiled(fast=True, inner=True)
def project(P: SubsetTables, z: Int, j: Int, x: Int, first: Int, last: Int) -> None:
    """Compute a_ij = (A K_Sj)_i and y_ij = (A M_Sj - G K_Sj)_i (with B: w_i . r_j) for members first to last - 1."""
    inverse, inner, table = cube(P, layout.A), cube(P, layout.G), cube(P, layout.NEIGHBOURS)
    vectors, s = matrix(P, layout.VECTORS), int_matrix(P, layout.STATUS)[z, layout.SIZE]
    for i in range(first, last):
        a_ij = 0.0
        y_ij = 0.0
        if P[layout.N_TARGETS] > 0:
            for l in range(s):
                a_ij += inverse[z, i, l] * vectors[layout.K_J + x, l]
            for target in range(inner.shape[2]):
                y_ij += inner[z, i, target] * table[z, layout.RESIDUAL + target, j]
        else:
            for l in range(s):
                a_ij += inverse[z, i, l] * vectors[layout.K_J + x, l]
                y_ij += inverse[z, i, l] * vectors[layout.MU_J + x, l] - inner[z, i, l] * vectors[layout.K_J + x, l]
        vectors[layout.A_J + x, i] = a_ij
        vectors[layout.Y_J + x, i] = y_ij


@compiled("void(i8[::1], i8, i8, i8)", fast=True, inner=True)
def _combine_rows(P: SubsetTables, z: Int, a: Int, y: Int) -> None:
    """Subtract combinations of the members' rows from the vectors ALONG.

    With V the vectors a and y along S, and E the vectors ALONG:
    E_0 -= sum_i V[a, i] K_i and, with M, E_1 -= sum_i V[a, i] M_i + V[y, i] K_i.
    """
    members, vectors, along = int_matrix(P, layout.S), matrix(P, layout.VECTORS), matrix(P, layout.ALONG)
    n = P[layout.N_COLUMNS]
    for i in range(int_matrix(P, layout.STATUS)[z, layout.SIZE]):
        gram = row(P, layout.K, members[z, i])
        a_i = vectors[a, i]
        y_i = vectors[y, i]
        if P[layout.N_TARGETS] > 0:
            for l in range(n):
                along[0, l] -= a_i * gram[l]
        else:
            cross = row(P, layout.M, members[z, i])
            for l in range(n):
                along[0, l] -= a_i * gram[l]
                along[1, l] -= a_i * cross[l] + y_i * gram[l]


@compiled("void(i8[::1], i8, f8, f8, f8)", fast=True, inner=True)
def _move_columns(P: SubsetTables, z: Int, d: float, m: float, sign: float) -> None:
    """Update d, r and m of all columns after the residual E_0 / d of one is removed (sign -1) or added back (+1).

    The vector W holds the N residuals (B) of that column, m its moment (M), E_1 its cross-moments.
    """
    table, along, residual = cube(P, layout.NEIGHBOURS), matrix(P, layout.ALONG), matrix(P, layout.VECTORS)
    n = P[layout.N_COLUMNS]
    for l in range(n):
        table[z, layout.TOLERANCE, l] += sign * along[0, l] * along[0, l] / d
    if P[layout.N_TARGETS] > 0:
        for l in range(n):
            table[z, layout.MOMENT, l] = 0.0
        for target in range(P[layout.N_TARGETS]):
            scale = sign * residual[layout.W, target] / d
            for l in range(n):
                r = table[z, layout.RESIDUAL + target, l] + scale * along[0, l]
                table[z, layout.RESIDUAL + target, l] = r
                table[z, layout.MOMENT, l] += r * r
    else:
        for l in range(n):
            u = along[0, l] / d
            table[z, layout.MOMENT, l] += u * (u * m + sign * 2.0 * along[1, l])


@compiled("b1(i8[::1], i8, i8)", fast=True)
def insert(P: SubsetTables, z: Int, j: Int) -> bool:
    """Insert column j, whose row must have been fetched, into slot z, or return False if that makes S dependent.

    O(n s). Outcomes are not updated.
    """
    table, along = cube(P, layout.NEIGHBOURS), matrix(P, layout.ALONG)
    d = table[z, layout.TOLERANCE, j]
    if d <= vector(P, layout.FLOOR)[j]:
        return False
    m = table[z, layout.MOMENT, j]
    # A typed integer: for a literal, numba would compile the called functions again.
    first = np.int64(0)
    gather(P, z, j, first)
    project(P, z, j, first, first, int_matrix(P, layout.STATUS)[z, layout.SIZE])
    if _makes_dependent(P, z, d):
        return False
    gram = row(P, layout.K, j)
    for l in range(P[layout.N_COLUMNS]):
        along[0, l] = gram[l]
    if P[layout.N_TARGETS] == 0:
        cross = row(P, layout.M, j)
        for l in range(P[layout.N_COLUMNS]):
            along[1, l] = cross[l]
    _combine_rows(P, z, layout.A_J, layout.Y_J)
    for target in range(P[layout.N_TARGETS]):
        matrix(P, layout.VECTORS)[layout.W, target] = table[z, layout.RESIDUAL + target, j]
    _move_columns(P, z, d, m, np.float64(-1.0))
    _grow_inverse(P, z, j, d, m)
    vector(P, layout.F)[z] -= m / d
    return True


@compiled(fast=True, inner=True)
def _makes_dependent(P: SubsetTables, z: Int, d: float) -> bool:
    """Return whether a member would depend on the others after an insertion, with A K_Sj in A_J and tolerance d."""
    inverse, vectors = cube(P, layout.A), matrix(P, layout.VECTORS)
    members, floor = int_matrix(P, layout.S), vector(P, layout.FLOOR)
    for i in range(int_matrix(P, layout.STATUS)[z, layout.SIZE]):
        a = vectors[layout.A_J, i]
        if (inverse[z, i, i] + a * a / d) * floor[members[z, i]] >= 1.0:
            return True
    return False


@compiled("void(i8[::1], i8, i8, f8, f8)", fast=True, inner=True)
def _grow_inverse(P: SubsetTables, z: Int, j: Int, d: float, m: float) -> None:
    """Update A, G (or w) and S for column j: with p = [a; -1], A + p p'/d and G - (y p' + p y')/d + p p' m/d^2."""
    inverse, inner, vectors = cube(P, layout.A), cube(P, layout.G), matrix(P, layout.VECTORS)
    status = int_matrix(P, layout.STATUS)
    s = status[z, layout.SIZE]
    vectors[layout.A_J, s] = -1.0
    vectors[layout.Y_J, s] = 0.0
    for i in range(s + 1):
        inverse[z, s, i] = 0.0
        inverse[z, i, s] = 0.0
    for i in range(s + 1):
        scale = vectors[layout.A_J, i] / d
        for l in range(s + 1):
            inverse[z, i, l] += scale * vectors[layout.A_J, l]
    if P[layout.N_TARGETS] == 0:
        for i in range(s + 1):
            inner[z, s, i] = 0.0
            inner[z, i, s] = 0.0
        for i in range(s + 1):
            own = (vectors[layout.A_J, i] * (m / d) - vectors[layout.Y_J, i]) / d
            other = vectors[layout.A_J, i] / d
            for l in range(s + 1):
                inner[z, i, l] += own * vectors[layout.A_J, l] - other * vectors[layout.Y_J, l]
    for target in range(P[layout.N_TARGETS]):
        inner[z, s, target] = 0.0
        for i in range(s + 1):
            inner[z, i, target] -= vectors[layout.A_J, i] * vectors[layout.W, target] / d
    int_matrix(P, layout.S)[z, s] = j
    int_matrix(P, layout.POSITION)[z, j] = s
    status[z, layout.SIZE] = s + 1
    status[z, layout.DEPTH] += 1


@compiled("void(i8[::1], i8, i8)", fast=True)
def delete(P: SubsetTables, z: Int, j: Int) -> None:
    """Delete member j from slot z. O(n s). Outcomes are not updated."""
    inverse, inner, table = cube(P, layout.A), cube(P, layout.G), cube(P, layout.NEIGHBOURS)
    vectors, along = matrix(P, layout.VECTORS), matrix(P, layout.ALONG)
    i = int_matrix(P, layout.POSITION)[z, j]
    d = inverse[z, i, i]
    loss = member_loss(P, z, i) * d
    for l in range(int_matrix(P, layout.STATUS)[z, layout.SIZE]):
        vectors[layout.H, l] = -inverse[z, i, l]
        if P[layout.N_TARGETS] == 0:
            vectors[layout.H_G, l] = inner[z, i, l]
    for target in range(P[layout.N_TARGETS]):
        vectors[layout.W, target] = inner[z, i, target]
    for l in range(P[layout.N_COLUMNS]):
        along[0, l] = 0.0
        along[1, l] = 0.0
    _combine_rows(P, z, layout.H, layout.H_G)
    _move_columns(P, z, d, loss, np.float64(1.0))
    table[z, layout.TOLERANCE, j] = 1.0 / d
    table[z, layout.MOMENT, j] = loss / (d * d)
    for target in range(P[layout.N_TARGETS]):
        table[z, layout.RESIDUAL + target, j] = vectors[layout.W, target] / d
    _shrink_inverse(P, z, i, d, loss)
    vector(P, layout.F)[z] += loss / d


@compiled("void(i8[::1], i8, i8, f8, f8)", fast=True, inner=True)
def _shrink_inverse(P: SubsetTables, z: Int, i: Int, d: float, loss: float) -> None:
    """Remove the member at position i from A, G (or w) and S; the vector H is minus its row of A, H_G its row of G."""
    inverse, inner, vectors = cube(P, layout.A), cube(P, layout.G), matrix(P, layout.VECTORS)
    members, position, status = int_matrix(P, layout.S), int_matrix(P, layout.POSITION), int_matrix(P, layout.STATUS)
    s = status[z, layout.SIZE]
    for x in range(s):
        scale = vectors[layout.H, x] / d
        for l in range(s):
            inverse[z, x, l] -= scale * vectors[layout.H, l]
    if P[layout.N_TARGETS] == 0:
        for x in range(s):
            own = (vectors[layout.H, x] * (loss / d) + vectors[layout.H_G, x]) / d
            other = vectors[layout.H, x] / d
            for l in range(s):
                inner[z, x, l] += own * vectors[layout.H, l] + other * vectors[layout.H_G, l]
    for target in range(P[layout.N_TARGETS]):
        for x in range(s):
            inner[z, x, target] += vectors[layout.H, x] * vectors[layout.W, target] / d
    last = s - 1
    j = members[z, i]
    if i != last:
        for l in range(s):
            inverse[z, i, l] = inverse[z, last, l]
        for l in range(s):
            inverse[z, l, i] = inverse[z, l, last]
        for l in range(s if P[layout.N_TARGETS] == 0 else P[layout.N_TARGETS]):
            inner[z, i, l] = inner[z, last, l]
        if P[layout.N_TARGETS] == 0:
            for l in range(s):
                inner[z, l, i] = inner[z, l, last]
        members[z, i] = members[z, last]
        position[z, members[z, i]] = i
    position[z, j] = -1
    status[z, layout.SIZE] = last
    status[z, layout.DEPTH] += 1


@compiled("f8(i8[::1], i8, i8)", fast=True)
def member_loss(P: SubsetTables, z: Int, i: Int) -> float:
    """Return the increase of f when the member at position i is deleted."""
    inner = cube(P, layout.G)
    loss = 0.0
    if P[layout.N_TARGETS] == 0:
        loss = inner[z, i, i]
    for target in range(P[layout.N_TARGETS]):
        loss += inner[z, i, target] * inner[z, i, target]
    return float(loss / cube(P, layout.A)[z, i, i])


@compiled("void(i8[::1], i8)")
def fill_outcome(P: SubsetTables, z: Int) -> None:
    """Compute f after each single flip of slot z: +inf where a column depends on S, -inf where the table is inexact."""
    inverse, table, status = cube(P, layout.A), cube(P, layout.NEIGHBOURS), int_matrix(P, layout.STATUS)
    f, floor, members = vector(P, layout.F)[z], vector(P, layout.FLOOR), int_matrix(P, layout.S)
    inexact = False
    for i in range(status[z, layout.SIZE]):
        if inverse[z, i, i] * floor[members[z, i]] * INEXACT_RATIO > 1.0:
            inexact = True
    status[z, layout.INEXACT] = inexact
    for j in range(P[layout.N_COLUMNS]):
        d = table[z, layout.TOLERANCE, j]
        if inexact or floor[j] < INEXACT_RATIO * d <= INEXACT_RATIO * INEXACT_RATIO * floor[j]:
            table[z, layout.OUTCOME, j] = -np.inf
        else:
            table[z, layout.OUTCOME, j] = f - max(table[z, layout.MOMENT, j], 0.0) / d if d > floor[j] else np.inf
    for i in range(status[z, layout.SIZE]):
        table[z, layout.OUTCOME, members[z, i]] = -np.inf if inexact else f + member_loss(P, z, i)


@compiled("b1(i8[::1], i8, i8[::1], i8)", fast=True)
def rebuild(P: SubsetTables, z: Int, columns: Ints, s: Int) -> bool:
    """Make slot z the subset columns[:s]; return False if it is dependent. O(n s^2)."""
    clear(P, z)
    for i in range(s):
        if not insert(P, z, columns[i]):
            return False
    int_matrix(P, layout.STATUS)[z, layout.DEPTH] = 0
    return True

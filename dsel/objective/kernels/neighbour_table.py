"""What every single insertion and deletion would bring, for a pool of subsets at once.

For a subset S of size s, with A = (K_SS + lam I)^-1 and a_j = A K_Sj, the table holds for every column j outside S

    d_j = K_jj + lam - K_jS a_j          what of x_j is left beside X_S (its tolerance),
    r_j = B_j - B_S' a_j, m_j = |r_j|^2  what the rest of the targets sees of it (with M: m_j = [a_j; -1]' M [a_j; -1]),

so that inserting j gains m_j / d_j, and for every column i of S the loss G_ii / A_ii of deleting it, with G = A M_SS A
(with B: w = A B_S, G = w w'). After one flip all of it follows from the parent's table in O(n s): a few combinations
of the rows K_S and M_S. What several flips at once come to: dsel.objective.kernels.multi_flip.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Ints
from dsel.objective.kernels.layout import (
    A_J,
    CANNOT_TELL,
    DEPTH,
    ERROR_OF_EMPTY,
    FLOOR,
    H_G,
    K_DIAGONAL,
    K_J,
    LAM,
    M_DIAGONAL,
    MOMENT,
    MU_J,
    N_COLUMNS,
    N_TARGETS,
    OUTCOME,
    POSITION,
    RESIDUAL,
    SCALARS,
    SIZE,
    STATUS,
    TOLERANCE,
    Y_J,
    A,
    C,
    D,
    E,
    F,
    G,
    H,
    K,
    S,
    V,
    W,
    cube,
    int_matrix,
    int_vector,
    matrix,
    row,
    vector,
)

#: A column with a tolerance (d_j outside S, 1 / A_ii inside) below so many times its floor is "steep": with the default
#: floor, the others leave less than 1e-3 of its squared norm. The table's figures lose the square of that to rounding,
#: and stop being good to the engine's band; then the table says -inf, "cannot tell", and f is evaluated by itself.
#: Only so many times below its floor a column is dependent whatever the order in which `evaluate` takes the pivots.
STEEP = 1e4


@compiled(fast=True)
def clear(P: Ints, z: int) -> None:
    """Make slot z the empty set."""
    diagonal, scalars = vector(P, K_DIAGONAL), vector(P, SCALARS)
    table, position, status = cube(P, D), int_matrix(P, POSITION), int_matrix(P, STATUS)
    status[z, SIZE] = 0
    status[z, DEPTH] = 0
    vector(P, F)[z] = scalars[ERROR_OF_EMPTY]
    for j in range(P[N_COLUMNS]):
        position[z, j] = -1
        table[z, TOLERANCE, j] = diagonal[j] + scalars[LAM]
        table[z, MOMENT, j] = 0.0
    if P[N_TARGETS] == 0:
        seen = vector(P, M_DIAGONAL)
        for j in range(P[N_COLUMNS]):
            table[z, MOMENT, j] = seen[j]
    for target in range(P[N_TARGETS]):
        for j in range(P[N_COLUMNS]):
            b = matrix(P, C)[j, target]
            table[z, RESIDUAL + target, j] = b
            table[z, MOMENT, j] += b * b


@compiled(fast=True)
def copy(P: Ints, source: int, z: int) -> None:
    """Make slot z the same as slot `source`."""
    inverse, inner, table = cube(P, A), cube(P, G), cube(P, D)
    members, position, status = int_matrix(P, S), int_matrix(P, POSITION), int_matrix(P, STATUS)
    s = status[source, SIZE]
    for x in range(status.shape[1]):
        status[z, x] = status[source, x]
    for j in range(P[N_COLUMNS]):
        position[z, j] = position[source, j]
    for kind in range(table.shape[1]):
        for j in range(P[N_COLUMNS]):
            table[z, kind, j] = table[source, kind, j]
    for i in range(s):
        members[z, i] = members[source, i]
        for l in range(s):
            inverse[z, i, l] = inverse[source, i, l]
        for l in range(inner.shape[2]):
            inner[z, i, l] = inner[source, i, l]
    vector(P, F)[z] = vector(P, F)[source]


@compiled(fast=True)
def gather(P: Ints, z: int, j: int, x: int) -> None:
    """k = K_Sj and, with M, mu = M_Sj into the vectors of flipped column number x."""
    _gather_from(P, K, z, j, np.int64(K_J + x))
    if P[N_TARGETS] == 0:
        _gather_from(P, C, z, j, np.int64(MU_J + x))


@compiled(fast=True)
def _gather_from(P: Ints, place: int, z: int, j: int, into: int) -> None:
    """The entries of column j beside the members, from its own row, or from theirs where that is not there."""
    members, vectors = int_matrix(P, S), matrix(P, V)
    s = int_matrix(P, STATUS)[z, SIZE]
    if int_vector(P, place)[j] != 0:
        own = row(P, place, j)
        for i in range(s):
            vectors[into, i] = own[members[z, i]]
    else:
        for i in range(s):
            vectors[into, i] = row(P, place, members[z, i])[j]


@compiled(fast=True)
def project(P: Ints, z: int, j: int, x: int, first: int, last: int) -> None:
    """a_ij = (A K_Sj)_i and y_ij = (A M_Sj - G K_Sj)_i (with B: w_i . r_j), for the members i from first to last."""
    inverse, inner, table, vectors = cube(P, A), cube(P, G), cube(P, D), matrix(P, V)
    s = int_matrix(P, STATUS)[z, SIZE]
    for i in range(first, last):
        a_ij = 0.0
        y_ij = 0.0
        if P[N_TARGETS] > 0:
            for l in range(s):
                a_ij += inverse[z, i, l] * vectors[K_J + x, l]
            for target in range(inner.shape[2]):
                y_ij += inner[z, i, target] * table[z, RESIDUAL + target, j]
        else:
            for l in range(s):
                a_ij += inverse[z, i, l] * vectors[K_J + x, l]
                y_ij += inverse[z, i, l] * vectors[MU_J + x, l] - inner[z, i, l] * vectors[K_J + x, l]
        vectors[A_J + x, i] = a_ij
        vectors[Y_J + x, i] = y_ij


@compiled(fast=True)
def _combine_rows(P: Ints, z: int, a: int, y: int) -> None:
    """E_0 -= sum_i V[a, i] K_i and, with M, E_1 -= sum_i V[a, i] M_i + V[y, i] K_i over the members i of slot z."""
    members, vectors, along = int_matrix(P, S), matrix(P, V), matrix(P, E)
    n = P[N_COLUMNS]
    for i in range(int_matrix(P, STATUS)[z, SIZE]):
        gram = row(P, K, members[z, i])
        a_i = vectors[a, i]
        y_i = vectors[y, i]
        if P[N_TARGETS] > 0:
            for l in range(n):
                along[0, l] -= a_i * gram[l]
        else:
            cross = row(P, C, members[z, i])
            for l in range(n):
                along[0, l] -= a_i * gram[l]
                along[1, l] -= a_i * cross[l] + y_i * gram[l]


@compiled(fast=True)
def _move_columns(P: Ints, z: int, d: float, m: float, sign: float) -> None:
    """d, r and m of all columns after the residual E_0 / d of one is taken out (sign -1) or given back (+1).

    V[W] holds the N residuals (B) of that column, m its moment (M), E_1 its cross-moments.
    """
    table, along, residual = cube(P, D), matrix(P, E), matrix(P, V)
    n = P[N_COLUMNS]
    for l in range(n):
        table[z, TOLERANCE, l] += sign * along[0, l] * along[0, l] / d
    if P[N_TARGETS] > 0:
        for l in range(n):
            table[z, MOMENT, l] = 0.0
        for target in range(P[N_TARGETS]):
            scale = sign * residual[W, target] / d
            for l in range(n):
                r = table[z, RESIDUAL + target, l] + scale * along[0, l]
                table[z, RESIDUAL + target, l] = r
                table[z, MOMENT, l] += r * r
    else:
        for l in range(n):
            u = along[0, l] / d
            table[z, MOMENT, l] += u * (u * m + sign * 2.0 * along[1, l])


@compiled(fast=True)
def insert(P: Ints, z: int, j: int) -> bool:
    """Insert column j, whose row has to be there, into slot z, O(n s); False, and nothing changed, where j depends on
    S. Leaves outcomes stale."""
    table, along = cube(P, D), matrix(P, E)
    d = table[z, TOLERANCE, j]
    if d <= vector(P, FLOOR)[j]:
        return False
    m = table[z, MOMENT, j]
    # Typed, not literal, integers here and below: numba compiles a callee anew for every literal argument.
    first = np.int64(0)
    gather(P, z, j, first)
    project(P, z, j, first, first, int_matrix(P, STATUS)[z, SIZE])
    gram = row(P, K, j)
    for l in range(P[N_COLUMNS]):
        along[0, l] = gram[l]
    if P[N_TARGETS] == 0:
        cross = row(P, C, j)
        for l in range(P[N_COLUMNS]):
            along[1, l] = cross[l]
    _combine_rows(P, z, np.int64(A_J), np.int64(Y_J))
    for target in range(P[N_TARGETS]):
        matrix(P, V)[W, target] = table[z, RESIDUAL + target, j]
    _move_columns(P, z, d, m, np.float64(-1.0))
    _grow_inverse(P, z, j, d, m)
    vector(P, F)[z] -= m / d
    return True


@compiled(fast=True)
def _grow_inverse(P: Ints, z: int, j: int, d: float, m: float) -> None:
    """A, G (or w) and S after inserting j: with p = [a; -1], A + p p'/d and G - (y p' + p y')/d + p p' m/d^2."""
    inverse, inner, vectors, status = cube(P, A), cube(P, G), matrix(P, V), int_matrix(P, STATUS)
    s = status[z, SIZE]
    vectors[A_J, s] = -1.0
    vectors[Y_J, s] = 0.0
    for i in range(s + 1):
        inverse[z, s, i] = 0.0
        inverse[z, i, s] = 0.0
    for i in range(s + 1):
        scale = vectors[A_J, i] / d
        for l in range(s + 1):
            inverse[z, i, l] += scale * vectors[A_J, l]
    if P[N_TARGETS] == 0:
        for i in range(s + 1):
            inner[z, s, i] = 0.0
            inner[z, i, s] = 0.0
        for i in range(s + 1):
            own = (vectors[A_J, i] * (m / d) - vectors[Y_J, i]) / d
            other = vectors[A_J, i] / d
            for l in range(s + 1):
                inner[z, i, l] += own * vectors[A_J, l] - other * vectors[Y_J, l]
    for target in range(P[N_TARGETS]):
        inner[z, s, target] = 0.0
        for i in range(s + 1):
            inner[z, i, target] -= vectors[A_J, i] * vectors[W, target] / d
    int_matrix(P, S)[z, s] = j
    int_matrix(P, POSITION)[z, j] = s
    status[z, SIZE] = s + 1
    status[z, DEPTH] += 1


@compiled(fast=True)
def delete(P: Ints, z: int, j: int) -> None:
    """Delete member j from slot z, O(n s). Leaves outcomes stale."""
    inverse, inner, table, vectors, along = cube(P, A), cube(P, G), cube(P, D), matrix(P, V), matrix(P, E)
    i = int_matrix(P, POSITION)[z, j]
    d = inverse[z, i, i]
    loss = member_loss(P, z, i) * d
    for l in range(int_matrix(P, STATUS)[z, SIZE]):
        vectors[H, l] = -inverse[z, i, l]
        if P[N_TARGETS] == 0:
            vectors[H_G, l] = inner[z, i, l]
    for target in range(P[N_TARGETS]):
        vectors[W, target] = inner[z, i, target]
    for l in range(P[N_COLUMNS]):
        along[0, l] = 0.0
        along[1, l] = 0.0
    _combine_rows(P, z, np.int64(H), np.int64(H_G))
    _move_columns(P, z, d, loss, np.float64(1.0))
    table[z, TOLERANCE, j] = 1.0 / d
    table[z, MOMENT, j] = loss / (d * d)
    for target in range(P[N_TARGETS]):
        table[z, RESIDUAL + target, j] = vectors[W, target] / d
    _shrink_inverse(P, z, i, d, loss)
    vector(P, F)[z] += loss / d


@compiled(fast=True)
def _shrink_inverse(P: Ints, z: int, i: int, d: float, loss: float) -> None:
    """A, G (or w) and S after deleting the member at position i; V[H] is minus its row of A, V[H_G] its row of G."""
    inverse, inner, vectors = cube(P, A), cube(P, G), matrix(P, V)
    members, position, status = int_matrix(P, S), int_matrix(P, POSITION), int_matrix(P, STATUS)
    s = status[z, SIZE]
    for x in range(s):
        scale = vectors[H, x] / d
        for l in range(s):
            inverse[z, x, l] -= scale * vectors[H, l]
    if P[N_TARGETS] == 0:
        for x in range(s):
            own = (vectors[H, x] * (loss / d) + vectors[H_G, x]) / d
            other = vectors[H, x] / d
            for l in range(s):
                inner[z, x, l] += own * vectors[H, l] + other * vectors[H_G, l]
    for target in range(P[N_TARGETS]):
        for x in range(s):
            inner[z, x, target] += vectors[H, x] * vectors[W, target] / d
    last = s - 1
    j = members[z, i]
    if i != last:
        for l in range(s):
            inverse[z, i, l] = inverse[z, last, l]
        for l in range(s):
            inverse[z, l, i] = inverse[z, l, last]
        for l in range(s if P[N_TARGETS] == 0 else P[N_TARGETS]):
            inner[z, i, l] = inner[z, last, l]
        if P[N_TARGETS] == 0:
            for l in range(s):
                inner[z, l, i] = inner[z, l, last]
        members[z, i] = members[z, last]
        position[z, members[z, i]] = i
    position[z, j] = -1
    status[z, SIZE] = last
    status[z, DEPTH] += 1


@compiled(fast=True)
def member_loss(P: Ints, z: int, i: int) -> float:
    """Increase of f when the member at position i is deleted."""
    inner = cube(P, G)
    loss = 0.0
    if P[N_TARGETS] == 0:
        loss = inner[z, i, i]
    for target in range(P[N_TARGETS]):
        loss += inner[z, i, target] * inner[z, i, target]
    return loss / cube(P, A)[z, i, i]


@compiled()
def fill_outcome(P: Ints, z: int) -> None:
    """f after each single flip of slot z: +inf where the column depends on S, -inf where the table cannot tell."""
    table, floor, members, f = cube(P, D), vector(P, FLOOR), int_matrix(P, S), vector(P, F)[z]
    inverse, status = cube(P, A), int_matrix(P, STATUS)
    steep = False
    for i in range(status[z, SIZE]):
        if inverse[z, i, i] * floor[members[z, i]] * STEEP > 1.0:
            steep = True
    status[z, CANNOT_TELL] = steep
    for j in range(P[N_COLUMNS]):
        d = table[z, TOLERANCE, j]
        if steep or floor[j] < STEEP * d <= STEEP * STEEP * floor[j]:
            table[z, OUTCOME, j] = -np.inf
        else:
            table[z, OUTCOME, j] = f - max(table[z, MOMENT, j], 0.0) / d if d > floor[j] else np.inf
    for i in range(status[z, SIZE]):
        table[z, OUTCOME, members[z, i]] = -np.inf if steep else f + member_loss(P, z, i)


@compiled(fast=True)
def rebuild(P: Ints, z: int, columns: Ints, s: int) -> bool:
    """Make slot z the subset columns[:s], O(n s^2); False where a column depends on those before it."""
    clear(P, z)
    for i in range(s):
        if not insert(P, z, columns[i]):
            return False
    int_matrix(P, STATUS)[z, DEPTH] = 0
    return True

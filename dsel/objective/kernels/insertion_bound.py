"""A lower bound on f after inserting several columns, from K alone: most offspring need no more to be refused.

The exact value reads M and G beside K and A, half of what it fetches from memory and two thirds of its arithmetic.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Ints
from dsel.objective.kernels.elimination import entry
from dsel.objective.kernels.layout import (
    A_J,
    CANNOT_TELL,
    FLOOR,
    K_J,
    MOMENT,
    MOST_FLIPS,
    POSITION,
    SIZE,
    SMALL,
    STATUS,
    TOLERANCE,
    A,
    D,
    F,
    K,
    S,
    V,
    cube,
    int_matrix,
    matrix,
    row,
    vector,
)
from dsel.objective.kernels.neighbour_table import STEEP


@compiled(fast=True)
def bound_after_insertions(P: Ints, z: int, flips: Ints, n_flips: int) -> float:
    """A lower bound on f of slot z's subset with the columns flips[:n_flips] inserted; -inf where it says nothing (a
    member among them, a STEEP column, more than MOST_FLIPS). K whole. O(s^2) a column but the last.

    With the residual Gram D = E (I + O) E, E^2 its diagonal, and M their residual cross-moments, they gain
    tr(D^-1 M) <= sum_x (m_x / d_x) / (1 - max_x sum_b |O_xb|), by Gershgorin's bound on the least eigenvalue of I + O.
    """
    status, position, table, floor = int_matrix(P, STATUS), int_matrix(P, POSITION), cube(P, D), vector(P, FLOOR)
    members, vectors, inverse, off = int_matrix(P, S), matrix(P, V), cube(P, A), cube(P, SMALL)[0]
    if n_flips > MOST_FLIPS or status[z, CANNOT_TELL]:
        return -np.inf
    gain = 0.0
    for x in range(n_flips):
        j = flips[x]
        d = table[z, TOLERANCE, j]
        if position[z, j] >= 0 or d <= STEEP * floor[j]:
            return -np.inf
        gain += max(table[z, MOMENT, j], 0.0) / d
    s = status[z, SIZE]
    for x in range(n_flips):
        own = row(P, K, flips[x])
        for i in range(s):
            vectors[K_J + x, i] = own[members[z, i]]
        if x == n_flips - 1:
            break
        for i in range(s):
            a_i = 0.0
            for l in range(s):
                a_i += inverse[z, i, l] * vectors[K_J + x, l]
            vectors[A_J + x, i] = a_i
    most = 0.0
    for x in range(n_flips):
        for b in range(x):
            d = entry(P, K, flips[x], flips[b])
            for i in range(s):
                d -= vectors[K_J + x, i] * vectors[A_J + b, i]
            off[x, b] = abs(d) / np.sqrt(table[z, TOLERANCE, flips[x]] * table[z, TOLERANCE, flips[b]])
            off[b, x] = off[x, b]
    for x in range(n_flips):
        total = 0.0
        for b in range(n_flips):
            if b != x:
                total += off[x, b]
        most = max(most, total)
    return vector(P, F)[z] - gain / (1.0 - most) if most < 1.0 else -np.inf

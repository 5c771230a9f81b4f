"""A lower bound on f after inserting several columns, from K alone. It is enough to refuse most offspring.

The exact value also reads M and G, which are half of its memory traffic and two thirds of its arithmetic.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, matrix, row, vector
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import entry
from dsel.objective.kernels.layout import SubsetTables
from dsel.objective.kernels.neighbour_table import INEXACT_RATIO


@compiled("f8(i8[::1], i8, i8[::1], i8)", fast=True)
def bound_after_insertions(P: SubsetTables, z: Int, flips: Ints, n_flips: Int) -> float:
    """Return a lower bound on f of slot z's subset with the columns flips[:n_flips] inserted.

    -inf if there is no bound: a column is a member, the table is inexact for it, or there are more than MOST_FLIPS. All
    of K must be in memory. O(s^2) for each column but the last.

    With the residual Gram matrix D = E (I + O) E, E^2 its diagonal, and the residual cross-moments M, the gain is
    tr(D^-1 M) <= sum_x (m_x / d_x) / (1 - max_x sum_b |O_xb|), by Gershgorin's bound on the least eigenvalue of I + O.
    """
    status = int_matrix(P, layout.STATUS)
    position = int_matrix(P, layout.POSITION)
    table = cube(P, layout.NEIGHBOURS)
    floor = vector(P, layout.FLOOR)
    members = int_matrix(P, layout.S)
    vectors = matrix(P, layout.VECTORS)
    inverse = cube(P, layout.A)
    off = cube(P, layout.BLOCKS)[0]
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

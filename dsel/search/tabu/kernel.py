"""Tabu search by swaps on one subset, compiled (Glover, "Tabu search, part I", ORSA Journal on Computing 1, 1989).

The search always makes the best swap that is not forbidden, even if it raises f. A column that left may not come back
for some moves, and one that came may not leave. A swap that gives the best subset of all is always allowed.

Take p = A_ii and t = a_ij / p. Without member i, column j has the tolerance d_j + t a_ij and the moment
m_j + 2 t y_ij + t^2 G_ii, and f is larger by G_ii / p. So each of the s (n - s) swaps takes O(1), and after a swap the
tables follow in O(n s).

The arrays of the kernels are the table of one subset (slot 0), and those for its swaps.

The notation is that of `dsel.objective.kernels.neighbour_table`. With w_i row i of A B_S, or what stands for it with M,
the arrays hold a_ij = (A K_Sj)_i and y_ij = w_i . r_j for every member i and column j.
"""

from __future__ import annotations

from typing import NewType

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import Layout, cube, int_matrix, int_vector, matrix, vector
from dsel._lib.rng import stream, uniform
from dsel._lib.types import Int
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import TABLES, SubsetTables
from dsel.objective.kernels.neighbour_table import INEXACT_RATIO, delete, insert

SwapTables = NewType("SwapTables", SubsetTables)
SWAPS = Layout[SwapTables]("SwapTables", base=TABLES)

COEFFICIENTS = SWAPS.matrix("COEFFICIENTS", "(s_max, n) a_ij, in the order of the members")
PRODUCTS = SWAPS.matrix("PRODUCTS", "(s_max, n) y_ij with N = 0; (1, n) scratch with N > 0")
REMOVED = SWAPS.matrix("REMOVED", "(2, n) scratch: a and y of the member that leaves")
ALONG_MEMBERS = SWAPS.matrix("ALONG_MEMBERS", "(2, s_max) scratch: its row of A / A_ii, and of G")
NO_ENTRY = SWAPS.int_vector("NO_ENTRY", "(n,) the column may not enter before this move")
NO_EXIT = SWAPS.int_vector("NO_EXIT", "(n,) the column may not leave before this move")
BEST = SWAPS.int_vector("BEST", "(s_max,) the best members since BEST_VALUES were set")
VALUES = SWAPS.vector("VALUES", "(2,) LEAST, LEAST_SINCE_KICK")
#: LEAST: the least f so far. LEAST_SINCE_KICK: the least f since the last kick.
LEAST, LEAST_SINCE_KICK = range(2)
COUNT = SWAPS.int_vector("COUNT", "(4,) MOVE, LAST_GAIN, SEED, IMPROVED")
#: MOVE: moves so far. LAST_GAIN: the last move that lowered LEAST_SINCE_KICK. IMPROVED: the last that lowered LEAST.
MOVE, LAST_GAIN, SEED, IMPROVED = range(4)

#: Why the kernel returned. STALLED: no gain for `PATIENCE` moves, or no swap is allowed. INEXACT: a column was refused.
DONE, STALLED, INEXACT = range(3)


#: A gain is at least this share of ||Y||^2.
MIN_GAIN = 1e-11
#: Moves without a gain until the search starts again from a changed subset.
PATIENCE = 200
#: The least number of moves for which a column may not come back, and how many more there are at most.
LEAST_TENURE, MORE_TENURE = 3, 10


@compiled("void(i8[::1], i8)", fast=True)
def products_of_member(P: SwapTables, i: Int) -> None:
    """Write y_ij of member i and all columns j to PRODUCTS[0], for targets that are kept one by one."""
    table, inner, products = cube(P, layout.NEIGHBOURS), cube(P, layout.G), matrix(P, PRODUCTS)
    for j in range(P[layout.N_COLUMNS]):
        products[0, j] = inner[0, i, 0] * table[0, layout.RESIDUAL, j]
    for target in range(1, P[layout.N_TARGETS]):
        for j in range(P[layout.N_COLUMNS]):
            products[0, j] += inner[0, i, target] * table[0, layout.RESIDUAL + target, j]


@compiled("f8(i8[::1], i8)", fast=True)
def square_of_member(P: SwapTables, i: Int) -> float:
    """Return G_ii = |w_i|^2."""
    inner = cube(P, layout.G)
    if P[layout.N_TARGETS] == 0:
        return float(inner[0, i, i])
    square = 0.0
    for target in range(P[layout.N_TARGETS]):
        square += inner[0, i, target] * inner[0, i, target]
    return square


@compiled("Tuple((i8, i8, f8))(i8[::1], f8)")
def best_swap(P: SwapTables, needed: float) -> tuple[Int, Int, float]:
    """Return the position of the member, the column and the gain of the best swap; -1, -1 where none is allowed.

    A forbidden swap is allowed if it gains more than `needed`.
    """
    table, inverse = cube(P, layout.NEIGHBOURS), cube(P, layout.A)
    position, members, floor = int_matrix(P, layout.POSITION), int_matrix(P, layout.S), vector(P, layout.FLOOR)
    coefficients, products = matrix(P, COEFFICIENTS), matrix(P, PRODUCTS)
    no_entry, no_exit = int_vector(P, NO_ENTRY), int_vector(P, NO_EXIT)
    move = int_vector(P, COUNT)[MOVE]
    best_i, best_j = np.int64(-1), np.int64(-1)
    most = -np.inf
    for i in range(int_matrix(P, layout.STATUS)[0, layout.SIZE]):
        y = i
        if P[layout.N_TARGETS] > 0:
            products_of_member(P, i)
            y = 0
        p = inverse[0, i, i]
        square = square_of_member(P, i)
        loss = square / p
        least = most + loss
        stays = no_exit[members[0, i]] > move
        for j in range(P[layout.N_COLUMNS]):
            a = coefficients[i, j]
            t = a / p
            d = table[0, layout.TOLERANCE, j] + t * a
            m = table[0, layout.MOMENT, j] + t * (2.0 * products[y, j] + t * square)
            if m <= least * d or position[0, j] >= 0 or d <= INEXACT_RATIO * floor[j]:
                continue
            gain = m / d - loss
            if gain > most and (gain > needed or not (stays or no_entry[j] > move)):
                best_i, best_j, most = np.int64(i), np.int64(j), gain
                least = most + loss
    return best_i, best_j, most


@compiled("b1(i8[::1], i8, i8)", fast=True)
def swap(P: SwapTables, i: Int, j: Int) -> bool:
    """Replace the member at position i by column j; return False where j would make the subset dependent.

    The subset is then the old one, and COEFFICIENTS and PRODUCTS are no longer valid.
    """
    inverse, inner, vectors = cube(P, layout.A), cube(P, layout.G), matrix(P, layout.VECTORS)
    coefficients, products, removed = matrix(P, COEFFICIENTS), matrix(P, PRODUCTS), matrix(P, REMOVED)
    along, held, table = matrix(P, layout.ALONG), matrix(P, ALONG_MEMBERS), cube(P, layout.NEIGHBOURS)
    n, moments = P[layout.N_COLUMNS], P[layout.N_TARGETS] == 0
    s = int_matrix(P, layout.STATUS)[0, layout.SIZE]
    old, last = int_matrix(P, layout.S)[0, i], s - 1
    p = inverse[0, i, i]
    square = square_of_member(P, i)
    for l in range(s):
        held[0, l] = inverse[0, i, l] / p
        if moments:
            held[1, l] = inner[0, i, l]
    for c in range(n):
        removed[0, c] = coefficients[i, c]
        if moments:
            removed[1, c] = products[i, c]
    delete(P, np.int64(0), old)
    held[0, i], held[1, i] = held[0, last], held[1, last]  # the last member takes the free place
    for c in range(n):
        coefficients[i, c] = coefficients[last, c]
        if moments:
            products[i, c] = products[last, c]
    d, m = table[0, layout.TOLERANCE, j], table[0, layout.MOMENT, j]
    if not insert(P, np.int64(0), j):
        insert(P, np.int64(0), old)
        return False
    for l in range(last):
        x = held[0, l]
        a = vectors[layout.A_J, l] / d
        for c in range(n):
            coefficients[l, c] -= x * removed[0, c] + a * along[0, c]
        if moments:
            y = vectors[layout.Y_J, l] / d
            g = (held[1, l] - x * square) / p
            h = a * m / d
            for c in range(n):
                products[l, c] += g * removed[0, c] - x * removed[1, c] - a * along[1, c] + (h - y) * along[0, c]
    for c in range(n):
        coefficients[last, c] = along[0, c] / d
        if moments:
            products[last, c] = (along[1, c] - along[0, c] * (m / d)) / d
    return True


@compiled("i8(i8[::1], i8)")
def run_moves(P: SwapTables, until: Int) -> int:
    """Make moves until move `until`; return DONE, STALLED or INEXACT. The best subset is kept in BEST."""
    count, values = int_vector(P, COUNT), vector(P, VALUES)
    members, best, f = int_matrix(P, layout.S), int_vector(P, BEST), vector(P, layout.F)
    no_entry, no_exit = int_vector(P, NO_ENTRY), int_vector(P, NO_EXIT)
    least_gain = MIN_GAIN * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    while count[MOVE] < until:
        move = count[MOVE]
        if move - count[LAST_GAIN] >= PATIENCE:
            return STALLED
        i, j, _ = best_swap(P, f[0] - values[LEAST] + least_gain)
        if i < 0:
            return STALLED
        old = members[0, i]
        count[MOVE] = move + 1
        if not swap(P, i, j):
            no_entry[j] = move + 1 + PATIENCE
            return INEXACT
        state = stream(count[SEED], move, np.int64(0))
        tenure = LEAST_TENURE + np.int64(MORE_TENURE * uniform(state, np.int64(0)))
        no_entry[old] = move + 1 + tenure
        no_exit[j] = move + 2 + tenure // 2
        if f[0] < values[LEAST_SINCE_KICK] - least_gain:
            values[LEAST_SINCE_KICK] = f[0]
            count[LAST_GAIN] = move + 1
        if f[0] < values[LEAST] - least_gain:
            values[LEAST] = f[0]
            count[IMPROVED] = move + 1
            for x in range(int_matrix(P, layout.STATUS)[0, layout.SIZE]):
                best[x] = members[0, x]
    return DONE

"""Exchange search on one slot, compiled: replace each member by the best other column until nothing improves.

The sweep is that of IterFS (Ordozgoiti et al., ICDM 2016), dsel.search.greedy.exchange; here it starts from an
archived subset
that has been disturbed, as iterated local search does (Lourenco, Martin, Stutzle, 2003).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import uniform
from dsel._lib.types import Ints
from dsel.objective.kernels.layout import (
    ERROR_OF_EMPTY,
    FLOOR,
    MOMENT,
    N_COLUMNS,
    POSITION,
    SCALARS,
    SIZE,
    SORTED,
    STATUS,
    TOLERANCE,
    D,
    F,
    S,
    cube,
    int_matrix,
    vector,
)
from dsel.objective.kernels.neighbour_table import clear, delete, insert

#: An exchange that improves f by less than this share of ||Y||^2 is none.
LEAST = 1e-9
#: Sweeps at most; a handful is usual.
MOST_SWEEPS = 30


@compiled()
def disturbed(P: Ints, source: int, z: int, size: int, share: float, state: int) -> None:
    """Fill slot z with `size` columns: those of slot `source`, each but for a chance `share`, and random others."""
    members, position, status = int_matrix(P, SORTED), int_matrix(P, POSITION), int_matrix(P, STATUS)
    clear(P, z)
    draw = np.int64(0)
    for i in range(status[source, SIZE]):
        if uniform(state, draw) >= share and status[z, SIZE] < size:
            insert(P, z, members[source, i])
        draw += 1
    for _ in range(20 * size):
        if status[z, SIZE] == size:
            return
        j = np.int64(uniform(state, draw) * P[N_COLUMNS])
        draw += 1
        if position[z, j] < 0:
            insert(P, z, j)


@compiled()
def _best_insertion(P: Ints, z: int) -> int:
    """The column that gains most beside slot z's subset; -1 where none is independent of it."""
    table, position, floor = cube(P, D), int_matrix(P, POSITION), vector(P, FLOOR)
    best = -1
    most = -1.0
    for j in range(P[N_COLUMNS]):
        d = table[z, TOLERANCE, j]
        if position[z, j] < 0 and d > floor[j] and table[z, MOMENT, j] > most * d:
            most = table[z, MOMENT, j] / d
            best = j
    return best


@compiled()
def climb(P: Ints, z: int, columns: Ints) -> None:
    """Sweep slot z to a local optimum under exchanges of one column. O(n s^2) a sweep; `columns` is scratch."""
    members, status, f = int_matrix(P, S), int_matrix(P, STATUS), vector(P, F)
    least = LEAST * vector(P, SCALARS)[ERROR_OF_EMPTY]
    for _ in range(MOST_SWEEPS):
        s = status[z, SIZE]
        for i in range(s):
            columns[i] = members[z, i]
        exchanged = False
        for i in range(s):
            before = f[z]
            delete(P, z, columns[i])
            j = _best_insertion(P, z)
            gain = cube(P, D)[z, MOMENT, j] / cube(P, D)[z, TOLERANCE, j] if j >= 0 else 0.0
            if j >= 0 and f[z] - gain < before - least:
                insert(P, z, j)
                exchanged = True
            else:
                insert(P, z, columns[i])
        if not exchanged:
            return
        # Afresh after every sweep, so that rounding cannot pile up.
        s = status[z, SIZE]
        for i in range(s):
            columns[i] = members[z, i]
        clear(P, z)
        for i in range(s):
            insert(P, z, columns[i])

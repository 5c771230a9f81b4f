"""Exchange search on one slot, compiled: replace each member by the best other column until nothing improves.

The sweep is that of IterFS (Ordozgoiti et al., ICDM 2016), see dsel.search.greedy.exchange. Here it starts from a
perturbed archived subset, as in iterated local search (Lourenco, Martin, Stutzle, 2003).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, vector
from dsel._lib.rng import uniform
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables
from dsel.objective.kernels.neighbour_table import clear, delete, insert

#: An exchange must improve f by at least this share of ||Y||^2.
MIN_GAIN = 1e-9
#: Largest number of sweeps; about five are usual.
MAX_SWEEPS = 30


@compiled("void(i8[::1], i8, i8, i8, f8, u8)")
def perturb(P: SubsetTables, source: Int, z: Int, size: Int, share: float, state: Int) -> None:
    """Fill slot z with `size` columns: each of slot `source` with probability 1 - share, and random others."""
    members = int_matrix(P, layout.SORTED)
    position = int_matrix(P, layout.POSITION)
    status = int_matrix(P, layout.STATUS)
    clear(P, z)
    draw = np.int64(0)
    for i in range(status[source, layout.SIZE]):
        if uniform(state, draw) >= share and status[z, layout.SIZE] < size:
            insert(P, z, members[source, i])
        draw += 1
    for _ in range(20 * size):
        if status[z, layout.SIZE] == size:
            return
        j = np.int64(uniform(state, draw) * P[layout.N_COLUMNS])
        draw += 1
        if position[z, j] < 0:
            insert(P, z, j)


@compiled("i8(i8[::1], i8)", inner=True)
def _best_insertion(P: SubsetTables, z: Int) -> int:
    """Return the column whose insertion into slot z gains most; -1 where none is independent of its subset."""
    table, position, floor = cube(P, layout.NEIGHBOURS), int_matrix(P, layout.POSITION), vector(P, layout.FLOOR)
    best = -1
    most = -1.0
    for j in range(P[layout.N_COLUMNS]):
        d = table[z, layout.TOLERANCE, j]
        if position[z, j] < 0 and d > floor[j] and table[z, layout.MOMENT, j] > most * d:
            most = table[z, layout.MOMENT, j] / d
            best = j
    return best


@compiled("void(i8[::1], i8, i8[::1])")
def local_search(P: SubsetTables, z: Int, columns: Ints) -> None:
    """Change slot z to a local optimum under exchanges of one column. O(n s^2) per sweep; `columns` is scratch."""
    members, status, f = int_matrix(P, layout.S), int_matrix(P, layout.STATUS), vector(P, layout.F)
    least = MIN_GAIN * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    for _ in range(MAX_SWEEPS):
        s = status[z, layout.SIZE]
        for i in range(s):
            columns[i] = members[z, i]
        exchanged = False
        for i in range(s):
            before = f[z]
            delete(P, z, columns[i])
            j = _best_insertion(P, z)
            gain = (
                cube(P, layout.NEIGHBOURS)[z, layout.MOMENT, j] / cube(P, layout.NEIGHBOURS)[z, layout.TOLERANCE, j]
                if j >= 0
                else 0.0
            )
            if j >= 0 and f[z] - gain < before - least and insert(P, z, j):
                exchanged = True
            else:
                insert(P, z, columns[i])
        if not exchanged:
            return
        # Rebuild after every sweep, so that rounding errors do not accumulate.
        s = status[z, layout.SIZE]
        for i in range(s):
            columns[i] = members[z, i]
        clear(P, z)
        for i in range(s):
            insert(P, z, columns[i])

"""What the next rounds of POSS will ask for, where rows of the Gram matrix come from passes over the data."""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, int_vector, matrix, vector
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import entry
from dsel.objective.kernels.multi_flip import value_after_flips
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto.archive_layout import ArchiveTables
from dsel.search.pareto.kernel import BAND, class_after_flips, flipped_size, list_parents


@compiled("UniTuple(i8, 2)(i8[::1], i8, i8, i8[::1], i8[::1])", allocates=True)
def look_ahead(P: ArchiveTables, until: Int, processors: Int, pairs: Ints, wanted: Ints) -> tuple[int, int]:
    """Find the inputs that the next rounds would ask for, if the archive's subsets stayed the same until `until`.

    A round has `processors` offspring; with 1 rounds are the iterations of POSS. pairs (capacity,): gets j n + l of
    unknown entries of K that a bound cannot replace. wanted (capacity,): gets columns without rows that would be
    inserted by flips of known outcome. An array of size 0 is not filled. Return how many were found of each; the
    search ends sooner if an array is full.
    """
    count = int_vector(P, archive.COUNT)
    best = matrix(P, archive.BEST)
    flips = int_vector(P, archive.FLIPS)
    status, position, table = int_matrix(P, layout.STATUS), int_matrix(P, layout.POSITION), cube(P, layout.NEIGHBOURS)
    rules = int_vector(P, archive.RULES)
    cdf = vector(P, archive.CDF)
    n = P[layout.N_COLUMNS]
    addresses = int_vector(P, layout.K)
    sizes = int_matrix(P, archive.SLOT).shape[1]
    band = BAND * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    undo = np.empty((wanted.shape[0], 3))
    undone = 0
    found = 0
    columns = 0
    t = count[archive.ITERATION]
    parents, number = int_vector(P, archive.PARENTS), list_parents(P)
    full = False
    while t < until and not full:
        state = stream(rules[archive.SEED], t, np.int64(0))
        parent = parents[np.int64(uniform(state, np.int64(0)) * number)]
        for slot in range(processors):
            full = pairs.shape[0] > 0 and found + layout.MOST_FLIPS * layout.MOST_FLIPS > pairs.shape[0]
            full = full or (wanted.shape[0] > 0 and columns + layout.MOST_FLIPS > wanted.shape[0])
            if full:
                break
            n_flips = draw_flips(stream(rules[archive.SEED], t, np.int64(slot)), np.int64(1), n, cdf, flips)
            size = flipped_size(status, position, parent, flips, n_flips)
            if n_flips == 0 or n_flips > layout.MOST_FLIPS or size <= 0 or size >= sizes:
                continue
            cls = class_after_flips(P, parent, n_flips)
            guessed = np.int64(0)
            if n_flips == 1:
                value = table[parent, layout.OUTCOME, flips[0]]
            else:
                value = value_after_flips(P, parent, flips, n_flips)
                guessed = P[layout.GUESSED]
            if value > best[cls, size] + band:
                continue
            if guessed:
                for x in range(n_flips if pairs.shape[0] > 0 else 0):
                    for b in range(x):
                        j = min(flips[x], flips[b])
                        l = max(flips[x], flips[b])
                        if position[parent, j] < 0 and position[parent, l] < 0 and np.isnan(entry(P, layout.K, j, l)):
                            pairs[found] = j * n + l
                            found += 1
            elif wanted.shape[0] > 0:
                before = columns
                for x in range(n_flips):
                    if position[parent, flips[x]] < 0 and addresses[flips[x]] == 0:
                        wanted[columns] = flips[x]
                        columns += 1
                if columns > before and value > -np.inf:
                    undo[undone, 0], undo[undone, 1], undo[undone, 2] = cls, size, best[cls, size]
                    undone += 1
                    best[cls, size] = min(best[cls, size], value)
        t += 1
    for x in range(undone - 1, -1, -1):
        best[np.int64(undo[x, 0]), np.int64(undo[x, 1])] = undo[x, 2]
    return found, columns

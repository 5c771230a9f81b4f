"""The rounds of PPOSS (Qian et al., IJCAI 2016, Algorithm 2) on an objective, compiled.

An offspring costs about a microsecond here, a message to a worker a thousand times that. So the rounds run in one
process, and the N processors of the paper are the N offspring of a round.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_matrix, int_vector, matrix, vector
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Bool, Int, Ints
from dsel.objective.kernels import layout
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto.archive_layout import ArchiveTables
from dsel.search.pareto.kernel import (
    BAND,
    class_after_flips,
    exchange_search,
    flipped_size,
    list_parents,
    missing_inputs,
    offspring_value,
    try_insert,
    write_candidate,
)


@compiled("void(i8[::1], i8, i8, i8[::1])", inner=True)
def _keep_survivor(P: ArchiveTables, parent: Int, n_flips: Int, survivor: Ints) -> None:
    """Write the offspring of the flips in FLIPS to its row of `survivors`, see `run_rounds`."""
    flips, candidate = int_vector(P, archive.FLIPS), int_vector(P, archive.CANDIDATE)
    sizes = int_matrix(P, archive.SLOT).shape[1]
    size = write_candidate(P, parent, n_flips)
    survivor[0], survivor[1] = n_flips, size
    for x in range(size):
        survivor[2 + x] = candidate[x]
    for x in range(n_flips):
        survivor[2 + sizes + x] = flips[x]


@compiled("i8(i8[::1], i8, i8, i8[:, ::1])", nogil=True)
def run_rounds(P: ArchiveTables, until: Int, processors: Int, survivors: Ints) -> int:
    """Continue to round `until`, until the target is reached, the archive is full or inputs are missing.

    A round whose inputs are missing (ROWS_NEEDED, PAIRS_NEEDED) starts again in the next call.
    survivors: (processors, 2 + sizes + flips) scratch: for each offspring that the archive before the round does not
    refuse, the number of flips, its size, its columns, and the flips.
    """
    count = int_vector(P, archive.COUNT)
    best = matrix(P, archive.BEST)
    flips = int_vector(P, archive.FLIPS)
    status, position, trace = int_matrix(P, layout.STATUS), int_matrix(P, layout.POSITION), matrix(P, archive.TRACE)
    rules = int_vector(P, archive.RULES)
    stop_at = vector(P, archive.STOP_AT)[0]
    cdf = vector(P, archive.CDF)
    n = P[layout.N_COLUMNS]
    slots = int_matrix(P, archive.SLOT)
    seed, every = rules[archive.SEED], rules[archive.EXCHANGE_EVERY]
    band = BAND * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    most = int_vector(P, archive.FREE).shape[0]
    parents, number, listed_at = int_vector(P, archive.PARENTS), list_parents(P), count[archive.ACCEPTED]
    while count[archive.ITERATION] < until:
        if count[archive.TRACED] + 2 * processors > trace.shape[0]:
            return archive.FULL
        if rules[archive.MIN_INDEX] and count[archive.MEMBERS] + 2 * processors + 2 > most:
            return archive.FULL
        t = count[archive.ITERATION]
        if count[archive.ACCEPTED] > listed_at:
            number, listed_at = list_parents(P), count[archive.ACCEPTED]
        parent = parents[np.int64(uniform(stream(seed, t, np.int64(0)), np.int64(0)) * number)]
        parent_size, parent_class = status[parent, layout.SIZE], status[parent, layout.CLASS]
        looked_up, valued = count[archive.LOOKED_UP], count[archive.VALUED]
        found = 0
        for slot in range(processors):
            n_flips = draw_flips(stream(seed, t, np.int64(slot)), np.int64(1), n, cdf, flips)
            size = flipped_size(status, position, parent, flips, n_flips)
            if n_flips == 0 or not 0 < size < slots.shape[1]:
                continue
            cls = class_after_flips(P, parent, n_flips)
            value = offspring_value(P, parent, n_flips, best[cls, size] + band)
            if value > best[cls, size] + band:
                continue
            if P[layout.ON_DEMAND]:
                needed = missing_inputs(P, parent, n_flips, best[cls, size] + band)
                if needed in (archive.PAIRS_NEEDED, archive.ROWS_NEEDED):
                    count[archive.LOOKED_UP], count[archive.VALUED] = looked_up, valued
                    return needed
                if needed == archive.REFUSED:
                    continue
            _keep_survivor(P, parent, n_flips, survivors[found])
            found += 1
        traced = count[archive.TRACED]
        archived = np.bool_(True)
        for i in range(found):
            _insert_survivor(P, parent, archived, survivors[i])
            # Once the parent is removed, another subset may take its slot.
            archived = archived and slots[parent_class, parent_size] == parent
        if every > 0:  # one search for each multiple of `every` among the offspring of the round
            due = ((t + 1) * processors + every - 1) // every - (t * processors + every - 1) // every
            for i in range(due):
                exchange_search(P, t, processors + 2 * i)
        count[archive.ITERATION] = t + 1
        if count[archive.TRACED] > traced and trace[count[archive.TRACED] - 1, 2] <= stop_at:
            return archive.TARGET_REACHED
    return archive.DONE


@compiled("void(i8[::1], i8, b1, i8[::1])")
def _insert_survivor(P: ArchiveTables, parent: Int, archived: Bool, survivor: Ints) -> None:
    """Offer a survivor to the archive: from its parent's table, or the empty set's if the parent was removed."""
    flips, sizes = int_vector(P, archive.FLIPS), int_matrix(P, archive.SLOT).shape[1]
    if archived:
        for x in range(survivor[0]):
            flips[x] = survivor[2 + sizes + x]
        try_insert(P, parent, survivor[0])
        return
    for x in range(survivor[1]):
        flips[x] = survivor[2 + x]
    try_insert(P, int_vector(P, archive.ORDER)[0], survivor[1])

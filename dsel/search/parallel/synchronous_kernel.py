"""The rounds of PPOSS (Qian et al., IJCAI 2016, Algorithm 2) on a quadratic objective, compiled.

An offspring costs about a microsecond here, a message to a worker a thousand times that: on a cheap objective the
rounds stay in one process, and only their look-ups stand for the N processors.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Ints
from dsel.objective.kernels.layout import (
    CLASS,
    ERROR_OF_EMPTY,
    N_COLUMNS,
    ON_DEMAND,
    POSITION,
    SCALARS,
    SIZE,
    STATUS,
    int_matrix,
    int_vector,
    matrix,
    vector,
)
from dsel.search.pareto.kernel import (
    BAND,
    BEST,
    CANDIDATE,
    CDF,
    COUNT,
    DONE,
    FLIPS,
    FREE,
    FULL,
    ITERATION,
    LIMIT,
    LOOKED_UP,
    MEMBERS,
    MIN_INDEX,
    ORDER,
    PAIRS_NEEDED,
    RATES,
    REFUSED,
    ROWS_NEEDED,
    RULES,
    SEED,
    SLOT,
    TARGET,
    TARGET_REACHED,
    TRACE,
    TRACED,
    VALUED,
    _write_candidate,
    consider,
    needs,
    value_of,
)


@compiled()
def run_rounds(P: Ints, until: int, processors: int, survivors: Ints) -> int:
    """Go on to round `until`, or until the target is reached, or the trace or the archive is full; where rows come on
    demand, until a round lacks some (ROWS_NEEDED, PAIRS_NEEDED), which begins again when they are there.

    survivors: (processors, 2 + 2k + flips) scratch: of each offspring that the old archive does not rule out its number
    of flips, its size, its columns, and the flips.
    """
    count, order, best, flips = int_vector(P, COUNT), int_vector(P, ORDER), matrix(P, BEST), int_vector(P, FLIPS)
    status, position, trace = int_matrix(P, STATUS), int_matrix(P, POSITION), matrix(P, TRACE)
    rules, rates, cdf, n = int_vector(P, RULES), vector(P, RATES), vector(P, CDF), P[N_COLUMNS]
    slots, candidate = int_matrix(P, SLOT), int_vector(P, CANDIDATE)
    k, seed = rules[LIMIT], rules[SEED]
    band = BAND * vector(P, SCALARS)[ERROR_OF_EMPTY]
    most = int_vector(P, FREE).shape[0]
    members_at, flips_at = 2, 2 + 2 * k
    while count[ITERATION] < until:
        if count[TRACED] + processors > trace.shape[0]:
            return FULL
        if rules[MIN_INDEX] and count[MEMBERS] + processors + 2 > most:
            return FULL
        t = count[ITERATION]
        parent = order[np.int64(uniform(stream(seed, t, np.int64(0)), np.int64(0)) * count[MEMBERS])]
        parent_size, parent_class = status[parent, SIZE], status[parent, CLASS]
        looked_up, valued = count[LOOKED_UP], count[VALUED]
        found = 0
        for slot in range(processors):
            n_flips = draw_flips(stream(seed, t, np.int64(slot)), np.int64(1), n, cdf, flips)
            size = parent_size
            for x in range(n_flips):
                size += 1 if position[parent, flips[x]] < 0 else -1
            if n_flips == 0 or not 0 < size < 2 * k:
                continue
            cls = 0
            if rules[MIN_INDEX]:
                _write_candidate(P, parent, n_flips)
                cls = candidate[0]
            value = value_of(P, parent, n_flips, best[cls, size] + band)
            if value > best[cls, size] + band:
                continue
            if P[ON_DEMAND]:
                needed = needs(P, parent, n_flips, best[cls, size] + band)
                if needed in (PAIRS_NEEDED, ROWS_NEEDED):
                    count[LOOKED_UP], count[VALUED] = looked_up, valued
                    return needed
                if needed == REFUSED:
                    continue
            _write_candidate(P, parent, n_flips)
            survivors[found, 0], survivors[found, 1] = n_flips, size
            for x in range(size):
                survivors[found, members_at + x] = candidate[x]
            for x in range(n_flips):
                survivors[found, flips_at + x] = flips[x]
            found += 1
        traced = count[TRACED]
        there = np.bool_(True)
        for i in range(found):
            _consider_survivor(P, parent, there, survivors[i])
            # Once it has left, its slot may go to another subset.
            there = there and slots[parent_class, parent_size] == parent
        count[ITERATION] = t + 1
        if count[TRACED] > traced and trace[count[TRACED] - 1, 2] <= rates[TARGET]:
            return TARGET_REACHED
    return DONE


@compiled()
def _consider_survivor(P: Ints, parent: int, there: bool, survivor: Ints) -> None:
    """Put it before the archive; from the parent's table, or from the empty set's where the parent has left."""
    flips, k = int_vector(P, FLIPS), int_vector(P, RULES)[LIMIT]
    if there:
        for x in range(survivor[0]):
            flips[x] = survivor[2 + 2 * k + x]
        consider(P, parent, survivor[0])
        return
    for x in range(survivor[1]):
        flips[x] = survivor[2 + x]
    consider(P, int_vector(P, ORDER)[0], survivor[1])

"""The loop of POSS (Qian, Yu, Zhou 2015, Algorithm 2) on a quadratic objective, compiled.

An offspring is first valued from its parent's table of neighbours (nothing for no flip, a look-up for one, O(s^2) for
several). Only one that is not clearly worse than the archive is evaluated by itself (`evaluate`, the same bits
whatever led to the subset), and that figure decides by the paper's rule. So the archive at every step is the one
the literal algorithm has, given the same flips.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Ints
from dsel.objective.kernels.elimination import entry, evaluate
from dsel.objective.kernels.insertion_bound import bound_after_insertions
from dsel.objective.kernels.layout import (
    CLASS,
    DEPTH,
    ERROR_OF_EMPTY,
    FIRST_FREE,
    GUESSED,
    MOST_FLIPS,
    N_COLUMNS,
    N_TARGETS,
    ON_DEMAND,
    OUTCOME,
    POSITION,
    SCALARS,
    SIZE,
    SORTED,
    STATUS,
    D,
    F,
    K,
    S,
    cube,
    int_matrix,
    int_vector,
    matrix,
    vector,
)
from dsel.objective.kernels.multi_flip import value_after_flips
from dsel.objective.kernels.neighbour_table import copy, delete, fill_outcome, insert, rebuild
from dsel.search.pareto.local_search import climb, disturbed

#: Figures from the tables may be off by this share of c; what is nearer than that to the archive is evaluated.
BAND = 1e-9
#: After so many flips a table is built afresh, so that rounding cannot pile up: it is far below the band by then, and
#: building one of s columns costs as much as s / 2 flips.
REBUILD_AFTER = 96

# Places of the archive's arrays in P. An archive holds solutions that do not dominate each other, at most one for
# every (isolation class, size).
ORDER = FIRST_FREE  # (slots,) slots in use, oldest first; COUNT[MEMBERS] of them
FREE = ORDER + 4  # (slots,) a stack of the slots not in use
SLOT = FREE + 4  # (classes, 2k) slot of that class and size, -1 if none
BEST = SLOT + 4  # (classes, 2k) least f in that class up to that size, the empty set apart
TRACE = BEST + 4  # (rows, 3) iteration, size, f at every improvement of the best f with size <= k
COUNT = TRACE + 4  # (COUNTERS,)
CDF = COUNT + 4  # of the number of flips
FLIPS = CDF + 4  # (max(n, 4k),) scratch: columns to flip
CANDIDATE = FLIPS + 4  # (4k + 1,) scratch: a subset in ascending order; last, where it is asked for, its size
RULES = CANDIDATE + 4  # (5,)
RATES = RULES + 4  # (1,)

(ITERATION, MEMBERS, TRACED, LOOKED_UP, VALUED, EVALUATED, ACCEPTED, REBUILT, LAST_GAIN) = range(9)
COUNTERS = 9

# RULES: k; 1 where only subsets with the same least index compete; the seed; iterations between exchanges (0: never).
LIMIT, MIN_INDEX, SEED, EXCHANGE_EVERY = range(4)
# RATES: stop when f of some subset of size <= k is at or below TARGET.
TARGET = 0

#: Why `run` came back. Where rows come on demand: the rows of the columns in CANDIDATE are not all there, or entries of
#: the columns flipped are not known; the iteration starts again when they are.
DONE, TARGET_REACHED, FULL, ROWS_NEEDED, PAIRS_NEEDED, REFUSED = range(6)


@compiled()
def _write_candidate(P: Ints, parent: int, n_flips: int) -> int:
    """The parent's members with the flips applied, ascending, into `CANDIDATE`; returns their number."""
    members, position = int_matrix(P, SORTED), int_matrix(P, POSITION)
    flips, out = int_vector(P, FLIPS), int_vector(P, CANDIDATE)
    size = 0
    for i in range(int_matrix(P, STATUS)[parent, SIZE]):
        j = members[parent, i]
        kept = True
        for x in range(n_flips):
            if flips[x] == j:
                kept = False
        if kept:
            out[size] = j
            size += 1
    for x in range(n_flips):
        j = flips[x]
        if position[parent, j] < 0:
            place = size
            while place > 0 and out[place - 1] > j:
                out[place] = out[place - 1]
                place -= 1
            out[place] = j
            size += 1
    return size


@compiled()
def _refresh_best(P: Ints, cls: int) -> None:
    slots, best, f = int_matrix(P, SLOT), matrix(P, BEST), vector(P, F)
    least = np.inf
    for size in range(1, slots.shape[1]):
        slot = slots[cls, size]
        if slot >= 0:
            least = min(least, f[slot])
        best[cls, size] = least


@compiled()
def _drop_dominated(P: Ints, cls: int, size: int, value: float) -> None:
    """Remove what a solution of this class, size and value weakly dominates."""
    slots, f, order, free, count = (
        int_matrix(P, SLOT), vector(P, F), int_vector(P, ORDER), int_vector(P, FREE), int_vector(P, COUNT),
    )  # fmt: skip
    for larger in range(size, slots.shape[1]):
        slot = slots[cls, larger]
        if slot < 0 or f[slot] < value:
            continue
        slots[cls, larger] = -1
        members = count[MEMBERS]
        place = 0
        while order[place] != slot:
            place += 1
        for i in range(place, members - 1):
            order[i] = order[i + 1]
        count[MEMBERS] = members - 1
        free[free.shape[0] - members] = slot


@compiled()
def _make_table(P: Ints, parent: int, slot: int, n_flips: int, size: int, value: float) -> bool:
    """Table of `slot` for the candidate: from its parent's by the flips, or from scratch where that has drifted."""
    position, flips = int_matrix(P, POSITION), int_vector(P, FLIPS)
    sound = n_flips <= max(1, size // 2)
    if sound:
        copy(P, parent, slot)
        for x in range(n_flips):
            if position[parent, flips[x]] >= 0:
                delete(P, slot, flips[x])
        for x in range(n_flips):
            if sound and position[parent, flips[x]] < 0:
                sound = insert(P, slot, flips[x])
    if sound and int_matrix(P, STATUS)[slot, DEPTH] <= REBUILD_AFTER:
        drift = abs(vector(P, F)[slot] - value)
        if drift <= 0.1 * BAND * vector(P, SCALARS)[ERROR_OF_EMPTY]:
            return True
    int_vector(P, COUNT)[REBUILT] += 1
    return rebuild(P, slot, int_vector(P, CANDIDATE), size)


@compiled()
def value_of(P: Ints, parent: int, n_flips: int, limit: float) -> float:
    """f of the parent with the columns in `FLIPS` flipped; a lower bound where that is above the limit."""
    flips, count = int_vector(P, FLIPS), int_vector(P, COUNT)
    if n_flips == 1:
        count[LOOKED_UP] += 1
        return cube(P, D)[parent, OUTCOME, flips[0]]
    if n_flips > MOST_FLIPS:
        return -np.inf
    count[VALUED] += 1
    if P[N_TARGETS] == 0 and not P[ON_DEMAND]:
        bound = bound_after_insertions(P, parent, flips, n_flips)
        if bound > limit:
            return bound
    return value_after_flips(P, parent, flips, n_flips)


@compiled()
def _note_improvement(P: Ints, size: int, value: float) -> None:
    best, trace, count, k = matrix(P, BEST), matrix(P, TRACE), int_vector(P, COUNT), int_vector(P, RULES)[LIMIT]
    if size > k:
        return
    for cls in range(best.shape[0]):
        if best[cls, k] <= value:
            return
    row = count[TRACED]
    trace[row, 0] = count[ITERATION]
    trace[row, 1] = size
    trace[row, 2] = value
    count[TRACED] = row + 1
    count[LAST_GAIN] = count[ITERATION]


@compiled()
def consider(P: Ints, parent: int, n_flips: int) -> bool:
    """Lines 6 to 9 of Algorithm 2 for the subset that differs from slot `parent` by `FLIPS`; True if archived.

    A subset with a dependent column is refused: without that column it has the same f and is smaller.
    """
    candidate, count, members = int_vector(P, CANDIDATE), int_vector(P, COUNT), int_matrix(P, SORTED)
    slots, f = int_matrix(P, SLOT), vector(P, F)
    size = _write_candidate(P, parent, n_flips)
    cls = candidate[0] if int_vector(P, RULES)[MIN_INDEX] else 0
    rival = slots[cls, size]
    if rival >= 0:
        same = True
        for i in range(size):
            if members[rival, i] != candidate[i]:
                same = False
                break
        if same:
            return False
    count[EVALUATED] += 1
    value, rank = evaluate(P, candidate, size)
    best = matrix(P, BEST)[cls, size]
    if rank < size or value > best or (value == best and (rival < 0 or f[rival] != value)):
        return False
    free = int_vector(P, FREE)
    place = free.shape[0] - count[MEMBERS] - 1
    slot = free[place]
    if not _make_table(P, parent, slot, n_flips, size, value):
        return False
    _note_improvement(P, size, value)
    _drop_dominated(P, cls, size, value)
    f[slot] = value
    fill_outcome(P, slot)
    for i in range(size):
        members[slot, i] = candidate[i]
    int_matrix(P, STATUS)[slot, CLASS] = cls
    free[place] = free[free.shape[0] - count[MEMBERS] - 1]
    slots[cls, size] = slot
    int_vector(P, ORDER)[count[MEMBERS]] = slot
    count[MEMBERS] += 1
    count[ACCEPTED] += 1
    _refresh_best(P, cls)
    return True


@compiled()
def take_in(P: Ints, columns: Ints, s: int) -> bool:
    """Put columns[:s], ascending and found elsewhere, before the archive, from the archived subset that differs least;
    True if archived."""
    order, status, position = int_vector(P, ORDER), int_matrix(P, STATUS), int_matrix(P, POSITION)
    members, flips = int_matrix(P, SORTED), int_vector(P, FLIPS)
    nearest = order[0]
    least = np.int64(1 << 62)
    for x in range(int_vector(P, COUNT)[MEMBERS]):
        z = order[x]
        differ = status[z, SIZE] + s
        for i in range(s):
            if position[z, columns[i]] >= 0:
                differ -= 2
        if differ < least:
            nearest, least = z, differ
    n_flips = np.int64(0)
    for i in range(s):
        if position[nearest, columns[i]] < 0:
            flips[n_flips] = columns[i]
            n_flips += 1
    for i in range(status[nearest, SIZE]):
        there = np.searchsorted(columns[:s], members[nearest, i])
        if there == s or columns[there] != members[nearest, i]:
            flips[n_flips] = members[nearest, i]
            n_flips += 1
    return consider(P, nearest, n_flips)


@compiled()
def needs(P: Ints, parent: int, n_flips: int, limit: float) -> int:
    """What has to be fetched before the subset that differs from slot `parent` by `FLIPS` can be considered: nothing
    (DONE), entries of K, or rows; or that it is no better than `limit` as far as the rows there are tell (REFUSED)."""
    if 1 < n_flips <= MOST_FLIPS and P[GUESSED]:
        return PAIRS_NEEDED
    size = _write_candidate(P, parent, n_flips)
    candidate, addresses = int_vector(P, CANDIDATE), int_vector(P, K)
    candidate[candidate.shape[0] - 1] = size
    missing = 0
    for i in range(size):
        if addresses[candidate[i]] == 0:
            missing += 1
    if missing == 0:
        return DONE
    value, rank = evaluate(P, candidate, size)
    return REFUSED if value > limit or rank < size else ROWS_NEEDED


@compiled()
def foresee(P: Ints, until: int, processors: int, pairs: Ints, wanted: Ints) -> tuple[int, int]:
    """What the rounds of `processors` offspring (1: the iterations of POSS) from the present one to `until` would ask
    for if the archive's tables stayed as they are, and its values fell as they come.

    pairs (most,): j n + l of entries that are not known and that the bound does not do without. wanted (most,): columns
    without rows that enter by flips whose outcome is known. Either may be empty, and is not asked for then. Returns
    their numbers; it ends sooner where one of them is full.
    """
    count, order, best, flips = int_vector(P, COUNT), int_vector(P, ORDER), matrix(P, BEST), int_vector(P, FLIPS)
    status, position, table = int_matrix(P, STATUS), int_matrix(P, POSITION), cube(P, D)
    rules, cdf, n, addresses = int_vector(P, RULES), vector(P, CDF), P[N_COLUMNS], int_vector(P, K)
    k = rules[LIMIT]
    band = BAND * vector(P, SCALARS)[ERROR_OF_EMPTY]
    undo = np.empty((wanted.shape[0], 3))
    undone = 0
    found = 0
    columns = 0
    t = count[ITERATION]
    full = False
    while t < until and not full:
        parent = order[np.int64(uniform(stream(rules[SEED], t, np.int64(0)), np.int64(0)) * count[MEMBERS])]
        for slot in range(processors):
            full = pairs.shape[0] > 0 and found + MOST_FLIPS * MOST_FLIPS > pairs.shape[0]
            full = full or (wanted.shape[0] > 0 and columns + MOST_FLIPS > wanted.shape[0])
            if full:
                break
            n_flips = draw_flips(stream(rules[SEED], t, np.int64(slot)), np.int64(1), n, cdf, flips)
            size = status[parent, SIZE]
            for x in range(n_flips):
                size += 1 if position[parent, flips[x]] < 0 else -1
            if n_flips == 0 or n_flips > MOST_FLIPS or size <= 0 or size >= 2 * k:
                continue
            cls = 0
            if rules[MIN_INDEX]:
                _write_candidate(P, parent, n_flips)
                cls = int_vector(P, CANDIDATE)[0]
            guessed = np.int64(0)
            if n_flips == 1:
                value = table[parent, OUTCOME, flips[0]]
            else:
                value = value_after_flips(P, parent, flips, n_flips)
                guessed = P[GUESSED]
            if value > best[cls, size] + band:
                continue
            if guessed:
                for x in range(n_flips if pairs.shape[0] > 0 else 0):
                    for b in range(x):
                        j = min(flips[x], flips[b])
                        l = max(flips[x], flips[b])
                        if position[parent, j] < 0 and position[parent, l] < 0 and np.isnan(entry(P, K, j, l)):
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


@compiled()
def exchange(P: Ints, iteration: int) -> None:
    """One exchange search from a disturbed archived subset, its local optimum put before the archive.

    Three times in four the subset is the largest one of at most k columns, else any; one time in eight nothing of it is
    kept but its size, else between 95 % and 70 % of its columns. The draws belong to the iteration, slot 1.
    """
    count, order, free, rules = int_vector(P, COUNT), int_vector(P, ORDER), int_vector(P, FREE), int_vector(P, RULES)
    status, candidate, flips = int_matrix(P, STATUS), int_vector(P, CANDIDATE), int_vector(P, FLIPS)
    members, position = int_matrix(P, SORTED), int_matrix(P, POSITION)
    k = rules[LIMIT]
    state = stream(rules[SEED], iteration, np.int64(1))
    parent = order[np.int64(uniform(state, np.int64(0)) * count[MEMBERS])]
    if uniform(state, np.int64(1)) < 0.75:
        for i in range(count[MEMBERS]):
            if status[parent, SIZE] > k or status[parent, SIZE] < status[order[i], SIZE] <= k:
                parent = order[i]
    size = status[parent, SIZE] if status[parent, SIZE] > 0 else k
    share = 1.0 if uniform(state, np.int64(2)) < 0.125 else 0.05 + 0.25 * uniform(state, np.int64(3))
    spare = free[free.shape[0] - count[MEMBERS] - 1]
    disturbed(P, parent, spare, size, share, stream(rules[SEED], iteration, np.int64(2)))
    climb(P, spare, candidate)
    found = int_matrix(P, S)
    n_flips = np.int64(0)
    for i in range(status[parent, SIZE]):
        if position[spare, members[parent, i]] < 0:
            flips[n_flips] = members[parent, i]
            n_flips += 1
    for i in range(status[spare, SIZE]):
        if position[parent, found[spare, i]] < 0:
            flips[n_flips] = found[spare, i]
            n_flips += 1
    if n_flips > 0:
        consider(P, parent, n_flips)


@compiled()
def run(P: Ints, until: int, script: Ints) -> int:
    """Go on to iteration `until`, or until the target is reached or a table of the archive is full.

    `script` holds given randomness, for tests: for each iteration from the present one on, the parent's place in the
    archive's order, the number of flips, and the columns flipped. Where it is empty, numbers are drawn.
    """
    count, order, best, flips = int_vector(P, COUNT), int_vector(P, ORDER), matrix(P, BEST), int_vector(P, FLIPS)
    status, position, trace = int_matrix(P, STATUS), int_matrix(P, POSITION), matrix(P, TRACE)
    rules, rates, cdf, n = int_vector(P, RULES), vector(P, RATES), vector(P, CDF), P[N_COLUMNS]
    k, seed, every = rules[LIMIT], rules[SEED], rules[EXCHANGE_EVERY]
    slots = int_vector(P, FREE).shape[0]
    band = BAND * vector(P, SCALARS)[ERROR_OF_EMPTY]
    said = 0
    while count[ITERATION] < until:
        iteration = count[ITERATION]
        exchanging = every > 0 and iteration % every == 0
        # The offspring and what an exchange search finds; each may be one member more.
        if count[TRACED] + 2 > trace.shape[0] or count[MEMBERS] + 3 > slots:
            return FULL
        if script.shape[0] > 0:
            parent = order[script[said]]
            n_flips = script[said + 1]
            for x in range(n_flips):
                flips[x] = script[said + 2 + x]
            said += 2 + n_flips
        else:
            state = stream(seed, iteration, np.int64(0))
            parent = order[np.int64(uniform(state, np.int64(0)) * count[MEMBERS])]
            n_flips = draw_flips(state, np.int64(1), n, cdf, flips)
        traced = count[TRACED]
        size = status[parent, SIZE]
        for x in range(n_flips):
            size += 1 if position[parent, flips[x]] < 0 else -1
        # o1 is +inf for the empty set, which is always in the archive, and from 2k columns on.
        if n_flips > 0 and 0 < size < 2 * k:
            cls = 0
            if rules[MIN_INDEX]:
                _write_candidate(P, parent, n_flips)
                cls = int_vector(P, CANDIDATE)[0]
            looked_up, valued = count[LOOKED_UP], count[VALUED]
            value = value_of(P, parent, n_flips, best[cls, size] + band)
            if value <= best[cls, size] + band:
                if P[ON_DEMAND]:  # without exchanges
                    needed = needs(P, parent, n_flips, best[cls, size] + band)
                    if needed in (PAIRS_NEEDED, ROWS_NEEDED):
                        count[LOOKED_UP], count[VALUED] = looked_up, valued
                        return needed
                    if needed == REFUSED:
                        count[ITERATION] = iteration + 1
                        continue
                consider(P, parent, n_flips)
        if exchanging:
            exchange(P, iteration)
        count[ITERATION] = iteration + 1
        if count[TRACED] > traced and trace[count[TRACED] - 1, 2] <= rates[TARGET]:
            return TARGET_REACHED
    return DONE

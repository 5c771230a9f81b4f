"""The loop of POSS (Qian, Yu, Zhou 2015, Algorithm 2) on a quadratic objective, compiled.

An offspring is first valued from its parent's table of neighbours (nothing for no flip, a look-up for one, O(s^2) for
several). Only one that is not clearly worse than the archive is evaluated by itself (`evaluate`, the same bits
whatever led to the subset), and that figure decides by the paper's rule. So the archive at every step is the one
the literal algorithm has, given the same flips.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, int_vector, matrix, vector
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import entry, evaluate
from dsel.objective.kernels.insertion_bound import bound_after_insertions
from dsel.objective.kernels.multi_flip import value_after_flips
from dsel.objective.kernels.neighbour_table import copy, delete, fill_outcome, insert, rebuild
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto.archive_layout import ArchiveTables
from dsel.search.pareto.local_search import climb, disturbed

#: Figures from the tables may be off by this share of c; what is nearer than that to the archive is evaluated.
BAND = 1e-9
#: After so many flips a table is built afresh, so that rounding cannot pile up: it is far below the band by then, and
#: building one of s columns costs as much as s / 2 flips.
REBUILD_AFTER = 96


@compiled()
def _write_candidate(P: ArchiveTables, parent: Int, n_flips: Int) -> int:
    """The parent's members with the flips applied, ascending, into `CANDIDATE`; returns their number."""
    members, position = int_matrix(P, layout.SORTED), int_matrix(P, layout.POSITION)
    flips, out = int_vector(P, archive.FLIPS), int_vector(P, archive.CANDIDATE)
    size = 0
    for i in range(int_matrix(P, layout.STATUS)[parent, layout.SIZE]):
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
def _refresh_best(P: ArchiveTables, cls: Int) -> None:
    slots, best, f = int_matrix(P, archive.SLOT), matrix(P, archive.BEST), vector(P, layout.F)
    least = np.inf
    for size in range(1, slots.shape[1]):
        slot = slots[cls, size]
        if slot >= 0:
            least = min(least, f[slot])
        best[cls, size] = least


@compiled()
def _drop_dominated(P: ArchiveTables, cls: Int, size: Int, value: float) -> None:
    """Remove what a solution of this class, size and value weakly dominates."""
    slots = int_matrix(P, archive.SLOT)
    f = vector(P, layout.F)
    order = int_vector(P, archive.ORDER)
    free = int_vector(P, archive.FREE)
    count = int_vector(P, archive.COUNT)
    for larger in range(size, slots.shape[1]):
        slot = slots[cls, larger]
        if slot < 0 or f[slot] < value:
            continue
        slots[cls, larger] = -1
        members = count[archive.MEMBERS]
        place = 0
        while order[place] != slot:
            place += 1
        for i in range(place, members - 1):
            order[i] = order[i + 1]
        count[archive.MEMBERS] = members - 1
        free[free.shape[0] - members] = slot


@compiled()
def _make_table(P: ArchiveTables, parent: Int, slot: Int, n_flips: Int, size: Int, value: float) -> bool:
    """Table of `slot` for the candidate: from its parent's by the flips, or from scratch where that has drifted."""
    position, flips = int_matrix(P, layout.POSITION), int_vector(P, archive.FLIPS)
    sound = n_flips <= max(1, size // 2)
    if sound:
        copy(P, parent, slot)
        for x in range(n_flips):
            if position[parent, flips[x]] >= 0:
                delete(P, slot, flips[x])
        for x in range(n_flips):
            if sound and position[parent, flips[x]] < 0:
                sound = insert(P, slot, flips[x])
    if sound and int_matrix(P, layout.STATUS)[slot, layout.DEPTH] <= REBUILD_AFTER:
        drift = abs(vector(P, layout.F)[slot] - value)
        if drift <= 0.1 * BAND * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]:
            return True
    int_vector(P, archive.COUNT)[archive.REBUILT] += 1
    return rebuild(P, slot, int_vector(P, archive.CANDIDATE), size)


@compiled()
def value_of(P: ArchiveTables, parent: Int, n_flips: Int, limit: float) -> float:
    """f of the parent with the columns in `FLIPS` flipped; a lower bound where that is above the limit."""
    flips, count = int_vector(P, archive.FLIPS), int_vector(P, archive.COUNT)
    if n_flips == 1:
        count[archive.LOOKED_UP] += 1
        return float(cube(P, layout.NEIGHBOURS)[parent, layout.OUTCOME, flips[0]])
    if n_flips > layout.MOST_FLIPS:
        return -np.inf
    count[archive.VALUED] += 1
    if P[layout.N_TARGETS] == 0 and not P[layout.ON_DEMAND]:
        bound = bound_after_insertions(P, parent, flips, n_flips)
        if bound > limit:
            return bound
    return value_after_flips(P, parent, flips, n_flips)


@compiled()
def _note_improvement(P: ArchiveTables, size: Int, value: float) -> None:
    best = matrix(P, archive.BEST)
    trace = matrix(P, archive.TRACE)
    count = int_vector(P, archive.COUNT)
    k = int_vector(P, archive.RULES)[archive.LIMIT]
    if size > k:
        return
    for cls in range(best.shape[0]):
        if best[cls, k] <= value:
            return
    row = count[archive.TRACED]
    trace[row, 0] = count[archive.ITERATION]
    trace[row, 1] = size
    trace[row, 2] = value
    count[archive.TRACED] = row + 1
    count[archive.LAST_GAIN] = count[archive.ITERATION]


@compiled()
def consider(P: ArchiveTables, parent: Int, n_flips: Int) -> bool:
    """Lines 6 to 9 of Algorithm 2 for the subset that differs from slot `parent` by `FLIPS`; True if archived.

    A subset with a dependent column is refused: without that column it has the same f and is smaller.
    """
    candidate = int_vector(P, archive.CANDIDATE)
    count = int_vector(P, archive.COUNT)
    members = int_matrix(P, layout.SORTED)
    slots, f = int_matrix(P, archive.SLOT), vector(P, layout.F)
    size = _write_candidate(P, parent, n_flips)
    cls = candidate[0] if int_vector(P, archive.RULES)[archive.MIN_INDEX] else 0
    rival = slots[cls, size]
    if rival >= 0:
        same = True
        for i in range(size):
            if members[rival, i] != candidate[i]:
                same = False
                break
        if same:
            return False
    count[archive.EVALUATED] += 1
    value, rank = evaluate(P, candidate, size)
    best = matrix(P, archive.BEST)[cls, size]
    if rank < size or value > best or (value == best and (rival < 0 or f[rival] != value)):
        return False
    free = int_vector(P, archive.FREE)
    place = free.shape[0] - count[archive.MEMBERS] - 1
    slot = free[place]
    if not _make_table(P, parent, slot, n_flips, size, value):
        return False
    _note_improvement(P, size, value)
    _drop_dominated(P, cls, size, value)
    f[slot] = value
    fill_outcome(P, slot)
    for i in range(size):
        members[slot, i] = candidate[i]
    int_matrix(P, layout.STATUS)[slot, layout.CLASS] = cls
    free[place] = free[free.shape[0] - count[archive.MEMBERS] - 1]
    slots[cls, size] = slot
    int_vector(P, archive.ORDER)[count[archive.MEMBERS]] = slot
    count[archive.MEMBERS] += 1
    count[archive.ACCEPTED] += 1
    _refresh_best(P, cls)
    return True


@compiled()
def take_in(P: ArchiveTables, columns: Ints, s: Int) -> bool:
    """Put columns[:s], ascending and found elsewhere, before the archive, from the archived subset that differs least;
    True if archived."""
    order, status, position = int_vector(P, archive.ORDER), int_matrix(P, layout.STATUS), int_matrix(P, layout.POSITION)
    members, flips = int_matrix(P, layout.SORTED), int_vector(P, archive.FLIPS)
    nearest = order[0]
    least = np.int64(1 << 62)
    for x in range(int_vector(P, archive.COUNT)[archive.MEMBERS]):
        z = order[x]
        differ = status[z, layout.SIZE] + s
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
    for i in range(status[nearest, layout.SIZE]):
        there = np.searchsorted(columns[:s], members[nearest, i])
        if there == s or columns[there] != members[nearest, i]:
            flips[n_flips] = members[nearest, i]
            n_flips += 1
    return consider(P, nearest, n_flips)


@compiled()
def needs(P: ArchiveTables, parent: Int, n_flips: Int, limit: float) -> int:
    """What has to be fetched before the subset that differs from slot `parent` by `FLIPS` can be considered: nothing
    (DONE), entries of K, or rows; or that it is no better than `limit` as far as the rows there are tell (REFUSED)."""
    if 1 < n_flips <= layout.MOST_FLIPS and P[layout.GUESSED]:
        return archive.PAIRS_NEEDED
    size = _write_candidate(P, parent, n_flips)
    candidate, addresses = int_vector(P, archive.CANDIDATE), int_vector(P, layout.K)
    candidate[candidate.shape[0] - 1] = size
    missing = 0
    for i in range(size):
        if addresses[candidate[i]] == 0:
            missing += 1
    if missing == 0:
        return archive.DONE
    value, rank = evaluate(P, candidate, size)
    return archive.REFUSED if value > limit or rank < size else archive.ROWS_NEEDED


@compiled()
def foresee(P: ArchiveTables, until: Int, processors: Int, pairs: Ints, wanted: Ints) -> tuple[int, int]:
    """What the rounds of `processors` offspring (1: the iterations of POSS) from the present one to `until` would ask
    for if the archive's tables stayed as they are, and its values fell as they come.

    pairs (most,): j n + l of entries that are not known and that the bound does not do without. wanted (most,): columns
    without rows that enter by flips whose outcome is known. Either may be empty, and is not asked for then. Returns
    their numbers; it ends sooner where one of them is full.
    """
    count = int_vector(P, archive.COUNT)
    order = int_vector(P, archive.ORDER)
    best = matrix(P, archive.BEST)
    flips = int_vector(P, archive.FLIPS)
    status, position, table = int_matrix(P, layout.STATUS), int_matrix(P, layout.POSITION), cube(P, layout.NEIGHBOURS)
    rules = int_vector(P, archive.RULES)
    cdf = vector(P, archive.CDF)
    n = P[layout.N_COLUMNS]
    addresses = int_vector(P, layout.K)
    k = rules[archive.LIMIT]
    band = BAND * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    undo = np.empty((wanted.shape[0], 3))
    undone = 0
    found = 0
    columns = 0
    t = count[archive.ITERATION]
    full = False
    while t < until and not full:
        parent = order[
            np.int64(uniform(stream(rules[archive.SEED], t, np.int64(0)), np.int64(0)) * count[archive.MEMBERS])
        ]
        for slot in range(processors):
            full = pairs.shape[0] > 0 and found + layout.MOST_FLIPS * layout.MOST_FLIPS > pairs.shape[0]
            full = full or (wanted.shape[0] > 0 and columns + layout.MOST_FLIPS > wanted.shape[0])
            if full:
                break
            n_flips = draw_flips(stream(rules[archive.SEED], t, np.int64(slot)), np.int64(1), n, cdf, flips)
            size = status[parent, layout.SIZE]
            for x in range(n_flips):
                size += 1 if position[parent, flips[x]] < 0 else -1
            if n_flips == 0 or n_flips > layout.MOST_FLIPS or size <= 0 or size >= 2 * k:
                continue
            cls = 0
            if rules[archive.MIN_INDEX]:
                _write_candidate(P, parent, n_flips)
                cls = int_vector(P, archive.CANDIDATE)[0]
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


@compiled()
def exchange(P: ArchiveTables, iteration: Int) -> None:
    """One exchange search from a disturbed archived subset, its local optimum put before the archive.

    Three times in four the subset is the largest one of at most k columns, else any; one time in eight nothing of it is
    kept but its size, else between 95 % and 70 % of its columns. The draws belong to the iteration, slot 1.
    """
    count = int_vector(P, archive.COUNT)
    order = int_vector(P, archive.ORDER)
    free = int_vector(P, archive.FREE)
    rules = int_vector(P, archive.RULES)
    status = int_matrix(P, layout.STATUS)
    candidate = int_vector(P, archive.CANDIDATE)
    flips = int_vector(P, archive.FLIPS)
    members, position = int_matrix(P, layout.SORTED), int_matrix(P, layout.POSITION)
    k = rules[archive.LIMIT]
    state = stream(rules[archive.SEED], iteration, np.int64(1))
    parent = order[np.int64(uniform(state, np.int64(0)) * count[archive.MEMBERS])]
    if uniform(state, np.int64(1)) < 0.75:
        for i in range(count[archive.MEMBERS]):
            if status[parent, layout.SIZE] > k or status[parent, layout.SIZE] < status[order[i], layout.SIZE] <= k:
                parent = order[i]
    size = status[parent, layout.SIZE] if status[parent, layout.SIZE] > 0 else k
    share = 1.0 if uniform(state, np.int64(2)) < 0.125 else 0.05 + 0.25 * uniform(state, np.int64(3))
    spare = free[free.shape[0] - count[archive.MEMBERS] - 1]
    disturbed(P, parent, spare, size, share, stream(rules[archive.SEED], iteration, np.int64(2)))
    climb(P, spare, candidate)
    found = int_matrix(P, layout.S)
    n_flips = np.int64(0)
    for i in range(status[parent, layout.SIZE]):
        if position[spare, members[parent, i]] < 0:
            flips[n_flips] = members[parent, i]
            n_flips += 1
    for i in range(status[spare, layout.SIZE]):
        if position[parent, found[spare, i]] < 0:
            flips[n_flips] = found[spare, i]
            n_flips += 1
    if n_flips > 0:
        consider(P, parent, n_flips)


@compiled()
def run(P: ArchiveTables, until: Int, script: Ints) -> int:
    """Go on to iteration `until`, or until the target is reached or a table of the archive is full.

    `script` holds given randomness, for tests: for each iteration from the present one on, the parent's place in the
    archive's order, the number of flips, and the columns flipped. Where it is empty, numbers are drawn.
    """
    count = int_vector(P, archive.COUNT)
    order = int_vector(P, archive.ORDER)
    best = matrix(P, archive.BEST)
    flips = int_vector(P, archive.FLIPS)
    status, position, trace = int_matrix(P, layout.STATUS), int_matrix(P, layout.POSITION), matrix(P, archive.TRACE)
    rules = int_vector(P, archive.RULES)
    stop_at = vector(P, archive.STOP_AT)[0]
    cdf = vector(P, archive.CDF)
    n = P[layout.N_COLUMNS]
    k, seed, every = rules[archive.LIMIT], rules[archive.SEED], rules[archive.EXCHANGE_EVERY]
    slots = int_vector(P, archive.FREE).shape[0]
    band = BAND * vector(P, layout.SCALARS)[layout.ERROR_OF_EMPTY]
    said = 0
    while count[archive.ITERATION] < until:
        iteration = count[archive.ITERATION]
        exchanging = every > 0 and iteration % every == 0
        # The offspring and what an exchange search finds; each may be one member more.
        if count[archive.TRACED] + 2 > trace.shape[0] or count[archive.MEMBERS] + 3 > slots:
            return archive.FULL
        if script.shape[0] > 0:
            parent = order[script[said]]
            n_flips = script[said + 1]
            for x in range(n_flips):
                flips[x] = script[said + 2 + x]
            said += 2 + n_flips
        else:
            state = stream(seed, iteration, np.int64(0))
            parent = order[np.int64(uniform(state, np.int64(0)) * count[archive.MEMBERS])]
            n_flips = draw_flips(state, np.int64(1), n, cdf, flips)
        traced = count[archive.TRACED]
        size = status[parent, layout.SIZE]
        for x in range(n_flips):
            size += 1 if position[parent, flips[x]] < 0 else -1
        # o1 is +inf for the empty set, which is always in the archive, and from 2k columns on.
        if n_flips > 0 and 0 < size < 2 * k:
            cls = 0
            if rules[archive.MIN_INDEX]:
                _write_candidate(P, parent, n_flips)
                cls = int_vector(P, archive.CANDIDATE)[0]
            looked_up, valued = count[archive.LOOKED_UP], count[archive.VALUED]
            value = value_of(P, parent, n_flips, best[cls, size] + band)
            if value <= best[cls, size] + band:
                if P[layout.ON_DEMAND]:  # without exchanges
                    needed = needs(P, parent, n_flips, best[cls, size] + band)
                    if needed in (archive.PAIRS_NEEDED, archive.ROWS_NEEDED):
                        count[archive.LOOKED_UP], count[archive.VALUED] = looked_up, valued
                        return needed
                    if needed == archive.REFUSED:
                        count[archive.ITERATION] = iteration + 1
                        continue
                consider(P, parent, n_flips)
        if exchanging:
            exchange(P, iteration)
        count[archive.ITERATION] = iteration + 1
        if count[archive.TRACED] > traced and trace[count[archive.TRACED] - 1, 2] <= stop_at:
            return archive.TARGET_REACHED
    return archive.DONE

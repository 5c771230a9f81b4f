"""The loop of POSS (Qian, Yu, Zhou 2015, Algorithm 2) and PPOSS (Qian et al., IJCAI 2016) on an objective, compiled.

POSS is PPOSS with one offspring in each round. An offspring costs about a microsecond here, a message to a worker a
thousand times that. So the rounds run in one process, and the N processors of the paper are the N offspring of a round.

An offspring's value is first computed from its parent's neighbour table: a look-up for one flip, O(s^2) for several.
Only an offspring that is not clearly worse than the archive is evaluated from K and B (`evaluate`, which returns the
same bits whatever led to the subset), and this value decides by the paper's rule. So, given the same flips, the archive
at every step is that of the literal algorithm.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, int_vector, matrix, vector
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Bool, Int, Ints
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import evaluate
from dsel.objective.kernels.multi_flip import bound_after_insertions, value_after_flips
from dsel.objective.kernels.neighbour_table import copy, delete, fill_outcome, insert, rebuild
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto.archive_layout import ArchiveTables
from dsel.search.pareto.local_search import local_search, perturb

#: Values from the tables may be wrong by this share of c; offspring closer than that to the archive are evaluated.
BAND = 1e-9
#: After this many flips a table is rebuilt, so that rounding errors do not accumulate. By then they are far below the
#: band, and to rebuild a table of s columns costs as much as s / 2 flips.
REBUILD_AFTER = 96


@compiled("i8(i8[::1], i8, i8)", inner=True)
def write_candidate(P: ArchiveTables, parent: Int, n_flips: Int) -> int:
    """Write the parent's members with the flips applied, ascending, to CANDIDATE, and return their number."""
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


@compiled(inline=True)
def flipped_size(status: Ints, position: Ints, parent: Int, flips: Ints, n_flips: Int) -> Int:
    """Return the size of the subset that differs from slot `parent` by flips[:n_flips]."""
    size: Int = status[parent, layout.SIZE]
    for x in range(n_flips):
        size += 1 if position[parent, flips[x]] < 0 else -1
    return size


@compiled("void(i8[::1], i8)")
def refresh_best(P: ArchiveTables, cls: Int) -> None:
    """Compute BEST of one class from the archived solutions."""
    slots, best, f = int_matrix(P, archive.SLOT), matrix(P, archive.BEST), vector(P, layout.F)
    least = np.inf
    for size in range(1, slots.shape[1]):
        slot = slots[cls, size]
        if slot >= 0:
            least = min(least, f[slot])
        best[cls, size] = least


@compiled("void(i8[::1], i8, i8, f8)", inner=True)
def _drop_dominated(P: ArchiveTables, cls: Int, size: Int, value: float) -> None:
    """Remove the solutions that a solution of this class, size and value weakly dominates."""
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


@compiled("b1(i8[::1], i8, i8, i8, i8, f8)", inner=True)
def _make_table(P: ArchiveTables, parent: Int, slot: Int, n_flips: Int, size: Int, value: float) -> bool:
    """Make the table of a slot for the candidate: from its parent's table, or from scratch if that is inexact.

    Return False where the candidate has a dependent column.
    """
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


@compiled(inner=True)
def offspring_value(P: ArchiveTables, parent: Int, n_flips: Int, limit: float) -> float:
    """Return f of the parent with the columns in FLIPS flipped, or a lower bound that is above the limit."""
    flips, count = int_vector(P, archive.FLIPS), int_vector(P, archive.COUNT)
    if n_flips == 1:
        count[archive.LOOKED_UP] += 1
        return float(cube(P, layout.NEIGHBOURS)[parent, layout.OUTCOME, flips[0]])
    if n_flips > layout.MOST_FLIPS or int_vector(P, archive.RULES)[archive.VALUES] == 0:
        return -np.inf
    count[archive.VALUED] += 1
    if P[layout.N_TARGETS] == 0 and not P[layout.ON_DEMAND]:
        bound = bound_after_insertions(P, parent, flips, n_flips)
        if bound > limit:
            return bound
    return value_after_flips(P, parent, flips, n_flips)


@compiled("void(i8[::1], i8, f8)", inner=True)
def _note_improvement(P: ArchiveTables, size: Int, value: float) -> None:
    """Add a row to TRACE if the value is the best so far with at most k columns."""
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


@compiled("b1(i8[::1], i8, i8)")
def try_insert(P: ArchiveTables, parent: Int, n_flips: Int) -> bool:
    """Apply lines 6 to 9 of Algorithm 2 to the subset that differs from slot `parent` by FLIPS; return if archived.

    A subset with a dependent column is refused: without that column it has the same f and is smaller.
    """
    candidate = int_vector(P, archive.CANDIDATE)
    count = int_vector(P, archive.COUNT)
    members = int_matrix(P, layout.SORTED)
    slots, f = int_matrix(P, archive.SLOT), vector(P, layout.F)
    size = write_candidate(P, parent, n_flips)
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
    free, status = int_vector(P, archive.FREE), int_matrix(P, layout.STATUS)
    slot = free[0]
    if not _make_table(P, parent, slot, n_flips, size, value):
        status[slot, layout.CLASS] = archive.NO_SUBSET
        return False
    _note_improvement(P, size, value)
    _drop_dominated(P, cls, size, value)
    f[slot] = value
    fill_outcome(P, slot)
    for i in range(size):
        members[slot, i] = candidate[i]
    status[slot, layout.CLASS] = cls
    for i in range(free.shape[0] - count[archive.MEMBERS] - 1):
        free[i] = free[i + 1]
    slots[cls, size] = slot
    int_vector(P, archive.ORDER)[count[archive.MEMBERS]] = slot
    count[archive.MEMBERS] += 1
    count[archive.ACCEPTED] += 1
    refresh_best(P, cls)
    return True


@compiled("b1(i8[::1], i8[::1], i8)")
def merge_external(P: ArchiveTables, columns: Ints, s: Int) -> bool:
    """Offer a subset found elsewhere to the archive, columns[:s] in ascending order; return whether it is archived.

    Its table is made from that of the archived subset that differs least.
    """
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
        kept = False
        for x in range(s):
            if columns[x] == members[nearest, i]:
                kept = True
        if not kept:
            flips[n_flips] = members[nearest, i]
            n_flips += 1
    return try_insert(P, nearest, n_flips)


@compiled("i8(i8[::1], i8, i8, f8)", inner=True)
def missing_inputs(P: ArchiveTables, parent: Int, n_flips: Int, limit: float) -> int:
    """Return what must be fetched before the subset that differs from slot `parent` by FLIPS can be evaluated.

    DONE: nothing. PAIRS_NEEDED: entries of K. ROWS_NEEDED: rows of the columns in CANDIDATE. REFUSED: nothing, for the
    entries that are known show that its value is above the limit or a column is dependent.
    """
    if 1 < n_flips <= layout.MOST_FLIPS and P[layout.GUESSED]:
        return archive.PAIRS_NEEDED
    size = write_candidate(P, parent, n_flips)
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


@compiled("i8(i8[::1], i8, i8)", inner=True)
def class_after_flips(P: ArchiveTables, parent: Int, n_flips: Int) -> int:
    """Return the isolation class of the subset that differs from slot `parent` by FLIPS."""
    cls = 0
    if int_vector(P, archive.RULES)[archive.MIN_INDEX]:
        write_candidate(P, parent, n_flips)
        cls = int_vector(P, archive.CANDIDATE)[0]
    return cls


@compiled("i8(i8[::1])", inner=True)
def list_parents(P: ArchiveTables) -> int:
    """List the archived subsets that may be drawn as parents, oldest first, and return how many there are.

    All may where none has an allowed size.
    """
    allowed, order = int_vector(P, archive.PARENT_SIZES), int_vector(P, archive.ORDER)
    parents, status = int_vector(P, archive.PARENTS), int_matrix(P, layout.STATUS)
    members = int_vector(P, archive.COUNT)[archive.MEMBERS]
    listed = 0
    for i in range(members):
        if allowed[status[order[i], layout.SIZE]]:
            parents[listed] = order[i]
            listed += 1
    if listed > 0:
        return listed
    for i in range(members):
        parents[i] = order[i]
        listed += 1
    return listed


@compiled("void(i8[::1], i8, i8)", inner=True)
def exchange_search(P: ArchiveTables, iteration: Int, slot: Int) -> None:
    """Perturb an archived subset, search from it by exchanges, and offer the local optimum to the archive.

    With probability 3/4 the subset is the largest one of at most k columns, else any. With probability 1/8 only its
    size is kept, else between 95 % and 70 % of its columns. The draws are those of `slot` and `slot` + 1.
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
    state = stream(rules[archive.SEED], iteration, slot)
    parent = order[np.int64(uniform(state, np.int64(0)) * count[archive.MEMBERS])]
    if uniform(state, np.int64(1)) < 0.75:
        for i in range(count[archive.MEMBERS]):
            if status[parent, layout.SIZE] > k or status[parent, layout.SIZE] < status[order[i], layout.SIZE] <= k:
                parent = order[i]
    size = status[parent, layout.SIZE] if status[parent, layout.SIZE] > 0 else k
    share = 1.0 if uniform(state, np.int64(2)) < 0.125 else 0.05 + 0.25 * uniform(state, np.int64(3))
    spare = free[0]
    perturb(P, parent, spare, size, share, stream(rules[archive.SEED], iteration, slot + 1))
    local_search(P, spare, candidate)
    status[spare, layout.CLASS] = archive.NO_SUBSET
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
        try_insert(P, parent, n_flips)


@compiled(inner=True)
def _keep_survivor(P: ArchiveTables, parent: Int, n_flips: Int, survivor: Ints) -> None:
    """Write the offspring of the flips in FLIPS to its row of `survivors`, see `run`."""
    flips, candidate = int_vector(P, archive.FLIPS), int_vector(P, archive.CANDIDATE)
    sizes = int_matrix(P, archive.SLOT).shape[1]
    size = write_candidate(P, parent, n_flips)
    survivor[0], survivor[1] = n_flips, size
    for x in range(size):
        survivor[2 + x] = candidate[x]
    for x in range(n_flips):
        survivor[2 + sizes + x] = flips[x]


@compiled(inner=True)
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


@compiled("i8(i8[::1], i8, i8, i8[:, ::1])", nogil=True)
def run(P: ArchiveTables, until: Int, processors: Int, survivors: Ints) -> int:
    """Continue to round `until`, until the target is reached, the archive is full or inputs are missing.

    processors: the number of offspring in a round, 1 for POSS. A round whose inputs are missing (ROWS_NEEDED,
    PAIRS_NEEDED) starts again in the next call.
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
        state = stream(seed, t, np.int64(0))
        parent = parents[np.int64(uniform(state, np.int64(0)) * number)]
        parent_size, parent_class = status[parent, layout.SIZE], status[parent, layout.CLASS]
        looked_up, valued = count[archive.LOOKED_UP], count[archive.VALUED]
        found = 0
        for slot in range(processors):
            if slot > 0:
                state = stream(seed, t, np.int64(slot))
            n_flips = draw_flips(state, np.int64(1), n, cdf, flips)
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

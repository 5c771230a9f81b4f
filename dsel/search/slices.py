"""Slices of PPOSS-asy on a worker: the compiled engine takes over a snapshot of the archive and goes on from there."""

from __future__ import annotations

import numpy as np

from dsel.objective import memory as at
from dsel.objective.evaluate import evaluate
from dsel.objective.neighbour_table import fill_outcome
from dsel.objective.quadratic import QuadraticObjective
from dsel.search import pareto_engine as engine
from dsel.search.archive import Subset
from dsel.search.package import Slice
from dsel.search.poss import Poss


class SliceEngine:
    """An engine that stays from one slice to the next: subsets that it has already keep their neighbour tables.

    The table of a new one is made from the nearest it has, O(n k) a differing column. Memory: tables of twice an
    archive.
    """

    def __init__(self, objective: QuadraticObjective, k: int, seed: int) -> None:
        self._poss = Poss(objective, k, seed=seed)
        self._poss._make_room(4 * k)

    def run(self, part: Slice) -> tuple[tuple[Subset, float], ...]:
        """The iterations of the slice; (subset, f) of what survived that the snapshot does not hold, oldest first."""
        poss, known = self._poss, set(part.solutions)
        self._take_over(part.solutions)
        poss._count[engine.ITERATION] = part.start
        poss.advance(part.stop)
        return tuple((z.members, z.value) for z in poss.archived if z.size and z.members not in known)

    def _take_over(self, solutions: tuple[Subset, ...]) -> None:
        """Make the archive hold these subsets, in this order after the empty set."""
        poss, memory = self._poss, self._poss._memory
        count, order = poss._count, memory[engine.ORDER]
        before = {poss._point(int(slot)).members: int(slot) for slot in order[: count[engine.MEMBERS]]}
        taken = {S: before[S] for S in ((), *solutions) if S in before}
        free = [int(z) for z in memory[engine.FREE][: memory[engine.FREE].size - count[engine.MEMBERS]]]
        for S in solutions:
            if S not in taken:
                taken[S] = self._build(S, {**before, **taken}, free.pop())
        slots = memory[engine.SLOT]
        slots[:] = -1
        for position, S in enumerate(((), *solutions)):
            slots[0, len(S)] = order[position] = taken[S]
        members = len(solutions) + 1
        rest = sorted(set(range(order.size)) - set(taken.values()), reverse=True)
        memory[engine.FREE][: len(rest)] = rest
        count[engine.MEMBERS] = members
        engine._refresh_best(memory.P, 0)

    def _build(self, S: Subset, there: dict[Subset, int], slot: int) -> int:
        """The table of S in a free slot, from the nearest subset that has one."""
        memory, size, chosen = self._poss._memory, len(S), set(S)
        nearest = min(there, key=lambda z: len(chosen.symmetric_difference(z)))
        flips = sorted(chosen.symmetric_difference(nearest))
        memory[engine.FLIPS][: len(flips)] = flips
        memory[engine.CANDIDATE][:size] = S
        members = np.asarray(S, np.int64)
        f = float(evaluate(memory.P, members, size)[0])
        engine._make_table(memory.P, there[nearest], slot, len(flips), size, f)
        memory[at.F][slot] = f
        fill_outcome(memory.P, slot)
        memory[at.SORTED][slot, :size] = S
        memory[at.STATUS][slot, at.CLASS] = 0
        return slot

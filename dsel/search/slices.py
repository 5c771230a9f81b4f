"""Slices of PPOSS-asy on a worker: the compiled engine takes in the newest archive and goes on from there."""

from __future__ import annotations

from dsel.objective.quadratic import QuadraticObjective
from dsel.search import pareto_engine as engine
from dsel.search.archive import Subset
from dsel.search.package import Slice
from dsel.search.poss import Poss


class SliceEngine:
    """An engine that stays with its worker from one slice to the next, with its archive and neighbour tables.

    What the snapshot brings that is better than its own comes in, the table made from the nearest subset it has: O(n k)
    a differing column. The snapshot never brings anything worse: what is here was sent with an earlier answer.
    """

    def __init__(self, objective: QuadraticObjective, k: int, seed: int) -> None:
        self._poss = Poss(objective, k, seed=seed)

    def run(self, part: Slice) -> tuple[tuple[Subset, float], ...]:
        """The iterations of the slice; (subset, f) of what then is archived here and not in the snapshot."""
        poss, known = self._poss, {S for S, _ in part.solutions}
        self._take_in(part.solutions)
        poss._count[engine.ITERATION] = part.start
        poss.advance(part.stop)
        return tuple((z.members, z.value) for z in poss.archived if z.size and z.members not in known)

    def _take_in(self, solutions: tuple[tuple[Subset, float], ...]) -> None:
        memory = self._poss._memory
        own = self._slots()
        for S, f in solutions:
            if S in own or f >= memory[engine.BEST][0, len(S)]:
                continue
            self._poss.objective.need(S)
            chosen = set(S)
            nearest = min(own, key=lambda z, chosen=chosen: len(chosen.symmetric_difference(z)))  # type: ignore[misc]
            flips = sorted(chosen.symmetric_difference(nearest))
            memory[engine.FLIPS][: len(flips)] = flips
            if engine.consider(memory.P, own[nearest], len(flips)):
                own = self._slots()
        self._poss._flush_trace()

    def _slots(self) -> dict[Subset, int]:
        """Where each subset of the archive has its table."""
        poss = self._poss
        order = poss._memory[engine.ORDER][: poss._count[engine.MEMBERS]]
        return {poss._point(int(slot)).members: int(slot) for slot in order}

"""Slices of PPOSS-asy on a worker: the compiled engine takes in the newest archive and goes on from there."""

from __future__ import annotations

import numpy as np

from dsel.objective.base import Objective
from dsel.search.parallel.executor import Slice
from dsel.search.pareto import kernel as engine
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.search import Poss


class SliceEngine:
    """An engine that stays with its worker from one slice to the next, with its archive and neighbour tables.

    What the snapshot brings that is better than its own comes in, made from the nearest subset it has. The snapshot
    never brings anything worse: what is here was sent with an earlier answer. memory: bytes its tables may take.
    Errors: CapacityError.
    """

    def __init__(
        self, objective: Objective, k: int, seed: int, isolation: Isolation = "none", memory: int = 8 << 30
    ) -> None:
        self._poss = Poss(objective, k, seed=seed, isolation=isolation, memory_limit=memory)

    def run(self, part: Slice) -> tuple[tuple[Subset, float], ...]:
        """The iterations of the slice; (subset, f) of what then is archived here and not in the snapshot."""
        poss, known = self._poss, {S for S, _ in part.solutions}
        self._take_in(part.solutions)
        poss._count[engine.ITERATION] = part.start
        poss.advance(part.stop)
        return tuple((z.members, z.value) for z in poss.archived if z.size and z.members not in known)

    def _take_in(self, solutions: tuple[tuple[Subset, float], ...]) -> None:
        poss = self._poss
        memory = poss._memory
        best = memory[engine.BEST]
        for S, f in solutions:
            if f < best[poss._class_of(S), len(S)]:
                poss._make_room()
                poss.objective.fetch_rows(S)
                engine.take_in(memory.P, np.asarray(S, np.int64), len(S))
                poss._flush_trace()

"""Slices of PPOSS-asy on a worker: compiled code merges the newest archive and continues from there."""

from __future__ import annotations

import numpy as np

from dsel.objective.base import Objective
from dsel.search.parallel.executor import Slice
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto import kernel
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.search import Poss


class SliceRunner:
    """Runs slices on one archive with its neighbour tables, which a worker keeps between slices.

    Solutions of a snapshot that are better than those of the archive are inserted, each computed from the nearest
    subset in the archive. A snapshot is never worse than the archive: it contains what earlier slices returned.

    memory: bytes for the tables. Raises CapacityError if they need more.
    """

    def __init__(
        self, objective: Objective, k: int, seed: int, isolation: Isolation = "none", exchange_every: int = 0,
        memory: int = 8 << 30,
    ) -> None:  # fmt: skip
        self._poss = Poss(
            objective, k, seed=seed, isolation=isolation, exchange_every=exchange_every, memory_limit=memory
        )

    def run(self, part: Slice) -> tuple[tuple[Subset, float], ...]:
        """Run the iterations of a slice, and return (subset, f) of solutions that the snapshot does not contain."""
        poss, known = self._poss, {S for S, _ in part.solutions}
        self._insert(part.solutions)
        poss._count[archive.ITERATION] = part.start
        poss.advance(part.stop)
        return tuple((z.members, z.value) for z in poss.archived if z.size and z.members not in known)

    def _insert(self, solutions: tuple[tuple[Subset, float], ...]) -> None:
        poss = self._poss
        memory = poss._memory
        best = memory[archive.BEST]
        for S, f in solutions:
            if f < best[poss._class_of(S), len(S)]:
                poss._make_room()
                poss.objective.fetch_rows(S)
                kernel.merge_external(memory.P, np.asarray(S, np.int64), len(S))
                poss._flush_trace()

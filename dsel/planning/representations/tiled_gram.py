"""The same Gram matrix, summed part by part in as many passes as its parts need (dsel.passes.tiles)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

from dsel.data.dataset import Dataset
from dsel.errors import CapacityError
from dsel.passes.base import FAN_IN, PassCost
from dsel.passes.gram import tile_passes
from dsel.passes.tiles import Tiling, plan_tiles
from dsel.planning.representations.base import INTERPRETER, TASK_SHARE, gib, worker_limit
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.validation import ValidatedRequest


class TiledGram(GramMatrix):
    """K, summed in parts, for workers that cannot hold partial sums of all of it."""

    name: ClassVar[str] = "tiled-gram"

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: some partial sums of tiles and of B, and two row blocks."""
        tiles = 0 if self._tiling is None else self._tiling.partial_bytes
        return worker_limit((FAN_IN + 2) * (tiles + self._vector_bytes) + 2 * self.shape.row_block_bytes)

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: K, preprocessed, and what the search makes of it."""
        return 6 * 8 * self.shape.n**2

    @property
    def passes(self) -> int:
        """Return one pass per read of tiles."""
        return 1 if self._tiling is None else len(self._tiling.reads)

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        n = self.shape.n
        size = f"{n} x {n}, {gib(8 * n * n)}"
        return f"the Gram matrix ({size}) fits here but not in a worker, which sums it in {self.passes} parts"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        tiles = 0 if self._tiling is None else self._tiling.partial_bytes
        return f"{gib(tiles)} of the Gram matrix at once", f"the Gram matrix, {self.shape.n} x {self.shape.n}"

    @property
    def shortage(self) -> str:
        """Return which memory is missing, or why there are no tiles; empty if nothing."""
        return self._tiles[1] or super().shortage

    @property
    def _tiling(self) -> Tiling | None:
        """Return how K is summed in parts; None if it cannot be."""
        return self._tiles[0]

    @cached_property
    def _tiles(self) -> tuple[Tiling | None, str]:
        """Return the tiling, or why there is none. Without memory for K in this process there is none."""
        n = self.shape.n
        if self.client_bytes > self.resources.client_memory:
            return None, ""
        if self.shape.gram_sums > 1:
            return None, f"The Gram matrices of {self.shape.gram_sums} folds are summed in one pass."
        try:
            return plan_tiles(n, min(self._tile_budget, 8.0 * n * n)), ""
        except CapacityError as error:
            return None, error.what

    @property
    def _tile_budget(self) -> float:
        """Return the bytes that a partial sum of tiles may take in a worker."""
        if self.resources.worker_memory is None:
            return math.inf
        free = TASK_SHARE * self.resources.worker_memory - INTERPRETER - 2 * self.shape.row_block_bytes
        return free / (FAN_IN + 2) - self._vector_bytes

    @property
    def _vector_bytes(self) -> int:
        """Return the bytes of B, the means and the ranges of the columns."""
        return 8 * self.shape.n * (self.shape.N + 8)

    def _gram_cost(
        self, dataset: Dataset, validated: ValidatedRequest, ranges: tuple[tuple[int, int], ...] | None
    ) -> PassCost:
        tiling = self._tiling
        rows = dataset.row_ranges if ranges is None else ranges
        passes = [] if tiling is None else [one for row in rows for one in tile_passes(dataset, tiling, (row,))]
        return PassCost.total("Gram matrix by tiles", (one.cost() for one in passes))

"""W of a chosen rank from a randomized sketch (Halko, Martinsson and Tropp, 2011), in 1 + 2q passes.

Not exact; for data that are their own targets, where neither n x n nor m x m fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dsel.passes.base import FAN_IN, PassCost
from dsel.passes.column_blocks import ColumnBlocks
from dsel.passes.column_factor import ColumnFactor, product_pass, right_product_pass
from dsel.passes.column_statistics import ColumnStatistics
from dsel.passes.eigendecomposition import OVERSAMPLING, Eigen, randomized_eigendecomposition, sketch_passes
from dsel.planning.representations.base import SMALL_ARRAYS, Saved, gib, worker_limit
from dsel.planning.representations.row_gram import EigenReduced
from dsel.planning.validation import ValidatedRequest

#: Power iterations q.
POWERS = 2
#: The rank: at least, and per column to choose.
LEAST_RANK, RANK_PER_COLUMN = 50, 5


class Sketch(EigenReduced):
    """W of a rank of 5 k, at least 50, and an estimate of what it leaves out."""

    name: ClassVar[str] = "sketch"
    exact: ClassVar[bool] = False

    @property
    def rank(self) -> int:
        """Return the rank of W."""
        return min(max(LEAST_RANK, RANK_PER_COLUMN * self.shape.k), self.shape.m, self.shape.n)

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: chunks, partial sums, results that wait to be fetched, and what is sent."""
        p, tall, wide = self.shape, self._tall_bytes, self._wide_bytes
        if p.chunk[1] >= p.n:  # row blocks: sums of l x n, and rows of m x l that wait
            sums, waiting, sent = (FAN_IN + 2) * wide, tall, tall + wide
        else:  # column blocks: sums of m x l, and columns of l x n that wait
            sums, waiting, sent = (FAN_IN + 2) * tall, wide, 2 * tall
        return worker_limit(2 * p.tile_bytes + sums + sent + waiting // max(self.resources.workers, 1) + SMALL_ARRAYS)

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: the factors of the sketch, and the search's tables."""
        return 3 * self._tall_bytes + 5 * self._wide_bytes + self.shape.table_bytes

    @property
    def passes(self) -> int:
        """Return the passes for the norms, the sketch and the final check."""
        return 2 + sketch_passes(POWERS)

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        m, n = self.shape.m, self.shape.n
        return f"neither {n} x {n} nor {m} x {m} fits: {self.rank} dimensions of the data, and an estimate of the rest"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        return f"{gib(self.shape.tile_bytes)} a chunk", f"W, {self.rank} x {self.shape.n}"

    @property
    def _width(self) -> int:
        """Return l, the columns of the sketch."""
        return min(self.rank + OVERSAMPLING, self.shape.m, self.shape.n)

    @property
    def _tall_bytes(self) -> int:
        return 8 * (self._width + OVERSAMPLING) * self.shape.m

    @property
    def _wide_bytes(self) -> int:
        return 8 * (self._width + OVERSAMPLING) * self.shape.n

    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        request = validated.request
        return {
            "missing": request.missing, "preprocess": request.preprocess, "way": "sketch", "rank": self.rank,
            "powers": POWERS, "seed": request.seed,
        }  # fmt: skip

    def _decompose(self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor) -> Eigen:
        preprocess = validated.request.preprocess
        usable = ~statistics.unusable(preprocess)
        total = float(statistics.preprocessed_squares(preprocess)[usable].sum())
        return randomized_eigendecomposition(factor, total, self.rank, powers=POWERS, seed=validated.request.seed)

    def _search_costs(self, blocks: ColumnBlocks, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        if saved.eigendecomposition:
            return []
        right, left = right_product_pass(blocks, self._width).cost(), product_pass(blocks, self._width).cost()
        total = PassCost.total("eigendecomposition", [right] + POWERS * [left, right])
        p = self.shape
        return [replace(total, flops=2 * p.m * p.n * self._width * self.passes)]

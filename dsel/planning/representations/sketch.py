"""W of a chosen rank from a randomized sketch (Halko, Martinsson and Tropp, 2011), in 2 + 2q passes.

Not exact; for data that are their own targets, where neither n x n nor m x m fits.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

from dsel.config.sketch import SketchRule
from dsel.data.dataset import Dataset
from dsel.passes.base import FAN_IN, PassCost
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor, product_pass, right_product_pass
from dsel.passes.columns.column_statistics import ColumnStatistics
from dsel.passes.columns.eigendecomposition import (
    OVERSAMPLING,
    TESTS,
    Eigen,
    eigendecomposition_to_accuracy,
    randomized_eigendecomposition,
    sketch_passes,
)
from dsel.passes.statistics_cache import StatisticsCache
from dsel.planning.representations.base import SMALL_ARRAYS, Saved, gib, worker_limit
from dsel.planning.representations.row_gram import EigenReduced, usable_squares
from dsel.planning.validation import ValidatedRequest

log = logging.getLogger("dsel")

#: The rank: at least, and per column to choose.
LEAST_RANK, RANK_PER_COLUMN = 50, 5


def randomized(factor: ColumnFactor, total: float, rule: SketchRule, most: int, seed: int) -> Eigen:
    """Return the eigendecomposition that a rule asks for, of a rank of at most `most`. total: ||Z||_F^2."""
    powers, oversampling = rule.power_iterations, rule.oversampling
    if rule.accuracy is None:
        return randomized_eigendecomposition(factor, total, most, powers=powers, seed=seed, oversampling=oversampling)
    return eigendecomposition_to_accuracy(
        factor, total, rule.accuracy, most, powers=powers, seed=seed, oversampling=oversampling
    )  # fmt: skip


class Sketch(EigenReduced):
    """W of the rank or accuracy that the request asks for, by default of a rank of 5 k, at least 50."""

    name: ClassVar[str] = "sketch"
    exact: ClassVar[bool] = False

    @property
    def rule(self) -> SketchRule:
        """Return what the request asks for, or the rule for its k."""
        return self.shape.sketch or SketchRule(rank=max(LEAST_RANK, RANK_PER_COLUMN * self.shape.k))

    @property
    def rank(self) -> int:
        """Return the rank of W, at most."""
        return min(self.rule.most, self.shape.m, self.shape.n)

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
        """Return the passes for the norms, the sketch, the errors of the front and the final check."""
        return 3 + sketch_passes(self.rule.power_iterations)

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        m, n, rule = self.shape.m, self.shape.n, self.rule
        if rule.accuracy is not None:
            return f"a sketch was asked for: {rule.accuracy:g} of ||X||^2, in at most {self.rank} dimensions"
        why = f"neither {n} x {n} nor {m} x {m} fits" if self.shape.sketch is None else "a sketch was asked for"
        return f"{why}: {self.rank} dimensions of the data; the errors of the front are recomputed from the data"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        return f"{gib(self.shape.tile_bytes)} a chunk", f"W, {self.rank} x {self.shape.n}"

    @property
    def _width(self) -> int:
        """Return l, the columns of the sketch."""
        return min(self.rank + self.rule.oversampling, self.shape.m, self.shape.n)

    @property
    def _tall_bytes(self) -> int:
        return 8 * (self._width + TESTS) * self.shape.m

    @property
    def _wide_bytes(self) -> int:
        return 8 * (self._width + TESTS) * self.shape.n

    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        request = validated.request
        return {
            "missing": request.missing, "preprocess": request.preprocess, "way": "left projection", "rank": self.rank,
            "powers": self.rule.power_iterations, "seed": request.seed,
            **({} if self.rule.oversampling == OVERSAMPLING else {"oversampling": self.rule.oversampling}),
            **({} if self.rule.accuracy is None else {"accuracy": self.rule.accuracy}),
        }  # fmt: skip

    def _decompose(self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor) -> Eigen:
        request, rule = validated.request, self.rule
        total = usable_squares(statistics, request.preprocess)
        found = randomized(factor, total, rule, self.rank, request.seed)
        log.info("the sketch of rank %d captures %.4f %% of ||X||^2", found.rank, 100.0 * found.captured)
        return found

    def check_cost(
        self, dataset: Dataset, validated: ValidatedRequest, cache: StatisticsCache | None = None
    ) -> PassCost:
        """Return the cost of the errors of the front and of the final pass."""
        last = super().check_cost(dataset, validated, cache)
        front = product_pass(self.blocks(dataset), validated.request.limit).cost()
        return PassCost.total(last.name, (front, last))

    def _search_costs(self, blocks: ColumnBlocks, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        if saved.eigendecomposition:
            return []
        right, left = right_product_pass(blocks, self._width).cost(), product_pass(blocks, self._width).cost()
        total = PassCost.total("eigendecomposition", [right] + self.rule.power_iterations * [left, right] + [left])
        p = self.shape
        return [replace(total, flops=2 * p.m * p.n * self._width * self.passes)]

"""The Gram matrix K = X'X (n x n) and B = X'Y, from one pass. Every method can run on it.

The same Gram matrix, summed part by part in as many passes as its parts need (dsel.passes.moments).

The same of rows that are not there, from sums that were saved (dsel.passes.sums).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Ints
from dsel.data.blocks import filled_columns
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError
from dsel.objective.objective_interface import Objective
from dsel.passes.columns.column_statistics import target_gram
from dsel.passes.data_pass import FAN_IN, PassCost
from dsel.passes.gram import (
    fold_pass,
    fold_statistics,
    fold_sums,
    gram_pass,
    gram_statistics,
    gram_sums,
    mean_sums,
    means_pass,
    tile_passes,
)
from dsel.passes.moments import Tiling, plan_tiles
from dsel.passes.refit import Fit, fit_of_sums
from dsel.passes.statistics_cache import StatisticsCache, keeps_sums, load_or_compute
from dsel.passes.sums import Sums, needs_rows
from dsel.planning.representations import memory
from dsel.planning.representations.representation import Prepared, Representation, Saved, row_fit
from dsel.planning.validation import ValidatedRequest


class GramMatrix(Representation):
    """K and B, summed over all rows in one pass."""

    name: ClassVar[str] = "gram"
    holds_gram: ClassVar[bool] = True

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: some partial sums and two row blocks."""
        sums = (FAN_IN + 2) * self._partial_bytes
        return self.worker_limit(sums + 2 * self.shape.row_block_bytes + self.shape.needs.row_bytes)

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: K, preprocessed, and what the search makes of it."""
        return (4 + 2 * self.shape.needs.gram_sums) * 8 * self.shape.n**2

    @property
    def passes(self) -> int:
        """Return 1."""
        return 1

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        n = self.shape.n
        return f"the Gram matrix ({n} x {n}, {format_bytes(8 * n * n)}) fits, and one pass computes it"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        n = self.shape.n
        return (
            f"{format_bytes(self._partial_bytes)} a partial Gram matrix, "
            f"{format_bytes(self.shape.row_block_bytes)} a row block",
            f"the Gram matrix, {n} x {n}",
        )

    def saved(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Look for the statistics of all rows, and of all folds if the method needs them."""
        dataset, request, partition = validated.dataset, validated.request, validated.partition
        fingerprint = dataset.fingerprint
        if keeps_sums(dataset, cache):
            return self._saved_sums(validated, cache)
        if fingerprint is None:
            return Saved()
        size = 8 * dataset.n * (5 + dataset.n_targets + dataset.n) + memory.HEADER
        key = StatisticsCache.key(fingerprint, kind="gram", missing=request.missing)
        if partition is not None:
            key = StatisticsCache.key(fingerprint, kind="folds", missing=request.missing, **partition.key)
            size *= 1 + partition.parts * partition.repeats
        complete = cache.has(key)
        return Saved(complete, disk_bytes=0 if complete else size)

    def costs(self, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        """Return the costs of the Gram pass, and of the pass for the means that replace missing values."""
        if saved.statistics:
            return []
        dataset, mean = validated.dataset, validated.request.missing == "mean"
        ranges, of_means = (
            dataset.row_ranges if one is None else one for one in (saved.missing, saved.missing_means)
        )  # fmt: skip
        means = [means_pass(dataset, of_means).cost()] if mean else []
        return [*means, self._gram_cost(validated, ranges)]

    def prepare(self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None) -> Prepared:
        """Compute the Gram matrix, or load it from the cache; for cross-validation also those of the folds."""
        dataset, request, partition = validated.dataset, validated.request, validated.partition
        options: dict[str, Any] = {"missing": request.missing, "engine": engine, "cache": cache}
        folds = None
        if partition is not None:
            statistics, folds = fold_statistics(dataset, partition, **options)
        else:
            compute = partial(gram_statistics, dataset, tiling=self._tiling, **options)
            whole = None if keeps_sums(dataset, cache) else cache  # what is saved is not the sums of segments
            statistics = load_or_compute(whole, dataset, "gram", compute, missing=request.missing)
        load = None if statistics.unsupervised else partial(target_gram, dataset, statistics, request.preprocess)
        filled = filled_columns(dataset.blocks, dataset.n, request.missing == "mean")
        centering = statistics.centering_error(request.preprocess, len(dataset.blocks), filled)

        def objective(lam: float) -> Objective:
            return replace(statistics.objective(request.preprocess, lam), load_target_gram=load, centering=centering)

        return Prepared(statistics, objective, row_fit(validated, statistics, engine, cache), folds=folds)

    def _saved_sums(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Look for the sums of each segment."""
        dataset, missing, partition = validated.dataset, validated.request.missing, validated.partition
        sums = gram_sums(dataset, missing, cache)
        if partition is not None:
            sums = fold_sums(dataset, partition, missing, cache)
        ranges = sums.missing
        means = mean_sums(dataset, cache).missing if missing == "mean" and ranges else None
        parts = 1 if partition is None else partition.parts * partition.repeats
        files = len(ranges) + (1 if ranges and len(dataset.row_ranges) > 1 else 0)
        size = parts * (4 * dataset.n * (dataset.n + 11 + 2 * dataset.n_targets) + memory.HEADER)
        return Saved(not ranges, disk_bytes=files * size, missing=ranges, missing_means=means)

    @property
    def _partial_bytes(self) -> int:
        """Return the bytes of one partial sum."""
        return self.shape.needs.gram_sums * 8 * self.shape.n * (self.shape.n + self.shape.N)

    @property
    def _tiling(self) -> Tiling | None:
        """Return how K is summed in parts; None: at once."""
        return None

    def _gram_cost(self, validated: ValidatedRequest, ranges: tuple[tuple[int, int], ...]) -> PassCost:
        if validated.partition is not None:
            return fold_pass(validated.dataset, validated.partition, ranges).cost()
        return gram_pass(validated.dataset, ranges).cost()


class GivenSums(GramMatrix):
    """K and B of rows that are not there: somebody has summed them. No pass is made, not even the final check."""

    name: ClassVar[str] = "sums"
    worker_bytes: int = memory.worker_limit(0)
    passes: int = 0
    reason: str = "there are no rows, only their sums"

    def saved(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Return that all is there."""
        return Saved(statistics=True)

    def costs(self, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        """Return no pass."""
        return []

    def check_cost(self, validated: ValidatedRequest, cache: StatisticsCache | None = None) -> PassCost:
        """Return the cost of a check that reads nothing."""
        return PassCost("check")

    def prepare(self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None) -> Prepared:
        """Return the problem of the sums. Several targets have no Y'Y, which only some bounds of A* use."""
        dataset, request = validated.dataset, validated.request
        assert isinstance(dataset, Sums)
        if validated.partition is not None:
            raise needs_rows("A division of the rows into parts")
        statistics = dataset.statistics
        centering = statistics.centering_error(request.preprocess, dataset.summed_blocks)

        def objective(lam: float) -> Objective:
            return replace(statistics.objective(request.preprocess, lam), centering=centering)

        def fit(S: Ints, lam: float) -> Fit:
            return fit_of_sums(statistics, S, request.preprocess, lam)

        return Prepared(statistics, objective, fit)


class TiledGram(GramMatrix):
    """K, summed in parts, for workers that cannot hold partial sums of all of it."""

    name: ClassVar[str] = "tiled-gram"

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: some partial sums of tiles and of B, and two row blocks."""
        tiles = 0 if self._tiling is None else self._tiling.partial_bytes
        return self.worker_limit((FAN_IN + 2) * (tiles + self._vector_bytes) + 2 * self.shape.row_block_bytes)

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
        size = f"{n} x {n}, {format_bytes(8 * n * n)}"
        return f"the Gram matrix ({size}) fits here but not in a worker, which sums it in {self.passes} parts"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        tiles = 0 if self._tiling is None else self._tiling.partial_bytes
        return f"{format_bytes(tiles)} of the Gram matrix at once", f"the Gram matrix, {self.shape.n} x {self.shape.n}"

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
        if (parts := self.shape.needs.gram_sums) > 1:
            return None, f"The Gram matrices of {parts} parts of the rows are summed in one pass."
        try:
            return plan_tiles(n, min(self._tile_budget, 8.0 * n * n)), ""
        except CapacityError as error:
            return None, error.what

    @property
    def _tile_budget(self) -> float:
        """Return the bytes that a partial sum of tiles may take in a worker."""
        if self.resources.worker_memory is None:
            return math.inf
        base = memory.INTERPRETER + self.shape.library_bytes
        free = memory.TASK_SHARE * self.resources.worker_memory - base - 2 * self.shape.row_block_bytes
        return free / (FAN_IN + 2) - self._vector_bytes

    @property
    def _vector_bytes(self) -> int:
        """Return the bytes of B, the means and the ranges of the columns."""
        return 8 * self.shape.n * (self.shape.N + 8)

    def _gram_cost(self, validated: ValidatedRequest, ranges: tuple[tuple[int, int], ...]) -> PassCost:
        dataset, tiling = validated.dataset, self._tiling
        rows = dataset.row_ranges if ranges is None else ranges
        passes = [] if tiling is None else [one for row in rows for one in tile_passes(dataset, tiling, (row,))]
        return PassCost.total("Gram matrix by tiles", (one.cost() for one in passes))

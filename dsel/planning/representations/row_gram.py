"""The row Gram matrix X X' (m x m), and from it the eigen-reduced data W (r x n, r <= m) with W'W = K.

Source: eq. (8) of Wan and Schweitzer, AAAI 2021. Exact; for wide data that are their own targets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache as memoize
from typing import Any, ClassVar

import numpy as np

from dsel.config.request import Preprocess
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.objective.base import Objective
from dsel.objective.on_demand import InMemoryFactor, OnDemandObjective
from dsel.passes.base import FAN_IN, PassCost
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor, product_pass, row_gram_pass
from dsel.passes.columns.column_statistics import ColumnStatistics
from dsel.passes.columns.eigendecomposition import Eigen, exact_eigendecomposition
from dsel.passes.statistics_cache import StatisticsCache, load_or_compute
from dsel.planning.representations.base import (
    HEADER_BYTES,
    LEADING_ROWS,
    SMALL_ARRAYS,
    Prepared,
    Saved,
    gib,
    worker_limit,
)
from dsel.planning.representations.column_blocks import NEEDS_COLUMNS, NEEDS_GRAM, ColumnRepresentation
from dsel.planning.validation import ValidatedRequest


def usable_squares(statistics: ColumnStatistics, preprocess: Preprocess) -> float:
    """Return ||Z||_F^2 of the columns that vary."""
    return float(statistics.preprocessed_squares(preprocess)[~statistics.unusable(preprocess)].sum())


class EigenReduced(ColumnRepresentation):
    """Base of the representations that search on W (r x n), for data that are their own targets."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Return r, at most."""

    @property
    def unsupported(self) -> str:
        """Return that the method needs K, if it does."""
        return NEEDS_GRAM if self.shape.whole_gram else ""

    @property
    def shortage(self) -> str:
        """Return which memory is missing, or that there are targets; empty if nothing."""
        if self.shape.N:
            return "It is for data without other targets (Y = X); column-blocks is for data with targets."
        return super().shortage

    def saved(self, dataset: Dataset, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Look for the statistics of the columns and the eigendecomposition."""
        found = super().saved(dataset, validated, cache)
        if dataset.fingerprint is None:
            return found
        key = StatisticsCache.key(dataset.fingerprint, kind="eigen", **self._key_options(validated))
        if cache.has(key):
            return replace(found, eigendecomposition=True)
        return replace(found, disk_bytes=found.disk_bytes + 8 * self.rank * (dataset.m + dataset.n) + HEADER_BYTES)

    def prepare(
        self, dataset: Dataset, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None
    ) -> Prepared:
        """Compute the statistics of the columns; the eigendecomposition follows with the objective."""
        statistics, factor = self._factor(dataset, validated, engine, cache)

        @memoize
        def eigen() -> Eigen:
            return load_or_compute(
                cache, dataset, "eigen", lambda: self._decompose(dataset, validated, statistics, factor),
                **self._key_options(validated),
            )  # fmt: skip

        counts: dict[str, Any] = {"representation": self.name, "rank": self.rank}
        fit = self._fit(dataset, validated, statistics, factor, engine)
        return self._prepared(dataset, validated, Prepared(statistics, self._objective_of(eigen), fit, counts), eigen,
                              factor)  # fmt: skip

    def _objective_of(self, eigen: Callable[[], Eigen]) -> Callable[[float], Objective]:
        """Return the function that makes the objective of Y = X."""

        def objective(lam: float) -> OnDemandObjective:
            found = eigen()
            squares = np.square(found.W)
            return OnDemandObjective(
                InMemoryFactor(found.W), squares.sum(axis=0), None, found.total, lam, target_operator=found.values,
                moment_diagonal=found.values @ squares, leading_rows=LEADING_ROWS,
            )  # fmt: skip

        return objective

    def _prepared(
        self, dataset: Dataset, validated: ValidatedRequest, exact: Prepared, eigen: Callable[[], Eigen],
        factor: ColumnFactor,
    ) -> Prepared:  # fmt: skip
        """Return the problem, given what an exact eigendecomposition of Y = X makes of it."""
        return exact

    @abstractmethod
    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        """Return what a saved eigendecomposition depends on besides the data. Old caches have the same names."""

    @abstractmethod
    def _decompose(
        self, dataset: Dataset, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor
    ) -> Eigen:  # fmt: skip
        """Compute the eigendecomposition."""


class RowGram(EigenReduced):
    """W from the eigenvectors of X X'."""

    name: ClassVar[str] = "row-gram"

    @property
    def unsupported(self) -> str:
        """Return that the method needs K, or that no task would get columns of full height; empty if neither."""
        return super().unsupported or (f"X X' {NEEDS_COLUMNS}" if self.cut_in_rows else "")

    @property
    def rank(self) -> int:
        """Return min(m, n)."""
        return min(self.shape.m, self.shape.n)

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: some partial sums of X X' and two column blocks."""
        return worker_limit((FAN_IN + 2) * 8 * self.shape.m**2 + 2 * self.shape.column_block_bytes + SMALL_ARRAYS)

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: X X' with its eigenvectors, W, and the search's tables."""
        return 4 * 8 * self.shape.m**2 + 2 * 8 * self.rank * self.shape.n + self.shape.table_bytes

    @property
    def passes(self) -> int:
        """Return 4: for the norms, X X', W and the final check."""
        return 4

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        r, n = self.rank, self.shape.n
        return (
            f"n x n does not fit, W ({r} x {n}, {gib(8 * r * n)}) does; it takes a pass for the norms, two for W and "
            "one for the check"
        )

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        square, block = gib(8 * self.shape.m**2), gib(self.shape.column_block_bytes)
        return f"{square} a partial row Gram matrix, {block} a column block", f"W, {self.rank} x {self.shape.n}"

    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        request = validated.request
        return {"missing": request.missing, "preprocess": request.preprocess, "way": "rows"}

    def _decompose(
        self, dataset: Dataset, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor
    ) -> Eigen:  # fmt: skip
        return exact_eigendecomposition(factor)

    def _search_costs(self, blocks: ColumnBlocks, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        if saved.eigendecomposition:
            return []
        in_process = PassCost("eigenvectors", flops=9 * self.shape.m**3)
        passes = (row_gram_pass(blocks), product_pass(blocks, self.rank))
        return [PassCost.total("eigendecomposition", [*(one.cost() for one in passes), in_process])]

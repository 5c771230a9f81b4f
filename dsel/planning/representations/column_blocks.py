"""X itself, cut into blocks of columns over the workers. Exact; for wide data.

The diagonal of K and B come from one pass. The Gram rows of a column come when it enters a solution, some columns per
pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Ints
from dsel.data.blocks import filled_columns
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import Engine
from dsel.objective.on_demand import GramRowsObjective, OnDemandObjective
from dsel.passes.columns.column_blocks import MOST_TASKS, ColumnBlocks, stored_cells
from dsel.passes.columns.column_factor import (
    ColumnFactor,
    leading_rows_pass,
    product_pass,
    quadratic_diagonal_pass,
    residual_pass,
    row_gram_pass,
)
from dsel.passes.columns.column_statistics import (
    SIGNED,
    ColumnStatistics,
    column_means_pass,
    column_moments_pass,
    column_statistics,
    target_gram,
)
from dsel.passes.data_pass import FAN_IN, PassCost
from dsel.passes.refit import Fit
from dsel.passes.statistics_cache import StatisticsCache, load_or_compute
from dsel.passes.trial import TrialRead
from dsel.planning.representations import memory
from dsel.planning.representations.representation import Prepared, Representation, Saved, row_fit
from dsel.planning.validation import ValidatedRequest

#: The stage of a plan that fetches Gram rows.
GRAM_ROWS = "Gram rows"
#: Why a representation without K does not suit a method that needs K.
NEEDS_GRAM = "The method needs the whole Gram matrix."
#: Follows what cannot be computed where tasks get blocks of full rows.
NEEDS_COLUMNS = "needs columns of full height, and the chunks of the data are full rows."


class ColumnRepresentation(Representation):
    """Base of the representations that read X in blocks of columns."""

    @property
    def keeps_blocks(self) -> bool:
        """Return whether workers keep the blocks, so that the store is read once."""
        return False

    @property
    def cut_in_rows(self) -> bool:
        """Return whether tasks get blocks of full rows, not columns of full height."""
        p = self.shape
        return not p.in_memory and p.chunk[1] >= p.n and p.chunk[0] < p.m

    def saved(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Look for the statistics of the columns."""
        dataset = validated.dataset
        if dataset.fingerprint is None:
            return Saved()
        key = StatisticsCache.key(dataset.fingerprint, kind="columns", missing=validated.request.missing, sums=SIGNED)
        size = 8 * dataset.n * (5 + SIGNED + dataset.n_targets) + memory.HEADER
        complete = cache.has(key)
        return Saved(complete, disk_bytes=0 if complete else size)

    def costs(self, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        """Return the costs of the passes for the statistics and for the search."""
        blocks, costs = self.blocks(validated.dataset), []
        if not saved.statistics:
            if validated.request.missing == "mean":
                costs.append(column_means_pass(blocks).cost())
            costs.append(column_moments_pass(blocks).cost())
        costs += self._search_costs(blocks, saved)
        if blocks.keeps:
            costs[0] = PassCost.total(costs[0].name, (blocks.load_cost(), costs[0]))
        return costs

    def check_cost(self, validated: ValidatedRequest, cache: StatisticsCache | None = None) -> PassCost:
        """Return the cost of the final pass; where Y = X it reads all columns, and the chosen ones first."""
        dataset = validated.dataset
        blocks = self.blocks(dataset)
        if dataset.n_targets or blocks.cut_in_rows:
            return super().check_cost(validated, cache)
        k = validated.request.limit
        last = residual_pass(blocks, k).cost()
        chunks = 1 if dataset.store is None else len(dataset.store.column_bounds) - 1
        return replace(last, bytes_read=last.bytes_read + dataset.x_bytes * min(k, chunks) // chunks)

    def trial(self, dataset: Dataset) -> TrialRead:
        """Return the read of the first cell of rows and columns."""
        return TrialRead.of(dataset, next(stored_cells(dataset)))

    @abstractmethod
    def _search_costs(self, blocks: ColumnBlocks, saved: Saved) -> list[PassCost]:
        """Return the costs of the passes between the statistics and the final check."""

    def blocks(self, dataset: Dataset) -> ColumnBlocks:
        """Return the data in blocks of columns."""
        return ColumnBlocks(dataset, keep=self.keeps_blocks and self.resources.keeps_values)

    def _factor(
        self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None
    ) -> tuple[ColumnStatistics, ColumnFactor]:
        """Return the statistics of the columns, and the preprocessed data as a factor of K."""
        request, blocks = validated.request, self.blocks(validated.dataset)
        statistics = load_or_compute(
            cache, validated.dataset, "columns", lambda: column_statistics(blocks, request.missing, engine),
            missing=request.missing, sums=SIGNED,
        )  # fmt: skip
        return statistics, ColumnFactor(blocks, statistics, request.preprocess, request.missing, engine)

    def _fit(
        self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor, engine: Engine
    ) -> Callable[[Ints, float], Fit]:
        """Return the function that recomputes f(S): where Y = X over columns of full height, if tasks get them."""
        if validated.dataset.n_targets or factor.blocks.cut_in_rows:
            return row_fit(validated, statistics, engine)
        usable = ~statistics.unusable(validated.request.preprocess)
        return lambda S, lam: factor.refit(S, lam, usable)


class InColumnBlocks(ColumnRepresentation):
    """X in column blocks; the Gram rows of columns that enter a solution are computed on demand."""

    name: ClassVar[str] = "column-blocks"
    measured_counts: ClassVar[tuple[str, ...]] = ("columns_entered", "rows_fetched", "row_passes")

    @property
    def unsupported(self) -> str:
        """Return which part of K or W the method needs."""
        if self.shape.needs.eigen_factor:
            return "The method needs W, the eigen-reduced data, in this process."
        if self.shape.full_height and self.cut_in_rows:
            return f"The method {NEEDS_COLUMNS}"
        if self._row_gram and self.cut_in_rows:
            return f"X X' {NEEDS_COLUMNS}"
        return NEEDS_GRAM if self.shape.needs.whole_gram else ""

    @property
    def keeps_blocks(self) -> bool:
        """Return whether the blocks fit the workers' memory."""
        return self.resources.worker_memory is None or self._keeping_bytes <= self.resources.worker_memory

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: its share of X, or blocks read, decoded and converted one at a time."""
        if self.keeps_blocks:
            return self._keeping_bytes
        return self.worker_limit(self._task_bytes + 2 * self.shape.tile_bytes + (FAN_IN + 2) * self._square_bytes)

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: tables, Gram rows, leading rows, vectors, and X X' where Y = X."""
        p = self.shape
        vectors, leading = 8 * p.n * (6 + p.N), 4 * self.leading_rows * p.n
        rows = self._round_bytes if p.rounds else self.row_cache_bytes + 2 * self._fetched_bytes
        return p.table_bytes + rows + leading + vectors + 4 * self._square_bytes

    @property
    def passes(self) -> int:
        """Return the passes for the norms, leading rows, Gram rows, and where Y = X for X X' and M; those of rounds."""
        if self.shape.rounds:
            return 1 + 2 * self.shape.k
        return (4 if self._row_gram else 1) + bool(self.leading_rows) + self._row_passes

    @property
    def bytes_read(self) -> int:
        """Return the bytes of one pass where workers keep the blocks, else of all."""
        return self.shape.x_bytes * (1 if self.keeps_blocks else self.passes)

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        p = self.shape
        where = "kept in the workers' memory" if self.keeps_blocks else "read from the store in each pass"
        why = (
            f"few rows of the Gram matrix ({p.n} x {p.n}) take much less time than all"
            if p.rows_beat_gram
            else f"the Gram matrix ({p.n} x {p.n}) does not fit"
        )
        rounds = "a round takes a pass for a Gram row and a pass for the errors"
        work = rounds if p.rounds else f"a pass computes the Gram rows of {p.rows_per_pass} columns"
        return f"{why}; columns stay in blocks of {p.chunk[1]}, {where}, and {work}"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        return f"{format_bytes(self.shape.tile_bytes)} a chunk", "tables, Gram rows"

    @property
    def leading_rows(self) -> int:
        """Return how many rows of X this process keeps for bounds on inner products."""
        return self.shape.leading_rows if self.shape.needs.table_slots > 2 and not self.shape.rounds else 0

    @property
    def row_cache_bytes(self) -> int:
        """Return the bytes of Gram rows that are kept in memory; the others are kept on disk."""
        return 2 * self.shape.k * self.shape.gram_row_bytes

    @property
    def search_bytes(self) -> int:
        """Return the bytes of the objective on a worker: leading rows, Gram rows and vectors."""
        p = self.shape
        return 4 * self.leading_rows * p.n + self.row_cache_bytes + 8 * p.n * (6 + p.N)

    def worker_bytes_of_search(self, tables: int) -> int:
        """Return the limit of a worker that keeps its part of X next to the search's arrays."""
        return self.worker_bytes + math.ceil((self.search_bytes + tables) / memory.KEEP_SHARE)

    @property
    def planned_counts(self) -> dict[str, int]:
        """Return the counts if only the least number of columns enter a solution."""
        if self.shape.rounds:
            return {}
        return {"columns_entered": self.shape.least_entered, "row_passes": self._row_passes}

    def notes(self) -> Iterator[str]:
        """Say that the number of passes depends on the search."""
        if self.shape.rounds:
            return
        yield (
            f"a pass computes {self.shape.rows_per_pass} Gram rows, one per column that enters a solution; the plan "
            f"counts {self.shape.least_entered} columns, the least; a column that is alone in its batch takes one "
            "pass"
        )

    def prepare(self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None) -> Prepared:
        """Compute the statistics of the columns; Gram rows follow on demand."""
        statistics, factor = self._factor(validated, engine, cache)
        fit = self._fit(validated, statistics, factor, engine)
        objective = partial(self._objective, validated, statistics, factor)
        return Prepared(statistics, objective, fit, {"representation": self.name}, factor=factor)

    def _objective(
        self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor, lam: float
    ) -> OnDemandObjective:
        """Return the objective over all n columns; where Y = X, two passes give M = Z'(Z Z')Z."""
        preprocess = validated.request.preprocess
        unusable = statistics.unusable(preprocess)
        diagonal = np.where(unusable, 0.0, statistics.preprocessed_squares(preprocess))
        dataset, filled = validated.dataset, validated.request.missing == "mean"
        shared: dict[str, Any] = {
            "leading_rows": self.leading_rows, "batch": self.shape.rows_per_pass,
            "row_cache_bytes": self.row_cache_bytes,
            "centering": statistics.centering_error(
                preprocess, factor.blocks.of_rows, filled_columns(dataset.blocks, dataset.n, filled), merged=False
            ),
        }  # fmt: skip
        if not statistics.unsupervised:
            B, c = statistics.targets(preprocess, statistics.B)
            load = partial(target_gram, factor.dataset, statistics, preprocess)
            return OnDemandObjective(factor, diagonal, B, c, lam, load_target_gram=load, **shared)
        if unusable.all():
            raise statistics.no_column_varies()
        if not self._row_gram:
            return GramRowsObjective(factor, diagonal, None, float(diagonal.sum()), lam, **shared)
        G = factor.row_gram()
        return OnDemandObjective(
            factor, diagonal, None, float(diagonal.sum()), lam, target_operator=G,
            moment_diagonal=factor.quadratic_diagonal(G), **shared,
        )  # fmt: skip

    def _search_costs(self, blocks: ColumnBlocks, saved: Saved) -> list[PassCost]:
        costs: list[PassCost] = []
        if self.shape.rounds:
            return costs
        if self._row_gram:
            both = (row_gram_pass(blocks), quadratic_diagonal_pass(blocks))
            costs.append(PassCost.total("row Gram matrix", (one.cost() for one in both)))
        if self.leading_rows:
            costs.append(leading_rows_pass(blocks).cost())
        rows = product_pass(blocks, self.shape.rows_per_pass).cost()
        return [*costs, PassCost.total(GRAM_ROWS, [rows] * self._row_passes)]

    @property
    def _row_gram(self) -> bool:
        """Return whether the search needs X X', for M where Y = X."""
        return not self.shape.N and not self.shape.needs.gram_rows_alone

    @property
    def _row_passes(self) -> int:
        """Return the passes for the Gram rows of the columns that enter at least."""
        return math.ceil(self.shape.least_entered / self.shape.rows_per_pass)

    @property
    def _fetched_bytes(self) -> int:
        """Return the bytes of the Gram rows of one pass: on the workers, then here, twice while they are joined."""
        return self.shape.rows_per_pass * self.shape.gram_row_bytes

    @property
    def _task_bytes(self) -> int:
        """Return the bytes that a task holds besides the blocks that are kept."""
        p = self.shape
        if p.rounds:  # numbers of each column and of each row, a buffer for rows of a cache, and compiled code
            width = p.n if self.cut_in_rows else max(p.chunk[1], p.n // MOST_TASKS)
            numbers = 2 * (p.k + p.N + 4) * width + (p.k + 2 * p.N + 4) * p.m
            folds = p.m * p.m // max(p.needs.gram_sums, 1) * 2 if p.full_height else 0
            return 8 * (numbers + folds) + 3 * p.tile_bytes * 8 // p.itemsize + memory.SMALL_ARRAYS + memory.COMPILED
        sent = 8 * p.rows_per_pass * p.m * (2 if p.keeps_moments else 1)
        return 2 * p.tile_bytes + sent + self._fetched_bytes // max(self.resources.workers, 1) + memory.SMALL_ARRAYS

    @property
    def _round_bytes(self) -> int:
        """Return the bytes of rounds in this process: rows of K and of its factor, columns, and a cache of X."""
        p = self.shape
        kept = 3 * p.k * p.n + p.m * (p.k + 2 * p.N + 4) + (p.m * p.n if p.in_memory else 0)
        return 8 * (kept + (2 * p.m * p.m if p.full_height else 0))

    @property
    def _square_bytes(self) -> int:
        """Return the bytes of X X', needed where Y = X: M = X'(X X')X."""
        return 8 * self.shape.m**2 if self._row_gram else 0

    @property
    def _keeping_bytes(self) -> int:
        """Return the limit of a worker that keeps its share of X."""
        share = math.ceil(self.shape.x_bytes / max(self.resources.workers, 1))
        base = memory.INTERPRETER + self.shape.library_bytes
        return math.ceil((share * 1.02 + self._task_bytes + self._square_bytes + base) / memory.KEEP_SHARE)

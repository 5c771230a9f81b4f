"""The row Gram matrix X X' (m x m), and from it the eigen-reduced data W (r x n, r <= m) with W'W = K.

Source: eq. (8) of Wan and Schweitzer, AAAI 2021. Exact; for wide data that are their own targets.

The problem is reduced to W = U'X and T = U'Y, with U from a randomized eigendecomposition, in 2 + 2q passes.

Source: the initial step of Wan and Schweitzer (AAAI 2021, section 4.1) by the algorithm of Halko, Martinsson and Tropp
(2011). U (m, r) has the leading directions of X and those of Y, all of them if there are at most as many targets as the
rank. Not exact: f of k columns of the data is at least f of the reduced problem less what the k largest eigenvalues of
E'E sum to, E = Y - U T. That is what bounds are lowered by.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache as memoize
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats
from dsel.config.request import Preprocess, SketchRule
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import Engine
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import (
    ColumnFactor,
    chosen_columns_cost,
    product_pass,
    right_product_pass,
    row_gram_pass,
)
from dsel.passes.columns.column_statistics import ColumnStatistics, target_blocks, target_gram
from dsel.passes.columns.eigendecomposition import (
    OVERSAMPLING,
    TESTS,
    Eigen,
    exact_eigendecomposition,
    sketch_passes,
    sketched_eigendecomposition,
)
from dsel.passes.data_pass import FAN_IN, PassCost
from dsel.passes.statistics_cache import StatisticsCache, load_or_compute
from dsel.planning.representations import memory
from dsel.planning.representations.column_blocks import NEEDS_COLUMNS, NEEDS_GRAM, ColumnRepresentation
from dsel.planning.representations.representation import LEADING_ROWS, Prepared, Representation, Saved
from dsel.planning.validation import ValidatedRequest

#: A reduced problem with this share of ||X||^2 is all of X, but for rounding.
_ALL = 1.0 - 1e-12


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
        return NEEDS_GRAM if self.shape.needs.whole_gram else ""

    @property
    def shortage(self) -> str:
        """Return which memory is missing, or that there are targets; empty if nothing."""
        if self.shape.N:
            return "It is for data without other targets (Y = X); column-blocks is for data with targets."
        return super().shortage

    def saved(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Look for the statistics of the columns and the eigendecomposition."""
        dataset, found = validated.dataset, super().saved(validated, cache)
        if dataset.fingerprint is None:
            return found
        key = StatisticsCache.key(dataset.fingerprint, kind="eigen", **self._key_options(validated))
        if cache.has(key):
            return replace(found, eigendecomposition=True)
        return replace(found, disk_bytes=found.disk_bytes + 8 * self.rank * (dataset.m + dataset.n) + memory.HEADER)

    def prepare(self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None) -> Prepared:
        """Compute the statistics of the columns; the eigendecomposition follows with the objective."""
        statistics, factor = self._factor(validated, engine, cache)

        @memoize
        def eigen() -> Eigen:
            return load_or_compute(
                cache, validated.dataset, "eigen", lambda: self._decompose(validated, statistics, factor),
                **self._key_options(validated),
            )  # fmt: skip

        def objective(lam: float) -> OnDemandObjective:
            found = eigen()
            squares = np.square(found.W)
            return OnDemandObjective(
                InMemoryFactor(found.W), squares.sum(axis=0), None, found.total, lam, target_operator=found.values,
                moment_diagonal=found.values @ squares, leading_rows=LEADING_ROWS,
            )  # fmt: skip

        counts: dict[str, Any] = {"representation": self.name, "rank": self.rank}
        fit = self._fit(validated, statistics, factor, engine)
        return self._prepared(validated, Prepared(statistics, objective, fit, counts), eigen, factor)

    def eigen(self, validated: ValidatedRequest, engine: Engine) -> Eigen:
        """Return the eigendecomposition of the data, where no selection follows."""
        statistics, factor = self._factor(validated, engine, None)
        total = usable_squares(statistics, validated.request.preprocess)
        if not total:
            raise statistics.no_column_varies()
        return replace(self._decompose(validated, statistics, factor), total=total)

    def _prepared(
        self, validated: ValidatedRequest, exact: Prepared, eigen: Callable[[], Eigen], factor: ColumnFactor
    ) -> Prepared:
        """Return the problem, given what an exact eigendecomposition of Y = X makes of it."""
        return exact

    @abstractmethod
    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        """Return what a saved eigendecomposition depends on besides the data. Old caches have the same names."""

    @abstractmethod
    def _decompose(self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor) -> Eigen:
        """Compute the eigendecomposition."""


class RowGram(EigenReduced):
    """W from the eigenvectors of X X'."""

    name: ClassVar[str] = "row-gram"
    passes: int = 4  # for the norms, X X', W and the final check

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
        return self.worker_limit(
            (FAN_IN + 2) * 8 * self.shape.m**2 + 2 * self.shape.column_block_bytes + memory.SMALL_ARRAYS
        )

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: X X' with its eigenvectors, W, and the search's tables."""
        return 4 * 8 * self.shape.m**2 + 2 * 8 * self.rank * self.shape.n + self.shape.table_bytes

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        r, n = self.rank, self.shape.n
        return (
            f"n x n does not fit, W ({r} x {n}, {format_bytes(8 * r * n)}) does; it takes a pass for the norms, two "
            "for W and one for the check"
        )

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        square, block = format_bytes(8 * self.shape.m**2), format_bytes(self.shape.column_block_bytes)
        return f"{square} a partial row Gram matrix, {block} a column block", f"W, {self.rank} x {self.shape.n}"

    def _key_options(self, validated: ValidatedRequest) -> dict[str, Any]:
        request = validated.request
        return {"missing": request.missing, "preprocess": request.preprocess, "way": "rows"}

    def _decompose(self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor) -> Eigen:
        return exact_eigendecomposition(factor)

    def _search_costs(self, blocks: ColumnBlocks, saved: Saved) -> list[PassCost]:
        if saved.eigendecomposition:
            return []
        in_process = PassCost("eigenvectors", flops=9 * self.shape.m**3)
        passes = (row_gram_pass(blocks), product_pass(blocks, self.rank))
        return [PassCost.total("eigendecomposition", [*(one.cost() for one in passes), in_process])]


log = logging.getLogger("dsel")

#: The rank: at least, and per column to choose.
LEAST_RANK, RANK_PER_COLUMN = 50, 5


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
    def unsupported(self) -> str:
        """Return what the method needs that a reduced problem does not have; empty if nothing."""
        if self.shape.needs.gram_sums > 1 or self.shape.rounds:
            return "A reduced problem has no rows to leave out, as folds and stability selection do."
        return "" if self.shape.sketch is not None else super().unsupported

    @property
    def shortage(self) -> str:
        """Return which memory is missing, or that nobody asked for a reduced problem with targets."""
        return Representation.shortage.__get__(self) if self.shape.sketch is not None else super().shortage

    @property
    def worker_bytes(self) -> int:
        """Return the limit of a worker: chunks, partial sums, results that wait to be fetched, and what is sent."""
        p, tall, wide = self.shape, self._tall_bytes, self._wide_bytes
        if p.chunk[1] >= p.n:  # row blocks: sums of l x n, and rows of m x l that wait
            sums, waiting, sent = (FAN_IN + 2) * wide, tall, tall + wide
        else:  # column blocks: sums of m x l, and columns of l x n that wait
            sums, waiting, sent = (FAN_IN + 2) * tall, wide, 2 * tall
        return self.worker_limit(
            2 * p.tile_bytes + sums + sent + waiting // max(self.resources.workers, 1) + memory.SMALL_ARRAYS
        )

    @property
    def client_bytes(self) -> int:
        """Return the memory of this process: the factors of the sketch, and the search's tables."""
        p = self.shape
        targets = 8 * (3 * p.m * p.N + 3 * p.N**2)
        gram = 6 * 8 * p.n**2 if p.needs.whole_gram else 0
        return 3 * self._tall_bytes + 5 * self._wide_bytes + p.table_bytes + targets + gram

    @property
    def passes(self) -> int:
        """Return the passes for the norms, the sketch, the errors of the front and the final check."""
        return 3 + sketch_passes(self.rule.power_iterations)

    @property
    def reason(self) -> str:
        """Return why one would choose it."""
        m, n, rule = self.shape.m, self.shape.n, self.rule
        if rule.accuracy is not None:
            return f"reduce was asked for: {rule.accuracy:g} of ||X||^2, in at most {self.rank} dimensions"
        why = f"neither {n} x {n} nor {m} x {m} fits" if self.shape.sketch is None else "reduce was asked for"
        return f"{why}: {self.rank} dimensions of the data; the errors of the front are recomputed from the data"

    @property
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory."""
        return f"{format_bytes(self.shape.tile_bytes)} a chunk", f"W, {self.rank} x {self.shape.n}"

    @property
    def _held(self) -> int:
        """Return how many directions of the targets W has."""
        return min(self.shape.N, self.rule.most, self.shape.m)

    @property
    def _width(self) -> int:
        """Return l, the columns of the sketch."""
        return min(self.rank + self.rule.oversampling, self.shape.m, self.shape.n) + self._held

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
            **({"targets": self.shape.N} if self.shape.N else {}),
            **({} if self.rule.accuracy is None else {"accuracy": self.rule.accuracy}),
        }  # fmt: skip

    def _decompose(self, validated: ValidatedRequest, statistics: ColumnStatistics, factor: ColumnFactor) -> Eigen:
        dataset, request, held = validated.dataset, validated.request, None
        total = usable_squares(statistics, request.preprocess)
        if dataset.n_targets:
            Y = _targets(dataset, statistics, request.preprocess)
            held = Y @ np.linalg.eigh(Y.T @ Y)[1][:, ::-1][:, : self._held]
        found = sketched_eigendecomposition(factor, total, self.rule, self.rank, request.seed, held)
        log.info("the reduced problem of rank %d captures %.4f %% of ||X||^2", found.rank, 100.0 * found.captured)
        return found

    def _prepared(
        self, validated: ValidatedRequest, exact: Prepared, eigen: Callable[[], Eigen], factor: ColumnFactor
    ) -> Prepared:
        dataset, preprocess = validated.dataset, validated.request.preprocess
        statistics, counts = exact.statistics, exact.counts
        assert isinstance(statistics, ColumnStatistics)
        Y = _targets(dataset, statistics, preprocess) if dataset.n_targets else None
        total = usable_squares(statistics, preprocess) if Y is None else float(np.vdot(Y, Y))

        def left_out(k: int) -> float:
            if Y is None:
                return eigen().left_out(k)
            U = eigen().U
            E = Y - U @ (U.T @ Y)
            return float(np.square(np.linalg.svd(E, compute_uv=False)[:k]).sum()) if Y.shape[1] else 0.0

        def objective(lam: float) -> Objective:
            found = eigen()
            k = validated.most_columns
            if validated.groups is not None and found.rank < k and found.captured < _ALL:
                raise OptionError(
                    f"reduce: {validated.request.limit} groups have up to {k} columns, and a reduced problem of rank "
                    f"{found.rank} cannot tell more than {found.rank} apart.",
                    f"Give reduce a rank of at least {k}.",
                )
            counts.update(rank=found.rank, captured=found.captured, left_out=left_out(k) / total)
            counts["chance"] = found.error_chance if Y is None else 0.0
            T = None if Y is None else found.U.T @ Y
            cross = None if T is None else found.W.T @ T
            if self.shape.needs.whole_gram:
                return DenseObjective(found.W.T @ found.W, cross, total, lam)
            if T is None:
                return exact.objective(lam)
            return OnDemandObjective(
                InMemoryFactor(found.W, T), np.square(found.W).sum(axis=0), cross, total, lam,
                leading_rows=LEADING_ROWS,
                load_target_gram=partial(target_gram, dataset, statistics, preprocess),
            )  # fmt: skip

        errors = partial(factor.errors, total=total, targets=Y)
        return replace(exact, objective=objective, errors=errors, left_out=left_out)

    def check_cost(self, validated: ValidatedRequest, cache: StatisticsCache | None = None) -> PassCost:
        """Return the cost of the errors of the front and of the final pass."""
        last, k = super().check_cost(validated, cache), validated.request.limit
        blocks = self.blocks(validated.dataset)
        front = [chosen_columns_cost(blocks, k)]
        if not validated.dataset.n_targets:
            front.append(product_pass(blocks, k).cost())
        return PassCost.total(last.name, (*front, last))

    def _search_costs(self, blocks: ColumnBlocks, saved: Saved) -> list[PassCost]:
        if saved.eigendecomposition:
            return []
        right, left = right_product_pass(blocks, self._width).cost(), product_pass(blocks, self._width).cost()
        total = PassCost.total("eigendecomposition", [right] + self.rule.power_iterations * [left, right] + [left])
        p = self.shape
        return [replace(total, flops=2 * p.m * p.n * self._width * self.passes)]


def _targets(dataset: Dataset, statistics: ColumnStatistics, preprocess: Preprocess) -> Floats:
    """Return (m, N) the preprocessed targets."""
    return np.vstack([y for _, y in target_blocks(dataset, statistics, preprocess)])

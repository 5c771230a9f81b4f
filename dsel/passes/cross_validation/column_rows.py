"""Rounds of greedy RLS on wide data: K's rows of the chosen columns, and errors by blocks of columns.

A round takes two passes. The first computes the row of K of the column that was chosen last. The second computes the
errors with each next column. These need that column alone, and the coordinates h, e and g of all rows, which this
process sends along. So k rounds cost O(k m n) with a cache, in memory or on disk, and O(k^2 m n) by BLAS without one.
No array is larger than X.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import load_block
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.errors import DataError
from dsel.objective.cross_validation.kfold import FoldBlock, error_of_subset, errors_of_changes, fold_blocks
from dsel.objective.cross_validation.leave_one_out import GramRows, LooRound, n_errors
from dsel.objective.cross_validation.losses import THRESHOLD, add_errors, removal_errors, residuals, subset_errors
from dsel.passes.columns.column_blocks import Arguments, Cell, ColumnBlocks, ColumnPass
from dsel.passes.columns.column_factor import (
    ColumnFactor,
    chosen_columns_cost,
    gram_rows_pass,
    no_rows,
    preprocessed,
    row_gram_pass,
    side_by_side,
)
from dsel.passes.cross_validation.disk_cache import Target
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.data_pass import PassCost, PassRecord, record_pass


class FetchedGram:
    """Rows of K = Z'Z, computed when a round asks for them, one pass for all that are missing."""

    def __init__(self, factor: ColumnFactor, diagonal: Floats) -> None:
        self._factor, self.diagonal = factor, diagonal
        self._rows: dict[int, Floats] = {}
        self.passes = 0

    def rows(self, S: Ints) -> Floats:
        """Return (s, n) the rows S of K."""
        missing = [j for j in dict.fromkeys(S.tolist()) if j not in self._rows]
        if missing:
            self._rows |= dict(zip(missing, self._factor.gram_rows(np.asarray(missing, np.int64)), strict=True))
            self.passes += 1
        return np.array([self._rows[int(j)] for j in S]).reshape(-1, self.diagonal.size)

    def block(self, S: Ints) -> Floats:
        """Return (s, s) the rows and columns S of K, from the columns alone."""
        Z = self._factor.columns(S)
        return Z.T @ Z


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all cells of a round need: coordinates of all rows, and the place and the target of a cache.

    h (m, s), e (m, N), g (m,), flip (m, N) or None, and count (m,) are multiplied by the roots of the weights. scaling:
    rows of the scaling among the numbers per column; 0: the cells are rows of a cache. start, stop: the columns whose
    part the cells lack, and will lack. folds: the blocks of folds in place of single rows. columns: the numbers per
    column, where all cells have all columns.
    """

    h: Floats
    e: Floats
    g: Floats
    flip: Floats | None
    count: Floats
    scaling: int
    start: int
    stop: int
    target: Target | None
    folds: tuple[FoldBlock, ...] | None
    columns: Floats | None


def column_errors_pass(blocks: ColumnBlocks, chosen: int, folds: RowPartition | None = None) -> ColumnPass:
    """Return the pass of one round, with `chosen` columns chosen before. Arguments: per_column, shared."""
    m, n, N = blocks.dataset.m, blocks.dataset.n, max(1, blocks.dataset.n_targets)
    each = 2 * chosen + 8 * N if folds is None else 2 * chosen + (2 * m // folds.parts + 8 * N) * folds.repeats
    name = "leave-one-out" if folds is None else "errors of folds"
    return ColumnPass(name, blocks, _cell_errors, np.add if folds is None else no_rows, side_by_side, each, 8 * n,
                      full_height=folds is not None)  # fmt: skip


class ColumnRows(DatasetRows):
    """The rows of a dataset in blocks of columns, as `DatasetRows`, without the Gram matrix.

    folds: score subsets on folds in place of single rows.
    """

    def __init__(
        self, factor: ColumnFactor, *arguments: Any, folds: RowPartition | None = None, **options: Any
    ) -> None:
        super().__init__(factor.dataset, *arguments, **options)
        self._factor, self._folds = factor, folds
        root = factor.blocks.root
        self._root = np.ones(self._dataset.m) if root is None else root
        self._known: tuple[Floats, Floats | None] | None = None

    def _gram_rows(self) -> GramRows:
        unusable = self._statistics.unusable(self._preprocess)
        squares = self._statistics.preprocessed_squares(self._preprocess)
        return FetchedGram(self._factor, np.where(unusable, 0.0, squares))

    def _in_memory(self, round: LooRound) -> bool:
        return self._folds is None and super()._in_memory(round)

    def sweep(
        self, round: LooRound, source: Dataset | None = None, start: int = 0, stop: int = 0,
        target: Target | None = None,
    ) -> Floats:  # fmt: skip
        """Return the errors of a round; one pass for those of insertions, and none for the others."""
        e, g, h, flip, count = self._coordinates(round)
        flat = np.zeros(n_errors(round))
        folds = None if self._folds is None else tuple(fold_blocks(self._tested(), e, h, self._intercept_part()))
        flat[0] = subset_errors(e, g, flip, count) if folds is None else error_of_subset(folds)
        if round.insert:
            blocks = self._factor.blocks if source is None else ColumnBlocks(source, edges=self._factor.blocks.edges)
            scaling = self._factor.scaling if source is None else np.empty((0, round.n))
            shared = _Shared(h, e, g, flip, count, len(scaling), start + round.offset * (source is not None),
                             stop + round.offset, target, folds, None)  # fmt: skip
            flat[1 : 1 + round.n] = self._insertions(blocks, round, scaling, shared)
        if round.remove and folds is None:
            flat[1 + round.n :] = removal_errors(round, e, g, h, flip, count)
        elif round.remove and folds is not None:
            at = slice(round.offset, None)
            squares = np.square(round.F).sum(axis=0)[at]
            flat[1 + round.n :] = errors_of_changes(folds, (h @ round.F)[:, at], -squares, round.w[at])
        return self._average(flat)

    def _insertions(self, blocks: ColumnBlocks, round: LooRound, scaling: Floats, shared: _Shared) -> Floats:
        """Return (n,) the errors with each next column, in one pass."""
        columns = np.vstack([scaling, round.Q[shared.start :], round.delta, round.T.T])
        one = replace(column_errors_pass(blocks, round.members.size, self._folds), whole=shared.scaling > 0)
        self.passes += one.whole
        if blocks.by_rows:  # all tasks need all columns: they are sent once
            errors = one.run(self._engine, shared=replace(shared, columns=columns))
        else:
            errors = one.run(self._engine, per_column=columns, shared=shared)
        return np.asarray(errors)

    def _average(self, flat: Floats) -> Floats:
        return flat if self._folds is None else flat / self._folds.repeats

    def _coordinates(self, round: LooRound) -> tuple[Floats, Floats, Floats, Floats | None, Floats]:
        """Return e (m, N), g (m,), h (m, s), flip and the weights of all rows."""
        targets, flip = self._targets()
        z_S, weights = self._factor.columns(round.members), np.square(self._root)
        z_S = np.hstack([self._root[:, None], z_S]) if round.constant else z_S
        return *residuals(z_S, targets, 1.0 - round.base_leverage * weights, round), flip, weights

    def _targets(self) -> tuple[Floats, Floats | None]:
        """Return (m, N) the preprocessed targets, times the roots of the weights, and flip. They are read once."""
        if self._known is None:
            began, dataset = time.perf_counter(), self._dataset
            parts = [
                self.transform.targets(
                    load_block(b.y.compute() if b.lazy else b.y, dataset.target_columns),
                    f"{dataset.name}, row {b.start}",
                )
                for b in dataset.blocks
            ]
            targets = np.vstack([targets for targets, _ in parts])
            root, flip = self._root, None
            if self.transform.loss == "zero-one":
                labels = np.vstack([labels for _, labels in parts]) * self.transform.scale_y * THRESHOLD
                flip = labels / np.where(root > 0.0, root, np.inf)[:, None]  # rows of weight 0 count nothing
            record_pass(PassRecord("targets", 0, dataset.y_bytes, time.perf_counter() - began, whole=False))
            self._known = targets * root[:, None], flip
        return self._known

    def _intercept_part(self) -> Floats:
        """Return (m,) the roots of the leverages of the intercept."""
        return self._root / np.sqrt(self.weight) if self.intercept == "center" else np.zeros(self._root.size)

    def _tested(self) -> list[Ints]:
        """Return the rows of each fold of each repetition."""
        folds, found = self._folds, []
        assert folds is not None
        counted = self._root > 0.0
        for repetition in range(folds.repeats):
            part = folds.of_rows(0, self._dataset.m, repetition)
            for p in range(folds.parts):
                rows = np.flatnonzero((part == p) & counted)
                if rows.size == np.count_nonzero(counted):
                    raise DataError("One fold has all of the weight.", "Choose other folds (folds, seed).")
                found.append(rows)
        return found

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """Return the error of each penalty with these columns, from Z Z' of them, in one pass."""
        self.passes += 1
        G = self._factor.of_columns(members).row_gram()
        if self.intercept == "column":
            G = G + np.outer(self._root, self._root)
        values, U = scipy.linalg.eigh(G)
        values = np.maximum(values, 0.0)
        targets, flip = self._targets()
        base = np.square(self._intercept_part())
        errors = np.empty(lams.size)
        for l, lam in enumerate(lams.tolist()):
            h = U * np.sqrt(values / (values + lam))
            e, g = targets - h @ (h.T @ targets), 1.0 - base - np.square(h).sum(axis=1)
            if self._folds is None:
                errors[l] = subset_errors(e, g, flip, np.square(self._root))
            else:
                errors[l] = error_of_subset(fold_blocks(self._tested(), e, h, self._intercept_part()))
        return self._average(errors)

    def counts(self) -> dict[str, Any]:
        """Return what the rounds cost besides passes over X for errors."""
        gram = self._gram
        return {**super().counts(), "gram_row_passes": gram.passes if isinstance(gram, FetchedGram) else 0}


def penalty_cost(blocks: ColumnBlocks) -> PassCost:
    """Return the cost of comparing some ridge penalties."""
    return replace(row_gram_pass(blocks).cost(), name="lam")


def round_costs(
    blocks: ColumnBlocks, steps: list[int], fetched: int, folds: RowPartition | None, memory: bool,
    cached: dict[int, int],
) -> Iterator[PassCost]:  # fmt: skip
    """Yield the costs of rounds: rows of K, and errors.

    Parameters
    ----------
    blocks : ColumnBlocks
        The data.
    steps : list of int
        The columns that are chosen before each round.
    fetched : int
        The columns whose rows the first round asks for.
    folds : RowPartition, optional
        The folds.
    memory : bool
        Whether errors need no pass.
    cached : dict of int to int
        For the rounds that read a cache on disk, the columns since it was rewritten.
    """
    for i, chosen in enumerate(steps):
        new = fetched if i == 0 else 1
        if new:
            if not blocks.by_rows:
                yield chosen_columns_cost(blocks, new)
            yield gram_rows_pass(blocks, new).cost()
        if memory:
            continue
        cost = column_errors_pass(blocks, cached.get(i, chosen), folds).cost()
        if i in cached:
            cost = replace(cost, passes=0, bytes_read=8 * blocks.dataset.m * blocks.dataset.n)
        yield cost
    if steps:
        yield chosen_columns_cost(blocks, 1)  # the last one, for f


def _cell_errors(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    """Return (w,) the errors over the rows of a cell with each of its columns; write its part of a cache."""
    shared: _Shared = arguments.shared
    mine, p, N = slice(cell.start, cell.stop), shared.scaling, shared.e.shape[1]
    columns = arguments.columns if shared.columns is None else shared.columns
    Q, delta, T = columns[p : -1 - N], columns[-1 - N], columns[-N:]
    h, e, g, count = shared.h[mine, shared.start :], shared.e[mine], shared.g[mine], shared.count[mine]
    flip = None if shared.flip is None else shared.flip[mine]
    new = max(shared.stop - shared.start, 0) if shared.target is not None else 0
    R = np.empty(x.shape if new else (0, 0))
    errors = np.zeros(x.shape[1])
    # rows of a cache are preprocessed already
    scaling = columns[:p] if p else np.vstack([np.zeros(x.shape[1]), np.ones(x.shape[1])])
    for a, b, z in preprocessed(x, replace(arguments, columns=scaling)):
        if new:
            z -= h[:, :new] @ Q[:new, a:b]
            R[:, a:b] = z
        fit = h[:, new:] @ Q[new:, a:b]
        if shared.folds is not None:
            errors[a:b] = errors_of_changes(shared.folds, z - fit, delta[a:b], T[:, a:b].T)
            continue
        root = 1.0 / np.sqrt(np.where(delta[a:b] > 0.0, delta[a:b], np.inf))
        fit *= -root
        add_errors(np.ascontiguousarray(z), root, fit, e, g, T[:, a:b] * root, flip, count, errors[a:b])
    if shared.target is not None:
        for start, stop in shared.target.pieces(cell.start, cell.stop):
            shared.target.write(start, R[start - cell.start : stop - cell.start], left=cell.left)
    return errors

"""The passes of a selection before they are made: how many, and the bytes, tasks and flops of each kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsel.config.request import Checked
from dsel.data.dataset import Dataset
from dsel.passes.base import PassCost
from dsel.passes.cache import StatisticsCache
from dsel.passes.column_blocks import ColumnBlocks
from dsel.passes.column_factor import (
    leading_rows_pass,
    product_pass,
    quadratic_diagonal_pass,
    residual_pass,
    right_product_pass,
    row_gram_pass,
)
from dsel.passes.column_statistics import column_means_pass, column_moments_pass
from dsel.passes.folds import fold_keys, fold_pass
from dsel.passes.gram import gram_pass, means_pass, tile_passes
from dsel.passes.leave_one_out.rows import held_out_pass, loo_pass, penalty_pass, would_cache
from dsel.passes.refit import refit_pass
from dsel.passes.tiles import Tiling
from dsel.planning.prepared import reduction_key
from dsel.planning.representation import Representation

#: Bytes that a manifest and the headers of saved arrays take.
_HEADERS = 4096


def on_gram(chosen: Representation) -> bool:
    """Whether the n x n Gram matrix is made."""
    return chosen.name in ("gram", "tiles")


def reads_chosen_chunks(dataset: Dataset) -> bool:
    """Whether the last pass reads the column chunks of the chosen columns alone: which they are is not known before."""
    return dataset.store is not None and bool(dataset.n_targets) and len(dataset.store.column_bounds) > 2


@dataclass(frozen=True)
class Saved:
    """What is saved already, and needs no pass: statistics, the eigendecomposition; and the bytes of what will be."""

    statistics: bool = False
    reduction: bool = False
    disk_bytes: int = 0

    @classmethod
    def find(
        cls, dataset: Dataset, checked: Checked, chosen: Representation, artefacts: StatisticsCache | None
    ) -> Saved:
        """Look for them."""
        if artefacts is None or dataset.fingerprint is None:
            return cls()
        settings, scored = checked.settings, checked.requirements.cross_validation
        if scored is not None and scored.folds:
            key, keys = fold_keys(dataset.fingerprint, settings.missing, scored.folds, scored.repeats, settings.seed)
            one = 8 * dataset.n * (5 + dataset.n_targets + dataset.n) + _HEADERS
            there = all(map(artefacts.has, (key, *keys.values())))
            return cls(there, disk_bytes=0 if there else (1 + len(keys)) * one)
        kind = "gram" if on_gram(chosen) else "columns"
        statistics = artefacts.has(
            StatisticsCache.key(dataset.fingerprint, kind=kind, missing=checked.settings.missing)
        )
        reduced = chosen.name in ("rows", "sketch")
        reduction = reduced and artefacts.has(reduction_key(dataset, checked.settings, chosen))
        numbers = dataset.n * (5 + dataset.n_targets + (dataset.n if on_gram(chosen) else 0))
        disk = 0 if statistics else 8 * numbers + _HEADERS
        disk += 8 * chosen.rank * (dataset.m + dataset.n) + _HEADERS if reduced and not reduction else 0
        return cls(statistics, reduction, disk)


def stages_of(
    dataset: Dataset, checked: Checked, chosen: Representation, tiling: Tiling | None, saved: Saved,
    state: dict[str, Any] | None, held_out: Dataset | None, every: int | None,
) -> Iterator[PassCost]:  # fmt: skip
    """In their order, those that are still to be made. tiling: of the Gram matrix, if it is made by tiles; state: of an
    interrupted search; held_out: rows to test on; every: rounds between rewrites of a cache on disk, None without."""
    if not on_gram(chosen):
        yield from _columns(dataset, checked, chosen, saved)
    else:
        if not saved.statistics:
            yield from _statistics(dataset, checked, tiling)
        yield from _rounds(dataset, checked, state, every)
    if held_out is not None and _steps(dataset, checked):
        yield _held_out(held_out, checked)
    if on_gram(chosen) or dataset.n_targets:
        yield _check(dataset, checked)


def _statistics(dataset: Dataset, checked: Checked, tiling: Tiling | None) -> Iterator[PassCost]:
    """The means that replace missing values, and the Gram matrices."""
    if checked.settings.missing == "mean":
        yield means_pass(dataset).cost()
    if tiling is None:
        scored = checked.requirements.cross_validation
        if scored is not None and scored.folds:
            yield fold_pass(dataset, scored.folds, scored.repeats, checked.settings.seed).cost()
        else:
            yield gram_pass(dataset).cost()
        return
    yield PassCost.total("Gram matrix by tiles", (one.cost() for one in tile_passes(dataset, tiling)))


def _columns(dataset: Dataset, checked: Checked, chosen: Representation, saved: Saved) -> Iterator[PassCost]:
    """Passes over column blocks. Where workers keep them, the stored data are read by the first alone."""
    blocks, stages = ColumnBlocks(dataset, chosen.in_memory), []
    k = checked.settings.k
    if not saved.statistics:
        if checked.settings.missing == "mean":
            stages.append(column_means_pass(blocks).cost())
        stages.append(column_moments_pass(blocks).cost())
    if chosen.name == "shards":
        if not dataset.n_targets:
            both = (row_gram_pass(blocks), quadratic_diagonal_pass(blocks))
            stages.append(PassCost.total("row Gram matrix", (one.cost() for one in both)))
        if chosen.bound_rows:
            stages.append(replace(leading_rows_pass(blocks).cost(), name="rows for bounds"))
        rows = math.ceil(k / chosen.rows_a_pass)
        stages.append(PassCost.total("Gram rows", [product_pass(blocks, chosen.rows_a_pass).cost()] * rows))
    elif not saved.reduction:
        others = chosen.passes - 2  # without the norms and the check
        right = 1 if chosen.name == "rows" else (others + 1) // 2
        first = row_gram_pass(blocks) if chosen.name == "rows" else right_product_pass(blocks, chosen.rank)
        halves = [first.cost()] * right + [product_pass(blocks, chosen.rank).cost()] * (others - right)
        stages.append(replace(PassCost.total("eigendecomposition", halves), flops=chosen.flops))
    if not dataset.n_targets:
        last = residual_pass(blocks, k).cost()
        chunks = 1 if dataset.store is None else len(dataset.store.column_bounds) - 1
        fetched = dataset.x_bytes * min(k, chunks) // chunks  # the chosen columns come first
        stages.append(replace(last, bytes_read=last.bytes_read + fetched))
    stages[0] = PassCost.total(stages[0].name, (blocks.load_cost(), stages[0]))
    yield from stages


def _steps(dataset: Dataset, checked: Checked) -> int:
    """Rounds that the method makes at least: columns to insert, or to take away."""
    base, scored = checked.include.size, checked.requirements.cross_validation
    if scored is None or checked.settings.k == base:
        return 0
    if scored.direction == "backward":
        return max(0, dataset.n - checked.exclude.size - checked.settings.k)
    return min(checked.settings.k, dataset.n - checked.exclude.size) - base


def _rounds(dataset: Dataset, checked: Checked, state: dict[str, Any] | None, every: int | None) -> Iterator[PassCost]:
    """Passes of methods that value subsets on the rows of the data."""
    scored, steps = checked.requirements.cross_validation, _steps(dataset, checked)
    if scored is None or scored.folds or not steps:
        return
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    if scored.penalties and state is None:
        yield penalty_pass(dataset, scored.penalties).cost()
    direction = scored.direction
    if direction == "forward" and would_cache(dataset):
        return
    done = 0 if state is None else len(state["path"])
    first = n - checked.exclude.size if direction == "backward" else checked.include.size
    passes = []
    for step in range(done, steps):
        size = first - step if direction == "backward" else first + step
        one = loo_pass(dataset, size).cost()
        if every is not None and step > every:  # of the cache, which may be lost
            recomputed = m * n * (2 * (step % every) + 8 * N)
            one = replace(one, passes=0, bytes_read=8 * m * (n + N + 1), flops=recomputed)
        passes.append(one)
    yield PassCost.total("rounds of leave-one-out", passes)


def _held_out(held_out: Dataset, checked: Checked) -> PassCost:
    """One pass over other rows, all columns of them at most."""
    k = checked.settings.k
    return held_out_pass(held_out, k + 1, k).cost()


def _check(dataset: Dataset, checked: Checked) -> PassCost:
    """The final pass on the chosen columns: of chunked columns the widest chunks that k columns can touch."""
    k, N = checked.settings.k, dataset.n_targets or dataset.n
    columns = None
    if dataset.store is not None and dataset.n_targets:
        widths = np.diff(dataset.store.column_bounds)
        widest = np.sort(np.argsort(-widths, kind="stable")[:k])
        columns = np.asarray(dataset.store.column_bounds)[:-1][widest]
    return refit_pass(dataset, k, N, columns).cost()

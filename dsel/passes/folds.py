"""Moments of every part of the rows, from one pass: of folds, of held-out rows, of blocks to draw subsamples from."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.config.request import Missing
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.row_partition import Part, RowPartition
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.passes.gram import fill_values, partial_bytes, require_in_range
from dsel.passes.moments import Moments, block_moments, merge
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.segment_sums import Range, SegmentSums, keeps_sums
from dsel.passes.statistics import Statistics
from dsel.passes.statistics_cache import StatisticsCache, load_or_compute

#: By (repetition, part): moments during the pass, then statistics of the parts that have weight.
FoldMoments = dict[Part, Moments]
FoldStatistics = dict[Part, Statistics]


def _block_folds(
    x: Any, y: Any, block: Block, where: str, partition: RowPartition, fill: Floats | None = None
) -> FoldMoments:
    found: FoldMoments = {}
    place = f"{where}, rows {block.start} to {block.stop}"
    for repetition in range(partition.repeats):
        part = partition.of_rows(block.start, block.stop, repetition)
        for p in np.unique(part).tolist():
            rows = np.flatnonzero(part == p)
            w = None if block.w is None else block.w[rows]
            found[repetition, p] = block_moments(x[rows], None if y is None else y[rows], fill, place, block.start, w)
    return found


def _merge_folds(a: FoldMoments, b: FoldMoments) -> FoldMoments:
    for key, moments in b.items():
        a[key] = merge(a[key], moments) if key in a else moments
    return a


def fold_pass(dataset: Dataset, partition: RowPartition, ranges: tuple[Range, ...] | None = None) -> RowPass:
    """Return the pass that sums the moments of every part, by default over all segments. Argument: fill."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    per_block = partial(_block_folds, where=dataset.name, partition=partition)
    size = partition.parts * partition.repeats * partial_bytes(dataset)
    flops = partition.repeats * m * n * (n + 2 * N)
    return RowPass(
        "folds", dataset, per_block, _merge_folds, size, flops, share=partition.labels is not None,
        ranges=dataset.row_ranges if ranges is None else ranges,
    )  # fmt: skip


def fold_sums(
    dataset: Dataset, partition: RowPartition, missing: Missing, cache: StatisticsCache | None
) -> SegmentSums:
    """Return the sums of every part, as far as they are saved. A segment is saved if its rows stay in their parts."""
    reusable = missing != "mean" and partition.by_row and (dataset.row_part is None or dataset.row_part.by_row)
    options = {"missing": missing}
    return SegmentSums(dataset, cache, "folds", options, by_segment=reusable, partition=partition, extends=reusable)


def fold_statistics(
    dataset: Dataset, partition: RowPartition, *, missing: Missing = "refuse", engine: Engine = THREADS,
    cache: StatisticsCache | None = None,
) -> tuple[Statistics, FoldStatistics]:  # fmt: skip
    """Return the statistics of all rows and those of every part, from one pass (two with `missing="mean"`).

    A worker holds parts x repeats partial sums of n (n + N) float64. cache: where the sums of each segment of a store
    are saved.
    """

    def compute(ranges: tuple[Range, ...]) -> Iterator[FoldMoments]:
        fill = fill_values(dataset, missing, engine, cache)
        yield from fold_pass(dataset, partition, ranges).run_ranges(engine, fill=fill)

    found: FoldMoments = fold_sums(dataset, partition, missing, cache).total(compute, _merge_folds)
    first = [deepcopy(found[key]) for key in sorted(found) if key[0] == 0]
    moments = reduce(merge, first)
    require_in_range(dataset, moments)
    whole = Statistics.from_moments(moments)
    return whole, {key: Statistics.from_moments(found[key]) for key in sorted(found) if found[key].weight > 0.0}


def cached_fold_statistics(
    dataset: Dataset, partition: RowPartition, cache: StatisticsCache | None, *, missing: Missing = "refuse",
    engine: Engine = THREADS,
) -> tuple[Statistics, FoldStatistics]:  # fmt: skip
    """Return the same as `fold_statistics`, without a pass if the cache has all of it."""
    compute = partial(fold_statistics, dataset, partition, missing=missing, engine=engine, cache=cache)
    whole = None if keeps_sums(dataset, cache) else cache  # where the statistics are saved, not the sums of segments
    return load_or_compute(whole, dataset, "folds", compute, missing=missing, **partition.key)

"""The Gram pass: counts, means and co-moments of X and Y, on which everything else builds.

One pass also gives the moments of every part of the rows: of folds, of held-out rows, of blocks to draw subsamples
from.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dsel._lib.text import counted
from dsel._lib.types import Floats, Ints
from dsel.config.request import Missing
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.row_partition import Part, RowPartition
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import DataError
from dsel.passes.finite_values import NonFiniteError
from dsel.passes.moments import (
    Moments,
    Present,
    Strip,
    Tiling,
    block_moments,
    block_present,
    merge,
    merge_present,
)
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Statistics
from dsel.passes.statistics_cache import Range, SegmentSums, StatisticsCache, keeps_sums, load_or_compute


def gram_statistics(
    dataset: Dataset, *, missing: Missing = "refuse", engine: Engine = THREADS, tiling: Tiling | None = None,
    cache: StatisticsCache | None = None,
) -> Statistics:  # fmt: skip
    """Return the statistics of a dataset, with the Gram matrix, from one pass. Arguments: those of `gram_moments`."""
    moments = gram_moments(dataset, missing=missing, engine=engine, tiling=tiling, cache=cache)
    return Statistics.from_moments(moments)


def gram_moments(
    dataset: Dataset, *, missing: Missing = "refuse", engine: Engine = THREADS, tiling: Tiling | None = None,
    cache: StatisticsCache | None = None,
) -> Moments:  # fmt: skip
    """Return the sums of a dataset from which its statistics follow, from one pass.

    missing="mean" takes one more pass for the means; a tiling takes a pass for each of its reads. A worker holds one
    block, a float64 piece of it, and a few partial sums of n (n + N) float64. cache: where the sums of each segment of
    a store are saved.

    Errors: DataError at the first block with NaN in X (unless missing="mean") or in Y, or with infinite values.
    """
    fill: list[Floats | None] = []

    def compute(ranges: tuple[Range, ...]) -> Iterator[Moments]:
        fill[:] = fill or [fill_values(dataset, missing, engine, cache)]
        if tiling is None:
            yield from gram_pass(dataset, ranges).run_ranges(engine, fill=fill[0])
        else:
            for one in ranges:
                yield _tiled(dataset, tiling, fill[0], engine, one)

    moments: Moments = gram_sums(dataset, missing, cache).total(compute, merge)
    require_in_range(dataset, moments)
    return moments


def gram_sums(dataset: Dataset, missing: Missing, cache: StatisticsCache | None) -> SegmentSums:
    """Return the sums of the Gram matrix, as far as they are saved. The means that replace NaN depend on all rows."""
    return SegmentSums(dataset, cache, "gram", {"missing": missing}, by_segment=missing != "mean")


def mean_sums(dataset: Dataset, cache: StatisticsCache | None) -> SegmentSums:
    """Return the sums of the values that are not missing, as far as they are saved."""
    return SegmentSums(without_targets(dataset), cache, "means", {})


def gram_pass(dataset: Dataset, ranges: tuple[Range, ...]) -> RowPass:
    """Return the pass that sums the Gram matrix over some ranges of rows. Argument: fill."""
    flops = dataset.m * dataset.n * (dataset.n + 2 * dataset.n_targets)
    per_block = partial(_block_moments, where=dataset.name)
    return RowPass("Gram matrix", dataset, per_block, merge, partial_bytes(dataset), flops, ranges=ranges)


def tile_passes(dataset: Dataset, tiling: Tiling, ranges: tuple[Range, ...]) -> list[RowPass]:
    """Return the passes that sum the tiles of the Gram matrix; only the first reads the targets. Argument: fill."""
    passes = []
    for i, read in enumerate(tiling.reads):
        columns = _columns_of_read(dataset, read)
        first = 0 if columns is None else int(columns[0])
        per_block = partial(_block_moments, where=dataset.name, strips=tuple(strip.moved(first) for strip in read))
        data = dataset if i == 0 else without_targets(dataset)
        size = sum(strip.nbytes for strip in read)
        flops = 2 * dataset.m * (size // 8)
        passes.append(RowPass("tiles", data, per_block, merge, size, flops, columns, ranges=ranges))
    return passes


def means_pass(dataset: Dataset, ranges: tuple[Range, ...]) -> RowPass:
    """Return the pass that computes the means of the values that are not missing, over some ranges of rows."""
    data, size, flops = without_targets(dataset), 16 * dataset.n, dataset.m * dataset.n
    per_block = partial(_block_present, where=dataset.name)
    return RowPass("means", data, per_block, merge_present, size, flops, ranges=ranges)


def fill_values(
    dataset: Dataset, missing: Missing, engine: Engine, cache: StatisticsCache | None = None
) -> Floats | None:
    """Return (n,) the values that replace NaN: the means, from a separate pass, or None."""
    if missing != "mean":
        return None

    sums = mean_sums(dataset, cache)
    return np.asarray(sums.total(lambda ranges: means_pass(dataset, ranges).run_ranges(engine), merge_present).mean)


def partial_bytes(dataset: Dataset) -> int:
    """Return the bytes of one partial sum of K and B."""
    return 8 * dataset.n * (dataset.n + dataset.n_targets)


def without_targets(dataset: Dataset) -> Dataset:
    """Return X alone."""
    return replace(dataset, blocks=tuple(replace(b, y=None) for b in dataset.blocks), n_targets=0, y_bytes=0)


def _block_moments(
    x: Any, y: Any, block: Block, where: str, fill: Floats | None = None, strips: tuple[Strip, ...] | None = None
) -> Moments:
    return block_moments(x, y, fill, _place(where, block), block.start, block.w, strips)


def _block_present(x: Any, y: Any, block: Block, where: str) -> Present:
    return block_present(x, _place(where, block), block.start, block.w)


def _place(where: str, block: Block) -> str:
    return f"{where}, rows {block.start} to {block.stop - 1}"


def _columns_of_read(dataset: Dataset, read: tuple[Strip, ...]) -> Ints | None:
    """Return the columns that a read of tiles needs, where leaving out the others saves chunks; None for all."""
    first = min(strip.top for strip in read)
    if dataset.store is None or first < dataset.store.column_bounds[1]:
        return None
    return np.arange(first, dataset.n)


def _tiled(dataset: Dataset, tiling: Tiling, fill: Floats | None, engine: Engine, rows: Range) -> Moments:
    """Return the moments of a range of rows, with K put together from its tiles."""
    first: Moments | None = None
    K = np.zeros((dataset.n, dataset.n), order="F")
    for one in tile_passes(dataset, tiling, (rows,)):
        left = 0 if one.columns is None else int(one.columns[0])
        part = one.run(engine, fill=None if fill is None else fill[left:])
        part.K.place(K, left)
        first = first or part
        part.K = None
    assert first is not None
    return replace(first, K=K)


def require_in_range(dataset: Dataset, moments: Moments) -> None:
    """Raise DataError for columns whose squares are out of float64's range: they would be lost silently."""
    x = ("X", dataset.features, moments.squares, moments.mean_x, moments.low_x, moments.high_x)
    y = ("Y", dataset.targets, moments.yy, moments.mean_y, moments.low_y, moments.high_y)
    for variable, labels, squares, mean, low, high in (x, y):
        with np.errstate(over="ignore"):
            large = ~np.isfinite(squares + mean**2)
        small = (low < high) & (squares <= np.finfo(np.float64).tiny)
        wrong = np.flatnonzero(large | small)
        if wrong.size:
            names = ", ".join(str(labels[j]) for j in wrong[:5]) + (", ..." if wrong.size > 5 else "")
            raise DataError(
                f"{variable} has {counted(wrong.size, 'column')} whose squares are out of float64's range: {names} "
                f"(values from {low[wrong[0]]:g} to {high[wrong[0]]:g} in the first).",
                "Store them in other units.",
            )


#: By (repetition, part): moments during the pass, then statistics of the parts that have weight.
FoldMoments = dict[Part, Moments]
FoldStatistics = dict[Part, Statistics]


def _block_folds(
    x: Any, y: Any, block: Block, where: str, partition: RowPartition, fill: Floats | None = None
) -> FoldMoments:
    found: FoldMoments = {}
    for repetition in range(partition.repeats):
        part = partition.of_rows(block.start, block.stop, repetition)
        for p in np.unique(part).tolist():
            rows = np.flatnonzero(part == p)
            t, w = None if y is None else y[rows], None if block.w is None else block.w[rows]
            try:
                found[repetition, p] = block_moments(x[rows], t, fill, _place(where, block), block.start, w)
            except NonFiniteError:
                _block_moments(x, y, block, where, fill)  # its error has the rows of the block, not those of the part
                raise
    return found


def _merge_folds(a: FoldMoments, b: FoldMoments) -> FoldMoments:
    for key, moments in b.items():
        a[key] = merge(a[key], moments) if key in a else moments
    return a


def fold_pass(dataset: Dataset, partition: RowPartition, ranges: tuple[Range, ...]) -> RowPass:
    """Return the pass that sums the moments of every part, over some ranges of rows. Argument: fill."""
    per_block = partial(_block_folds, where=dataset.name, partition=partition)
    size = partition.parts * partition.repeats * partial_bytes(dataset)
    flops = partition.repeats * dataset.m * dataset.n * (dataset.n + 2 * dataset.n_targets)
    share = partition.labels is not None
    return RowPass("folds", dataset, per_block, _merge_folds, size, flops, share=share, ranges=ranges)


def fold_sums(
    dataset: Dataset, partition: RowPartition, missing: Missing, cache: StatisticsCache | None
) -> SegmentSums:
    """Return the sums of every part, as far as they are saved. A segment is saved if its rows stay in their parts."""
    reusable = missing != "mean" and partition.by_row and (dataset.row_part is None or dataset.row_part.by_row)
    return SegmentSums(dataset, cache, "folds", {"missing": missing}, by_segment=reusable, partition=partition)


def fold_statistics(
    dataset: Dataset, partition: RowPartition, cache: StatisticsCache | None, *, missing: Missing = "refuse",
    engine: Engine = THREADS,
) -> tuple[Statistics, FoldStatistics]:  # fmt: skip
    """Return the statistics of all rows and those of every part, from one pass (two with `missing="mean"`).

    A worker holds parts x repeats partial sums of n (n + N) float64. cache: where the statistics are saved, or the sums
    of each segment of a store; there is no pass if it has all of it.
    """

    def compute(ranges: tuple[Range, ...]) -> Iterator[FoldMoments]:
        fill = fill_values(dataset, missing, engine, cache)
        yield from fold_pass(dataset, partition, ranges).run_ranges(engine, fill=fill)

    def statistics() -> tuple[Statistics, FoldStatistics]:
        found: FoldMoments = fold_sums(dataset, partition, missing, cache).total(compute, _merge_folds)
        moments = reduce(merge, [deepcopy(found[key]) for key in sorted(found) if key[0] == 0])
        require_in_range(dataset, moments)
        parts = {key: Statistics.from_moments(found[key]) for key in sorted(found) if found[key].weight > 0.0}
        return Statistics.from_moments(moments), parts

    whole = None if keeps_sums(dataset, cache) else cache  # where the statistics are saved, not the sums of segments
    return load_or_compute(whole, dataset, "folds", statistics, missing=missing, **partition.key)

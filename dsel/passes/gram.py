"""The Gram pass: counts, means and co-moments of X and Y, on which everything else builds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.config.request import Missing
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.labels import Labels
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.errors import DataError
from dsel.passes.moments import Moments, Present, block_moments, block_present, merge, merge_present
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Statistics
from dsel.passes.tiles import Strip, Tiling, first_column


def gram_statistics(
    dataset: Dataset, *, missing: Missing = "refuse", engine: Engine = THREADS, tiling: Tiling | None = None
) -> Statistics:
    """Return the statistics of a dataset, with the Gram matrix, from one pass.

    missing="mean" takes one more pass for the means; a tiling takes a pass for each of its reads. A worker holds one
    block, a float64 piece of it, and a few partial sums of n (n + N) float64.

    Errors: DataError at the first block with NaN in X (unless missing="mean") or in Y, or with infinite values.
    """
    fill = fill_values(dataset, missing, engine)
    moments = gram_pass(dataset).run(engine, fill=fill) if tiling is None else _tiled(dataset, tiling, fill, engine)
    require_in_range("X", dataset.features, np.diag(moments.K), moments.mean_x, moments.low_x, moments.high_x)
    require_in_range("Y", dataset.targets, moments.yy, moments.mean_y, moments.low_y, moments.high_y)
    return Statistics.from_moments(moments)


def gram_pass(dataset: Dataset) -> RowPass:
    """Return the pass that sums the Gram matrix. Argument: fill."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    per_block = partial(_block_moments, where=dataset.name)
    return RowPass("Gram matrix", dataset, per_block, merge, partial_bytes(dataset), m * n * (n + 2 * N))


def tile_passes(dataset: Dataset, tiling: Tiling) -> list[RowPass]:
    """Return the passes that sum the tiles of the Gram matrix; only the first reads the targets. Argument: fill."""
    passes = []
    for i, read in enumerate(tiling.reads):
        columns = _columns_of_read(dataset, read)
        first = 0 if columns is None else int(columns[0])
        per_block = partial(_block_moments, where=dataset.name, strips=tuple(strip.moved(first) for strip in read))
        data = dataset if i == 0 else without_targets(dataset)
        size = sum(strip.nbytes for strip in read)
        passes.append(RowPass("tiles", data, per_block, merge, size, 2 * dataset.m * (size // 8), columns))
    return passes


def means_pass(dataset: Dataset) -> RowPass:
    """Return the pass that computes the means of the values that are not missing."""
    per_block = partial(_block_present, where=dataset.name)
    return RowPass("means", without_targets(dataset), per_block, merge_present, 16 * dataset.n, dataset.m * dataset.n)


def fill_values(dataset: Dataset, missing: Missing, engine: Engine) -> Floats | None:
    """Return (n,) the values that replace NaN: the means, from a separate pass, or None."""
    return np.asarray(means_pass(dataset).run(engine).mean) if missing == "mean" else None


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
    return f"{where}, rows {block.start} to {block.stop}"


def _columns_of_read(dataset: Dataset, read: tuple[Strip, ...]) -> Ints | None:
    """Return the columns that a read of tiles needs, where leaving out the others saves chunks; None for all."""
    first = first_column(read)
    if dataset.store is None or first < dataset.store.column_bounds[1]:
        return None
    return np.arange(first, dataset.n)


def _tiled(dataset: Dataset, tiling: Tiling, fill: Floats | None, engine: Engine) -> Moments:
    """Return moments with K put together from its tiles."""
    first: Moments | None = None
    K = np.zeros((dataset.n, dataset.n), order="F")
    for one in tile_passes(dataset, tiling):
        left = 0 if one.columns is None else int(one.columns[0])
        part = one.run(engine, fill=None if fill is None else fill[left:])
        part.K.place(K, left)
        first = first or part
        part.K = None
    assert first is not None
    return replace(first, K=K)


def require_in_range(variable: str, labels: Labels, squares: Floats, mean: Floats, low: Floats, high: Floats) -> None:
    """Raise DataError for columns whose squares are out of float64's range: they would be lost silently."""
    tiny = np.finfo(np.float64).tiny
    with np.errstate(over="ignore"):
        large = ~np.isfinite(squares + mean**2)
    small = (low < high) & (squares <= tiny)
    wrong = np.flatnonzero(large | small)
    if wrong.size:
        names = ", ".join(str(labels[j]) for j in wrong[:5]) + (", ..." if wrong.size > 5 else "")
        raise DataError(
            f"{variable} has {wrong.size} columns whose squares are out of float64's range: {names} (values from "
            f"{low[wrong[0]]:g} to {high[wrong[0]]:g} in the first).",
            "Store them in other units.",
        )

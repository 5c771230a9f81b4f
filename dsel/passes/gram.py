"""The pass that everything else lives on: counts, means and Gram matrices of X and Y."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.data.dataset import Block, Dataset, Labels
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.errors import DataError
from dsel.passes.moments import Moments, Present, block_moments, block_present, merge, merge_present
from dsel.passes.reduce_blocks import reduce_blocks
from dsel.passes.statistics import Statistics
from dsel.passes.tiles import Strip, Tiling, first_column

Missing = Literal["refuse", "mean"]


def _moments_of(
    x: Any, y: Any, block: Block, fill: NDArray[np.float64] | None, where: str, strips: tuple[Strip, ...] | None = None
) -> Any:
    return block_moments(x, y, fill, _place(where, block), block.start, block.w, strips)


def _present_of(x: Any, y: Any, block: Block, where: str) -> Present:
    return block_present(x, _place(where, block), block.start, block.w)


def _place(where: str, block: Block) -> str:
    return f"{where}, rows {block.start} to {block.stop}"


def partial_bytes(dataset: Dataset) -> int:
    """Memory of one partial sum."""
    return 8 * dataset.n * (dataset.n + dataset.n_targets)


def fill_values(dataset: Dataset, missing: Missing, engine: Engine) -> tuple[NDArray[np.float64] | None, int]:
    """What stands for NaN in each column, if anything, and the passes that took: none, or one for the means."""
    if missing != "mean":
        return None, 0
    per_block = partial(_present_of, where=dataset.name)
    present = reduce_blocks(
        without_targets(dataset), per_block, merge_present, name="present", partial_bytes=16 * dataset.n, engine=engine
    )
    return np.asarray(present.mean), 1


def gram(
    dataset: Dataset, *, missing: Missing = "refuse", engine: Engine = THREADS,
    tiling: Tiling | None = None,
) -> tuple[Statistics, int]:  # fmt: skip
    """Statistics of a dataset, and how many passes they took: one, or two with `missing="mean"`; with a tiling one for
    each of its reads.

    missing: "refuse" raises DataError at the first block with NaN in X; "mean" puts each column's mean over the values
    present in their place, for which the means are counted in a pass of their own. NaN in Y is refused.
    A worker holds one block, a float64 piece of it, and a few partial sums of n (n + N) float64.
    """
    fill, passes = fill_values(dataset, missing, engine)
    if tiling is not None:
        moments = _tiled(dataset, tiling, fill, engine)
        passes += len(tiling.reads) - 1
    else:
        per_block = partial(_moments_of, fill=fill, where=dataset.name)
        moments = reduce_blocks(
            dataset, per_block, merge, name="gram", partial_bytes=partial_bytes(dataset), engine=engine
        )
    require_in_range("X", dataset.features, np.diag(moments.K), moments.mean_x, moments.low_x, moments.high_x)
    require_in_range("Y", dataset.targets, moments.yy, moments.mean_y, moments.low_y, moments.high_y)
    return Statistics.from_moments(moments), passes + 1


def columns_of_read(dataset: Dataset, read: tuple[Strip, ...]) -> NDArray[np.int64] | None:
    """The columns that a read of tiles asks for, where leaving out the others saves chunks; None for all."""
    first = first_column(read)
    if dataset.store is None or first < dataset.store.column_bounds[1]:
        return None
    return np.arange(first, dataset.n)


def without_targets(dataset: Dataset) -> Dataset:
    """X alone."""
    return replace(dataset, blocks=tuple(replace(b, y=None) for b in dataset.blocks), n_targets=0, y_bytes=0)


def _tiled(dataset: Dataset, tiling: Tiling, fill: NDArray[np.float64] | None, engine: Engine) -> Moments:
    """Moments with K put together from the tiles; targets are read once, with the first of them."""
    first: Moments | None = None
    K = np.zeros((dataset.n, dataset.n), order="F")
    for i, read in enumerate(tiling.reads):
        columns = columns_of_read(dataset, read)
        by = 0 if columns is None else int(columns[0])
        per_block = partial(
            _moments_of, fill=None if fill is None else fill[by:], where=dataset.name,
            strips=tuple(strip.moved(by) for strip in read),
        )  # fmt: skip
        part = reduce_blocks(
            dataset if i == 0 else without_targets(dataset), per_block, merge, name=f"tiles-{i}",
            partial_bytes=sum(strip.nbytes for strip in read), columns=columns, engine=engine,
        )  # fmt: skip
        part.K.place(K, by)
        first = first or part
        part.K = None
    assert first is not None
    return replace(first, K=K)


def require_in_range(variable: str, labels: Labels, squares: Floats, mean: Floats, low: Floats, high: Floats) -> None:
    """Refuse columns whose squares leave the range of float64: they would be lost without a word."""
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

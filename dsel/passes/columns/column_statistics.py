"""Statistics of wide data: means, norms and X'Y from one pass over column blocks, without the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.config.request import Missing, Preprocess, SelectionRequest
from dsel.data.blocks import Block, dense_rows, fill_missing, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.passes.columns.column_blocks import Arguments, Cell, ColumnBlocks, ColumnPass
from dsel.passes.execution.pass_checkpoints import storable
from dsel.passes.finite_values import require_finite
from dsel.passes.gram import fill_values, require_in_range, without_targets
from dsel.passes.moments import Moments, Present, block_present, merge_present
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import ColumnScales, centers_and_scales, without_rounding

#: A cell is processed in pieces of columns of about this many bytes of float64, which stay in a core's cache.
PIECE_BYTES = 2 << 20
#: A column whose squares about its mean are less than this share of those about a value near it is constant.
_ROUNDING = 1e-12
#: How many sums with random signs each column has. They estimate 1 - correlation to about a quarter of itself.
SIGNED = 32


@storable
@dataclass(frozen=True, kw_only=True)
class ColumnStatistics(ColumnScales):
    """Sufficient statistics of m rows without the n x n Gram matrix.

    squared: (n,) squared norms about the means. sums: (n, SIGNED) sums of each column about its mean with random signs,
    by which near-copies are told.
    """

    squared: Floats
    sums: Floats

    @property
    def squares(self) -> Floats:
        """Return (n,) the squared norms of the columns of X about their means."""
        return self.squared


def column_statistics(blocks: ColumnBlocks, missing: Missing = "refuse", engine: Engine = THREADS) -> ColumnStatistics:
    """Compute the statistics in one pass, or in two with `missing="mean"`.

    A worker holds a cell and a few float64 numbers per column. Errors: DataError for values that are NaN or infinite,
    or out of range.
    """
    dataset = blocks.dataset
    fill = None
    if missing == "mean":
        fill = column_means_pass(blocks).run(engine).mean[None, :]
    moments: Moments = column_moments_pass(blocks).run(engine, per_column=fill)
    N = dataset.n_targets
    sums, per_target = moments.B[:, N:], ("mean_y", "yy", "low_y", "high_y")
    moments = replace(moments, B=moments.B[:, :N], **{name: getattr(moments, name)[:N] for name in per_target})
    require_in_range(dataset, moments)
    squared = np.where(moments.low_x == moments.high_x, 0.0, moments.K)
    return ColumnStatistics(squared=squared, sums=np.ascontiguousarray(sums), **without_rounding(moments))


def column_means_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that computes the means of the values that are not missing."""
    per_cell = partial(_present, where=blocks.dataset.name)
    return ColumnPass("means", blocks, per_cell, merge_present, partial(_join, names=("weight", "mean")), 1)


def column_moments_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that computes means, norms and X'Y. per_column: (1, n) values that replace NaN, or None."""
    per_cell = partial(_moments, where=blocks.dataset.name)
    join = partial(_join, names=("mean_x", "K", "B", "low_x", "high_x"))
    return ColumnPass(
        "columns", blocks, per_cell, _merge, join, 2 * (2 + SIGNED + blocks.dataset.n_targets), targets=True
    )


def part_squares_pass(dataset: Dataset, partition: RowPartition, repetition: int = 0) -> RowPass:
    """Return the pass of `ScalesOfParts`."""
    size, flops = 24 * partition.parts * dataset.n, 4 * partition.parts * dataset.m * dataset.n
    per_block = partial(_part_squares, partition=partition, repetition=repetition)
    return RowPass("scales", without_targets(dataset), per_block, np.add, size, flops, share=True)


def _part_squares(
    x: Any, y: Any, block: Block, partition: RowPartition, repetition: int, about: Floats, fill: Floats | None
) -> Floats:  # fmt: skip
    part = partition.of_rows(block.start, block.stop, repetition)
    shares = (part == np.arange(partition.parts)[:, None]) * (1.0 if block.w is None else block.w)
    found = np.empty((partition.parts, 3, x.shape[1]))
    found[:, 0] = shares.sum(axis=1)[:, None]
    for a, b, z in dense_pieces(x, fill):
        z -= about[a:b]
        found[:, 1, a:b] = shares @ z
        found[:, 2, a:b] = shares @ np.square(z)
    return found


@dataclass
class ScalesOfParts:
    """The scales of the columns on some parts of the rows, by the weights of the rows.

    Parameters
    ----------
    about : (n,) array
        Values near the means, which are subtracted from x in the sums.
    """

    dataset: Dataset
    partition: RowPartition
    about: Floats
    request: SelectionRequest
    engine: Engine
    _sums: dict[int, Floats] = field(default_factory=dict)

    def sums(self, repetition: int = 0) -> Floats:
        """Return (parts, 3, n) sums over each part: of 1, x and x^2 by the weights of the rows.

        Those of a new repetition take one pass over rows, and one more with ``missing="mean"``.
        """
        if repetition not in self._sums:
            fill = fill_values(self.dataset, self.request.missing, self.engine)
            made = part_squares_pass(self.dataset, self.partition, repetition)
            self._sums[repetition] = np.asarray(made.run(self.engine, about=self.about, fill=fill))
        return self._sums[repetition]

    def of(self, sums: Floats) -> Floats:
        """Return (n,) the scales on rows with the sums (3, n)."""
        weight, total, squares = sums
        mean = total / weight
        varying = squares - mean * total
        varying = np.where(varying > _ROUNDING * squares, varying, 0.0)
        return centers_and_scales(self.request.preprocess, weight, self.about + mean, varying)[1]


def target_gram(
    dataset: Dataset, statistics: ColumnScales, preprocess: Preprocess,
    holds: Callable[[int, int], NDArray[np.bool_]] | None = None,
) -> Floats:  # fmt: skip
    """Return (N, N) Y'Y of the preprocessed targets, read in this process block by block.

    holds: ``holds(start, stop)`` returns which of these rows count, by default all.
    """
    T = np.zeros((dataset.n_targets, dataset.n_targets))
    for start, y in target_blocks(dataset, statistics, preprocess):
        y = y if holds is None else y[holds(start, start + len(y))]
        T += y.T @ y
    return T


def target_blocks(
    dataset: Dataset, statistics: ColumnScales, preprocess: Preprocess
) -> Iterator[tuple[int, Floats]]:  # fmt: skip
    """Yield the first row and the values of each block of the preprocessed targets, read in this process."""
    scaling = statistics.scaling(preprocess)
    for block in dataset.blocks:
        part = block.y.compute() if block.lazy else block.y
        w = load_weights(block.w)
        y = dense_rows(load_block(part, dataset.target_columns), 0, block.stop - block.start)
        yield block.start, (y - scaling.center_y) / scaling.scale_y * (1.0 if w is None else np.sqrt(w)[:, None])


@np.errstate(over="ignore", invalid="ignore")
def _moments(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> Moments:
    """Compute the moments of one cell, with the diagonal of K alone. Random signs are further targets.

    arguments.columns (1, w), if any: values that replace NaN.
    """
    fill = None if arguments.columns is None else arguments.columns[0]
    r, w = x.shape
    root = np.ones(r) if arguments.root is None else arguments.root
    counted, weight = root > 0.0, float(root @ root)
    over = weight or 1.0
    t = dense_rows(y, 0, r) if y is not None else np.empty((r, 0))
    place = f"{where}, rows {cell.start} to {cell.stop - 1}"
    require_finite(t, place, "Y", cell.start)
    t = np.hstack([t, np.where(counted, 1.0 / np.where(counted, root, 1.0), 0.0)[:, None] * _signs(cell.start, r)])
    low_y = t.min(axis=0, initial=np.inf, where=counted[:, None])
    high_y = t.max(axis=0, initial=-np.inf, where=counted[:, None])
    mean_y = np.square(root) @ t / over
    t = (t - mean_y) * root[:, None]
    found = Moments(
        int(counted.sum()), weight, np.empty(w), mean_y, np.empty(w), np.empty((w, t.shape[1])),
        np.einsum("rt,rt->t", t, t), np.empty(w), np.empty(w), low_y, high_y,
    )  # fmt: skip
    for a, b, z in dense_pieces(x, fill):
        low, high = z.min(axis=0), z.max(axis=0)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            require_finite(z, place, "X", cell.start, cell.left + a)
        if not counted.all():
            low = z.min(axis=0, initial=np.inf, where=counted[:, None])
            high = z.max(axis=0, initial=-np.inf, where=counted[:, None])
        found.low_x[a:b], found.high_x[a:b] = low, high
        mean = z.mean(axis=0) if arguments.root is None else np.square(root) @ z / over
        z -= mean
        if arguments.root is not None:
            z *= root[:, None]
        rest = root @ z  # what rounding left of the sums about the computed means
        found.mean_x[a:b] = mean + rest / over
        found.K[a:b] = np.einsum("rw,rw->w", z, z) - rest * rest / over
        found.B[a:b] = z.T @ t
    return found


def _signs(start: int, rows: int) -> Floats:
    """Return (rows, SIGNED) signs, which depend on the numbers of the rows only (splitmix64)."""
    z = (np.arange(start, start + rows, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    bits = (z ^ (z >> np.uint64(31)))[:, None] >> np.arange(SIGNED, dtype=np.uint64)
    return np.asarray(1.0 - 2.0 * (bits & np.uint64(1)))


def _merge(a: Moments, b: Moments) -> Moments:
    """Merge the moments of other rows of the same columns."""
    total = a.weight + b.weight
    share = b.weight / total if total else 0.0
    d_x, d_y, weight = b.mean_x - a.mean_x, b.mean_y - a.mean_y, a.weight * share
    return Moments(
        a.count + b.count, total, a.mean_x + share * d_x, a.mean_y + share * d_y, a.K + b.K + weight * d_x * d_x,
        a.B + b.B + weight * np.outer(d_x, d_y), a.yy + b.yy + weight * d_y * d_y,
        np.minimum(a.low_x, b.low_x), np.maximum(a.high_x, b.high_x),
        np.minimum(a.low_y, b.low_y), np.maximum(a.high_y, b.high_y),
    )  # fmt: skip


def _join(parts: list[Any], names: tuple[str, ...]) -> Any:
    """Join the results of consecutive columns. names: what they have of each column."""
    of_columns: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    return replace(parts[0], **of_columns)


def _present(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> Present:
    w = None if arguments.root is None else np.square(arguments.root)
    return block_present(x, f"{where}, rows {cell.start} to {cell.stop - 1}", cell.start, w)


def dense_pieces(x: Any, fill: Floats | None) -> Iterator[tuple[int, int, Floats]]:
    """Yield the columns [a, b) of a cell as float64, piece by piece. Each overwrites the buffer of the one before.

    fill: (w,) values that replace NaN.
    """
    r, w = x.shape
    step = max(16, PIECE_BYTES // (8 * max(r, 1)))
    buffer = np.empty((r, min(step, w)))
    for a in range(0, w, step):
        b = min(a + step, w)
        z, part = buffer[:, : b - a], x[:, a:b]
        z[...] = part.toarray() if hasattr(part, "toarray") else part
        fill_missing(z, None if fill is None else fill[a:b])
        yield a, b, z

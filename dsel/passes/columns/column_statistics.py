"""Statistics of wide data: means, norms and X'Y from one pass over column blocks, without the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.config.request import Missing, Preprocess
from dsel.data.blocks import dense_rows, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.passes.columns.column_blocks import Arguments, Cell, ColumnBlocks, ColumnPass
from dsel.passes.execution.pass_checkpoints import storable
from dsel.passes.gram import require_in_range
from dsel.passes.moments import Present, block_present, merge_present, require_finite
from dsel.passes.statistics import ColumnScales, constant_columns

#: A cell is processed in pieces of columns of about this many bytes of float64, which stay in a core's cache.
PIECE_BYTES = 2 << 20


@dataclass(frozen=True)
class ColumnStatistics(ColumnScales):
    """Sufficient statistics of m rows without the n x n Gram matrix.

    squared: (n,) squared norms about the means; B: (n, N) X'Y about the means (no columns where Y = X); the other
    fields as in `Statistics`.
    """

    m: int
    weight: float
    mean_x: Floats
    mean_y: Floats
    squared: Floats
    B: Floats
    yy: Floats
    constant: NDArray[np.bool_]
    constant_y: NDArray[np.bool_]

    @property
    def squares(self) -> Floats:
        """Return (n,) the squared norms of the columns of X about their means."""
        return self.squared

    @property
    def consistent(self) -> bool:
        """Return whether the shapes of the arrays fit together."""
        n, N = self.mean_x.size, self.mean_y.size
        x, y = (self.squared, self.constant), (self.yy, self.constant_y)
        return self.m > 0 and self.weight > 0 and all(v.shape == (n,) for v in x) and all(v.shape == (N,) for v in y)


def column_statistics(blocks: ColumnBlocks, missing: Missing = "refuse", engine: Engine = THREADS) -> ColumnStatistics:
    """Compute the statistics in one pass, or in two with `missing="mean"`.

    A worker holds a cell and a few float64 numbers per column. Errors: DataError for values that are NaN or infinite,
    or out of range.
    """
    dataset = blocks.dataset
    fill = None
    if missing == "mean":
        fill = column_means_pass(blocks).run(engine).mean[None, :]
    found: _ColumnMoments = column_moments_pass(blocks).run(engine, per_column=fill)
    require_in_range("X", dataset.features, found.squared, found.mean_x, found.low, found.high)
    require_in_range("Y", dataset.targets, found.yy, found.mean_y, found.low_y, found.high_y)
    constant = constant_columns(found.low, found.high, found.squared, found.weight)
    constant_y = constant_columns(found.low_y, found.high_y, found.yy, found.weight)
    return ColumnStatistics(
        found.count, found.weight, np.where(constant, found.low, found.mean_x),
        np.where(constant_y, found.low_y, found.mean_y), found.squared, found.B, found.yy, constant, constant_y,
    )  # fmt: skip


def column_means_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that computes the means of the values that are not missing."""
    dataset = blocks.dataset
    per_cell = partial(_present, where=dataset.name)
    return ColumnPass("means", blocks, per_cell, merge_present, _join_present, dataset.m * dataset.n)


def column_moments_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that computes means, norms and X'Y. per_column: (1, n) values that replace NaN, or None."""
    dataset = blocks.dataset
    flops = 2 * dataset.m * dataset.n * (2 + dataset.n_targets)
    return ColumnPass("columns", blocks, partial(_moments, where=dataset.name), _merge, _join, flops, targets=True)


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


@storable
@dataclass
class _ColumnMoments:
    """Moments of some cells, as `Moments`, but with the diagonal of K alone."""

    count: int
    weight: float
    mean_x: Floats
    squared: Floats
    B: Floats
    low: Floats
    high: Floats
    mean_y: Floats
    yy: Floats
    low_y: Floats
    high_y: Floats


@np.errstate(over="ignore", invalid="ignore")
def _moments(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> _ColumnMoments:
    """Compute the moments of one cell; arguments.columns (1, w), if any: values that replace NaN."""
    fill = None if arguments.columns is None else arguments.columns[0]
    r, w = x.shape
    root = np.ones(r) if arguments.root is None else arguments.root
    counted, weight = root > 0.0, float(root @ root)
    over = weight or 1.0
    t = dense_rows(y, 0, r) if y is not None else np.empty((r, 0))
    place = f"{where}, rows {cell.start} to {cell.stop}"
    require_finite(t, place, "Y", cell.start)
    low_y = t.min(axis=0, initial=np.inf, where=counted[:, None])
    high_y = t.max(axis=0, initial=-np.inf, where=counted[:, None])
    mean_y = np.square(root) @ t / over
    t = (t - mean_y) * root[:, None]
    found = _ColumnMoments(
        r, weight, np.empty(w), np.empty(w), np.empty((w, t.shape[1])), np.empty(w), np.empty(w),
        mean_y, np.einsum("rt,rt->t", t, t), low_y, high_y,
    )  # fmt: skip
    edges = pieces(r, w)
    buffer = np.empty((r, edges[0][1]))
    for a, b in edges:
        z, part = buffer[:, : b - a], x[:, a:b]
        z[...] = part.toarray() if hasattr(part, "toarray") else part
        if fill is not None:
            rows, columns = np.nonzero(np.isnan(z))
            z[rows, columns] = fill[a:b][columns]
        low, high = z.min(axis=0), z.max(axis=0)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            require_finite(z, place, "X", cell.start, cell.left + a)
        if not counted.all():
            low = z.min(axis=0, initial=np.inf, where=counted[:, None])
            high = z.max(axis=0, initial=-np.inf, where=counted[:, None])
        found.low[a:b], found.high[a:b] = low, high
        mean = z.mean(axis=0) if arguments.root is None else np.square(root) @ z / over
        z -= mean
        if arguments.root is not None:
            z *= root[:, None]
        rest = root @ z  # what rounding left of the sums about the computed means
        found.mean_x[a:b] = mean + rest / over
        found.squared[a:b] = np.einsum("rw,rw->w", z, z) - rest * rest / over
        found.B[a:b] = z.T @ t
    return found


def _merge(a: _ColumnMoments, b: _ColumnMoments) -> _ColumnMoments:
    """Merge the moments of other rows of the same columns."""
    total = a.weight + b.weight
    share = b.weight / total if total else 0.0
    d_x, d_y, weight = b.mean_x - a.mean_x, b.mean_y - a.mean_y, a.weight * share
    return _ColumnMoments(
        a.count + b.count, total, a.mean_x + share * d_x, a.squared + b.squared + weight * d_x * d_x,
        a.B + b.B + weight * np.outer(d_x, d_y), np.minimum(a.low, b.low), np.maximum(a.high, b.high),
        a.mean_y + share * d_y, a.yy + b.yy + weight * d_y * d_y,
        np.minimum(a.low_y, b.low_y), np.maximum(a.high_y, b.high_y),
    )  # fmt: skip


def _join(parts: list[_ColumnMoments]) -> _ColumnMoments:
    """Join the moments of consecutive columns."""
    first = parts[0]
    x = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("mean_x", "squared", "B", "low", "high")}
    return _ColumnMoments(
        first.count, first.weight, x["mean_x"], x["squared"], x["B"], x["low"], x["high"], first.mean_y,
        first.yy, first.low_y, first.high_y,
    )  # fmt: skip


def _present(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> Present:
    w = None if arguments.root is None else np.square(arguments.root)
    return block_present(x, f"{where}, rows {cell.start} to {cell.stop}", cell.start, w)


def _join_present(parts: list[Present]) -> Present:
    return Present(np.concatenate([p.weight for p in parts]), np.concatenate([p.mean for p in parts]))


def pieces(r: int, w: int) -> list[tuple[int, int]]:
    """Return the column ranges in which a cell of r rows and w columns is processed."""
    step = max(16, PIECE_BYTES // (8 * max(r, 1)))
    return [(a, min(a + step, w)) for a in range(0, w, step)]

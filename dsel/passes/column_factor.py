"""Statistics of wide data: what a pass over column blocks leaves, and the factor Z of K = Z'Z.

Z is X preprocessed (centred, scaled, missing values filled), piece by piece as it is read; it is never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.data.dataset import Dataset, dense_rows, load_block, load_weights
from dsel.errors import DataError
from dsel.objective.on_demand import OnDemandObjective
from dsel.passes.column_blocks import Arguments, Cell, ColumnBlocks, stack_columns, stack_rows
from dsel.passes.gram import Missing, require_in_range
from dsel.passes.moments import Present, block_present, merge_present, require_finite
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales, Preprocess, Scaling, constant_columns

#: A cell is worked through in pieces of columns of about this many bytes of float64, which stay in a core's cache.
PIECE_BYTES = 2 << 20


@dataclass(frozen=True)
class ColumnStatistics(ColumnScales):
    """Sufficient statistics of m rows without the n x n Gram matrix: means, squared norms about them (`squared`), and
    B: (n, N) X'Y about the means (no columns where Y = X)."""

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
        """(n,) squared norms of the columns of X about their means."""
        return self.squared

    @property
    def consistent(self) -> bool:
        """Whether the arrays belong together."""
        n, N = self.mean_x.size, self.mean_y.size
        x, y = (self.squared, self.constant), (self.yy, self.constant_y)
        return self.m > 0 and self.weight > 0 and all(v.shape == (n,) for v in x) and all(v.shape == (N,) for v in y)


@dataclass
class _Part:
    """Of one cell, or of cells one below the other: as Moments, of the diagonal alone."""

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
def _moments_of(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> _Part:
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
    found = _Part(
        r, weight, np.empty(w), np.empty(w), np.empty((w, t.shape[1])), np.empty(w), np.empty(w),
        mean_y, np.einsum("rt,rt->t", t, t), low_y, high_y,
    )  # fmt: skip
    edges = pieces(r, w)
    room = np.empty((r, edges[0][1]))
    for a, b in edges:
        z, part = room[:, : b - a], x[:, a:b]
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
        rest = root @ z
        found.mean_x[a:b] = mean + rest / over
        found.squared[a:b] = np.einsum("rw,rw->w", z, z) - rest * rest / over
        found.B[a:b] = z.T @ t
    return found


def _merge(a: _Part, b: _Part) -> _Part:
    total = a.weight + b.weight
    share = b.weight / total if total else 0.0
    d_x, d_y, weight = b.mean_x - a.mean_x, b.mean_y - a.mean_y, a.weight * share
    return _Part(
        a.count + b.count, total, a.mean_x + share * d_x, a.squared + b.squared + weight * d_x * d_x,
        a.B + b.B + weight * np.outer(d_x, d_y), np.minimum(a.low, b.low), np.maximum(a.high, b.high),
        a.mean_y + share * d_y, a.yy + b.yy + weight * d_y * d_y,
        np.minimum(a.low_y, b.low_y), np.maximum(a.high_y, b.high_y),
    )  # fmt: skip


def _join(parts: list[_Part]) -> _Part:
    first = parts[0]
    x = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("mean_x", "squared", "B", "low", "high")}
    return _Part(
        first.count, first.weight, x["mean_x"], x["squared"], x["B"], x["low"], x["high"], first.mean_y,
        first.yy, first.low_y, first.high_y,
    )  # fmt: skip


def _present_of(x: Any, y: Any, cell: Cell, arguments: Arguments, where: str) -> Present:
    w = None if arguments.root is None else np.square(arguments.root)
    return block_present(x, f"{where}, rows {cell.start} to {cell.stop}", cell.start, w)


def _join_present(parts: list[Present]) -> Present:
    return Present(np.concatenate([p.weight for p in parts]), np.concatenate([p.mean for p in parts]))


def pieces(r: int, w: int) -> list[tuple[int, int]]:
    """Columns of a cell of r rows, a piece at a time."""
    step = max(16, PIECE_BYTES // (8 * max(r, 1)))
    return [(a, min(a + step, w)) for a in range(0, w, step)]


def column_statistics(blocks: ColumnBlocks, missing: Missing = "refuse") -> ColumnStatistics:
    """Statistics from one pass, or two with `missing="mean"`. A worker holds a cell and a few float64 a column.

    Errors: DataError for values that are NaN or infinite, or out of range.
    """
    dataset = blocks.dataset
    fill = None
    if missing == "mean":
        fill = blocks.run(partial(_present_of, where=dataset.name), merge_present, _join_present, name="present").mean[
            None, :
        ]
    found: _Part = blocks.run(
        partial(_moments_of, where=dataset.name), _merge, _join, name="columns", argument=fill, targets=True
    )
    require_in_range("X", dataset.features, found.squared, found.mean_x, found.low, found.high)
    require_in_range("Y", dataset.targets, found.yy, found.mean_y, found.low_y, found.high_y)
    constant = constant_columns(found.low, found.high, found.squared, found.weight)
    constant_y = constant_columns(found.low_y, found.high_y, found.yy, found.weight)
    return ColumnStatistics(
        found.count, found.weight, np.where(constant, found.low, found.mean_x),
        np.where(constant_y, found.low_y, found.mean_y), found.squared, found.B, found.yy, constant, constant_y,
    )  # fmt: skip


def preprocessed(x: Any, arguments: Arguments) -> Iterator[tuple[int, int, Floats]]:
    """Columns [a, b) of a cell of Z, piece by piece, all in the same room: the next piece overwrites the one before.

    arguments.columns (2 or 3, w): centre, 1 / scale (0: the column counts as zero), and what stands for NaN.
    """
    r, w = x.shape
    edges, argument = pieces(r, w), arguments.columns
    room = np.empty((r, edges[0][1])) if edges else np.empty((r, 0))
    for a, b in edges:
        z, part = room[:, : b - a], x[:, a:b]
        z[...] = part.toarray() if hasattr(part, "toarray") else part
        if argument.shape[0] > 2:
            rows, columns = np.nonzero(np.isnan(z))
            z[rows, columns] = argument[2, a:b][columns]
        z -= argument[0, a:b]
        z *= argument[1, a:b]
        if arguments.root is not None:
            z *= arguments.root[:, None]
        yield a, b, z


@dataclass
class _Residuals:
    """Of some columns Z: squared residuals and squared norms, summed, and coefficients C = Q'Z (s, w)."""

    left: float
    total: float
    C: Floats


def _residuals_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> _Residuals:
    """Q (m + s, s): orthonormal columns, the last s rows those of the ridge penalty."""
    Q = arguments.shared
    top, bottom = Q[: x.shape[0]], Q[x.shape[0] :]
    left = total = 0.0
    C = np.empty((Q.shape[1], x.shape[1]))
    for a, b, z in preprocessed(x, arguments):
        C[:, a:b] = c = top.T @ z
        total += float(np.vdot(z, z))
        z -= top @ c
        rest = bottom @ c
        left += float(np.vdot(z, z)) + float(np.vdot(rest, rest))
    return _Residuals(left, total, C)


def _join_residuals(parts: list[_Residuals]) -> _Residuals:
    return _Residuals(sum(p.left for p in parts), sum(p.total for p in parts), np.hstack([p.C for p in parts]))


def _product_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    V = arguments.shared
    out = np.empty((V.shape[1], x.shape[1]))
    rows = np.ascontiguousarray(V[cell.start : cell.stop].T)
    for a, b, z in preprocessed(x, arguments):
        out[:, a:b] = rows @ z
    return out


def _leading_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> NDArray[np.float32]:
    rows = arguments.shared
    mine = rows[(cell.start <= rows) & (rows < cell.stop)] - cell.start
    mine_alone = replace(arguments, root=None if arguments.root is None else arguments.root[mine])
    out, x = np.empty((x.shape[1], mine.size), np.float32), x[mine]
    for a, b, z in preprocessed(x, mine_alone):
        out[a:b] = z.T
    return out


def _right_product_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    """arguments.columns: those of `preprocessed`, then the rows of R' (l, w)."""
    known = 2 if arguments.shared else 3
    R, its_own = arguments.columns[known:], replace(arguments, columns=arguments.columns[:known])
    out = np.zeros((x.shape[0], R.shape[0]))
    for a, b, z in preprocessed(x, its_own):
        out += z @ R[:, a:b].T
    return out


def _row_gram_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    G = np.zeros((x.shape[0], x.shape[0]))
    for _, _, z in preprocessed(x, arguments):
        G += z @ z.T
    return G


def _through_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    T = arguments.shared
    out = np.empty(x.shape[1])
    for a, b, z in preprocessed(x, arguments):
        out[a:b] = np.einsum("rw,rw->w", z, T @ z)
    return out


def _chosen_of(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    S = arguments.shared
    first, last = np.searchsorted(S, (cell.left, cell.right))
    mine = S[first:last] - cell.left
    its_own = replace(arguments, columns=arguments.columns[:, mine])
    out = np.empty((x.shape[0], mine.size))
    for a, b, z in preprocessed(x[:, mine], its_own):
        out[:, a:b] = z
    return out


def _add(a: Any, b: Any) -> Any:
    return a + b


def _beside(parts: list[Any]) -> Any:
    return np.concatenate(parts, axis=-1)


def _below(parts: list[Any]) -> Any:
    return np.concatenate(parts, axis=0)


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class ColumnFactor:
    """Z (m, n) as a `Factor`: columns and products by passes over column blocks, from the store or the workers'
    memory."""

    def __init__(self, blocks: ColumnBlocks, statistics: ColumnStatistics, preprocess: Preprocess, missing: Missing):
        self._blocks = blocks
        scaling = statistics.scaling(preprocess)
        by = np.where(statistics.unusable(preprocess), 0.0, 1.0 / scaling.scale_x)
        rows = [scaling.center_x, by] + ([statistics.mean_x] if missing == "mean" else [])
        self._argument = np.ascontiguousarray(np.vstack(rows))
        self.shape = (blocks.dataset.m, blocks.dataset.n)

    @property
    def dataset(self) -> Dataset:
        """The data."""
        return self._blocks.dataset

    @property
    def passes(self) -> int:
        """Passes over the stored data so far."""
        return self._blocks.reads

    def columns(self, S: NDArray[np.int64]) -> Floats:
        """(m, s); the chunks of these columns alone are read."""
        order = np.argsort(S, kind="stable")
        ascending, back = np.unique(S[order], return_inverse=True)
        found = self._blocks.run(
            _chosen_of, stack_rows, _beside, name="chosen", argument=self._argument, shared=ascending, only=ascending
        )
        out = np.empty((found.shape[0], S.size))
        out[:, order] = found[:, back]
        return out

    def products(self, V: Floats) -> Floats:
        """(c, n) V'Z: one pass."""
        found: Floats = self._blocks.run(_product_of, _add, _beside, name="products", argument=self._argument, shared=V)
        return found

    def right_products(self, Rt: Floats) -> Floats:
        """(m, l) Z R for R' (l, n): one pass. A task gets its columns of R' alone."""
        found: Floats = self._blocks.run(
            _right_product_of, stack_rows, _sum, name="right", argument=np.vstack([self._argument, Rt]),
            shared=self._argument.shape[0] == 2, additive=True,
        )  # fmt: skip
        return found

    def leading(self, p: int) -> NDArray[np.float32]:
        """(n, p) rows of Z evenly spread: one pass."""
        rows = np.unique(np.linspace(0, self.shape[0] - 1, p).astype(np.int64))
        found: NDArray[np.float32] = self._blocks.run(
            _leading_of, stack_columns, _below, name="leading", argument=self._argument, shared=rows
        )
        return found

    def refit(self, S: NDArray[np.int64], lam: float, usable: NDArray[np.bool_]) -> Fit:
        """f(S) where Y = X, by QR of the columns S and one pass over all columns of full height; coefficients (s,
        usable columns)."""
        Q, R = np.linalg.qr(np.vstack([self.columns(S), np.sqrt(lam) * np.eye(S.size)]))
        found: _Residuals = self._blocks.run(
            _residuals_of, _no_rows, _join_residuals, name="refit", argument=self._argument, shared=Q, full_height=True
        )
        w = scipy.linalg.solve_triangular(R, found.C[:, usable]) if S.size else found.C[:, usable]
        return Fit(found.left, found.left - lam * float(np.vdot(w, w)), found.total, np.asarray(w))

    def row_gram(self) -> Floats:
        """(m, m) Z Z': one pass, a worker holding columns of full height. O(m^2 n)."""
        found: Floats = self._blocks.run(
            _row_gram_of, _no_rows, _sum, name="row-gram", argument=self._argument, additive=True, full_height=True
        )
        return found

    def through_diagonal(self, T: Floats) -> Floats:
        """(n,) the diagonal of Z'TZ: one pass, likewise."""
        found: Floats = self._blocks.run(
            _through_of, _no_rows, _beside, name="through", argument=self._argument, shared=T, full_height=True
        )
        return found


def _no_rows(a: Any, b: Any) -> Any:
    raise DataError(
        "This needs columns of full height, and the chunks of the store are full rows.",
        "Write it again with chunks cut in columns (chunks=(rows, columns)).",
    )


def target_gram(dataset: Dataset, statistics: ColumnScales, preprocess: Preprocess) -> Floats:
    """(N, N) Y'Y of the preprocessed targets, read in this process block by block."""
    scaling = statistics.scaling(preprocess)
    T = np.zeros((dataset.n_targets, dataset.n_targets))
    for block in dataset.blocks:
        part = block.y.compute() if block.lazy else block.y
        w = load_weights(block.w)
        y = dense_rows(load_block(part, dataset.target_columns), 0, block.stop - block.start)
        y = (y - scaling.center_y) / scaling.scale_y * (1.0 if w is None else np.sqrt(w)[:, None])
        T += y.T @ y
    return T


def on_demand_objective(
    factor: ColumnFactor, statistics: ColumnStatistics, preprocess: Preprocess, lam: float, leading_rows: int,
    batch: int, row_bytes: int,
) -> OnDemandObjective:  # fmt: skip
    """The quadratic objective over all n columns, unusable ones included; where Y = X, two passes for M = Z'(Z Z')Z."""
    scaling: Scaling = statistics.scaling(preprocess)
    raw = preprocess in ("unit", "none")
    squared = statistics.squared + (statistics.weight * statistics.mean_x**2 if raw else 0.0)
    unusable = statistics.unusable(preprocess)
    diagonal = np.where(unusable, 0.0, squared / scaling.scale_x**2)
    if not statistics.unsupervised:
        B, c = statistics.targets(preprocess, statistics.B)
        return OnDemandObjective(
            factor, diagonal, B, c, lam, leading_rows=leading_rows, batch=batch, row_bytes=row_bytes,
            targets=partial(target_gram, factor.dataset, statistics, preprocess),
        )  # fmt: skip
    if unusable.all():
        raise statistics.no_column_varies()
    G = factor.row_gram()
    return OnDemandObjective(
        factor, diagonal, None, float(diagonal.sum()), lam, through=G, seen=factor.through_diagonal(G),
        leading_rows=leading_rows, batch=batch, row_bytes=row_bytes,
    )  # fmt: skip

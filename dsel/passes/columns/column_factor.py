"""The factor Z of K = Z'Z: products with wide data by passes over column blocks.

Z (m x n) is the preprocessed X: centered, scaled, missing values replaced. It is computed piece by piece as X is read,
and never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.positive_definite import near_norms
from dsel._lib.types import Floats, Ints
from dsel.config.request import Missing, Preprocess
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import DataError
from dsel.passes.columns.column_blocks import Arguments, Cell, ColumnBlocks, ColumnPass, stack_columns, stack_rows
from dsel.passes.columns.column_statistics import ColumnStatistics, dense_pieces
from dsel.passes.data_pass import PassCost
from dsel.passes.execution.pass_checkpoints import storable
from dsel.passes.refit import Fit

#: Joins results of consecutive columns: side by side, or by their sum.
side_by_side = partial(np.concatenate, axis=-1)
_SUM = partial(reduce, add)

#: Singular values of at most this share of the largest are rounding.
_DEPENDENT = 1e-10


class ColumnFactor:
    """Z (m, n) as a `dsel.objective.on_demand.MatrixFactor`: columns and products, from the store or the workers."""

    def __init__(
        self, blocks: ColumnBlocks, statistics: ColumnStatistics, preprocess: Preprocess, missing: Missing,
        engine: Engine = THREADS,
    ) -> None:  # fmt: skip
        self.blocks, self.dataset, self._engine = blocks, blocks.dataset, engine
        scaling = statistics.scaling(preprocess)
        by = np.where(statistics.unusable(preprocess), 0.0, 1.0 / scaling.scale_x)
        rows = [scaling.center_x, by] + ([statistics.mean_x] if missing == "mean" else [])
        #: (2 or 3, n) what `preprocessed` takes: centers, inverse scales, and values that replace NaN.
        self.scaling = np.ascontiguousarray(np.vstack(rows))
        self.shape = (blocks.dataset.m, blocks.dataset.n)
        self._held: dict[int, Floats] = {}  # the columns whose Gram rows were asked for

    def columns(self, S: Ints) -> Floats:
        """Return (m, s) the columns S. Only the chunks of these columns are read.

        Once Gram rows were asked for, columns are kept.
        """
        if not S.size:
            return np.empty((self.shape[0], 0))
        if not self._held:
            return self._read(S)
        missing = [j for j in dict.fromkeys(S.tolist()) if j not in self._held]
        if missing:
            self._hold(missing, self._read(np.asarray(missing, np.int64)))
        return np.array([self._held[j] for j in S.tolist()]).reshape(-1, self.shape[0]).T

    def _hold(self, S: list[int], columns: Floats) -> None:
        self._held |= {j: columns[:, i].copy() for i, j in enumerate(S)}

    def _read(self, S: Ints) -> Floats:
        order = np.argsort(S, kind="stable")
        ascending, back = np.unique(S[order], return_inverse=True)
        found = self._run(chosen_columns_pass(self.blocks), ascending, only=ascending)
        out = np.empty((found.shape[0], S.size))
        out[:, order] = found[:, back]
        return out

    def products(self, V: Floats) -> Floats:
        """Return (c, n) V'Z for V (m, c), in one pass."""
        return np.asarray(self._run(product_pass(self.blocks, V.shape[1]), V))

    def gram_rows(self, S: Ints) -> Floats:
        """Return (s, n) the rows S of K, in one pass, and keep the columns S for later.

        The bits of a row do not depend on the other ones. Where chunks are full rows the pass reads the columns as
        well; else their chunks are read before.
        """
        by_rows = self.blocks.by_rows
        rows: _GramRows = self._run(gram_rows_pass(self.blocks, S.size), S if by_rows else self._read(S))
        self._hold(S.tolist(), rows.columns)
        return rows.K

    def of_columns(self, members: Ints) -> ColumnFactor:
        """Return the factor in which all other columns are zero."""
        other = copy(self)
        others = np.setdiff1d(np.arange(self.shape[1]), members)
        other.scaling = self.scaling.copy()
        other.scaling[1, others] = 0.0
        return other

    def right_products(self, Rt: Floats) -> Floats:
        """Return (m, l) Z R for R' (l, n), in one pass. A task gets only its columns of R'."""
        one = right_product_pass(self.blocks, Rt.shape[0])
        return np.asarray(one.run(self._engine, per_column=np.vstack([self.scaling, Rt]), shared=len(self.scaling)))

    def leading(self, p: int) -> NDArray[np.float32]:
        """Return (n, p) rows of Z, evenly spaced, in one pass."""
        rows = np.unique(np.linspace(0, self.shape[0] - 1, p).astype(np.int64))
        return np.asarray(self._run(leading_rows_pass(self.blocks), rows))

    def refit(self, S: Ints, lam: float, usable: NDArray[np.bool_]) -> Fit:
        """Return the fit of all columns on the columns S (Y = X), by QR of S and one pass over columns of full height.

        Coefficients are (s, usable columns).
        """
        Q, R = np.linalg.qr(np.vstack([self.columns(S), np.sqrt(lam) * np.eye(S.size)]))
        found: _Residuals = self._run(residual_pass(self.blocks, S.size), Q)
        w = scipy.linalg.solve_triangular(R, found.C[:, usable]) if S.size else found.C[:, usable]
        rss = max(found.left - lam * float(np.vdot(w, w)), 0.0)
        gains, gram = np.square(found.C[:, usable]).sum(axis=1), R.T @ R - lam * np.eye(S.size)
        return Fit(found.left, rss, found.total, np.asarray(w), gains, gram)

    def errors(
        self, subsets: Sequence[Ints], lam: float, total: float, targets: Floats | None = None
    ) -> list[tuple[float, float]]:  # fmt: skip
        """Return f and the residual sum of squares of several subsets. total: ||Y||_F^2. targets: Y (m, N).

        Without targets, Y = X, and one pass serves all subsets, after the chunks of their columns have been read.
        O(m n u) for u columns in all.
        """
        union = np.unique(np.concatenate([*subsets, np.empty(0, np.int64)]))
        if not union.size:
            return [(total, total)] * len(subsets)
        Q, R = np.linalg.qr(self.columns(union))
        C = self.products(Q) if targets is None else Q.T @ targets
        return [_subset_error(R[:, np.searchsorted(union, S)], C, lam, total) for S in subsets]

    def row_gram(self) -> Floats:
        """Return (m, m) Z Z', in one pass over columns of full height. O(m^2 n)."""
        return np.asarray(self._run(row_gram_pass(self.blocks)))

    def quadratic_diagonal(self, T: Floats) -> Floats:
        """Return (n,) the diagonal of Z'TZ for T (m, m), in one pass over columns of full height."""
        return np.asarray(self._run(quadratic_diagonal_pass(self.blocks), T))

    def _run(self, one: ColumnPass, shared: Any = None, only: Ints | None = None) -> Any:
        return one.run(self._engine, per_column=self.scaling, shared=shared, only=only)


def _subset_error(R: Floats, C: Floats, lam: float, total: float) -> tuple[float, float]:
    """Return f and the residual sum of squares of columns Q R, from C = Q'Z."""
    s = R.shape[1]
    if not s:
        return total, total
    Z = np.vstack([R, np.sqrt(lam) * np.eye(s)])
    norms = near_norms(np.square(Z).sum(axis=0))
    U, sizes, V = scipy.linalg.svd(Z / norms, full_matrices=False)
    kept = sizes > _DEPENDENT * sizes[0]
    within = U[: R.shape[0], kept].T @ C
    coefficients = V[kept].T @ (within / sizes[kept, None]) / norms[:, None]
    f = max(total - float(np.square(within).sum()), 0.0)
    return f, max(f - lam * float(np.square(coefficients).sum()), 0.0)


def chosen_columns_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that reads some columns of Z. shared: the ascending columns."""
    return ColumnPass("chosen columns", blocks, _chosen, stack_rows, side_by_side)


def chosen_columns_cost(blocks: ColumnBlocks, columns: int) -> PassCost:
    """Return the cost of that pass for some columns, if they are in different chunks."""
    cost, dataset = chosen_columns_pass(blocks).cost(), blocks.dataset
    if not blocks.by_rows:
        widest = 1 if dataset.in_memory else int(np.diff(blocks.edges).max())
        tasks = 0 if dataset.in_memory else min(columns, len(blocks.groups)) + 1
        read = 0 if blocks.keeps else dataset.x_bytes * min(columns * widest, dataset.n) // dataset.n
        cost = replace(cost, bytes_read=read, tasks=tasks)
    return replace(cost, passes=0)


def product_pass(blocks: ColumnBlocks, columns: int) -> ColumnPass:
    """Return the pass that computes V'Z. shared: V (m, columns)."""
    return ColumnPass("products", blocks, _products, add, side_by_side, 2 * columns)


def gram_rows_pass(blocks: ColumnBlocks, rows: int) -> ColumnPass:
    """Return the pass that computes rows of K. shared: their columns of Z (m, rows), or with full rows their places."""
    size = 8 * rows * blocks.dataset.n
    return ColumnPass("Gram rows", blocks, _gram_rows, _merge_gram_rows, _join_gram_rows, 2 * rows, size)


def right_product_pass(blocks: ColumnBlocks, columns: int) -> ColumnPass:
    """Return the pass that computes Z R, R (n, columns). per_column: scaling, then R'; shared: rows of the scaling."""
    size = 8 * blocks.dataset.m * columns
    return ColumnPass("right products", blocks, _right_products, stack_rows, _SUM, 2 * columns, size, additive=True)


def leading_rows_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that reads some rows of Z. shared: the ascending rows."""
    return ColumnPass("leading rows", blocks, _leading, stack_columns, partial(np.concatenate, axis=0))


def residual_pass(blocks: ColumnBlocks, size: int) -> ColumnPass:
    """Return the pass that fits all columns to `size` of them. shared: Q."""
    return ColumnPass("check", blocks, _residuals, no_rows, _join_residuals, 2 * size, full_height=True)


def row_gram_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that sums Z Z'."""
    m = blocks.dataset.m
    return ColumnPass("row Gram matrix", blocks, _row_gram, no_rows, _SUM, m, 8 * m * m, additive=True,
                      full_height=True)  # fmt: skip


def quadratic_diagonal_pass(blocks: ColumnBlocks) -> ColumnPass:
    """Return the pass that computes the diagonal of Z'TZ. shared: T (m, m)."""
    work = 2 * blocks.dataset.m
    return ColumnPass("quadratic diagonal", blocks, _quadratic_diagonal, no_rows, side_by_side, work, full_height=True)


def preprocessed(x: Any, arguments: Arguments) -> Iterator[tuple[int, int, Floats]]:
    """Yield the columns [a, b) of a cell of Z, piece by piece. Each piece overwrites the buffer of the one before.

    arguments.columns (2 or 3, w): center, 1 / scale (0: the column counts as zero), and the value that replaces NaN.
    """
    argument = arguments.columns
    for a, b, z in dense_pieces(x, argument[2] if argument.shape[0] > 2 else None):
        z -= argument[0, a:b]
        z *= argument[1, a:b]
        if arguments.root is not None:
            z *= arguments.root[:, None]
        yield a, b, z


@storable
@dataclass
class _Residuals:
    """Summed squared residuals and squared norms of some columns Z, and their coefficients C = Q'Z (s, w)."""

    left: float
    total: float
    C: Floats


def _residuals(x: Any, y: Any, cell: Cell, arguments: Arguments) -> _Residuals:
    """arguments.shared: Q (m + s, s), orthonormal columns; its last s rows belong to the ridge penalty."""
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


def _products(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    V = arguments.shared
    out = np.empty((V.shape[1], x.shape[1]))
    rows = np.ascontiguousarray(V[cell.start : cell.stop].T)
    for a, b, z in preprocessed(x, arguments):
        out[:, a:b] = rows @ z
    return out


@storable
@dataclass
class _GramRows:
    """Columns Z_S (r, s) of some rows, from the first cells alone, and Z_S'Z (s, w) of some columns."""

    columns: Floats
    K: Floats


def _gram_rows(x: Any, y: Any, cell: Cell, arguments: Arguments) -> _GramRows:
    """arguments.shared: (m, s) columns of Z, or (s,) places of the columns in x."""
    shared = arguments.shared
    if shared.ndim == 1:
        chosen, V = np.sort(shared), np.empty((x.shape[0], shared.size))
        V[:, np.argsort(shared)] = _chosen(x, y, cell, replace(arguments, shared=chosen))
        found = _GramRows(V, np.empty((V.shape[1], x.shape[1])))
    else:
        V = shared[cell.start : cell.stop]
        found = _GramRows(V if cell.left == 0 else V[:0], np.empty((V.shape[1], x.shape[1])))
    columns = np.ascontiguousarray(V.T)
    for a, b, z in preprocessed(x, arguments):
        for i in range(columns.shape[0]):  # one by one, so that no row depends on the number of them
            found.K[i, a:b] = columns[i] @ z
    return found


def _merge_gram_rows(a: _GramRows, b: _GramRows) -> _GramRows:
    return _GramRows(np.vstack([a.columns, b.columns]), a.K + b.K)


def _join_gram_rows(parts: list[_GramRows]) -> _GramRows:
    return _GramRows(parts[0].columns, np.hstack([part.K for part in parts]))


def _leading(x: Any, y: Any, cell: Cell, arguments: Arguments) -> NDArray[np.float32]:
    rows = arguments.shared
    mine = rows[(cell.start <= rows) & (rows < cell.stop)] - cell.start
    of_rows = replace(arguments, root=None if arguments.root is None else arguments.root[mine])
    out, x = np.empty((x.shape[1], mine.size), np.float32), x[mine]
    for a, b, z in preprocessed(x, of_rows):
        out[a:b] = z.T
    return out


def _right_products(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    """arguments.columns: the rows of the scaling (arguments.shared of them), then the rows of R' (l, w)."""
    known = arguments.shared
    R, scaling = arguments.columns[known:], replace(arguments, columns=arguments.columns[:known])
    out = np.zeros((x.shape[0], R.shape[0]))
    for a, b, z in preprocessed(x, scaling):
        out += z @ R[:, a:b].T
    return out


def _row_gram(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    G = np.zeros((x.shape[0], x.shape[0]))
    for _, _, z in preprocessed(x, arguments):
        G += z @ z.T
    return G


def _quadratic_diagonal(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    T = arguments.shared
    out = np.empty(x.shape[1])
    for a, b, z in preprocessed(x, arguments):
        out[a:b] = np.einsum("rw,rw->w", z, T @ z)
    return out


def _chosen(x: Any, y: Any, cell: Cell, arguments: Arguments) -> Floats:
    S = arguments.shared
    first, last = np.searchsorted(S, (cell.left, cell.right))
    mine = S[first:last] - cell.left
    of_columns = replace(arguments, columns=arguments.columns[:, mine])
    out = np.empty((x.shape[0], mine.size))
    for a, b, z in preprocessed(x[:, mine], of_columns):
        out[:, a:b] = z
    return out


def no_rows(a: Any, b: Any) -> Any:
    """Raise DataError: in place of `merge`, for a pass over columns of full height."""
    raise DataError(
        "This pass needs columns of full height, and the chunks of the store are full rows.",
        "Write the store again with chunks cut in columns (chunks=(rows, columns)).",
    )

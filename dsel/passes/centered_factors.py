"""The QR factors of [X_S | Y] for a store that grows: they are saved, and only new segments are read.

The factors of some rows are about the means of these rows, in the units of the data. So they do not change if other
rows follow, which change the means and scales. Two parts are merged by one more row, the difference of their means
(the update of Chan, Golub and LeVeque, 1983, for factors in place of sums). At the end the columns of R are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.data.store.reader import Store
from dsel.engine.base import Engine
from dsel.passes.execution.stored_values import storable
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.segment_sums import Range, SegmentSums, SumsCache

_PIECE_BYTES = 32 << 20


@storable
@dataclass
class CenteredFactors:
    """The QR factorization of some rows about their means.

    Parameters
    ----------
    weight : float
        The sum of the weights of the rows.
    mean_x, mean_y : ndarray of shapes (s,) and (N,)
        The weighted means.
    R : ndarray of shape (r, s)
        The triangular factor of X_S.
    C : ndarray of shape (r, N)
        Q'Y.
    left, total : ndarray of shape (N,)
        The squared residual and the squared norm of each target.
    """

    weight: float
    mean_x: Floats
    mean_y: Floats
    R: Floats
    C: Floats
    left: Floats
    total: Floats


def grows(dataset: Dataset) -> bool:
    """Return whether rows were appended to the store, so that its segments are listed."""
    return isinstance(dataset.store, Store) and len(dataset.store.row_ranges or ()) > 0


def check_sums(dataset: Dataset, columns: Ints, cache: SumsCache | None) -> SegmentSums:
    """Return the factors on these ascending columns, as far as they are saved."""
    return SegmentSums(
        dataset, cache, "check", {}, by_segment=False, extends=True, replaced={"columns": columns.tolist()}
    )


def check_pass(dataset: Dataset, columns: Ints, ranges: tuple[Range, ...] | None = None) -> RowPass:
    """Return the pass that factors the ascending columns, by default over all segments. Argument: chosen."""
    s, N = columns.size, dataset.n_targets or dataset.n
    return RowPass(
        "check", dataset, _block_factors, merge_centered, 8 * (s + 3) * (s + N), 2 * dataset.m * s * (s + 2 * N),
        columns if dataset.n_targets else None, ranges=dataset.row_ranges if ranges is None else ranges,
    )  # fmt: skip


def likely_check_pass(dataset: Dataset, most: int, cache: SumsCache | None) -> RowPass | None:
    """Return the pass that is left if the same columns are chosen as before; None if it is not saved.

    most: the most columns that can be chosen.
    """
    found = check_sums(dataset, np.empty(0, np.int64), cache).saved_for
    columns = np.asarray((found or {}).get("columns", ()), np.int64)
    if not 0 < columns.size <= most:
        return None
    return check_pass(dataset, columns, check_sums(dataset, columns, cache).missing)


def centered_factors(dataset: Dataset, columns: Ints, engine: Engine, cache: SumsCache | None) -> CenteredFactors:
    """Return the factors of all rows on the ascending columns; where Y = X all columns are the targets."""
    chosen = np.arange(columns.size) if dataset.n_targets else columns

    def compute(ranges: tuple[Range, ...]) -> Iterator[CenteredFactors]:
        return check_pass(dataset, columns, ranges).run_ranges(engine, chosen=chosen)

    found: CenteredFactors = check_sums(dataset, columns, cache).total(compute, merge_centered)
    return found


def with_means(found: CenteredFactors) -> CenteredFactors:
    """Return the factors of the rows as they are, not about their means."""
    root = np.sqrt(found.weight)
    return _stacked(found.weight, found, [(found.R, found.C), (root * found.mean_x[None], root * found.mean_y[None])])


def merge_centered(a: CenteredFactors, b: CenteredFactors) -> CenteredFactors:
    """Factor the rows of a and b together."""
    weight = a.weight + b.weight
    share = b.weight / weight if weight else 0.0
    root = np.sqrt(a.weight * share)
    d_x, d_y = b.mean_x - a.mean_x, b.mean_y - a.mean_y
    both = CenteredFactors(
        weight, a.mean_x + share * d_x, a.mean_y + share * d_y, a.R, a.C, a.left + b.left, a.total + b.total
    )
    return _stacked(weight, both, [(a.R, a.C), (b.R, b.C), (root * d_x[None], root * d_y[None])])


def _stacked(weight: float, about: CenteredFactors, parts: list[tuple[Floats, Floats]]) -> CenteredFactors:
    """Factor parts one below the other. The last one is a row that the norms do not contain yet."""
    R, C, left = _factor(np.vstack([R for R, _ in parts]), np.vstack([C for _, C in parts]))
    total = about.total + np.square(parts[-1][1][0])
    return CenteredFactors(weight, about.mean_x, about.mean_y, R, C, about.left + left, total)


def _factor(Z: Floats, T: Floats) -> tuple[Floats, Floats, Floats]:
    Q, R = np.linalg.qr(Z)
    C = Q.T @ T
    return R, C, np.square(T - Q @ C).sum(axis=0)


def _block_factors(x: Any, y: Any, block: Block, chosen: Ints) -> CenteredFactors:
    """Factor one block, in pieces. chosen: places of the columns in x. y None: all columns of x are the targets."""
    width = x.shape[1] + (0 if y is None else y.shape[1])
    step = max(1, _PIECE_BYTES // (8 * max(width, 1)))
    result: CenteredFactors | None = None
    for start in range(0, x.shape[0], step):
        rows = dense_rows(x, start, start + step)
        Z, T = rows[:, chosen], rows if y is None else dense_rows(y, start, start + step)
        w = np.ones(rows.shape[0]) if block.w is None else block.w[start : start + step]
        piece = _piece_factors(Z, T, w)
        result = piece if result is None else merge_centered(result, piece)
    assert result is not None
    return result


def _piece_factors(Z: Floats, T: Floats, w: Floats) -> CenteredFactors:
    weight = float(w.sum())
    over = weight or 1.0
    mean_x, mean_y, root = w @ Z / over, w @ T / over, np.sqrt(w)[:, None]
    Z, T = (Z - mean_x) * root, (T - mean_y) * root
    R, C, left = _factor(Z, T)
    return CenteredFactors(weight, mean_x, mean_y, R, C, left, np.square(T).sum(axis=0))

"""Counts, means and co-moments of a block of rows, and of two blocks together, in NumPy.

Each block is centered by its mean before anything is squared. Blocks are joined by the pairwise update of Chan, Golub
and LeVeque (1983). So a column of mean 1e6 and standard deviation 1 loses nothing. All sums are float64.

Columns of whole numbers are centered by the whole numbers next to their means. Small ones are then multiplied in
float32, which is nearly twice as fast, and exact: float32 holds every whole number below 2^24. By Cauchy and Schwarz,
no sum of products is larger than the largest sum of squares of a column. `Products` stops there, and continues in
float64. If few columns are others, `MixedProducts` multiplies them in float64. To remove the rest of the means rounds
the result alone: if a mean is d from the next whole number, the variance of whole numbers is at least d^2.

For tall data whose n x n sums do not fit a worker, the upper triangle of K is cut into square tiles. A read of the data
sums as many of them, in row-major order, as fit into a worker next to a row block. The number of reads is the area of
the triangle over that of a worker, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm, dsyr, get_blas_funcs

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats, Ints
from dsel.data.blocks import PIECE_ROWS, dense_rows, row_pieces
from dsel.errors import CapacityError
from dsel.passes.execution.pass_checkpoints import UpperTriangle, storable
from dsel.passes.finite_values import require_finite

#: Tiles narrower than this do not reach the speed of BLAS-3.
NARROWEST = 32


@storable
@dataclass(frozen=True)
class Strip:
    """Some tiles side by side: rows [top, bottom) and columns [left, right) of K, left >= top."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of its sums."""
        return 8 * (self.bottom - self.top) * (self.right - self.left)

    def moved(self, by: int) -> Strip:
        """Return the same strip in a matrix that begins with column `by`."""
        return Strip(self.top - by, self.bottom - by, self.left - by, self.right - by)


@dataclass(frozen=True)
class Tiling:
    """The strips of tiles that each read sums."""

    reads: tuple[tuple[Strip, ...], ...]

    @property
    def partial_bytes(self) -> int:
        """Return the bytes of the largest partial sum."""
        return max(sum(strip.nbytes for strip in read) for read in self.reads)


def plan_tiles(n: int, budget: float) -> Tiling:
    """Return the tiling of an n x n matrix with the fewest reads, and among those with the widest tiles.

    budget: bytes of a partial sum. Errors: CapacityError if not even one narrow tile fits.
    """
    least = 8 * min(n, NARROWEST) ** 2
    if budget < least:
        left = f"{format_bytes(int(budget))} are" if budget >= 1.0 else "No memory is"
        raise CapacityError(
            f"{left} left for a partial sum, and a tile of the Gram matrix needs {format_bytes(least)}.",
            "Give each worker more memory, or store the data in smaller row blocks (dsel ingest --memory).",
        )
    fewest = math.ceil(n / math.isqrt(int(budget // 8)))
    most = max(fewest, min(3 * fewest + 16, n // NARROWEST))
    tilings = [_pack(n, math.ceil(n / fewest), budget)]
    if len(tilings[0].reads) > 1:
        tilings += [_pack(n, math.ceil(n / pieces), budget) for pieces in range(fewest + 1, most + 1)]
    return min(tilings, key=lambda tiling: len(tiling.reads))


def _pack(n: int, width: int, budget: float) -> Tiling:
    """Return tiles in row-major order, as many per read as fit."""
    reads: list[list[Strip]] = [[]]
    free = budget
    for top in range(0, n, width):
        bottom = min(top + width, n)
        for left in range(top, n, width):
            tile = Strip(top, bottom, left, min(left + width, n))
            if tile.nbytes > free:
                reads.append([])
                free = budget
            free -= tile.nbytes
            last = reads[-1][-1] if reads[-1] else None
            if last is not None and (last.top, last.right) == (top, left):
                reads[-1][-1] = Strip(top, bottom, last.left, tile.right)
            else:
                reads[-1].append(tile)
    return Tiling(tuple(tuple(read) for read in reads))


@storable
class StripSums:
    """The sums of some strips of K over rows."""

    def __init__(self, strips: tuple[Strip, ...], dtype: Any = np.float64) -> None:
        self.strips = strips
        self.sums = [np.zeros((s.bottom - s.top, s.right - s.left), dtype, order="F") for s in strips]

    def update(self, z: Any, kept: float = 1.0) -> StripSums:
        """Add z'z for the rows of a piece (r, n) of the dtype of the sums. kept: 0 to forget them before, else 1."""
        gemm = get_blas_funcs("gemm", dtype=z.dtype)
        for i, s in enumerate(self.strips):
            a, b = z[:, s.top : s.bottom], z[:, s.left : s.right]
            self.sums[i] = gemm(1.0, a, b, beta=kept, c=self.sums[i], trans_a=1, overwrite_c=1)
        return self

    def shift(self, left: Floats, right: Floats) -> None:
        """Add the outer product of two (n,) vectors."""
        for total, s in zip(self.sums, self.strips, strict=True):
            block: Floats = np.outer(left[s.top : s.bottom], right[s.left : s.right])
            total += block

    def __iadd__(self, other: StripSums) -> StripSums:
        for mine, its in zip(self.sums, other.sums, strict=True):
            mine += its
        return self

    def place(self, K: Floats, by: int) -> None:
        """Write the strips into the upper triangle of K, which begins `by` columns before."""
        for total, s in zip(self.sums, self.strips, strict=True):
            K[s.top + by : s.bottom + by, s.left + by : s.right + by] = total


#: Sums of whole numbers up to this are exact in float32, in any order.
_EXACT = 2.0**24
#: The largest share of other columns with which float32 saves time.
_FEW = 0.1


class Products:
    """The sums z'z of pieces, added to K, (n, n) or StripSums: those of small whole numbers in float32 first."""

    def __init__(self, K: Any, n: int) -> None:
        self._K = K
        self._collected: Any = None
        self._squares: Any = np.zeros(n, np.float32)

    def add(self, z: Any) -> Any:
        """Add z'z for the rows of a piece (r, n), whole numbers if it is float32. Return z as it was multiplied."""
        if z.dtype == np.float32:
            squares = np.einsum("rj,rj->j", z, z)
            if squares.max(initial=0.0) < _EXACT:
                self._collect(z, squares)
                return z
            z = z.astype(np.float64)
        self._K = _add_products(self._K, z)
        return z

    def _collect(self, z: Any, squares: Any) -> None:
        full = (self._squares + squares).max(initial=0.0) >= _EXACT
        if self._collected is None:
            strips = isinstance(self._K, StripSums)
            self._collected = StripSums(self._K.strips, z.dtype) if strips else np.zeros_like(self._K, z.dtype)
        elif full:
            self._K += self._collected
        self._collected = _add_products(self._collected, z, kept=0.0 if full else 1.0)
        self._squares = squares if full else self._squares + squares

    def total(self) -> Any:
        """Return the sums, of K the upper triangle."""
        if self._collected is not None:
            self._K += self._collected
        self._collected = None
        return self._K


class MixedProducts(Products):
    """The same for float64 pieces, of which the `others` (indices) of n columns are not small whole numbers."""

    def __init__(self, n: int, others: Ints) -> None:
        super().__init__(np.zeros((n, n), order="F"), n)
        self._others = others
        self._rest = np.zeros((n, others.size), order="F")

    def add(self, z: Floats) -> Floats:
        """Add z'z for the rows of a piece (r, n). Return z."""
        whole = z.astype(np.float32)
        whole[:, self._others] = 0.0
        super().add(whole)
        others = z[:, self._others]
        self._rest = dgemm(1.0, z.T, others.T, beta=1.0, c=self._rest, trans_b=1, overwrite_c=1)
        return z

    def total(self) -> Any:
        """Return the sums, of K the upper triangle."""
        K = super().total()
        K[:, self._others], K[self._others] = self._rest, self._rest.T
        return K


def _add_products(K: Any, z: Any, kept: float = 1.0) -> Any:
    """Return kept K + z'z, in the dtype of both."""
    if isinstance(K, StripSums):
        return K.update(z, kept)
    return get_blas_funcs("syrk", dtype=z.dtype)(1.0, z.T, beta=kept, c=K, overwrite_c=1)


@storable
@dataclass
class Moments:
    """Sufficient statistics of `count` rows that have a weight, of X (n columns) and Y (N columns; N = 0: none).

    weight: the sum of their weights, `count` without any; all sums and means are weighted.
    K: (n, n), upper triangle in Fortran order valid, X'X about the means, StripSums of parts of it, or its diagonal;
    B: (n, N) X'Y about the means; yy: (N,) squared norms of Y about its means; means, minima and maxima per column.
    """

    count: int
    weight: float
    mean_x: Floats
    mean_y: Floats
    K: Any
    B: Floats
    yy: Floats
    low_x: Floats
    high_x: Floats
    low_y: Floats
    high_y: Floats

    def stored_parts(self) -> dict[str, Any]:
        """Return what a file keeps: of K the upper triangle."""
        whole = isinstance(self.K, np.ndarray) and self.K.ndim == 2
        return {**vars(self), "K": UpperTriangle(self.K) if whole else self.K}

    @property
    def squares(self) -> Floats:
        """Return (n,) the squared norms of the columns of X about their means."""
        return np.diag(self.K) if self.K.ndim == 2 else np.asarray(self.K)


@np.errstate(over="ignore", invalid="ignore")  # overflow is refused at the end (require_in_range)
def block_moments(
    x: Any, y: Any, fill: Floats | None = None, where: str = "X", first_row: int = 0, w: Floats | None = None,
    strips: tuple[Strip, ...] | None = None,
) -> Moments:  # fmt: skip
    """Return the moments of one block.

    x: (r, n) dense or sparse. y: (r, N) or None. fill: (n,) values that replace NaN in x. w: (r,) weights. strips: the
    parts of K to sum, in place of all of it.

    Errors: DataError naming variable, rows and columns of the first values that are NaN or infinite. Cost: r n (n + N)
    multiplications (symmetric rank-k update), and memory for a float64 piece of PIECE_BYTES; while whole numbers are
    multiplied, half of K more.
    """
    r, n = x.shape
    y = np.empty((r, 0)) if y is None else y
    pieces = row_pieces(r, n + y.shape[1])
    weight = float(r) if w is None else float(w.sum())
    low_x, high_x, mean_x, whole = _survey(x, pieces, fill, where, "X", first_row, w)
    low_y, high_y, mean_y, _ = _survey(y, pieces, None, where, "Y", first_row, w)
    dtype: Any = np.float64
    products: Any = Products(np.zeros((n, n), order="F") if strips is None else StripSums(strips), n)
    mean_x = np.where(whole, np.rint(mean_x), mean_x)
    first = dense_rows(x, 0, min(PIECE_ROWS, pieces[0][1]) if pieces else 0, fill) - mean_x
    small = whole & (np.einsum("rj,rj->j", first, first) < _EXACT)
    if _gains(small, strips) and (w is None or ((w == 0.0) | (w == 1.0)).all()):
        widest = (high_x - low_x)[small].max(initial=1.0)
        pieces = row_pieces(r, n + y.shape[1], max(PIECE_ROWS, _EXACT / widest**2))
        if small.all():
            dtype = np.float32
        else:
            products = MixedProducts(n, np.flatnonzero(~small))
    B = np.zeros((n, y.shape[1]))
    yy = np.zeros(y.shape[1])
    sum_x, sum_y = np.zeros(n), np.zeros(y.shape[1])
    for start, stop in pieces:
        z = dense_rows(x, start, stop, fill, dtype)
        z -= mean_x.astype(dtype)
        t = dense_rows(y, start, stop)
        t -= mean_y
        root = None if w is None else np.sqrt(w[start:stop])
        if root is not None:
            z *= root[:, None].astype(dtype)
            t *= root[:, None]
        z = products.add(z)
        sum_x += z.sum(axis=0) if root is None else root @ z
        sum_y += t.sum(axis=0) if root is None else root @ t
        if y.shape[1]:
            B += z.T @ t
        yy += np.einsum("rt,rt->t", t, t)
    # What is left of the sums about the computed means.
    K, over = products.total(), weight or 1.0
    _shift(K, -1.0 / over, sum_x)
    B -= np.outer(sum_x, sum_y / over)
    yy -= sum_y * sum_y / over
    count = r if w is None else int(np.count_nonzero(w))
    return Moments(count, weight, mean_x + sum_x / over, mean_y + sum_y / over, K, B, yy, low_x, high_x, low_y, high_y)


@np.errstate(over="ignore", invalid="ignore")
def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of a and b together. The arrays of a are overwritten."""
    total = a.weight + b.weight
    d_x, d_y = b.mean_x - a.mean_x, b.mean_y - a.mean_y
    share = b.weight / total if total else 0.0
    weight = a.weight * b.weight / total if total else 0.0
    a.K += b.K
    _shift(a.K, weight, d_x)
    a.B += b.B + np.outer(d_x * weight, d_y)
    a.yy += b.yy + weight * d_y * d_y
    return Moments(
        a.count + b.count, total, a.mean_x + share * d_x, a.mean_y + share * d_y, a.K, a.B, a.yy,
        np.minimum(a.low_x, b.low_x), np.maximum(a.high_x, b.high_x),
        np.minimum(a.low_y, b.low_y), np.maximum(a.high_y, b.high_y),
    )  # fmt: skip


def _shift(K: Any, factor: float, v: Floats) -> None:
    """Add factor v v' to K, to its upper triangle alone."""
    if isinstance(K, StripSums):
        K.shift(factor * v, v)
    else:
        dsyr(factor, v, a=K, overwrite_a=1)


@storable
@dataclass
class Present:
    """Per column of X the weight of the values that are not NaN (their number, without weights), and their mean."""

    weight: Floats
    mean: Floats


def block_present(x: Any, where: str = "X", first_row: int = 0, w: Floats | None = None) -> Present:
    """Return weights and means of the values of one block that are not NaN. Errors: DataError for infinite values."""
    r, n = x.shape
    present = Present(np.zeros(n), np.zeros(n))
    pieces = row_pieces(r, n)
    for start, stop in pieces:
        z = dense_rows(x, start, stop)
        require_finite(
            np.where(np.isnan(z), 0.0, z), where, "X", first_row + start, parts=partial(_dense, x, pieces, first_row)
        )
        there = ~np.isnan(z)
        z = np.where(there, z, 0.0)
        if w is None:
            weight, total = there.sum(axis=0).astype(np.float64), z.sum(axis=0)
        else:
            weight, total = w[start:stop] @ there, w[start:stop] @ z
        mean = np.divide(total, weight, out=np.zeros(n), where=weight > 0)
        present = merge_present(present, Present(weight, mean))
    return present


def merge_present(a: Present, b: Present) -> Present:
    """Return weights and means of two blocks together."""
    weight = a.weight + b.weight
    share = np.divide(b.weight, weight, out=np.zeros(weight.size), where=weight > 0)
    return Present(weight, a.mean + share * (b.mean - a.mean))


def _dense(
    x: Any, pieces: list[tuple[int, int]], first_row: int, fill: Floats | None = None
) -> Iterator[tuple[int, Floats]]:
    """Yield the first row and the values of the pieces of a block."""
    for start, stop in pieces:
        yield first_row + start, dense_rows(x, start, stop, fill)


def _survey(
    x: Any, pieces: list[tuple[int, int]], fill: Floats | None, where: str, variable: str, first_row: int,
    w: Floats | None,
) -> tuple[Floats, Floats, Floats, Any]:  # fmt: skip
    """Return minimum, maximum and (nearly) mean of each column over the rows with weight; check that all are finite.

    Return also which columns (n,) have only whole numbers whose differences are exact in float32.
    """
    n, whole = x.shape[1], np.ones(x.shape[1], np.bool_)
    low, high, total = np.full(n, np.inf), np.full(n, -np.inf), np.zeros(n)
    for start, stop in pieces if n else []:
        # A dense block without NaN to replace is read as it is, not copied to float64.
        plain = isinstance(x, np.ndarray) and fill is None
        z = x[start:stop] if plain else dense_rows(x, start, stop, fill)
        bottom, top = z.min(axis=0).astype(np.float64), z.max(axis=0).astype(np.float64)
        if not (np.isfinite(bottom).all() and np.isfinite(top).all()):
            whole_block = partial(_dense, x, pieces, first_row, fill)
            require_finite(np.asarray(z, np.float64), where, variable, first_row + start, parts=whole_block)
        largest = np.maximum(-bottom, top)
        whole &= largest <= _EXACT / 2.0
        _keep_whole(z, whole)
        if w is None:
            exact = z.dtype == np.float32 and whole.all() and largest.max() * len(z) <= _EXACT
            total += z.sum(axis=0, dtype=np.float32 if exact else np.float64)
        else:
            there = w[start:stop] > 0.0
            if not there.all():
                z = z[there].astype(np.float64)
                bottom, top = z.min(axis=0, initial=np.inf), z.max(axis=0, initial=-np.inf)
            total += w[start:stop][there] @ z
        low, high = np.minimum(low, bottom), np.maximum(high, top)
    weight = x.shape[0] if w is None else float(w.sum())
    return low, high, total / (weight or 1), whole


def _keep_whole(z: Any, whole: Any) -> None:
    """Keep of the columns `whole` (n,) those of whole numbers. The first row decides about most others."""
    for part in (z[:1], z) if z.dtype.kind == "f" else ():
        if whole.any():
            same = part == np.rint(part)
            whole &= True if same.all() else same.all(axis=0)


def _gains(whole: Any, strips: tuple[Strip, ...] | None) -> bool:
    """Return whether float32 saves time: products of all columns with the others are not a triangle."""
    others = int((~whole).sum())
    return others == 0 or (strips is None and others <= _FEW * whole.size)

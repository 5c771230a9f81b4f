"""The Gram matrix by tiles, for tall data whose n x n partial sums do not fit a worker: as few reads as memory allows.

The upper triangle of K is cut into tiles of `width` columns a side; a read of the data sums as many of them, in
row-major order, as fit beside a row block: the number of reads is the area of the triangle over what a worker holds,
rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dgemm

from dsel._lib.types import Floats
from dsel.errors import CapacityError

#: Tiles narrower than this do not reach the speed of BLAS-3.
NARROWEST = 32


@dataclass(frozen=True)
class Strip:
    """Tiles side by side: rows [top, bottom) and columns [left, right) of K, left >= top."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def nbytes(self) -> int:
        """Bytes of its sums."""
        return 8 * (self.bottom - self.top) * (self.right - self.left)

    def moved(self, by: int) -> Strip:
        """The same in a matrix that begins with column `by`."""
        return Strip(self.top - by, self.bottom - by, self.left - by, self.right - by)


@dataclass(frozen=True)
class Tiling:
    """Tiles of `width` columns, and the strips of them that each read sums."""

    width: int
    reads: tuple[tuple[Strip, ...], ...]

    @property
    def partial_bytes(self) -> int:
        """Bytes of the largest partial sum."""
        return max(sum(strip.nbytes for strip in read) for read in self.reads)


def plan_tiles(n: int, budget: float) -> Tiling:
    """The tiling of an n x n matrix with the fewest reads (of equal ones that of the widest tiles), where a partial sum
    may take `budget` bytes.

    Errors: CapacityError where not even one narrow tile fits.
    """
    least = 8 * min(n, NARROWEST) ** 2
    if budget < least:
        raise CapacityError(
            f"{max(budget, 0) / 2**20:.3g} MiB a partial sum hold no tile of the Gram matrix: {least / 2**20:.3g} MiB.",
            "Give each worker more memory, or store the data in smaller row blocks.",
        )
    fewest = math.ceil(n / math.isqrt(int(budget // 8)))
    most = max(fewest, min(3 * fewest + 16, n // NARROWEST))
    tilings = (_pack(n, math.ceil(n / pieces), budget) for pieces in range(fewest, most + 1))
    return min(tilings, key=lambda tiling: len(tiling.reads))


def _pack(n: int, width: int, budget: float) -> Tiling:
    """Tiles in row-major order, each read filled up."""
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
    return Tiling(width, tuple(tuple(read) for read in reads))


class StripSums:
    """Sums over rows of products of columns, of some strips of K."""

    def __init__(self, strips: tuple[Strip, ...]) -> None:
        self.strips = strips
        self.sums = [np.zeros((s.bottom - s.top, s.right - s.left), order="F") for s in strips]

    def update(self, z: Floats) -> StripSums:
        """Add z'z for the rows of a piece (r, n)."""
        for i, s in enumerate(self.strips):
            a, b = z[:, s.top : s.bottom], z[:, s.left : s.right]
            self.sums[i] = dgemm(1.0, a, b, beta=1.0, c=self.sums[i], trans_a=1, overwrite_c=1)
        return self

    def shift(self, left: Floats, right: Floats) -> None:
        """Add the outer product of two (n,) vectors."""
        for total, s in zip(self.sums, self.strips, strict=True):
            total += np.outer(left[s.top : s.bottom], right[s.left : s.right])

    def __iadd__(self, other: StripSums) -> StripSums:
        for mine, its in zip(self.sums, other.sums, strict=True):
            mine += its
        return self

    def place(self, K: Floats, by: int) -> None:
        """Write the strips into the upper triangle of K, whose columns begin `by` before."""
        for total, s in zip(self.sums, self.strips, strict=True):
            K[s.top + by : s.bottom + by, s.left + by : s.right + by] = total


def first_column(read: tuple[Strip, ...]) -> int:
    """The first column that a read needs: it needs all from there on."""
    return min(strip.top for strip in read)


def areas(tiling: Tiling) -> Iterator[int]:
    """Entries of K that each read sums."""
    return (sum(strip.nbytes // 8 for strip in read) for read in tiling.reads)

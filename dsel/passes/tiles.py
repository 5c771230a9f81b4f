"""The Gram matrix by tiles, for tall data whose n x n partial sums do not fit a worker, in as few reads as possible.

The upper triangle of K is cut into square tiles. A read of the data sums as many of them, in row-major order, as fit
into a worker next to a row block. The number of reads is the area of the triangle over that of a worker, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dgemm

from dsel._lib.types import Floats
from dsel.errors import CapacityError
from dsel.passes.execution.pass_checkpoints import storable

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
    """Tiles of `width` columns, and the strips of them that each read sums."""

    width: int
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
        raise CapacityError(
            f"A partial sum may take {max(budget, 0) / 2**20:.3g} MiB, and a tile of the Gram matrix needs "
            f"{least / 2**20:.3g} MiB.",
            "Give each worker more memory, or store the data in smaller row blocks.",
        )
    fewest = math.ceil(n / math.isqrt(int(budget // 8)))
    most = max(fewest, min(3 * fewest + 16, n // NARROWEST))
    tilings = (_pack(n, math.ceil(n / pieces), budget) for pieces in range(fewest, most + 1))
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
    return Tiling(width, tuple(tuple(read) for read in reads))


@storable
class StripSums:
    """The sums of some strips of K over rows."""

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
        """Write the strips into the upper triangle of K, which begins `by` columns before."""
        for total, s in zip(self.sums, self.strips, strict=True):
            K[s.top + by : s.bottom + by, s.left + by : s.right + by] = total


def first_column(read: tuple[Strip, ...]) -> int:
    """Return the first column that a read needs. It needs all columns from there on."""
    return min(strip.top for strip in read)

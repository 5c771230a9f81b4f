"""What the columns of X hold, gathered while they are written: missing values, constants, equal columns."""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.npz import pack_npz, read_npz

Array = NDArray[Any]

_PIECE_BYTES: Final = 500_000  # the copies of a piece fit into the cache
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class ColumnProfile:
    """Counts and extremes of each column, and a digest by which equal columns are found.

    Attributes
    ----------
    missing, infinite : ndarray of int, shape (n,)
        How many values are NaN, and how many are infinite.
    low, high : ndarray of float, shape (n,)
        The smallest and the largest value that is not NaN.
    digest : ndarray of uint64, shape (n,)
        A sum over the rows that is the same for equal columns, and for others with probability 2**-64.
    """

    missing: NDArray[np.int64]
    infinite: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    digest: NDArray[np.uint64]

    @classmethod
    def empty(cls, n: int) -> ColumnProfile:
        """Return the profile of n columns without rows."""
        zeros = np.zeros(n, np.int64)
        return cls(zeros, zeros.copy(), np.full(n, np.inf), np.full(n, -np.inf), np.zeros(n, np.uint64))

    @classmethod
    def from_text(cls, text: str) -> ColumnProfile:
        """Return the profile that `to_text` has written."""
        found = read_npz(io.BytesIO(base64.b85decode(text)))
        return cls(*(found[name] for name in ("missing", "infinite", "low", "high", "digest")))

    def to_text(self) -> str:
        """Return the profile as text, for the progress file."""
        return base64.b85encode(pack_npz(vars(self), compressed=True)).decode()

    def add(self, x: Array, first_row: int) -> None:
        """Add rows of X, the first of which is row `first_row`."""
        step = max(1, _PIECE_BYTES // max(1, x.shape[1] * 8))
        for start in range(0, len(x), step):
            self._add_piece(np.asarray(x[start : start + step]), first_row + start)

    def constant(self) -> NDArray[np.int64]:
        """Return the columns without two different values."""
        return np.flatnonzero((self.low == self.high) | (self.low > self.high))

    def duplicates(self) -> list[list[int]]:
        """Return groups of columns that are equal in every row; constant columns are left out."""
        groups: defaultdict[tuple[int, float, float, int], list[int]] = defaultdict(list)
        keys = zip(self.digest.tolist(), self.low.tolist(), self.high.tolist(), self.missing.tolist(), strict=True)
        for j, key in enumerate(keys):
            if key[1] < key[2]:
                groups[key].append(j)
        return [group for group in groups.values() if len(group) > 1]

    def _add_piece(self, x: Array, first_row: int) -> None:
        bits = _bits(x)
        rows = _mixed(np.arange(first_row + 1, first_row + 1 + len(x), dtype=np.uint64)) | np.uint64(1)
        self.digest += (_mixed(bits) * rows[:, None]).sum(axis=0, dtype=np.uint64)
        if x.dtype.kind == "f":
            is_nan = np.isnan(x)
            if is_nan.any():
                self.missing += is_nan.sum(axis=0)
                low, high = np.where(is_nan, np.inf, x).min(axis=0), np.where(is_nan, -np.inf, x).max(axis=0)
            else:
                low, high = x.min(axis=0), x.max(axis=0)
            if np.isinf(low).any() or np.isinf(high).any():
                self.infinite += np.isinf(x).sum(axis=0)
        else:
            low, high = x.min(axis=0), x.max(axis=0)
        np.minimum(self.low, low, out=self.low)
        np.maximum(self.high, high, out=self.high)


def _bits(x: Array) -> NDArray[np.uint64]:
    """Return 64 bits for each value: equal numbers of one array have equal bits, and all NaN have the same."""
    if x.dtype.kind != "f":
        return x.astype(np.int64 if x.dtype.kind == "i" else np.uint64).view(np.uint64)
    values = x.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return bits of which each depends on all of the given ones, as in SplitMix64."""
    bits = bits * _MIX
    bits ^= bits >> np.uint64(32)
    bits *= _MIX
    bits ^= bits >> np.uint64(29)
    return bits

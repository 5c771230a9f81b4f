"""Groups of columns that a proof for a loss chooses together, and the coefficients of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dsel._lib.types import Floats, Ints

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Grouping:
    """A division of columns into groups, whose columns follow each other.

    starts: (g + 1,) the first column of each group, and the number of columns. width: at least the size of the largest
    group; the points of all parts of a problem have this width.
    """

    starts: Ints
    width: int

    @classmethod
    def of_sizes(cls, sizes: Sequence[int] | Ints) -> Grouping:
        """Return the groups of these sizes."""
        return cls(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), int(np.max(sizes)))

    @property
    def n(self) -> int:
        """The number of groups."""
        return self.starts.size - 1

    @cached_property
    def sizes(self) -> Ints:
        """The number of columns (g,) of each group."""
        return np.diff(self.starts)

    def members(self, S: Ints) -> Ints:
        """Return the columns of some groups, one group after the other."""
        sizes = self.sizes[S]
        return np.asarray(np.repeat(self.starts[S] - self._ends(S)[:-1], sizes) + np.arange(sizes.sum()))

    def among(self, S: Ints) -> Grouping:
        """Return the grouping of the columns of some groups."""
        return Grouping(self._ends(S), self.width)

    def sums(self, values: Floats) -> Floats:
        """Return at least the sums (g,) of values >= 0 of all columns, in spite of rounding."""
        found = np.add.reduceat(values, self.starts[:-1]) if self.n else np.zeros(0)
        return np.asarray(found * (1.0 + _EPS * self.sizes))

    def lengths(self, sizes: Floats, S: Ints) -> Floats:
        """Return the length (s,) of the coefficients of some groups, whose columns have coefficients of these sizes."""
        if not S.size:
            return np.zeros(0)
        return np.asarray(np.sqrt(np.add.reduceat(np.square(sizes), self._ends(S)[:-1])))

    def flat(self, b: Floats, S: Ints, outputs: int) -> Floats:
        """Return the coefficients (p, t) of the columns of some groups from those of the groups (s, width t)."""
        return np.asarray(b.reshape(S.size, self.width, outputs)[self._there(S)])

    def padded(self, b: Floats, S: Ints) -> Floats:
        """Return the coefficients (s, width t) of some groups from those of their columns, (p,) or (p, t)."""
        found = np.zeros((S.size, self.width, *b.shape[1:]))
        found[self._there(S)] = b
        return found.reshape(S.size, self.width * (b.shape[1] if b.ndim == 2 else 1))

    def _ends(self, S: Ints) -> Ints:
        return np.concatenate([[0], np.cumsum(self.sizes[S])]).astype(np.int64)

    def _there(self, S: Ints) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Return which places (s, width) of groups have a column."""
        return np.arange(self.width) < self.sizes[S][:, None]

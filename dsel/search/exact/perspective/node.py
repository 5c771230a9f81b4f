"""A node of the tree of relaxations, and how it is saved.

What the tree of relaxations for one size leaves to that for the next size, or to that of the same size on data that
grew.

A node is known by its path from the root: for each branching j + 1 if column j is in, -(j + 1) if it is out. Columns
that reduced costs fixed do not count, because they depend on the size.

Everything in it is advice. The next tree branches on the same columns, and computes bounds from the same coefficients,
which are valid for any coefficients. Near the best number of columns q, the relaxation is concave in q with the slope
t^2, and the coefficients for q - 1 give its tangent. So most nodes need no relaxation. Where there
is no advice, the tree continues as usual.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective.coordinate_descent import nonzero
from dsel.search.exact.perspective.relaxation import Mask

#: The branchings that lead to a node; None if they are not known.
Path = tuple[int, ...] | None

#: Bytes of coefficients and paths that are kept.
_MOST_BYTES = 256 << 20


class CachedRelaxation(NamedTuple):
    """Rows of coefficients b of the columns `support`, relaxed for subsets of k columns."""

    k: int
    support: Ints
    b: Floats

    @property
    def nbytes(self) -> int:
        """The bytes of memory, about."""
        return 300 + self.support.nbytes + self.b.nbytes


@dataclass
class WarmStart:
    """The branchings and coefficients of a tree for subsets of k columns.

    d (n,): the diagonal of its relaxations. stages: better diagonals that it has not tried.
    """

    k: int
    d: Floats
    stages: tuple[str, ...]
    known: dict[Path, CachedRelaxation] = field(default_factory=dict)
    _columns: dict[Path, int] = field(default_factory=dict)
    _bytes: int = 0

    def column(self, path: Path) -> int:
        """Return the column that the node is branched on; -1 if that is not known."""
        return self._columns.get(path, -1)

    def coefficients(self, path: Path) -> CachedRelaxation | None:
        """Return the coefficients of the node, None if they are not known."""
        return self.known.get(path)

    def branched(self, path: Path, column: int) -> None:
        """Keep the column that a node is branched on."""
        if path is not None and self._bytes < _MOST_BYTES:
            self._columns[path] = column

    def keep(self, path: Path, known: CachedRelaxation) -> None:
        """Keep the coefficients of a node."""
        if path is not None and self._bytes < _MOST_BYTES:
            self.known[path] = known
            self._bytes += known.nbytes + 16 * len(path)

    def add(self, other: WarmStart) -> None:
        """Keep what another tree with the same diagonal found."""
        for path, known in other.known.items():
            self.keep(path, known)
        for path, column in other._columns.items():
            self.branched(path, column)


def step(path: Path, column: int, inside: bool) -> Path:
    """Return the path of the node below `path` where the column is in or out."""
    return None if path is None else (*path, column + 1 if inside else -column - 1)


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """Which of n columns are in and out, as bits, and what was found for its children.

    support, b: the rows of coefficients of the relaxation, none if the node has its own diagonal. branch: the column to
    branch on, -1 if the coefficients say it. path: the branchings that led here, for a warm start.
    """

    fixed: bytes
    out: bytes
    support: Ints
    b: Floats
    branch: int = -1
    path: Path = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A message with bytes is one frame. With arrays it would have two frames for each of its many nodes.
        return _unpickle, (
            self.fixed, self.out, self.support.tobytes(), self.b.tobytes(), self.branch, self.path, self.b.shape
        )  # fmt: skip

    @classmethod
    def of(cls, fixed: Mask, out: Mask, b: Floats | None, branch: int = -1, path: Path = None) -> Node:
        """Return the node with these columns in and out, (n,) each."""
        support = np.zeros(0, np.int64) if b is None else np.flatnonzero(nonzero(b))
        values = np.zeros(0) if b is None else b[support]
        return cls(np.packbits(fixed).tobytes(), np.packbits(out).tobytes(), support, values, branch, path)

    def masks(self, n: int) -> tuple[Mask, Mask]:
        """Return which of the n columns are in, and which are out."""
        return mask_of(self.fixed, n), mask_of(self.out, n)

    def coefficients(self, shape: tuple[int, ...]) -> Floats:
        """Return the coefficients of the relaxation, of this shape: (n,) for one target, else (n, N)."""
        b = np.zeros(shape)
        if not self.support.size:
            return b
        b[self.support] = self.b
        return b

    @property
    def nbytes(self) -> int:
        """The bytes of memory, about."""
        path = 0 if self.path is None else len(self.path)
        return 400 + len(self.fixed) + len(self.out) + 8 * (self.support.size + self.b.size + path)

    def as_list(self) -> list[Any]:
        """Return the node as JSON holds it."""
        path = None if self.path is None else list(self.path)
        return [self.fixed.hex(), self.out.hex(), self.support.tolist(), self.b.tolist(), self.branch, path]

    @classmethod
    def from_list(cls, values: list[Any]) -> Node:
        """Return the node that `as_list` wrote."""
        fixed, out, support, b, branch, *path = values  # older versions saved no path
        masks, arrays = (
            (bytes.fromhex(fixed), bytes.fromhex(out)),
            (np.array(support, np.int64), np.array(b, np.float64)),
        )
        return cls(*masks, *arrays, branch, tuple(path[0]) if path and path[0] is not None else None)


def _unpickle(*values: Any) -> Node:
    fixed, out, support, b, branch, path, shape = values
    return Node(fixed, out, np.frombuffer(support, np.int64), np.frombuffer(b).reshape(shape), branch, path)


def mask_of(bits: bytes, n: int) -> Mask:
    """Return which of n columns are set in the bits of `numpy.packbits`."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n).astype(np.bool_)

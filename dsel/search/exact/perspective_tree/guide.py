"""What the tree of relaxations for one size leaves to that for the next size.

A node is known by its path from the root: for each branching j + 1 if column j is in, -(j + 1) if it is out. Columns
that reduced costs fixed do not count, because they depend on the size.

Everything in it is advice. The next tree branches on the same columns, and computes bounds from the same coefficients,
which are valid for any coefficients. Near the best number of columns q, the relaxation is concave in q with the slope
t^2, and the coefficients for q - 1 give its tangent. So most nodes need no relaxation of their own, and where there is
no advice the tree continues as usual.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dsel._lib.types import Floats, Ints

#: The branchings that lead to a node; None if they are not known.
Path = tuple[int, ...] | None

#: Bytes of coefficients and paths that are kept.
_MOST_BYTES = 256 << 20


class Known(NamedTuple):
    """Rows of coefficients b of the columns `support`, relaxed for subsets of k columns."""

    k: int
    support: Ints
    b: Floats

    @property
    def nbytes(self) -> int:
        """The bytes of memory, about."""
        return 300 + self.support.nbytes + self.b.nbytes


@dataclass
class Guide:
    """The branchings and coefficients of a tree for subsets of k columns.

    d (n,): the diagonal of its relaxations. stages: better diagonals that it has not tried.
    """

    k: int
    d: Floats
    stages: tuple[str, ...]
    _columns: dict[Path, int] = field(default_factory=dict)
    _known: dict[Path, Known] = field(default_factory=dict)
    _bytes: int = 0

    def column(self, path: Path) -> int:
        """Return the column that the node is branched on; -1 if that is not known."""
        return self._columns.get(path, -1)

    def coefficients(self, path: Path) -> Known | None:
        """Return the coefficients of the node, None if they are not known."""
        return self._known.get(path)

    def branched(self, path: Path, column: int) -> None:
        """Keep the column that a node is branched on."""
        if path is not None and self._bytes < _MOST_BYTES:
            self._columns[path] = column

    def keep(self, path: Path, known: Known) -> None:
        """Keep the coefficients of a node."""
        if path is not None and self._bytes < _MOST_BYTES:
            self._known[path] = known
            self._bytes += known.nbytes + 16 * len(path)


def step(path: Path, column: int, inside: bool) -> Path:
    """Return the path of the node below `path` where the column is in or out."""
    return None if path is None else (*path, column + 1 if inside else -column - 1)

"""A node of the tree of relaxations, and how it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective_tree.guide import Path
from dsel.search.exact.perspective_tree.relaxation import Mask
from dsel.search.exact.perspective_tree.rows import nonzero


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """Which of n columns are in and out, as bits, and what was found for its children.

    support, b: the rows of coefficients of the relaxation, none if the node has its own diagonal. branch: the column to
    branch on, -1 if the coefficients say it. path: the branchings that led here, for a guide. It is not saved.
    """

    fixed: bytes
    out: bytes
    support: Ints
    b: Floats
    branch: int = -1
    path: Path = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A message with bytes is one frame. With arrays it would have two frames for each of its many nodes.
        return _unpickle, (self.fixed, self.out, self.support.tobytes(), self.b.tobytes(), self.branch)

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
        return [self.fixed.hex(), self.out.hex(), self.support.tolist(), self.b.tolist(), self.branch]

    @classmethod
    def from_list(cls, values: list[Any]) -> Node:
        """Return the node that `as_list` wrote."""
        fixed, out, support, b, branch = values
        return cls(
            bytes.fromhex(fixed), bytes.fromhex(out), np.array(support, np.int64), np.array(b, np.float64), branch
        )  # fmt: skip


def _unpickle(fixed: bytes, out: bytes, support: bytes, b: bytes, branch: int) -> Node:
    return Node(fixed, out, np.frombuffer(support, np.int64), np.frombuffer(b, np.float64), branch)


def mask_of(bits: bytes, n: int) -> Mask:
    """Return which of n columns are set in the bits of `numpy.packbits`."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n).astype(np.bool_)

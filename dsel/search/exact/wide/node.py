"""A node of the tree over wide data, and how it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """Columns that are in and out, the coefficients b of the columns `support`.

    estimate: what its subsets of the pool explain at most. tries: how often it was relaxed.
    """

    fixed: tuple[int, ...]
    out: tuple[int, ...]
    support: tuple[int, ...]
    b: tuple[float, ...]
    estimate: float
    tries: int = 1

    def as_list(self) -> list[Any]:
        """Return the node as JSON holds it."""
        return [list(self.fixed), list(self.out), list(self.support), list(self.b), self.estimate, self.tries]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Node:
        """Return the node that `as_list` wrote."""
        fixed, out, support, b, estimate, tries = values
        return cls(tuple(fixed), tuple(out), tuple(support), tuple(b), estimate, tries)

"""The tree in which partial results are merged: FAN_IN at a time, level by level.

The tree depends only on how many leaves there are. Parts of it may be merged on workers, in this process, or in an
earlier run that was interrupted: the result has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dsel.passes.data_pass import FAN_IN

Combine = Callable[[list[Any]], Any]

#: A node of the tree: its level (leaves have 0), the first of its leaves, and its merged result.
Node = tuple[int, int, Any]


def complete_subtrees(first: int, last: int) -> list[tuple[int, int]]:
    """Return (level, first leaf) of the largest nodes that cover the leaves [first, last) exactly, in order.

    Examples
    --------
    >>> complete_subtrees(3, 22)
    [(0, 3), (1, 4), (1, 8), (1, 12), (1, 16), (0, 20), (0, 21)]
    """
    found = []
    while first < last:
        level = 0
        while first % FAN_IN ** (level + 1) == 0 and first + FAN_IN ** (level + 1) <= last:
            level += 1
        found.append((level, first))
        first += FAN_IN**level
    return found


class OnDisk:
    """A result that is in a file, to be loaded when it is merged."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


def _loaded(value: Any) -> Any:
    return value.load() if isinstance(value, OnDisk) else value


class MergeTree:
    """The tree, as far as its first leaves are merged. It holds at most FAN_IN - 1 results of each level.

    Parameters
    ----------
    combine : callable, optional
        ``combine(parts)`` merges the results of consecutive nodes from left to right. Without it all results are kept.
    """

    def __init__(self, combine: Combine | None, nodes: Iterable[Node] = ()) -> None:
        self._combine = combine
        self.nodes: list[Node] = []
        self.leaves = 0
        for level, _, value in nodes:
            self.add(level, value)

    def add(self, level: int, value: Any) -> None:
        """Add the result of the next node, of a level."""
        first = self.leaves
        self.leaves += FAN_IN**level
        self.nodes.append((level, first, value))
        while self._combine is not None and self._is_full(level):
            group = self.nodes[-FAN_IN:]
            self.nodes[-FAN_IN:] = [(level + 1, group[0][1], self._combine([_loaded(part) for _, _, part in group]))]
            level += 1

    def add_whole(self, value: Any) -> None:
        """Add the merged result of all leaves."""
        self.nodes = [(0, 0, value)]

    def _is_full(self, level: int) -> bool:
        last = self.nodes[-FAN_IN:]
        return len(last) == FAN_IN and all(one[0] == level for one in last)

    def finish(self) -> list[Any]:
        """Return the merged result of all leaves as a list of one, or without `combine` the results of all nodes."""
        if self._combine is None:
            return [_loaded(value) for _, _, value in self.nodes]
        rest: list[Any] = []
        highest = max(level for level, _, _ in self.nodes)
        for level in range(highest + 1):
            rest = [*(_loaded(value) for at, _, value in self.nodes if at == level), *rest]
            rest = [self._combine(rest)] if len(rest) > 1 else rest
        return rest

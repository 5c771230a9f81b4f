"""What a search needs so that its open nodes are explored by tasks elsewhere, such as on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dsel.search.anytime import AnytimeSearch


class Explored(Protocol):
    """The result of a task. nodes: how many it visited; left: those that are still open."""

    @property
    def nodes(self) -> int:
        """The number of visited nodes."""

    @property
    def left(self) -> Sequence[Any]:
        """The nodes that are still open."""


class SubtreeWork(Protocol):
    """What tasks need to know of a tree. It is sent once, and must be picklable."""

    def explorer(self) -> Any:
        """Return what explores nodes, one task after another, with memory that is kept from task to task."""

    def explore(self, explorer: Any, nodes: Sequence[Any], incumbent: float, budget: int) -> Explored:
        """Explore open nodes, up to `budget` of them and their descendants, given f of the best subset.

        The result depends only on the arguments, so that any worker may do it.
        """


class SharedTree(AnytimeSearch, Protocol):
    """A tree whose open nodes may be leased. Leased nodes stay open, in its bound and its state."""

    @property
    def least_nodes(self) -> int:
        """The fewest nodes that are worth a task."""

    @property
    def done(self) -> bool:
        """Whether no open node can hold a better subset."""

    @property
    def proven(self) -> bool:
        """Whether the best subset is proved."""

    @property
    def memory_full(self) -> bool:
        """Whether the open nodes take too much memory."""

    @property
    def open_nodes(self) -> int:
        """The number of open nodes that are not leased."""

    @property
    def nodes_per_second(self) -> float:
        """About how many nodes are visited in a second."""

    def advance_alone(self, workers: int, until: int) -> bool:
        """Visit some nodes if it is too early for workers, and return whether it was so."""

    def work(self) -> SubtreeWork:
        """Return what explores subtrees of this tree elsewhere, the same object until it changes."""

    def subtree_size(self, node: Any) -> float:
        """Return about in proportion to what the size of a subtree is."""

    def checkout(self, most: int, enough: float, size: Callable[[Any], float]) -> tuple[int, list[Any]]:
        """Lease open nodes, best bound first, and return the id of the lease and the nodes.

        A lease has at most `most` nodes, and ends with the node at which their sizes reach `enough`. The nodes stay
        open until `complete` or `requeue` gets the id.
        """

    def requeue(self, lease_id: int) -> None:
        """Take the nodes of a lease back, because their worker failed."""

    def complete(self, lease_id: int, explored: Any) -> None:
        """Merge the result of a lease."""

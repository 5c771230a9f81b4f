"""The tree of a proof: open nodes in a heap, leases for workers, limits of time, and its saved state.

A tree is a subclass that bounds and splits nodes. It states what it can do as class attributes, so that nobody asks a
tree for its type. `dsel.search.exact.choose_tree` lists the trees and chooses one.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import AnytimeSearch, Deadline, Stop, drive
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.certificate import Certificate, consistent_bound
from dsel.search.exact.exact_search import CommonSetup, ExactSearch, check_saved
from dsel.search.exact.near_best import NearBest, OpenBounds
from dsel.search.exact.proof_log import LogPart, OpenNode

logger = logging.getLogger("dsel")

N = TypeVar("N")
T = TypeVar("T", bound="BestFirstTree[Any]")


#: Runs a search until its stop: `drive` in this process, `dsel.search.exact.trees_on_workers.on_workers` on a cluster.
Runner = Callable[[Any, Stop, Callable[[AnytimeSearch], None] | None], str]


@dataclass(frozen=True)
class Explored:
    """The result of a task.

    nodes: how many it visited. best: a subset better than the incumbent, or None. left: the nodes that are still open.
    seconds: about how long relaxations took, which does not depend on the machine. pruned: the least bound of nodes
    that were pruned. not_finite: the number of bounds that were not finite. log: records of the proof log. listed: the
    near-best subsets that were found, with their f, where they are looked for. advice: for a tree that follows
    this one.
    """

    nodes: int
    best: tuple[int, ...] | None
    left: Sequence[Any]
    seconds: float = 0.0
    pruned: float = float("inf")
    not_finite: int = 0
    log: LogPart | None = None
    listed: Sequence[tuple[tuple[int, ...], float]] = ()
    advice: Any = None


class SubtreeWork(Protocol):
    """What tasks need to know of a tree. It is sent once, and must be picklable."""

    def explorer(self) -> Any:
        """Return what explores nodes, one task after another, with memory that is kept from task to task."""

    def explore(self, explorer: Any, nodes: Sequence[Any], incumbent: float, budget: int) -> Explored:
        """Explore open nodes, up to `budget` of them and their descendants, given f of the best subset.

        The result depends only on the arguments, so that any worker may do it.
        """


class BestFirstTree(ExactSearch, Generic[N]):
    """A best-first search over open nodes, which can be read, saved and continued between two calls of `advance`.

    A node has a key in the heap: the least first. It is the bound of the node, or its negative. Leased nodes are open:
    they stay in the bound and in the saved state.

    A subclass has `_visit`, `lower` and `_prunes`, and `state` and `restore` on top of those of this class. If it is
    `distributable`, it also has `work` and `_sent` and `_received`.

    Attributes
    ----------
    can_log : bool
        Whether it writes its nodes to a proof log, which is given to `begin`.
    distributable : bool
        Whether open nodes may be explored by workers.
    needs_relaxation : bool
        Whether the relaxation of all columns in memory may have a better bound than an unfinished tree.
    relaxation_first : bool
        Whether the relaxation comes before the search if it is quick.
    relaxes_nodes : bool
        Whether each node takes a relaxation of all columns in memory, O(n^2).
    can_be_followed : bool
        Whether the tree of a later proof can follow what it keeps.
    makes_passes : bool
        Whether nodes are bounded by passes over the data.
    least_nodes : int
        The fewest nodes that are worth a task.
    passes : int
        The number of passes over the data so far.
    not_finite : int
        The number of bounds that were not finite. Such bounds prune nothing.
    nodes_per_second : float
        About how many nodes are visited in a second.
    """

    can_log = distributable = needs_relaxation = relaxation_first = relaxes_nodes = makes_passes = can_be_followed = (
        False
    )
    least_nodes = 1
    passes = 0
    not_finite = 0
    nodes_per_second = 1000.0

    def __init__(
        self, objective: Objective, k: int, bound_name: str, deadline: Deadline | None = None,
        setup: CommonSetup | None = None, memory_limit: int = 8 << 30, near_best: NearBest | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, bound_name, deadline, setup, near_best)
        self._heap: list[tuple[float, int, N]] = []
        self._leased: dict[int, list[tuple[float, N]]] = {}
        self._visited = self._made = self._leases = 0
        self._ended = ""
        self._too_long = 0.0  # seconds of the node that the last run had no time for
        self._only_prepared = False  # whether the time of the last run ended before the first node
        self._memory_limit, self._bytes = memory_limit, 0
        self._time = Deadline(None)
        self._most_nodes = 2**62  # `advance` gets that of a slice

    # What a subclass defines.

    def _visit(self, until: int) -> None:
        """Take a step: visit the first node of the heap, or do what must come before."""
        raise NotImplementedError

    def _prunes(self, key: float) -> bool:
        """Return whether a node with this key holds no better subset."""
        raise NotImplementedError

    def work(self) -> SubtreeWork:
        """Return what explores subtrees of this tree elsewhere, the same object until it changes."""
        raise NotImplementedError

    def node_seconds(self) -> float:
        """Return about how long the next node takes; 0 if that is no concern."""
        return 0.0

    def warm_up(self) -> None:
        """Compile what `advance` needs, the first time on a machine."""

    def certificate_fields(self) -> dict[str, Any]:
        """Return the fields of the certificate that only this tree has."""
        return {}

    def certificate(self) -> Certificate:
        """Return what is proved about the best subset so far."""
        too_long, ended_by = (0.0, "") if self.done else (self._too_long, "nodes" * (self._ended == "iterations"))
        if self.memory_full:
            ended_by = f"memory={self._memory_limit}"
        own = self.certificate_fields()
        return replace(super().certificate(), node_seconds=too_long, ended_by=ended_by, **own)

    def kept(self, most_bytes: int) -> dict[str, Any]:
        """Return what the same proof on data that grew continues from, as arrays; empty if there is nothing."""
        return {}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Take what this tree had kept before it was saved and restored, so that a later one can follow all of it."""

    @property
    def follows(self) -> bool:
        """Whether it follows what another tree has kept."""
        return False

    def limit_note(self) -> str:
        """Return why this tree proves less than others would, and what proves more; empty if there is nothing."""
        if not self._only_prepared or self._too_long:  # the certificate says how long a node takes
            return ""
        return (
            "visited no node, because its time ended before the first one; more time helps (a first proof on a machine "
            "may compile for seconds: dsel warm does that before)"
        )

    # What all share.

    @property
    def problem(self) -> BoundProblem:
        """K and the targets as the bounds use them."""
        return self.setup.problem(self.deadline)

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        return self._visited

    @property
    def open_nodes(self) -> int:
        """The number of open nodes that no worker has."""
        return len(self._heap)

    @property
    def memory_full(self) -> bool:
        """Whether the nodes of the heap take too much memory."""
        return self._bytes > self._memory_limit

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return not self._heap and not self._leased

    @property
    def proven(self) -> bool:
        """Whether `best` is the best subset, to MARGIN: no node is open, and nothing contradicts the bounds."""
        return self.done and not self.contradicted

    @property
    def end(self) -> str:
        """Why the tree has ended, if no node is open."""
        return "proven" if self.proven else "contradiction"

    def run_until(
        self, stop: Stop, on_slice: Callable[[AnytimeSearch], None] | None = None, runner: Runner | None = None
    ) -> str:
        """Continue until a rule of `stop` is met and return its name: "seconds" too if a node would take longer.

        runner: runs a distributable tree, by default in this process.
        """
        self._too_long, self._most_nodes = 0.0, 2**62 if stop.iterations is None else stop.iterations
        before, seconds, left = self.iteration, self.node_seconds(), stop.seconds
        if left is not None and seconds > left:
            logger.info("a node of the proof takes about %.3g s, and %.3g s are left: the proof ends", seconds, left)
            ended = "seconds"
        else:
            with self.time_limit(left):
                ended = (runner if runner is not None and self.distributable else drive)(self, stop, on_slice)
        self._ended = ended
        self._only_prepared = ended == "seconds" and not self.iteration
        if seconds and left is not None and ended == "seconds" and self.iteration == before:
            self._too_long = max(seconds, left)
        return ended

    @contextmanager
    def time_limit(self, seconds: float | None) -> Iterator[None]:
        """Make `advance` return between nodes when these seconds of the block are over."""
        self._time = Deadline(seconds)
        try:
            yield
        finally:
            self._time = Deadline(None)

    @property
    def _interrupted(self) -> bool:
        """Whether the time is over."""
        return self._time.passed

    @property
    def active(self) -> bool:
        """Whether there is a next step."""
        return not (self.done or self.memory_full)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue until `until` nodes are visited; return True if done, out of memory, or f <= target."""
        with one_blas_thread():
            while self.active:
                if target is not None and self.best_value <= target:
                    return True
                if self.iteration >= until or self._interrupted:
                    return False
                self._visit(until)
        return self.done or not self._leased

    def _push(self, key: float, node: N) -> None:
        """Add an open node."""
        self._made += 1
        heapq.heappush(self._heap, (key, self._made, node))
        self._bytes += self._node_bytes(node)

    def _pop(self) -> tuple[float, N]:
        """Remove the first node of the heap, and return it with its key."""
        key, _, node = heapq.heappop(self._heap)
        self._bytes -= self._node_bytes(node)
        return key, node

    def _node_bytes(self, node: N) -> int:
        """Return the bytes of memory of a node, about; 0 if there is another limit."""
        return 0

    def _clear(self) -> None:
        """Remove all nodes from the heap."""
        self._heap.clear()
        self._bytes = 0

    def _prune_all(self, key: float, node: N) -> None:
        """Remove all nodes of the heap, because its first one, just taken from it, allows no better subset."""
        self._clear()

    def _accept(self, S: Iterable[int], claim: float) -> bool:
        """Take a subset from a subtree whose subsets have an f of at least `claim`."""
        better = super().offer(S)
        if better:
            self._check_claim(claim)
        return better

    # Nodes that are explored elsewhere.

    @property
    def sent_cutoff(self) -> float:
        """What workers get as the incumbent's f, with the nodes."""
        return self.cutoff_value

    def advance_alone(self, workers: int, until: int) -> bool:
        """Visit some nodes if it is too early for this many workers, and return whether it was so."""
        return False

    def subtree_size(self, node: Any) -> float:
        """Return about in proportion to what the size of a subtree is; by default 1, because it is not known."""
        return 1.0

    def _sent(self, key: float, node: N) -> Any:
        """Return a node as workers get it."""
        return node

    def _received(self, sent: Any) -> tuple[float, N]:
        """Return the key and the node of what workers return as open."""
        raise NotImplementedError

    def _lease_claim(self, nodes: Sequence[tuple[float, N]]) -> float:
        """Return the least f of a subset of leased nodes, by their bounds."""
        raise NotImplementedError

    def _merge(self, explored: Any) -> None:
        """Count what a worker did, except for its nodes."""

    def _take_listed(self, listed: Iterable[tuple[Iterable[int], float]], claim: float) -> None:
        """Take listed subsets with their f, from a subtree whose subsets have an f of at least `claim`."""
        assert self.near_best is not None
        for S, value in listed:
            if value < self.best_value:
                self._accept(S, claim)
            self.near_best.take(S, value)

    def open_bounds(self) -> OpenBounds:
        """Return bounds on f of the subsets of open nodes that have each column, and that lack it."""
        raise NotImplementedError

    def _can_lease(self) -> bool:
        """Return whether nodes may be leased now."""
        return True

    def checkout(self, most: int, cutoff: float, size: Callable[[Any], float]) -> tuple[int, list[Any]]:
        """Lease open nodes to a worker, best bound first, and return the id of the lease and the nodes.

        A lease has at most `most` nodes, and ends with the node at which their sizes reach `cutoff`. The nodes stay
        open, in `lower` and `state`, until `complete` or `requeue` gets the id.
        """
        nodes: list[tuple[float, N]] = []
        sent: list[Any] = []
        total = 0.0
        while self._can_lease() and self._heap and len(nodes) < most and total < cutoff:
            key, node = self._pop()
            if self._prunes(key):
                self._prune_all(key, node)
                break
            nodes.append((key, node))
            sent.append(self._sent(key, node))
            total += size(sent[-1])
        self._leases += 1
        if nodes:
            self._leased[self._leases] = nodes
        return self._leases, sent

    def requeue(self, lease_id: int) -> None:
        """Put the nodes of a lease back into the heap, because their worker failed."""
        for key, node in self._leased.pop(lease_id):
            self._push(key, node)

    def complete(self, lease_id: int, explored: Explored) -> None:
        """Merge the result of a lease."""
        claim = self._lease_claim(self._leased[lease_id])
        del self._leased[lease_id]
        self._visited += explored.nodes
        self._merge(explored)
        if explored.best is not None:
            self._accept(explored.best, claim)
        if self.near_best is not None:
            self._take_listed(explored.listed, claim)
        for sent in explored.left:
            self._push(*self._received(sent))

    # Its state.

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        raise NotImplementedError

    def logged_nodes(self) -> Iterable[OpenNode]:
        """Return the open nodes as a proof log holds them."""
        raise NotImplementedError

    def _shared_state(self) -> dict[str, Any]:
        return {**super()._shared_state(), "visited": self._visited}

    def _restore_shared(self, state: dict[str, Any]) -> None:
        super()._restore_shared(state)
        self._visited = state.get("visited", self._visited)

    def _leased_nodes(self) -> list[tuple[float, N]]:
        """Return the nodes that workers have."""
        return [pair for nodes in self._leased.values() for pair in nodes]

    def _entries(self) -> list[tuple[float, int, N]]:
        """Return the heap, with the leased nodes at its end. Their numbers follow."""
        leased = self._leased_nodes()
        return self._heap + [(key, self._made + i, node) for i, (key, node) in enumerate(leased, 1)]

    def _restore_heap(self, entries: Iterable[tuple[float, int, N]]) -> None:
        """Restore what `_entries` returned."""
        self._heap = list(entries)
        self._made = max((made for _, made, _ in self._heap), default=0)
        self._bytes = sum(self._node_bytes(node) for _, _, node in self._heap)
        heapq.heapify(self._heap)

    @classmethod
    def restore(
        cls: type[T], objective: Objective, state: Mapping[str, Any], *, memory_limit: int = 8 << 30, log: Any = None,
        setup: CommonSetup | None = None,
    ) -> T:  # fmt: skip
        """Return the tree as it was when `state` was taken; it continues with the same nodes."""
        check_saved(objective, dict(state))
        return cls._restored(objective, dict(state), memory_limit=memory_limit, log=log, setup=setup)

    @classmethod
    def _restored(cls: type[T], objective: Objective, state: dict[str, Any], **given: Any) -> T:
        """Return the tree of a state. given: the arguments of `restore`."""
        raise NotImplementedError


class RelaxationTree(BestFirstTree[N]):
    """A tree whose nodes have a bound on what their subsets explain, c - f. A key is the negative of that bound.

    It is done when no open node explains more than the best subset.
    """

    @property
    def limited(self) -> bool:
        """Whether the bounds are about subsets with limited coefficients only. The best one may have larger ones."""
        return False

    def _check_claim(self, claim: float) -> None:
        if not self.limited:
            super()._check_claim(claim)

    @property
    def upper_bound(self) -> float:
        """What a subset of the open nodes explains at most; -infinity without open nodes."""
        keys = [key for key, _ in self._leased_nodes()] + [key for key, _, _ in self._heap[:1]]
        return -min(keys, default=float("inf"))

    @property
    def cutoff(self) -> float:
        """What a better subset must explain more than: what the best subset explains, and a margin.

        Where near-best subsets are looked for, what those explain at least.
        """
        if self.near_best is not None:
            return self.objective.c - self.near_best.cutoff
        return self.objective.c - self.best_value + MARGIN * self.total

    @property
    def done(self) -> bool:
        """Whether no open node can hold a better subset."""
        return self.upper_bound <= self.cutoff

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        if self.contradicted:
            return 0.0
        if self.done:  # nodes that are better by less than the margin were left out
            return max(self.best_value - MARGIN * self.total, 0.0)
        bound = self.objective.c - self.upper_bound
        if self.limited:
            return min(max(bound, 0.0), self.best_value)
        if self.near_best is not None:  # its open nodes may allow no better subset
            bound = min(bound, self.best_value)
        return consistent_bound(bound, self.best_value, self.total, self.guarantee.error)

    def _prunes(self, key: float) -> bool:
        return not -key > self.cutoff

    def _push(self, key: float, node: N) -> None:
        if not self._prunes(key):
            super()._push(key, node)

    def _lease_claim(self, nodes: Sequence[tuple[float, N]]) -> float:
        return self.objective.c - self.upper_bound

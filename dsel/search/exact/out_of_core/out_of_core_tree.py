"""Branch and bound over more columns than a Gram matrix in memory can have, for one target and a ridge penalty.

Each node is relaxed among columns in memory, the pool, and bounded by a pass over all columns
(dsel.search.exact.out_of_core.relaxation). A pass bounds many nodes. It shows which other columns belong into the pool.

Reduced costs leave columns out of a node: those that cannot be in a better subset. When few are left, the node is
closed, and its columns join those of the other closed nodes. A tree in memory then searches all of these
(dsel.search.exact.perspective), with a better diagonal than lam I.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from dsel._lib.kernel_loading import load_kernels
from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective
from dsel.search import anytime
from dsel.search.exact.guarantee import Guarantee
from dsel.search.exact.out_of_core.pool import ColumnPool
from dsel.search.exact.out_of_core.relaxation import CLOSE, Node, PoolRelaxation
from dsel.search.exact.perspective.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.perspective.node import mask_of
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.tree import RelaxationTree

logger = logging.getLogger("dsel")

#: Columns that the pool begins with, and that enter it after a pass: of the root, and of a node.
_FIRST, _ENTERING, _ENTERING_NODE = 200, 200, 30
#: Most passes for the root, and most closed columns, among which the tree in memory searches.
_ROOT_PASSES, _CLOSED = 30, 1500
#: A node that was relaxed this often is split in any case.
_TRIES = 3
#: Bytes of the products of a pass, and most nodes of a pass.
_PASS_BYTES, _PASS_NODES = 128 << 20, 32
#: Nodes of the tree in memory between two checks of the clock.
_STEP = 10
#: The penalty on coefficients has settled when a pass changes it by this share.
_SETTLED = 0.03


class OutOfCoreTree(RelaxationTree[Node]):
    """Best-first search over nodes of fixed columns of wide data, which can be read, saved and continued.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns, with one target. lam > 0, unless there is a limit for coefficients.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset.
    memory_limit : int
        Bytes that open nodes of the tree in memory may take.
    coefficient_limit : float, optional
        The bounds are about subsets whose coefficients, for columns of norm 1, have a sum of squares of at most this
        many times that of the incumbent, see `PoolRelaxation`.
    largest_coefficient : float, optional
        They are about coefficients of at most this many times the largest one of the incumbent.
    """

    kind = "wide-tree"
    makes_passes = True

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), memory_limit: int = 8 << 30,
        coefficient_limit: float | None = None, largest_coefficient: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, "perspective", memory_limit=memory_limit)
        self._pool = ColumnPool(objective)
        self._relaxation = PoolRelaxation(self._pool, k, objective.lam, objective.total)
        self._explained = objective.c
        self._root: Node | None = Node((), (), (), (), 0.0, 0)
        self._closed = np.zeros(objective.n, np.bool_)
        self._closed_explained = -np.inf
        self._inner: PerspectiveTree | None = None
        self._members: Ints = np.empty(0, np.int64)
        self._stuck = False
        self._pass_seconds = 0.0
        known = np.asarray(sorted({int(j) for j in incumbent}), np.int64)
        self._pool.add(known)
        self.offer(known.tolist())
        if coefficient_limit is not None or largest_coefficient is not None:
            squares = np.square(self._relaxation.fit(np.asarray(self.best, np.int64)))
            if largest_coefficient is not None:
                self._relaxation.largest = largest_coefficient * float(squares.max(initial=0.0)) ** 0.5
            else:
                self._relaxation.limit = (coefficient_limit or 0.0) * float(squares.sum())
        if self.limit:
            self._relaxation.sharpen_extra(np.square(self._pool.all_cross))

    @property
    def limit(self) -> float:
        """The largest sum of squared coefficients, for columns of norm 1, that the bounds are about; 0: any."""
        return self._relaxation.limit

    @property
    def passes(self) -> int:  # type: ignore[override]
        """The number of passes over the data so far."""
        return self._pool.passes

    @property
    def screened(self) -> int:
        """The number of columns that are in no better subset, by their reduced costs at the root."""
        return self._relaxation.screened

    @property
    def screening(self) -> dict[str, int]:
        """What a certificate says: how many columns were screened and read, of how many, in how many passes."""
        read = int(self._pool.columns.size)
        return {"screened": self.screened, "columns": self.objective.n, "read": read, "passes": self.passes}

    def certificate_fields(self) -> dict[str, Any]:
        """Return what a certificate says of this tree: the limit of coefficients, and the screening."""
        limits = {"coefficients": self.limit / self.total, "largest_coefficient": self._relaxation.largest}
        return {**limits, **self.screening}

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset of the pool and return whether it is better than the best; read its columns if need be."""
        members = np.asarray(sorted({int(j) for j in S}), np.int64)
        if not members.size or members.size > self.k:
            return False
        self._pool.add(members)
        value = self._pool.objective_of(members).value(range(members.size))
        if not value < self.best_value:
            return False
        return super().offer(members.tolist())

    @property
    def iteration(self) -> int:
        """The number of relaxations of all columns, and of visited nodes of the tree in memory."""
        return self._visited + (0 if self._inner is None else self._inner.iteration)

    def _independent(self, members: tuple[int, ...]) -> tuple[int, ...]:
        dense = self._pool.objective_of(np.asarray(members, np.int64))  # rows of K would take a pass
        return tuple(members[i] for i in dense.without_dependent(range(len(members))))

    @property
    def open_nodes(self) -> int:
        """The number of open nodes."""
        return len(self._heap) + (0 if self._inner is None else self._inner.open_nodes)

    @property
    def saved_numbers(self) -> int:
        """How many numbers `state` holds, at most."""
        wide = sum(2 * len(node.support) + len(node.out) for _, _, node in self._heap)
        return wide + (0 if self._inner is None else self._inner.saved_numbers)

    @property
    def memory_full(self) -> bool:
        """Whether the tree in memory has too many open nodes."""
        return self._inner is not None and self._inner.memory_full

    @property
    def upper_bound(self) -> float:
        """What a subset of the open and closed nodes explains at most."""
        if self._root is not None:
            return self._explained
        closed = self._closed_explained
        if self._inner is not None:
            closed = min(closed, self.objective.c - self._inner.lower) if not self._inner.done else -np.inf
        return max(closed, super().upper_bound)

    @property
    def limited(self) -> bool:
        """Whether the bounds are about limited coefficients only."""
        return max(self.limit, self._relaxation.largest) > 0.0

    @cached_property
    def guarantee(self) -> Guarantee:
        """What rounding of means may hide, and dependent subsets, of which the bounds know but the search does not."""
        squares = self.limit or self.k * self._relaxation.largest**2
        return self.setup.guarantee_within(self.k, squares, rounding=2.0 * self._pool.rounding)

    def node_seconds(self) -> float:
        """Return the seconds of the last pass."""
        return self._pass_seconds if self._inner is None else 0.0

    def warm_up(self) -> None:
        """Compile the relaxation and the value of a subset, the first time on a machine."""
        load_kernels(*RELAXATION_KERNELS)
        if self._pool.columns.size:
            self._pool.objective_of(self._pool.columns[:1]).value((0,))

    @property
    def _searches_closed(self) -> bool:
        """Whether only the tree in memory is left."""
        return self._root is None and not self._heap

    @property
    def active(self) -> bool:
        late = self._time.passed or self._pass_seconds > self._time.remaining
        return super().active and not self._stuck and (self._searches_closed or not late)

    def _visit(self, until: int) -> None:
        if self._searches_closed:
            self._search_closed(until)
        else:
            self._make_pass()

    def _make_pass(self) -> None:
        start, passes = anytime.default_clock(), self.passes
        if self._root is not None:
            self._relax_root(self._root)
        else:
            self._relax_nodes()
        self._pass_seconds = anytime.default_clock() - start
        if self.passes == passes:
            return
        fields = {**self.screening, "nodes": self._visited, "bound": self.lower, "best": self.best_value}
        logger.info(
            "certificate: pass %d, %d of %d columns screened, %d read, %d nodes, bound %.6g, best %.6g",
            self.passes, self.screened, self.objective.n, self._pool.columns.size, self._visited, self.lower,
            self.best_value, extra={"fields": {"stage": "certificate", **fields}},
        )  # fmt: skip

    # The root.

    def _relax_root(self, root: Node) -> None:
        """Relax the root among the columns of the pool, bound it by a pass, and screen."""
        relaxation = self._relaxation
        if not root.tries:
            self._pool.enter(relaxation.wanted(root, np.square(self._pool.all_cross), _FIRST))
        root, before = self._relaxed(root, self._explained), relaxation.extra
        ((explained, g),) = relaxation.bounds([root], sharpen=self.limit > 0.0)
        self._explained = min(self._explained, explained)
        self._offer(relaxation.rounded(root), self._explained)
        relaxation.alive &= relaxation.candidates(root, explained, g, self.cutoff)
        entered = self._pool.enter(relaxation.wanted(root, g, _ENTERING))
        close = explained - root.estimate <= CLOSE * (explained - self.cutoff)
        settled = abs(relaxation.extra - before) <= _SETTLED * before
        ended = (settled and (close or not entered)) or self.objective.n - self.screened <= self._most_closed
        if ended or root.tries >= _ROOT_PASSES:
            self._root = None
            self._keep(root, self._explained, explained, g)
        else:
            self._root = root

    # Nodes.

    def _relax_nodes(self) -> None:
        """Split the nodes with the highest bounds as far as the pool can tell, and bound the leaves by one pass."""
        leaves = self._leaves(int(max(2, min(_PASS_NODES, _PASS_BYTES // (8 * self.objective.n)))))
        if not leaves:
            return
        bounds = self._relaxation.bounds([node for node, _ in leaves])
        wanted = []
        for (node, parent), (explained, g) in zip(leaves, bounds, strict=True):
            bound = min(parent, explained)
            self._offer(self._relaxation.rounded(node), bound)
            self._keep(node, bound, explained, g)
            if bound > self.cutoff:
                wanted.append(self._relaxation.wanted(node, g, _ENTERING_NODE))
        self._pool.enter(np.unique(np.concatenate([*wanted, np.empty(0, np.int64)])))

    def _leaves(self, most: int) -> list[tuple[Node, float]]:
        """Return at most `most` nodes that replace the first ones of the heap, with bounds of their parents.

        A node is split unless the columns of the pool alone show that it holds no better subset. There are no leaves if
        the time passes before.
        """
        count = itertools.count()
        growing: list[tuple[float, int, Node, float]] = []
        while len(growing) < most // 2 and self._heap and self._has_room(1):  # each one may be split
            bound, node = -self._heap[0][0], self._heap[0][2]
            self._pop()
            if bound <= self.cutoff:
                self._clear()
                break
            relaxed = self._relaxed(node, bound)
            estimate = relaxed.estimate if node.tries < _TRIES else np.inf
            heapq.heappush(growing, (-estimate, next(count), relaxed, bound))
        while growing and len(growing) < most and -growing[0][0] > self.cutoff and self._has_room(2):
            if self._time.passed:
                for _, _, node, bound in growing:
                    self._push(-bound, node)
                return []
            node, bound = heapq.heappop(growing)[2:]
            for child in self._split(node, bound):
                relaxed = self._relaxed(child, bound)
                heapq.heappush(growing, (-relaxed.estimate, next(count), relaxed, bound))
        return [(node, bound) for _, _, node, bound in growing]

    def _has_room(self, nodes: int) -> bool:
        """Return whether the limit of nodes allows to visit this many more."""
        return self._visited + nodes <= self._most_nodes

    def _split(self, node: Node, bound: float) -> list[Node]:
        """Return the node with and without the most fractional column. A child that is a single subset is offered."""
        j, found = self._relaxation.branching_column(node), []
        for fixed, out in (((*node.fixed, j), node.out), (node.fixed, (*node.out, j))):
            child = Node(fixed, out, node.support, node.b, 0.0, 0)
            free, q = np.flatnonzero(self._relaxation.free(child)), self.k - len(fixed)
            if q == 0 or free.size <= q:
                self._offer([*fixed, *(free.tolist() if q else ())], bound)
            else:
                found.append(child)
        return found

    def _keep(self, node: Node, bound: float, explained: float, g: Floats) -> None:
        """Keep a node whose subsets explain at most `bound`. If few columns are left, it is closed."""
        if bound <= self.cutoff:
            return
        closed = self._closed | self._relaxation.candidates(node, explained, g, self.cutoff)
        closed[list(node.fixed)] = True
        if int(closed.sum()) <= self._most_closed:
            self._closed, self._closed_explained = closed, max(self._closed_explained, bound)
            return
        self._push(-bound, node)

    def _relaxed(self, node: Node, bound: float) -> Node:
        self._visited += 1
        return self._relaxation.relaxed(node, bound, self.cutoff)

    @property
    def _most_closed(self) -> int:
        """How many columns the tree in memory may have. Without a penalty they must be independent."""
        most = min(_CLOSED, self._pool.limit)
        return min(most, self._pool.rows // 4) if self.limit else most  # each coefficient alone has a limit otherwise

    def _offer(self, S: Iterable[int], bound: float) -> None:
        if self.offer(S):
            self._check_claim(self.objective.c - bound)

    # The closed nodes.

    def _search_closed(self, until: int) -> None:
        """Continue the tree in memory."""
        if self._inner is None:
            members = self._closed.copy()
            members[list(self.best)] = True
            self._members = np.flatnonzero(members)
            self._pool.add(self._members)
            known = np.searchsorted(self._members, self.best).tolist()
            k, objective = min(self.k, self._members.size), self._pool.objective_of(self._members)
            try:
                self._inner = PerspectiveTree(
                    objective,
                    k,
                    incumbent=known,
                    memory_limit=self._memory_limit,
                    largest=self._relaxation.largest or None,
                )
            except ValueError:  # nearly dependent columns and a tiny penalty
                self._stuck = True
                logger.info("certificate: the proof ends, because its last %d columns are nearly dependent",
                         self._members.size)  # fmt: skip
                return
            logger.info("certificate: a tree in memory searches the last %d columns", self._members.size)
            self._inner.warm_up()
        self._inner.advance(min(self._inner.iteration + _STEP, until - self._visited))
        self.contradicted = self.contradicted or self._inner.contradicted
        if self._inner.best_value < self.best_value:
            self.offer(self._members[list(self._inner.best)].tolist())

    # Its state.

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        return {
            **self._shared_state(), "pool": self._pool.columns.tolist(),
            "batches": self._pool.batches, "passes": self.passes,
            "alive": np.packbits(self._relaxation.alive).tobytes().hex(), "explained": self._explained,
            "root": None if self._root is None else self._root.as_list(),
            "nodes": [[-key, made, node.as_list()] for key, made, node in self._entries()],
            "closed": np.flatnonzero(self._closed).tolist(), "closed_explained": self._closed_explained,
            "stuck": self._stuck,
            "limit": self.limit, "largest": self._relaxation.largest, "extra": self._relaxation.extra,
            "members": self._members.tolist(),
            "inner": None if self._inner is None else self._inner.state(),
        }  # fmt: skip

    @classmethod
    def _restored(cls, objective: Objective, state: dict[str, Any], **given: Any) -> OutOfCoreTree:
        search = cls(objective, state["k"], memory_limit=given["memory_limit"])
        search._pool.add_in_order(np.asarray(state["pool"], np.int64), state["batches"])
        search._pool.passes = state["passes"]
        search._restore_shared(state)
        search._relaxation.alive = mask_of(bytes.fromhex(state["alive"]), objective.n)
        search._relaxation.limit, search._relaxation.extra = state["limit"], state["extra"]
        search._relaxation.largest = state.get("largest", 0.0)
        search._explained, search._stuck = state["explained"], state["stuck"]
        search._root = None if state["root"] is None else Node.from_list(state["root"])
        search._restore_heap((-bound, made, Node.from_list(node)) for bound, made, node in state["nodes"])
        search._closed[state["closed"]] = True
        search._closed_explained = state["closed_explained"]
        search._members = np.asarray(state["members"], np.int64)
        if state["inner"] is not None:
            dense = search._pool.objective_of(search._members)
            search._inner = PerspectiveTree.restore(dense, state["inner"], memory_limit=given["memory_limit"])
        return search

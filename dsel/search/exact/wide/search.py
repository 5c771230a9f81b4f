"""Branch and bound over more columns than a Gram matrix in memory can have, for one target and a ridge penalty.

For any coefficients b, with v = y - X b and r = X'v, no subset S of a node explains more than

    |X b|^2 + sum over F of r_j^2 / lam + the q largest other r_j^2 / lam

where the columns F are fixed in and q may be added. This is the perspective relaxation with D = lam I
(dsel.search.exact.perspective_tree.relaxation) in its dual form: it holds for every v, and needs the products of v with
all columns, one pass over the data. Products of many nodes share a pass. The best b is found among columns in memory,
the pool. Each pass shows which other columns belong there.

Reduced costs leave columns out of a node: those that cannot be in a better subset. When few are left, the node is
closed, and its columns join those of the other closed nodes. A tree in memory then searches all of these
(dsel.search.exact.perspective_tree), with a better diagonal than lam I.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.search.exact.base import ExactSearch, check_saved, consistent_bound
from dsel.search.exact.guarantee import Guarantee
from dsel.search.exact.perspective_tree.relaxation import Mask, Problem, relax
from dsel.search.exact.perspective_tree.search import PerspectiveTree
from dsel.search.exact.perspective_tree.weights import largest, level, weights
from dsel.search.exact.wide.pool import ColumnPool

log = logging.getLogger("dsel")

#: Columns that the pool begins with, and that enter it after a pass: of the root, and of a node.
_FIRST, _ENTERING, _ENTERING_NODE = 200, 200, 30
#: Most passes for the root, and most closed columns, among which the tree in memory searches.
_ROOT_PASSES, _CLOSED = 30, 1500
#: The root's relaxation ends when the bound is this close to it, as a share of the gap.
_CLOSE = 0.02
#: A node that was relaxed this often is split in any case.
_TRIES = 3
#: Bytes of the products of a pass, and most nodes of a pass.
_PASS_BYTES, _PASS_NODES = 128 << 20, 32
#: Nodes of the tree in memory between two checks of the clock.
_STEP = 10
#: Weights within this of 0 and 1 are whole.
_WHOLE = 1e-6
#: A relaxation continues until its bound is below what is enough by this share of the gap.
_FURTHER = 0.2
#: The penalty on coefficients has settled when a pass changes it by this share.
_SETTLED = 0.03
#: Least penalty on coefficients beyond lam, for columns of norm 1.
_LEAST_EXTRA = 1e-6


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


class WideTree(ExactSearch):
    """Best-first search over nodes of fixed columns of wide data, which can be read, saved and continued.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns, with one target. lam > 0, unless there are `coefficients`.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset.
    memory_limit : int
        Bytes that open nodes of the tree in memory may take.
    coefficients : float, optional
        With lam = 0, the bounds are about subsets whose coefficients, for columns of norm 1, have a sum of squares of
        at most this many times that of the incumbent.

    Notes
    -----
    Without a penalty, nearly equal columns may explain anything with large coefficients, and no bound for all subsets
    follows from a few products. For subsets whose coefficients have a sum of squares of at most R^2,

        f(S) >= min over b of |y - X_S b|^2 + p (|b|^2 - R^2)    for every p > 0,

    so that the relaxation with the penalty p gives a bound. The root finds the best p.
    """

    kind = "wide-tree"
    #: Bounds that are not finite: none, because they are checked at once.
    not_finite = 0

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), memory_limit: int = 8 << 30,
        coefficients: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, "perspective")
        self._pool = ColumnPool(objective)
        self._memory_limit = memory_limit
        self._usable: Mask = np.isfinite(self._pool.norms)
        self._ridge: Floats = np.where(self._usable, objective.lam / np.square(self._pool.norms), 1.0)
        self._extra = 0.0
        self._alive = self._usable.copy()
        self._explained = objective.c
        self._root: Node | None = Node((), (), (), (), 0.0, 0)
        self._heap: list[tuple[float, int, Node]] = []
        self._closed = np.zeros(objective.n, np.bool_)
        self._closed_explained = -np.inf
        self._inner: PerspectiveTree | None = None
        self._members: Ints = np.empty(0, np.int64)
        self._of_pool: Problem | None = None
        self._stuck = False
        self._visited = self._made = 0
        self._pass_seconds, self._until = 0.0, float("inf")
        known = np.asarray(sorted({int(j) for j in incumbent}), np.int64)
        self._pool.add(known)
        self.offer(known.tolist())
        self.limit = 0.0 if coefficients is None else coefficients * self._squared_coefficients()
        if self.limit:
            self._sharpen_extra(np.square(self._pool.all_cross))

    @property
    def passes(self) -> int:
        """The number of passes over the data so far."""
        return self._pool.passes

    @property
    def screened(self) -> int:
        """The number of columns that are in no better subset, by their reduced costs at the root."""
        return int(self.objective.n - self._alive.sum())

    @property
    def screening(self) -> dict[str, int]:
        """What a certificate says: how many columns were screened and read, of how many, in how many passes."""
        held = int(self._pool.columns.size)
        return {"screened": self.screened, "columns": self.objective.n, "held": held, "passes": self.passes}

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
    def _enough(self) -> float:
        """What the best subset explains, and a margin."""
        return self.objective.c - self.best_value + MARGIN * self.total

    @property
    def iteration(self) -> int:
        """The number of relaxations of all columns, and of visited nodes of the tree in memory."""
        return self._visited + (0 if self._inner is None else self._inner.iteration)

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
    def _most(self) -> float:
        """What a subset of the open and closed nodes may explain, at most."""
        if self._root is not None:
            return self._explained
        closed = self._closed_explained
        if self._inner is not None:
            closed = min(closed, self.objective.c - self._inner.lower) if not self._inner.done else -np.inf
        return max(closed, -self._heap[0][0] if self._heap else -np.inf)

    @property
    def done(self) -> bool:
        """Whether no open node can hold a better subset."""
        return self._most <= self._enough

    @property
    def proven(self) -> bool:
        """Whether the best subset is proved, with no contradiction."""
        return self.done and not self.contradicted

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        if self.contradicted:
            return 0.0
        if self.done:
            return self.best_value
        bound = max(self.objective.c - self._most, 0.0)
        if self.limit:  # the best subset may have larger coefficients
            return min(bound, self.best_value)
        return consistent_bound(bound, self.best_value, self.total, self.guarantee.error)

    @cached_property
    def guarantee(self) -> Guarantee:
        """No subset is excluded: with a penalty the bound covers dependent ones, and rounding is part of it."""
        return Guarantee(0.0)

    def node_seconds(self) -> float:
        """Return the seconds of the last pass."""
        return self._pass_seconds if self._inner is None else 0.0

    @contextmanager
    def time_limit(self, seconds: float | None) -> Iterator[None]:
        """Begin no pass in the block that would end after its time."""
        self._until = float("inf") if seconds is None else time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = float("inf")

    def warm_up(self) -> None:
        """Compile the value of a subset, the first time on a machine."""
        if self._pool.columns.size:
            self._pool.objective_of(self._pool.columns[:1]).value((0,))

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue until `until` relaxations are made; return True if done, or if nothing more can be done in time."""
        with one_blas_thread():
            return self._advance(until, target)

    def _advance(self, until: int, target: float | None) -> bool:
        while not (self.done or self.memory_full or self._stuck):
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until:
                return False
            if self._root is None and not self._heap:
                self._search_closed(until)
            elif time.monotonic() + self._pass_seconds > self._until:
                return True
            else:
                self._make_pass()
        return True

    def _make_pass(self) -> None:
        start = time.monotonic()
        if self._root is not None:
            self._relax_root(self._root)
        else:
            self._relax_nodes()
        self._pass_seconds = time.monotonic() - start

    # The root.

    def _relax_root(self, root: Node) -> None:
        """Relax the root among the columns of the pool, bound it by a pass, and screen."""
        if not root.tries:
            self._enter(self._wanted(root, np.square(self._pool.all_cross), _FIRST))
        root, before = self._relaxed(root, self._explained), self._extra
        ((explained, g),) = self._bounds([root], sharpen=self.limit > 0.0)
        self._explained = min(self._explained, explained)
        self._offer_rounded(root, self._explained)
        self._alive &= self._candidates(root, explained, g)
        entered = self._enter(self._wanted(root, g, _ENTERING))
        close = explained - root.estimate <= _CLOSE * (explained - self._enough)
        log.info("%d of %d columns are screened after %d passes", self.screened, self.objective.n, self.passes)
        settled = abs(self._extra - before) <= _SETTLED * before
        ended = (settled and (close or not entered)) or int(self._alive.sum()) <= self._most_closed
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
        bounds = self._bounds([node for node, _ in leaves])
        wanted = []
        for (node, parent), (explained, g) in zip(leaves, bounds, strict=True):
            bound = min(parent, explained)
            self._offer_rounded(node, bound)
            self._keep(node, bound, explained, g)
            if bound > self._enough:
                wanted.append(self._wanted(node, g, _ENTERING_NODE))
        self._enter(np.unique(np.concatenate([*wanted, np.empty(0, np.int64)])))

    def _leaves(self, most: int) -> list[tuple[Node, float]]:
        """Return at most `most` nodes that replace the first ones of the heap, with bounds of their parents.

        A node is split unless the columns of the pool alone show that it holds no better subset.
        """
        count = itertools.count()
        growing: list[tuple[float, int, Node, float]] = []
        while len(growing) < most // 2 and self._heap:  # each one may be split
            bound, node = -self._heap[0][0], self._heap[0][2]
            if bound <= self._enough:
                self._heap.clear()
                break
            heapq.heappop(self._heap)
            relaxed = self._relaxed(node, bound)
            estimate = relaxed.estimate if node.tries < _TRIES else np.inf
            heapq.heappush(growing, (-estimate, next(count), relaxed, bound))
        while growing and len(growing) < most and -growing[0][0] > self._enough:
            node, bound = heapq.heappop(growing)[2:]
            for child in self._split(node, bound):
                relaxed = self._relaxed(child, bound)
                heapq.heappush(growing, (-relaxed.estimate, next(count), relaxed, bound))
        return [(node, bound) for _, _, node, bound in growing]

    def _split(self, node: Node, bound: float) -> list[Node]:
        """Return the node with and without the most fractional column. A child that is a single subset is offered."""
        columns, a = self._weights(node)
        z = weights(a, self.k - len(node.fixed))
        if z.size:
            fraction = np.minimum(z, 1.0 - z)
            j = int(columns[fraction.argmax() if fraction.max() > _WHOLE else z.argmax()])
        else:
            j = int(np.flatnonzero(self._free(node))[0])
        found = []
        for fixed, out in (((*node.fixed, j), node.out), (node.fixed, (*node.out, j))):
            child = Node(fixed, out, node.support, node.b, 0.0, 0)
            free, q = np.flatnonzero(self._free(child)), self.k - len(fixed)
            if q == 0 or free.size <= q:
                self._offer([*fixed, *(free.tolist() if q else ())], bound)
            else:
                found.append(child)
        return found

    def _candidates(self, node: Node, explained: float, g: Floats) -> Mask:
        """Return which free columns (n,) may be in a better subset of a node, by their reduced costs.

        explained: what g (n,) proves that its subsets explain at most.
        """
        free, q = self._free(node), self.k - len(node.fixed)
        values = g[free]
        if q < values.size:
            last = np.partition(values, values.size - q)[values.size - q]
            free[free] = explained - last + np.maximum(values, last) > self._enough
        return free

    def _keep(self, node: Node, bound: float, explained: float, g: Floats) -> None:
        """Keep a node whose subsets explain at most `bound`. If few columns are left, it is closed."""
        if bound <= self._enough:
            return
        closed = self._closed | self._candidates(node, explained, g)
        closed[list(node.fixed)] = True
        if int(closed.sum()) <= self._most_closed:
            self._closed, self._closed_explained = closed, max(self._closed_explained, bound)
            return
        self._made += 1
        heapq.heappush(self._heap, (-bound, self._made, node))

    # Relaxations.

    def _relaxed(self, node: Node, bound: float) -> Node:
        """Return the node with the best coefficients among the columns of the pool. bound: its present one.

        What its subsets explain may be found to be less than `_enough`: the other columns count, too.
        """
        enough = self._enough - _FURTHER * (bound - self._enough)
        pool, problem, q = self._pool, self._problem, self.k - len(node.fixed)
        fixed, free = np.zeros(problem.n, np.bool_), self._free(node)[pool.columns]
        fixed[pool.place[list(node.fixed)]] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)  # copies of a column: the bound holds for any coefficients
            found = relax(problem, fixed, free, q, self._coefficients(node), enough - self._allowance, _CLOSE)
        S = np.flatnonzero(found.b)
        self._visited += 1
        support = tuple(pool.columns[S].tolist())
        return Node(node.fixed, node.out, support, tuple(found.b[S].tolist()), found.bound + self._allowance,
                    node.tries + 1)  # fmt: skip

    @property
    def _problem(self) -> Problem:
        """The relaxation's problem for the columns of the pool."""
        d = self._d[self._pool.columns]
        if self._of_pool is None or not np.array_equal(self._of_pool.d, d):
            self._of_pool = Problem(self._pool.gram + np.diag(d), self._pool.cross, d)
        return self._of_pool

    @property
    def _d(self) -> Floats:
        """D (n,) for columns of norm 1."""
        return self._ridge + self._extra

    @property
    def _most_closed(self) -> int:
        """How many columns the tree in memory may have. Without a penalty they must be independent."""
        most = min(_CLOSED, self._pool.limit)
        return min(most, self._pool.rows // 4) if self.limit else most

    @property
    def _allowance(self) -> float:
        """What the penalty on coefficients beyond lam may be worth, for subsets within the limit."""
        return self._extra * self.limit

    def _sharpen_extra(self, squares: Floats) -> None:
        """Find the best penalty for the squared products (n,) of the residuals with all columns."""
        self._extra = max((largest(squares, self.k) / self.limit) ** 0.5, _LEAST_EXTRA)

    def _squared_coefficients(self) -> float:
        """Return the sum of the squared coefficients of the best subset, for columns of norm 1."""
        at = self._pool.place[list(self.best)]
        gram = self._pool.gram[np.ix_(at, at)] + np.diag(self._ridge[list(self.best)])
        b = np.linalg.lstsq(gram, self._pool.cross[at], rcond=None)[0]
        return float(b @ b)

    def _bounds(self, nodes: list[Node], sharpen: bool = False) -> list[tuple[float, Floats]]:
        """Return what the subsets of each node explain at most, and its g (n,), by one pass.

        sharpen: find the best penalty on coefficients for the first node.
        """
        pool, usable, found = self._pool, self._usable, []
        b = np.stack([self._coefficients(node) for node in nodes], axis=1)
        for node, own, products in zip(nodes, b.T, pool.combinations(b), strict=True):
            size = float(np.abs(own).sum())
            rounding = pool.rounding * (self.total**0.5 + size)
            squares = np.where(usable, np.square(np.abs(pool.all_cross - products) + rounding), 0.0)
            if sharpen:
                self._sharpen_extra(squares)
            g = squares / self._d
            S = np.flatnonzero(own)
            fitted = float(own[S] @ pool.gram[np.ix_(S, S)] @ own[S]) + pool.rounding * size**2 + self._allowance
            best = largest(g[self._free(node)], self.k - len(node.fixed))
            found.append((fitted + float(g[list(node.fixed)].sum()) + best, g))
        return found

    def _coefficients(self, node: Node) -> Floats:
        """Return the coefficients (p,) of a node for the columns of the pool."""
        b = np.zeros(self._pool.columns.size)
        b[self._pool.place[list(node.support)]] = node.b
        return b

    def _free(self, node: Node) -> Mask:
        """Return which columns (n,) may be added to those that are fixed."""
        free = self._alive.copy()
        free[[*node.fixed, *node.out]] = False
        return free

    def _weights(self, node: Node) -> tuple[Ints, Floats]:
        """Return the columns of a node that have coefficients and are not fixed, and sqrt(d_j) |b_j| of each."""
        support = np.asarray(node.support, np.int64)
        free = ~np.isin(support, node.fixed)
        columns = support[free]
        return columns, np.abs(np.asarray(node.b))[free] * np.sqrt(self._d[columns])

    def _wanted(self, node: Node, g: Floats, most: int) -> Ints:
        """Return the columns that a node needs and that are not in the pool, the first ones by g (n,)."""
        q = self.k - len(node.fixed)
        wanted = self._free(node) & (self._pool.place < 0) & (g > level(self._weights(node)[1], q) ** 2)
        columns = np.flatnonzero(wanted)
        return columns[np.argsort(-g[columns], kind="stable")[:most]]

    def _enter(self, columns: Ints) -> int:
        """Add as many of these columns to the pool as it has room for, and return how many."""
        columns = columns[: max(self._pool.room, 0)]
        self._pool.add(columns)
        return int(columns.size)

    def _offer_rounded(self, node: Node, bound: float) -> None:
        """Offer the subset of the largest weights of a node whose subsets explain at most `bound`."""
        columns, a = self._weights(node)
        q = self.k - len(node.fixed)
        self._offer([*node.fixed, *columns[np.argsort(-a, kind="stable")[:q]].tolist()], bound)

    def _offer(self, S: Iterable[int], bound: float) -> None:
        if self.offer(S) and not self.limit:
            self._check_claim(self.objective.c - bound)

    # The closed nodes.

    def _search_closed(self, until: int) -> None:
        """Continue the tree in memory."""
        if self._inner is None:
            self._members = np.flatnonzero(self._closed | np.isin(np.arange(self.objective.n), self.best))
            try:
                self._inner = self._new_inner()
            except ValueError:  # nearly dependent columns and a tiny penalty
                self._stuck = True
                return
            self._inner.warm_up()
        self._inner.advance(min(self._inner.iteration + _STEP, until - self._visited))
        self.contradicted = self.contradicted or self._inner.contradicted
        if self._inner.best_value < self.best_value:
            self.offer(self._members[list(self._inner.best)].tolist())

    def _new_inner(self) -> PerspectiveTree:
        self._pool.add(self._members)
        known = np.searchsorted(self._members, self.best).tolist()
        k, objective = min(self.k, self._members.size), self._pool.objective_of(self._members)
        return PerspectiveTree(objective, k, incumbent=known, memory_limit=self._memory_limit)

    # Its state.

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        return {
            **self._shared_state(), "pool": self._pool.columns.tolist(), "passes": self.passes,
            "alive": np.packbits(self._alive).tobytes().hex(), "explained": self._explained,
            "root": None if self._root is None else _as_json(self._root),
            "nodes": [[-bound, made, _as_json(node)] for bound, made, node in self._heap],
            "closed": np.flatnonzero(self._closed).tolist(), "closed_explained": self._closed_explained,
            "visited": self._visited, "made": self._made, "stuck": self._stuck,
            "limit": self.limit, "extra": self._extra, "members": self._members.tolist(),
            "inner": None if self._inner is None else self._inner.state(),
        }  # fmt: skip

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30) -> WideTree:
        """Return the search as it was when `state` was taken. Only the columns of the pool are read again."""
        check_saved(objective, state)
        search = cls(objective, state["k"], memory_limit=memory_limit)
        search._pool.add_in_order(np.asarray(state["pool"], np.int64))
        search._pool.passes = state["passes"]
        search._restore_shared(state)
        search._alive = _mask(state["alive"], objective.n)
        search.limit, search._extra = state["limit"], state["extra"]
        search._explained, search._stuck = state["explained"], state["stuck"]
        search._root = None if state["root"] is None else _from_json(state["root"])
        search._heap = [(-bound, made, _from_json(node)) for bound, made, node in state["nodes"]]
        heapq.heapify(search._heap)
        search._closed[state["closed"]] = True
        search._closed_explained = state["closed_explained"]
        search._visited, search._made = state["visited"], state["made"]
        search._members = np.asarray(state["members"], np.int64)
        if state["inner"] is not None:
            dense = search._pool.objective_of(search._members)
            search._inner = PerspectiveTree.restore(dense, state["inner"], memory_limit)
        return search


def _mask(packed: str, n: int) -> Mask:
    return np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8), count=n).astype(np.bool_)


def _as_json(node: Node) -> list[Any]:
    return [list(node.fixed), list(node.out), list(node.support), list(node.b), node.estimate, node.tries]


def _from_json(values: list[Any]) -> Node:
    fixed, out, support, b, estimate, tries = values
    return Node(tuple(fixed), tuple(out), tuple(support), tuple(b), estimate, tries)

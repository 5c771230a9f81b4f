"""Branch and bound for a loss over more columns than fit into memory.

Nodes are relaxed among the columns of a pool. The dual vectors of many nodes are then multiplied with all columns, in
one pass: that gives their bounds, and shows which other columns belong into the pool.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.anytime import Deadline
from dsel.search.exact.losses.kept import KeptLeaves
from dsel.search.exact.losses.local_search import improved
from dsel.search.exact.losses.problem import Dual, LossProblem
from dsel.search.exact.losses.proof import LossProof, Watcher, proof_by
from dsel.search.exact.losses.relaxation import relax, relax_near
from dsel.search.exact.losses.tree import CLOSE, LossTree, Node

__all__ = ["OtherColumns", "prove_wide_loss"]

#: Nodes of the first pass after the root, by what a batch grows, and nodes and bytes of products of a pass at most.
_BATCH, _GROWTH, _MOST_NODES, _MOST_BYTES = 4, 2, 256, 256 << 20
#: Passes for the root at most, and how often another node is relaxed at most.
_ROOT_PASSES, _TRIES = 12, 2
#: A node is relaxed again if other columns lower its bound by more than this share of what is missing to the incumbent.
_LOWERED = 0.15
#: Columns outside the pool of which a node knows the gains.
_CANDIDATES = 200
#: A column enters the pool if its gain is at least this share of the smallest gain that counts in a bound.
_ENTERS = 0.7
#: Bytes of the pool at most: its columns are held twice.
_POOL_BYTES = 2 << 30


class OtherColumns(Protocol):
    """All n columns of the data, which need not be in memory."""

    @property
    def allowed(self) -> Bools:
        """The columns (n,) that may be chosen."""

    def products(self, duals: Floats, errors: Floats) -> Floats:
        """Return (n, b) the most that |z_j'a| can be for each column a of `duals` (m, b), rounding included.

        errors: (b,) by how much each a may be wrong, as a norm.
        """

    def read(self, columns: Ints) -> Floats:
        """Return (m, s) some columns after preprocessing."""


@dataclass(frozen=True)
class _PooledNode(Node):
    """A node with the columns `ids` of the gains `others`, and how often it was relaxed with a larger pool."""

    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    tries: int = 0


def prove_wide_loss(
    problem: LossProblem, data: OtherColumns, k: int, incumbent: Sequence[int], *, include: Sequence[int] = (),
    first: int = 2000, seconds: float | None = None, nodes: int | None = None, watcher: Watcher | None = None,
) -> LossProof:  # fmt: skip
    """Find the subset of at most k columns of wide data with the least F, and prove it.

    Parameters
    ----------
    problem : LossProblem
        The problem without columns: Z is (m, 0). It has a penalty or a limit of coefficients.
    data : OtherColumns
        The columns.
    k : int
        The largest number of columns, with the included ones.
    incumbent : sequence of int
        A good subset that is known, with the included columns.
    include : sequence of int
        Columns that are in all subsets.
    first : int
        How many columns the pool begins with, at most, besides those of the incumbent.
    seconds, nodes, watcher : optional
        As for `prove_loss`.

    Returns
    -------
    LossProof
        The best subset, and what is proved about all.

    Notes
    -----
    A node takes O(m p) operations for p columns of the pool, as long as few have coefficients. A pass takes O(m n b)
    for b nodes, 256 at most.
    """
    deadline = Deadline(seconds)
    return proof_by(lambda: _WideTree(problem, data, k, include, incumbent, first, deadline), None, nodes, watcher)


class _WideTree(LossTree):
    """The tree of a proof whose problem has the columns of the pool."""

    def __init__(
        self, problem: LossProblem, data: OtherColumns, k: int, include: Sequence[int], incumbent: Sequence[int],
        first: int, deadline: Deadline,
    ) -> None:  # fmt: skip
        pool = np.array([*include, *(j for j in incumbent if j not in include)], np.int64)
        self._used = problem.w > 0.0
        pooled = replace(problem, Z=data.read(np.sort(pool))[:, np.argsort(np.argsort(pool))])
        super().__init__(pooled, k, range(len(include)), (), 0.0, deadline)
        self._first, self._incumbent = first, pool.size
        self._columns, self._data, self.members = pool, data, tuple(sorted(include))
        self._outside = data.allowed.copy()
        self._outside[pool] = False
        self._waiting: list[tuple[float, int, _PooledNode]] = []
        self._batch, self._most_tries = _BATCH, _ROOT_PASSES
        self._most_batch = max(1, min(_MOST_NODES, _MOST_BYTES // (8 * data.allowed.size)))
        self._most_pooled = max(_POOL_BYTES // (16 * problem.y.size), 2 * k)

    def _is_leaf(self, free: Bools, q: int) -> bool:
        """Return whether nothing is left to choose, in the pool or outside."""
        return q <= 0 or not (self._outside.any() or int(free.sum()) > q)

    def _root(self) -> None:
        """Fill the pool, relax its columns until no other ones matter, and open the first node."""
        every = np.arange(self._incumbent)  # the first columns of the pool
        found = [self.offer_fit(S) for S in (np.flatnonzero(self._fixed), every)]
        products = self._products([fit.dual for fit in found])
        self._enter(np.unique(np.argsort(-products, axis=0, kind="stable")[: self._first // 2]))
        fixed, free, q = self._fixed, self._free, self._k - int(self._fixed.sum())
        self._offer(*improved(self._problem, every, self._k, fixed, free, self._over))
        self.nodes += 1
        node = _PooledNode(fixed, free, relax(self._problem, fixed, free, q))
        while True:
            self._waiting = [(node.relaxed.bound, 0, node)]
            node = self._priced()[0]
            self.root_bound = self._open = max(self._open, node.bound, 0.0)
            if not node.again or self._over():
                break
            node = self._padded(node)
            relaxed = relax(self._problem, node.fixed, node.free, q, node.relaxed.point)
            node = replace(node, relaxed=relaxed, floor=node.bound)
        self._most_tries = _TRIES
        S = self._rounded(node.relaxed.point, self._fixed, q)
        self._offer(*improved(self._problem, S, self._k, self._fixed, self._free, self._over))
        reduced = self._reduced(self._padded(replace(node, again=False, tries=0)))
        if reduced is not None:
            self._open_kept(reduced)
        self._open = np.inf

    #: Leaves of an earlier tree are bounded again by passes, because the columns outside the pool may have changed.
    digest = ""

    @property
    def _n(self) -> int:
        """The number of columns of the data."""
        return self._data.allowed.size

    def _make_room(self, kept: KeptLeaves) -> None:
        """Read the columns that the leaves are split at into the pool."""
        self._enter(kept.columns)
        if self._outside[kept.columns].any() or not self._data.allowed[kept.columns].all():
            raise ValueError("the pool has no room for the columns of the saved tree")

    def _branch(self, node: Node) -> None:
        """Split nodes within the pool until there are enough for a pass, and bound them all by it."""
        assert isinstance(node, _PooledNode)
        taken: list[Node] = []
        self._open, self._waiting = node.bound, []
        try:
            self._expand(node)
            while len(self._waiting) < self._batch and not self._over():
                best = self._waiting[0][0] if self._waiting else np.inf
                if self._heap and self._heap[0][0] <= best:
                    if self._heap[0][0] >= self.cutoff or not self._has_room(self._heap[0][2]):
                        break
                    taken.append(heapq.heappop(self._heap)[2])
                    self._expand(taken[-1])
                elif best < self.cutoff and self._has_room(self._waiting[0][2]):
                    self._split(heapq.heappop(self._waiting)[2])
                else:
                    break
            if self._over():
                for _, _, waiting in self._waiting:
                    self._push(replace(waiting, again=True))
            elif self._waiting:
                for priced in self._priced():
                    self._open_node(priced)
        except BaseException:
            for other in taken:
                self._push(other)
            raise
        self._batch = min(self._batch * _GROWTH, self._most_batch)
        self._open = np.inf

    def _expand(self, node: Node) -> None:
        """Split a node that a pass bounded, or relax it with the columns that entered the pool."""
        assert isinstance(node, _PooledNode)
        node = self._padded(node)
        if not node.again:
            super()._branch(node)
            return
        q = self._k - int(node.fixed.sum())
        relaxed = relax_near(self._problem, node.fixed, node.free, q, node.relaxed, self.cutoff, CLOSE)
        self.nodes += 1
        self._wait(replace(node, relaxed=relaxed, floor=node.bound, again=False))

    def _wait(self, node: _PooledNode) -> None:
        """Let a node wait for a pass. Until then its bound is that of the node above."""
        self._made += 1
        unknown = replace(node, relaxed=replace(node.relaxed, bound=-np.inf))
        heapq.heappush(self._waiting, (node.relaxed.bound, self._made, unknown))

    def _open_node(self, node: Node) -> None:
        """Open a node that a pass bounded, and let others wait for it."""
        if isinstance(node, _PooledNode):
            super()._open_node(node)
        else:
            self._wait(_PooledNode(node.fixed, node.free, node.relaxed, node.floor, path=node.path))

    def _padded(self, node: _PooledNode) -> _PooledNode:
        """Return a node with the columns that entered the pool after it was made."""
        first = node.free.size
        more = self._columns.size - first
        if not more:
            return node
        fixed, free = (np.append(a, np.full(more, b)) for a, b in ((node.fixed, False), (node.free, True)))
        dual = node.relaxed.dual
        dual = replace(dual, gains=np.append(dual.gains, self._problem.gains_of(dual.a, first, dual.error)))
        kept = self._outside[node.ids]
        return replace(node, fixed=fixed, free=free, relaxed=replace(node.relaxed, dual=dual),
                       others=node.others[kept], ids=node.ids[kept])  # fmt: skip

    def _products(self, duals: Sequence[Dual]) -> Floats:
        """Return (n, b) the largest sizes of the products of the columns outside the pool with dual vectors."""
        A = np.zeros((self._used.size, len(duals)))
        A[self._used] = np.column_stack([dual.a for dual in duals])
        products = self._data.products(A, np.array([dual.error for dual in duals]))
        products[~self._outside] = 0.0
        return products

    def _priced(self) -> list[_PooledNode]:
        """Return the nodes that wait, bounded by a pass over all columns. Columns that matter enter the pool."""
        nodes = [(bound, node) for bound, _, node in self._waiting]
        self._waiting = []
        products = self._products([node.relaxed.dual for _, node in nodes])
        found, entering = [], []
        for i, (bound, node) in enumerate(nodes):
            q = self._k - int(node.fixed.sum())
            most = min(max(_CANDIDATES, 2 * self._k), int(self._outside.sum()))
            ids = np.argpartition(-products[:, i], most - 1)[:most] if most else node.ids[:0]
            others = self._problem.gains(products[ids, i])
            priced = self._bounded(node, q, bound, others, ids)
            found.append(priced)
            if priced.bound < self.cutoff:
                every = np.append(node.relaxed.dual.gains[node.free], others)
                least = float(np.sort(every)[-min(q, every.size)])
                entering.append(ids[others >= _ENTERS * least])
        if entering:
            self._enter(np.unique(np.concatenate(entering)))
        return found

    def _bounded(self, node: _PooledNode, q: int, pooled: float, others: Floats, ids: Ints) -> _PooledNode:
        """Return a node with its bound for all columns. pooled: its bound for those of the pool."""
        dual = node.relaxed.dual
        bound = dual.bound(node.fixed, node.free, q, others)
        node = replace(node, relaxed=replace(node.relaxed, bound=bound), others=others, ids=ids)
        missing = self.cutoff - node.bound
        again = node.tries < self._most_tries and missing > 0.0 and pooled - bound > _LOWERED * missing
        return replace(node, again=again, tries=node.tries + 1)

    def _enter(self, columns: Ints) -> None:
        """Read columns into the pool, as many as it may have."""
        columns = columns[self._outside[columns]][: max(self._most_pooled - self._columns.size, 0)]
        if not columns.size:
            return
        problem, new = self._problem, replace(self._problem, Z=self._data.read(columns)[self._used])
        self._problem = problem.with_columns(
            np.concatenate([problem.columns, new.columns]), np.append(problem.norms, new.norms)
        )
        self._columns = np.append(self._columns, columns)
        self._outside[columns] = False
        more = columns.size
        self._fixed, self._free = (
            np.append(self._fixed, np.zeros(more, np.bool_)),
            np.append(self._free, np.ones(more, np.bool_)),
        )

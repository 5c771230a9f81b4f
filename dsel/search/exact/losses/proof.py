"""Branch and bound for a loss: the best subset of at most k columns, with a proof."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Bools, Floats, Ints
from dsel.search.anytime import Deadline
from dsel.search.exact.losses.coordinate_descent import LOSS_RELAXATION_KERNELS
from dsel.search.exact.losses.local_search import improved, refit
from dsel.search.exact.losses.outputs import lengths
from dsel.search.exact.losses.problem import START, Dual, LossProblem, Point, Relaxed, dual_bound, masks
from dsel.search.exact.losses.relaxation import relax, relax_near, weights

__all__ = ["LossProblem", "LossProof", "dual_bound", "prove_loss"]

#: A relaxation ends when its bound is this close to its objective, as a share of what is missing.
CLOSE = 0.05
#: Without a penalty or a limit: the largest coefficients that bounds are about, as a multiple of those of the fit on
#: all columns.
_FREE_LIMIT = 1000.0
#: The same for a separable fit, whose coefficients are infinite: the largest part of a column in a linear predictor.
_LARGEST_PART = 1e4
#: The largest gap of a finished proof that counts as rounding, as a share of F without the columns to choose.
_PROVEN = 1e-6
#: Rounding of the bound of a leaf that counts as equal to its value, in units of what was subtracted for rounding.
_ROUNDINGS = 4.0


@dataclass(frozen=True)
class LossProof:
    """The result of a proof.

    Attributes
    ----------
    value : float
        F of the best subset that was found.
    members : tuple of int
        Its columns, in order.
    bound : float
        A lower bound on F of all subsets of at most k columns.
    proven : bool
        Whether no better subset is possible, to rounding and the gap that was asked for.
    nodes : int
        How many nodes were bounded.
    seconds : float
        The wall time.
    ended : str
        Why it ended: "proven", "time", "nodes".
    root_bound : float
        The bound of the first node.
    limit : float
        The largest size of a coefficient that the bound is about; infinity if it is about all.
    """

    value: float
    members: tuple[int, ...]
    bound: float
    proven: bool
    nodes: int
    seconds: float
    ended: str
    root_bound: float
    limit: float = np.inf


@dataclass(frozen=True)
class Node:
    """Columns (n,) that are fixed and free, and where its relaxation ended.

    floor: a bound that is known from above. others: the largest gains of columns that the problem does not have.
    """

    fixed: Bools
    free: Bools
    relaxed: Relaxed
    floor: float = 0.0
    others: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def bound(self) -> float:
        """A lower bound on F of its subsets."""
        return max(self.floor, self.relaxed.bound)


def prove_loss(
    problem: LossProblem, k: int, *, include: Sequence[int] = (), exclude: Sequence[int] = (),
    incumbent: tuple[tuple[int, ...], float] | None = None, seconds: float | None = None, gap: float = 0.0,
    nodes: int | None = None, on_node: Callable[[int, float, float], object] | None = None,
) -> LossProof:  # fmt: skip
    """Find the subset of at most k columns with the least F, and prove it.

    Parameters
    ----------
    problem : LossProblem
        The problem.
    k : int
        The largest number of columns, with the included ones.
    include, exclude : sequence of int
        Columns that are in all subsets, and in none.
    incumbent : tuple of columns and F, optional
        A good subset that is known.
    seconds, nodes : float and int, optional
        Limits of the wall time and of the nodes. Bound and subset are valid then, too.
    gap : float
        The relative gap that counts as proved, by default none.
    on_node : callable, optional
        Called after each node with the number of nodes, the bound and F of the best subset.

    Returns
    -------
    LossProof
        The best subset, and what is proved about all.
    """
    deadline = Deadline(seconds)
    return proof_by(lambda: LossTree(problem, k, include, exclude, gap, deadline), incumbent, nodes, on_node)


def proof_by(
    make_tree: Callable[[], LossTree], incumbent: tuple[tuple[int, ...], float] | None = None,
    nodes: int | None = None, on_node: Callable[[int, float, float], object] | None = None,
) -> LossProof:  # fmt: skip
    """Search a tree, and return what it proves. incumbent, nodes, on_node: as for `prove_loss`."""
    load_kernels(*LOSS_RELAXATION_KERNELS, what="the proof")
    start = time.perf_counter()
    with one_blas_thread():
        tree = make_tree()
        if incumbent is not None:
            tree.offer_fit(np.array(sorted(incumbent[0]), np.int64))
        ended = tree.run(nodes, on_node)
    proven = ended == "proven" and tree.value - tree.bound <= max(_PROVEN * tree.total, tree.gap * abs(tree.value))
    return LossProof(tree.value, tree.members, tree.bound, proven, tree.nodes, time.perf_counter() - start,
                     ended, tree.root_bound, tree.limit)  # fmt: skip


def _limit_of(problem: LossProblem, allowed: Bools) -> float:
    """Return the limit of coefficients for bounds where the problem has neither a penalty nor a limit."""
    b = relax(problem, allowed, np.zeros_like(allowed), 0).point.b
    spread = problem.norms[allowed] / problem.y.size**0.5
    unit = max(1.0, float(np.abs(problem.y).max())) if problem.loss.link == "identity" else 1.0
    most = _LARGEST_PART * unit / float(spread[spread > 0.0].min(initial=np.inf))
    return min(_FREE_LIMIT * float(lengths(b).max(initial=0.0)), most) or 1.0


class LossTree:
    """Open nodes by their bounds, the best subset, and what reduced costs have closed."""

    def __init__(
        self, problem: LossProblem, k: int, include: Sequence[int], exclude: Sequence[int], gap: float,
        deadline: Deadline,
    ) -> None:  # fmt: skip
        used = problem.w > 0.0
        if not used.all():
            problem = replace(problem, Z=problem.Z[used], y=problem.y[used], w=problem.w[used],
                              offset=problem.offset[used])  # fmt: skip
        fixed, free = masks(problem.Z.shape[1], include, exclude)
        self.limit = np.inf
        if problem.lam == 0.0 and problem.limit is None:
            self.limit = _limit_of(problem, fixed | free)
            problem = replace(problem, limit=self.limit)
        self._problem, self._k, self.gap, self._deadline = problem, k, gap, deadline
        self._columns: Ints = np.arange(free.size)
        self._fixed, self._free = fixed, free
        self._heap: list[tuple[float, int, Node]] = []
        self._made = self.nodes = 0
        self._most_nodes: int | None = None
        self._seen: set[bytes] = set()
        first = refit(problem, np.flatnonzero(fixed))
        self.total = first.value
        self._rounding = first.dual.rounding
        self.value, self.members = first.value, tuple(np.flatnonzero(fixed).tolist())
        self._closed = np.inf
        #: The bound of what is open and not in the heap: everything, before the first node.
        self._open = self.root_bound = 0.0

    @property
    def cutoff(self) -> float:
        """The bound from which on a node holds nothing better."""
        margin = MARGIN * self.total + _ROUNDINGS * self._rounding
        return self.value - max(margin, self.gap * abs(self.value))

    @property
    def bound(self) -> float:
        """A lower bound on F of all subsets."""
        return float(max(min(self.value, self._closed, self._open, self._heap[0][0] if self._heap else np.inf), 0.0))

    def offer_fit(self, S: Ints, start: Point = START) -> Relaxed:
        """Fit columns S of the problem, keep them if they are better, and return the fit."""
        found = refit(self._problem, S, start, self.value)
        self._offer(found, S)
        return found

    def _offer(self, fit: Relaxed, S: Ints) -> None:
        if fit.value < self.value:
            self.value, self.members = fit.value, tuple(sorted(self._columns[S].tolist()))

    def run(self, nodes: int | None, on_node: Callable[[int, float, float], object] | None) -> str:
        """Search until the proof or a limit, and return which."""
        self._most_nodes = nodes
        if self._over():
            return "time"
        self._root()
        while self._heap:
            if on_node is not None:
                on_node(self.nodes, self.bound, self.value)
            if self._over():
                return "time"
            if nodes is not None and self.nodes >= nodes:
                return "nodes"
            bound, _, node = heapq.heappop(self._heap)
            if bound >= self.cutoff:  # so are all others
                self._close(bound)
                self._heap.clear()
                break
            try:
                self._branch(node)
            except BaseException:
                self._push(node)
                raise
        return "proven"

    def _over(self) -> bool:
        """Return whether the time is over."""
        return self._deadline.passed

    def _close(self, bound: float) -> None:
        """Count a node, or columns, that hold nothing better."""
        self._closed = min(self._closed, bound)

    def _push(self, node: Node) -> None:
        self._made += 1
        heapq.heappush(self._heap, (node.bound, self._made, node))

    def _root(self) -> None:
        """Relax all columns, look for good subsets, leave columns out, and open the first node."""
        problem, fixed, free, q = self._problem, self._fixed, self._free, self._k - int(self._fixed.sum())
        relaxed = relax(problem, fixed, free, q)
        self.nodes += 1
        self._open = self.root_bound = max(relaxed.bound, 0.0)
        self._rounding = max(self._rounding, relaxed.dual.rounding)
        for S in (self._rounded(relaxed.point, fixed, q), np.array(self._inside(), np.int64)):
            if not self._over():
                self._offer(*improved(problem, S, self._k, fixed, free, self._over))
        node = self._reduced(Node(fixed, free, relaxed))
        if node is not None:
            node = self._restricted(node)
            self._fixed, self._free = node.fixed, node.free
            self._push(node)
        self._open = np.inf

    def _inside(self) -> list[int]:
        """Return the best subset as columns of the problem."""
        return np.flatnonzero(np.isin(self._columns, self.members)).tolist()

    def _restricted(self, node: Node) -> Node:
        """Leave the columns out of the problem that the node leaves out, and return it for the others."""
        alive = np.flatnonzero(node.fixed | node.free)
        place = np.full(node.free.size, -1)
        place[alive] = np.arange(alive.size)
        point, dual = node.relaxed.point, node.relaxed.dual
        kept = place[point.S] >= 0
        point = replace(point, S=place[point.S[kept]], b=point.b[kept])
        self._problem, self._columns = self._problem.of_columns(alive), self._columns[alive]
        dual = Dual(dual.a, dual.constant, dual.gains[alive], dual.rounding)
        return Node(node.fixed[alive], node.free[alive], replace(node.relaxed, point=point, dual=dual))

    def _rounded(self, point: Point, fixed: Bools, q: int) -> Ints:
        """Return the subset of the fixed columns and the q largest coefficients."""
        others = ~fixed[point.S]
        order = np.argsort(-lengths(point.b[others]), kind="stable")[:q]
        return np.sort(np.concatenate([np.flatnonzero(fixed), point.S[others][order]]))

    def _reduced(self, node: Node) -> Node | None:
        """Return a node without the columns that reduced costs decide, or None if it holds nothing better."""
        relaxed, q = node.relaxed, self._k - int(node.fixed.sum())
        cutoff = self.cutoff
        if node.bound >= cutoff:
            self._close(node.bound)
            return None
        free = np.flatnonzero(node.free)
        gains = relaxed.dual.gains[free]
        every = np.concatenate([gains, node.others])
        if not 0 < q < every.size or not np.isfinite(relaxed.bound):
            return node
        order = np.argpartition(-every, q)
        top, last, next_one = order[:q], float(every[order[:q]].min()), float(every[order[q]])
        top = top[top < free.size]
        with_it = relaxed.bound + last - np.minimum(gains, last)
        without = relaxed.bound + gains[top] - next_one
        slack = 1e-14 * (abs(relaxed.dual.constant) + float(every[order[:q]].sum()))
        out, into = with_it - slack > cutoff, without - slack > cutoff
        if not (out.any() or into.any()):
            return node
        self._close(float(min(with_it[out].min(initial=np.inf), without[into].min(initial=np.inf))) - slack)
        left, inside = node.free.copy(), node.fixed.copy()
        left[free[out]] = False
        left[free[top[into]]] = False
        inside[free[top[into]]] = True
        return replace(node, fixed=inside, free=left)

    def _branch(self, node: Node) -> None:
        """Split a node by a column, and bound both parts."""
        again = self._reduced(node)
        if again is not None:
            self._split(again)

    def _split(self, node: Node) -> None:
        """Bound both parts of a node, or the node itself if nothing is left to choose."""
        q = self._k - int(node.fixed.sum())
        if self._is_leaf(node.free, q):
            self._bound(node.fixed, node.free, node)
            return
        j = self._branching_column(node, q)
        for inside in (True, False):
            fixed, free = node.fixed.copy(), node.free.copy()
            fixed[j], free[j] = inside, False
            self._bound(fixed, free, node)

    def _is_leaf(self, free: Bools, q: int) -> bool:
        """Return whether nothing is left to choose."""
        return q <= 0 or int(free.sum()) <= q

    def _branching_column(self, node: Node, q: int) -> int:
        """Return the free column with the most fractional weight, or with the largest gain."""
        S, z = weights(node.relaxed.point, node.fixed, q)
        there = node.free[S]
        S, fraction = S[there], np.minimum(z, 1.0 - z)[there]
        if S.size and fraction.max() > 1e-6:
            return int(S[fraction.argmax()])
        free = np.flatnonzero(node.free)
        return int(free[node.relaxed.dual.gains[free].argmax()])

    def _bound(self, fixed: Bools, free: Bools, parent: Node) -> None:
        """Relax a new node, and open it unless it holds nothing better."""
        q = self._k - int(fixed.sum())
        leaf = self._is_leaf(free, q)
        if leaf:
            fixed, free, q = fixed | free if q > 0 else fixed, np.zeros_like(free), 0
        relaxed = relax_near(self._problem, fixed, free, q, parent.relaxed, self.cutoff, 0.0 if leaf else CLOSE)
        self.nodes += 1
        if leaf:
            self._offer(relaxed, np.flatnonzero(fixed))
            self._close(max(relaxed.bound, parent.bound))
            return
        node = Node(fixed, free, relaxed, parent.bound)
        if node.bound < self.cutoff:
            self._try(self._rounded(relaxed.point, fixed, q), relaxed.point)
        self._open_node(node)

    def _open_node(self, node: Node) -> None:
        """Open a relaxed node unless it holds nothing better."""
        reduced = self._reduced(node)
        if reduced is not None:
            self._push(reduced)

    def _try(self, S: Ints, point: Point) -> None:
        """Fit a subset that was not fitted before, and improve it if it is the best one."""
        if (key := S.tobytes()) in self._seen:
            return
        self._seen.add(key)
        before = self.value
        self.offer_fit(S, point)
        if self.value < before:
            self._offer(*improved(self._problem, S, self._k, self._fixed, self._free, self._over))

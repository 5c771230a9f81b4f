"""Branch and bound for a loss: open nodes, their relaxations, and the best subset of at most k columns."""

from __future__ import annotations

import hashlib
import heapq
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Bools, Floats, Ints
from dsel.search.anytime import Deadline
from dsel.search.exact.alternatives import NearBestAnswer, summarize
from dsel.search.exact.losses.kept import KeptLeaves, Leaf, Path
from dsel.search.exact.losses.listing import LossListing
from dsel.search.exact.losses.local_search import improved, refit
from dsel.search.exact.losses.problem import START, LossProblem, Point, Relaxed, lengths, masks
from dsel.search.exact.losses.relaxation import limit_of_bounds, relax, relax_near, relaxed_at, weights
from dsel.search.exact.near_best import ListRule, OpenBounds

#: A relaxation ends when its bound is this close to its objective, as a share of what is missing.
CLOSE = 0.05
#: Rounding of the bound of a leaf that counts as equal to its value, in units of what was subtracted for rounding.
_ROUNDINGS = 4.0
#: Closed leaves that are kept at most, and rows that are hashed at a time.
_MOST_LEAVES, _HASHED = 200_000, 4096


@dataclass(frozen=True)
class Node:
    """Columns (n,) that are fixed and free, and where its relaxation ended.

    floor: a bound that is known from above. others: the largest gains of columns that the problem does not have. path:
    see `Leaf`. again: whether it is to be relaxed again before it is split.
    """

    fixed: Bools
    free: Bools
    relaxed: Relaxed
    floor: float = 0.0
    others: Floats = field(default_factory=lambda: np.zeros(0))
    path: Path = ()
    again: bool = False

    @property
    def bound(self) -> float:
        """A lower bound on F of its subsets."""
        return max(self.floor, self.relaxed.bound)


class LossTree:
    """Open nodes by their bounds, the best subset, and what reduced costs have closed.

    `keeps`: whether it keeps its leaves for a later tree. `began_again`: why it does not follow an earlier one, which
    might have been there. `checked`, `searched`: leaves of a tree of other data that were bounded again, and that were
    searched then.
    """

    keeps = False
    began_again = ""
    _of_other_data = False

    def __init__(
        self, problem: LossProblem, k: int, include: Sequence[int], exclude: Sequence[int], gap: float,
        deadline: Deadline, listing: ListRule | None = None,
    ) -> None:  # fmt: skip
        self._began = time.perf_counter()
        used = problem.w > 0.0
        if not used.all():
            problem = replace(problem, Z=problem.Z[used], y=problem.y[used], w=problem.w[used],
                              offset=problem.offset[used])  # fmt: skip
        fixed, free = masks(problem.n, include, exclude)
        self.limit = np.inf
        if problem.lam == 0.0 and problem.limit is None:
            self.limit = limit_of_bounds(problem, fixed | free)
            problem = replace(problem, limit=self.limit)
        self._whole = self._problem = problem
        self._k, self.gap, self._deadline, self._stopped = k, gap, deadline, False
        self._columns: Ints = np.arange(free.size)
        self._all = (fixed, free)
        self._fixed, self._free = fixed, free
        self._heap: list[tuple[float, int, Node]] = []
        self._made = self.nodes = self.checked = self.searched = 0
        self._most_nodes = 2**62
        self._seen: set[bytes] = set()
        first = refit(problem, np.flatnonzero(fixed))
        self.total = first.value
        self._rounding = first.dual.rounding
        self.value, self.members = first.value, tuple(np.flatnonzero(fixed).tolist())
        self._list = None if listing is None else LossListing.of(listing, problem, k, fixed, free, self.total)
        self._nothing = None if self._list is None else self._list.nothing()
        if self._nothing is not None:
            self._list = None
        #: The least bound of all that is closed, and of what reduced costs have closed of a node.
        self._closed = self._cut = np.inf
        self._kept: KeptLeaves | None = None
        self._leaves: list[Leaf] = []
        #: Leaves whose fit did not come close enough to say whether they are near-best: bounds and columns.
        self._unsettled: list[tuple[float, Ints]] = []
        #: The bound of what is open and not in the heap: everything, before the first node.
        self._open = self.root_bound = 0.0

    @property
    def cutoff(self) -> float:
        """The bound from which on a node holds nothing better, or no near-best subset if those are listed."""
        if self._list is not None:
            return self._list.near.cutoff
        return self.value - max(self._margin, self.gap * abs(self.value))

    @property
    def _margin(self) -> float:
        """The difference of F that counts as rounding."""
        return MARGIN * self.total + _ROUNDINGS * self._rounding

    @property
    def seconds(self) -> float:
        """The wall time so far, with that of an earlier proof of the same problem whose leaves it follows."""
        return time.perf_counter() - self._began

    @property
    def size(self) -> int:
        """The most columns or groups that a subset has, included ones counted."""
        return self._k

    @property
    def iteration(self) -> int:
        """The number of nodes, by the name that searches have for it."""
        return self.nodes

    @property
    def best_value(self) -> float:
        """The least F, by the name that searches have for it."""
        return self.value

    @property
    def bound(self) -> float:
        """A lower bound on F of all subsets."""
        return float(max(min(self.value, self._closed, self._open, self._heap[0][0] if self._heap else np.inf), 0.0))

    @property
    def is_decided(self) -> bool:
        """Whether no open node can hold a better subset."""
        return bool(min(self._open, self._heap[0][0] if self._heap else np.inf) >= self.value - self._margin)

    def offer_fit(self, S: Ints, start: Point = START) -> Relaxed:
        """Fit columns S of the problem, keep them if they are better, and return the fit."""
        enough = self.value if self._list is None else np.inf  # a listed subset has its F
        found = refit(self._problem, S, start, enough)
        self._offer(found, S)
        return found

    def _offer(self, fit: Relaxed, S: Ints) -> None:
        if self._list is not None:
            self._list.take(fit, self._columns[S])
        if fit.value < self.value:
            self.value, self.members = fit.value, tuple(sorted(self._columns[S].tolist()))

    def run(self, nodes: int | None, after_node: Callable[[Self], bool] | None = None) -> str:
        """Search until the proof or a limit, and return which. after_node: see `Watcher`."""
        self._most_nodes = 2**62 if nodes is None else nodes
        if self._over():
            return "time"
        if nodes == 0:
            return "nodes"
        self._root()
        while self._heap:
            if after_node is not None and after_node(self):
                self._stopped = True
                return "interrupted"
            if self._over():
                return "time"
            if not self._has_room(self._heap[0][2]):
                return "nodes"
            bound, _, node = heapq.heappop(self._heap)
            if bound >= self.cutoff:  # so are all others
                self._close(bound)
                for other in (node, *(entry[2] for entry in self._heap)):
                    self._leave(other)
                self._heap.clear()
                break
            self._open = bound
            try:
                self._branch(node)
            except BaseException:
                self._push(node)
                raise
            self._open = np.inf
        return "proven"

    def _over(self) -> bool:
        """Return whether the time is over."""
        return self._stopped or self._deadline.passed

    def _close(self, bound: float) -> None:
        """Count a node, or columns, that hold nothing better."""
        self._closed = min(self._closed, bound)

    def _leave(self, node: Node) -> None:
        """Count a node that is closed."""
        if self.keeps and len(self._leaves) < _MOST_LEAVES:  # those left out are searched again
            self._leaves.append(Leaf(node.path, node.bound, node.relaxed.point.of(self._columns)))

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
        if self._list is not None:
            near = self._list.near
            near.error = self._margin / near.total if near.total > 0.0 else 0.0
        for S in (self._rounded(relaxed.point, fixed, q), np.array(self._inside(), np.int64)):
            if not self._over():
                self._offer(*improved(problem, S, self._k, fixed, free, self._over))
        if self._list is not None and len(self.members) < self._k:  # the best k columns may be no better
            gains = np.where(free, relaxed.dual.gains, -np.inf)
            gains[self._inside()] = np.inf
            self.offer_fit(np.sort(np.argsort(-gains, kind="stable")[: min(self._k, int((fixed | free).sum()))]))
        node = self._reduced(Node(fixed, free, relaxed))
        if node is not None:
            node = self._restricted(node)
            self._fixed, self._free = node.fixed, node.free
            self._open_kept(node)
        self._open = np.inf

    def _open_kept(self, root: Node) -> None:
        """Open the root, or in its place the leaves of an earlier tree, without what the root has closed."""
        if self._kept is None:
            self._push(root)
            return
        same = self._kept.digest == self.digest != ""
        self._of_other_data = not same
        if same:
            self._most_nodes += self._kept.nodes - self.nodes
            self.nodes, self._began = self._kept.nodes, self._began - self._kept.seconds
        place = np.full(self._kept.n, -1)
        place[self._columns] = np.arange(self._columns.size)
        for leaf in self._kept.leaves:
            at, steps = place[np.abs(np.array(leaf.path, np.int64)) - 1], np.array(leaf.path, np.int64) > 0
            there = at >= 0
            inside, outside = at[steps & there], at[~steps & there]
            allowed = root.fixed | root.free
            if (steps & ~there).any() or not allowed[inside].all() or root.fixed[outside].any():
                self._leaves.append(replace(leaf, bound=np.inf))  # the root has closed it
                continue
            fixed, free = root.fixed.copy(), root.free.copy()
            fixed[inside], free[inside], free[outside] = True, False, False
            if int(fixed.sum()) > self._k:  # with what the root has fixed, too many
                self._leaves.append(replace(leaf, bound=np.inf))
                continue
            S = place[leaf.point.S]
            point = replace(leaf.point, S=S[S >= 0], b=leaf.point.b[S >= 0])
            relaxed, floor = replace(root.relaxed, bound=-np.inf, point=point), leaf.bound if same else -np.inf
            floor = max(root.bound, floor)
            self._push(replace(root, fixed=fixed, free=free, relaxed=relaxed, floor=floor, path=leaf.path, again=True))

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
        self._problem, self._columns = self._problem.of_items(alive), self._columns[alive]
        dual = replace(dual, gains=dual.gains[alive])
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
        if node.bound >= cutoff or not self._matters(node):
            self._close(node.bound)
            self._leave(node)
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
        self._cut = min(
            self._cut, float(min(with_it[out].min(initial=np.inf), without[into].min(initial=np.inf))) - slack
        )
        self._close(self._cut)
        left, inside = node.free.copy(), node.fixed.copy()
        left[free[out]] = False
        left[free[top[into]]] = False
        inside[free[top[into]]] = True
        return replace(node, fixed=inside, free=left)

    def _matters(self, node: Node) -> bool:
        """Return whether a node may hold a subset to list, or decide about a column. Without a list, it does."""
        if self._list is None:
            return True
        inside, possible = self._columns[node.fixed], self._columns[node.fixed | node.free]
        if node.bound >= self.value - self._margin and not self._list.counts(inside):
            return False
        return self._list.matters(node.bound, inside, possible, min(self.bound, node.bound))

    def _branch(self, node: Node) -> None:
        """Split a node by a column, and bound both parts, or relax it again first."""
        if node.again:
            self._renew(node)
            return
        again = self._reduced(node)
        if again is not None:
            self._split(again)

    def _has_room(self, node: Node) -> bool:
        """Return whether the limit of nodes allows to branch on a node."""
        children = 1 if node.again else int(node.free.sum()) if self._fits_each(node) else 2
        return self.nodes + children <= self._most_nodes

    def _fits_each(self, node: Node) -> bool:
        """Return whether the last column of a node is found by a fit for each."""
        last = int(node.fixed.sum()) == self._k - 1 and self._is_leaf(np.zeros_like(node.free), 1)
        return last and self._problem.loss.outputs > 1

    def _renew(self, node: Node) -> None:
        """Relax a leaf of an earlier tree from where it ended there."""
        problem, fixed, free, q = self._problem, node.fixed, node.free, self._k - int(node.fixed.sum())
        if self._is_leaf(free, q):
            self._bound(fixed, free, node, node.path)
            return
        relaxed = relaxed_at(problem, fixed, free, q, node.relaxed.point)
        self.nodes += 1
        self.checked += self._of_other_data
        if max(relaxed.bound, node.floor) < self.cutoff:
            relaxed = relax_near(problem, fixed, free, q, relaxed, self.cutoff, CLOSE)
            self._try(self._rounded(relaxed.point, fixed, q), relaxed.point)
            self.searched += int(self._of_other_data and max(relaxed.bound, node.floor) < self.cutoff)
        self._open_node(replace(node, relaxed=relaxed, again=False))

    def _split(self, node: Node) -> None:
        """Bound both parts of a node, or the node itself if nothing is left to choose."""
        q = self._k - int(node.fixed.sum())
        if self._is_leaf(node.free, q):
            self._bound(node.fixed, node.free, node, node.path)
            return
        if self._fits_each(node):
            self._fit_each(node)
            return
        j = self._branching_column(node, q)
        for inside in (True, False):
            fixed, free = node.fixed.copy(), node.free.copy()
            fixed[j], free[j] = inside, False
            step = int(self._columns[j]) + 1
            self._bound(fixed, free, node, (*node.path, step if inside else -step))

    def _fit_each(self, node: Node) -> None:
        """Fit each of the columns of which a node has the choice: with several outputs a relaxation takes longer."""
        free = np.flatnonzero(node.free)
        order = free[np.argsort(-node.relaxed.dual.gains[free], kind="stable")]
        path, none = node.path, np.zeros_like(node.free)
        for j in order:
            fixed, step = node.fixed.copy(), int(self._columns[j]) + 1
            fixed[j] = True
            self._bound(fixed, none, node, path if j == order[-1] else (*path, step))
            path = (*path, -step)

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

    def _bound(self, fixed: Bools, free: Bools, parent: Node, path: Path) -> None:
        """Relax a new node, and open it unless it holds nothing better."""
        q = self._k - int(fixed.sum())
        leaf = self._is_leaf(free, q)
        if leaf:
            fixed, free, q = fixed | free if q > 0 else fixed, np.zeros_like(free), 0
        relaxed = relax_near(self._problem, fixed, free, q, parent.relaxed, self.cutoff, 0.0 if leaf else CLOSE)
        self.nodes += 1
        if leaf and relaxed.bound < self.cutoff < relaxed.value:  # steps from the node above did not reach the fit
            relaxed = max(relaxed, refit(self._problem, np.flatnonzero(fixed)), key=lambda fit: fit.bound)
        node = Node(fixed, free, relaxed, parent.bound, path=path)
        if leaf:
            if self._list is None or relaxed.bound < self.cutoff:  # else the fit ended before it was exact
                self._offer(relaxed, np.flatnonzero(fixed))
            S = self._columns[fixed]
            if relaxed.bound < self.cutoff < relaxed.value and (self._list is None or self._list.counts(S)):
                self._unsettled.append((node.bound, S))
            self._close(node.bound)
            self._leave(node)
            return
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

    # What is known at any moment, and what is kept.

    def near_best_answer(self, proven: bool) -> NearBestAnswer | None:
        """Return the near-best subsets and the verdicts so far; None if they were not asked for."""
        if self._list is None:
            return self._nothing
        self._list.search_prices(self._over)
        opened = OpenBounds.none(self._list.near.n)
        if self._open < np.inf:
            self._list.include(opened, self._open, np.flatnonzero(self._list.fixed), np.arange(self._list.fixed.size))
        for _, _, node in self._heap:
            inside, possible = self._columns[node.fixed], self._columns[node.fixed | node.free]
            self._list.include(opened, node.bound, inside, possible)
        for bound, S in self._unsettled:
            self._list.include(opened, bound, S, S)
        return summarize(self._list.near, opened, self.bound, proven)

    @cached_property
    def digest(self) -> str:
        """What identifies the problem and the size to the last bit; empty if that is not known."""
        problem, found = self._whole, hashlib.blake2b(digest_size=16)
        for values in (problem.Z, problem.y, problem.w, problem.offset, self._all[0], self._all[1]):
            for start in range(0, values.shape[0], _HASHED):
                found.update(values[start : start + _HASHED].tobytes())
        loss = [problem.loss.name, problem.loss.parameters(), problem.lam, problem.intercept, problem.limit, self._k]
        if problem.groups is not None:
            loss.append(problem.groups.starts.tolist())
        found.update(json.dumps(loss).encode())
        return found.hexdigest()

    def follow(self, saved: Mapping[str, Any]) -> bool:
        """Begin with the leaves that an earlier tree has kept, and return whether they fit this problem."""
        try:
            self._kept = KeptLeaves.from_arrays(saved, self._n, self._whole.loss.outputs, self._whole.width)
            self._make_room(self._kept)
        except (LookupError, TypeError, ValueError):
            self._kept = None
            return False
        S = np.flatnonzero(np.isin(self._columns, self._kept.members))
        if S.size <= self._k and not np.setdiff1d(np.flatnonzero(self._fixed), S).size:
            self.offer_fit(S[(self._fixed | self._free)[S]])
        return True

    @property
    def _n(self) -> int:
        """The number of columns, of which leaves have the numbers."""
        return self._whole.n

    def _make_room(self, kept: KeptLeaves) -> None:
        """Take the columns that the leaves are split at. Raises ValueError where that is not possible."""

    def kept(self, most_bytes: int) -> dict[str, Any]:
        """Return all leaves as arrays; empty before the root is relaxed."""
        if self._open < np.inf or not self.keeps:
            return {}
        opened = (Leaf(node.path, node.bound, node.relaxed.point.of(self._columns)) for _, _, node in self._heap)
        leaves = [replace(leaf, bound=min(leaf.bound, self._cut)) for leaf in (*self._leaves, *opened)]
        found = KeptLeaves(leaves, self.members, self.digest, self.nodes, self.seconds, self._n)
        return found.as_arrays(most_bytes)

"""Best-first branch and bound by the perspective relaxation, for one target and many columns.

A node fixes some columns in and some out. Its bound is the relaxation over the other columns, see
`dsel.search.exact.perspective_tree.relaxation`. The reduced costs of its bound fix further columns in or out: those
whose other choice cannot beat the best subset (safe screening; Atamtuerk and Gomez, "Safe screening rules for
l0-regression", ICML 2020). The column with the weight nearest to one half is branched on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.search.exact.base import ExactSearch, check_saved, consistent_bound
from dsel.search.exact.bounds import BoundProblem, column_norms, penalized
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.perspective import relaxation_of
from dsel.search.exact.perspective_tree.diagonal import diagonals
from dsel.search.exact.perspective_tree.relaxation import Mask, Problem, Relaxed, relax
from dsel.search.exact.perspective_tree.weights import weights
from dsel.search.exact.starting_subset import MANY_COLUMNS

#: A proof that takes this many nodes finds a better diagonal, if there are at most this many columns.
_SHARPEN_AT, _SHARPEN_MOST = 100, 300
#: The share of the other tree's gap that this one's must be below to be preferred.
_BETTER = 0.35
#: Weights within this of 0 and 1 are whole.
_WHOLE = 1e-6


@dataclass(frozen=True, slots=True)
class Node:
    """The columns that are in (bits of n), those that are out (bits), and the coefficients of the relaxation."""

    fixed: bytes
    out: bytes
    support: Ints
    b: Floats


class PerspectiveTree(ExactSearch):
    """Best-first search over nodes of fixed columns, which can be read, saved and continued.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns, with one target and all of K in memory.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset.
    memory_limit : int
        Bytes that open nodes may take.

    Raises
    ------
    ValueError
        If the relaxation is useless: there are several targets, or the columns are nearly dependent without a penalty.
    """

    kind = "perspective-tree"
    #: Bounds that are not finite: none, because they are checked at once.
    not_finite = 0

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), memory_limit: int = 8 << 30
    ) -> None:
        super().__init__(objective, k, "perspective")
        self._problems = _problems(objective)
        self._problem = self._problems[0]
        self._memory_limit = memory_limit
        self._heap: list[tuple[float, int, Node]] = []
        self._visited = self._made = 0
        self.memory_full = False
        self.offer(incumbent)
        with one_blas_thread():
            self._root()

    def _root(self) -> None:
        """Bound the root, by the diagonal with the best bound."""
        n, k = self.objective.n, self.k
        nothing, everything = np.zeros(n, np.bool_), np.ones(n, np.bool_)
        found = []
        for problem in self._problems:
            b = np.zeros(n)
            if self.best:
                S = np.asarray(self.best, np.int64)
                b[S] = np.linalg.lstsq(problem.K[np.ix_(S, S)], problem.c[S], rcond=None)[0]
            found.append(relax(problem, nothing, everything, min(k, n), b, self._enough))
        best = min(range(len(found)), key=lambda i: found[i].bound)
        self._problem = self._problems[best]
        self._push(found[best].bound, nothing, nothing, found[best].b)

    @property
    def _enough(self) -> float:
        """What the best subset explains, and a margin."""
        return self.objective.c - self.best_value + MARGIN * self.total

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        return self._visited

    @property
    def open_nodes(self) -> int:
        """The number of open nodes."""
        return len(self._heap)

    @property
    def done(self) -> bool:
        """Whether no open node can hold a better subset."""
        return not self._heap or -self._heap[0][0] <= self._enough

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
        return consistent_bound(self.objective.c + self._heap[0][0], self.best_value, self.total, self.guarantee.error)

    def node_seconds(self) -> float:
        """Return 0: a node is quick."""
        return 0.0

    @contextmanager
    def time_limit(self, seconds: float | None) -> Iterator[None]:
        """Do nothing: slices of single nodes keep the time."""
        yield

    def warm_up(self) -> None:
        """Compile the value of a subset, the first time on a machine."""
        self.objective.value((0,))

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue until `until` nodes are visited; return True if done, out of memory, or f <= target."""
        with one_blas_thread():
            while not (self.done or self.memory_full):
                if target is not None and self.best_value <= target:
                    return True
                if self.iteration >= until:
                    return False
                self._visit()
        return True

    def _visit(self) -> None:
        bound, _, node = heapq.heappop(self._heap)
        self._visited += 1
        if self._visited == _SHARPEN_AT and self.objective.n <= _SHARPEN_MOST:
            self._sharpen()
        n = self.objective.n
        fixed, out = _mask(node.fixed, n), _mask(node.out, n)
        b = np.zeros(n)
        b[node.support] = node.b
        self._screen(fixed, out, b)
        free = ~(fixed | out)
        q = self.k - int(fixed.sum())
        if q <= 0 or int(free.sum()) <= q:
            self._offer(np.flatnonzero(fixed | free)[: self.k] if q > 0 else np.flatnonzero(fixed), -bound)
            return
        j = self._branching_column(free, q, b)
        for inside in (True, False):
            self._child(-bound, fixed, out, j, inside, b)

    def _sharpen(self) -> None:
        """Continue with the diagonal of the least root bound, which takes longer to find. Bounds stay valid."""
        objective = self.objective
        assert objective.cross is not None
        problem = BoundProblem(penalized(objective), objective.cross, objective.c, objective.floor)
        found = relaxation_of(problem, self.k)
        if found.d:
            sharper = Problem(self._problem.K, self._problem.c, np.asarray(found.d))
            self._problems = [*self._problems, sharper]
            self._problem = sharper

    def _screen(self, fixed: Mask, out: Mask, b: Floats) -> None:
        """Fix the columns in place whose other choice cannot be better than the best subset, by their reduced costs."""
        free = np.flatnonzero(~(fixed | out))
        q = self.k - int(fixed.sum())
        if not 0 < q < free.size:
            return
        problem, S = self._problem, np.flatnonzero((b != 0.0) | fixed)
        Qb = problem.K[S].T @ b[S]
        Qb[S] -= problem.d[S] * b[S]
        g = np.square(problem.c - Qb) / problem.d
        order = free[np.argsort(-g[free], kind="stable")]
        inside, last, first_out = order[:q], g[order[q - 1]], g[order[q]]
        bound = float(b[S] @ Qb[S] + g[fixed].sum() + g[inside].sum())
        outside = order[q:]
        out[outside[bound - last + g[outside] <= self._enough]] = True
        fixed[inside[bound - g[inside] + first_out <= self._enough]] = True

    def _branching_column(self, free: Mask, q: int, b: Floats) -> int:
        columns = np.flatnonzero(free)
        z = weights(np.abs(b[columns]) * np.sqrt(self._problem.d[columns]), q)
        fraction = np.minimum(z, 1.0 - z)
        return int(columns[fraction.argmax() if fraction.max() > _WHOLE else z.argmax()])

    def _child(self, bound: float, fixed: Mask, out: Mask, j: int, inside: bool, b: Floats) -> None:
        """Bound a child, offer the subset of its largest weights, and push it unless it is pruned."""
        fixed, out = fixed.copy(), out.copy()
        (fixed if inside else out)[j] = True
        free, q = ~(fixed | out), self.k - int(fixed.sum())
        if q <= 0 or int(free.sum()) <= q:
            self._offer(np.flatnonzero(fixed) if q <= 0 else np.flatnonzero(fixed | free), bound)
            return
        found: Relaxed = relax(self._problem, fixed, free, q, b, self._enough)
        weight = np.abs(found.b) * np.sqrt(self._problem.d)
        weight[fixed] = np.inf
        self._offer(np.argpartition(-weight, self.k - 1)[: self.k], bound)
        self._push(min(found.bound, bound), fixed, out, found.b)

    def _offer(self, S: Ints, bound: float) -> None:
        """Offer a subset of a node that explains at most `bound`."""
        if self.offer(S.tolist()):
            self._check_claim(self.objective.c - bound)

    def _push(self, bound: float, fixed: Mask, out: Mask, b: Floats) -> None:
        if not bound > self._enough:
            return
        support = np.flatnonzero(b)
        self._made += 1
        node = Node(np.packbits(fixed).tobytes(), np.packbits(out).tobytes(), support, b[support])
        heapq.heappush(self._heap, (-bound, self._made, node))
        node_bytes = 2 * (self.objective.n // 8) + 16 * max(self.k, support.size) + 300
        self.memory_full = len(self._heap) * node_bytes > self._memory_limit

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        nodes = [
            [-bound, made, node.fixed.hex(), node.out.hex(), node.support.tolist(), node.b.tolist()]
            for bound, made, node in self._heap
        ]
        place = next(i for i, problem in enumerate(self._problems) if problem is self._problem)
        return {**self._shared_state(), "nodes": nodes, "visited": self._visited, "made": self._made, "diagonal": place}

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30) -> PerspectiveTree:
        """Return the search as it was when `state` was taken; it continues with the same nodes."""
        check_saved(objective, state)
        search = cls(objective, state["k"], incumbent=state["best"], memory_limit=memory_limit)
        search._restore_shared(state)
        if state["diagonal"] == len(search._problems):
            search._sharpen()
        search._problem = search._problems[state["diagonal"]]
        search._visited, search._made = state["visited"], state["made"]
        search._heap = [
            (
                -bound,
                made,
                Node(bytes.fromhex(fixed), bytes.fromhex(out), np.array(S, np.int64), np.array(b, np.float64)),
            )
            for bound, made, fixed, out, S, b in state["nodes"]
        ]
        heapq.heapify(search._heap)
        return search


def better_tree(search: BranchAndBound, memory_limit: int = 8 << 30) -> BranchAndBound | PerspectiveTree:
    """Return the tree of the better first bound. The other one is tried for many columns and one target."""
    objective = search.objective
    if search.done or objective.n < MANY_COLUMNS or not usable(objective):
        return search
    try:
        tree = PerspectiveTree(objective, search.k, incumbent=search.best, memory_limit=memory_limit)
    except ValueError:  # nearly dependent columns
        return search
    gap, other = tree.best_value - tree.lower, search.best_value - search.lower
    return tree if tree.done or gap < _BETTER * other else search


def usable(objective: Objective) -> bool:
    """Return whether the relaxation may be useful: K is in memory, and there is one target."""
    return objective.has_gram and objective.cross is not None and objective.cross.shape[1] == 1


def _problems(objective: Objective) -> list[Problem]:
    """Return the relaxation's problem for each diagonal. Errors: ValueError if there is none."""
    if not usable(objective) or objective.cross is None:
        raise ValueError("the perspective relaxation is for one target and the whole Gram matrix")
    K = penalized(objective)
    norms = column_norms(np.diag(K))
    K = K / norms
    K /= norms[:, None]
    dependent = np.diag(objective.K) + objective.lam <= objective.floor
    c = np.where(dependent, 0.0, objective.cross[:, 0] / norms)
    found = diagonals(K, objective.lam / norms**2)
    if not found or dependent.any():
        raise ValueError("columns are nearly dependent, so that the perspective relaxation is useless")
    return [Problem(K, c, d) for d in found]


def _mask(bits: bytes, n: int) -> Mask:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n).astype(np.bool_)


def _node(fixed: str, out: str, support: list[int], b: list[float]) -> Node:
    return Node(bytes.fromhex(fixed), bytes.fromhex(out), np.array(support, np.int64), np.array(b, np.float64))

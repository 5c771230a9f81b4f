"""Best-first branch and bound by the perspective relaxation, for many columns and one or a few targets.

A node fixes some columns in and some out. Its bound is the relaxation over the other columns, see
`dsel.search.exact.perspective_tree.relaxation`, and `group_relaxation` for several targets. The reduced costs of its
bound fix further columns in or out: those whose other choice cannot beat the best subset (safe screening; Atamtuerk and
Gomez, "Safe screening rules for l0-regression", ICML 2020). The column with the weight nearest to one half is branched
on.

At first all nodes have the same diagonal. If the proof takes longer, the best diagonal of the root is found
(`dsel.search.exact.perspective_tree.semidefinite`), and the tree begins again with it if its bound is better. The first
branchings then decide whether each node gets its own diagonal: that takes longer, and gives better bounds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.base import check_saved
from dsel.search.exact.bounds import column_norms, few_targets, penalized
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.perspective_tree.diagonal import diagonals
from dsel.search.exact.perspective_tree.group_relaxation import relax_rows
from dsel.search.exact.perspective_tree.node import Node
from dsel.search.exact.perspective_tree.relaxation import Mask, Problem, Relaxed, relax
from dsel.search.exact.perspective_tree.rows import sizes
from dsel.search.exact.perspective_tree.semidefinite import Solved, seconds_of, solve
from dsel.search.exact.perspective_tree.weights import weights
from dsel.search.exact.relaxation_tree import RelaxationTree
from dsel.search.exact.starting_subset import MANY_COLUMNS

#: The best diagonal is not computed for more columns.
_SEMIDEFINITE_MOST = 1000
#: How many columns are branched on to compare the two ways to bound children.
_TRIALS = 2
#: The share of the other tree's gap that this one's must be below to be preferred.
_BETTER = 0.35
#: With more subsets than this the other tree cannot try most of them. This one then has about these seconds before its
#: gap is compared with the other tree's first one, and with another share.
_MANY_SUBSETS, _HEAD_START, _BETTER_THEN = 10**12, 0.5, 0.65
#: With less time than this it has no such head start.
_ENOUGH_TIME = 10.0
#: Weights within this of 0 and 1 are whole.
_WHOLE = 1e-6


class PerspectiveTree(RelaxationTree):
    """Best-first search over nodes of fixed columns, which can be read, saved and continued.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns, with all of K in memory.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset.
    memory_limit : int
        Bytes that open nodes may take.
    diagonal_after : float, optional
        After about this many seconds the best diagonal is computed; by default as many as that takes.

    Raises
    ------
    ValueError
        If the relaxation is useless: the columns are nearly dependent without a penalty.
    """

    kind = "perspective-tree"

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), memory_limit: int = 8 << 30,
        diagonal_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, "perspective")
        self._problems = _problems(objective)
        self._problem = self._problems[0]
        self._memory_limit = memory_limit
        self._heap: list[tuple[float, int, Node]] = []
        self._visited = self._made = 0
        self._bytes, self._seconds = 0, 0.0
        self._diagonal_after = seconds_of(objective.n) if diagonal_after is None else diagonal_after
        self._tried = self._semidefinite = False
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
            b = np.zeros_like(problem.c)
            if self.best:
                S = np.asarray(self.best, np.int64)
                b[S] = np.linalg.lstsq(problem.K[np.ix_(S, S)], problem.c[S], rcond=None)[0]
            found.append(_relaxed(problem, nothing, everything, min(k, n), b, self._enough))
            self._seconds += found[-1].seconds
        best = min(range(len(found)), key=lambda i: found[i].bound)
        self._problem = self._problems[best]
        self._push(found[best].bound, Node.of(nothing, nothing, found[best].b))

    @property
    def _most(self) -> float:
        return -self._heap[0][0] if self._heap else -math.inf

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        return self._visited

    @property
    def open_nodes(self) -> int:
        """The number of open nodes."""
        return len(self._heap)

    @property
    def saved_numbers(self) -> int:
        """How many numbers `state` holds, about."""
        return sum(node.support.size + node.b.size for _, _, node in self._heap)

    @property
    def gap(self) -> float:
        """By how much the best subset is above the bound."""
        return self.best_value - self.lower

    @property
    def seconds(self) -> float:
        """About how long the relaxations took so far, which does not depend on the machine."""
        return self._seconds

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
        if not self._tried and self._seconds > self._diagonal_after:
            self._find_diagonal()
            if self.done:
                return
        bound, _, node = heapq.heappop(self._heap)
        self._visited += 1
        self._bytes -= node.nbytes
        fixed, out = node.masks(self.objective.n)
        b = node.coefficients(self._problem.c.shape)
        if node.branch < 0:
            self._screen(fixed, out, self._problem, b, np.arange(self.objective.n))
        free = ~(fixed | out)
        q = self.k - int(fixed.sum())
        if q <= 0 or int(free.sum()) <= q:
            self._offer(np.flatnonzero(fixed | free)[: self.k] if q > 0 else np.flatnonzero(fixed), -bound)
            return
        j = node.branch if node.branch >= 0 else self._branching_column(free, q, b)
        for inside in (True, False):
            self._child(-bound, fixed, out, j, inside, b)

    def _find_diagonal(self) -> None:
        """Find the best diagonal of the root, and begin again with it if its bound is better than the present one."""
        self._tried = True
        n, k, problem = self.objective.n, self.k, self._problem
        if not (n <= _SEMIDEFINITE_MOST and k < n):
            return
        nothing = np.zeros(n, np.bool_)
        found = solve(problem.K, problem.c, nothing, k, self.objective.c, self._enough)
        if found is None or not found.bound < -self._heap[0][0]:
            return
        self._seconds += found.seconds
        self._use_diagonal(found.d)
        self._semidefinite = self._own_diagonals_pay(found)
        self._heap, self._bytes = [], 0
        j = int(np.minimum(found.z, 1.0 - found.z).argmax())
        if self._semidefinite:
            self._push(found.bound, Node.of(nothing, nothing, None, j))
        else:
            self._push(found.bound, Node.of(nothing, nothing, found.b))

    def _use_diagonal(self, d: Floats) -> None:
        self._problem = Problem(self._problem.K, self._problem.c, d)
        self._problems = [*self._problems, self._problem]

    def _own_diagonals_pay(self, root: Solved) -> bool:
        """Return whether a tree whose nodes have their own diagonals promises to take less time.

        A tree with gap G and children that are better by D has about 2^(G / D) nodes.
        """
        n, problem, gap = self.objective.n, self._problem, root.bound - self._enough
        if gap <= 0.0:
            return False
        better, seconds = np.zeros(2), np.zeros(2)
        columns = np.argsort(-np.minimum(root.z, 1.0 - root.z), kind="stable")[:_TRIALS]
        for j in columns:
            for inside in (True, False):
                fixed, out = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
                (fixed if inside else out)[j] = True
                q = self.k - int(inside)
                if q <= 0 or n - 1 <= q:
                    continue
                own = self._solve(fixed, out, q)
                shared = _relaxed(problem, fixed, ~(fixed | out), q, root.b, self._enough)
                for i, found in enumerate((own, shared)):
                    if found is not None:
                        better[i] += min(max(root.bound - found.bound, 0.0), gap)
                        seconds[i] += found.seconds
        self._seconds += float(seconds.sum())
        better = np.maximum(better / (2.0 * columns.size), 1e-9 * gap)
        expected = np.log(np.maximum(seconds, 1e-9)) + math.log(2.0) * gap / better
        return bool(expected[0] < expected[1])

    def _screen(self, fixed: Mask, out: Mask, problem: Problem, b: Floats, columns: Ints) -> None:
        """Fix the columns in place whose other choice cannot be better than the best subset, by their reduced costs.

        problem, b: those of `columns`.
        """
        inner = fixed[columns]
        free = np.flatnonzero(~(inner | out[columns]))
        q = self.k - int(inner.sum())
        if not 0 < q < free.size:
            return
        fitted, g = problem.dual(b, inner)
        order = free[np.argsort(-g[free], kind="stable")]
        inside, last, first_out = order[:q], g[order[q - 1]], g[order[q]]
        bound = fitted + float(g[inner].sum() + g[inside].sum())
        outside = order[q:]
        out[columns[outside[bound - last + g[outside] <= self._enough]]] = True
        fixed[columns[inside[bound - g[inside] + first_out <= self._enough]]] = True

    def _branching_column(self, free: Mask, q: int, b: Floats) -> int:
        columns = np.flatnonzero(free)
        z = weights(sizes(b[columns]) * np.sqrt(self._problem.d[columns]), q)
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
        if self._semidefinite:
            self._child_with_diagonal(bound, fixed, out, q)
            return
        found = _relaxed(self._problem, fixed, free, q, b, self._enough)
        self._seconds += found.seconds
        weight = sizes(found.b) * np.sqrt(self._problem.d)
        weight[fixed] = np.inf
        self._offer(np.argpartition(-weight, self.k - 1)[: self.k], bound)
        self._push(min(found.bound, bound), Node.of(fixed, out, found.b))

    def _child_with_diagonal(self, bound: float, fixed: Mask, out: Mask, q: int) -> None:
        """Bound a child by its own diagonal, offer the subset of its largest weights, and push it unless pruned."""
        columns = np.flatnonzero(~out)
        found = self._solve(fixed, out, q)
        if found is None:
            self._push(bound, Node.of(fixed, out, None, int(np.flatnonzero(~(fixed | out))[0])))
            return
        self._seconds += found.seconds
        self._offer(columns[np.argpartition(-found.z, self.k - 1)[: self.k]], bound)
        bound = min(found.bound, bound)
        if not bound > self._enough:
            return
        ix = np.ix_(columns, columns)
        self._screen(fixed, out, Problem(self._problem.K[ix], self._problem.c[columns], found.d), found.b, columns)
        kept, q = ~out[columns], self.k - int(fixed.sum())
        free = ~fixed[columns] & kept
        if q <= 0 or int(free.sum()) <= q:
            self._offer(np.flatnonzero(fixed) if q <= 0 else np.flatnonzero(~out), bound)
            return
        fraction = np.where(free, np.minimum(found.z, 1.0 - found.z), -1.0)
        self._push(bound, Node.of(fixed, out, None, int(columns[fraction.argmax()])))

    def _solve(self, fixed: Mask, out: Mask, q: int) -> Solved | None:
        """Return the relaxation of the columns that are not out, with their own diagonal."""
        columns = np.flatnonzero(~out)
        K, c = self._problem.K[np.ix_(columns, columns)], self._problem.c[columns]
        return solve(K, c, fixed[columns], q, self.objective.c, self._enough)

    def _offer(self, S: Ints, bound: float) -> None:
        """Offer a subset of a node that explains at most `bound`."""
        if self.offer(S.tolist()):
            self._check_claim(self.objective.c - bound)

    def _push(self, bound: float, node: Node) -> None:
        if not bound > self._enough:
            return
        self._made += 1
        heapq.heappush(self._heap, (-bound, self._made, node))
        self._bytes += node.nbytes
        self.memory_full = self._bytes > self._memory_limit

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        nodes = [[-bound, made, *node.as_list()] for bound, made, node in self._heap]
        place = next(i for i, problem in enumerate(self._problems) if problem is self._problem)
        found = self._problem.d.tolist() if self._tried else None
        return {
            **self._shared_state(), "nodes": nodes, "visited": self._visited, "made": self._made, "diagonal": place,
            "seconds": self._seconds, "tried": self._tried, "semidefinite": self._semidefinite, "d": found,
            "diagonal_after": self._diagonal_after,
        }  # fmt: skip

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30) -> PerspectiveTree:
        """Return the search as it was when `state` was taken; it continues with the same nodes."""
        check_saved(objective, state)
        search = cls(
            objective, state["k"], incumbent=state["best"], memory_limit=memory_limit,
            diagonal_after=state["diagonal_after"],
        )  # fmt: skip
        search._restore_shared(state)
        if state["diagonal"] >= len(search._problems):
            search._use_diagonal(np.array(state["d"], np.float64))
        search._problem = search._problems[state["diagonal"]]
        search._visited, search._made, search._seconds = state["visited"], state["made"], state["seconds"]
        search._tried, search._semidefinite = state["tried"], state["semidefinite"]
        search._heap = [(-bound, made, Node.from_list(values)) for bound, made, *values in state["nodes"]]
        search._bytes = sum(node.nbytes for _, _, node in search._heap)
        heapq.heapify(search._heap)
        return search


def better_tree(
    search: BranchAndBound, memory_limit: int = 8 << 30, deadline: Deadline | None = None
) -> BranchAndBound | PerspectiveTree:
    """Return the tree of the better bound. The one of relaxations is tried for many columns.

    If there are too many subsets for the other tree to try, this one may first find better diagonals, unless the
    deadline is near.
    """
    objective = search.objective
    if search.done or objective.n < MANY_COLUMNS or not usable(objective):
        return search
    try:
        tree = PerspectiveTree(objective, search.k, incumbent=search.best, memory_limit=memory_limit)
    except ValueError:  # nearly dependent columns
        return search
    other = search.best_value - search.lower
    if tree.done or tree.gap < _BETTER * other:
        return tree
    left = float("inf") if deadline is None else deadline.remaining
    if math.comb(objective.n, search.k) <= _MANY_SUBSETS or left < _ENOUGH_TIME:
        return search
    while tree.seconds < _HEAD_START and not tree.done:
        tree.advance(tree.iteration + 1)
    search.offer(tree.best)
    return tree if tree.gap < _BETTER_THEN * (search.best_value - search.lower) else search


def usable(objective: Objective) -> bool:
    """Return whether the relaxation may be useful: K is in memory."""
    return objective.has_gram


def _relaxed(problem: Problem, fixed: Mask, free: Mask, q: int, b: Floats, enough: float) -> Relaxed:
    """Return the relaxation of a node, see `relax`."""
    return (relax if problem.c.ndim == 1 else relax_rows)(problem, fixed, free, q, b, enough)


def _problems(objective: Objective) -> list[Problem]:
    """Return the relaxation's problem for each diagonal. Errors: ValueError if there is none."""
    if not usable(objective):
        raise ValueError("the perspective relaxation needs the whole Gram matrix")
    K = penalized(objective)
    norms = column_norms(np.diag(K))
    K = K / norms
    K /= norms[:, None]
    dependent = np.diag(objective.K) + objective.lam <= objective.floor
    found = [] if dependent.any() else diagonals(K, objective.lam / norms**2)
    if not found:
        raise ValueError("columns are nearly dependent, so that the perspective relaxation is useless")
    c = few_targets(objective) / norms[:, None]
    return [Problem(K, c[:, 0] if c.shape[1] == 1 else c, d) for d in found]

"""Split the nodes of a tree of relaxations: bound the two children of a node, and fix more of their columns.

The reduced costs of a node's bound fix further columns in or out: those whose other choice cannot beat the best subset
(safe screening; Atamtuerk and Gomez, "Safe screening rules for l0-regression", ICML 2020). The column with the weight
nearest to one half is branched on.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective
from dsel.search.exact.perspective.coordinate_descent import sizes
from dsel.search.exact.perspective.group_relaxation import relax_rows
from dsel.search.exact.perspective.kept_tree import KeptTree
from dsel.search.exact.perspective.node import CachedRelaxation, Node, Path, WarmStart, step
from dsel.search.exact.perspective.relaxation import Mask, Problem, Relaxed, relax
from dsel.search.exact.perspective.semidefinite import Solved, solve
from dsel.search.exact.perspective.sparse_eigenvalues import MOST_ADDED
from dsel.search.exact.perspective.subtree_solver import NOTHING, SubtreeSolver

#: Weights within this of 0 and 1 are whole.
_WHOLE = 1e-6

#: A node, and what its subsets explain at most.
Bounded = tuple[float, Node]
#: a and g (n,): no set T of columns explains more than a and the sum of g over T.
Reduced = tuple[float, Floats]


class Incumbent(Protocol):
    """The best subset so far."""

    @property
    def cutoff(self) -> float:
        """What a node's subsets must explain more than."""

    def take(self, S: Ints, bound: float) -> None:
        """Take a subset of a node whose subsets explain at most `bound`."""


class Branching:
    """Splits nodes. The result depends on the node, the incumbent, and what the subtree solver learned.

    Parameters
    ----------
    problem : Problem
        The relaxation's problem for all columns.
    k : int
        The most columns to choose.
    objective : Objective
        f, whose rule decides which subsets are independent.
    own_diagonals : bool
        Whether each node gets its own diagonal.
    warm_start : WarmStart, optional
        Advice from the tree for a smaller size with the same diagonal.
    record : WarmStart, optional
        Where to keep the advice for the next size.
    subtree_solver : SubtreeSolver, optional
        Visits nodes below which there is little to do.
    followed : KeptTree, optional
        The tree whose open nodes it splits.
    """

    def __init__(
        self, problem: Problem, k: int, objective: Objective, own_diagonals: bool, warm_start: WarmStart | None = None,
        record: WarmStart | None = None, subtree_solver: SubtreeSolver | None = None, followed: KeptTree | None = None,
    ) -> None:  # fmt: skip
        self._followed = followed
        self.problem, self.k, self.own_diagonals, self.subtree_solver = problem, k, own_diagonals, subtree_solver
        self._objective, self._warm_start, self.record = objective, warm_start, record
        #: About how long the relaxations took so far, which does not depend on the machine.
        self.seconds = 0.0

    def visit(self, bound: float, node: Node, incumbent: Incumbent) -> list[Bounded]:
        """Return the children of a node that may hold a better subset."""
        n = self.problem.n
        fixed, out = node.masks(n)
        b = node.coefficients(self.problem.c.shape)
        reduced = screen(self.problem, fixed, out, b, self.k, incumbent.cutoff) if node.branch < 0 else None
        if self._all_fit(fixed, out, bound, incumbent):
            return []
        free, q = ~(fixed | out), self.k - int(fixed.sum())
        j = node.branch
        if j < 0 and self._warm_start is not None and node.path is not None:
            j = self._warm_start.column(node.path)
        if self._is_closed(fixed, free, q, bound, reduced, incumbent):
            return []
        if self._followed is not None:
            self._followed.split(node.path)
        before = self.seconds
        j = self._column(free, q, b) if j < 0 else j
        if self.record is not None:
            self.record.branched(node.path, j)
        children = [
            self._child(bound, fixed, out, j, inside, b, incumbent, step(node.path, j, inside))
            for inside in (True, False)
            if not (out if inside else fixed)[j]  # reduced costs may have fixed an advised column
        ]
        if self.subtree_solver is not None:
            gap = bound - incumbent.cutoff
            better = [gap if child is None else min(bound - child[0], gap) for child in children]
            self.subtree_solver.count(self.seconds - before, sum(better) / len(better))
        return [child for child in children if child is not None and child[0] > incumbent.cutoff]

    def _all_fit(self, fixed: Mask, out: Mask, bound: float, incumbent: Incumbent) -> bool:
        """Take the columns of a node if all of them may be chosen, and return whether it was so."""
        free, q = np.flatnonzero(~(fixed | out)), self.k - int(fixed.sum())
        if 0 < q < free.size:
            return False
        self._take_all(np.flatnonzero(fixed), free if q > 0 else free[:0], bound, incumbent)
        return True

    def _independent(self, S: Ints) -> bool:
        return self._objective.rank(S.tolist()) == S.size

    def _take_all(self, fixed: Ints, free: Ints, bound: float, incumbent: Incumbent) -> None:
        """Take the columns of a node that all fit; if dependent, its largest subsets that may be independent."""
        waiting: list[tuple[int, ...]] = [tuple(free.tolist())]
        seen: set[tuple[int, ...]] = set()
        while waiting:
            rest = waiting.pop()
            S = np.concatenate([fixed, np.asarray(rest, np.int64)])
            incumbent.take(S, bound)
            if (
                not rest
                or self._objective.rank(S.tolist()) == S.size
                or (not seen and self._objective.rank(fixed.tolist()) < fixed.size)
            ):
                continue
            smaller = {rest[:i] + rest[i + 1 :] for i in range(len(rest))} - seen
            waiting += sorted(smaller)
            seen |= smaller

    def _is_closed(
        self, fixed: Mask, free: Mask, q: int, bound: float, reduced: Reduced | None, incumbent: Incumbent
    ) -> bool:  # fmt: skip
        """Visit all of a node without more relaxations if that does not take long, and return whether it was done."""
        if self.subtree_solver is None:
            return False
        S, J, before = np.flatnonzero(fixed), np.flatnonzero(free), self.subtree_solver.seconds
        if self._is_excluded(fixed, free, q, incumbent):
            return True
        found = self.subtree_solver.enumerate(S, J, q, *reduced, incumbent.cutoff) if reduced is not None else NOTHING
        if not found.closed:
            found = self.subtree_solver.attempt(S, J, q, bound, incumbent.cutoff)
        self.seconds += self.subtree_solver.seconds - before
        for S in found.subsets:
            incumbent.take(S, bound)
        return found.closed

    def _is_excluded(self, fixed: Mask, free: Mask, q: int, incumbent: Incumbent) -> bool:
        """Return whether few columns are to be added, and eigenvalues show that none explain more."""
        solver = self.subtree_solver
        if solver is None or q > MOST_ADDED:
            return False
        before = solver.seconds
        excluded = solver.excludes(np.flatnonzero(fixed), np.flatnonzero(free), q, incumbent.cutoff)
        self.seconds += solver.seconds - before
        return excluded

    def _column(self, free: Mask, q: int, b: Floats) -> int:
        """Return the free column with the most fractional weight."""
        columns = np.flatnonzero(free)
        z = self.problem.weights(b, columns, q)
        fraction = np.minimum(z, 1.0 - z)
        return int(columns[fraction.argmax() if fraction.max() > _WHOLE else z.argmax()])

    def _child(
        self, bound: float, fixed: Mask, out: Mask, j: int, inside: bool, b: Floats, incumbent: Incumbent, path: Path
    ) -> Bounded | None:  # fmt: skip
        """Bound a child, and take the subset of its largest weights. Return None if it is a single subset."""
        fixed, out = fixed.copy(), out.copy()
        (fixed if inside else out)[j] = True
        if self._all_fit(fixed, out, bound, incumbent):
            return None
        free, q = ~(fixed | out), self.k - int(fixed.sum())
        if self.own_diagonals:
            return self._child_with_diagonal(bound, fixed, out, q, incumbent)
        advice = self._warm_start if path is not None else None
        known = advice.coefficients(path) if advice is not None else None
        if known is not None and advice is not None:
            node = Node(np.packbits(fixed).tobytes(), np.packbits(out).tobytes(), known.support, known.b, path=path)
            b = node.coefficients(b.shape)
            if self.record is not None and known.k >= self.k - 1:
                self.seconds += self.problem.bound_seconds(known.support.size)
                self.record.keep(path, known)
                return min(self.problem.bound(b, fixed, free, q), bound), node
        if self._is_excluded(fixed, free, q, incumbent):
            return None
        found = relaxed(self.problem, fixed, free, q, b, incumbent.cutoff)
        self.seconds += found.seconds
        weight = sizes(found.b) if self.problem.box is not None else sizes(found.b) * np.sqrt(self.problem.d)
        weight[fixed] = np.inf
        incumbent.take(np.argpartition(-weight, self.k - 1)[: self.k], bound)
        node = Node.of(fixed, out, found.b, path=path)
        if self.record is not None:
            self.record.keep(path, CachedRelaxation(self.k, node.support, node.b))
        return min(found.bound, bound), node

    def _child_with_diagonal(
        self, bound: float, fixed: Mask, out: Mask, q: int, incumbent: Incumbent
    ) -> Bounded | None:  # fmt: skip
        """Bound a child by its own diagonal, and take the subset of its largest weights."""
        columns = np.flatnonzero(~out)
        found = self.solve(fixed, out, q, incumbent.cutoff)
        if found is None:
            return bound, Node.of(fixed, out, None, int(np.flatnonzero(~(fixed | out))[0]))
        self.seconds += found.seconds
        own, (inner, outer) = self.problem.of_columns(columns, found.d), (fixed[columns], out[columns])
        incumbent.take(columns[np.argpartition(-found.z, self.k - 1)[: self.k]], bound)
        bound = min(found.bound, bound)
        if own.box is not None:
            bound = min(own.bound(found.b, inner, ~(inner | outer), q), bound)
        if not bound > incumbent.cutoff:
            return None
        screen(own, inner, outer, found.b, self.k, incumbent.cutoff)
        fixed[columns], out[columns] = inner, outer
        if self._all_fit(fixed, out, bound, incumbent):
            return None
        fraction = np.where(~(inner | outer), np.minimum(found.z, 1.0 - found.z), -1.0)
        return bound, Node.of(fixed, out, None, int(columns[fraction.argmax()]))

    def solve(self, fixed: Mask, out: Mask, q: int, enough: float) -> Solved | None:
        """Return the relaxation of the columns that are not out, with their own diagonal."""
        columns = np.flatnonzero(~out)
        K, c = self.problem.K[np.ix_(columns, columns)], self.problem.c[columns]
        return solve(K, c, fixed[columns], q, self._objective.c, enough)


def relaxed(problem: Problem, fixed: Mask, free: Mask, q: int, b: Floats, enough: float) -> Relaxed:
    """Return the relaxation of a node, see `relax`."""
    if problem.c.ndim == 1:
        return relax(problem, fixed, free, q, b, enough)
    return relax_rows(problem, fixed, free, q, b, enough)


def screen(problem: Problem, fixed: Mask, out: Mask, b: Floats, k: int, enough: float) -> Reduced:
    """Fix the columns in place whose other choice explains no more than `enough`, by their reduced costs.

    Returns what the bounds follow from.
    """
    free = np.flatnonzero(~(fixed | out))
    q = k - int(fixed.sum())
    fitted, g = problem.dual(b, fixed)
    if not 0 < q < free.size:
        return fitted, g
    order = free[np.argsort(-g[free], kind="stable")]
    inside, last, first_out = order[:q], g[order[q - 1]], g[order[q]]
    bound = fitted + float(g[fixed].sum() + g[inside].sum())
    outside = order[q:]
    out[outside[bound - last + g[outside] <= enough]] = True
    fixed[inside[bound - g[inside] + first_out <= enough]] = True
    return fitted, g


def either_choice(
    problem: Problem, fixed: Mask, out: Mask, b: Floats, k: int, bound: float
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return what the subsets of a node that have each column explain at most, and those that lack it, (n,) each.

    -infinity where there are none. bound: what no subset of the node explains more than.
    """
    having, lacking = np.full(problem.n, bound), np.full(problem.n, bound)
    having[out], lacking[fixed] = -np.inf, -np.inf
    free, q = np.flatnonzero(~(fixed | out)), k - int(fixed.sum())
    if not 0 < q < free.size:
        having[free] = bound if q > 0 else -np.inf
        lacking[free] = -np.inf if q >= free.size else bound  # only subsets of k columns count
        return having, lacking
    fitted, g = problem.dual(b, fixed)
    order = free[np.argsort(-g[free], kind="stable")]
    inside, outside = order[:q], order[q:]
    total = fitted + float(g[fixed].sum() + g[inside].sum())
    having[outside] = np.minimum(bound, total - g[order[q - 1]] + g[outside])
    lacking[inside] = np.minimum(bound, total - g[inside] + g[order[q]])
    return having, lacking

"""Explore subtrees of the tree of relaxations outside of it, on workers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.few_targets import column_norms
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.perspective.branching import Bounded, Branching
from dsel.search.exact.perspective.diagonals import scaled_gram
from dsel.search.exact.perspective.node import Node, WarmStart
from dsel.search.exact.perspective.relaxation import Box, Problem
from dsel.search.exact.perspective.subtree_solver import SubtreeSolver
from dsel.search.exact.tree import Explored


def solver_of(
    objective: Objective, k: int, K: Floats, c: Floats, deadline: Deadline | None = None, listing: bool = False
) -> SubtreeSolver:  # fmt: skip
    """Return the subtree solver of a tree over an objective. K, c: see `Problem`. listing: see `SubtreeSolver`."""
    floor = objective.floor / column_norms(np.diag(objective.K) + objective.lam) ** 2
    return SubtreeSolver(K, c, floor, objective.c, k, deadline, listing)


@dataclass
class BestFound:
    """The best subset of a task so far, better than `value`, or None. k: the most columns. listed: none."""

    objective: Objective
    value: float
    k: int
    best: tuple[int, ...] | None = None
    listed: dict[tuple[int, ...], float] = field(default_factory=dict)

    @property
    def cutoff(self) -> float:
        """What a node's subsets must explain more than."""
        return self.objective.c - self.value + MARGIN * self.objective.total

    def take(self, S: Ints, bound: float) -> None:
        """Take a subset if it is better than the best so far."""
        members = tuple(sorted(S.tolist()))
        value = self.objective.value(members)
        if value < self.value:
            self.value, self.best = value, members


class Listed(BestFound):
    """The subsets of k columns of a task whose f is at most `value`."""

    @property
    def cutoff(self) -> float:
        """What a node's subsets must explain more than."""
        return self.objective.c - self.value

    def take(self, S: Ints, bound: float) -> None:
        """Take a subset if it is good enough."""
        members = tuple(sorted(S.tolist()))
        value = self.objective.value(members)
        if len(members) == self.k and value <= self.value and self.objective.rank(members) == self.k:
            self.listed[members] = value


@dataclass(frozen=True, eq=False)
class SubtreeWork:
    """What tasks need to know of a tree.

    c, d: see `Problem`. own_diagonals: see `Branching`. learned: what the tree's `SubtreeSolver` has learned,
    None without one. box: see `Problem`. listing: whether near-best subsets are listed. recording: whether advice is
    kept.
    """

    objective: Objective
    k: int
    c: Floats
    d: Floats
    own_diagonals: bool
    learned: list[float] | None = None
    box: Box | None = None
    listing: bool = False
    recording: bool = False

    def explorer(self) -> Branching:
        """Return what splits nodes, one task after another."""
        problem = Problem(scaled_gram(self.objective), self.c, self.d, self.box)
        solver = None
        if self.learned is not None:
            solver = solver_of(self.objective, self.k, problem.K, self.c, listing=self.listing)
        return Branching(problem, self.k, self.objective, self.own_diagonals, subtree_solver=solver)

    def explore(self, explorer: Branching, nodes: Sequence[Bounded], incumbent: float, budget: int) -> Explored:
        """Explore up to `budget` nodes, the one with the highest bound first.

        The result depends only on the arguments, so that any worker may do it.
        """
        if self.learned is not None and explorer.subtree_solver is not None:
            explorer.subtree_solver.restore(self.learned)
        found = (Listed if self.listing else BestFound)(self.objective, incumbent, self.k)
        explorer.record = WarmStart(self.k, self.d, ()) if self.recording else None
        heap: list[tuple[float, int, Node]] = [(-bound, i, node) for i, (bound, node) in enumerate(nodes)]
        heapq.heapify(heap)
        made, visited, before = len(heap), 0, explorer.seconds
        while heap and visited < budget and -heap[0][0] > found.cutoff:
            bound, _, node = heapq.heappop(heap)
            visited += 1
            for child_bound, child in explorer.visit(-bound, node, found):
                made += 1
                heapq.heappush(heap, (-child_bound, made, child))
        left = tuple((-bound, node) for bound, _, node in heap if -bound > found.cutoff)
        return Explored(visited, found.best, left, explorer.seconds - before, listed=tuple(found.listed.items()),
                        advice=explorer.record)  # fmt: skip

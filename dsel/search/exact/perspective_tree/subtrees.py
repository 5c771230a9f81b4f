"""Explore open nodes of a tree of relaxations outside the tree, in a task on a worker."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective
from dsel.objective.few_targets import column_norms
from dsel.search.anytime import Deadline
from dsel.search.exact.perspective_tree.branching import Bounded, Branching
from dsel.search.exact.perspective_tree.node import Node
from dsel.search.exact.perspective_tree.relaxation import Problem
from dsel.search.exact.perspective_tree.scaling import scaled_gram
from dsel.search.exact.perspective_tree.subtree_solver import Handover


def handover_of(
    objective: Objective, k: int, K: Floats, c: Floats, deadline: Deadline | None = None
) -> Handover:  # fmt: skip
    """Return the handover of a tree over an objective. K, c: see `Problem`."""
    floor = objective.floor / column_norms(np.diag(objective.K) + objective.lam) ** 2
    return Handover(K, c, floor, objective.c, k, deadline)


@dataclass(frozen=True)
class Explored:
    """The result of exploring some open nodes.

    nodes: number of nodes visited. best: a subset better than the incumbent, or None. left: nodes that are still open.
    seconds: about how long the relaxations took, which does not depend on the machine.
    """

    nodes: int
    best: tuple[int, ...] | None
    left: tuple[Bounded, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class SubtreeWork:
    """What tasks need to know of a tree.

    c, d: see `Problem`. own_diagonals: see `Branching`. learned: what the tree's `Handover` has learned, None without
    one.
    """

    objective: Objective
    k: int
    c: Floats
    d: Floats
    own_diagonals: bool
    learned: list[float] | None = None

    def explorer(self) -> NodeExplorer:
        """Return what explores nodes, one task after another."""
        problem, objective = Problem(scaled_gram(self.objective), self.c, self.d), self.objective
        handover = None if self.learned is None else handover_of(objective, self.k, problem.K, self.c)
        return NodeExplorer(objective, Branching(problem, self.k, objective.c, self.own_diagonals, handover=handover))

    def explore(self, explorer: NodeExplorer, nodes: Sequence[Bounded], incumbent: float, budget: int) -> Explored:
        """Explore up to `budget` nodes."""
        explorer.learn(self.learned)
        return explorer.explore(nodes, incumbent, budget)


class NodeExplorer:
    """Explores nodes, the one with the highest bound first."""

    def __init__(self, objective: Objective, branching: Branching) -> None:
        self._objective, self._branching = objective, branching
        self._value = np.inf
        self._best: tuple[int, ...] | None = None

    def learn(self, learned: Sequence[float] | None) -> None:
        """Forget what earlier tasks learned, so that the next one depends on its arguments only."""
        if learned is not None and self._branching.handover is not None:
            self._branching.handover.restore(learned)

    @property
    def cutoff(self) -> float:
        """What a node's subsets must explain more than."""
        return self._objective.c - self._value + MARGIN * self._objective.total

    def independent(self, S: Ints) -> bool:
        """Return whether S is independent by the objective's rule."""
        return self._objective.rank(S.tolist()) == S.size

    def take(self, S: Ints, bound: float) -> None:
        """Take a subset if it is better than the best so far."""
        members = tuple(sorted(S.tolist()))
        value = self._objective.value(members)
        if value < self._value:
            self._value, self._best = value, members

    def explore(self, nodes: Sequence[Bounded], incumbent: float, budget: int) -> Explored:
        """Explore up to `budget` nodes. The result depends only on the arguments, so that any worker may do it."""
        self._value, self._best = incumbent, None
        heap: list[tuple[float, int, Node]] = [(-bound, i, node) for i, (bound, node) in enumerate(nodes)]
        heapq.heapify(heap)
        made, visited, before = len(heap), 0, self._branching.seconds
        while heap and visited < budget and -heap[0][0] > self.cutoff:
            bound, _, node = heapq.heappop(heap)
            visited += 1
            for child_bound, child in self._branching.visit(-bound, node, self):
                made += 1
                heapq.heappush(heap, (-child_bound, made, child))
        left = tuple((-bound, node) for bound, _, node in heap if -bound > self.cutoff)
        return Explored(visited, self._best, left, self._branching.seconds - before)

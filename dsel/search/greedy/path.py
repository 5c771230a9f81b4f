"""What the greedy methods share: the smallest gain, ties, growing a subset, and its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.base import ItemObjective, ItemState
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, check_size, improving

#: A gain of at most this share of ||Y||^2 counts as rounding error.
NO_GAIN = 1e-12
#: Scores that differ by at most this share are equal; the lowest index wins.
TIE = 1e-12


def largest(scores: Floats) -> int:
    """Return the place of the largest score (all >= 0), the first of equal ones."""
    return int(np.argmax(scores >= scores.max() * (1.0 - TIE)))


def cheapest(members: Iterable[int], costs: Floats) -> int:
    """Return the member of least cost (in the order of the members), the lowest index of equal ones."""
    least = costs.min()
    limit = max(least, least * (1.0 + TIE))  # rounding can make a cost negative
    return min(j for j, cost in zip(members, costs, strict=True) if cost <= limit)


def rebuilt(objective: ItemObjective, limit: int, members: Iterable[int]) -> ItemState:
    """Return a new state of a subset without accumulated rounding errors. Dependent columns are left out."""
    solution = objective.subset(limit)
    for j in members:
        if solution.size < limit:
            solution.insert(j)
    return solution


def best_replacement(solution: ItemState, member: int, value: float, path: Path) -> int | None:
    """Delete a member, and return the other item whose insertion then lowers f most below `value`; None if none does.

    `path` counts the items as evaluated. O(n k).
    """
    objective = solution.objective
    solution.delete(member)
    gains = solution.gains()
    gains[member] = 0.0
    path.evaluated += objective.n - solution.size
    j = largest(gains)
    return j if gains[j] > max(solution.value - value + NO_GAIN * objective.total, 0.0) else None


class Path:
    """The subsets on the path of a method, from the empty one on, each with its f. Their sizes count items."""

    def __init__(self, objective: ItemObjective) -> None:
        self.objective = objective
        self.points = [FrontPoint(0, objective.value(()), ())]
        self.trace: list[Improvement] = []
        self.steps = 0
        self.evaluated = 0

    def add(self, members: Iterable[int]) -> FrontPoint:
        """Add a subset, in the method's own order, and return its point."""
        chosen = tuple(members)
        point = FrontPoint(len(chosen), self.objective.value(chosen), self.objective.members(chosen))
        if point.value < min(p.value for p in self.points):
            self.trace.append(Improvement(self.steps, point.size, point.value))
        self.points.append(point)
        return point

    def outcome(self, **counts: Any) -> SearchOutcome:
        """Return the outcome of the path."""
        all_counts = {"evaluated": self.evaluated, **counts}
        return SearchOutcome(improving(self.points), tuple(self.trace), self.steps, counts=all_counts)


def grow(objective: ItemObjective, k: int, score: Callable[[ItemState], Floats]) -> SearchOutcome:
    """Return the path of k insertions of the item with the largest score, or fewer if no score is left. O(n k^2)."""
    check_size(k, objective.n)
    solution, path = objective.subset(k), Path(objective)
    while solution.size < k:
        scores = score(solution)
        path.evaluated += objective.n - solution.size
        j = largest(scores)
        if scores[j] <= NO_GAIN * objective.total or not solution.insert(j):
            break
        path.steps += 1
        path.add(solution.members)
    return path.outcome()

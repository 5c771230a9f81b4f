"""What the greedy methods share: what counts as a gain, how ties fall, growing a subset, and the path it
leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.base import Objective
from dsel.objective.subset_state import SubsetState
from dsel.search.base import FrontPoint, Improvement, SearchOutcome, improving
from dsel.search.validation import check_size

#: A step that changes f by at most this share of ||Y||^2 brings nothing: it cannot be told from rounding.
NO_GAIN = 1e-12
#: Scores that differ by at most this share are equal, and the lowest index is taken.
TIE = 1e-12


def largest(scores: Floats) -> int:
    """Place of the largest of some scores >= 0; of equal ones the first."""
    return int(np.argmax(scores >= scores.max() * (1.0 - TIE)))


def cheapest(members: Iterable[int], costs: Floats) -> int:
    """The member of least cost (costs >= 0, in the members' order); of equal ones the lowest index."""
    limit = costs.min() * (1.0 + TIE)
    return min(j for j, cost in zip(members, costs, strict=True) if cost <= limit)


def rebuilt(objective: Objective, limit: int, members: Iterable[int]) -> SubsetState:
    """A fresh solution, without the rounding that many steps left; columns that depend on others are left
    out."""
    solution = SubsetState(objective, limit)
    for j in members:
        if solution.size < limit:
            solution.insert(j)
    return solution


class Path:
    """The subsets that a method went through, each with the objective's own f, from the empty one on."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.points = [FrontPoint(0, objective.value(()), ())]
        self.trace: list[Improvement] = []
        self.steps = 0
        self.evaluated = 0

    def add(self, members: Iterable[int]) -> FrontPoint:
        """Note a subset, in the method's own order."""
        chosen = tuple(members)
        point = FrontPoint(len(chosen), self.objective.value(chosen), chosen)
        if point.value < min(p.value for p in self.points):
            self.trace.append(Improvement(self.steps, point.size, point.value))
        self.points.append(point)
        return point

    def outcome(self, **counts: Any) -> SearchOutcome:
        """The path's front, and what it cost: f of `evaluated` subsets was looked at."""
        all_counts = {"evaluated": self.evaluated, **counts}
        return SearchOutcome(improving(self.points), tuple(self.trace), self.steps, counts=all_counts)


def grow(objective: Objective, k: int, score: Callable[[SubsetState], Floats]) -> SearchOutcome:
    """Insert the column of the largest score (n,), k times or until no score is above rounding. O(n k^2)."""
    check_size(k, objective.n)
    solution, path = SubsetState(objective, k), Path(objective)
    while solution.size < k:
        scores = score(solution)
        path.evaluated += objective.n - solution.size
        j = largest(scores)
        if scores[j] <= NO_GAIN * objective.total or not solution.insert(j):
            break
        path.steps += 1
        path.add(solution.members)
    return path.outcome()

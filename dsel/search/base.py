"""What every search hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FrontPoint:
    """The best subset found of one size: local column indices in the method's own order, and f."""

    size: int
    value: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class Improvement:
    """The best subset of at most k columns became better: after so many iterations, with so many columns."""

    iteration: int
    size: int
    value: float


@dataclass(frozen=True)
class PathPoint:
    """One step of a method that values subsets on rows left out: the data's column inserted or removed, the size then,
    and the error summed over rows and targets."""

    action: str
    column: int
    size: int
    error: float


@dataclass(frozen=True)
class SearchOutcome:
    """Front (ascending size), trace of improvement, and why the search ended.

    path, chosen, lam, passes: of methods that value subsets on the rows: their steps, the answer in their own order as
    columns of the data (included ones first), the penalty they chose, and the passes over the data they took.
    `iterations` counts offspring for the Pareto searches and steps for the greedy ones; `evaluations` what was valued.
    """

    front: tuple[FrontPoint, ...]
    trace: tuple[Improvement, ...] = ()
    iterations: int = 0
    ended: str = "complete"
    counts: dict[str, Any] = field(default_factory=dict)
    path: tuple[PathPoint, ...] = ()
    chosen: tuple[int, ...] | None = None
    lam: float | None = None
    passes: int = 0
    notes: tuple[str, ...] = ()

    def best(self, k: int) -> FrontPoint:
        """The point of least f with at most k columns; of equal ones the smallest."""
        return min((p for p in self.front if p.size <= k), key=lambda p: (p.value, p.size))


def improving(points: list[FrontPoint]) -> tuple[FrontPoint, ...]:
    """The points of a path that no smaller one equals or beats, in ascending size: its Pareto front."""
    best: dict[int, FrontPoint] = {}
    for point in points:
        if point.size not in best or point.value < best[point.size].value:
            best[point.size] = point
    front: list[FrontPoint] = []
    for size in sorted(best):
        if not front or best[size].value < front[-1].value:
            front.append(best[size])
    return tuple(front)

"""What every search returns.

Every search shares the checks of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dsel.errors import OptionError


@dataclass(frozen=True)
class FrontPoint:
    """The best subset found of one size.

    Parameters
    ----------
    size : int
        The number of its columns.
    value : float
        f(S), or the criterion.
    members : tuple of int
        Its columns as local indices, in the method's own order.
    """

    size: int
    value: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class Improvement:
    """An improvement of the best subset of at most k columns.

    Parameters
    ----------
    iteration : int
        The iterations until then.
    size : int
        The number of columns of the new subset.
    value : float
        f(S) of the new subset, or the criterion.
    """

    iteration: int
    size: int
    value: float


@dataclass(frozen=True)
class PathPoint:
    """One step of a method that scores subsets on left-out rows.

    Parameters
    ----------
    action : {"insert", "remove"}
        What the step did.
    column : int
        The column of the data.
    size : int
        The number of columns after the step.
    error : float
        The error, summed over rows and targets.
    """

    action: str
    column: int
    size: int
    error: float


@dataclass(frozen=True)
class SearchOutcome:
    """What a method returns.

    Parameters
    ----------
    front : tuple of FrontPoint
        The best subset found of each size, in ascending size.
    trace : tuple of Improvement
        The improvements of the best subset.
    iterations : int
        Offspring of a Pareto search, or steps of a greedy one.
    ended : str
        Why the search ended.
    counts : dict
        Further counts of the method.
    path : tuple of PathPoint
        The steps of a method that minimizes a cross-validated error.
    chosen : tuple of int, optional
        The answer of such a method: columns of the data in its own order, included ones first.
    lam : float, optional
        The ridge penalty that the method chose.
    passes : int
        Passes over the data that the method made.
    notes : tuple of str
        Remarks for the user.
    certificates : tuple of Certificate
        What the method proved about its answer.
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
    certificates: tuple[Any, ...] = ()

    def best(self, k: int) -> FrontPoint:
        """Return the point of least f with at most k columns, the smallest of equal ones."""
        return min((p for p in self.front if p.size <= k), key=lambda p: (p.value, p.size))


def improving(points: list[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Return the Pareto front of a path: the points that no smaller point equals or beats, in ascending size."""
    front: list[FrontPoint] = []
    for point in best_of_sizes(points):
        if not front or point.value < front[-1].value:
            front.append(point)
    return tuple(front)


def best_of_sizes(points: list[FrontPoint]) -> list[FrontPoint]:
    """Return the best point of each size, by ascending size; the first one of several."""
    best: dict[int, FrontPoint] = {}
    for point in points:
        if point.size not in best or point.value < best[point.size].value:
            best[point.size] = point
    return [best[size] for size in sorted(best)]


SEED_LIMIT = 2**63


def check_size(k: int, n: int) -> None:
    """Raise OptionError unless 1 <= k <= n."""
    if not 1 <= k <= n:
        raise OptionError(f"k is {k}, but there are {n} columns to choose from.", "1 <= k <= columns.")


def check_seed(seed: int) -> None:
    """Raise OptionError unless 0 <= seed < 2^63."""
    if not 0 <= seed < SEED_LIMIT:
        raise OptionError(f"seed is {seed}; it is a whole number from 0 to 2^63 - 1.")

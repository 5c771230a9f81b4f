"""Problems that are small enough to try every subset."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.objective.groups import GroupedObjective
from dsel.objective.objective_interface import Objective


def require(condition: object, message: str) -> None:
    """Raise AssertionError with a message unless a condition holds, also under ``python -O``."""
    if not condition:
        raise AssertionError(message)


@dataclass(frozen=True, eq=False)
class SmallProblem:
    """A problem whose best subset follows from trying them all by least squares on the rows.

    Parameters
    ----------
    name : str
        What messages call the problem.
    X : array, shape (m, n)
        The columns to choose from, as the search sees them: nothing is centered or scaled.
    Y : array, shape (m, N), optional
        The targets; None for Y = X.
    lam : float
        The ridge penalty.
    groups : tuple of tuple of int, optional
        The columns of each group, if groups are chosen.

    Examples
    --------
    >>> import numpy as np
    >>> problem = SmallProblem("two columns", np.eye(3)[:, :2], np.array([[1.0], [2.0], [3.0]]))
    >>> float(problem.error((1,))), float(problem.least_error(1))
    (10.0, 10.0)
    """

    name: str
    X: Floats
    Y: Floats | None = None
    lam: float = 0.0
    groups: tuple[tuple[int, ...], ...] | None = None

    @cached_property
    def objective(self) -> Objective | GroupedObjective:
        """The objective that a search gets."""
        cross = None if self.Y is None else self.X.T @ self.Y
        total = float(np.square(self.targets).sum())
        objective = DenseObjective(self.X.T @ self.X, cross, total, self.lam)
        if self.groups is None:
            return objective
        return GroupedObjective(objective, [np.array(group) for group in self.groups])

    @property
    def targets(self) -> Floats:
        """Y, or X where Y = X."""
        return self.X if self.Y is None else self.Y

    def error(self, S: tuple[int, ...]) -> float:
        """Return f of some columns or groups, by least squares on the rows."""
        columns = list(S) if self.groups is None else [j for g in S for j in self.groups[g]]
        A = np.vstack([self.X[:, columns], np.sqrt(self.lam) * np.eye(len(columns))])
        Y = np.vstack([self.targets, np.zeros((len(columns), self.targets.shape[1]))])
        return float(np.square(Y - A @ np.linalg.lstsq(A, Y, rcond=1e-9)[0]).sum())

    def least_error(self, k: int, include: tuple[int, ...] = (), allowed: Collection[int] | None = None) -> float:
        """Return the least f of at most k allowed columns or groups, by default all, the included ones among them."""
        n = self.X.shape[1] if self.groups is None else len(self.groups)
        others = sorted(set(range(n) if allowed is None else allowed) - set(include))
        sizes = range(k - len(include) + 1)
        return min(self.error((*include, *S)) for size in sizes for S in combinations(others, size))


def small_problems() -> list[SmallProblem]:
    """Return problems of nine columns: correlated and equal columns, ties, penalties, several targets, and groups.

    Returns
    -------
    list of SmallProblem
        The problems that `check_tree` tries.

    Examples
    --------
    >>> [problem.name for problem in small_problems()][:3]
    ['one target', 'a ridge penalty', 'three targets']
    """
    rng = np.random.default_rng(20)
    X = rng.normal(size=(30, 9)) @ (np.eye(9) + 0.4 * rng.normal(size=(9, 9)))
    Y = X[:, :4] @ rng.normal(size=(4, 3)) + 2.0 * rng.normal(size=(30, 3))
    copies = X.copy()
    copies[:, 6], copies[:, 8] = -2.0 * X[:, 0], X[:, 1] + X[:, 2]
    ties = rng.integers(-1, 2, (12, 9)).astype(float)
    groups = ((0, 1), (2,), (3, 4, 5), (6,), (7, 8))
    return [
        SmallProblem("one target", X, Y[:, :1]),
        SmallProblem("a ridge penalty", X, Y[:, :1], lam=5.0),
        SmallProblem("three targets", X, Y),
        SmallProblem("Y = X", X),
        SmallProblem("copies of columns", copies, Y[:, :1]),
        SmallProblem("ties", ties, rng.integers(-1, 2, (12, 1)).astype(float)),
        SmallProblem("more columns than rows", X[:6], Y[:6, :1]),
        SmallProblem("an exact fit", X, X[:, :2] @ np.array([[1.0], [-2.0]])),
        SmallProblem("groups", X, Y[:, :1], groups=groups),
    ]

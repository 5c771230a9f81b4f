"""Recompute the bounds of leaves over groups of columns, see `dsel.verification.bounds`.

A leaf has groups S that are chosen, and groups R of which at most q may be added. f is at least f(S + R). If
|R| > q, at least |R| - q groups of R are left out. f is then at least f(S + R - g) for each group g of these. So it is
at least the (|R| - q)-th smallest of all f(S + R - g). The eigenvalue bound holds for as many columns as q groups have.
If columns are nearly dependent, such a leaf is divided until its bounds hold, or single subsets are compared. An
independent subset of the columns of a group is no larger than the rank of the group. Let the elimination of its matrix,
with the largest pivot first, leave at most the share t of each column's square after r pivots. The matrix of r + 1 of
its p columns then has an eigenvalue of at most p t. So the others leave at most p^2 t of some column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel.verification.bounds import LOGGED, Checker, Failure
from dsel.verification.problem import EXTENDED, Claim, Problem
from dsel.verification.tree import BOUND, Leaf, columns_of


class GroupChecker(Checker):
    """Checks leaves of one proof about groups: numbers in a leaf are those of groups, see `Checker`."""

    without_ridge = ()  # comparisons divide leaves by their bounds

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """How many columns of each group an independent subset has at most."""
        assert self.problem.groups is not None
        return np.array([self._rank(group) for group in self.problem.groups], np.int64)

    @property
    def most_columns(self) -> int:
        """How many columns an independent subset has at most."""
        return int(np.sort(self.ranks)[::-1][: self.k].sum())

    @property
    def most_compared(self) -> int:  # type: ignore[override]
        """Most groups that the subsets of a leaf may add if they are compared."""
        return self.problem.n_items

    def _by_dependence(self, leaf: Leaf) -> bool:
        """Return False: no groups are left out because they depend on others."""
        return False

    def _compared(self, leaves: Sequence[Leaf]) -> Iterator[Failure]:
        """Yield the leaves with groups that are below the threshold. Bounds spare most of them the comparison."""
        for leaf in leaves:
            if not self._divided(leaf, self.threshold):
                f = float(self.value([*leaf.chosen, *columns_of(leaf.allowed)][: self.k]))
                yield (leaf, f"not all of its subsets are at least {float(self.threshold):.10g}; f is {f:.10g}")

    def _exceeds(self, leaf: Leaf, bound: float) -> bool:
        """Return whether the bound in the log is above f of some subset: near dependence makes bounds low."""
        return super()._exceeds(leaf, bound) and not self._divided(leaf, (leaf.bound - LOGGED) * self.problem.c)

    def _holds_after_division(self, leaf: Leaf, bound: float) -> bool:
        return self._divided(leaf, self.threshold)

    def value(self, S: Sequence[int]) -> Any:
        """Return f(S): columns that depend on those before them explain nothing."""
        return super().value(self._independent(S))

    def _independent(self, S: Sequence[int]) -> list[int]:
        kept: list[int] = []
        for j in sorted(self.problem.members(S)):
            if not super().dependent([*kept, j]):
                kept.append(j)
        return kept

    def _holds(self, chosen: tuple[int, ...], allowed: int, most: int, level: Any, parts: list[int]) -> bool:
        every = (*chosen, *columns_of(allowed))
        if self.listed is not None and allowed and len(every) <= min(self.k, len(chosen) + most):
            leaf = Leaf(0, BOUND, chosen, allowed, most, np.nan)  # smaller sets are in no list
            if self._allows(every, level) and self.bounds([leaf], self.ridge)[0] >= min(level, self.least):
                return True
        return super()._holds(chosen, allowed, most, level, parts)

    def dependent(self, S: Sequence[int]) -> bool:
        """Return False: groups may have columns that depend on others."""
        return False

    def bounds(self, leaves: Sequence[Leaf], ridge: Any) -> NDArray[np.float64]:
        """Return a lower bound (b,) on f of all subsets of each leaf, up to what the ridge hides."""
        return np.array([self._bound(leaf, ridge) for leaf in leaves])

    def _bound(self, leaf: Leaf, ridge: Any) -> float:
        allowed = columns_of(leaf.allowed) if leaf.most else []
        most = int(np.sort(self.ranks[allowed])[::-1][: leaf.most].sum())
        bound = float(Checker.bounds(self, [self._of_columns(leaf, allowed, most)], ridge)[0])
        left_out = len(allowed) - leaf.most
        if left_out <= 0 or bound >= self._needed([leaf])[0]:
            return bound
        without = [self._of_columns(leaf, [h for h in allowed if h != g], self.problem.n) for g in allowed]
        increased = [x for batch in self._batches(without) for x in Checker.bounds(self, batch, ridge).tolist()]
        return max(bound, float(np.sort(increased)[left_out - 1]))

    def _of_columns(self, leaf: Leaf, allowed: Sequence[int], most: int) -> Leaf:
        """Return a leaf over columns: those of S, and those of some groups of R."""
        mask = sum(1 << j for j in self.problem.members(allowed))
        return Leaf(leaf.number, BOUND, tuple(self.problem.members(leaf.chosen)), mask, most, leaf.bound)

    def _rank(self, group: NDArray[np.int64]) -> int:
        """Return how many columns of a group an independent subset has at most."""
        scale, p = np.sqrt(self._squares[group]), group.size
        K = self.problem.K[np.ix_(group, group)] / scale[:, None] / scale[None, :]
        for rank in range(p):
            a = int(np.argmax(np.diag(K)))
            if K[a, a] <= EXTENDED(DEPENDENCE_TOLERANCE) / p**2:
                return rank
            K = K - np.outer(K[:, a], K[a]) / K[a, a]
            K[a] = K[:, a] = 0
        return p


def checker_of(problem: Problem, k: int, threshold: Any) -> Checker:
    """Return what checks the leaves of a proof about columns or groups."""
    return (Checker if problem.groups is None else GroupChecker)(problem, k, threshold)


def checker_of_claim(claim: Claim) -> Checker:
    """Return what checks the leaves of a claim."""
    checker = checker_of(claim.problem, claim.k, claim.threshold)
    checker.listed, checker.least = claim.listed, claim.least
    return checker

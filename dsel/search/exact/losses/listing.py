"""The near-best subsets that a tree of a loss looks for. Its items are the columns that may be chosen, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsel._lib.low_rank import ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, ridge
from dsel._lib.types import Bools, Ints
from dsel.search.exact.alternatives import NearBestAnswer, summarize
from dsel.search.exact.inflation import variance_inflation
from dsel.search.exact.losses.local_search import improved, refit, swap_scores
from dsel.search.exact.losses.problem import LossProblem, Relaxed
from dsel.search.exact.near_best import ListRule, NearBest, OpenBounds


@dataclass(frozen=True)
class LossListing:
    """The near-best subsets of at most k columns.

    problem: with all columns. fixed, free (n,): its columns that are in all subsets, and that may be chosen. near: the
    subsets by their items. items (n,): the item of each column, -1 where there is none.
    """

    problem: LossProblem
    k: int
    fixed: Bools
    free: Bools
    near: NearBest
    items: Ints

    @classmethod
    def of(
        cls, rule: ListRule, problem: LossProblem, k: int, fixed: Bools, free: Bools, without: float
    ) -> LossListing:  # fmt: skip
        """Return an empty list. without: F of the fixed columns. That of no columns is what D2 compares with."""
        total = refit(problem, np.empty(0, np.int64)).value if fixed.any() else without
        items = np.where(free, np.cumsum(free) - 1, -1)
        near = NearBest(rule, int(free.sum()), k - int(fixed.sum()), c=without, total=total)
        return cls(problem, k, fixed, free, near, items)

    def nothing(self) -> NearBestAnswer | None:
        """Return the answer where all subsets of k columns are dependent; None where some may be independent.

        The least eigenvalue of k independent columns of norm 1 is more than a k-th of the tolerance, and so is the
        k-th largest one of all columns, by interlacing.
        """
        allowed = np.flatnonzero(self.fixed | self.free)
        if self.problem.groups is not None or self.k == self.fixed.sum() or allowed.size < self.k:
            return None
        values = np.linalg.eigvalsh(_scaled_gram(self.problem, allowed).whole())
        if values[-self.k] >= 0.5 * DEPENDENCE_TOLERANCE / self.k:
            return None
        return summarize(self.near, None, 0.0, True)

    def counts(self, columns: Ints) -> bool:
        """Return whether lists may have subsets with these columns: independent ones, or any groups."""
        return self.problem.groups is not None or _is_independent(self.problem, columns)

    def take(self, fit: Relaxed, columns: Ints) -> None:
        """Take a fit on columns of the problem, if there are k of them, and they are independent."""
        if columns.size == self.k and self.counts(columns):
            self.near.take(self._items(columns).tolist(), fit.value)

    def matters(self, bound: float, inside: Ints, possible: Ints, least: float) -> bool:
        """Return whether a node may hold a subset to list, or one that decides about a column.

        inside, possible: the columns of all its subsets, and of any of them. least: a bound on F of all subsets.
        """
        return self.near.matters(bound, self._items(inside), self._items(possible), least)

    def include(self, opened: OpenBounds, bound: float, inside: Ints, possible: Ints) -> None:
        """Count an open node. Its columns are those of `matters`."""
        opened.include(bound, self._items(inside), self._items(possible))

    def _items(self, columns: Ints) -> Ints:
        items = self.items[columns]
        return np.asarray(items[items >= 0])

    def search_prices(self, over: Callable[[], bool]) -> None:
        """Fit the swaps of the best subset that have a column which no near-best subset has, or lack one of all."""
        if not self.near.subsets:
            return
        columns = np.flatnonzero(self.free)
        S = np.sort(np.append(np.flatnonzero(self.fixed), columns[list(self.near.subsets[0][0])]))
        fit = refit(self.problem, S)
        loose, others, scores = swap_scores(self.problem, fit.point, S, self.fixed, self.free)
        if not scores.size:
            return
        wanted, lacked = self.near.wanted, self.near.lacked
        swaps = {(int(scores[:, at].argmin()), at) for at in np.flatnonzero(wanted[self.items[others]]).tolist()}
        swaps |= {(at, int(scores[at].argmin())) for at in np.flatnonzero(lacked[self.items[S[loose]]]).tolist()}
        for i, j in sorted(swaps):
            if over():
                return
            taken, gone = S.copy(), S[loose[i]]
            taken[loose[i]] = others[j]
            found = refit(self.problem, taken, fit.point)
            self.take(found, taken)  # what improves it may lose the new column
            if lacked[self.items[gone]]:
                free = self.free.copy()
                free[gone] = False
                self.take(*improved(self.problem, taken, self.k, self.fixed, free, over))


def _scaled_gram(problem: LossProblem, S: Ints) -> ScaledMatrix:
    """Return the Gram matrix of columns S with the penalty, scaled to a diagonal of 1; of 0 for columns of zeros."""
    rows = problem.columns[S] * np.sqrt(problem.w)
    K = rows @ rows.T
    squares = np.diag(K) + problem.lam
    squares = np.where(squares > 0.0, squares, 1.0)
    return ScaledMatrix.of(K, np.sqrt(squares), problem.lam / squares)


def _is_independent(problem: LossProblem, S: Ints) -> bool:
    """Return whether the others leave more than the tolerance of the square of each column."""
    factor = pivoted_cholesky(_scaled_gram(problem, S), ridge(S.size))
    return factor.rank == S.size and bool((variance_inflation(factor) * DEPENDENCE_TOLERANCE < 1.0).all())

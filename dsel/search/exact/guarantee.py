"""What a proof in float64 guarantees: how far rounding may hide a subset, and what the dependence tolerance excludes.

Bounds are those of a matrix that differs from K by a ridge and by rounding, together at most r D, with D the diagonal
of K (`dsel._lib.tolerances.perturbation`). For coefficients b of a subset T, the ridge changes f(T) by at most r b'Db.
The other columns of T leave the share 1 / v_j of the square of column j, so that

    r b'Db <= r ||Y||^2 sum over T of v_j,

with v_j <= 1e7 for independent subsets, and v_j at most the variance inflation factor of column j on all others. With a
penalty, v_j is at most 1 over its share of the largest column's square.

The rounding of means and of the removal of included columns (`dsel.objective.centering`) changes f(T) by an amount that
depends on the sum of |b_j| ||x_j||, included columns counted. Over T that is at most what the included columns leave of
||Y|| times the sum of sqrt(v_j), and with a penalty at most ||Y|| sqrt(k ||x||^2 / (4 lam)) for the largest column x.

Dependent subsets explain at most what all columns explain, but for rounding with their own v_j. If all columns
are independent to rounding, these are at most the inflation factors. If not, the v_j of a subset whose columns are real
(`dsel._lib.tolerances.REAL`) have a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtri

from dsel._lib.low_rank import MANY, PivotedFactor, ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import MARGIN, REAL, perturbation, ridge
from dsel._lib.types import Bools, Floats
from dsel.objective.base import Objective
from dsel.objective.centering import CenteringError
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import factored, few_targets, penalized, require_time

#: With more columns, v_j counts as its limit: the decomposition would take minutes.
_MOST_COLUMNS = 10_000
#: An error of a proof below this share of ||Y||^2 needs no note.
_WORTH_A_NOTE = 1e-7
#: Rows of a matrix of pairs that are in memory at a time.
_ROWS = 512
#: A coefficient below the first is 0 up to rounding, and one above the second is not.
_ZERO = (1e-8, 1e-5)
#: All subsets of at most this many columns are compared.
_PAIRS = 2


@dataclass(frozen=True)
class Guarantee:
    """The limits of a proof about subsets of at most k columns, as shares of ||Y||^2.

    error: no independent subset has an f below the bound by more than this. explained_by_all: what all columns explain,
    if some subsets are dependent by the tolerance but not to rounding, so that they are never chosen; 0 if none are.
    by_dependent: how much more dependent subsets explain at most, if that is known.
    """

    error: float
    explained_by_all: float = 0.0
    by_dependent: float = 0.0

    def hidden(self, value: float, objective: Objective) -> float:
        """Return by how much of ||Y||^2 a dependent subset may be better than f = `value`; 0 if there are none."""
        if self.by_dependent:
            share = min(self.by_dependent, value / objective.total)
        elif self.explained_by_all:
            least = max(objective.c - self.explained_by_all * objective.total, 0.0)
            share = (value - least) / objective.total
        else:
            return 0.0
        return share if share > 2.0 * MARGIN else 0.0


def limit_notes(error: float, excluded: float, tolerance: float) -> Iterator[str]:
    """Yield notes for users on what a proof does not guarantee: see `Guarantee.error` and `Guarantee.hidden`."""
    if error > _WORTH_A_NOTE:
        yield (
            "columns may be nearly dependent, or have means much larger than their deviations: rounding in the proof "
            f"is worth up to {error:.0e} of ||Y||^2, for subsets with large coefficients of opposite signs"
        )
    if excluded:
        yield (
            f"subsets in which others leave at most {tolerance:.0e} of a column's square count as dependent: they are "
            f"never chosen, and the proof does not cover them; one may explain up to {excluded:.2g} of ||Y||^2 more"
        )


def guarantee_of(
    objective: Objective, k: int, steps: int | None = None, deadline: Deadline | None = None
) -> Guarantee:  # fmt: skip
    """Return the limits of proofs about an objective. O(n^3), or O(n^2 rank) if the columns are dependent.

    steps: how many columns the bounds eliminate; by default all. Raises OutOfTime if this would end after the deadline.
    """
    return Limits(objective).guarantee(k, steps, deadline)


class Limits:
    """The limits of proofs about subsets of one or more sizes. What does not depend on the size is computed once."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._inflation: tuple[Floats, bool, bool] | None = None
        self._explained: tuple[float, Floats] | None = None

    def guarantee(self, k: int, steps: int | None = None, deadline: Deadline | None = None) -> Guarantee:
        """Return the limits for subsets of at most k columns, see `guarantee_of`."""
        objective, n = self._objective, self._objective.n
        most = 1.0 / objective.tolerance
        share = perturbation(n if steps is None else min(steps, n))
        by_penalty = float(objective.scale.max(initial=0.0)) / objective.lam if objective.lam > 0.0 else np.inf
        if by_penalty < most:
            error = self._rounding(share, np.full(k, by_penalty), k)
            if error <= _WORTH_A_NOTE:
                return Guarantee(error)  # a penalty bounds the v_j well enough
        factors, near = np.full(n, most), False
        if objective.has_gram and n <= _MOST_COLUMNS:
            factors, near = self._factors(k, most, deadline)
            near = near or self._depends_on_included
        error = self._rounding(share, factors, k)
        return Guarantee(min(error, 1.0), self._explained_by_all(k, deadline) if near else 0.0)

    def _rounding(self, share: float, factors: Floats, k: int) -> float:
        """Return what rounding and ridge are worth for k columns with at most these v_j, as a share of ||Y||^2."""
        largest, objective = np.sort(factors)[-k:], self._objective
        coefficients = min(self._coefficients(float(np.sqrt(largest).sum())), self._coefficients_by_penalty(k))
        return share * float(largest.sum()) * objective.c / objective.total + self._centering.share(coefficients)

    @property
    def _depends_on_included(self) -> bool:
        """Whether the included columns nearly determine another one, which is not a copy."""
        objective = self._objective
        left, scale = objective.diagonal + objective.lam, objective.scale
        return bool(((left <= objective.floor) & (left > REAL * perturbation(objective.n) * scale)).any())

    @property
    def _centering(self) -> CenteringError:
        """The rounding of the products. Without cross products, that of the columns counts for the targets, too."""
        found = self._objective.centering
        if self._objective.cross is not None:
            return found
        return replace(found, cross=max(found.gram, found.cross), targets=max(found.gram, found.targets))

    def _coefficients(self, chosen: float) -> float:
        """Return the most that the sum of |b_j| ||x_j|| / ||Y|| can be with included columns.

        chosen: without them, for a Y of the norm that they leave. What the chosen columns leave of Y has a norm of at
        most 1 + chosen times that of Y.
        """
        objective, known = self._objective, self._objective.centering.included
        if not objective.centering.subtracted:
            chosen *= math.sqrt(max(objective.c, 0.0) / objective.total)
        most = len(objective.included) / math.sqrt(objective.tolerance)  # they are independent
        return chosen + (most if known is None else min(known, most)) * (1.0 + chosen)

    def _coefficients_by_penalty(self, k: int) -> float:
        """Return the most that the sum of |b_j| ||x_j|| / ||Y|| can be because of the penalty; infinity without one."""
        objective = self._objective
        if not objective.lam > 0.0:
            return float("inf")
        columns = k + len(objective.included)
        return float(0.5 * (columns * objective.centering.largest / objective.lam) ** 0.5)

    def _factors(self, k: int, most: float, deadline: Deadline | None) -> tuple[Floats, bool]:
        """Return upper bounds on v_j in independent subsets of k columns; see `_inflation`."""
        if k <= _PAIRS:
            return _inflation_of_pairs(_correlations(self._objective), k, most, deadline)
        if self._inflation is None:
            self._inflation = _inflation(_correlations(self._objective), most, deadline)
        return self._inflation[:2]

    def _explained_by_all(self, k: int, deadline: Deadline | None) -> float:
        """Return an upper bound on the share of ||Y||^2 that k columns explain, dependent ones too."""
        if self._explained is None:
            low_rank = self._inflation is not None and self._inflation[2]
            self._explained = _explained_share(self._objective, low_rank, deadline)
        share, factors = self._explained
        return min(max(share + self._rounding(perturbation(self._objective.n), factors, k), 0.0), 1.0)


def _correlations(objective: Objective) -> ScaledMatrix:
    """Return K + lam I of the columns that can be chosen, scaled to a diagonal of at most 1.

    The scale is that of the columns before the included ones were removed, by which dependence is judged.
    """
    kept = objective.diagonal + objective.lam > objective.floor
    scale = objective.scale[kept]
    K = objective.K if kept.all() else objective.K[np.ix_(kept, kept)]
    return ScaledMatrix.of(K, np.sqrt(scale), objective.lam / scale)


def _inflation(C: ScaledMatrix, most: float, deadline: Deadline | None) -> tuple[Floats, bool, bool]:
    """Return upper bounds on v_j in independent subsets, and whether subsets are nearly dependent, and C of low rank.

    C: the columns' correlations. Copies of a column do not count, because no independent subset has both. The columns
    are factored in the order of the largest pivot. If pivots are rounding, there are dependent columns. With three
    columns or more, v_j then has no other limit than `most` or that of `_inflation_outside_sets`.
    """
    if C.n == 0:
        return np.zeros(0), False, False
    factor = pivoted_cholesky(C, ridge(C.n), require_time(deadline))
    low_rank = factor.rank < C.n and _more_than(factor.rank, C)
    if factor.rank < C.n and not low_rank:
        first = _without_copies(C)
        if not first.all():
            C = C.part(np.flatnonzero(first))
            factor = pivoted_cholesky(C, ridge(C.n), require_time(deadline))
    found = _variance_inflation(factor)
    if factor.rank < C.n:
        limit = min(_inflation_outside_sets(factor, found), most)
        return np.full(C.n, limit), limit >= most, low_rank
    return np.minimum(found, most), bool(found.max(initial=0.0) >= most), False


def _more_than(rank: int, C: ScaledMatrix) -> bool:
    """Return whether it is plain that a large matrix has more different columns than its rank."""
    few = 4 * rank + 64
    return C.n >= max(MANY, few) and bool(_without_copies(C.part(np.arange(few))).sum() > rank)


def _without_copies(C: ScaledMatrix) -> Bools:
    """Return which columns (n,) are not copies of a column before them."""
    diagonal, whole = C.diagonal, C.whole()
    copies = np.outer(diagonal, diagonal) - np.square(whole) <= ridge(C.n) * np.outer(diagonal, diagonal)
    return np.asarray(~np.tril(copies, -1).any(axis=1))


def _variance_inflation(factor: PivotedFactor) -> Floats:
    """Return the variance inflation factors (r,) of a largest set of independent columns."""
    inverse, _ = dtrtri(factor.triangle, lower=1)
    return np.asarray(np.square(inverse).sum(axis=0))


def _inflation_outside_sets(factor: PivotedFactor, inflation: Floats) -> float:
    """Return the limit of v_j where columns are dependent in disjoint sets, such as the categories of a variable.

    Each set has one combination that is 0. inflation (r,): that of the eliminated columns. Returns infinity if sets
    overlap.

    Let b be a unit vector over an independent subset, w its part outside of the null space. The subset lacks a column
    of each set, at which the null part of b is -w. So |w|^2 >= share / (1 + share), if each column has at least this
    share of the square of its set's combination. The least eigenvalue but 0 is at least 1 over the sum of `inflation`.
    """
    others = np.delete(np.arange(factor.W.shape[1]), factor.pivots)
    coefficients = np.abs(scipy.linalg.solve_triangular(factor.triangle.T, factor.W[:, others]))
    real = coefficients > _ZERO[1]
    if (real.sum(axis=1) > 1).any() or (~real & (coefficients > _ZERO[0])).any():
        return float("inf")
    squares = np.square(coefficients)
    least = np.where(real, squares, 1.0).min(axis=0, initial=1.0)
    share = float((least / (1.0 + squares.sum(axis=0))).min())
    return float(inflation.sum()) * (1.0 + 1.0 / share)


def _inflation_of_pairs(
    C: ScaledMatrix, k: int, most: float, deadline: Deadline | None
) -> tuple[Floats, bool]:  # fmt: skip
    """Return the largest v_j in independent subsets of one or two columns, and whether other pairs are no copies."""
    if C.n == 0:
        return np.zeros(0), False
    diagonal, least = C.diagonal, 1.0 / most
    if k == 1:
        return np.asarray(1.0 / diagonal), False
    smallest, near = diagonal.copy(), False
    for start in range(0, C.n, _ROWS):
        if deadline is not None:
            deadline.require()
        rows = np.arange(start, min(start + _ROWS, C.n))
        squares = np.square(C.K[rows] / C.scale / C.scale[rows, None])
        squares[np.arange(rows.size), rows] = 0.0
        left = diagonal[rows, None] - squares / diagonal  # of column i given column j
        dependent = (left <= least) | (diagonal - squares / diagonal[rows, None] <= least)
        near = near or bool((dependent & (left > ridge(C.n) * diagonal[rows, None])).any())
        smallest[rows] = np.where(dependent, np.inf, left).min(axis=1)
    return np.asarray(1.0 / np.minimum(smallest, diagonal)), near


def _explained_share(objective: Objective, low_rank: bool, deadline: Deadline | None) -> tuple[float, Floats]:
    """Return the share of ||Y||^2 that all columns explain, but for rounding, and upper bounds on v_j in real subsets.

    If some columns are dependent to rounding, a ridge is added, so that no direction is dropped: others may need it.
    low_rank: that is known already.
    """
    norms = np.sqrt(np.where(objective.scale > 0.0, objective.scale, 1.0))
    C = ScaledMatrix.of(np.asarray(objective.K, np.float64), norms, objective.lam / norms**2)
    if not low_rank:
        factor = pivoted_cholesky(C, ridge(C.n), require_time(deadline))
        if factor.rank < C.n:
            first = np.flatnonzero(_without_copies(C))
            objective, C, norms = objective.restrict(first), C.part(first), norms[first]
            factor = pivoted_cholesky(C, ridge(C.n), require_time(deadline))
        if factor.rank == C.n:
            return _explained_by(factor, objective, norms) / objective.total, _variance_inflation(factor)
    B = _targets(objective, deadline)
    least = ridge(C.n)
    _, Q, rest = factored(penalized(objective), B, least, 4.0 * least, deadline, norms)
    explained = float(np.square(Q).sum() + np.square(rest).sum() / least)
    return explained / objective.total, np.full(C.n, 1.0 / (REAL * perturbation(C.n)))


def _targets(objective: Objective, deadline: Deadline | None) -> Floats:
    """Return B with B B' = M."""
    if objective.moments is not None:
        return few_targets(objective, deadline)
    return objective.K if objective.cross is None else objective.cross


def _explained_by(factor: PivotedFactor, objective: Objective, norms: Floats) -> float:
    """Return what the factored columns explain, from B or from M. norms: by which they were divided."""
    used, L = factor.pivots, factor.triangle
    if objective.moments is None:
        B = objective.K if objective.cross is None else objective.cross
        return float(np.square(scipy.linalg.solve_triangular(L, B[used] / norms[used, None], lower=True)).sum())
    M = objective.moments[np.ix_(used, used)] / norms[used] / norms[used, None]
    half = scipy.linalg.solve_triangular(L, M, lower=True)
    return float(np.trace(scipy.linalg.solve_triangular(L, half.T, lower=True)))

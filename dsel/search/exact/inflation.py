"""Upper bounds on v_j, 1 over what the other columns leave of column j in any independent subset of k columns.

If all columns are independent, v_j is at most the variance inflation factor of column j on all others. Sets of nearly
dependent columns that do not overlap are found, and no independent subset has all columns of a set. If that does not
suffice, as with more columns than rows, subsets of k columns alone are looked at: all of them where they are few, or
the least eigenvalue that k columns can have. For columns scaled to norm 1, v_j is at most 1 over that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtri

from dsel._lib.low_rank import MANY, PivotedFactor, ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import perturbation, ridge
from dsel._lib.types import Bools, Floats, Ints
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import require_time
from dsel.search.exact.perspective.sparse_eigenvalues import MOST_ADDED, least_eigenvalues

#: Rows of a matrix of pairs that are in memory at a time.
_ROWS = 512
#: What the others leave of a column of a dependent set, as a share of the tolerance: less, because K is rounded.
_SURELY = 1.0 - 1e-5
#: A column has no part in a dependent set if its coefficient is below this. The rest is counted with what is left.
NO_PART = 1e-5
#: The largest share of the least singular value by which near-copies may differ.
_MOST_LOST = 0.5
#: At most this many subsets are compared, and this many at a time.
_MOST_SUBSETS, _TOGETHER = 100_000, 1 << 14
#: Of the v_j of a dependent subset, those that are at least this share of the largest one count as equal.
_AS_LARGE = 0.99
#: At most this many dependent subsets are named.
MOST_NAMED = 1000
#: Eigenvalues of three columns are looked at in at most this many columns, and if no other bound on them is as good.
_MOST_EIGENVALUES, _GOOD = 2000, 0.1


@dataclass(frozen=True)
class Inflation:
    """Upper bounds `factors` on the v_j in independent subsets, in any order.

    sets: columns of which no independent subset has all, though they are not dependent to rounding. near: whether there
    are such columns, named or not. low_rank: whether there are plainly more different columns than the rank. left: the
    most that the others leave of a column that depends on them to rounding, as a share; 0 if no column does.
    """

    factors: Floats
    sets: tuple[tuple[int, ...], ...] = ()
    near: bool = False
    low_rank: bool = False
    left: float = 0.0

    def of_columns(self, columns: Ints) -> Inflation:
        """Return the same for a part of the columns, by their indices in all."""
        return replace(self, sets=tuple(tuple(int(columns[j]) for j in members) for members in self.sets))


def inflation_of_all(C: ScaledMatrix, most: float, deadline: Deadline | None) -> Inflation:
    """Return upper bounds on v_j in independent subsets of any size, and which columns are nearly dependent.

    C: the columns' correlations. No independent subset has two columns that are copies of each other, or nearly, or all
    columns of a set in which one is nearly a combination of the others. What is left is factored in the order of the
    largest pivot. If the sets overlap, v_j has no other limit than `most`.
    """
    if C.n == 0:
        return Inflation(np.zeros(0))
    least = _SURELY / most
    factor = pivoted_cholesky(C, least, require_time(deadline))
    if factor.rank == C.n:
        found = variance_inflation(factor)
        return Inflation(np.minimum(found, most), near=bool(found.max(initial=0.0) >= most))
    if _more_than(factor.rank, C):
        return Inflation(np.full(C.n, most), near=True, low_rank=True)
    copies = _copies(C, least)
    kept = np.setdiff1d(np.arange(C.n), [copy.column for copy in copies])
    factor = pivoted_cholesky(C.part(kept), least, require_time(deadline))
    sets = _dependent_sets(factor, least)
    rounding, least_part = ridge(C.n), min((copy.ratio**2 for copy in copies), default=1.0)
    named: list[tuple[int, ...]] = [(copy.of, copy.column) for copy in copies if copy.left > rounding]
    if sets is None:
        return Inflation(np.full(C.n, most), tuple(named), near=True)
    for s in sets:
        least_part = min(least_part, float(np.square(s.coefficients).min()))
        if s.distance**2 > rounding:
            named.append(tuple(int(kept[j]) for j in (*factor.pivots[s.others], s.column)))
    distance = math.sqrt(sum(copy.left for copy in copies) + sum(s.distance**2 for s in sets))
    found = np.zeros(C.n)
    found[kept] = _enlarged(_inflation_outside_sets(factor, sets), distance)
    for copy in copies:
        found[copy.of] = max(found[copy.of], found[copy.of] / copy.ratio**2)
    near, left = bool(named) or bool(found.max() >= most), perturbation(C.n) / min(least_part, 1.0)
    return Inflation(np.minimum(found, most), tuple(named), near, left=left)


def _more_than(rank: int, C: ScaledMatrix) -> bool:
    """Return whether it is plain that a large matrix has more different columns than its rank."""
    few = 4 * rank + 64
    return C.n >= max(MANY, few) and bool(without_copies(C.part(np.arange(few))).sum() > rank)


def without_copies(C: ScaledMatrix) -> Bools:
    """Return which columns (n,) are more than rounding, and not copies of a column before them."""
    diagonal, whole = C.diagonal, C.whole()
    real = diagonal > ridge(C.n)  # by rounding, any column may be a copy of one that included columns leave nothing of
    copies = np.outer(diagonal, diagonal) - np.square(whole) <= ridge(C.n) * np.outer(diagonal, diagonal)
    return np.asarray(real & ~np.tril(copies & real, -1).any(axis=1))


@dataclass(frozen=True)
class _Copy:
    """A column that is `ratio` times another one, but for the share `left` of its square."""

    column: int
    of: int
    ratio: float
    left: float


def _copies(C: ScaledMatrix, least: float) -> list[_Copy]:
    """Return the columns that are nearly copies of one before them, and of all that are copies of that. O(n^2).

    Nearly: they leave at most `least` of each other.
    """
    diagonal, whole = C.diagonal, C.whole()
    squares = np.square(whole)
    left = np.maximum(diagonal - squares / diagonal[:, None], 0.0)  # of column j given column i
    near = np.triu(np.maximum(left, left.T) <= least, 1)
    copies: list[_Copy] = []
    taken = np.zeros(C.n, bool)
    for i in np.flatnonzero(near.any(axis=1)):
        if taken[i]:
            continue
        members: list[int] = []
        for j in np.flatnonzero(near[i] & ~taken):
            if near[members, j].all():
                members.append(int(j))
        taken[members] = True
        copies += [_Copy(j, int(i), float(whole[i, j] / diagonal[i]), float(left[i, j])) for j in members]
    return copies


@dataclass(frozen=True)
class _DependentSet:
    """A column that is nearly a combination of others, which are given by their places among the pivots.

    left: the share of its square that all pivots leave. distance: its distance from the combination.
    """

    column: int
    others: Ints
    coefficients: Floats
    left: float
    distance: float


def _dependent_sets(factor: PivotedFactor, least: float) -> list[_DependentSet] | None:
    """Return the columns that were not eliminated, with those they depend on; None if the sets overlap.

    No independent subset has all columns of a set, because they leave at most `least` of the column.
    """
    others = np.setdiff1d(np.arange(factor.W.shape[1]), factor.pivots)
    coefficients = scipy.linalg.solve_triangular(factor.triangle.T, factor.W[:, others])
    real = np.abs(coefficients) > NO_PART
    if (real.sum(axis=1) > 1).any():
        return None
    sets = []
    for place, column in enumerate(others):
        c, used = coefficients[:, place], np.flatnonzero(real[:, place])
        left = max(float(factor.left[column]), 0.0)
        distance = math.sqrt(left) + float(np.abs(c[~real[:, place]]).sum())
        if not used.size or distance**2 > least:
            return None
        sets.append(_DependentSet(int(column), used, c[used], left, distance))
    return sets


def variance_inflation(factor: PivotedFactor) -> Floats:
    """Return the variance inflation factors (r,) of a largest set of independent columns."""
    return np.asarray(np.square(_inverse(factor.triangle)).sum(axis=0))


def _inverse(triangle: Floats) -> Floats:
    """Return the inverse of a lower triangle. LAPACK prints a message about one without rows."""
    return np.asarray(dtrtri(triangle, lower=1)[0]) if triangle.size else triangle


def _inflation_outside_sets(factor: PivotedFactor, sets: list[_DependentSet]) -> Floats:
    """Return the largest v_j (n,) in subsets that lack a column of each set, as if nothing were left of the sets.

    The sets, such as the categories of a variable, do not overlap. If the column q of a set takes the place of column
    i, the dual vector g_j of a column of the set with coefficient c_j becomes g_j - (c_j / c_i) g_i, and that of q is
    g_i / c_i. Other dual vectors stay. v_j is the squared norm of g_j.
    """
    inverse = _inverse(factor.triangle)
    found = np.empty(factor.W.shape[1])
    found[factor.pivots] = np.square(inverse).sum(axis=0)
    for dependent in sets:
        used, c = dependent.others, dependent.coefficients
        G = inverse[:, used].T @ inverse[:, used]
        norms = np.diag(G)
        ratios = c[:, None] / c  # of c_j to c_i
        changed = norms[:, None] - 2.0 * ratios * G + np.square(ratios) * norms
        np.fill_diagonal(changed, norms)
        found[factor.pivots[used]] = changed.max(axis=1)
        found[dependent.column] = (norms / np.square(c)).max()
    return found


def _enlarged(inflation: Floats, distance: float) -> Floats:
    """Return upper bounds on v_j for columns that are not those of `inflation`, but together within a distance of them.

    Let s be the least singular value of the columns, s^2 >= 1 over the sum of v_j. Coefficients that leave d of a
    column have a norm of at most d / (s - distance). With the other columns they leave at most d s / (s - distance).
    """
    lost = distance * math.sqrt(float(inflation.sum()))
    return inflation / (1.0 - lost) ** 2 if lost < _MOST_LOST else np.full(inflation.size, np.inf)


def inflation_of_pairs(
    C: ScaledMatrix, k: int, most: float, deadline: Deadline | None
) -> Inflation:  # fmt: skip
    """Return the largest v_j in independent subsets of one or two columns, and the other pairs that are no copies."""
    if C.n == 0:
        return Inflation(np.zeros(0))
    diagonal, least = C.diagonal, 1.0 / most
    if k == 1:
        return Inflation(np.asarray(1.0 / diagonal))
    smallest, near, exact = diagonal.copy(), [], 0.0
    for start in range(0, C.n, _ROWS):
        if deadline is not None:
            deadline.require()
        rows = np.arange(start, min(start + _ROWS, C.n))
        squares = np.square(C.K[rows] / C.scale / C.scale[rows, None])
        squares[np.arange(rows.size), rows] = 0.0
        left = diagonal[rows, None] - squares / diagonal  # of column i given column j
        dependent = (left <= least) | (diagonal - squares / diagonal[rows, None] <= least)
        exact = max(exact, float((diagonal[rows, None] / diagonal)[dependent].max(initial=0.0)))
        pairs = np.argwhere(np.triu(dependent & (left > ridge(C.n) * diagonal[rows, None]), start + 1))
        near += [(int(rows[i]), int(j)) for i, j in pairs]
        smallest[rows] = np.where(dependent, np.inf, left).min(axis=1)
    factors = np.asarray(1.0 / np.minimum(smallest, diagonal))
    return Inflation(factors, tuple(near), bool(near), left=perturbation(C.n) * exact)


def inflation_of_few(C: ScaledMatrix, k: int, most: float, deadline: Deadline | None) -> Inflation | None:
    """Return upper bounds on v_j in independent subsets of k columns alone, None if they cannot be told.

    All subsets are compared if they are few. If not, the least eigenvalue that k columns can have bounds them.
    """
    k = min(k, C.n)
    if k and sum(math.comb(C.n, size) for size in range(1, k + 1)) <= _MOST_SUBSETS:
        return _inflation_of_subsets(C, k, most, deadline)
    found = 1.0 / (max(_least_eigenvalue(C, k, deadline), 1.0 / most) * C.diagonal)
    return Inflation(found) if found.max() < _SURELY * most else None


def _least_eigenvalue(C: ScaledMatrix, k: int, deadline: Deadline | None) -> float:
    """Return what no eigenvalue of k columns of norm 1 is below, by Gershgorin and, for three, by their pairs. O(n^2).

    It may be negative.
    """
    norms, least = C.scale * np.sqrt(C.diagonal), 1.0
    for start in range(0, C.n, _ROWS):
        if deadline is not None:
            deadline.require()
        rows = np.arange(start, min(start + _ROWS, C.n))
        sizes = np.abs(C.K[rows] / norms / norms[rows, None])
        sizes[np.arange(rows.size), rows] = 0.0
        largest = np.partition(sizes, C.n - k, axis=1)[:, C.n - k + 1 :]
        least = min(least, 1.0 - float(largest.sum(axis=1).max()))
        if least <= 0.0:
            break
    if least < _GOOD and k <= MOST_ADDED and C.n <= _MOST_EIGENVALUES:
        K = C.K / norms / norms[:, None]
        np.fill_diagonal(K, 1.0)
        least = max(least, float(least_eigenvalues(K)[k]))
    return least - ridge(C.n) / float(C.diagonal.min())


def _inflation_of_subsets(C: ScaledMatrix, k: int, most: float, deadline: Deadline | None) -> Inflation | None:
    """Return the largest v_j in independent subsets of k columns, and the smallest dependent ones; None if too many.

    A subset whose least tolerance is within rounding of the limit counts as both.
    """
    factors, dependent = _compared(C, k, most, deadline)
    if not dependent:  # then no smaller one is
        return Inflation(factors)
    rounding, left = ridge(C.n), 0.0
    named: list[tuple[int, ...]] = []
    smaller: Mapping[tuple[int, ...], Floats] = {}
    for size in range(1, k + 1):
        own, dependent = _compared(C, size, most, deadline)
        factors = np.maximum(factors, own)
        for members, v in dependent.items():
            if any((*members[:i], *members[i + 1 :]) in smaller for i in range(size)):
                continue
            if np.abs(v).max() * 2.0 * (size + 1) * rounding >= 1.0:
                left = max(left, 2.0 * rounding * float(np.abs(v).max() / np.abs(v).min()))
                continue
            last = int(np.flatnonzero(v >= _AS_LARGE * v.max())[-1])
            named.append((*members[:last], *members[last + 1 :], members[last]))
        if len(named) > MOST_NAMED:
            return None
        smaller = dependent
    return Inflation(factors, tuple(named), bool(named), left=left)


def _compared(
    C: ScaledMatrix, size: int, most: float, deadline: Deadline | None
) -> tuple[Floats, dict[tuple[int, ...], Floats]]:
    """Return the largest v_j (n,) in independent subsets of a size, and all v_j of each dependent one."""
    whole, factors = C.whole(), np.zeros(C.n)
    dependent: dict[tuple[int, ...], Floats] = {}
    whole[np.diag_indices_from(whole)] += ridge(C.n)  # so that no pivot is 0
    every = combinations(range(C.n), size)
    while together := tuple(islice(every, _TOGETHER)):
        if deadline is not None:
            deadline.require()
        S = np.asarray(together, np.int64)
        v = np.einsum("tss->ts", np.linalg.inv(whole[S[:, :, None], S[:, None, :]]))
        worst = np.where(v.min(axis=1) > 0.0, v.max(axis=1), np.inf)  # a negative one is more than rounding
        usable = worst <= most / _SURELY
        np.maximum.at(factors, S[usable], v[usable])
        dependent.update((together[i], v[i]) for i in np.flatnonzero(worst >= most * _SURELY))
    return np.minimum(factors, most), dependent

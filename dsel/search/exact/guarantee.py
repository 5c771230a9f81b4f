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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtri

from dsel._lib.low_rank import MANY, PivotedFactor, ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import MARGIN, REAL, perturbation, ridge
from dsel._lib.types import Bools, Floats, Ints
from dsel.objective.centering import CenteringError
from dsel.objective.few_targets import few_targets
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import factored, penalized, require_time
from dsel.search.exact.certificate import Certificate

#: With more columns, v_j counts as its limit: the decomposition would take minutes.
_MOST_COLUMNS = 10_000
#: An error of a proof below this share of ||Y||^2 needs no note.
_WORTH_A_NOTE = 1e-7
#: Rows of a matrix of pairs that are in memory at a time.
_ROWS = 512
#: What the others leave of a column of a dependent set, as a share of the tolerance: less, because K is rounded.
_SURELY = 1.0 - 1e-5
#: A column has no part in a dependent set if its coefficient is below this. The rest is counted with what is left.
_NO_PART = 1e-5
#: The largest share of the least singular value by which near-copies may differ.
_MOST_LOST = 0.5
#: All subsets of at most this many columns are compared.
_PAIRS = 2


@dataclass(frozen=True)
class Guarantee:
    """The limits of a proof about subsets of at most k columns, as shares of ||Y||^2.

    error: no independent subset has an f below the bound by more than this. explained_by_all: what all columns explain,
    if some subsets are dependent by the tolerance but not to rounding, so that they are never chosen; 0 if none are.
    by_dependent: how much more dependent subsets explain at most, if that is known. near_copies: sets of columns (local
    indices) of which no independent subset has all, though they are not dependent to rounding: the last one, and the
    one or more that it is nearly a combination of. If they are the included ones, it stands alone.
    """

    error: float
    explained_by_all: float = 0.0
    by_dependent: float = 0.0
    near_copies: tuple[tuple[int, ...], ...] = ()

    def hidden(self, value: float, objective: Objective) -> float:
        """Return by how much of ||Y||^2 a dependent subset may be better than f = `value`; 0 if there are none."""
        shares = [self.by_dependent] if self.by_dependent else []
        if self.explained_by_all:
            least = max(objective.c - self.explained_by_all * objective.total, 0.0)
            shares.append((value - least) / objective.total)
        share = min((*shares, value / objective.total)) if shares else 0.0
        return share if share > 2.0 * MARGIN else 0.0

    def lowered(self, bound: float, total: float) -> float:
        """Return a bound on f less `error`, at least 0. One that is not a number, or infinite, proves nothing."""
        found = bound - self.error * total
        return max(found, 0.0) if found < float("inf") else 0.0

    def certificate(
        self, objective: ItemObjective, k: int, S: Sequence[int], value: float, bound: float, **fields: Any
    ) -> Certificate:  # fmt: skip
        """Return what a bound on f of all subsets of at most k columns or groups proves about one of them, S.

        value: f(S). bound: but for `error`. fields: others of the certificate.
        """
        columns = objective.columns_of
        return Certificate(
            objective.included_size + k, float(value), float(self.lowered(bound, objective.total)), objective.total,
            tuple(objective.in_data(S)), rounding_error=self.error, dependent_gap=self.hidden(value, columns),
            near_copies=self.columns(columns), **fields,
        )  # fmt: skip

    def columns(self, objective: Objective) -> tuple[tuple[int, ...], ...]:
        """Return `near_copies` as columns of the data, with the included ones where a column depends on them."""
        named = ([int(objective.columns[j]) for j in members] for members in self.near_copies)
        return tuple((*objective.included, *columns) if len(columns) == 1 else tuple(columns) for columns in named)


def limit_notes(error: float) -> Iterator[str]:
    """Yield a note for users if rounding in a proof matters. error: see `Guarantee`."""
    if error > _WORTH_A_NOTE:
        yield (
            "columns may be nearly dependent, or have means much larger than their deviations: rounding in the proof "
            f"is worth up to {error:.0e} of ||Y||^2, for subsets with large coefficients of opposite signs"
        )


class Limits:
    """The limits of proofs about subsets of one or more sizes. What does not depend on the size is computed once."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._inflation: Inflation | None = None
        self._explained: tuple[float, Floats] | None = None

    def guarantee(self, k: int, steps: int | None = None, deadline: Deadline | None = None) -> Guarantee:
        """Return the limits for subsets of at most k columns. O(n^3), or O(n^2 rank) if the columns are dependent.

        steps: how many columns the bounds eliminate; by default all. Raises OutOfTime if this would end after the
        deadline.
        """
        objective, n = self._objective, self._objective.n
        if k == 0:  # the included columns alone
            return Guarantee(min(self._rounding(0.0, np.empty(0), 0), 1.0))
        most = 1.0 / objective.tolerance
        share = perturbation(n if steps is None else min(steps, n))
        by_penalty = float(objective.scale.max(initial=0.0)) / objective.lam if objective.lam > 0.0 else np.inf
        if by_penalty < most:
            error = self._rounding(share, np.full(k, by_penalty), k)
            if error <= _WORTH_A_NOTE:
                return Guarantee(error)  # a penalty bounds the v_j well enough
        found = Inflation(np.full(n, most))
        if self._knows_columns:
            found = self._dependence(k, deadline)
        error = self._rounding(share, found.factors, k)
        explained = self._explained_by_all(k, deadline) if found.near or self._depends_on_included else 0.0
        return Guarantee(min(error, 1.0), explained, near_copies=found.sets)

    def within(self, k: int, squares: float, rounding: float) -> Guarantee:
        """Return the limits for k columns whose squared coefficients, for columns of norm 1, sum to at most `squares`.

        rounding: by which share of the norms errors and bounds may differ in each product of two columns.

        Coefficients b of a subset are also at most sqrt(c / (4 lam)) for the penalty lam. Those of included columns
        follow from what is left of Y, and from their independence. With a penalty above the tolerance no subset is
        dependent. Without one, the search gives up columns of a dependent subset. If the others leave the share t of
        their squares, they explain at most (sum of their |b_j|)^2 t <= k squares t.
        """
        objective = self._objective
        centering, included, sizes = objective.centering, len(objective.included), []
        own = k * squares / objective.total
        if squares:
            size = (k * squares / objective.total) ** 0.5
            sizes.append(size + included * (1.0 + size) / objective.tolerance**0.5)
        if objective.lam > 0.0:
            sizes.append(0.5 * ((k + included) * centering.largest / objective.lam) ** 0.5)
            own = min(own, 0.25 * k * float(objective.scale.max(initial=0.0)) / objective.lam)
        error = min(centering.share(min(sizes)) + rounding * own, 1.0)
        if objective.lam >= objective.tolerance * float(objective.scale.max(initial=0.0)):
            return Guarantee(error)
        share = k * squares / objective.total
        if not self._knows_columns:
            return Guarantee(error, by_dependent=share * objective.tolerance)
        found = self._dependence(k)
        lost = share * max(found.left, perturbation(objective.n))
        if found.near or lost > _WORTH_A_NOTE:
            explained = self._explained_by_all(k, None) if found.sets else 0.0
            return Guarantee(error, explained, share * objective.tolerance, found.sets)
        return Guarantee(max(error, lost))

    def _rounding(self, share: float, factors: Floats, k: int) -> float:
        """Return what rounding and ridge are worth for k columns with at most these v_j, as a share of ||Y||^2."""
        largest, objective = np.sort(factors)[-k:], self._objective
        coefficients = min(self._coefficients(float(np.sqrt(largest).sum())), self._coefficients_by_penalty(k))
        return share * float(largest.sum()) * objective.c / objective.total + self._centering.share(coefficients)

    @property
    def _knows_columns(self) -> bool:
        """Whether the Gram matrix shows which columns are dependent."""
        return bool(self._objective.has_gram and self._objective.n <= _MOST_COLUMNS)

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

    def _dependence(self, k: int, deadline: Deadline | None = None) -> Inflation:
        """Return upper bounds on v_j in independent subsets of k columns, and what depends on the included ones."""
        found, given_up = self._factors(k, 1.0 / self._objective.tolerance, deadline), _given_up(self._objective)
        near = found.near or bool(given_up) or self._depends_on_included
        return replace(found, sets=(*found.sets, *given_up), near=near)

    def _factors(self, k: int, most: float, deadline: Deadline | None) -> Inflation:
        """Return upper bounds on v_j in independent subsets of k columns; see `_inflation`."""
        kept = np.flatnonzero(_may_be_chosen(self._objective))
        if k <= _PAIRS:
            return _inflation_of_pairs(_correlations(self._objective), k, most, deadline).of_columns(kept)
        if self._inflation is None:
            self._inflation = _inflation(_correlations(self._objective), most, deadline).of_columns(kept)
        return self._inflation

    def _explained_by_all(self, k: int, deadline: Deadline | None) -> float:
        """Return an upper bound on the share of ||Y||^2 that k columns explain, dependent ones too."""
        if self._explained is None:
            low_rank = self._inflation is not None and self._inflation.low_rank
            self._explained = _explained_share(self._objective, low_rank, deadline)
        share, factors = self._explained
        return min(max(share + self._rounding(perturbation(self._objective.n), factors, k), 0.0), 1.0)


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


def _may_be_chosen(objective: Objective) -> Bools:
    """Return which columns (n,) do not depend on the included ones."""
    return np.asarray(objective.diagonal + objective.lam > objective.floor)


def _given_up(objective: Objective) -> tuple[tuple[int, ...], ...]:
    """Return the columns that depend on the included ones, but not to rounding."""
    rounding = ridge(objective.n) * objective.scale
    near = ~_may_be_chosen(objective) & (objective.diagonal > rounding) & bool(objective.included)
    return tuple((int(j),) for j in np.flatnonzero(near))


def _correlations(objective: Objective) -> ScaledMatrix:
    """Return K + lam I of the columns that can be chosen, scaled to a diagonal of at most 1.

    The scale is that of the columns before the included ones were removed, by which dependence is judged.
    """
    kept = _may_be_chosen(objective)
    scale = objective.scale[kept]
    K = objective.K if kept.all() else objective.K[np.ix_(kept, kept)]
    return ScaledMatrix.of(K, np.sqrt(scale), objective.lam / scale)


def _inflation(C: ScaledMatrix, most: float, deadline: Deadline | None) -> Inflation:
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
        found = _variance_inflation(factor)
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
        if s.left > rounding:
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
    return C.n >= max(MANY, few) and bool(_without_copies(C.part(np.arange(few))).sum() > rank)


def _without_copies(C: ScaledMatrix) -> Bools:
    """Return which columns (n,) are not copies of a column before them."""
    diagonal, whole = C.diagonal, C.whole()
    copies = np.outer(diagonal, diagonal) - np.square(whole) <= ridge(C.n) * np.outer(diagonal, diagonal)
    return np.asarray(~np.tril(copies, -1).any(axis=1))


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
    real = np.abs(coefficients) > _NO_PART
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


def _variance_inflation(factor: PivotedFactor) -> Floats:
    """Return the variance inflation factors (r,) of a largest set of independent columns."""
    inverse, _ = dtrtri(factor.triangle, lower=1)
    return np.asarray(np.square(inverse).sum(axis=0))


def _inflation_outside_sets(factor: PivotedFactor, sets: list[_DependentSet]) -> Floats:
    """Return the largest v_j (n,) in subsets that lack a column of each set, as if nothing were left of the sets.

    The sets, such as the categories of a variable, do not overlap. If the column q of a set takes the place of column
    i, the dual vector g_j of a column of the set with coefficient c_j becomes g_j - (c_j / c_i) g_i, and that of q is
    g_i / c_i. Other dual vectors stay. v_j is the squared norm of g_j.
    """
    inverse, _ = dtrtri(factor.triangle, lower=1)
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


def _inflation_of_pairs(
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
        return few_targets(objective, None if deadline is None else deadline.require)
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

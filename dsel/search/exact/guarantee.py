"""What a proof in float64 guarantees: how far rounding may hide a subset, and what the dependence tolerance excludes.

Bounds are those of a matrix that differs from K by a ridge and by rounding, together at most r D, with D the diagonal
of K (`dsel._lib.tolerances.perturbation`). For coefficients b of a subset T, the ridge changes f(T) by at most r b'Db.
The other columns of T leave the share 1 / v_j of the square of column j, so that

    r b'Db <= r ||Y||^2 sum over T of v_j,

with v_j <= 1e7 for independent subsets, and other bounds of `dsel.search.exact.inflation`. With a penalty, v_j is at
most p_j, the square of column j over lam.

Relaxations with a penalty divide by 1 / p_j, and their coefficients b may be of more than k columns. b'Db is at most
||Y||^2 times the sum of all inflation factors, or the largest p_j. Rounding moves what b leaves of the products of
columns and Y by r sqrt(b'Db) / 2 at most. The sum of their squares times p_j over T, at most ||Y||^2, changes by

    r ||Y|| sqrt(b'Db) sqrt(sum over T of p_j),

which is more than the sum of v_j is worth, and is counted in its place.

The rounding of means and of the removal of included columns (`dsel.objective.centering`) changes f(T) by an amount that
depends on the sum of |b_j| ||x_j||, included columns counted. Over T that is at most what the included columns leave of
||Y|| times the sum of sqrt(v_j), and with a penalty at most ||Y|| sqrt(k ||x||^2 / (4 lam)) for the largest column x.

Dependent subsets explain at most what all columns explain, but for rounding with their own v_j. If all columns
are independent to rounding, these are at most the inflation factors. If not, the v_j of a subset whose columns are real
(`dsel._lib.tolerances.REAL`) have a limit.

Of groups, only whole ones are chosen. If subsets of as many columns are dependent, and the sets of groups are few, the
v_j are those of their bases (`dsel.search.exact.unions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.low_rank import PivotedFactor, ScaledMatrix, pivoted_cholesky
from dsel._lib.tolerances import MARGIN, REAL, perturbation, ridge
from dsel._lib.types import Bools, Floats
from dsel.objective.centering import CenteringError
from dsel.objective.few_targets import few_targets
from dsel.objective.groups import GroupedObjective
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.bounds import factored, penalized, require_time
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.inflation import (
    Inflation,
    inflation_of_all,
    inflation_of_few,
    inflation_of_pairs,
    variance_inflation,
    without_copies,
)
from dsel.search.exact.unions import Unions

#: With more columns, v_j counts as its limit: the decomposition would take minutes.
_MOST_COLUMNS = 10_000
#: An error of a proof below this share of ||Y||^2 needs no note.
_WORTH_A_NOTE = 1e-7
#: The inflation factors of at most this many columns take less than a second.
_FEW_COLUMNS = 2000
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


def limit_notes(error: float, undecided: bool) -> Iterator[str]:
    """Yield a note for users if rounding in a proof matters.

    error: see `Guarantee`. undecided: whether subsets may be dependent that cannot be told.
    """
    if error > _WORTH_A_NOTE:
        why = "columns may be nearly dependent, or have means much larger than their deviations"
        if undecided:
            why = "nearly dependent subsets cannot be excluded, with more columns than rows or other dependences"
        yield (
            f"{why}: rounding in the proof is worth up to {error:.0e} of ||Y||^2, for subsets with large coefficients "
            "of opposite signs"
        )


class Limits:
    """The limits of proofs about subsets of one or more sizes. What does not depend on the size is computed once.

    items: the objective over columns or groups.
    """

    def __init__(self, items: ItemObjective) -> None:
        self._items, self._objective = items, items.columns_of
        self._unions: Unions | None = None
        self._inflation: Inflation | None = None
        self._explained: tuple[float, Floats] | None = None

    def guarantee(self, k: int, steps: int | None = None, deadline: Deadline | None = None) -> Guarantee:
        """Return the limits for at most k columns or groups. O(n^3), or O(n^2 rank) if the columns are dependent.

        steps: how many columns the bounds eliminate; by default all. Raises OutOfTime if this would end after the
        deadline.
        """
        objective, n = self._objective, self._objective.n
        if k == 0:  # the included columns alone
            return Guarantee(min(self._rounding(0.0, np.empty(0), 0), 1.0))
        groups, k, most = k, self._items.most_columns(k), 1.0 / objective.tolerance
        share = perturbation(n if steps is None else min(steps, n))
        by_penalty = objective.scale / objective.lam if objective.lam > 0.0 else np.full(n, np.inf)
        if by_penalty.max(initial=0.0) < most:  # no subset is dependent
            return Guarantee(min(self._with_penalty(share, by_penalty, k, deadline), 1.0))
        found = Inflation(np.full(n, most))
        if self._knows_columns:
            found = self._dependence(k, deadline, groups)
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

    def _rounding(self, share: float, factors: Floats, k: int, squares: float | None = None) -> float:
        """Return what rounding and ridge are worth for k columns with at most these v_j, as a share of ||Y||^2.

        squares: what `share` is multiplied by, by default the sum of v_j.
        """
        largest, objective = np.sort(factors)[-k:], self._objective
        coefficients = min(self._coefficients(float(np.sqrt(largest).sum())), self._coefficients_by_penalty(k))
        squares = float(largest.sum()) if squares is None else squares
        return share * squares * objective.c / objective.total + self._centering.share(coefficients)

    def _with_penalty(self, share: float, by_penalty: Floats, k: int, deadline: Deadline | None) -> float:
        """Return what rounding and ridge are worth with a penalty, as a share of ||Y||^2.

        by_penalty (n,): 1 over the penalty's share of each column's square, which no v_j exceeds. The inflation factors
        are looked at if that does not suffice.
        """
        error = self._rounding(share, by_penalty, k)
        enough = MARGIN if self._objective.n <= _FEW_COLUMNS else _WORTH_A_NOTE
        if error <= enough or not self._knows_columns:
            return error
        try:
            found = self._factors_of_all(deadline)
        except OutOfTime:
            return error
        if found.near or found.left:
            return error
        factors, most = np.minimum(found.factors, by_penalty), float(np.sort(by_penalty)[-k:].sum())
        return min(error, self._rounding(share, factors, k, math.sqrt(min(float(factors.sum()), most) * most)))

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

    def _dependence(self, k: int, deadline: Deadline | None = None, groups: int = 0) -> Inflation:
        """Return upper bounds on v_j in independent subsets of k columns, and what depends on the included ones.

        groups: how many groups have these columns, where subsets are whole groups.
        """
        found, given_up = self._factors(k, 1.0 / self._objective.tolerance, deadline), _given_up(self._objective)
        if groups and (found.near or self._rounding(perturbation(self._objective.n), found.factors, k) > MARGIN):
            found = self._of_unions(groups, deadline) or found
        near = found.near or bool(given_up) or self._depends_on_included
        return replace(found, sets=(*found.sets, *given_up), near=near)

    def _of_unions(self, k: int, deadline: Deadline | None) -> Inflation | None:
        """Return upper bounds on v_j in sets of at most k groups; None for columns, and if there are too many sets."""
        if not isinstance(self._items, GroupedObjective):
            return None
        if self._unions is None:
            kept = np.flatnonzero(_may_be_chosen(self._objective))
            self._unions = Unions(self._items, _correlations(self._objective), kept)
        try:
            return self._unions.inflation(k, deadline)
        except (OutOfTime, np.linalg.LinAlgError):
            return None

    def _factors(self, k: int, most: float, deadline: Deadline | None) -> Inflation:
        """Return upper bounds on v_j in independent subsets of k columns; see `dsel.search.exact.inflation`."""
        kept = np.flatnonzero(_may_be_chosen(self._objective))
        if k <= _PAIRS:
            return inflation_of_pairs(_correlations(self._objective), k, most, deadline).of_columns(kept)
        found = self._factors_of_all(deadline)
        if not found.near:
            return found
        of_few = inflation_of_few(_correlations(self._objective), k, most, deadline)
        return found if of_few is None else of_few.of_columns(kept)

    def _factors_of_all(self, deadline: Deadline | None) -> Inflation:
        """Return upper bounds on v_j in independent subsets of any size."""
        if self._inflation is None:
            kept, most = np.flatnonzero(_may_be_chosen(self._objective)), 1.0 / self._objective.tolerance
            self._inflation = inflation_of_all(_correlations(self._objective), most, deadline).of_columns(kept)
        return self._inflation

    def _explained_by_all(self, k: int, deadline: Deadline | None) -> float:
        """Return an upper bound on the share of ||Y||^2 that k columns explain, dependent ones too."""
        if self._explained is None:
            low_rank = self._inflation is not None and self._inflation.low_rank
            self._explained = _explained_share(self._objective, low_rank, deadline)
        share, factors = self._explained
        return min(max(share + self._rounding(perturbation(self._objective.n), factors, k), 0.0), 1.0)


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
            first = np.flatnonzero(without_copies(C))
            objective, C, norms = objective.restrict(first), C.part(first), norms[first]
            factor = pivoted_cholesky(C, ridge(C.n), require_time(deadline))
        if factor.rank == C.n:
            return _explained_by(factor, objective, norms) / objective.total, variance_inflation(factor)
    B = _targets(objective, deadline)
    least = ridge(C.n)
    _, Q, rest = factored(penalized(objective), B, least, 4.0 * least, deadline, norms)
    explained = float(np.square(Q).sum() + np.square(rest).sum() / least)
    most = 1.0 / (REAL * perturbation(C.n))
    known = not low_rank and C.diagonal.min() * most > 1.0
    factors = inflation_of_all(C, most, deadline).factors if known else np.full(C.n, most)
    return explained / objective.total, factors


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

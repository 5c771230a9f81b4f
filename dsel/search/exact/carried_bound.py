"""A proof that holds on other data without a search, because it had room to spare.

A proof of the best few subsets of k columns says that every other one has an f of at least `above`. On other data with
K', B' and c', for each mu >= 0 with K' - mu K positive definite,

    f'(S) >= mu above + c' - mu c - tr (B' - mu B)' (K' - mu K)^-1 (B' - mu B)

for these others, because f' at any coefficients of S is mu times the old error at the same coefficients, which is at
least mu above, and a rest that is least over all columns. K and K' include the penalty. If mu = 1, the last terms are
the error of added rows by all columns. It is not used that rows were added: the bound follows from both matrices, and
where the data have changed much it proves nothing. By the S-lemma, no better bound follows from them and `above` alone.

If the best of the few subsets is not above this bound on the new data, it is the best of all.

Groups may have columns that depend on others of the same group, such as the last value of a category. They are left out
of the matrices: f of groups is that of the columns without them. On the new data the same columns must depend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.column_objective import independent_columns
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.exact.bounds import penalized
from dsel.search.exact.certificate import GROUPS, Certificate
from dsel.search.exact.exact_search import CommonSetup

Members = tuple[int, ...]

#: How certificates name it.
CARRIED = "the bound of an earlier proof, carried over"
#: All subsets of k columns are independent if the least eigenvalue of the correlations is above this.
_INDEPENDENT = 100.0 * DEPENDENCE_TOLERANCE
#: 1 - mu times the largest eigenvalue of K by K' stays above this, so that rounding does not matter.
_ROOM = 1e-6


def can_carry(objective: ItemObjective) -> bool:
    """Return whether a bound for this objective may be carried over: no subset of its columns is dependent.

    Columns that depend on others of their own group do not count. Nor may a subset be dependent with the included
    columns, which dependence is judged by.
    """
    of_all = objective.columns_of
    if not of_all.has_gram or of_all.cross is None:
        return False
    columns = _basis(objective)
    root = np.sqrt(of_all.scale[columns])
    if not root.min(initial=1.0) > 0.0:
        return False
    K, _ = _moments(of_all, columns)
    with one_blas_thread():
        least = scipy.linalg.eigh(K / root / root[:, None], eigvals_only=True, subset_by_index=[0, 0])[0]
    return bool(least > _INDEPENDENT)


def _basis(objective: ItemObjective) -> Ints:
    """Return the columns, or those of the groups without the ones that depend on others of their group."""
    of_all, groups = objective.columns_of, objective.groups
    if groups is None:
        return np.arange(of_all.n)
    return np.sort(np.concatenate([independent_columns(of_all, group.tolist()) for group in groups]))


def _moments(objective: Objective, columns: Ints) -> tuple[Floats, Floats]:
    """Return K with the penalty, and B, of some columns."""
    assert objective.cross is not None
    return penalized(objective)[np.ix_(columns, columns)], np.asarray(objective.cross[columns])


@dataclass(frozen=True, eq=False)
class CarriedBound:
    """What a proof says on the data it was made from.

    K (p, p) with the penalty, B (p, N), c: of these data. listed: subsets of k columns or groups, the best ones. above:
    every other subset of at most k, but for subsets of these, has at least this f. columns (p,): local numbers of the
    columns, of all or of independent ones of groups.
    """

    K: Floats
    B: Floats
    c: float
    listed: Sequence[Members]
    above: float
    columns: Ints

    @classmethod
    def of(cls, objective: ItemObjective, listed: Sequence[Members], above: float) -> CarriedBound:
        """Return the bound that a proof for an objective in memory has found."""
        columns = _basis(objective)
        K, B = _moments(objective.columns_of, columns)
        return cls(K, B, objective.c, listed, above, columns)

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Any]) -> CarriedBound:
        """Return what `as_arrays` wrote."""
        listed = [tuple(sorted(row)) for row in saved["listed"].tolist()]
        columns = saved.get("columns", np.arange(len(saved["gram"])))  # earlier versions have all
        return cls(saved["gram"], saved["cross"], float(saved["c"]), listed, float(saved["above"]), columns)

    def as_arrays(self) -> dict[str, Any]:
        """Return it as arrays."""
        return {
            "gram": self.K, "cross": self.B, "c": np.float64(self.c), "above": np.float64(self.above),
            "listed": np.asarray(self.listed, np.int32), "columns": self.columns,
        }  # fmt: skip

    def bound(self, objective: ItemObjective) -> float:
        """Return a lower bound on f of all other subsets on other data; -infinity if there is none. O(n^3)."""
        if not can_carry(objective) or not np.array_equal(_basis(objective), self.columns):
            return -np.inf
        K, B = _moments(objective.columns_of, self.columns)
        if B.shape != self.B.shape:
            return -np.inf
        with one_blas_thread():
            L = scipy.linalg.cholesky(K, lower=True)
            half = scipy.linalg.solve_triangular(L, self.K, lower=True)
            values, Q = np.linalg.eigh(scipy.linalg.solve_triangular(L, half.T, lower=True))
            new, old = (
                Q.T @ scipy.linalg.solve_triangular(L, M, lower=True) for M in (B, self.B)
            )  # fmt: skip

        def at(mu: float) -> float:
            rest = np.square(new - mu * old).sum(axis=1) / (1.0 - mu * values)
            return float(mu * (self.above - self.c) + objective.c - rest.sum())

        most = (1.0 - _ROOM) / float(values[-1])  # `at` is concave up to there
        best = scipy.optimize.minimize_scalar(lambda mu: -at(mu), bounds=(0.0, most), method="bounded").x
        return max(at(mu) for mu in (0.0, min(1.0, most), float(best), most))

    def certificate(self, setup: CommonSetup, k: int, known: Sequence[int] = ()) -> Certificate | None:
        """Return the certificate on other data that the best listed subset is the best one; None if it is not proved.

        known: the subset to certify, empty if there is none. It is the answer if it is as good.
        """
        objective, guarantee = setup.objective, setup.guarantee(k)  # of columns or groups
        values = {S: objective.value(S) for S in self.listed}
        best = min(values, key=lambda S: (values[S], S))
        value, given = values[best], tuple(sorted(known))
        before = objective.value(given) if given else float("inf")
        if not value <= self.bound(objective) - guarantee.error * objective.total:
            return None
        margin = MARGIN * objective.total
        if before <= value + margin:
            best, value = given, before
        return guarantee.certificate(
            objective, k, best, value, value - margin, nodes=0, leaves_checked=len(values),
            method=CARRIED if objective.groups is None else GROUPS, better=value < before - margin < float("inf"),
        )  # fmt: skip

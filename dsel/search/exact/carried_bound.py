"""A proof that holds on other data without a search, because it had room to spare.

A proof of the best few subsets of k columns says that every other one has an f of at least `above`. On other data with
K', B' and c', for each mu >= 0 with K' - mu K positive definite,

    f'(S) >= mu above + c' - mu c - tr (B' - mu B)' (K' - mu K)^-1 (B' - mu B)

for these others, because f' at any coefficients of S is mu times the old error at the same coefficients, which is at
least mu above, and a rest that is least over all columns. K and K' include the penalty. If mu = 1, the last terms are
the error of added rows by all columns. It is not used that rows were added: the bound follows from both matrices, and
where the data have changed much it proves nothing. By the S-lemma, no better bound follows from them and `above` alone.

If the best of the few subsets is not above this bound on the new data, it is the best of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN
from dsel._lib.types import Floats
from dsel.objective.objective_interface import Objective
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


def can_carry(objective: Objective) -> bool:
    """Return whether a bound for this objective may be carried over: no subset of its columns is dependent.

    Nor is one with the included columns, which dependence is judged by.
    """
    if not objective.has_gram or objective.cross is None or objective.groups is not None:
        return False
    root = np.sqrt(objective.scale)
    if not root.min(initial=1.0) > 0.0:
        return False
    with one_blas_thread():
        least = scipy.linalg.eigh(
            penalized(objective) / root / root[:, None], eigvals_only=True, subset_by_index=[0, 0]
        )[0]  # fmt: skip
    return bool(least > _INDEPENDENT)


@dataclass(frozen=True, eq=False)
class CarriedBound:
    """What a proof says on the data it was made from.

    K (n, n) with the penalty, B (n, N), c: of these data. listed: subsets of k columns or groups, the best ones. above:
    every other subset of at most k, but for subsets of these, has at least this f.
    """

    K: Floats
    B: Floats
    c: float
    listed: Sequence[Members]
    above: float

    @classmethod
    def of(cls, objective: Objective, listed: Sequence[Members], above: float) -> CarriedBound:
        """Return the bound that a proof for an objective in memory has found."""
        assert objective.cross is not None
        return cls(penalized(objective), objective.cross, objective.c, listed, above)

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Any]) -> CarriedBound:
        """Return what `as_arrays` wrote."""
        listed = [tuple(sorted(row)) for row in saved["listed"].tolist()]
        return cls(saved["gram"], saved["cross"], float(saved["c"]), listed, float(saved["above"]))

    def as_arrays(self) -> dict[str, Any]:
        """Return it as arrays."""
        return {
            "gram": self.K, "cross": self.B, "c": np.float64(self.c), "above": np.float64(self.above),
            "listed": np.asarray(self.listed, np.int32),
        }  # fmt: skip

    def bound(self, objective: Objective) -> float:
        """Return a lower bound on f of all other subsets on other data; -infinity if there is none. O(n^3)."""
        if objective.cross is None or objective.cross.shape != self.B.shape or not can_carry(objective):
            return -np.inf
        with one_blas_thread():
            L = scipy.linalg.cholesky(penalized(objective), lower=True)
            half = scipy.linalg.solve_triangular(L, self.K, lower=True)
            values, Q = np.linalg.eigh(scipy.linalg.solve_triangular(L, half.T, lower=True))
            new, old = (
                Q.T @ scipy.linalg.solve_triangular(L, M, lower=True) for M in (objective.cross, self.B)
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
        objective, error = setup.objective, setup.guarantee(k).error  # of columns or groups
        values = {S: objective.value(S) for S in self.listed}
        best = min(values, key=lambda S: (values[S], S))
        value, given = values[best], tuple(sorted(known))
        before = objective.value(given) if given else float("inf")
        if not value <= self.bound(objective.columns_of) - error * objective.total:
            return None
        if before <= value + MARGIN * objective.total:
            best, value = given, before
        method = CARRIED if objective.groups is None else GROUPS
        return Certificate(
            size=objective.included_size + k, value=value, total=objective.total, nodes=0,
            bound=max(value - (MARGIN + error) * objective.total, 0.0),
            indices=tuple(objective.in_data(best)), method=method, leaves_checked=len(values),
            better=value < before - MARGIN * objective.total < float("inf"), rounding_error=error,
        )  # fmt: skip

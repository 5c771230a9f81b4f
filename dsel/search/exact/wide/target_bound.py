"""A bound from the targets alone, for data whose Gram matrix does not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats
from dsel.objective.base import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.guarantee import Guarantee
from dsel.search.exact.root_bound import RootBound


class TargetBound(RootBound):
    """||Y||^2 less the k largest eigenvalues of Y'Y: no k columns of any data explain more.

    Where Y = X, they are those of X X', from the representation of the data. Included columns count in k. It has no
    nodes, needs no pass, and is 0 if there are at most k targets.
    """

    kind = "targets"
    can_log = needs_relaxation = False

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), lower: float | None = None
    ) -> None:
        super().__init__(objective, k, incumbent=incumbent, lower=lower)
        self.bound_name = "eigenvalue"

    def _bound(self) -> float:
        values, k = self._eigenvalues, self.k
        if self.objective.cross is None:
            k += len(self.objective.included)
        return float(np.sort(np.maximum(values, 0.0))[::-1][k:].sum())

    @cached_property
    def _eigenvalues(self) -> Floats:
        """Eigenvalues of what the targets leave, and if the operator is a sketch, those that it holds."""
        objective = self.objective
        T = objective.target_gram if objective.cross is not None else _operator(objective)
        if T is None:
            return np.zeros(0)
        return np.asarray(T if T.ndim == 1 else np.linalg.eigvalsh(T))

    def limit_note(self) -> str:
        """Return what gives a better bound."""
        if self.objective.cross is None:
            return ""
        return (
            "uses the targets alone: for this number of columns there is a better bound only for one target and "
            "lam > 0, or with a limit for coefficients"
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """No subset is excluded, and rounding is that of the eigenvalues."""
        return Guarantee(ridge(max(self._eigenvalues.size, 1)))


def _operator(objective: Objective) -> Floats | None:
    return objective.target_operator if isinstance(objective, OnDemandObjective) else None

"""A bound without a search, for problems whose branch and bound does not fit into memory.

A bound from the targets alone, for data whose Gram matrix does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from dsel._lib.tolerances import MARGIN, ridge
from dsel._lib.types import Floats
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.anytime import Deadline
from dsel.search.exact.certificate import consistent_bound
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.guarantee import Guarantee
from dsel.search.exact.proof_log import OpenNode
from dsel.search.exact.tree import BestFirstTree


class RootBound(BestFirstTree[Any]):
    """The combined bound of the empty selection: ||Y||^2 less the k largest eigenvalues of what all columns explain.

    It is a tree without nodes to visit. O(n^3) for n columns, in the memory of the Gram
    matrix.
    """

    kind = "root"
    can_log = needs_relaxation = True

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), lower: float | None = None,
        deadline: Deadline | None = None, setup: CommonSetup | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, "combined", deadline, setup)
        self.offer(incumbent)
        self._root = self._bound() if lower is None else lower
        self._know_guarantee()

    def _bound(self) -> float:
        return self.setup.problem(self.deadline).root(self.k)

    @property
    def done(self) -> bool:
        """Whether the best subset reaches the bound."""
        return self.best_value <= self.lower + MARGIN * self.total

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        return consistent_bound(self._root, self.best_value, self.total, self.guarantee.error)

    @property
    def proven(self) -> bool:
        """Whether the best subset reaches the bound. A bound that contradicts it is 0 and does not count."""
        return self.done

    @property
    def active(self) -> bool:
        return False

    def logged_nodes(self) -> list[OpenNode]:
        """Return the only node, which is open."""
        return [OpenNode((), range(self.objective.n), self.lower)]

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        return {**self._shared_state(), "lower": self._root}

    @classmethod
    def _restored(cls, objective: Objective, state: dict[str, Any], **given: Any) -> RootBound:
        search = cls(objective, state["k"], lower=state["lower"])
        search._restore_shared(state)
        return search


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
        if objective.cross is not None:
            T = objective.target_gram
        else:
            T = objective.target_operator if isinstance(objective, OnDemandObjective) else None
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

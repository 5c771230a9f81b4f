"""A bound without a search, for problems whose branch and bound does not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsel.objective.base import Objective
from dsel.search.exact.base import ExactSearch, check_saved, held
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.branch_and_bound import MARGIN


class RootBound(ExactSearch):
    """The combined bound of the empty selection: ||Y||^2 less the k largest eigenvalues of what all columns explain.

    It stands where a `BranchAndBound` would stand; there is nothing to go on with. O(n^3) for n columns, in the memory
    that the Gram matrix takes.
    """

    kind = "root"

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), lower: float | None = None
    ) -> None:
        super().__init__(objective, k, "combined")
        self.offer(incumbent)
        self._root = self._bound() if lower is None else lower

    def _bound(self) -> float:
        # With all columns allowed, the targets' part in their span is what they explain: both bounds are one.
        return BoundProblem.of(self.objective).bound((), range(self.objective.n), self.k, "eigenvalue")

    @property
    def iteration(self) -> int:
        """Nodes looked at: the root."""
        return 0

    @property
    def done(self) -> bool:
        """Whether the best subset happens to reach the bound."""
        return self.best_value <= self.lower + MARGIN * self.total

    @property
    def lower(self) -> float:
        """No subset of at most k columns has an f below this."""
        return held(self._root, self.best_value, self.objective.c)

    @property
    def proven(self) -> bool:
        """The same as `done`: a bound that contradicts the best subset does not count."""
        return self.done

    @property
    def open_nodes(self) -> int:
        """Nodes that would have to be saved."""
        return 0

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON would hold it."""
        return {**self._shared_state(), "lower": self._root}

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any]) -> RootBound:
        """As it was when `state` was taken."""
        check_saved(objective, state)
        search = cls(objective, state["k"], lower=state["lower"])
        search._take_shared(state)
        return search

"""A bound without a search, for problems whose branch and bound does not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsel._lib.tolerances import MARGIN
from dsel.objective.base import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.certificate import consistent_bound
from dsel.search.exact.common_setup import CommonSetup
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
    def _restored(
        cls, objective: Objective, state: dict[str, Any], memory_limit: int, log: Any, setup: CommonSetup | None
    ) -> RootBound:  # fmt: skip
        search = cls(objective, state["k"], lower=state["lower"])
        search._restore_shared(state)
        return search

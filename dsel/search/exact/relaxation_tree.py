"""What the trees of relaxations share: they are done when no open node explains more than the best subset."""

from __future__ import annotations

from dsel._lib.tolerances import MARGIN
from dsel.search.exact.base import ExactSearch
from dsel.search.exact.certificate import consistent_bound


class RelaxationTree(ExactSearch):
    """A best-first search whose nodes have a bound on what their subsets explain, c - f."""

    #: Bounds that are not finite: none, because they are checked at once.
    not_finite = 0

    @property
    def _most(self) -> float:
        """What a subset of the open nodes explains at most; -infinity without open nodes."""
        raise NotImplementedError

    @property
    def _enough(self) -> float:
        """What the best subset explains, and a margin."""
        return self.objective.c - self.best_value + MARGIN * self.total

    @property
    def done(self) -> bool:
        """Whether no open node can hold a better subset."""
        return self._most <= self._enough

    @property
    def proven(self) -> bool:
        """Whether the best subset is proved, with no contradiction."""
        return self.done and not self.contradicted

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        if self.contradicted:
            return 0.0
        if self.done:  # nodes that are better by less than the margin were left out
            return max(self.best_value - MARGIN * self.total, 0.0)
        return consistent_bound(self.objective.c - self._most, self.best_value, self.total, self.guarantee.error)

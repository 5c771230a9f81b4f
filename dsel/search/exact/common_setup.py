"""What the proofs for several sizes of one objective have in common."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dsel._lib.types import Floats
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.guarantee import Guarantee, Limits
from dsel.search.exact.perspective_tree.diagonal import diagonal_outside
from dsel.search.exact.perspective_tree.guide import Guide
from dsel.search.exact.perspective_tree.scaling import scaled_columns


class CommonSetup:
    """What searches over the subsets of an objective need for every size. Each part is computed once, when first used.

    objective: over columns or groups. guided: whether each tree of relaxations keeps a guide for that of the next
    size. guide: the last one.
    """

    def __init__(self, objective: Any, *, guided: bool = False) -> None:
        self.objective, self.guided = objective, guided
        self.guide: Guide | None = None
        self._problem: BoundProblem | None = None
        self._limits = Limits(objective.columns_of)

    def problem(self, deadline: Deadline | None = None) -> BoundProblem:
        """Return the problem of the bounds. Raises OutOfTime if it would not be there at the deadline."""
        if self._problem is None:
            self._problem = BoundProblem.of(self.objective, deadline=deadline)
        else:
            self._problem = self._problem.until(deadline)
        return self._problem

    @cached_property
    def scaled(self) -> tuple[Floats, Floats, Floats]:
        """The columns as the relaxation uses them, see `scaled_columns`."""
        return scaled_columns(self.objective)

    @cached_property
    def diagonal_outside(self) -> Floats | None:
        """The diagonal in proportion to each column's part outside the others, see `diagonal_outside`. O(n^3)."""
        return diagonal_outside(self.scaled[0])

    def guarantee(self, k: int, deadline: Deadline | None = None) -> Guarantee:
        """Return the limits of proofs about subsets of at most k columns or groups."""
        return self._limits.guarantee(self.objective.most_columns(k), deadline=deadline)

"""POSS for any criterion f(S), given as a callable ("any criterion" is part of the method: POSS paper, section 3).

The loop and its random numbers are those of the compiled engine: with f the value of a quadratic objective whose
columns are independent, the archive is the same at every iteration. What differs is where the time goes: here into
f, so every subset is evaluated at most once and all values are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsel.errors import OptionError
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset
from dsel.search.pareto.evaluation_memo import Remembered, failure, number

Criterion = Callable[[Subset], float]


class CriterionPoss(Remembered):
    """The archive and its search by ask and tell; `advance` is the loop that answers by calling the criterion.

    criterion: f of a tuple of ascending local column indices, 0 to n - 1, of which there are 1 to 2k - 1. It must give
    the same number for the same subset; +inf says that the subset is not allowed. It is called once a subset.
    isolation: "none", "min-index", or a function of such a tuple: subsets compete only where it has the same value.
    """

    def __init__(
        self, criterion: Criterion, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none"
    ) -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        self.criterion = criterion

    def propose(self) -> Subset | None:
        """Ask: the subset that the present iteration needs the value of, the same until `accept` is told.

        None where it needs none (no column flipped, o1 = +inf, or the value is known): that iteration is then over.
        """
        offspring = self._offspring()
        if offspring is not None and offspring not in self._values:
            return offspring
        if offspring is not None:
            self._put(offspring, self._values[offspring])
            self._recalled += 1
        self.iteration += 1
        return None

    def accept(self, members: Subset, value: Any) -> bool:
        """Tell: f of the subset proposed. The iteration is then over; True if the subset was archived."""
        if members != self._offspring():
            raise OptionError(f"The columns {list(members)} are not what iteration {self.iteration} proposed.")
        self._values[members] = f = number(value, members)
        archived = self._put(members, f)
        self.iteration += 1
        return archived

    def _offspring(self) -> Subset | None:
        return self._offspring_of(self._parent(self.iteration), self.iteration)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Go on to iteration `until`; True as soon as f <= target for some subset of at most k columns.

        Raises CriterionError where the criterion fails. That iteration is not counted: the next call tries it again.
        """
        while True:
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until:
                return False
            members = self.propose()
            if members is not None:
                self.accept(members, self.evaluate(members))

    def evaluate(self, members: Subset) -> float:
        """f of a subset by calling the criterion, checked to be a number."""
        try:
            value = self.criterion(members)
        except (Exception, SystemExit) as error:
            raise failure("criterion", members, error) from error
        return number(value, members)

    @classmethod
    def restore(
        cls, criterion: Criterion, state: dict[str, Any], isolation: IsolationFunction | None = None
    ) -> CriterionPoss:
        """The search as it was when `state` was taken; `isolation` where it had a function of its own."""
        chosen = cls.isolation_of(state, isolation)
        return cls(criterion, state["n"], state["k"], seed=state["seed"], isolation=chosen)._load(state)

"""POSS for a custom criterion f(S) (POSS paper, section 3).

The loop and its random numbers are those of the compiled search. For a quadratic objective with independent columns the
archive is the same at every iteration. Here the time goes into f, so each subset is evaluated once and its value kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsel.errors import OptionError
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset
from dsel.search.pareto.evaluation_memo import EvaluationMemo, failure, number

Criterion = Callable[[Subset], float]


class CriterionPoss(EvaluationMemo):
    """The search of POSS on a criterion, by ask and tell; `advance` calls the criterion itself.

    Parameters
    ----------
    criterion : callable
        f of a tuple of 1 to 2k - 1 ascending local column indices, 0 to n - 1. It must return the same number for the
        same subset, and +inf for a subset that is not allowed. It is called once per subset.
    n, k : int
        The number of columns, and the size limit.
    seed : int
        The seed.
    isolation : {"none", "min-index"} or callable
        Subsets compete only where this function of a subset has the same value.
    """

    def __init__(
        self, criterion: Criterion, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none"
    ) -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        self.criterion = criterion

    def propose(self) -> Subset | None:
        """Return the subset that the present iteration needs the value of, until `accept` gets it.

        Return None if it needs none (no column flipped, o1 = +inf, or a known value). The iteration is then over.
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
        """Accept f of the proposed subset, end the iteration, and return whether the subset was archived."""
        if members != self._offspring():
            raise OptionError(f"The columns {list(members)} are not what iteration {self.iteration} proposed.")
        self._values[members] = f = number(value, members)
        archived = self._put(members, f)
        self.iteration += 1
        return archived

    def _offspring(self) -> Subset | None:
        return self._offspring_of(self._parent(self.iteration), self.iteration)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue to iteration `until`; return True as soon as f <= target for a subset of at most k columns.

        Raises
        ------
        CriterionError
            The criterion failed. The iteration is not counted, and the next call repeats it.
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
        """Return f of a subset by calling the criterion."""
        try:
            value = self.criterion(members)
        except (Exception, SystemExit) as error:
            raise failure("criterion", members, error) from error
        return number(value, members)

    @classmethod
    def restore(
        cls, criterion: Criterion, state: dict[str, Any], isolation: IsolationFunction | None = None
    ) -> CriterionPoss:
        """Return the search as it was when `state` was saved. `isolation`: its custom function, if it had one."""
        chosen = cls.isolation_of(state, isolation)
        return cls(criterion, state["n"], state["k"], seed=state["seed"], isolation=chosen)._load(state)

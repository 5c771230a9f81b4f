"""What the exact searches share: the best subset found, its history, and how both are saved."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.outcome import FrontPoint, Improvement
from dsel.search.validation import check_size

log = logging.getLogger("dsel")

#: Subsets whose f differ by at most this share of ||Y||^2 count as equally good.
MARGIN = 1e-10
#: A bound that exceeds the value of a subset by more than this share of ||Y||^2 is wrong. Near dependence explains less
#: (dsel.objective.conditioning.bound_error for few columns and a share above the tolerance of dependence).
CONTRADICTION = 1e-6


def consistent_bound(bound: float, value: float, total: float) -> float:
    """Return a lower bound on f given the value of one subset: at most that value, and 0 if they contradict."""
    return min(bound, value) if bound <= value + CONTRADICTION * total else 0.0


class ExactSearch:
    """A search over the subsets of at most k columns of an objective.

    best: the members of the best subset so far (local indices), ascending. best_value: its f. last_gain: the iteration
    that found it. contradicted: whether a subset was found that a bound had excluded. The bounds are then wrong by more
    than rounding, and the search continues but proves nothing.

    Raises OptionError if k is not between 1 and n.
    """

    kind: str

    def __init__(self, objective: Objective, k: int, bound_name: str) -> None:
        check_size(k, objective.n)
        self.objective, self.k, self.bound_name = objective, k, bound_name
        self.best: tuple[int, ...] = ()
        self.best_value = objective.c
        self.last_gain = 0
        self.contradicted = False
        self._trace: list[Improvement] = []

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        raise NotImplementedError

    @property
    def answer(self) -> tuple[int, ...]:
        """The subset that the search returns."""
        return self.best

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """All improvements of the best subset, the first incumbent included."""
        return tuple(self._trace)

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset from this search or elsewhere, and return whether it is better than the best."""
        members = tuple(sorted(int(j) for j in S))
        value = self.objective.value(members)
        if len(members) > self.k or not value < self.best_value:
            return False
        self.best, self.best_value, self.last_gain = members, value, self.iteration
        self._trace.append(Improvement(self.iteration, len(members), value))
        return True

    def _check_claim(self, claim: float) -> None:
        """Record a contradiction if the best subset is better than the bound `claim` of the subtree that holds it."""
        if self.best_value < claim - CONTRADICTION * self.objective.c and not self.contradicted:
            self.contradicted = True
            log.warning("a subset is better than its lower bound (f is %g, the bound %g): no proof is possible",
                        self.best_value, claim)  # fmt: skip

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the empty set and the answer."""
        empty, S = FrontPoint(0, self.objective.c, ()), self.answer
        return (empty, FrontPoint(len(S), self.objective.value(S), S)) if S else (empty,)

    def _shared_state(self) -> dict[str, Any]:
        """Return what every search saves, as JSON holds it."""
        return {
            "kind": self.kind, "n": self.objective.n, "k": self.k, "bound": self.bound_name, "best": list(self.best),
            "last_gain": self.last_gain, "trace": [[t.iteration, t.size, t.value] for t in self._trace],
            "contradicted": self.contradicted,
        }  # fmt: skip

    def _restore_shared(self, state: dict[str, Any]) -> None:
        """Restore what `_shared_state` saved."""
        self.offer(state["best"])
        self.contradicted = self.contradicted or state.get("contradicted", False)
        self.last_gain = state["last_gain"]
        self._trace = [Improvement(int(i), int(s), float(f)) for i, s, f in state["trace"]]


def check_saved(objective: Objective, state: dict[str, Any]) -> None:
    """Raise OptionError if the state was saved by a search over another number of columns."""
    if state["n"] != objective.n:
        raise OptionError(
            f"The saved search is over {state['n']} columns, the objective over {objective.n}.",
            "Resume with the data and options it was started with, or start again.",
        )

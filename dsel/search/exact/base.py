"""What the exact searches share: the best subset so far, how it was found, and how both are saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.base import FrontPoint, Improvement
from dsel.search.validation import check_size

#: A bound so much of ||Y||^2 above the value of a subset that it should not exceed is wrong: more than near dependence
#: takes (dsel.objective.conditioning.missed with a share above the tolerance of dependence, few columns).
CONTRADICTION = 1e-6


def held(bound: float, value: float, total: float) -> float:
    """A bound on what no subset is below, given the value of one: at most that; 0 where it contradicts it."""
    return min(bound, value) if bound <= value + CONTRADICTION * total else 0.0


class ExactSearch:
    """A search over the subsets of at most k columns of an objective with the best subset it has seen.

    best: its members (local indices), ascending; best_value: its f; last_gain: the iteration at which it was found.
    Errors: OptionError where k is not one of 1 to n.
    """

    kind: str

    def __init__(self, objective: Objective, k: int, bound_name: str) -> None:
        check_size(k, objective.n)
        self.objective, self.k, self.bound_name = objective, k, bound_name
        self.best: tuple[int, ...] = ()
        self.best_value = objective.c
        self.last_gain = 0
        self._trace: list[Improvement] = []

    @property
    def iteration(self) -> int:
        """Nodes looked at."""
        raise NotImplementedError

    @property
    def answer(self) -> tuple[int, ...]:
        """The subset that is the search's answer."""
        return self.best

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of the best subset seen, the first incumbent included."""
        return tuple(self._trace)

    def offer(self, S: Iterable[int]) -> bool:
        """A subset, from here or from elsewhere; True where it is better than the best."""
        members = tuple(sorted(int(j) for j in S))
        value = self.objective.value(members)
        if len(members) > self.k or not value < self.best_value:
            return False
        self.best, self.best_value, self.last_gain = members, value, self.iteration
        self._trace.append(Improvement(self.iteration, len(members), value))
        return True

    def front(self) -> tuple[FrontPoint, ...]:
        """The empty set and the answer."""
        empty, S = FrontPoint(0, self.objective.c, ()), self.answer
        return (empty, FrontPoint(len(S), self.objective.value(S), S)) if S else (empty,)

    def _shared_state(self) -> dict[str, Any]:
        """What every search saves, as JSON would hold it."""
        return {
            "kind": self.kind, "n": self.objective.n, "k": self.k, "bound": self.bound_name, "best": list(self.best),
            "last_gain": self.last_gain, "trace": [[t.iteration, t.size, t.value] for t in self._trace],
        }  # fmt: skip

    def _take_shared(self, state: dict[str, Any]) -> None:
        """Go back to what `_shared_state` saved."""
        self.offer(state["best"])
        self.last_gain = state["last_gain"]
        self._trace = [Improvement(int(i), int(s), float(f)) for i, s, f in state["trace"]]


def check_saved(objective: Objective, state: dict[str, Any]) -> None:
    """Refuse a state that was saved by a search over other columns."""
    if state["n"] != objective.n:
        raise OptionError(
            f"The saved search is over {state['n']} columns, the objective over {objective.n}.",
            "Resume with the data and options it was started with, or start anew.",
        )

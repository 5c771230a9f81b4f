"""What the exact searches share: the best subset found, its history, and how both are saved.

What the proofs for several sizes of one objective have in common.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from dsel.errors import OptionError
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.anytime import AnytimeSearch, Deadline, OutOfTime, SavedAs
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.certificate import CONTRADICTION, Certificate, without_bound
from dsel.search.exact.guarantee import Guarantee, Limits
from dsel.search.exact.near_best import NearBest, counts
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, check_size

V = TypeVar("V")


class CommonSetup:
    """What searches over the subsets of an objective need for every size. Each part is computed once, when first used.

    objective: over columns or groups. guided: whether each tree of relaxations keeps advice for that of the next
    size. warm_start: the last advice, a `dsel.search.exact.perspective.node.WarmStart`.
    """

    def __init__(self, objective: Any, *, guided: bool = False) -> None:
        self.objective, self.guided = objective, guided
        self.warm_start: Any = None
        self._computed: dict[Callable[..., Any], Any] = {}
        self._problem: BoundProblem | None = None
        self._limits = Limits(objective)

    def problem(self, deadline: Deadline | None = None) -> BoundProblem:
        """Return the problem of the bounds. Raises OutOfTime if it would not be there at the deadline."""
        if self._problem is None:
            self._problem = BoundProblem.of(self.objective, deadline=deadline)
        self._problem = self._problem.until(deadline)
        return self._problem

    def once(self, compute: Callable[..., V], *arguments: Any) -> V:
        """Return what a function computes from these arguments, which are the same for every size."""
        if compute not in self._computed:
            self._computed[compute] = compute(*arguments)
        result: V = self._computed[compute]
        return result

    def guarantee(self, k: int, deadline: Deadline | None = None) -> Guarantee:
        """Return the limits of proofs about subsets of at most k columns or groups."""
        return self._limits.guarantee(k, deadline=deadline)

    def guarantee_within(self, k: int, squares: float, rounding: float) -> Guarantee:
        """Return those of subsets with limited coefficients, see `Limits.within`."""
        return self._limits.within(k, squares, rounding)


log = logging.getLogger("dsel")

#: What failures of a proof raise: those of numbers, and a deadline that comes too early.
FAILURES = (ArithmeticError, ValueError, MemoryError, OutOfTime)


def without_proof(objective: ItemObjective, k: int, S: Iterable[int], error: Exception) -> SearchOutcome:
    """Return the outcome of a search whose proof cannot begin, or has no time to: the known subset, and a note."""
    members = tuple(sorted(int(j) for j in S))
    empty = FrontPoint(0, objective.c, ())
    found = FrontPoint(len(members), objective.value(members), objective.members(members))
    late = isinstance(error, OutOfTime)
    why = f"no time is left for a proof ({error})"
    if not late:
        log.warning("no proof is possible: %r", error)
        why = f"no proof is possible ({type(error).__name__}: {error})"
    return SearchOutcome(
        (empty, found) if members else (empty,), ended="seconds" if late else "failed",
        certificates=(without_bound(objective, k, members),),
        notes=(f"{why}: these columns are those of a quick search",),
    )  # fmt: skip


class Effort:
    """The time of a search in all its runs, which its saved states have.

    Parameters
    ----------
    deadline : Deadline
        Made at the beginning of this run.
    state : dict, optional
        The saved state that the search continues from.
    """

    def __init__(self, deadline: Deadline, state: Mapping[str, Any] | None = None) -> None:
        before = (state or {}).get("effort", {})
        self._seconds, self._cpu = before.get("seconds", 0.0), before.get("cpu_seconds", 0.0) - time.process_time()
        self._deadline = deadline

    def fields(self) -> dict[str, Any]:
        """Return the wall and the processor seconds so far, as fields of a certificate."""
        return {
            "seconds": self._seconds + self._deadline.elapsed, "cpu_seconds": self._cpu + time.process_time(),
        }  # fmt: skip

    def saved(self, on_slice: Callable[[Any], None] | None) -> Callable[[AnytimeSearch], None] | None:
        """Return a callback for each slice that hands over the search with a state that has its time."""
        if on_slice is None:
            return None
        return lambda search: on_slice(SavedAs(search, lambda: {**search.state(), "effort": self.fields()}))


class ExactSearch:
    """A search over the subsets of at most k columns of an objective.

    near_best: the subsets that are looked for, if not only better ones than the best. best: the members of the best
    subset so far (local indices), ascending. best_value: its f. last_gain: the iteration
    that found it. contradicted: whether a subset was found that a bound had excluded. The bounds are then wrong by more
    than rounding, and the search continues but proves nothing. deadline: of what comes before the first node, and of
    `guarantee`. setup: what proofs for other sizes of the objective share.

    Raises OptionError if k is not between 1 and n, and OutOfTime if the first bound would end after the deadline.
    """

    kind: str

    def __init__(
        self, objective: Objective, k: int, bound_name: str, deadline: Deadline | None = None,
        setup: CommonSetup | None = None, near_best: NearBest | None = None,
    ) -> None:  # fmt: skip
        check_size(k, objective.n)
        self.near_best = near_best
        self.objective, self.k, self.bound_name = objective, k, bound_name
        self.setup = setup or CommonSetup(objective)
        self.deadline = deadline or Deadline(None)
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
    def size(self) -> int:
        """The most columns or groups that a subset has, included ones counted."""
        return self.objective.included_size + self.k

    @property
    def answer(self) -> tuple[int, ...]:
        """The subset that the search returns."""
        return self.best

    @property
    def answer_value(self) -> float:
        """f of the answer."""
        return self.best_value

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def method(self) -> str:
        """What proves the bound, in words."""
        return f"{self.kind}, {self.bound_name} bound"

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """All improvements of the best subset, the first incumbent included."""
        return tuple(self._trace)

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset from this search or elsewhere, and return whether it is better than the best.

        Columns that depend on those before them have no part in its value, and are left out.
        """
        members = tuple(sorted(int(j) for j in S))
        value = self.objective.value(members)
        if self.near_best is not None and counts(self.objective, members):
            self.near_best.take(members, value)
        if len(members) > self.k or not value < self.best_value:
            return False
        members = self._independent(members)  # the others have no part in its value
        self.best, self.best_value, self.last_gain = members, value, self.iteration
        self._trace.append(Improvement(self.iteration, len(members), value))
        return True

    def _independent(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the members without those that depend on the ones before them."""
        return self.objective.without_dependent(members)

    @property
    def cutoff_value(self) -> float:
        """A node is of no use if f of all its subsets is above this: the best value, or that of near-best subsets."""
        return self.best_value if self.near_best is None else self.near_best.cutoff

    def _check_claim(self, claim: float) -> None:
        """Record a contradiction if the best subset is better than the bound `claim` of the subtree that holds it."""
        if self.contradicted or not self.best_value < claim - CONTRADICTION * self.objective.c:
            return
        if self.best_value < claim - self.guarantee.error * self.total:
            self.contradicted = True
            log.warning("a subset is better than its lower bound (f is %g, the bound %g): no proof is possible",
                        self.best_value, claim)  # fmt: skip

    @property
    def lower(self) -> float:
        """A lower bound on f of all independent subsets of at most k columns, but for `guarantee.error`."""
        raise NotImplementedError

    @cached_property
    def guarantee(self) -> Guarantee:
        """What rounding and the dependence tolerance may hide. O(n^3)."""
        return self.setup.guarantee(self.k, self.deadline)

    def _know_guarantee(self) -> None:
        """Compute `guarantee` now if there is a deadline, after which it would be too late."""
        if self.deadline.seconds is not None:
            _ = self.guarantee

    @property
    def proved(self) -> float:
        """A lower bound on f of all independent subsets of at most k columns, lowered by the error of the proof."""
        return self.guarantee.lowered(self.lower, self.total)

    def certificate(self) -> Certificate:
        """Return what is proved about the answer so far."""
        return self.guarantee.certificate(
            self.objective, self.k, self.answer, self.answer_value, self.lower, nodes=self.iteration,
            method=self.method,
        )  # fmt: skip

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the empty set and the answer."""
        empty, S = FrontPoint(0, self.objective.c, ()), self.answer
        return (empty, FrontPoint(len(S), self.objective.value(S), self.objective.members(S))) if S else (empty,)

    @property
    def open_nodes(self) -> int:
        """The number of open nodes."""
        raise NotImplementedError

    @property
    def saved_numbers(self) -> int:
        """How many numbers `state` holds, at most."""
        return self.open_nodes * self.objective.n

    def _shared_state(self) -> dict[str, Any]:
        """Return what every search saves, as JSON holds it."""
        return {
            "kind": self.kind, "n": self.objective.n, "k": self.k, "bound": self.bound_name, "best": list(self.best),
            "last_gain": self.last_gain, "trace": [[t.iteration, t.size, t.value] for t in self._trace],
            "contradicted": self.contradicted,
            **({} if self.near_best is None else {"near_best": self.near_best.state()}),
        }  # fmt: skip

    def _restore_shared(self, state: dict[str, Any]) -> None:
        """Restore what `_shared_state` saved."""
        if self.near_best is not None:
            self.near_best.restore(state["near_best"]["subsets"])
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

"""POSS for any criterion f(S), given as a callable ("any criterion" is part of the method: POSS paper, section 3).

The loop and its random numbers are those of the compiled engine: with f the value of a quadratic objective whose
columns are independent, the archive is the same at every iteration. What differs is where the time goes: here into
f, so every subset is evaluated at most once and all values are remembered.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from dsel.compiled import compiled
from dsel.errors import CriterionError, OptionError
from dsel.objective.memory import Floats, Ints
from dsel.search.archive import IsolationFunction, ParetoArchive, Subset, min_index, together
from dsel.search.outcome import FrontPoint, Improvement, improving
from dsel.search.poss import SEED_LIMIT, Isolation
from dsel.search.random import binomial_cdf, draw_flips, stream, uniform

Criterion = Callable[[Subset], float]

_ISOLATIONS: dict[str, IsolationFunction] = {"none": together, "min-index": min_index}


class CriterionPoss:
    """The archive and its search by ask and tell; `advance` is the loop that answers by calling the criterion.

    criterion: f of a tuple of ascending local column indices, 0 to n - 1, of which there are 1 to 2k - 1. It must give
    the same number for the same subset; +inf says that the subset is not allowed. It is called once a subset.
    isolation: "none", "min-index", or a function of such a tuple: subsets compete only where it has the same value.
    """

    def __init__(
        self, criterion: Criterion, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none"
    ) -> None:
        if not 1 <= k <= n:
            raise OptionError(f"k is {k}, but there are {n} columns to choose from.", "1 <= k <= columns.")
        if not 0 <= seed < SEED_LIMIT:
            raise OptionError(f"seed is {seed}; it is a whole number from 0 to 2^63 - 1.")
        if isinstance(isolation, str) and isolation not in _ISOLATIONS:
            raise OptionError(f"isolation is {isolation!r}; it is 'none', 'min-index' or a function of a subset.")
        self.criterion = criterion
        self.n = n
        self.k = k
        self.seed = seed
        self.isolation = isolation
        self.archive = ParetoArchive(k, self._isolated)
        self.iteration = 0
        self.last_gain = 0
        self._trace: list[Improvement] = []
        self._values: dict[Subset, float] = {}
        self._accepted = 0
        self._recalled = 0
        self._cdf = binomial_cdf(n, 1.0 / n)
        self._flips = np.zeros(n, np.int64)

    def _isolated(self, members: Subset) -> Hashable:
        if isinstance(self.isolation, str):
            return _ISOLATIONS[self.isolation](members)
        try:
            value = self.isolation(members)
            hash(value)
        except Exception as error:
            raise _failure("isolation function", members, error) from error
        return value

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
        self._values[members] = number = _number(value, members)
        archived = self._put(members, number)
        self.iteration += 1
        return archived

    def _offspring(self) -> Subset | None:
        """Lines 4 and 5: a parent and its flips; None where nothing flipped or o1 is +inf unseen."""
        place, count = _draw(self.seed, self.iteration, len(self.archive), self._cdf, self._flips)
        members = set(self.archive[place].members).symmetric_difference(self._flips[:count].tolist())
        return tuple(sorted(members)) if count > 0 and 0 < len(members) < 2 * self.k else None

    def _put(self, members: Subset, value: float) -> bool:
        before = self.best_value
        archived = self.archive.offer(members, value)
        if archived:
            self._accepted += 1
            if len(members) <= self.k and value < before:
                self._trace.append(Improvement(self.iteration, len(members), value))
                self.last_gain = self.iteration
        return archived

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
        except Exception as error:
            raise _failure("criterion", members, error) from error
        return _number(value, members)

    @property
    def best_value(self) -> float:
        """Least f among the archived subsets of at most k columns; +inf while there is none."""
        return self._trace[-1].value if self._trace else math.inf

    @property
    def total(self) -> float:
        """To which differences of f are compared: |f| of the subset evaluated first where finite and not 0, else 1."""
        first = abs(next(iter(self._values.values()), 1.0))
        return first if 0.0 < first < math.inf else 1.0

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of `best_value`."""
        return tuple(self._trace)

    @property
    def archived(self) -> list[FrontPoint]:
        """The archive, oldest solution first, the empty set (+inf: it is not evaluated) included."""
        return self.archive.points

    def front(self) -> tuple[FrontPoint, ...]:
        """The best subset of every size up to 2k - 1 that beats all smaller ones, the empty set (+inf) first."""
        return improving(self.archived)

    def counts(self) -> dict[str, int]:
        """What the search did: values told, offspring whose value was known, acceptances."""
        return {
            "evaluated": len(self._values),
            "recalled": self._recalled,
            "accepted": self._accepted,
            "archive": len(self.archive),
        }

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON would hold it: settings, counters, solutions, all values (None: +inf).

        The functions are not part of it.
        """
        return {
            "k": self.k,
            "n": self.n,
            "seed": self.seed,
            "isolation": self.isolation if isinstance(self.isolation, str) else None,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "accepted": self._accepted,
            "recalled": self._recalled,
            "solutions": self.archive.state(),
            "values": [[list(S), f if f < math.inf else None] for S, f in self._values.items()],
            "trace": [[t.iteration, t.size, t.value] for t in self._trace],
        }

    @classmethod
    def restore(
        cls, criterion: Criterion, state: dict[str, Any], isolation: IsolationFunction | None = None
    ) -> CriterionPoss:
        """The search as it was when `state` was taken; `isolation` where it had a function of its own."""
        if (state["isolation"] is None) == (isolation is None):
            raise OptionError(
                f"The saved search has {'its own' if isolation is None else 'no'} isolation function.",
                "Resume with the options it was started with, or start anew.",
            )
        chosen = isolation or state["isolation"]
        search = cls(criterion, state["n"], state["k"], seed=state["seed"], isolation=chosen)
        search.archive = ParetoArchive.restore(state["k"], state["solutions"], search._isolated)
        search.iteration, search.last_gain = state["iteration"], state["last_gain"]
        search._accepted, search._recalled = state["accepted"], state["recalled"]
        search._values = {tuple(S): math.inf if f is None else f for S, f in state["values"]}
        search._trace = [Improvement(*row) for row in state["trace"]]
        return search


@compiled()
def _draw(seed: int, iteration: int, members: int, cdf: Floats, flips: Ints) -> Any:
    """The parent's place in the archive and how many columns of `flips` to flip: the engine's draws 0 and 1 on."""
    state = stream(seed, iteration, np.int64(0))
    place = np.int64(uniform(state, 0) * members)
    return place, draw_flips(state, 1, flips.shape[0], cdf, flips)


def _number(value: Any, members: Subset) -> float:
    """A real number or +inf, as float."""
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(scalar, bool) or not isinstance(scalar, numbers.Real):
        raise CriterionError(
            f"The criterion returned {value!r} for the columns {list(members)}.", "It must return a real number."
        )
    number = float(scalar)
    if not number > -math.inf:
        raise CriterionError(
            f"The criterion returned {number} for the columns {list(members)}.",
            "Return +inf for a subset that is not allowed.",
        )
    return number


def _failure(what: str, members: Subset, error: Exception) -> CriterionError:
    text = "".join(traceback.format_exception(error)).rstrip()
    return CriterionError(f"The {what} failed on the columns {list(members)}:\n{text}\n", "Mend it and go on.")

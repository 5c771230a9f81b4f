"""What the Pareto searches on a criterion f(S) of one's own have in common: archive, values met so far, improvements.

Nothing here calls the criterion. Every value is remembered, so that no subset is evaluated twice.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Hashable, Mapping
from typing import Any, Self

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import binomial_cdf, draw_flips, stream, uniform
from dsel._lib.types import Floats, Ints
from dsel.errors import CriterionError, OptionError
from dsel.search.base import FrontPoint, Improvement, improving
from dsel.search.pareto.archive import ISOLATIONS, Isolation, IsolationFunction, ParetoArchive, Subset
from dsel.search.validation import check_seed, check_size


class Remembered:
    """An archive over n columns with the values of every subset met, and the trace of its best one.

    isolation: "none", "min-index", or a function of a subset: subsets compete only where it has the same value.
    """

    def __init__(self, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none") -> None:
        check_size(k, n)
        check_seed(seed)
        if isinstance(isolation, str) and isolation not in ISOLATIONS:
            raise OptionError(f"isolation is {isolation!r}; it is 'none', 'min-index' or a function of a subset.")
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
            return ISOLATIONS[self.isolation](members)
        try:
            value = self.isolation(members)
            hash(value)
        except Exception as error:
            raise failure("isolation function", members, error) from error
        return value

    def _parent(self, iteration: int) -> Subset:
        """Line 4: a solution of the archive, uniformly."""
        return self.archive[int(draw_parent(self.seed, iteration, len(self.archive)))].members

    def _offspring_of(self, parent: Subset, iteration: int, slot: int = 0) -> Subset | None:
        """Line 5: the parent with its flips; None where nothing flipped or o1 is +inf unseen."""
        count = draw_columns(self.seed, iteration, slot, self._cdf, self._flips)
        members = set(parent).symmetric_difference(self._flips[:count].tolist())
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

    def recall(self, values: Mapping[Subset, float]) -> None:
        """Values that are known from before: those subsets are not evaluated again."""
        for members, value in values.items():
            self._values.setdefault(members, value)

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
    def evaluations(self) -> int:
        """Values known: each cost one evaluation."""
        return len(self._values)

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

    @staticmethod
    def isolation_of(state: dict[str, Any], own: IsolationFunction | None) -> Isolation | IsolationFunction:
        """The isolation of a saved search; `own` is to be given where it had a function of its own."""
        if (state.get("isolation", "none") is None) == (own is None):
            raise OptionError(
                f"The saved search has {'its own' if own is None else 'no'} isolation function.",
                "Resume with the options it was started with, or start anew.",
            )
        chosen: Isolation | IsolationFunction = own or state.get("isolation", "none")
        return chosen

    def _load(self, state: dict[str, Any]) -> Self:
        """Take over what `state` holds."""
        self.archive = ParetoArchive.restore(state["k"], state["solutions"], self._isolated)
        self.iteration, self.last_gain = state["iteration"], state["last_gain"]
        self._accepted, self._recalled = state["accepted"], state["recalled"]
        self._values = {tuple(S): math.inf if f is None else f for S, f in state["values"]}
        self._trace = [Improvement(*row) for row in state["trace"]]
        return self


@compiled()
def draw_parent(seed: int, iteration: int, members: int) -> Any:
    """The parent's place in the archive: draw 0 of slot 0, as in the engine."""
    return np.int64(uniform(stream(seed, iteration, np.int64(0)), np.int64(0)) * members)


@compiled()
def draw_columns(seed: int, iteration: int, slot: int, cdf: Floats, flips: Ints) -> Any:
    """How many columns of `flips` to flip: the draws from 1 on of a slot, as in the engine."""
    return draw_flips(stream(seed, iteration, slot), np.int64(1), flips.shape[0], cdf, flips)


def number(value: Any, members: Subset) -> float:
    """What a criterion returned, a real number or +inf, as float. Errors: CriterionError."""
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(scalar, bool) or not isinstance(scalar, numbers.Real):
        raise CriterionError(
            f"The criterion returned {value!r} for the columns {list(members)}.", "It must return a real number."
        )
    try:
        real = float(scalar)
    except OverflowError:
        raise CriterionError(
            f"The criterion returned a number beyond float64's range for the columns {list(members)}.", "Rescale it."
        ) from None
    if not real > -math.inf:
        raise CriterionError(
            f"The criterion returned {real} for the columns {list(members)}.",
            "Return +inf for a subset that is not allowed.",
        )
    return real


def cannot_travel(error: Exception) -> CriterionError:
    """The error of a user's function that cannot be pickled."""
    return CriterionError(
        f"The criterion cannot be sent to a worker: {type(error).__name__}: {error}.",
        "It may hold no locks, open files or connections: open them where it is called.",
    )


def failure(what: str, members: Subset, error: BaseException) -> CriterionError:
    """The error of a user's function, with the subset and its traceback."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return CriterionError(f"The {what} failed on the columns {list(members)}:\n{text}\n", "Mend it and go on.")

"""What the Pareto searches on a custom criterion share: the archive, the known values, the improvements.

Nothing here calls the criterion. Every value is kept, so that no subset is evaluated twice.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Hashable, Mapping
from typing import Any, Self

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import binomial_cdf, draw_flips, stream, uniform, uniforms
from dsel._lib.types import Floats, Ints
from dsel.errors import CriterionError, OptionError
from dsel.search.outcome import FrontPoint, Improvement, check_seed, check_size, improving
from dsel.search.pareto.archive import ISOLATIONS, Isolation, IsolationFunction, ParetoArchive, Subset


class EvaluationMemo:
    """An archive over n columns, the values of all evaluated subsets, and the trace of the best one.

    Parameters
    ----------
    n, k : int
        The number of columns, and the size limit.
    seed : int
        The seed.
    isolation : {"none", "min-index"} or callable
        Subsets compete only where this function of a subset has the same value.

    swaps : float
        The share of mutations that replace one column by another in place of flips. It is 0 in the papers. A search
        that continues a saved one needs the same value.
    """

    def __init__(
        self, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none", swaps: float = 0.0
    ) -> None:
        check_size(k, n)
        check_seed(seed)
        if isinstance(isolation, str) and isolation not in ISOLATIONS:
            raise OptionError(f"isolation is {isolation!r}; it is 'none', 'min-index' or a function of a subset.")
        self.n = n
        self.k = k
        self.seed = seed
        self.isolation, self.swaps = isolation, swaps
        self.archive = ParetoArchive(k, self._isolated)
        self.iteration = 0
        self.last_gain = 0
        self._trace: list[Improvement] = []
        self._values: dict[Subset, float] = {}
        self._accepted = 0
        self._offspring = 0  # those whose value is known, or asked for
        self._cdf = binomial_cdf(n, 1.0 / n)
        self._flips = np.zeros(n, np.int64)

    def _isolated(self, members: Subset) -> Hashable:
        if isinstance(self.isolation, str):
            return ISOLATIONS[self.isolation](members)
        try:
            value = self.isolation(members)
            hash(value)
            if value != value:
                raise ValueError("it returned nan")
        except Exception as error:
            raise failure("isolation function", members, error) from error
        return value

    def _parent(self, iteration: int) -> Subset:
        """Return a solution of the archive, drawn uniformly (line 4)."""
        return self.archive[int(draw_parent(self.seed, iteration, len(self.archive)))].members

    def _offspring_of(self, parent: Subset, iteration: int, slot: int = 0) -> Subset | None:
        """Return the parent with its flips (line 5), or None if nothing flipped or o1 is +inf without evaluation."""
        if self.swaps > 0.0 and 0 < len(parent) < self.n:
            draws = uniforms(self.seed, iteration, -1 - slot, 3)
            if draws[0] < self.swaps:
                return swapped(parent, self.n, draws[1], draws[2])
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
        """Take over known values, so that these subsets are not evaluated again."""
        for members, value in values.items():
            self._values.setdefault(members, value)

    @property
    def best_value(self) -> float:
        """The least f of an archived subset of at most k columns; +inf if there is none."""
        return self._trace[-1].value if self._trace else math.inf

    @property
    def total(self) -> float:
        """The scale of f: |f| of the first evaluated subset if that is finite and not 0, else 1."""
        first = abs(next(iter(self._values.values()), 1.0))
        return first if 0.0 < first < math.inf else 1.0

    @property
    def evaluations(self) -> int:
        """The number of known values. Each took one evaluation."""
        return len(self._values)

    @property
    def solutions(self) -> int:
        """The number of solutions in the archive."""
        return len(self.archive)

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """The improvements of `best_value`."""
        return tuple(self._trace)

    @property
    def archived(self) -> list[FrontPoint]:
        """The archive, oldest solution first. The empty set is included; it has value +inf and is not evaluated."""
        return self.archive.points

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the best subset of each size up to 2k - 1 that beats all smaller ones, the empty set (+inf) first."""
        return improving(self.archived)

    def counts(self) -> dict[str, int]:
        """Return counts of evaluations, of offspring with known values, and of archived offspring."""
        return {
            "evaluated": len(self._values),
            "recalled": max(self._offspring - len(self._values), 0),
            "accepted": self._accepted,
            "archive": len(self.archive),
        }

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it. None is +inf. Functions are not part of it."""
        return {
            "k": self.k,
            "n": self.n,
            "seed": self.seed,
            "isolation": self.isolation if isinstance(self.isolation, str) else None,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "accepted": self._accepted,
            "offspring": self._offspring,
            "solutions": self.archive.state(),
            "values": [[list(S), f if f < math.inf else None] for S, f in self._values.items()],
            "trace": [[t.iteration, t.size, t.value] for t in self._trace],
        }

    @staticmethod
    def isolation_of(state: dict[str, Any], own: IsolationFunction | None) -> Isolation | IsolationFunction:
        """Return the isolation of a saved search. `own`: its custom function, if it had one."""
        if (state["isolation"] is None) == (own is None):
            raise OptionError(
                f"The saved search has {'a custom' if own is None else 'no'} isolation function.",
                "Resume with the same options, or start a new search.",
            )
        chosen: Isolation | IsolationFunction = own or state["isolation"]
        return chosen

    def _load(self, state: dict[str, Any]) -> Self:
        """Load a saved state."""
        self.archive = ParetoArchive.restore(state["k"], state["solutions"], self._isolated)
        self.iteration, self.last_gain = state["iteration"], state["last_gain"]
        self._accepted, self._offspring = state["accepted"], state["offspring"]
        self._values = {tuple(S): math.inf if f is None else f for S, f in state["values"]}
        self._trace = [Improvement(*row) for row in state["trace"]]
        return self


def swapped(members: Subset, n: int, leaving: float, entering: float) -> Subset:
    """Return the members with one of them replaced by one of the other columns. leaving, entering: uniform on [0, 1).

    Source: Neumann and Wegener, "Randomized local search, evolutionary algorithms, and the minimum spanning tree
    problem", Theoretical Computer Science 378, 2007, where half of the mutations flip two bits in place of one.
    """
    out = members[int(leaving * len(members))]
    j = int(entering * (n - len(members)))  # its place among the others
    for member in members:
        j += member <= j
    return tuple(sorted([*(i for i in members if i != out), j]))


@compiled()
def draw_parent(seed: int, iteration: int, members: int) -> Any:
    """Return the place of the parent in the archive: draw 0 of slot 0, as in the compiled search."""
    return np.int64(uniform(stream(seed, iteration, np.int64(0)), np.int64(0)) * members)


@compiled()
def draw_columns(seed: int, iteration: int, slot: int, cdf: Floats, flips: Ints) -> Any:
    """Return the number of columns of `flips` to flip: draws from 1 on of a slot, as in the compiled search."""
    return draw_flips(stream(seed, iteration, slot), np.int64(1), flips.shape[0], cdf, flips)


def number(value: Any, members: Subset) -> float:
    """Return the value of a criterion as float. Raise CriterionError unless it is a real number or +inf."""
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
    """Return the error for a custom function that cannot be pickled."""
    return CriterionError(
        f"The criterion cannot be sent to a worker: {type(error).__name__}: {error}.",
        "It must not hold locks, open files or connections: open them inside the function.",
    )


def failure(what: str, members: Subset, error: BaseException) -> CriterionError:
    """Return the error for a custom function that failed, with the subset and the traceback."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return CriterionError(f"The {what} failed on the columns {list(members)}:\n{text}\n", "Fix it and start again.")

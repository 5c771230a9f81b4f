"""POSS, PPOSS and PPOSS-asy with any criterion f(S): the archive on the client, evaluations on any workers.

The draws are those of the compiled search. For a quadratic objective with independent columns the archive is the same
at every iteration. Here the time goes into f, so each subset is evaluated once and its value kept.

In the order of the index, iteration t draws its parent from the archive that iterations 0 to t - W have left (W
iterations may be out at the same time), and values are offered to the archive in the order of the iterations. With
W = 1 the search is POSS (Qian, Yu, Zhou 2015, section 3). With N processors it has rounds of N offspring of one parent,
and is PPOSS (Qian et al., IJCAI 2016, Algorithm 2). In the order of arrival, each iteration draws from the newest
archive, and the search is PPOSS-asy (end of section 3.4).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import binomial_cdf, draw_flips, stream, uniform, uniforms
from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.search.anytime import Stop
from dsel.search.ask_tell import Task, TaskResult
from dsel.search.journal import valued
from dsel.search.outcome import check_seed, check_size
from dsel.search.pareto.archive import ISOLATIONS, Isolation, IsolationFunction, Subset
from dsel.search.pareto.evaluations import EvaluatedSearch, failure
from dsel.search.runtime.schedule import Schedule

#: Iterations that one call draws or merges at most while none of them needs an evaluation.
_MOST_AT_ONCE = 10_000
#: Subsets per task in the order of arrival at the beginning, when the archive is small.
_FIRST_SUBSETS = 64
#: A task has at least 1 / _LEAST of the most units: a shorter one costs more to send than to run.
_LEAST = 50


class CriterionSearch(EvaluatedSearch):
    """A Pareto search on any criterion, by ask and tell.

    The empty set and subsets of 2k or more columns have f = +inf; they are not evaluated. Where columns are included,
    `ask_for_empty` gives the empty set a value that counts for the answer. In the archive it has +inf.

    Parameters
    ----------
    n, k : int
        The number of columns, and the size limit.
    schedule : Schedule
        `in_flight`: W. `processors`: N. `order`: see above.
    stop : Stop
        Stopping rules; `iterations` is required. In the order of the index, `target`, `patience` and `bound` are
        checked after each iteration or round, so that they end every run at the same one.
    seed : int
        Iteration t draws its parent and its flips from (seed, t). Round t draws its parent from (seed, t, slot 0), and
        offspring i its flips from (seed, t, slot i).
    isolation : {"none", "min-index"} or callable
        Subsets compete only where this function of a subset has the same value.
    swaps : float
        The share of mutations that replace one column by another in place of flips. It is 0 in the papers. A search
        that continues a saved one needs the same value.
    """

    def __init__(
        self, n: int, k: int, schedule: Schedule, stop: Stop, *, seed: int = 0,
        isolation: Isolation | IsolationFunction = "none", swaps: float = 0.0,
    ) -> None:  # fmt: skip
        check_size(k, n)
        check_seed(seed)
        if isinstance(isolation, str) and isolation not in ISOLATIONS:
            raise OptionError(f"isolation is {isolation!r}; it is 'none', 'min-index' or a function of a subset.")
        super().__init__(k, self._isolated)
        self.n, self.seed, self.isolation, self.swaps = n, seed, isolation, swaps
        self._accepted = 0
        self._offspring = 0  # those whose value is known, or asked for
        self._cdf, self._flips = binomial_cdf(n, 1.0 / n), np.zeros(n, np.int64)
        assert stop.iterations is not None
        self.schedule, self.stop = schedule, stop
        self._size = max(schedule.processors, 1)  # of a round
        self.limit = max(stop.iterations // self._size, 1) * self._size
        self._window: deque[Subset | None] = deque()  # offspring that are not merged, in their order
        self._out: set[Subset] = set()
        self._share = 0  # subsets of a task of the present round; 0 before the first task
        self._ended = False
        self._needs_empty = False

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

    def _offer(self, S: Subset) -> bool:
        """Offer the archive a subset whose value is known, and return whether it was archived."""
        archived = self._put(S, self.values[S], self.iteration, event=False)
        self._accepted += archived
        return archived

    def counts(self) -> dict[str, int]:
        """Return counts of evaluations, of offspring with known values, and of archived offspring."""
        return {
            "evaluated": len(self.values),
            "recalled": max(self._offspring - len(self.values), 0),
            "accepted": self._accepted,
            "archive": len(self.archive),
        }

    @property
    def _by_index(self) -> bool:
        return self.schedule.order == "index"

    @property
    def completed(self) -> int:
        """Number of iterations that do not wait for a value."""
        return self.iteration if self._by_index else self.iteration - len({*self._out, *self._open} - {()})

    def finished(self) -> str | None:
        """Return "iterations" if all iterations are over, or a stopping rule has ended the search."""
        waits = not self._by_index and (self._submitted or self._open)
        return "iterations" if self._ended or (self.iteration >= self.limit and not waits) else None

    def ask(self, most: int, workers: int) -> Task | None:
        """Return subsets that need a value: at most `most`, and a worker's share of what there is or what is worth it.

        Return None if the next iterations need none, or wait for values that are out. A few that are quick to evaluate
        wait, too: they are sent with those that the next iterations draw. The draws do not depend on it.
        """
        least = most // _LEAST
        if self._by_index:
            self._draw()
            self._merge()
            self._open = [S for S in self._open if S not in self.values]
            if not self._share:
                self._share = math.ceil(len(self._open) / workers)
            rounds = bool(self.schedule.processors)
            if self._ended or (not rounds and self._out and len(self._open) < least):
                return None
            share = max(self._share if rounds else len(self._open) / (2 * workers), least)
            return self._next_task(max(min(most, math.ceil(share)), 1))
        size = min(most, max(most // 4, math.ceil((self.limit - self.iteration) / (2 * workers)), 1))
        # Subsets from the same archive cannot build on each other: those out are a fraction of those done.
        size = min(size, max(_FIRST_SUBSETS, self.iteration // (8 * workers)))
        self._draw_newest(size)
        return self._next_task(size)

    def _draw(self) -> None:
        """Draw the offspring of the iterations that may be out now, or a round if the one before is merged."""
        N = self.schedule.processors
        if N and self._window:
            return
        self._share = 0
        while len(self._window) < (N or self.schedule.in_flight):
            t = self.iteration + len(self._window)
            if t >= self.limit:
                return
            S = self._offspring_of(self._parent(t // self._size), t // self._size, t % self._size)
            self._window.append(S)
            if S is not None and S not in self.values and S not in self._out and S not in self._open:
                self._open.append(S)

    def _merge(self) -> None:
        """Offer offspring to the archive in their order, up to the first iteration or round that waits for a value.

        The archive after a round is that of section 3.4 of the paper, which compares offspring with the old archive and
        then the survivors with each other.
        """
        if self._needs_empty and () not in self.values:
            return
        for _ in range(_MOST_AT_ONCE):
            ready = list(islice(self._window, self._size))
            if self._ended or not ready or any(S is not None and S not in self.values for S in ready):
                return
            for S in ready:
                self._window.popleft()
                if S is not None:
                    self._offspring += 1
                    self._offer(S)
            self.iteration += self._size
            self._ended = self.stop.met(self, self.iteration, 0.0) is not None
            self._draw()

    def _draw_newest(self, size: int) -> None:
        """Draw offspring of the newest archive until enough of them need a value."""
        until = min(self.limit, self.iteration + _MOST_AT_ONCE)
        while len(self._open) < size and self.iteration < until:
            S = self._offspring_of(self._parent(self.iteration), self.iteration)
            self._offspring += S is not None
            if S is not None and S in self.values:
                if self._offer(S):  # an equal one had replaced it
                    self._events.append((S, self.values[S]))
            elif S is not None and S not in self._out and S not in self._open:
                self._open.append(S)
            self.iteration += 1

    def _next_task(self, size: int) -> Task | None:
        task = super()._next_task(size)
        if task is not None:
            self._out.update(task.payload)
        return task

    def tell(self, task: Task, result: TaskResult) -> None:
        """Store f of the task's subsets, or of the first ones, and merge the iterations that waited for them."""
        known = self._receive(task, result.found)
        if self._by_index:
            self._merge()
        else:
            for S in known:
                self._offer(S)

    def _receive(self, task: Task, values: Sequence[Any]) -> list[Subset]:
        self._out.difference_update(task.payload)
        return super()._receive(task, values)

    def recall(self, values: Mapping[Subset, float]) -> None:
        """Add known values, so that these subsets are not evaluated again."""
        for members, value in values.items():
            self.values.setdefault(members, value)
        if self._by_index:
            return
        for S in [S for S in self._open if S in self.values]:
            self._offer(S)
        self._open = [S for S in self._open if S not in self.values]

    def ask_for_empty(self) -> None:
        """Request the value of the empty set first, unless it is known. No iteration ends before it is."""
        self._needs_empty = True
        if () not in self.values and () not in self._open:
            self._open.insert(0, ())

    def start_from(self, values: Mapping[Subset, float], members: Sequence[Subset]) -> None:
        """Add the values that a warm start has found, and offer the archive its best subsets."""
        self.recall(values)
        for S in members:
            if len(S) < 2 * self.k:
                self._offer(S)

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it. None is +inf. Functions are not part of it.

        Subsets that are out are asked for again.
        """
        pending = [S for subsets in self._submitted.values() for S in subsets] + self._open
        drawn = self._window if self._by_index else pending
        rows = [None if S is None else list(S) for S in drawn]
        return {
            "k": self.k,
            "n": self.n,
            "seed": self.seed,
            "isolation": self.isolation if isinstance(self.isolation, str) else None,
            "iteration": self.iteration,
            "accepted": self._accepted,
            "offspring": self._offspring,
            "values": valued(self.values.items()),
            **self._archive_state(),
            "schedule": asdict(self.schedule),
            "drawn": rows,
        }

    @classmethod
    def restore(
        cls, state: dict[str, Any], stop: Stop, isolation: IsolationFunction | None = None, swaps: float = 0.0
    ) -> CriterionSearch:
        """Return the search of a saved state. isolation: the custom isolation function, if the search had one."""
        if (state["isolation"] is None) == (isolation is None):
            raise OptionError(
                f"The saved search has {'a custom' if isolation is None else 'no'} isolation function.",
                "Resume with the same options, or start a new search.",
            )
        search = cls(
            state["n"], state["k"], Schedule(**state["schedule"]), stop, seed=state["seed"],
            isolation=isolation or state["isolation"], swaps=swaps,
        )  # fmt: skip
        search._restore_archive(state)
        search.iteration, search._accepted, search._offspring = (
            state["iteration"],
            state["accepted"],
            state["offspring"],
        )
        search.values = {tuple(S): math.inf if f is None else f for S, f in state["values"]}
        drawn = [None if S is None else tuple(S) for S in state["drawn"]]
        if search._by_index:
            search._window = deque(drawn)
        search._open = list(dict.fromkeys(S for S in drawn if S is not None and S not in search.values))
        return search


def swapped(members: tuple[int, ...], n: int, leaving: float, entering: float) -> tuple[int, ...]:
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

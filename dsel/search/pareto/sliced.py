"""POSS and PPOSS by slices: the archive on the client, slices of iterations on any workers.

Slice q runs the iterations q L to (q + 1) L - 1 from the archive that slices 0 to q - W have left (W slices may be out
at the same time). Iteration t draws from (seed, t). W slices in a row divide the sizes of the parents among them: each
draws its parents from subsets of some sizes. Slices may end in any order; their solutions are offered to the archive in
the order of the slices. So the archive is a function of the problem, the seed, W and L. The number of workers, their
speed and interruptions have no part in it. With W = 1 the search is POSS, iteration by iteration.

In the order of arrival the search is PPOSS-asy (Qian et al., IJCAI 2016, end of section 3.4): a slice starts from the
newest archive, and its solutions are offered when it arrives. Then the result depends on the workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from dsel.objective.objective_interface import Objective
from dsel.objective.objective_on_workers import NeededInputs, PublishedInputs, RowPublisher
from dsel.search.anytime import Stop
from dsel.search.ask_tell import Task, TaskResult
from dsel.search.outcome import Improvement
from dsel.search.pareto.archive import ISOLATIONS, ClientArchive, Solutions, Subset, trace_rows
from dsel.search.pareto.archive_layout import size_limit
from dsel.search.pareto.slice_work import COUNTED, Slice, SliceResult, SliceRules
from dsel.search.runtime.schedule import Schedule


class SlicedSearch(ClientArchive):
    """The client's part of a search by slices, by ask and tell.

    Parameters
    ----------
    objective : Objective
        f(S) over n candidate columns.
    rules : SliceRules
        What defines the iterations.
    schedule : Schedule
        How many slices may be out at the same time, their length, and their order.
    stop : Stop
        Stopping rules; `iterations` is required. `target`, `patience` and `bound` are checked after each slice, in the
        order of the slices, so that they end every run at the same one.
    publisher : RowPublisher, optional
        Publishes the Gram rows that workers need, for an objective on demand.

    Attributes
    ----------
    iteration : int
        The iterations of the slices that are merged.
    """

    def __init__(
        self, objective: Objective, rules: SliceRules, schedule: Schedule, stop: Stop,
        publisher: RowPublisher | None = None,
    ) -> None:  # fmt: skip
        assert stop.iterations is not None
        whole = max(rules.processors, 1)  # rounds of PPOSS are not divided
        limit = size_limit(rules.k, objective.n, rules.any_size)
        super().__init__(rules.k, ISOLATIONS[rules.isolation], objective.c, limit)
        self.objective, self.rules, self.stop = objective, rules, stop
        self.schedule = replace(
            schedule, length=math.ceil(schedule.length / whole) * whole, processors=rules.processors
        )  # fmt: skip
        self.limit = max(stop.iterations // whole, 1) * whole
        self._merged = 0  # all slices before this one are
        self._snapshots: dict[int, Solutions] = {}
        self._arrived: dict[int, SliceResult | None] = {}  # None: merged before others that began earlier
        self._partial: dict[int, SliceResult] = {}
        self._publisher = publisher
        self._inputs: dict[int, PublishedInputs] = {}
        self._stalled: set[int] = set()
        self._out: dict[str, int] = {}
        self._counts = dict.fromkeys(COUNTED, 0)
        self._ended = False

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def _by_index(self) -> bool:
        return self.schedule.order == "index"

    def counts(self) -> dict[str, int]:
        """Return the counts of POSS, summed over the slices."""
        return {**self._counts, "archive": len(self.archive), "slices": self._merged}

    def offer(self, S: Iterable[int]) -> bool:
        """Offer the archive a subset from elsewhere before the first slice, and return whether it was archived."""
        assert not self._merged
        members = tuple(sorted({int(j) for j in S}))
        if self.objective.rank(members) < len(members):
            return False
        return self._put(members, self.objective.value(members), 0)

    @property
    def _slices(self) -> int:
        """The number of all slices."""
        return math.ceil(self.limit / self.schedule.length)

    def finished(self) -> str | None:
        """Return "iterations" if all slices are merged or a stopping rule has ended the search."""
        return "iterations" if self._ended or self._merged >= self._slices else None

    def ask(self, most: int, workers: int) -> Task | None:
        """Return the next slice that is not out, or None if its snapshot is not known yet. No argument matters."""
        if self._ended:
            return None
        q = self._next()
        if q is None and self._stalled:
            self._fetch()
            q = self._next()
        if q is None:
            return None
        part = self._slice(q)
        task = Task(self._next_key(), part, part.stop - part.start, (q,))
        self._out[task.key] = q
        return task

    def _next(self) -> int | None:
        """Return the first slice that can be sent now."""
        taken = {*self._out.values(), *self._arrived, *self._stalled}
        last = min(self._merged + self.schedule.in_flight, self._slices) if self._by_index else self._slices
        return next((q for q in range(self._merged, last) if q not in taken), None)

    def _fetch(self) -> None:
        """Fetch what the stalled slices need, together, so that there are few passes over the data."""
        assert self._publisher is not None
        stalled = sorted(self._stalled)
        needed = [self._partial[q].needed or NeededInputs() for q in stalled]
        for q, found in zip(stalled, self._publisher.fetch(needed), strict=True):
            self._inputs[q] = self._inputs[q].with_more(found) if q in self._inputs else found
        self._stalled.clear()

    def _slice(self, q: int) -> Slice:
        start, stop = q * self.schedule.length, min((q + 1) * self.schedule.length, self.limit)
        if not self._by_index and q not in self._partial:
            self._snapshots[q] = self._solutions()
        elif not self._snapshots:  # the first slices all start from the archive as it was offered
            self._snapshots = dict.fromkeys(range(self.schedule.in_flight), self._solutions())
        solutions = self._snapshots[q]
        if q in self._partial:
            start, solutions = self._partial[q].iteration, self._partial[q].solutions
        inputs = None
        if self._publisher is not None:
            inputs = replace(self._inputs.get(q, PublishedInputs(())), rows=self._publisher.rows)
        parents = self.schedule.parents(q, self.archive.k)
        return Slice(start, stop, solutions, target=self.stop.target, parents=parents, inputs=inputs)

    def tell(self, task: Task, result: TaskResult) -> None:
        """Merge the result of a slice, and those that waited for it, in the order of the slices."""
        q = self._out.pop(task.key)
        found = _joined(self._partial.pop(q, None), result.found)
        if not found.complete:
            self._partial[q] = found
            if found.needed is not None:
                self._stalled.add(q)
            return
        self._inputs.pop(q, None)
        if self._by_index:
            self._arrived[q] = found
        else:
            self._merge(q, found)
            self._arrived[q] = None
        while not self._ended and self._merged in self._arrived:
            waiting = self._arrived.pop(self._merged)
            if waiting is not None:
                self._merge(self._merged, waiting)
                self._snapshots[self._merged + self.schedule.in_flight] = self._solutions()
            self._merged += 1
            self._ended = self.stop.met(self, self.iteration, 0.0) is not None

    def _merge(self, q: int, result: SliceResult) -> None:
        """Offer the archive what a slice found."""
        start, known = q * self.schedule.length, set(self._snapshots.pop(q, ()))
        gains = [gain for gain in result.trace if gain.value < self.best_value]
        for solution in result.solutions:
            if solution not in known and self.archive.offer(*solution):
                self._events.append(solution)
        self.iteration += result.iteration - start
        for gain in gains:
            self._trace.append(gain if self._by_index else replace(gain, iteration=self.iteration))
            self.last_gain = self._trace[-1].iteration
        for name, count in result.counts.items():
            self._counts[name] += count

    def merge_rest(self) -> None:
        """Merge what slices have found so far, complete or not, because the time is over."""
        waiting = {**self._partial, **{q: found for q, found in self._arrived.items() if found is not None}}
        for q in sorted(waiting):
            self._merge(q, waiting[q])
        self._partial, self._arrived, self._ended = {}, {}, True

    def requeue(self, task: Task, suspect: bool) -> None:
        """Request a lost slice again."""
        del self._out[task.key]

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON values. Slices that are out are run again."""
        subsets: dict[tuple[Subset, float], int] = {}

        def places(solutions: Solutions) -> list[int]:
            return [subsets.setdefault(solution, len(subsets)) for solution in solutions]

        def row(found: SliceResult | None) -> list[Any] | None:
            if found is None:
                return None
            return [places(found.solutions), trace_rows(found.trace), found.iteration, found.counts, found.complete]

        return {
            "n": self.objective.n,
            "rules": asdict(self.rules),
            "schedule": asdict(self.schedule),
            "merged": self._merged,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "archive": places(self._solutions()),
            "snapshots": {str(q): places(solutions) for q, solutions in self._snapshots.items()},
            "slices": {str(q): row(found) for q, found in [*self._arrived.items(), *self._partial.items()]},
            "subsets": [[list(S), f] for S, f in subsets],
            "counts": self._counts,
            "trace": trace_rows(self._trace),
        }

    @classmethod
    def restore(
        cls, objective: Objective, state: dict[str, Any], stop: Stop, publisher: RowPublisher | None = None
    ) -> SlicedSearch:
        """Return the search of a saved state."""
        search = cls(objective, SliceRules(**state["rules"]), Schedule(**state["schedule"]), stop, publisher)
        subsets = [(tuple(S), f) for S, f in state["subsets"]]

        def solutions(places: list[int]) -> Solutions:
            return tuple(subsets[place] for place in places)

        for S, f in solutions(state["archive"]):
            search.archive.offer(S, f)
        search._merged, search.iteration, search.last_gain = state["merged"], state["iteration"], state["last_gain"]
        search._snapshots = {int(q): solutions(places) for q, places in state["snapshots"].items()}
        for q, row in state["slices"].items():
            if row is None:
                search._arrived[int(q)] = None
                continue
            places, trace, iteration, counts, complete = row
            gains = tuple(Improvement(*values) for values in trace)
            found = SliceResult(solutions(places), gains, iteration, counts, complete)
            if complete:
                search._arrived[int(q)] = found
            else:
                search._partial[int(q)] = found
        search._counts = dict(state["counts"])
        search._trace = [Improvement(*row) for row in state["trace"]]
        return search


def _joined(before: SliceResult | None, after: SliceResult) -> SliceResult:
    """Return what a slice found in two parts: its trace and counts are those of both."""
    if before is None:
        return after
    counts = {name: before.counts[name] + after.counts[name] for name in COUNTED}
    return replace(after, trace=(*before.trace, *after.trace), counts=counts)

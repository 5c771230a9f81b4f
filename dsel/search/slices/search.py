"""POSS and PPOSS by slices: the archive on the client, slices of iterations on any workers, the same bits.

Slice q runs the iterations q L to (q + 1) L - 1 from the archive that slices 0 to q - W have left (W slices may be out
at the same time). Iteration t draws from (seed, t). W slices in a row divide the sizes of the parents among them: each
draws its parents from subsets of some sizes. Slices may end in any order; their solutions are offered to the archive in
the order of the slices. So the archive is a function of the problem, the seed, W and L. The number of workers, their
speed and interruptions have no part in it. With W = 1 the search is POSS, iteration by iteration. With L = 1 slices
draw from all sizes, and it is PPOSS-asy (Qian et al., IJCAI 2016, end of section 3.4) on W processors of equal speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.objective.shared_rows import NeededInputs, PublishedInputs, RowPublisher
from dsel.search.anytime import Stop
from dsel.search.outcome import Improvement
from dsel.search.parallel.client_archive import ClientArchive, Solutions, trace_rows
from dsel.search.parallel.executor import Slice, Task
from dsel.search.pareto.archive import Subset
from dsel.search.slices.runner import COUNTED, SliceResult, SliceRules
from dsel.search.slices.size import SliceSize


class SlicedSearch(ClientArchive):
    """The client's part of a search by slices, by ask and tell.

    Parameters
    ----------
    objective : Objective
        f(S) over n candidate columns.
    rules : SliceRules
        What defines the iterations.
    size : SliceSize
        How many slices may be out at the same time, and their length.
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

    #: The division sets the length of a slice: the dispatcher's wish does not matter.
    first_units = 1

    def __init__(
        self, objective: Objective, rules: SliceRules, size: SliceSize, stop: Stop,
        publisher: RowPublisher | None = None,
    ) -> None:  # fmt: skip
        assert stop.iterations is not None
        whole = max(rules.processors, 1)  # rounds of PPOSS are not divided
        super().__init__(objective, rules.k, rules.isolation)
        self.rules, self.stop = rules, stop
        self.size = replace(size, iterations=math.ceil(size.iterations / whole) * whole)
        self.limit = max(stop.iterations // whole, 1) * whole
        self._merged = 0
        self._snapshots: dict[int, Solutions] = {}
        self._arrived: dict[int, SliceResult] = {}
        self._publisher = publisher
        self._partial: dict[int, SliceResult] = {}
        self._inputs: dict[int, PublishedInputs] = {}
        self._stalled: set[int] = set()
        self._out: dict[str, int] = {}
        self._counts = dict.fromkeys(COUNTED, 0)
        self._ended = False

    def counts(self) -> dict[str, int]:
        """Return the counts of POSS, summed over the slices; they do not depend on the workers."""
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
        return math.ceil(self.limit / self.size.iterations)

    def finished(self, limit: int) -> bool:
        """Return whether all slices are merged, or a stopping rule has ended the search."""
        return self._ended or self._merged >= self._slices

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Return the next slice that is not out, or None if its snapshot is not known yet. No argument matters."""
        if self._ended:
            return None
        q = self._next()
        if q is None and self._stalled:
            self._fetch()
            q = self._next()
        if q is None:
            return None
        task = Task(self._next_key(), self._slice(q))
        self._out[task.key] = q
        return task

    def _next(self) -> int | None:
        """Return the first slice that can be sent now."""
        taken = {*self._out.values(), *self._arrived, *self._stalled}
        window = range(self._merged, min(self._merged + self.size.slices, self._slices))
        return next((q for q in window if q not in taken), None)

    def _fetch(self) -> None:
        """Fetch what the stalled slices need, together, so that there are few passes over the data."""
        assert self._publisher is not None
        stalled = sorted(self._stalled)
        needed = [self._partial[q].needed or NeededInputs() for q in stalled]
        for q, found in zip(stalled, self._publisher.fetch(needed), strict=True):
            self._inputs[q] = self._inputs[q].with_more(found) if q in self._inputs else found
        self._stalled.clear()

    def _slice(self, q: int) -> Slice:
        start, stop = q * self.size.iterations, min((q + 1) * self.size.iterations, self.limit)
        if not self._snapshots:  # the first slices all start from the archive as it was offered
            self._snapshots = dict.fromkeys(range(self.size.slices), self._solutions())
        inputs = None if self._publisher is None else PublishedInputs(self._publisher.rows)
        solutions = self._snapshots[q]
        if q in self._partial:
            start, solutions = self._partial[q].iteration, self._partial[q].solutions
            inputs = replace(self._inputs[q], rows=self._publisher.rows) if self._publisher is not None else None
        parents = self.size.parents(q, self.k, self.size.iterations // max(self.rules.processors, 1))
        return Slice(start, stop, solutions, target=self.stop.target, parents=parents, inputs=inputs)

    def tell(self, task: Task, found: Sequence[SliceResult]) -> None:
        """Merge the result of a slice, and those that waited for it, in the order of the slices."""
        q, result = self._out.pop(task.key), found[0]
        if self._publisher is not None:
            result = _joined(self._partial.pop(q, None), result)
            if result.needed is not None:
                self._partial[q] = result
                self._stalled.add(q)
                return
            self._inputs.pop(q, None)
            known = {S for S, _ in self._snapshots[q]}
            result = replace(result, solutions=tuple(one for one in result.solutions if one[0] not in known))
        self._arrived[q] = result
        while not self._ended and self._merged in self._arrived:
            self._merge(self._arrived.pop(self._merged))

    def _merge(self, result: SliceResult) -> None:
        gains = [gain for gain in result.trace if gain.value < self.best_value]
        for S, f in result.solutions:
            if self.archive.offer(S, f):
                self._events.append((S, f))
        for gain in gains:
            self._trace.append(gain)
            self.last_gain = gain.iteration
        for name, count in result.counts.items():
            self._counts[name] += count
        self._snapshots.pop(self._merged, None)
        self._snapshots[self._merged + self.size.slices] = self._solutions()
        self._merged += 1
        self.iteration = result.iteration
        self._ended = self.stop.met(self, self.iteration, 0.0) is not None

    def requeue(self, task: Task, suspect: bool) -> None:
        """Request a lost slice again."""
        del self._out[task.key]

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON values. Slices that are out are run again."""
        subsets: dict[tuple[Subset, float], int] = {}

        def places(solutions: Solutions) -> list[int]:
            return [subsets.setdefault(one, len(subsets)) for one in solutions]

        snapshots = {str(q): places(solutions) for q, solutions in self._snapshots.items()}
        arrived = {
            str(q): [places(r.solutions), trace_rows(r.trace), r.iteration, r.counts] for q, r in self._arrived.items()
        }
        return {
            "n": self.objective.n,
            "k": self.k,
            "seed": self.rules.seed,
            "isolation": self.rules.isolation,
            "exchange_every": self.rules.exchange_every,
            "processors": self.rules.processors,
            "slices": self.size.slices,
            "slice_iterations": self.size.iterations,
            "merged": self._merged,
            "iteration": self.iteration,
            "last_gain": self.last_gain,
            "archive": places(self._solutions()),
            "snapshots": snapshots,
            "arrived": arrived,
            "subsets": [[list(S), f] for S, f in subsets],
            "counts": self._counts,
            "trace": trace_rows(self._trace),
        }

    @classmethod
    def restore(
        cls, objective: Objective, state: dict[str, Any], stop: Stop, publisher: RowPublisher | None = None
    ) -> SlicedSearch:
        """Return the search of a saved state."""
        if state["n"] != objective.n:
            raise OptionError(
                f"The saved search is over {state['n']} columns, the objective over {objective.n}.",
                "Resume with the same data and options, or start a new search.",
            )
        settings = {key: state[key] for key in ("k", "seed", "isolation", "exchange_every", "processors")}
        size = SliceSize(state["slices"], state["slice_iterations"])
        search = cls(objective, SliceRules(**settings), size, stop, publisher)
        subsets = [(tuple(S), f) for S, f in state["subsets"]]

        def solutions(places: list[int]) -> Solutions:
            return tuple(subsets[place] for place in places)

        for S, f in solutions(state["archive"]):
            search.archive.offer(S, f)
        search._merged, search.iteration, search.last_gain = state["merged"], state["iteration"], state["last_gain"]
        search._snapshots = {int(q): solutions(places) for q, places in state["snapshots"].items()}
        search._arrived = {
            int(q): SliceResult(solutions(places), tuple(Improvement(*row) for row in trace), iteration, counts)
            for q, (places, trace, iteration, counts) in state["arrived"].items()
        }
        search._counts = dict(state["counts"])
        search._trace = [Improvement(*row) for row in state["trace"]]
        return search


def _joined(before: SliceResult | None, after: SliceResult) -> SliceResult:
    """Return what a slice found in two parts: its trace and counts are those of both."""
    if before is None:
        return after
    counts = {name: before.counts[name] + after.counts[name] for name in COUNTED}
    return replace(after, trace=(*before.trace, *after.trace), counts=counts)

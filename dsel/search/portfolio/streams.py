"""The searches of a portfolio, by ask and tell, on any number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.ask_tell import Task, TaskResult
from dsel.search.exact.exact_search import check_saved
from dsel.search.pareto.archive import ISOLATIONS, ClientArchive, Solutions, Subset
from dsel.search.pareto.compiled import paper_iterations
from dsel.search.pareto.options import default_interval
from dsel.search.portfolio.steps import Kind, Step, exchange_interval
from dsel.search.runtime.schedule import iteration_seconds

#: The searches: tabu search by swaps; a Pareto search with an exchange search every 10 iterations, which is iterated
#: local search; and a Pareto search with the default interval.
STREAMS: tuple[Kind, ...] = ("swaps", "exchange", "poss")
#: Seconds of a move of tabu search on the reference core, for each column and member.
_MOVE_SECONDS = 3.5e-9
#: Without a time limit, the steps that each stream takes. After each round of steps the streams share what they found.
ROUNDS = 4
#: With a time limit, the seconds of a step at most, the least number of steps, and how long the last ones may be late.
_STEP_SECONDS, _LEAST_STEPS, _GRACE = 0.25, 12, 1.0
#: The first iterations of two steps differ by at least this, so that all random numbers differ.
_APART = 1 << 40


def step_iterations(kind: Kind, k: int, n: int) -> int:
    """Return the iterations or moves of a step without a time limit, so that the steps of all streams take as long.

    All steps of the stream "poss" make T = floor(2 e k^2 n) iterations. Times are those of one target.
    """
    seconds = paper_iterations(k, n) * iteration_seconds(n, k, 1, default_interval(n, k)) / ROUNDS
    each = _MOVE_SECONDS * n * k if kind == "swaps" else iteration_seconds(n, k, 1, exchange_interval(kind, n, k))
    return max(int(seconds / each), 1)


class PortfolioSearch(ClientArchive):
    """Tabu search by swaps, and Pareto searches with different numbers of exchange searches, which share their archive.

    Parameters
    ----------
    objective : Objective
        f(S) over n columns.
    k : int
        The size limit.
    deadline : Deadline
        Ends the search. Without a limit it takes `ROUNDS` steps of every stream. They merge in a fixed order, so the
        result is the same on any number of workers.
    """

    def __init__(self, objective: Objective, k: int, deadline: Deadline) -> None:
        super().__init__(k, ISOLATIONS["none"], objective.c)
        self.objective = objective
        self.deadline, self.limit = deadline, ROUNDS * len(STREAMS)
        self._taken = 0
        self._out: dict[str, Step] = {}
        self._again: list[Step] = []
        self._round: dict[int, Sequence[tuple[Subset, float]]] = {}
        self._snapshot: Solutions = ()

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    @property
    def timed(self) -> bool:
        """Whether a time limit ends the search."""
        return self.deadline.seconds is not None

    @property
    def best(self) -> Subset:
        """The best subset of at most k columns so far."""
        return min((p for p in self.front() if p.size <= self.k), key=lambda p: (p.value, p.size)).members

    @property
    def completed(self) -> int:
        """Number of steps whose outcome is known."""
        return self._taken

    def counts(self) -> dict[str, Any]:
        """Return the number of steps and the size of the archive."""
        return {"steps": self.evaluations, "archive": len(self.archive)}

    def offer(self, S: Iterable[int], value: float | None = None) -> bool:
        """Offer a subset to the shared archive, and return whether it was archived."""
        members = tuple(sorted(int(j) for j in S))
        if not 0 < len(members) < 2 * self.k:
            return False
        value = self.objective.value(members) if value is None else value
        return self._put(members, value, self.evaluations)

    def finished(self) -> str | None:
        """Return "iterations" if no step is left to take or wait for."""
        if self.timed and self.deadline.passed:
            over = not self._out or self.deadline.overdue > _GRACE
        else:
            over = self.evaluations >= self.limit
        return "iterations" if over else None

    def ask(self, most: int, workers: int) -> Task | None:
        """Return the next step, or None if there is none before others arrive."""
        if self.timed and self.deadline.passed:
            return None
        new_round = self.iteration % len(STREAMS) == 0
        if self._again:
            step = self._again.pop(0)
        elif self.iteration >= self.limit or (not self.timed and new_round and self.evaluations < self.iteration):
            return None  # without a time limit the streams wait for each other
        else:
            if self.timed or new_round:
                self._snapshot = self._solutions()
            step = self._next_step()
        task = Task(self._next_key(), step, items=(step.start,))
        self._out[task.key] = step
        return task

    def _next_step(self) -> Step:
        number = self.iteration
        stream = self._free_stream(number) if self.timed else number % len(STREAMS)
        kind = STREAMS[stream % len(STREAMS)]
        left = self.deadline.left
        self.iteration += 1
        return Step(
            number, self._snapshot, stream, kind, number * _APART,
            _APART if self.timed else step_iterations(kind, self.k, self.objective.n),
            None if left is None else min(_STEP_SECONDS, (self.deadline.seconds or left) / _LEAST_STEPS, left),
        )  # fmt: skip

    def _free_stream(self, number: int) -> int:
        """Return the next stream that is not at work; with many workers there are more than `STREAMS`."""
        busy = {step.stream for step in self._out.values()}
        stream = number % len(STREAMS)
        while stream in busy:
            stream += 1
        return stream

    def tell(self, task: Task, result: TaskResult) -> None:
        """Offer what a step found; without a time limit only when its round is complete, in the order of steps."""
        step, found = self._out.pop(task.key), result.found
        if self.timed:
            self._taken += 1
            self._merge(found)
            return
        self._round[step.start] = found
        if len(self._round) == len(STREAMS):
            self._taken += len(STREAMS)
            for number in sorted(self._round):
                self._merge(self._round[number])
            self._round.clear()

    def _merge(self, found: Sequence[tuple[Subset, float]]) -> None:
        for S, value in found:
            self.offer(S, value)

    def requeue(self, task: Task, suspect: bool) -> None:
        """Take the step of a lost task again."""
        self._again.append(self._out.pop(task.key))

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON values. Steps that are out are taken again."""
        return {"k": self.k, "n": self.objective.n, "iteration": self.evaluations, **self._archive_state()}

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], deadline: Deadline) -> PortfolioSearch:
        """Return the search of a saved state."""
        check_saved(objective, state)
        search = cls(objective, state["k"], deadline)
        search._restore_archive(state)
        search.iteration = search._taken = state["iteration"]
        return search

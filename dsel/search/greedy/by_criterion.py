"""Forward selection, exchange search and splicing with any criterion f(S), whose subsets workers evaluate.

Each method is a generator. It yields the subsets whose values it needs next, and is sent these values. Nothing else
decides its course. So the values that are known are all that a restart needs: with them it runs through the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dsel._lib.rng import permutation
from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, Task, TaskResult
from dsel.search.journal import columns_of, found_in, journalled_values, valued
from dsel.search.method import ProblemSummary, SearchTask
from dsel.search.outcome import SearchOutcome, check_size
from dsel.search.pareto.archive import ISOLATIONS, Subset
from dsel.search.pareto.evaluations import EvaluatedSearch, EvaluateSubsets
from dsel.search.placement import HERE, Placement, Site
from dsel.search.runtime.dispatcher import NO_LIMIT, Dispatcher

#: What a method is: subsets that need values, one batch after another.
Steps = Generator[list[Subset], list[float], None]


def with_column(S: Subset, j: int) -> Subset:
    """Return the subset with one more column."""
    return tuple(sorted((*S, j)))


def without_column(S: Subset, j: int) -> Subset:
    """Return the subset without one of its columns."""
    return tuple(i for i in S if i != j)


def _best(batch: Sequence[Subset], values: Sequence[float]) -> tuple[Subset, float]:
    """Return the subset of least value, the first of equal ones."""
    place = min(range(len(values)), key=values.__getitem__)
    return batch[place], values[place]


def _larger(S: Subset, n: int) -> list[Subset]:
    return [with_column(S, j) for j in range(n) if j not in S]


def forward_steps(n: int, k: int) -> Generator[list[Subset], list[float], Subset]:
    """Insert the column of least criterion, k times, also where the criterion rises: later columns may lower it.

    n values for each column. It returns the last subset, and ends before where every insertion has the value +inf.
    """
    S: Subset = ()
    while len(S) < min(k, n):
        batch = _larger(S, n)
        values = yield batch
        if min(values) == math.inf:
            break
        S, _ = _best(batch, values)
    return S


def exchange_steps(n: int, k: int, seed: int = 0, restarts: int = 1, start: str = "random") -> Steps:
    """Replace each member by the best other column until none helps. A sweep takes k (n - k) values."""
    for restart in range(restarts if start == "random" else 1):
        if start == "random":
            S = tuple(sorted(int(j) for j in permutation(seed, restart, 0, n)[:k]))
        else:
            S = yield from forward_steps(n, k)
        if not S:
            return
        (value,) = yield [S]
        improved = True
        while improved:
            improved = False
            for member in S:
                rest = without_column(S, member)
                batch = [with_column(rest, j) for j in range(n) if j not in S]
                if not batch:
                    continue
                values = yield batch
                other, least = _best(batch, values)
                if least < value:
                    S, value, improved = other, least, True


def splicing_steps(n: int, k: int, max_exchange: int) -> Steps:
    """Exchange the least important members for the most important other columns, for each size up to k.

    A visit takes n values, which order the columns, and one for each number of exchanged columns.
    """
    S: Subset = ()
    while len(S) < min(k, n):
        batch = _larger(S, n)
        values = yield batch
        if min(values) == math.inf:
            return
        S, value = _best(batch, values)
        while len(S) < n:
            smaller, larger = [without_column(S, j) for j in S], _larger(S, n)
            smaller = [rest for rest in smaller if rest]  # the empty set has no value
            values = yield [*smaller, *larger]
            of_rest = dict(zip(smaller, values, strict=False))
            least = sorted(S, key=lambda j: of_rest.get(without_column(S, j), 0.0))
            others = [j for j in range(n) if j not in S]
            gains = dict(zip(others, values[len(smaller) :], strict=True))
            most = sorted(others, key=gains.__getitem__)
            counts = range(1, min(len(S), len(others), max_exchange) + 1)
            spliced = [tuple(sorted({*S} - {*least[:c]} | {*most[:c]})) for c in counts]
            values = yield spliced
            other, lowest = _best(spliced, values)
            if not lowest < value:
                break
            S, value = other, lowest


def _after_included(steps: Generator[list[Subset], list[float], Any]) -> Steps:
    """Evaluate the included columns alone, which are the empty subset here, and then what a method needs."""
    yield [()]
    yield from steps


class BatchSearch(EvaluatedSearch):
    """A search by batches of subsets, by ask and tell.

    Parameters
    ----------
    k : int
        The size limit.
    steps : generator
        The method.
    """

    def __init__(self, k: int, steps: Generator[list[Subset], list[float], Any]) -> None:
        super().__init__(k, ISOLATIONS["none"])
        self._steps = steps
        self._recalled = 0
        self._batch: list[Subset] | None = next(steps, None)
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._open = [S for S in dict.fromkeys(self._batch or ()) if S not in self.values]

    def _advance(self) -> None:
        """Send the method the values of its batch, and of each next one that is known already."""
        while self._batch is not None and all(S in self.values for S in self._batch):
            self.iteration += 1
            values = [self.values[S] for S in self._batch]
            for S, value in zip(self._batch, values, strict=True):
                self._put(S, value, self.iteration, event=False)
            self._recalled += len(values)
            try:
                self._batch = self._steps.send(values)
            except StopIteration:
                self._batch = None
            self._begin_batch()

    def recall(self, values: Mapping[Subset, float]) -> None:
        """Add known values, so that these subsets are not evaluated again."""
        self.values.update({S: value for S, value in values.items() if S not in self.values})
        self._advance()
        self._open = [S for S in self._open if S not in self.values]

    def ask(self, most: int, workers: int) -> Task | None:
        """Return at most `most` subsets of the batch, and at most a worker's share; a suspect subset alone."""
        return self._next_task(max(1, min(most, math.ceil(len(self._open) / workers))))

    def tell(self, task: Task, result: TaskResult) -> None:
        """Store f of the task's subsets, or of the first ones, and continue if the batch is complete."""
        self._receive(task, result.found)
        self._advance()

    def finished(self) -> str | None:
        """Return "complete" after the last step."""
        return "complete" if self._batch is None else None

    def counts(self) -> dict[str, int]:
        """Return how many values are known, and how often one was known already when it was needed."""
        return {"evaluated": len(self.values), "recalled": max(self._recalled - len(self.values), 0)}

    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, as JSON holds it: the known values."""
        return {"values": valued(self.values.items())}


#: A method as a function of n, k, and its options by name.
StepsOf = Callable[..., Generator[list[Subset], list[float], Any]]

#: The key of a checkpoint of `BatchSearch`, which other searches with values have, too.
_VALUES: Final = "values"


def known_values(task: SearchTask) -> dict[Subset, float]:
    """Return the values in the checkpoint and the journal of an interrupted run."""
    known: dict[Subset, float] = {}
    if task.state is not None:
        known.update(found_in({"found": task.state.get(_VALUES, [])}))
    if task.journal is not None:
        known.update(journalled_values(task.journal.path))
    return known


def run_steps(
    task: SearchTask, steps: StepsOf, seconds: float | None = None, **arguments: Any
) -> tuple[BatchSearch, dict[str, Any]]:
    """Run a method on the executor of a task, and return its search and its dispatcher's counts.

    seconds: a time limit. What ends the run is the item "ended" of the counts.
    """
    objective, items = task.objective, task.subject
    check_size(task.k, items.n)
    of_method = steps(items.n, task.k, **arguments)
    search = BatchSearch(task.k, _after_included(of_method) if task.always else of_method)
    search.recall(known_values(task))
    if task.journal is not None:
        event = "started" if task.state is None else "resumed"
        described = columns_of(objective, task.k)
        task.journal.write(event, iterations=search.iteration, solutions=search.archive.state(), **described)
    options = task.options
    limits = ExecutorOptions(getattr(options, "evaluation_limit", None), getattr(options, "processes", 1))
    stop = Stop(NO_LIMIT, seconds)
    executor = task.executor(EvaluateSubsets.of_task(task), limits)
    dispatcher = Dispatcher(search, executor, stop, task.journal, in_data=task.in_data)
    ended = dispatcher.run(task.on_slice)
    futures = dispatcher.stats.tasks if task.on_workers else 0
    return search, {**dispatcher.stats.counts(), "futures": futures, "ended": ended}


def run_by_criterion(task: SearchTask, steps: StepsOf, **arguments: Any) -> SearchOutcome:
    """Return the outcome of a method by the criterion of a task. The front has the best evaluated subsets."""
    search, counts = run_steps(task, steps, **arguments)
    ended = counts.pop("ended")
    front = search.front()
    items = task.subject
    return SearchOutcome(
        tuple(replace(point, members=items.members(point.members)) for point in front), search.trace, search.iteration,
        ended, {**search.counts(), **counts},
    )  # fmt: skip


#: Where a method runs: a function of the problem, its options and the site.
PlaceOf = Callable[[ProblemSummary, Any, Site], Placement]


def place(problem: ProblemSummary, options: Any, site: Site, squared: PlaceOf | None = None) -> Placement:
    """Return where a method runs: with a criterion on the workers, if there are any, and else in this process.

    squared: where it runs by the squared error, if its time is known.
    """
    if squared is not None and not problem.criterion:
        return squared(problem, options, site)
    if not (problem.criterion and site.cluster):
        return HERE
    _, n = problem.to_choose
    return Placement("workers", f"batches of up to {n} evaluations", tasks=max(n, 1))

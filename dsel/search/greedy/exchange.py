"""Exchange search: replace one column by the best other one, until no single replacement helps.

Source: IterFS of Ordozgoiti, Gomez Canaval, Mozo, "A fast iterative algorithm for improved unsupervised
feature selection", ICDM 2016, there for Y = X.

Polish the answer of any method: exchange its columns until no single exchange lowers the error.

Source: IterFS of Ordozgoiti, Gomez Canaval, Mozo, "A fast iterative algorithm for improved unsupervised feature
selection", ICDM 2016, started from the answer in place of a random subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from dsel._lib.rng import permutation
from dsel.config.types import Int
from dsel.errors import OptionError
from dsel.objective.base import ItemObjective, ItemState
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline
from dsel.search.greedy.forward import forward
from dsel.search.greedy.path import NO_GAIN, Path, best_replacement, largest, rebuilt
from dsel.search.method import Method, Options, SearchTask
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, check_size, improving

Start = Literal["random", "forward"]


def exchange(
    objective: ItemObjective, k: int, seed: int = 0, restarts: int = 1, start: Start = "random",
    deadline: Deadline | None = None,
) -> SearchOutcome:  # fmt: skip
    """Return the best of some local optima of size k, or smaller where fewer columns are independent.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The size.
    seed : int
        The seed of the random starts.
    restarts : int
        How many random starts there are.
    start : {"random", "forward"}
        Start from k random columns, or once from the columns of forward selection.
    deadline : Deadline, optional
        When the search ends with what it has.

    Returns
    -------
    SearchOutcome
        The trace counts sweeps. A sweep over all members costs O(n k^2).
    """
    check_size(k, objective.n)
    if start not in ("random", "forward") or restarts < 1:
        raise OptionError(f"start is {start!r}, restarts {restarts}.", "'random' or 'forward'; 1 restart or more.")
    path = Path(objective)
    exchanges = 0
    deadline = deadline or Deadline(None)
    for restart in range(restarts if start == "random" else 1):
        if restart and deadline.passed:
            break
        if start == "random":
            first: Sequence[int] = [int(j) for j in permutation(seed, restart, 0, objective.n)]
        else:
            first = objective.within(forward(objective, k).best(k).members)
        exchanges += local_optimum(objective, k, first, path, deadline)
    return path.outcome(exchanges=exchanges)


def local_optimum(
    objective: ItemObjective, k: int, first: Sequence[int], path: Path, deadline: Deadline | None = None
) -> int:
    """Sweep from the first k independent columns of `first` to a local optimum, and return the number of exchanges.

    The subset after each sweep is added to the path. After the deadline no more members are exchanged.
    """
    deadline = deadline or Deadline(None)
    solution = rebuilt(objective, k, first)
    made, value = 0, solution.value
    while True:
        exchanged = _sweep(solution, path, deadline)
        made += exchanged
        path.steps += 1
        path.add(sorted(solution.members))
        solution = rebuilt(objective, k, solution.members)
        improved = exchanged > 0 and solution.value < value  # near dependence a sweep may go round in circles
        if not improved or deadline.passed:
            return made
        value = solution.value


def _sweep(solution: ItemState, path: Path, deadline: Deadline) -> int:
    """Insert columns up to the limit, then exchange each member once for the best other column if that lowers f.

    After the deadline no more members are exchanged.
    """
    made, least = 0, NO_GAIN * solution.objective.total
    while solution.size < solution.limit and (gains := solution.gains()).max() > least:
        if not solution.insert(largest(gains)):
            break
        made += 1
    for i in solution.members:
        if deadline.passed:
            break
        j = best_replacement(solution, i, solution.value, path)
        if j is not None and solution.insert(j):
            made += 1
        else:
            solution.insert(i)
    return made


class ExchangeOptions(Options):
    """Options of exchange search (IterFS).

    Parameters
    ----------
    restarts : int
        How many random subsets the search starts from.
    start : {"random", "forward"}
        Whether it starts from random subsets, or once from the subset of forward selection.
    """

    restarts: Int = Field(1, ge=1)
    start: Start = "random"


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels(deletes=True)
    return exchange(task.subject, task.k, task.seed, task.options.restarts, task.options.start)


METHOD = Method(
    "exchange",
    "Replace one column by a better one until none helps (IterFS).",
    run,
    options=ExchangeOptions,
    takes_groups=True,
)


def polish(objective: ItemObjective, k: int, outcome: SearchOutcome, deadline: Deadline | None = None) -> SearchOutcome:
    """Return an outcome with local optima under exchanges in place of its subsets. None of them gets worse.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The size limit. The best subset of at most k items is filled up to k first. The subsets of other sizes keep
        their sizes. They are polished only where the Gram matrix is in memory.
    outcome : SearchOutcome
        What a method found.
    deadline : Deadline, optional
        When the polish ends with what it has.

    Returns
    -------
    SearchOutcome
        `counts` has the number of exchanges as "polished". A sweep over a subset costs O(n k^2).
    """
    best, path, exchanges = outcome.best(k), Path(objective), 0
    asked = [(k, best)]
    if objective.has_gram:
        asked += [(point.size, point) for point in outcome.front if 0 < point.size < k and point is not best]
    load_subset_kernels(deletes=True)
    for limit, point in asked:
        if deadline is None or not deadline.passed:
            exchanges += local_optimum(objective, limit, objective.within(point.members), path, deadline)
    front = improving([*outcome.front, *path.points])
    result = replace(outcome, front=front, counts={**outcome.counts, "polished": exchanges})
    return _traced(result, best, result.best(k))


def _traced(outcome: SearchOutcome, before: FrontPoint, after: FrontPoint) -> SearchOutcome:
    """Return the outcome with the improvement of its best subset in its trace."""
    if not after.value < before.value:
        return outcome
    return replace(outcome, trace=(*outcome.trace, Improvement(outcome.iterations, after.size, after.value)))

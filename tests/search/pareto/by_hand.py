"""Pareto searches on a criterion, asked and told by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dsel.search.anytime import Stop
from dsel.search.ask_tell import Task, TaskResult
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.runtime.schedule import Schedule

N_COLUMNS, K = 12, 3
WEIGHTS = np.random.default_rng(0).uniform(1.0, 2.0, N_COLUMNS)
NO_LIMIT = 10**9


def cover(S: Subset) -> float:
    return float(20.0 - sum(WEIGHTS[list(S)]) + 0.3 * sum(a + 1 == b for a, b in pairwise(S)))


def tied(S: Subset) -> float:
    """With few values, as an accuracy has."""
    return float(round(cover(S)))


def search_of(
    n: int = N_COLUMNS, k: int = K, T: int = NO_LIMIT, stop: Stop | None = None, **more: Any
) -> CriterionSearch:
    """Return a search; `more` has fields of `Schedule`, and options of the search."""
    fields = {name: more.pop(name) for name in ("in_flight", "processors", "order") if name in more}
    return CriterionSearch(n, k, Schedule(**fields), stop or Stop(iterations=T), **more)


def again(search: CriterionSearch, state: dict[str, Any], own: Any = None) -> CriterionSearch:
    """Return the search of a saved state."""
    return CriterionSearch.restore(state, search.stop, own)


def answer(search: CriterionSearch, task: Task, values: Sequence[float]) -> None:
    """Tell a search the values of a task's subsets, or of the first ones."""
    search.tell(task, TaskResult(tuple(values), 0.0, units=len(values)))


def advance(
    search: CriterionSearch, until: int, f: Callable[[Subset], Any] = cover, most: int = 3, workers: int = 2
) -> list[Subset]:
    """Continue to iteration `until`: answer whatever is asked, and return the subsets in the order asked."""
    size = max(search.schedule.processors, 1)
    search.limit = max(until // size, 1) * size
    asked: list[Subset] = []
    while not search.finished():
        task = search.ask(most, workers)
        if task is not None:
            asked += task.payload
            answer(search, task, [f(S) for S in task.payload])
    return asked


def all_of(search: CriterionSearch) -> tuple[object, ...]:
    return search.archived, search.trace, search.iteration, search.last_gain, search.counts()

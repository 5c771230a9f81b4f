"""POSS and POCSS as a method: Pareto optimization of (f(S), |S|)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from dsel.config.types import Int
from dsel.search.anytime import drive
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.forward import forward
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.grouped.poss import run_poss
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.parallel.worker_tasks import bind
from dsel.search.pareto.criterion import Criterion, CriterionPoss
from dsel.search.pareto.options import ArchiveOptions, needs_no_function
from dsel.search.pareto.search import Poss, load_pareto_kernels


class PossOptions(ArchiveOptions):
    """Options of POSS and POCSS. The defaults are the papers'.

    A custom criterion or isolation function is called in this process for each subset. `warm_start` and
    `exchange_every` cannot be combined with one.

    Parameters
    ----------
    warm_start : {"none", "forward", "exchange"}
        What the archive is offered first: the path of forward selection, or the best result of exchange search, which
        finds what flips of single bits take long to find.
    restarts : int
        Random starts of the exchange search of `warm_start`.
    exchange_every : int
        Iterations between two exchange searches from a perturbed archived subset; 0 for never.
    """

    warm_start: Literal["none", "forward", "exchange"] = "none"
    restarts: Int = Field(10, ge=1)
    exchange_every: Int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _without_recombination(cls, values: Any) -> Any:
        if isinstance(values, dict) and "recombination" in values:
            raise ValueError("recombination was removed: exchange_every brings more")
        return values

    def conflict(self, criterion: bool) -> str:
        asked = {"warm_start": self.warm_start != "none", "exchange_every": self.exchange_every > 0}
        if "restarts" in self.model_fields_set and self.warm_start != "exchange":
            return "restarts: only with warm_start: exchange"
        extras = [name for name, is_asked in asked.items() if is_asked and self.calls_function(criterion)]
        return needs_no_function(", ".join(extras)) if extras else super().conflict(criterion)

    def conflict_with_groups(self) -> str:
        asked = {"warm_start": self.warm_start != "none", "exchange_every": self.exchange_every > 0}
        extras = ", ".join(name for name, is_asked in asked.items() if is_asked)
        return f"{extras} cannot be used for groups of columns" if extras else ""


def requirements(problem: ProblemSummary, options: PossOptions) -> Requirements:
    """Return what POSS needs: the whole Gram matrix only for exchange searches and a custom isolation function."""
    found = options.requirements(problem)
    if not options.exchange_every:
        return replace(found, iterations=options.known_iterations(problem))
    return replace(found, whole_gram=True)


def run(task: SearchTask) -> SearchOutcome:
    """Run POSS to its end."""
    if task.groups is not None:
        return run_poss(task, GroupedObjective(task.objective, task.groups))
    search = _criterion_search(task) if task.options.calls_function(task.criterion is not None) else _search(task)
    ended = drive(search, task.options.stop(task.k, task.objective), task.on_slice)
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, dict(search.counts()))


def _search(task: SearchTask) -> Poss:
    """Return the compiled search on the quadratic objective, ready to advance."""
    objective, options = task.objective, task.options
    load_pareto_kernels(objective, options.exchange_every)
    if task.state is not None:
        search = Poss.restore(objective, task.state, options.memory)
    else:
        search = Poss(
            objective, task.k, seed=task.seed, isolation=options.isolation, exchange_every=options.exchange_every,
            memory_limit=options.memory,
        )  # fmt: skip
        warm_start(search, options.warm_start, options.restarts, task.seed)
    search.warm_up()
    return search


def _criterion_search(task: SearchTask) -> CriterionPoss:
    """Return the search on a Python function: the user's criterion, or f under the user's isolation function."""
    objective, options = task.objective, task.options

    def of_data_columns(function: Criterion) -> Criterion:
        return lambda S: function(tuple(sorted(objective.in_data(S))))

    criterion: Criterion = objective.value
    if task.criterion is not None:
        criterion = of_data_columns(bind(task.criterion, task.data))
    isolation = of_data_columns(options.isolation) if callable(options.isolation) else options.isolation
    if task.state is not None:
        return CriterionPoss.restore(criterion, task.state, isolation if callable(isolation) else None)
    return CriterionPoss(criterion, objective.n, task.k, seed=task.seed, isolation=isolation)


def warm_start(search: Poss, source: str, restarts: int = 10, seed: int = 0) -> None:
    """Offer the archive what forward selection (up to 2k - 1 columns) or exchange search finds."""
    objective, k = search.objective, search.k
    if source == "forward":
        points = forward(objective, min(2 * k - 1, objective.n)).front
    elif source == "exchange":
        points = exchange(objective, k, seed=seed, restarts=restarts).front
    else:
        return
    for point in points:
        if point.size:
            search.offer(point.members)


METHOD = Method(
    "poss",
    "Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X).",
    run,
    options=PossOptions,
    requirements=requirements,
    resumable=True,
    takes_criterion=True,
    every_size=True,
    takes_groups=True,
)

"""POSS and POCSS as a method: Pareto optimization of (f(S), |S|)."""

from __future__ import annotations

from dataclasses import replace

from dsel.objective.groups import GroupedObjective
from dsel.search.anytime import Stop, drive
from dsel.search.grouped.poss import run_poss
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.parallel.worker_tasks import bind
from dsel.search.pareto.criterion import Criterion, CriterionPoss
from dsel.search.pareto.search import Poss, load_pareto_kernels
from dsel.search.pareto.warm_start import warm_start
from dsel.search.slices.options import SliceOptions, place_iterations
from dsel.search.slices.run import is_sliced, run_by_slices, run_overlapping


class PossOptions(SliceOptions):
    """Options of POSS and POCSS.

    `warm_start` and `exchange_every` cannot be combined with a custom criterion or isolation function.
    """

    def conflict_with_groups(self) -> str:
        extras = self._asked_extras() or ("swaps" if self.swaps else "")
        return f"{extras} cannot be used for groups of columns" if extras else super().conflict_with_groups()


def requirements(problem: ProblemSummary, options: PossOptions) -> Requirements:
    """Return what POSS needs: the whole Gram matrix only where exchange searches are asked, or a custom isolation."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


def run(task: SearchTask) -> SearchOutcome:
    """Run POSS to its end."""
    if task.groups is not None:
        return run_poss(task, GroupedObjective(task.objective, task.groups))
    function = task.options.calls_function(task.criterion is not None)
    if is_sliced(task):
        return run_overlapping(task) if function else run_by_slices(task)
    stop, notes = task.options.stop(task.k, task.objective), task.options.notes(task.objective)
    search: Poss | CriterionPoss
    if function:
        search, notes = _criterion_search(task), ()
    else:
        search, stop = _search(task, stop)
    ended = drive(search, stop, task.on_slice)
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, dict(search.counts()), notes=notes)


def _search(task: SearchTask, stop: Stop) -> tuple[Poss, Stop]:
    """Return the compiled search on the quadratic objective, ready to advance, and the rules for the time left."""
    objective, options = task.objective, task.options
    every = options.exchange_interval(objective.n, task.k, objective.has_gram)
    load_pareto_kernels(objective, every)
    if task.state is not None:
        search = Poss.restore(objective, task.state, options.memory)
    else:
        search = Poss(
            objective, task.k, seed=task.seed, isolation=options.isolation, exchange_every=every,
            memory_limit=options.memory,
        )  # fmt: skip
    search.warm_up()
    return search, stop if task.state is not None else warm_start(search, options, task.seed, stop, task.start)


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
        search = CriterionPoss.restore(criterion, task.state, isolation if callable(isolation) else None)
    else:
        search = CriterionPoss(criterion, objective.n, task.k, seed=task.seed, isolation=isolation)
    search.swaps = options.swaps
    return search


METHOD = Method(
    "poss",
    "Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X).",
    run,
    options=PossOptions,
    requirements=requirements,
    place=place_iterations,
    resumable=True,
    takes_criterion=True,
    every_size=True,
    takes_groups=True,
)

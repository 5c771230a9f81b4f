"""POSS, PPOSS and PPOSS-asy as methods: a Pareto search through its schedule, on whatever executor the task has."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.objective.objective_on_workers import ObjectiveFile, RowPublisher, save_objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline, Stop
from dsel.search.ask_tell import ExecutorOptions, Work, call_all
from dsel.search.greedy.by_criterion import BatchSearch, exchange_steps, forward_steps, run_steps
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import forward
from dsel.search.journal import columns_of, journalled_values
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome, improving
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets, ValueOf
from dsel.search.pareto.options import ParetoOptions, PossOptions, PpossAsyOptions, PpossOptions, path_size, place
from dsel.search.pareto.slice_work import LONGEST_SECONDS, RunSlices, SliceRules
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher

log = logging.getLogger("dsel")

#: A slice may take this share of the time limit of a search before it comes back.
_CUT_SHARE = 0.05
#: Exchange searches that groups of columns start from may take this share of the time limit.
_EXCHANGE_SHARE = 0.2


def run(task: SearchTask) -> SearchOutcome:
    """Run POSS, PPOSS or PPOSS-asy, as the options of the method say."""
    evaluates = task.options.evaluates_subsets(task.criterion is not None, task.groups is not None)
    if task.state is not None and not _continues(task, evaluates):
        log.warning("the search starts again: its checkpoint is of another version of dsel or of other options")
        task = replace(task, state=None)
    return _run_evaluations(task) if evaluates else _run_slices(task)


def _continues(task: SearchTask, evaluates: bool) -> bool:
    """Return whether the saved state is one that this search can continue from."""
    assert task.state is not None
    if evaluates and set(task.state) == {"values"}:  # a warm start by the criterion was interrupted
        return task.criterion is not None
    return "schedule" in task.state and task.state["n"] == task.subject.n and ("values" in task.state) == evaluates


def _run_slices(task: SearchTask) -> SearchOutcome:
    """Run a search by slices on the quadratic objective."""
    objective, options = task.objective, task.options
    stop = options.stop(task.k, objective)
    every = options.exchange_interval(objective.n, task.k, objective.has_gram)
    schedule = options.schedule(objective.n, task.k, objective.few_targets, objective.has_gram)
    rules = SliceRules(task.k, task.seed, options.isolation, every, schedule.processors, options.any_size)
    with ExitStack() as stack:
        publisher = stack.enter_context(_published(task))
        shared = publisher.shared if publisher is not None else stack.enter_context(objective_for_workers(task))
        cut = LONGEST_SECONDS if stop.seconds is None else min(LONGEST_SECONDS, _CUT_SHARE * stop.seconds)
        work = RunSlices(shared, rules, options.memory, cut)
        alone = not task.on_workers and stop.seconds is None
        work.warm_up(objective, stop.iterations if alone else None)  # workers here find what is compiled
        stack.callback(call_all, work.cleanup())
        if task.state is None:
            search = SlicedSearch(objective, rules, schedule, stop, publisher)
            stop = _warm_start(search, options, task.seed, stop, task.start)
        else:
            search = SlicedSearch.restore(objective, task.state, stop, publisher)
            objective.fetch_rows(sorted({j for point in search.archived for j in point.members}))
        return replace(run_on_workers(task, search, work, stop), notes=options.notes(objective, task.k))


def _warm_start(
    search: SlicedSearch, options: Any, seed: int, stop: Stop, start: Sequence[tuple[int, ...]] = ()
) -> Stop:
    """Offer the archive the subsets `start` and what the option `warm_start` names; return the rules for the time left.

    Subsets of 2k columns and more are never archived, so they are not offered. Those that are offered only add
    solutions: the guarantee of the published algorithm holds, and the result is never worse than they are.
    """
    for members in start:
        if 1 <= len(members) < 2 * search.k:
            search.offer(members)
    if options.warm_start == "none":
        return stop
    load_subset_kernels(deletes=options.warm_start == "exchange")
    deadline = Deadline(stop.seconds)
    for point in _points(search.objective, search.k, options, seed, limited=stop.seconds is not None):
        if point.size:
            search.offer(point.members)
    return replace(stop, seconds=deadline.left)


def _points(objective: ItemObjective, k: int, options: Any, seed: int, limited: bool) -> tuple[FrontPoint, ...]:
    """Return the subsets to offer. limited: whether the search has a time limit."""
    if options.warm_start == "exchange":
        return exchange(objective, k, seed=seed, restarts=options.restarts).front
    size = path_size(k, has_gram=objective.has_gram, limited=limited)
    return forward(objective, min(size, objective.n)).front


@contextmanager
def _published(task: SearchTask) -> Iterator[RowPublisher | None]:
    """Provide a publisher of Gram rows where they are fetched on demand and the search is on workers."""
    objective = task.objective
    if not task.on_workers or not isinstance(objective, OnDemandObjective):
        yield None
    else:
        with closing(RowPublisher(objective, task.shared_folder)) as publisher:
            yield publisher


@contextmanager
def objective_for_workers(task: SearchTask) -> Iterator[Objective | ObjectiveFile]:
    """Provide the objective from where workers read it, while the search lasts."""
    folder = task.shared_folder
    if folder is None or not task.objective.has_gram:
        yield task.objective
        return
    stored = save_objective(task.objective, folder)
    try:
        yield stored
    finally:
        stored.place.unlink(missing_ok=True)


def _run_evaluations(task: SearchTask) -> SearchOutcome:
    """Run a search whose subsets workers evaluate: by the user's criterion, or f of columns or of groups of columns."""
    objective, options, items = task.objective, task.options, task.subject
    n, isolation = items.n, _isolation(task)
    stop = replace(options.stop(task.k, objective), iterations=options.iterations_of(task.k, n))
    if task.state is None or "schedule" not in task.state:
        started = time.monotonic()
        values, best = _warm_start_of_evaluations(task, stop)
        if values and stop.seconds is not None:
            stop = replace(stop, seconds=max(stop.seconds - (time.monotonic() - started), 0.001))
        schedule = options.schedule(n, task.k, objective.few_targets, objective.has_gram, evaluates=True)
        search = CriterionSearch(n, task.k, schedule, stop, seed=task.seed, isolation=isolation, swaps=options.swaps)
        search.start_from(values, best)
    else:
        own = isolation if callable(isolation) else None
        search = CriterionSearch.restore(task.state, stop, own, options.swaps)
    local = tuple(items.members([item]) for item in range(n))
    if task.criterion is None:
        with objective_for_workers(task) as shared:
            outcome = run_on_workers(task, search, EvaluateSubsets(ValueOf(shared), None, local), stop)
        empty = FrontPoint(0, objective.c, ())
        outcome = replace(outcome, front=(empty, *(p for p in outcome.front if p.size and p.value < empty.value)))
    else:
        if task.always:
            search.ask_for_empty()
        outcome = run_on_workers(task, search, EvaluateSubsets.of_task(task), stop)
    return replace(outcome, front=tuple(replace(p, members=items.members(p.members)) for p in outcome.front))


def _warm_start_of_evaluations(task: SearchTask, stop: Stop) -> tuple[dict[Subset, float], list[Subset]]:
    """Return f of the subsets of items that a warm start evaluates, and those that the archive is offered."""
    if task.criterion is not None:
        warm = _warm_start_by_criterion(task, stop)
        if warm is None:
            return {}, []
        return warm.values, [p.members for p in improving(warm.archive.points) if p.size]
    values = {} if task.options.calls_function(False) else _values_of_groups(task, limited=stop.seconds is not None)
    return values, list(values)


def _values_of_groups(task: SearchTask, limited: bool) -> dict[Subset, float]:
    """Return f of the subsets of groups that a search starts from: those of the task, and of the warm start."""
    items, options = task.subject, task.options
    columns = [tuple(sorted(members)) for members in task.start]
    if options.warm_start != "none":
        columns += [point.members for point in _points(items, task.k, options, task.seed, limited)]
        if options.starts_from_exchanges():
            share = None if options.seconds is None else _EXCHANGE_SHARE * options.seconds
            found = exchange(items, task.k, seed=task.seed, restarts=options.restarts, deadline=Deadline(share))
            columns += [point.members for point in found.front]
    subsets = {tuple(items.within(members)): members for members in columns if members}
    whole = (S for S, members in subsets.items() if items.members(S) == members and len(S) < 2 * task.k)
    return {S: items.value(S) for S in whole}


def _warm_start_by_criterion(task: SearchTask, stop: Stop) -> BatchSearch | None:
    """Return the search by the criterion that the archive starts from, or None if none is asked for."""
    options = task.options
    if options.warm_start in (None, "none"):
        return None
    if options.warm_start == "forward":
        return run_steps(task, forward_steps, stop.seconds)[0]
    return run_steps(task, exchange_steps, stop.seconds, seed=task.seed, restarts=options.restarts)[0]


def _isolation(task: SearchTask) -> Isolation | IsolationFunction:
    """Return the isolation of local columns or groups. A user's function gets columns of the data."""
    function = task.options.isolation
    if not callable(function):
        return function  # type: ignore[no-any-return]

    def of_columns(S: Subset) -> Any:
        return function(task.in_data(S))

    return of_columns


def run_on_workers(
    task: SearchTask, search: SlicedSearch | CriterionSearch, work: Work, stop: Stop
) -> SearchOutcome:  # fmt: skip
    """Run a search whose tasks an executor runs, and record its events in the journal."""
    options, journal = task.options, task.journal
    if journal is not None:
        if isinstance(search, CriterionSearch) and task.criterion is not None:  # f of groups depends on the fold
            search.recall(journalled_values(journal.path))
        event = "started" if task.state is None else "resumed"
        columns = columns_of(task.objective, task.k)
        journal.write(event, iterations=search.iteration, solutions=search.archive.state(), **columns)
    executor = task.executor(work, ExecutorOptions(options.evaluation_limit, options.processes))
    dispatcher = Dispatcher(search, executor, stop, journal, in_data=task.in_data)
    ended = dispatcher.run(task.on_slice)
    if ended == "seconds" and isinstance(search, SlicedSearch):
        search.merge_rest()
    counts: dict[str, Any] = {**search.counts(), **dispatcher.stats.counts(), "form": search.schedule.form}
    counts["futures"] = dispatcher.stats.tasks if task.on_workers else 0
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def requirements(problem: ProblemSummary, options: ParetoOptions) -> Requirements:
    """Return what a Pareto search needs."""
    return options.requirements(problem)


def _method(name: str, summary: str, options: type[ParetoOptions]) -> Method:
    return Method(
        name, summary, run, options=options, requirements=requirements, place=place, resumable=True,
        takes_criterion=True, every_size=True, takes_groups=True,
    )  # fmt: skip


POSS = _method(
    "poss", "Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X).", PossOptions
)
PPOSS = _method("pposs", "POSS in rounds of offspring that workers evaluate; reproducible (PPOSS).", PpossOptions)
PPOSS_ASY = _method(
    "pposs-asy", "POSS on workers that never wait for each other; not reproducible (PPOSS-asy).", PpossAsyOptions
)

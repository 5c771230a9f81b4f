"""PPOSS-asy as a method: workers search on the newest archive without waiting for each other."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from dsel.objective.base import FEW_TARGETS
from dsel.objective.dense import DenseObjective
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.parallel.asynchronous import AsyncPposs, SlicedPposs
from dsel.search.parallel.executor import SerialExecutor, Slice
from dsel.search.parallel.iteration_slices import SliceRunner
from dsel.search.parallel.on_workers import (
    WorkerOptions,
    isolation_of,
    objective_for_workers,
    own_isolation,
    run_evaluations,
    run_on_workers,
)
from dsel.search.parallel.worker_tasks import RunSlices
from dsel.search.pareto.archive_memory import first_slots, table_bytes
from dsel.search.pareto.search import load_pareto_kernels
from dsel.search.pareto.warm_start import warm_start
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, Site

log = logging.getLogger("dsel")


class PpossAsyOptions(WorkerOptions):
    """Options of PPOSS-asy. The result depends on the order in which the workers' results arrive.

    On wide data, whose rows are kept in this process, the search runs in this process too.
    """


def requirements(problem: ProblemSummary, options: PpossAsyOptions) -> Requirements:
    """Return what PPOSS-asy needs."""
    return options.requirements(problem)


def place(problem: ProblemSummary, options: PpossAsyOptions, site: Site) -> Placement:
    """Return where PPOSS-asy runs."""
    if options.search_on == "client" or not site.cluster:
        return Placement(why=ASKED if options.search_on == "client" else NO_CLUSTER)
    if options.calls_function(problem.criterion):
        return Placement("workers", "tasks of some evaluations", tasks=1000)
    if not site.has_gram:
        return Placement(why="the rows of a wide matrix are in this process")
    k, n = problem.k - problem.included, problem.n - problem.included - problem.excluded
    few = problem.n_targets if problem.n_targets <= FEW_TARGETS else 0
    return Placement("workers", "slices of iterations", tasks=1000, tables=table_bytes(n, few, k, first_slots(k)))


def run(task: SearchTask) -> SearchOutcome:
    """Run PPOSS-asy: evaluations of a user's function, or slices of iterations on the quadratic objective."""
    options, objective = task.options, task.objective
    stop = options.stop(task.k, objective)
    if options.calls_function(task.criterion is not None):
        if task.state is None:
            search = AsyncPposs(objective.n, task.k, seed=task.seed, isolation=isolation_of(task))
        else:
            search = AsyncPposs.restore(task.state, own_isolation(task))
        search.swaps = options.swaps
        return run_evaluations(task, search, stop)
    every = options.exchange_interval(objective.n, task.k, objective.has_gram)
    if load_pareto_kernels(objective, every):
        _compile_slices(every)
    if task.state is None:
        sliced = SlicedPposs(objective, task.k, seed=task.seed, isolation=options.isolation)
        stop = warm_start(sliced, options, task.seed, stop, task.start)
    else:
        sliced = SlicedPposs.restore(objective, task.state)
    if not objective.has_gram:
        log.info("the rows of a wide matrix are in this process: the search is, too")
        task = replace(task, executor=SerialExecutor, shared_folder=None)
    with objective_for_workers(task) as shared:
        slices = RunSlices(shared, task.k, task.seed, options.isolation, every, options.memory)
        return replace(run_on_workers(task, sliced, slices, stop), notes=options.notes(objective))


def _compile_slices(exchange_every: int) -> None:
    """Compile what a slice needs before any clock runs. Workers on this machine find it in the cache."""
    smallest = DenseObjective(np.eye(2), np.ones((2, 1)), 3.0)
    SliceRunner(smallest, 1, 0, exchange_every=exchange_every).run(Slice(0, 1, (((0,), 2.0),)))


METHOD = Method(
    "pposs-asy",
    "POSS on workers that never wait for each other; not reproducible (PPOSS-asy).",
    run,
    options=PpossAsyOptions,
    requirements=requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
)

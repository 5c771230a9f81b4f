"""PPOSS and PPOSS-asy as methods: which search, what is done on the workers, and how it is taken up again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dsel._lib.jit import log_compilation
from dsel.objective.base import Objective
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_file import ObjectiveFile, save_objective
from dsel.search.anytime import Stop, drive
from dsel.search.base import SearchOutcome
from dsel.search.parallel.asynchronous import AsyncPposs, SlicedPposs
from dsel.search.parallel.dispatcher import Dispatch
from dsel.search.parallel.executor import Carriage, Serial, Slice, Work
from dsel.search.parallel.iteration_slices import SliceEngine
from dsel.search.parallel.journal import journalled_values
from dsel.search.parallel.replay import Columns
from dsel.search.parallel.rounds import PpossRounds
from dsel.search.parallel.synchronous import Pposs
from dsel.search.parallel.synchronous_kernel import run_rounds
from dsel.search.parallel.worker_tasks import EvaluateSubsets, RunSlices, ValueOf
from dsel.search.pareto import kernel as pareto_engine
from dsel.search.pareto.archive import Isolation, IsolationFunction
from dsel.search.run import Run, poss_stop

log = logging.getLogger("dsel")


def pposs(run: Run) -> SearchOutcome:
    """PPOSS in rounds: on workers for a criterion or an isolation function of one's own, else in this process."""
    N = run.options.processors
    stop = poss_stop(run.options, run.k, run.objective)
    assert stop.iterations is not None
    if not run.options.by_calls(run.criterion is not None):
        log_compilation(run_rounds)
        whole = Stop(max(stop.iterations // N, 1) * N, stop.seconds, stop.target, stop.patience, stop.bound)
        options = run.options
        if run.state is None:
            of = {"processors": N, "seed": run.seed, "isolation": options.isolation, "memory_limit": options.memory}
            rounds = PpossRounds(run.objective, run.k, **of)
        else:
            rounds = PpossRounds.restore(run.objective, run.state, options.memory)
        rounds.warm_up()
        ended = drive(rounds, whole, run.on_slice)
        return SearchOutcome(rounds.front(), rounds.trace, rounds.iteration, ended, dict(rounds.counts()))
    if run.state is None:
        search = Pposs(run.objective.n, run.k, processors=N, seed=run.seed, isolation=_isolation(run))
    else:
        search = Pposs.restore(run.state, _own_isolation(run))
    return _by_evaluations(run, search, stop)


def pposs_asy(run: Run) -> SearchOutcome:
    """PPOSS-asy: subsets to be valued by the criterion, or slices of iterations on the quadratic objective."""
    if run.options.by_calls(run.criterion is not None):
        if run.state is None:
            search = AsyncPposs(run.objective.n, run.k, seed=run.seed, isolation=_isolation(run))
        else:
            search = AsyncPposs.restore(run.state, _own_isolation(run))
        return _by_evaluations(run, search, poss_stop(run.options, run.k, run.objective))
    if log_compilation(pareto_engine.run):
        _compile_slices()
    if run.state is None:
        sliced = SlicedPposs(run.objective, run.k, seed=run.seed, isolation=run.options.isolation)
    else:
        sliced = SlicedPposs.restore(run.objective, run.state)
    if not run.objective.has_gram:
        log.info("the rows of a wide matrix are in this process: the search is, too")
        run = replace(run, executor=Serial, shared_folder=None)
    with _for_workers(run) as objective:
        slices = RunSlices(objective, run.k, run.seed, run.options.isolation, run.options.memory)
        return _on_workers(run, sliced, slices, poss_stop(run.options, run.k, run.objective))


@contextmanager
def _for_workers(run: Run) -> Iterator[Objective | ObjectiveFile]:
    """The objective where workers read it, while the search lasts; itself where they share no folder."""
    folder = run.shared_folder
    if folder is None:
        yield run.objective
        return
    stored = save_objective(run.objective, folder)
    try:
        yield stored
    finally:
        stored.place.unlink(missing_ok=True)


def _compile_slices() -> None:
    """Compile what a slice needs before any clock runs; workers on this machine find it in the cache."""
    smallest = DenseObjective(np.eye(2), np.ones((2, 1)), 3.0)
    SliceEngine(smallest, 1, 0).run(Slice(0, 1, (((0,), 2.0),)))


def _isolation(run: Run) -> Isolation | IsolationFunction:
    """By the columns of the data, as the user's function has them; "min-index" by those that are to be chosen."""
    return _own_isolation(run) or run.options.isolation


def _own_isolation(run: Run) -> IsolationFunction | None:
    function, objective = run.options.isolation, run.objective
    return (lambda S: function(tuple(sorted(objective.in_data(S))))) if callable(function) else None


def _by_evaluations(run: Run, search: Pposs | AsyncPposs, stop: Stop) -> SearchOutcome:
    """Subsets valued by the user's criterion, or by f under the user's isolation function."""
    if run.criterion is None:
        with _for_workers(run) as objective:
            work = EvaluateSubsets(ValueOf(objective), None, tuple(range(run.objective.n)))
            return _on_workers(run, search, work, stop)
    columns = tuple(int(j) for j in run.objective.columns)
    return _on_workers(run, search, EvaluateSubsets(run.criterion, run.data, columns, run.objective.included), stop)


def _on_workers(run: Run, search: Pposs | AsyncPposs | SlicedPposs, work: Work, stop: Stop) -> SearchOutcome:
    options, journal = run.options, run.journal
    if journal is not None:
        if not isinstance(search, SlicedPposs):
            search.recall(journalled_values(journal.path))
        event = "started" if run.state is None else "resumed"
        columns = asdict(Columns.of(run.objective, run.k))
        journal.write(event, iterations=search.iteration, solutions=search.archive.state(), **columns)
    executor = run.executor(work, Carriage(options.evaluation_limit, options.processes))
    dispatch = Dispatch(search, executor, stop, journal, named=_namer(run.objective))
    ended = dispatch.run(run.on_slice)
    counts: dict[str, Any] = {**search.counts(), **dispatch.tally.counts()}
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def _namer(objective: Objective) -> Callable[[Any], list[int]]:
    return lambda S: sorted(objective.in_data(S))

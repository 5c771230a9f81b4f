"""The methods by name: the model of their options, and how each is run on an objective."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsel._lib.jit import log_compilation
from dsel.objective.kernels import neighbour_table
from dsel.search.anytime import Stop, drive
from dsel.search.base import FrontPoint, SearchOutcome
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.forward import forward
from dsel.search.greedy.greedy_rls import LAM_GRID, GreedyRls, choose_lam, run_rounds
from dsel.search.options import (
    AStarOptions,
    BranchAndBoundOptions,
    ExchangeOptions,
    FobaOptions,
    GreedyRlsOptions,
    KfoldOptions,
    NoOptions,
    Options,
    PossOptions,
    PpossAsyOptions,
    PpossOptions,
)
from dsel.search.parallel.methods import pposs, pposs_asy
from dsel.search.parallel.worker_tasks import bind
from dsel.search.pareto import kernel as pareto_engine
from dsel.search.pareto.criterion import Criterion, CriterionPoss
from dsel.search.pareto.poss import Poss
from dsel.search.run import Run, poss_stop

log = logging.getLogger("dsel")


@dataclass(frozen=True)
class Method:
    """A method: model of its options, function that runs it, whether it can be interrupted and resumed, whether it is
    for Y = X alone; whether it works in rounds over the rows, each followed by a checkpoint; whether it minimises a
    criterion of one's own, too; whether on workers."""

    options: type[Options]
    run: Callable[[Run], SearchOutcome]
    anytime: bool = False
    unsupervised_only: bool = False
    rounds: bool = False
    whole_gram: bool = False
    any_criterion: bool = False
    on_workers: bool = False


def _poss(run: Run) -> SearchOutcome:
    if run.options.by_calls(run.criterion is not None):
        return _poss_by_calls(run)
    log_compilation(pareto_engine.run)
    objective, options = run.objective, run.options
    if run.state is not None:
        search = Poss.restore(objective, run.state, options.memory)
    else:
        search = Poss(
            objective, run.k, seed=run.seed, isolation=options.isolation, exchange_every=options.exchange_every,
            memory_limit=options.memory,
        )  # fmt: skip
        warm_start(search, options, run.seed)
    search.warm_up()
    ended = drive(search, poss_stop(options, run.k, objective), run.on_slice)
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, dict(search.counts()))


def _poss_by_calls(run: Run) -> SearchOutcome:
    """POSS on a Python function: the user's criterion, or f under the user's isolation function."""
    objective, options = run.objective, run.options

    def in_data(function: Criterion) -> Criterion:
        return lambda S: function(tuple(sorted(objective.in_data(S))))

    criterion: Criterion = objective.value if run.criterion is None else in_data(bind(run.criterion, run.data))
    isolation = in_data(options.isolation) if callable(options.isolation) else options.isolation
    if run.state is not None:
        own = isolation if callable(isolation) else None
        search = CriterionPoss.restore(criterion, run.state, own)
    else:
        search = CriterionPoss(criterion, objective.n, run.k, seed=run.seed, isolation=isolation)
    ended = drive(search, poss_stop(options, run.k, objective), run.on_slice)
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, dict(search.counts()))


def warm_start(search: Poss, options: PossOptions, seed: int) -> None:
    """Offer to the archive what forward selection (up to 2k - 1 columns) or exchange search finds, if asked for."""
    objective, k = search.objective, search.k
    if options.warm_start == "forward":
        points = forward(objective, min(2 * k - 1, objective.n)).front
    elif options.warm_start == "exchange":
        points = exchange(objective, k, seed=seed, restarts=options.restarts).front
    else:
        return
    for point in points:
        if point.size:
            search.offer(point.members)


def _greedy(module: str, function: str, *names: str, seeded: bool = False) -> Callable[[Run], SearchOutcome]:
    """A method that is one function of dsel.search.`module`; `names` of its options are passed on."""

    def run(run: Run) -> SearchOutcome:
        from importlib import import_module

        log_compilation(neighbour_table.insert)
        call = getattr(import_module(f"dsel.search.greedy.{module}"), function)
        settings = {name: getattr(run.options, name) for name in names}
        if seeded:
            settings["seed"] = run.seed
        outcome: SearchOutcome = call(run.objective, run.k, **settings)
        return outcome

    return run


def _branch_and_bound(run: Run) -> SearchOutcome:
    from dsel.search.exact.branch_and_bound import BranchAndBound, starting_subset

    objective, options = run.objective, run.options
    if run.state is not None:
        search = BranchAndBound.restore(objective, run.state, options.memory)
    else:
        start = starting_subset(objective, run.k, run.seed)
        search = BranchAndBound(objective, run.k, incumbent=start, bound=options.bound, memory_limit=options.memory)
    stop = Stop(iterations=options.nodes or 2**62, seconds=options.seconds)
    search.warm_up()
    ended = "proven" if search.done else drive(search, stop, run.on_slice)
    if search.done:
        ended = "proven" if search.proven else "contradiction"
    counts = {"bound": search.lower, "proven": search.proven, "open": search.open_nodes}
    if search.not_finite:
        counts["not_finite"] = search.not_finite
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def _astar(run: Run) -> SearchOutcome:
    from dsel.search.exact.astar import AStar
    from dsel.search.exact.branch_and_bound import starting_subset
    from dsel.search.exact.partial_expansion_astar import WideAStar

    objective, options = run.objective, run.options
    wide = not objective.has_gram and objective.eigen_factor is None
    kind: type[Any] = WideAStar if wide else AStar
    search: AStar
    if run.state is not None:
        search = kind.restore(objective, run.state, memory_limit=options.memory)
    else:
        start: Sequence[int] | None = None
        if options.prune:
            if wide:
                start = forward(objective, run.k).best(run.k).members
            else:
                start = starting_subset(objective, run.k, run.seed)
        search = kind(
            objective, run.k, gamma=options.gamma, epsilon=options.epsilon, bound=options.bound, incumbent=start,
            memory_limit=options.memory,
        )  # fmt: skip
    stop = Stop(iterations=options.nodes or 2**62, seconds=options.seconds)
    search.warm_up()
    ended = "goal" if search.done else drive(search, stop, run.on_slice)
    if search.memory_full:
        ended = "memory"
    ended = "goal" if search.done else ended
    counts = {"bound": search.lower, "suboptimality": search.suboptimality, "made": search.made, "done": search.done}
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def _greedy_rls(run: Run) -> SearchOutcome:
    objective, options, rows = run.objective, run.options, run.rows
    assert rows is not None
    include = list(objective.included)
    candidates = [int(j) for j in objective.columns]
    lam, tried = objective.lam, None
    if run.state is not None:
        lam = run.state["lam"]
    elif options.lam_grid is not None:
        grid = LAM_GRID if options.lam_grid == "auto" else options.lam_grid
        lam, tried = choose_lam(rows, grid, sorted([*include, *candidates]))
        log.info("lam = %g by leave-one-out with all columns", lam)
    search = GreedyRls(rows.problem(lam), run.k + len(include), candidates, include, options.direction)
    search.lam_grid = tried
    if run.state is not None:
        search.restore(run.state)
    rounds = run_rounds(search, rows, run.on_slice)
    chosen = search.answer()
    local = {column: place for place, column in enumerate(candidates)}
    members = tuple(local[j] for j in chosen if j in local)
    counts: dict[str, Any] = {"rounds": search.iteration, "rounds_of_this_run": rounds, **rows.counts()}
    if search.lam_grid is not None:
        counts["lam_grid"] = search.lam_grid
    return SearchOutcome(
        (FrontPoint(len(members), objective.value(members), members),), iterations=search.iteration,
        ended=search.ended, counts=counts, path=tuple(search.path), chosen=tuple(chosen), lam=lam,
        passes=rows.passes,
    )  # fmt: skip


METHODS: dict[str, Method] = {
    "poss": Method(PossOptions, _poss, anytime=True, any_criterion=True),
    "pposs": Method(PpossOptions, pposs, anytime=True, any_criterion=True, on_workers=True),
    "pposs-asy": Method(PpossAsyOptions, pposs_asy, anytime=True, any_criterion=True, on_workers=True),
    "forward": Method(NoOptions, _greedy("forward", "forward")),
    "omp": Method(NoOptions, _greedy("omp", "omp")),
    "foba": Method(FobaOptions, _greedy("foba", "foba", "nu", "path_factor")),
    "backward": Method(NoOptions, _greedy("backward", "backward"), whole_gram=True),
    "rfe": Method(NoOptions, _greedy("backward", "rfe"), whole_gram=True),
    "exchange": Method(ExchangeOptions, _greedy("exchange", "exchange", "restarts", "start", seeded=True)),
    "branch-and-bound": Method(BranchAndBoundOptions, _branch_and_bound, anytime=True, whole_gram=True),
    "astar": Method(AStarOptions, _astar, anytime=True),
    "greedy-rls": Method(GreedyRlsOptions, _greedy_rls, rounds=True, whole_gram=True),
    "kfold": Method(KfoldOptions, _greedy_rls, rounds=True, whole_gram=True),
    "two-stage": Method(
        NoOptions, _greedy("two_stage", "two_stage", seeded=True), unsupervised_only=True, whole_gram=True
    ),
    "approx-svd": Method(NoOptions, _greedy("approx_svd", "approx_svd"), unsupervised_only=True, whole_gram=True),
}

"""The methods by name: their options, checked, and how each is run on an objective."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dsel.compiled import is_compiled
from dsel.errors import OptionError
from dsel.import_path import load_function
from dsel.objective.quadratic import QuadraticObjective
from dsel.search import pareto_engine
from dsel.search.criterion import Criterion, CriterionPoss
from dsel.search.exchange import exchange
from dsel.search.forward import forward
from dsel.search.greedy_rls import LAM_GRID, GreedyRls, LooRows, choose_lam, run_rounds
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.search.poss import Poss, paper_iterations
from dsel.search.pposs_method import Backend, pposs, pposs_asy
from dsel.search.stopping import AnytimeSearch, Stop, drive
from dsel.search.work import bind
from dsel.validation import Bool, Float, Int

log = logging.getLogger("dsel")

OnSlice = Callable[[AnytimeSearch], None]


class Options(BaseModel):
    """Options of a method; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class NoOptions(Options):
    """A method without options."""


class StopOptions(Options):
    """When a Pareto search ends.

    iterations: T, by default floor(2 e k^2 n) for the k columns still to choose of n candidates. It ends sooner by
    seconds, target (f, or the criterion), target_r2 (1 - f / ||Y||^2), patience (iterations without improvement), or
    bound (a proven lower bound on f).
    """

    iterations: Int | None = Field(None, ge=1)
    seconds: Float | None = Field(None, gt=0)
    target: Float | None = None
    target_r2: Float | None = Field(None, le=1)
    patience: Int | None = Field(None, ge=1)
    bound: Float | None = Field(None, ge=0)


class IsolationOptions(StopOptions):
    """isolation: "none", "min-index", or a function of the ascending columns chosen (package.module:function in a job
    file): subsets compete only where it has the same value."""

    isolation: Literal["none", "min-index"] | Callable[[tuple[int, ...]], Any] = "none"

    @field_validator("isolation", mode="before")
    @classmethod
    def _by_path(cls, value: Any) -> Any:
        if isinstance(value, str) and ":" in value:
            return load_function(value)
        if isinstance(value, str) and value not in ("none", "min-index"):
            close = get_close_matches(value, ["none", "min-index"], 1)
            raise ValueError(
                "it must be none, min-index or a function" + (f"; did you mean {close[0]!r}" if close else "")
            )
        return value


class PossOptions(IsolationOptions):
    """POSS and POCSS. Defaults are the papers'.

    warm_start: put before the archive first what "forward" selection finds, or the best of `restarts` random
    starts of "exchange" search (it finds what flips of single bits take long to). exchange_every: iterations
    between exchange searches from a disturbed archived subset (0: never). recombination: share of offspring with two
    parents. memory: bytes for the archive's tables.

    With a criterion or an isolation function of one's own each subset is valued by a call in this process, and
    warm_start, exchange_every and recombination are not to be had.
    """

    warm_start: Literal["none", "forward", "exchange"] = "none"
    restarts: Int = Field(10, ge=1)
    exchange_every: Int = Field(0, ge=0)
    recombination: Float = Field(0.0, ge=0, lt=1)
    memory: Int = Field(8 << 30, gt=0)


class PpossAsyOptions(IsolationOptions):
    """PPOSS-asy: on workers, each future from the newest archive; the result depends on the order they come back in.
    On wide data, whose rows are kept where the search is, all of it is done there.

    isolation: as for poss. For a criterion or an isolation function of one's own: evaluation_limit: seconds that one
    evaluation may take before its worker is given up and it goes to another one. processes: worker processes of this
    machine, where there is no Dask cluster (they are spawned: a script that asks for them needs
    `if __name__ == "__main__":`). memory: bytes for an archive's tables, of which every thread of every worker has its
    own where slices of iterations are made there.
    """

    evaluation_limit: Float | None = Field(None, gt=0)
    processes: Int = Field(1, ge=1)
    memory: Int = Field(8 << 30, gt=0)


class PpossOptions(PpossAsyOptions):
    """PPOSS: rounds of `processors` offspring of one parent, T = floor(2 e k^2 n / processors) of them.

    The same seed and `processors` give the same bits on any number of workers; some times as many as there are workers
    keep them busy, since a third of the offspring need no evaluation. Without a criterion or an isolation function of
    one's own the rounds are made in this process: an offspring takes about a microsecond, less than any worker could be
    told of it. memory: bytes for the archive's tables.
    """

    processors: Int = Field(32, ge=1, le=100_000)


class FobaOptions(Options):
    """FoBa: a column is deleted where that costs at most `nu` of what its like brought; path_factor k steps."""

    nu: Float = Field(0.5, gt=0, lt=1)
    path_factor: Int = Field(5, ge=1)


class ExchangeOptions(Options):
    """Exchange search (IterFS) from `restarts` random subsets, or from forward selection's."""

    restarts: Int = Field(1, ge=1)
    start: Literal["random", "forward"] = "random"


class BranchAndBoundOptions(Options):
    """Branch and bound: the best subset, proved, unless `seconds` or `nodes` end it before. bound: see
    dsel.search.bounds. memory: bytes for its tables."""

    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: Literal["combined", "eigenvalue", "leaps"] = "combined"
    memory: Int = Field(8 << 30, gt=0)


class AStarOptions(Options):
    """Best-first search with f = l + gamma u (gamma .inf: f = u). bound: "eigenvalue", the paper's, or "combined".

    prune: whether a subset from a quick search cuts the fringe. seconds, nodes (expanded), memory (bytes) end it
    before.
    """

    gamma: Float = Field(0.0, ge=0)
    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: Literal["eigenvalue", "combined"] = "eigenvalue"
    prune: Bool = False
    memory: Int = Field(4 << 30, gt=0)


def _grid(value: Any) -> Any:
    """Penalties, or what stands for them: one sentence on all that it may be, not one for each kind."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    numbers = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not numbers or any(isinstance(lam, bool) or not isinstance(lam, Real) for lam in numbers):
        raise ValueError("it must be auto or numbers > 0")
    lams = tuple(float(lam) for lam in numbers)
    if not all(0.0 < lam < float("inf") for lam in lams):
        raise ValueError("it must be auto or numbers > 0")
    return lams


def _rounds(value: Any) -> Any:
    if isinstance(value, str) and value in ("auto", "never"):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError("it must be a whole number of rounds from 1, auto or never")
    return int(value)


LamGrid = Annotated[Literal["auto"] | tuple[float, ...] | None, BeforeValidator(_grid)]


class GreedyRlsOptions(Options):
    """Greedy RLS: selection by the exact leave-one-out error of ridge regression.

    loss: squared, or zero-one (labels -1 and +1, or 0 and 1). intercept: "center", not penalised, exact under
    leave-one-out (default where preprocess centres); "column", the paper's column of ones, always in and penalised;
    "none". lam_grid: choose lam by leave-one-out with all columns, from these or "auto" (4^-8 ... 4^8); else the job's
    lam. direction: forward, backward elimination, or floating (after each insertion, deletions as long as they make a
    better subset of their size). held_out: a store with rows to report the test error of every step on, its targets and
    weights by the names of the data's (from Python also a pair X, Y). fold_every: where X is not in memory, rounds
    between rewrites of a cache as large as X in float64 on disk (1: the paper's Algorithm 3), "never", or "auto": what
    costs the least by dsel.stats.cache_cost, in a job; never for dsel.select. Forward alone.
    """

    loss: Literal["squared", "zero-one"] = "squared"
    intercept: Literal["center", "column", "none"] | None = None
    lam_grid: LamGrid = None
    direction: Literal["forward", "backward", "floating"] = "forward"
    held_out: Any = None
    fold_every: Annotated[int | Literal["auto", "never"], BeforeValidator(_rounds)] = "auto"

    @model_validator(mode="after")
    def _forward_alone(self) -> GreedyRlsOptions:
        if isinstance(self.fold_every, int) and self.direction != "forward":
            raise ValueError(f"fold_every goes with direction forward, not {self.direction}")
        return self


class KfoldOptions(Options):
    """Selection by K-fold cross-validated squared error of ridge regression, from one pass over the data.

    folds, repeats: rows fall into `folds` parts by their index and the seed, `repeats` times over. lam_grid (by
    cross-validation), direction and held_out: as for greedy-rls.
    """

    folds: Int = Field(10, ge=2)
    repeats: Int = Field(1, ge=1)
    lam_grid: LamGrid = None
    direction: Literal["forward", "backward", "floating"] = "forward"
    held_out: Any = None


@dataclass(frozen=True)
class Run:
    """What a method is run with: `state` resumes an anytime search, `on_slice` sees it between slices."""

    objective: QuadraticObjective
    k: int
    seed: int
    options: Any
    state: dict[str, Any] | None = None
    on_slice: OnSlice | None = None
    criterion: Criterion | None = None  # of ascending columns in the data; in place of the objective's f
    rows: LooRows | None = None  # of methods that value subsets on the rows of the data
    data: Any = None  # second argument of a criterion f(S, data)
    backend: Backend = field(default_factory=Backend)


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
    if run.criterion is not None or callable(run.options.isolation):
        return _poss_by_calls(run)
    if not is_compiled(pareto_engine.run):
        log.info("compiling the search for this machine: about half a minute, only this once")
    objective, options = run.objective, run.options
    if run.state is not None:
        search = Poss.restore(objective, run.state, options.memory)
    else:
        search = Poss(
            objective, run.k, seed=run.seed, isolation=options.isolation, exchange_every=options.exchange_every,
            recombination=options.recombination, memory_limit=options.memory,
        )  # fmt: skip
        warm_start(search, options, run.seed)
    ended = drive(search, poss_stop(options, run.k, objective), run.on_slice)
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, dict(search.counts()))


def _poss_by_calls(run: Run) -> SearchOutcome:
    """POSS on a Python function: the user's criterion, or f under the user's isolation function."""
    objective, options = run.objective, run.options
    extras = [
        name for name in ("warm_start", "exchange_every", "recombination") if getattr(options, name) not in (0, "none")
    ]
    if extras or (run.criterion is not None and options.target_r2 is not None):
        raise OptionError(
            f"{', '.join(extras) or 'target_r2'} cannot be had with a function of one's own.", "Leave it out."
        )

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


def poss_stop(options: StopOptions, k: int, objective: QuadraticObjective) -> Stop:
    """The stopping rules that the options ask for; the paper's T where they do not say."""
    target = options.target
    if options.target_r2 is not None:
        target = (1.0 - options.target_r2) * objective.total
    return Stop(
        iterations=options.iterations or paper_iterations(k, objective.n),
        seconds=options.seconds,
        target=target,
        patience=options.patience,
        bound=options.bound,
    )


def _greedy(module: str, function: str, *names: str, seeded: bool = False) -> Callable[[Run], SearchOutcome]:
    """A method that is one function of dsel.search.`module`; `names` of its options are passed on."""

    def run(run: Run) -> SearchOutcome:
        from importlib import import_module

        call = getattr(import_module(f"dsel.search.{module}"), function)
        settings = {name: getattr(run.options, name) for name in names}
        if seeded:
            settings["seed"] = run.seed
        outcome: SearchOutcome = call(run.objective, run.k, **settings)
        return outcome

    return run


def _branch_and_bound(run: Run) -> SearchOutcome:
    from dsel.search.branch_and_bound import BranchAndBound, starting_subset

    objective, options = run.objective, run.options
    if run.state is not None:
        search = BranchAndBound.restore(objective, run.state, options.memory)
    else:
        start = starting_subset(objective, run.k, run.seed)
        search = BranchAndBound(objective, run.k, incumbent=start, bound=options.bound, memory_limit=options.memory)
    stop = Stop(iterations=options.nodes or 2**62, seconds=options.seconds)
    search.warm_up()
    ended = "proven" if search.done else drive(search, stop, run.on_slice)
    ended = "proven" if search.done else ended
    counts = {"bound": search.lower, "proven": search.done, "open": search.open_nodes}
    return SearchOutcome(search.front(), search.trace, search.iteration, ended, counts)


def _astar(run: Run) -> SearchOutcome:
    from dsel.objective.on_demand import OnDemandObjective
    from dsel.search.astar import AStar
    from dsel.search.astar_wide import WideAStar
    from dsel.search.branch_and_bound import starting_subset

    objective, options = run.objective, run.options
    wide = isinstance(objective, OnDemandObjective) and objective.reduced_factor is None
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
            objective, run.k, gamma=options.gamma, bound=options.bound, incumbent=start, memory_limit=options.memory
        )
    stop = Stop(iterations=options.nodes or 2**62, seconds=options.seconds)
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

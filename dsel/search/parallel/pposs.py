"""PPOSS as a method: rounds of offspring of one parent, the same bits on any number of workers."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from dsel.config.types import Int
from dsel.search.anytime import Stop, drive
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.parallel.on_workers import isolation_of, own_isolation, run_evaluations
from dsel.search.parallel.quadratic_rounds import PpossRounds
from dsel.search.parallel.synchronous import Pposs
from dsel.search.parallel.synchronous_kernel import run_rounds
from dsel.search.pareto.search import load_pareto_kernels
from dsel.search.pareto.warm_start import warm_start
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, Site
from dsel.search.slices.options import SliceOptions, place_iterations
from dsel.search.slices.run import is_sliced, run_by_slices


class PpossOptions(SliceOptions):
    """Options of PPOSS, which makes T = floor(2 e k^2 n / processors) rounds.

    Without a custom criterion or isolation function an offspring takes about a microsecond, less than a message to a
    worker. Then workers run slices of whole rounds; a short search runs in this process.

    Parameters
    ----------
    processors : int
        N, the offspring of each round. The same seed and `processors` give the same bits on any number of workers. A
        few times the number of workers keeps them busy, because a third of the offspring need no evaluation.
    """

    processors: Int = Field(32, ge=1, le=100_000)

    def conflict(self, criterion: bool) -> str:
        if self.calls_function(criterion) and self.slices is not None:
            return "slices: with a custom criterion or isolation function, use processors"
        return super().conflict(criterion)


def requirements(problem: ProblemSummary, options: PpossOptions) -> Requirements:
    """Return what PPOSS needs."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


def place(problem: ProblemSummary, options: PpossOptions, site: Site) -> Placement:
    """Return where PPOSS runs. A round of evaluations never depends on the cluster."""
    if not options.calls_function(problem.criterion):
        return place_iterations(problem, options, site)
    if options.search_on == "client" or not site.cluster:
        return Placement(why=ASKED if options.search_on == "client" else NO_CLUSTER, tasks=options.processors)
    return Placement("workers", f"rounds of {options.processors} evaluations", tasks=options.processors)


def run(task: SearchTask) -> SearchOutcome:
    """Run PPOSS in rounds: on workers where it calls a user's function, else in this process."""
    options, N = task.options, task.options.processors
    stop = options.stop(task.k, task.objective)
    if options.calls_function(task.criterion is not None):
        if task.state is None:
            search = Pposs(task.objective.n, task.k, processors=N, seed=task.seed, isolation=isolation_of(task))
        else:
            search = Pposs.restore(task.state, own_isolation(task))
        search.swaps = options.swaps
        return run_evaluations(task, search, stop)
    if is_sliced(task):
        return run_by_slices(task, N)
    every = options.exchange_interval(task.objective.n, task.k, task.objective.has_gram)
    load_pareto_kernels(task.objective, every, run_rounds)
    if task.state is None:
        rounds = PpossRounds(
            task.objective, task.k, processors=N, seed=task.seed, isolation=options.isolation, exchange_every=every,
            memory_limit=options.memory,
        )  # fmt: skip
    else:
        rounds = PpossRounds.restore(task.objective, task.state, options.memory)
    rounds.warm_up()
    if task.state is None:
        stop = warm_start(rounds, options, task.seed, stop, task.start)
    whole_rounds = Stop(max(stop.iterations // N, 1) * N, stop.seconds, stop.target, stop.patience, stop.bound)
    ended = drive(rounds, whole_rounds, task.on_slice)
    notes = options.notes(task.objective)
    return SearchOutcome(rounds.front(), rounds.trace, rounds.iteration, ended, dict(rounds.counts()), notes=notes)


METHOD = Method(
    "pposs",
    "POSS in rounds of offspring that workers evaluate; reproducible (PPOSS).",
    run,
    options=PpossOptions,
    requirements=requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
)

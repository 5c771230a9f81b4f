"""A* as a method: best-first search, optimal, weighted or greedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from dsel.config.types import Bool, Float, Int
from dsel.search.anytime import Deadline, Stop, drive
from dsel.search.exact.astar.on_workers import drive_on_workers
from dsel.search.exact.astar.partial_expansion import WideAStar
from dsel.search.exact.astar.search import AStar, AStarBound
from dsel.search.exact.choose_tree import ProofProblem
from dsel.search.exact.exact_search import FAILURES, Effort, without_proof
from dsel.search.method import Method, Options, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, SearchOn, Site


class AStarOptions(Options):
    """Options of best-first search in the order of l + gamma u, with bounds l <= f <= u below a node.

    Parameters
    ----------
    gamma : float
        The weight of u. 0 is optimal; inf (`.inf` in a job file) orders by u alone.
    epsilon : float
        The error of the answer is at most 1 + epsilon times the least error. It takes the place of `gamma`.
    seconds : float, optional
        Wall time, including the decomposition before. Compilation, the first time on a machine, does not count.
    nodes : int, optional
        How many nodes are expanded.
    bound : {"eigenvalue", "combined"}
        The lower bound l. "eigenvalue" is the paper's.
    prune : bool
        Whether a subset from a quick search removes nodes from the fringe.
    memory : int
        Bytes that the fringe and the closed list may take.
    search_on : {"auto", "client", "workers"}
        Where nodes are expanded. "auto": on the workers of the cluster, if there is one and K or W is in memory. The
        first 2000 nodes are always expanded in this process. Nodes come in the same order everywhere.
    """

    gamma: Float = Field(0.0, ge=0)
    epsilon: Float = Field(0.0, ge=0, allow_inf_nan=False)
    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: AStarBound = "eigenvalue"
    prune: Bool = False
    memory: Int = Field(4 << 30, gt=0)
    search_on: SearchOn = "auto"

    @model_validator(mode="after")
    def _one_weight(self) -> AStarOptions:
        if self.gamma > 0.0 and self.epsilon > 0.0:
            raise ValueError("gamma and epsilon are two ways to weight the search: leave one of them out")
        return self


def requirements(problem: ProblemSummary, options: AStarOptions) -> Requirements:
    """Return what A* needs: K for the combined bound and where Y = X is penalized or conditioned, else W or rows."""
    factor = not problem.n_targets
    whole = options.bound == "combined" or (factor and bool(problem.lam or problem.included))
    return Requirements(
        whole_gram=whole, eigen_factor=factor, lookahead=2 * problem.k + 4 * problem.n_targets + 6,
        seconds=options.seconds,
    )  # fmt: skip


def place(problem: ProblemSummary, options: AStarOptions, site: Site) -> Placement:
    """Return where nodes are expanded. Elsewhere or not, one queue in this process orders them."""
    if options.search_on == "client":
        return Placement(why=ASKED)
    if not site.cluster:
        return Placement(why=NO_CLUSTER)
    if not site.has_gram and problem.n_targets:
        return Placement(why="rows of the Gram matrix are fetched in this process, when a node needs them")
    return Placement("workers", "workers expand nodes ahead of the search, after the first 2,000 nodes")


def run(task: SearchTask) -> SearchOutcome:
    """Run A*, on wide data with partial expansion of nodes."""
    objective, options, deadline = task.objective, task.options, Deadline(task.options.seconds)
    wide = not objective.has_gram and objective.eigen_factor is None
    kind: type[Any] = WideAStar if wide else AStar
    effort = Effort(deadline, task.state)
    on_slice = effort.saved(task.on_slice)
    problem = ProofProblem(objective, task.k, seed=task.seed, deadline=deadline)
    search: AStar
    if task.state is not None:
        search = kind.restore(objective, task.state, memory_limit=options.memory)
    else:
        start: Sequence[int] | None = None
        if options.prune:
            start = problem.start if wide else problem.quick_subset(0.3)
        try:
            search = kind(
                objective, task.k, gamma=options.gamma, epsilon=options.epsilon, bound=options.bound, incumbent=start,
                memory_limit=options.memory, deadline=deadline,
            )  # fmt: skip
        except FAILURES as error:
            return without_proof(objective, task.k, start or problem.start, error)
    with deadline.paused():
        search.warm_up()
    stop = Stop(iterations=options.nodes or 2**62, seconds=deadline.left)
    tasks: dict[str, Any] = {}
    ended = "seconds"  # if a single node would take longer
    if options.seconds is None or search.node_seconds() <= deadline.remaining:
        if search.done:
            ended = "goal"
        elif task.on_workers and options.search_on != "client" and not wide:
            ended, tasks = drive_on_workers(search, task.executor, stop, on_slice)
        else:
            ended = drive(search, stop, on_slice)
    if search.memory_full:
        ended = "memory"
    ended = "goal" if search.done else ended
    if not search.done:  # an unfinished search has few subsets of k columns
        search.offer(problem.start)
        search.complete(deadline)
    search.sharpen()
    counts = {**tasks, "made": search.made, "done": search.done}
    too_long = 0.0 if search.done or search.iteration else search.node_seconds()
    ended_by = _limit(options, ended)
    certificate = replace(search.certificate(), node_seconds=too_long, ended_by=ended_by, **effort.fields())
    return SearchOutcome(
        search.front(), search.trace, search.iteration, ended, counts, certificates=(certificate,)
    )  # fmt: skip


def _limit(options: AStarOptions, ended: str) -> str:
    """Return `ended_by` of the certificate."""
    if ended == "goal":
        weights = {"gamma": options.gamma, "epsilon": options.epsilon}
        return next((f"{name}={value:g}" for name, value in weights.items() if value), "")
    return {"memory": f"memory={options.memory}", "iterations": "nodes"}.get(ended, "")


METHOD = Method(
    "astar",
    "Best-first search: optimal, within a factor of the optimum, or greedy (A*).",
    run,
    options=AStarOptions,
    requirements=requirements,
    place=place,
    resumable=True,
    no_groups="its bounds count columns",
)

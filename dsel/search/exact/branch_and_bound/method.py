"""Branch and bound as a method: the best subset, with a proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from dsel.config.types import Float, Int
from dsel.search.anytime import Deadline
from dsel.search.exact.choose_tree import ProofProblem, restore_tree, tree_in_memory
from dsel.search.exact.exact_search import FAILURES, Effort, without_proof
from dsel.search.exact.perspective.semidefinite import Relaxation
from dsel.search.exact.proof import Proof
from dsel.search.method import Method, Options, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, SearchOn, Site

#: Most of the time that the quick search takes.
_START = 0.3


class BranchAndBoundOptions(Options):
    """Options of branch and bound, which proves the best subset unless a limit ends it before.

    Parameters
    ----------
    seconds : float, optional
        Wall time, including the quick search before. Compilation, the first time on a machine, does not count.
    nodes : int, optional
        How many nodes are visited at most.
    bound : {"auto", "combined", "eigenvalue", "leaps", "perspective"}
        The lower bound on f; see dsel.search.exact.bounds. "perspective", a convex relaxation, is for columns that are
        not nearly dependent, or a penalty `lam`. "auto" is "combined" or, from 150 columns on, or with
        one target and more than 10^11 subsets, "perspective" if its bound is much better after a head start. Groups of
        columns have a separate bound.
    memory : int
        Bytes that the tables may take.
    search_on : {"auto", "client", "workers"}
        Where nodes are explored. "auto": on the workers of the cluster, if there is one and `nodes` is not given. The
        first 2000 nodes, or the first half second of relaxations, are always explored in this process. Workers prove
        the same bound and the same best subset; the number of nodes depends on them, and so does a search that a limit
        ends.
    """

    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: Literal["auto", "combined", "eigenvalue", "leaps", "perspective"] = "auto"
    memory: Int = Field(8 << 30, gt=0)
    search_on: SearchOn = "auto"

    def conflict_with_groups(self) -> str:
        usual = self.bound in ("auto", "combined")
        return "" if usual else f"bound {self.bound} cannot be used for groups of columns"


def requirements(problem: ProblemSummary, options: BranchAndBoundOptions) -> Requirements:
    """Return what branch and bound needs."""
    return Requirements(whole_gram=True, seconds=options.seconds)


def place(problem: ProblemSummary, options: BranchAndBoundOptions, site: Site) -> Placement:
    """Return where nodes are explored."""
    if options.search_on == "client":
        return Placement(why=ASKED)
    if not site.cluster:
        return Placement(why=NO_CLUSTER)
    if problem.grouped:
        return Placement(why="groups of columns are searched in this process")
    if options.search_on == "auto" and options.nodes is not None:
        return Placement(why="an exact number of nodes is explored in one process only")
    return Placement("workers", "subtrees are tasks, after the first 2,000 nodes")


def run(task: SearchTask) -> SearchOutcome:
    """Run branch and bound, from a good subset that a quick search finds."""
    options = task.options
    objective, deadline = task.subject, Deadline(options.seconds)
    effort = Effort(deadline, task.state)
    if task.state is not None:
        search = restore_tree(objective, task.state, memory_limit=options.memory)
    else:
        problem = ProofProblem(objective, task.k, seed=task.seed, memory_limit=options.memory, deadline=deadline,
                               nodes=options.nodes)  # fmt: skip
        problem.incumbent = _start(task, problem)
        try:
            search = tree_in_memory(problem, options.bound)
        except FAILURES as error:
            return without_proof(objective, task.k, problem.incumbent, error)
    with deadline.paused():
        search.warm_up()
    limited = options.bound == "auto" and (options.seconds or options.nodes)
    proof = Proof(search, float("inf"), relaxation=None if limited else Relaxation(0.0))
    nodes = None if options.nodes is None else max(options.nodes - search.iteration, 0)
    proof.run(deadline.left, nodes, effort.saved(task.on_slice), task.runner)
    certificate = replace(proof.certificate(), **effort.fields())
    ended = "memory" if search.memory_full else proof.ended
    if search.done:
        ended = "complete" if search.proven else "contradiction"
    if certificate.proven:
        ended = "proven"
    counts = {"open": search.open_nodes, **({"not_finite": search.not_finite} if search.not_finite else {})}
    return SearchOutcome(
        search.front(), search.trace, search.iteration, ended, counts, certificates=(certificate,)
    )  # fmt: skip


def _start(task: SearchTask, problem: ProofProblem) -> tuple[int, ...]:
    """Return a good subset of columns or groups to begin with."""
    start = problem.quick_subset(_START)
    given = [tuple(task.subject.within(members)) for members in task.start]
    known = (start, *(members for members in given if len(members) <= task.k))
    return min(known, key=task.subject.value)  # the first one where several have the same error


METHOD = Method(
    "branch-and-bound",
    "Prove the best subset by branch and bound.",
    run,
    options=BranchAndBoundOptions,
    requirements=requirements,
    place=place,
    resumable=True,
    takes_groups=True,
)

"""The portfolio as a method: greedy, tabu and Pareto searches and a proof that share what they find, in a time budget.

Source of the idea: Gomes and Selman, "Algorithm portfolios", Artificial Intelligence 126, 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import comb

from pydantic import Field

from dsel._lib.kernel_loading import load_kernels
from dsel.config.types import Bool, Float, Int
from dsel.objective.objective_interface import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline, OutOfTime, Stop
from dsel.search.ask_tell import ExecutorOptions, SerialExecutor
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.choose_tree import relaxable, takes_part
from dsel.search.exact.exact_search import FAILURES
from dsel.search.exact.perspective.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.proof import Proof
from dsel.search.greedy.exchange import exchange, polish
from dsel.search.greedy.path import backward, foba, forward, omp
from dsel.search.method import Method, Options, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.pareto.archive_layout import check_tables, first_slots, table_bytes
from dsel.search.pareto.compiled import load_pareto_kernels
from dsel.search.pareto.options import path_size
from dsel.search.pareto.run import objective_for_workers
from dsel.search.placement import NO_CLUSTER, Placement, Site
from dsel.search.portfolio.steps import RunSteps
from dsel.search.portfolio.streams import ROUNDS, STREAMS, PortfolioSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.tabu.search import load_swap_kernels

#: The shares of the time for the proof before and after the searches.
_PROOF_FIRST, _PROOF_LAST = 0.1, 0.3
#: The share of the time that is left for the subsets of other sizes when the answer is proved.
_AFTER_PROOF = 0.2
#: With more subsets of k columns than this, the proof is not continued after its first part.
_PROVABLE = 10**12
#: A proof by relaxations is continued, too, if this share of the error is open.
_SMALL_GAP = 0.1
#: Operations for each n^3 before branch and bound, and before the tree of relaxations; and operations in a second.
_PROOF_WORK, _TREE_WORK, _OPERATIONS_PER_SECOND = 30.0, 0.1, 2e9
#: Without a time limit: the most columns that a proof is tried for, its nodes, and those of a tree of relaxations times
#: n^2. Both take seconds.
_PROOF_COLUMNS, _PROOF_NODES, _TREE_NODES = 300, 200_000, 10**6
#: With a time limit, the most steps at a time.
_MOST_TASKS = 1000
#: The largest share of the time for a greedy search, and the share for the subsets of other sizes at the end.
_GREEDY_SHARE, _POLISH_SHARE = 0.05, 0.05
#: Seconds on the reference core where Y = X: of FoBa for each n k^2, of backward elimination for each n^3.
_FOBA_SECONDS, _BACKWARD_SECONDS = 4e-7, 6e-8
#: Backward elimination starts from all columns, in O(n^3).
_BACKWARD_COLUMNS = 500
#: Numbers of the data that a pass reads in a second.
_NUMBERS_PER_SECOND = 2e8
_NO_TIME = "there was no time for a proof: the answer has no certificate"


class PortfolioOptions(Options):
    """Options of the portfolio.

    With `seconds`, the searches use the time that there is, and the result depends on the speed of the machine. Only
    the greedy searches at the beginning do not. Without it, the same seed gives the same bits on any number of workers,
    and the searches together take about three times as long as `poss`.

    Parameters
    ----------
    seconds : float, optional
        Wall time of all searches and the proof. Compilation, the first time on a machine, does not count.
    certify : bool
        Spend a tenth of the time, four tenths on small problems, on a proof of how far the answer can be from the best
        one. It is tried where there is time for it: with the Gram matrix in memory, or in passes for one target and
        a ridge penalty.
    memory : int
        Bytes that the tables of one search may take, in each thread of each worker.
    processes : int
        Worker processes of this machine, where there is no Dask cluster. They are spawned, so that a script needs
        ``if __name__ == "__main__":``.
    """

    seconds: Float | None = Field(None, gt=0)
    certify: Bool = True
    memory: Int = Field(8 << 30, gt=0)
    processes: Int = Field(1, ge=1)


def requirements(problem: ProblemSummary, options: PortfolioOptions) -> Requirements:
    """Return what the portfolio needs.

    Raises
    ------
    CapacityError
        The tables of one search take more than `memory`.
    """
    k, free = problem.to_choose
    if 0 < k <= free:
        check_tables(free, 0, k, first_slots(k), options.memory)
    return Requirements(table_slots=first_slots(problem.k), seconds=options.seconds)


def place(problem: ProblemSummary, options: PortfolioOptions, site: Site) -> Placement:
    """Return where the searches of the portfolio run."""
    if not site.cluster:
        return Placement(why=NO_CLUSTER)
    if not site.has_gram:
        return Placement(why="the rows of a wide matrix are in this process")
    k, n = problem.to_choose
    k = max(min(k, n), 1)
    tasks = len(STREAMS) if options.seconds is None else _MOST_TASKS
    return Placement("workers", "several searches in steps", tasks=tasks, tables=table_bytes(n, 0, k, first_slots(k)))


def run(task: SearchTask) -> SearchOutcome:
    """Run the portfolio: greedy searches, a first proof, searches on the workers, the rest of the proof."""
    objective, options = task.objective, task.options
    load_pareto_kernels(objective, 1 if objective.has_gram else 0)
    load_subset_kernels(deletes=True)
    if objective.has_gram:
        load_swap_kernels()
    certify = options.certify and affordable(objective, options.seconds)
    if certify:
        _load_proof_kernels(objective)
    deadline = Deadline(options.seconds)
    if task.state is not None:
        search = PortfolioSearch.restore(objective, task.state, deadline)
    else:
        search = PortfolioSearch(objective, task.k, deadline)
        for S in task.start:
            search.offer(S)
        _start(search, deadline)
    proof = _Proof(task, search, deadline, begins=certify)
    proof.advance(_PROOF_FIRST)
    proven = proof.proven
    ended = _search(task, search, deadline, proof)
    if not proven and proof.promising:
        proof.advance(1.0)
        ended = "proven" if proof.proven else ended
    outcome = SearchOutcome(
        search.front(), search.trace, search.iteration, ended, {**search.counts(), **proof.counts()},
        certificates=proof.certificates(), notes=proof.notes,
    )  # fmt: skip
    return polish(objective, task.k, outcome, deadline=deadline) if objective.has_gram else outcome


def _start(search: PortfolioSearch, deadline: Deadline) -> None:
    """Offer the archive what the greedy searches find: forward selection always, others while there is time."""
    for method in _greedy(search.objective, search.k, deadline):
        if search.archive.best().size and deadline.passed:
            return
        for point in method().front:
            search.offer(point.members)


def _greedy(objective: Objective, k: int, deadline: Deadline) -> Iterator[Callable[[], SearchOutcome]]:
    """Yield the greedy searches that take a small part of the time, forward selection in any case."""
    n, most = objective.n, _GREEDY_SHARE * deadline.remaining
    size = path_size(k, has_gram=objective.has_gram, limited=deadline.seconds is not None)
    yield partial(forward, objective, min(size, n))
    if not objective.has_gram:
        return  # each step takes a pass over the data
    yield partial(exchange, objective, k, start="forward", deadline=deadline.share(_GREEDY_SHARE))
    yield partial(omp, objective, k)
    if _FOBA_SECONDS * n * k * k <= most:
        yield partial(foba, objective, k)
    if n <= _BACKWARD_COLUMNS and _BACKWARD_SECONDS * n**3 <= most:
        yield partial(backward, objective, k)


def _load_proof_kernels(objective: Objective) -> None:
    """Compile what a proof needs, by one on a few columns, before any clock runs."""
    if not objective.has_gram:
        load_kernels(*RELAXATION_KERNELS)
        return
    with suppress(*FAILURES):
        BranchAndBound(objective.restrict(range(min(3, objective.n))), 1).warm_up()


def affordable(objective: Objective, seconds: float | None) -> bool:
    """Return whether a proof can begin in its part of the time."""
    if seconds is None:
        return objective.has_gram and objective.n <= _PROOF_COLUMNS
    if not objective.has_gram:  # it makes passes over the data
        return relaxable(objective) and objective.fetch_cost / _NUMBERS_PER_SECOND <= _PROOF_FIRST * seconds
    work = _TREE_WORK if takes_part(objective) else _PROOF_WORK
    return work * float(objective.n) ** 3 / _OPERATIONS_PER_SECOND <= _PROOF_FIRST * seconds


class _Proof:
    """The proof of a portfolio, which begins before the searches and continues after them.

    begins: whether there is one. If it is asked for, and there is no time for it, `notes` say so.
    """

    def __init__(self, task: SearchTask, search: PortfolioSearch, deadline: Deadline, *, begins: bool) -> None:
        self._task, self._search, self._deadline = task, search, deadline
        self._proof: Proof | None = None
        self._ended = not begins
        self.notes: tuple[str, ...] = (_NO_TIME,) if task.options.certify and not begins else ()

    def advance(self, share: float) -> None:
        """Continue the proof for a share of the time that is left."""
        if self._ended:
            return
        part, best = self._deadline.share(share), self._search.best
        try:
            if self._proof is None:
                self._proof = Proof.begin(
                    self._search.objective, self._search.k, best, seed=self._task.seed,
                    memory_limit=self._task.options.memory, deadline=part,
                )  # fmt: skip
            self._proof.search.offer(best)
            report = self._task.on_slice
            on_slice = None if report is None else lambda _: report(self._search)
            self._proof.run(part.left, None if part.left is not None else self._nodes, on_slice)
        except OutOfTime:  # what is proved so far holds
            if self._proof is None:
                self._ended, self.notes = True, (_NO_TIME,)
                return
        except FAILURES as error:
            self._proof, self._ended = None, True
            self.notes = (f"no proof is possible ({type(error).__name__}: {error})",)
            return
        self._search.offer(self._proof.search.best)

    @property
    def proven(self) -> bool:
        """Whether the best subset is proved."""
        return self._proof is not None and self._proof.certificate().proven

    @property
    def promising(self) -> bool:
        """Whether it is worth continuing."""
        if self._proof is None:
            return False
        tree = self._proof.search
        if tree.makes_passes or (tree.relaxes_nodes and self._proof.certificate().relative_gap <= _SMALL_GAP):
            return True
        return comb(self._search.objective.n, self._search.k) <= _PROVABLE

    @property
    def _nodes(self) -> int:
        """The nodes of a part of the proof where there is no time limit."""
        assert self._proof is not None
        slow = self._proof.search.relaxes_nodes
        return max(_TREE_NODES // self._search.objective.n**2, 1) if slow else _PROOF_NODES

    def certificates(self) -> tuple[Certificate, ...]:
        """Return what is proved about the best subset."""
        if self._proof is None:
            return ()
        self._proof.search.offer(self._search.best)
        return (replace(self._proof.certificate(), better=False),)

    def counts(self) -> dict[str, float]:
        """Return the number of nodes."""
        return {} if self._proof is None else {"nodes": self._proof.search.iteration}


def _search(task: SearchTask, search: PortfolioSearch, deadline: Deadline, proof: _Proof) -> str:
    """Run the tabu and Pareto searches, on the workers if there are any, and return why they ended.

    If the answer is proved, they only improve the subsets of other sizes, for a part of the time.
    """
    objective, options, proven = task.objective, task.options, proof.proven
    kept = _PROOF_LAST if deadline.seconds is not None and proof.promising else _POLISH_SHARE
    search.deadline = deadline.share(_AFTER_PROOF if proven else 1.0 - kept)
    if not objective.has_gram:
        task = replace(task, executor=SerialExecutor, shared_folder=None)
    search.limit = (1 << 62) if search.timed else (1 if proven else ROUNDS) * len(STREAMS)
    with objective_for_workers(task) as shared:
        work = RunSteps(shared, task.k, task.seed, options.memory)
        executor = task.executor(work, ExecutorOptions(processes=options.processes))
        Dispatcher(search, executor, Stop(search.limit), task.journal).run(task.on_slice)
    return "proven" if proven else "seconds" if search.timed else "complete"


METHOD = Method(
    "portfolio",
    "Run several searches in a time budget, share what they find, and prove how good it is.",
    run,
    options=PortfolioOptions,
    requirements=requirements,
    resumable=True,
    place=place,
    every_size=True,
    no_groups="its Pareto search and its bounds are compiled for single columns",
)

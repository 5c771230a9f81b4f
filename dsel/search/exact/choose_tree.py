"""Which tree proves a subset: the trees by their kind, and the choice between them.

A new tree is a subclass of `dsel.search.exact.tree.BestFirstTree` and an entry of `TREES`, or of the entry-point group
``dsel.trees`` of another package.

Two trees are for columns in memory: that of relaxations, and branch and bound by the fit of all columns that are left.
The first hands nodes over to the second where that takes less time (`dsel.search.exact.perspective.subtree_solver`).
The second begins with the bound and the columns that the first one leaves.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dsel._lib.kernel_loading import load_kernels
from dsel._lib.plugins import Registry
from dsel.errors import CapacityError, OptionError
from dsel.objective.objective_interface import MOST_DENSE, ItemObjective, Objective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.bounds import BoundName
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.group_tree import GroupTree
from dsel.search.exact.near_best import ListRule, NearBest, near_best_of
from dsel.search.exact.out_of_core.out_of_core_tree import OutOfCoreTree
from dsel.search.exact.perspective.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.perspective.diagonals import largest_coefficient
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.perspective.rebound import REBOUND_KERNELS
from dsel.search.exact.proof_log import ProofLog
from dsel.search.exact.root_bound import RootBound, TargetBound
from dsel.search.exact.tree import BestFirstTree
from dsel.search.pareto.starting_subset import MANY_COLUMNS, forward_subset, is_small, starting_subset

logger = logging.getLogger("dsel")

Tree = BestFirstTree[Any]

#: The entry-point group in which a package lists its trees.
GROUP = "dsel.trees"
#: Most of the time that the quick search takes.
_START = 0.2
#: A smaller penalty, as a share of the largest squared norm, is rounding for the relaxation in passes.
_LEAST_RIDGE = 1e-6
#: With more subsets than this, and one target, relaxations may be better.
_TOO_MANY_TO_TRY = 10**11
#: The tree of relaxations has a head start of about as many seconds as a better diagonal than the ridge penalty takes,
#: and the first bound of branch and bound: this factor of n^3, at least and at most.
_SECONDS, _LEAST, _MOST = 1e-9, 0.02, 5.0
#: The share of the gap of branch and bound that its own must be below to be preferred.
_BETTER = 0.35
#: With more subsets than this branch and bound cannot try most of them. The tree of relaxations then has about these
#: seconds before its gap is compared with the first one of branch and bound, and with another share.
_MANY_SUBSETS, _HEAD_START, _BETTER_THEN = 10**12, 0.5, 0.65
#: With less time than this it has no such head start.
_ENOUGH_TIME = 2.5
#: With a limit for coefficients, the seconds of the first and of the last turn of the trees that are compared.
_FIRST_TURN, _LAST_TURN = 0.25, 4.0
#: Branch and bound is too slow if a node takes longer, in seconds.
_SLOW_NODE = 0.1


def relaxable(objective: Objective) -> bool:
    """Return whether there are one target and a ridge penalty, so that the relaxation in passes bounds all subsets."""
    return _has_one_target(objective) and objective.lam >= _LEAST_RIDGE * float(objective.scale.max())


def _has_one_target(objective: Objective) -> bool:
    return objective.cross is not None and objective.cross.shape[1] == 1


def takes_part(objective: Objective, k: int = 0) -> bool:
    """Return whether the tree of relaxations in memory may be better: there are many columns.

    k: with one target, many subsets of k columns suffice.
    """
    many = _has_one_target(objective) and math.comb(objective.n, k) > _TOO_MANY_TO_TRY
    return objective.has_gram and (many or objective.n >= MANY_COLUMNS)


@dataclass
class ProofProblem:
    """What a proof is about, and what it may use.

    Parameters
    ----------
    objective : ItemObjective
        f over columns, or over groups of them.
    k : int
        The most columns or groups to choose.
    incumbent : tuple of int
        A known subset; empty if there is none.
    seed : int
        Of the quick search for a good subset.
    memory_limit : int
        Bytes that the open nodes and tables may take.
    deadline : Deadline
        Of the whole proof. The quick search takes a share of the time.
    log : ProofLog, optional
        Where to write the tree, so that it can be checked.
    coefficient_limit : float, optional
        See `OutOfCoreTree`.
    largest_coefficient : float, optional
        Bounds are about subsets whose coefficients, for columns of norm 1, are at most this many times the largest one
        of the incumbent.
    largest : float, optional
        That limit itself, if it is known.
    setup : CommonSetup, optional
        What the proofs for several sizes share.
    near_best : ListRule, optional
        Find all near-best subsets, not only the best one.
    kept : dict, optional
        What the tree of the same proof on other data has left.
    nodes : int, optional
        The most nodes that a head start visits, and the proof after it.
    """

    objective: Any
    k: int
    incumbent: tuple[int, ...] = ()
    seed: int = 0
    memory_limit: int = 8 << 30
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    log: ProofLog | None = None
    coefficient_limit: float | None = None
    largest_coefficient: float | None = None
    largest: float | None = None
    setup: CommonSetup | None = None
    near_best: ListRule | None = None
    kept: Mapping[str, Any] | None = None
    nodes: int | None = None

    def __post_init__(self) -> None:
        """Share the set-up with no other proof by default."""
        self.setup = self.setup or CommonSetup(self.objective)
        if self.largest is None and self.largest_coefficient is not None and self._has_box:
            self.largest = self.largest_coefficient * largest_coefficient(self.objective, self.start) or None

    def new_list(self) -> NearBest | None:
        """Return the near-best subsets, none so far; None if only the best subset is looked for."""
        if self.near_best is None:
            return None
        assert self.setup is not None
        error = self.setup.guarantee(self.k, self.deadline).error
        return near_best_of(self.objective, self.k, self.near_best, error)

    @property
    def most_nodes(self) -> int:
        """The limit of nodes; without one, a number that no tree reaches."""
        return 2**62 if self.nodes is None else self.nodes

    @property
    def grouped(self) -> bool:
        """Whether groups of columns are chosen."""
        return self.objective.groups is not None

    @property
    def limited(self) -> bool:
        """Whether a limit for coefficients is given, and the objective can use it."""
        given = self.coefficient_limit is not None or self.largest_coefficient is not None
        return given and not self.grouped and _has_one_target(self.objective)

    @property
    def _has_box(self) -> bool:
        """Whether the tree of relaxations in memory limits each coefficient. Few columns need no limit."""
        objective = self.objective
        return self.limited and objective.has_gram and MANY_COLUMNS <= objective.n <= MOST_DENSE

    @property
    def wide(self) -> bool:
        """Whether the proof must do without factorizations of the whole Gram matrix.

        Few columns need no limit for coefficients: other proofs are quick.
        """
        objective = self.objective
        if self.grouped:
            return False
        if not objective.has_gram or (objective.n > MOST_DENSE and relaxable(objective)):
            return True
        return self.limited and self.largest is None and objective.n >= MANY_COLUMNS

    @property
    def start(self) -> tuple[int, ...]:
        """The known subset, or that of forward selection."""
        return self.incumbent or forward_subset(self.objective, self.k)

    def quick_subset(self, share: float = _START) -> tuple[int, ...]:
        """Return a good subset quickly, in at most a share of the time."""
        return starting_subset(self.objective, self.k, self.seed, self.deadline.share(share), self.incumbent)


@dataclass(frozen=True)
class TreeEntry:
    """A tree that `choose_tree` may choose.

    Parameters
    ----------
    tree : type of BestFirstTree
        The class, which restores saved trees of its `kind`.
    suits : callable
        Returns whether the tree can prove something about a problem.
    begin : callable
        Returns the tree for a problem, or another one that proves more. It raises CapacityError if its memory does not
        suffice; the next tree that suits is then tried.
    """

    tree: type[Tree]
    suits: Callable[[ProofProblem], bool]
    begin: Callable[[ProofProblem], Tree]

    @property
    def name(self) -> str:
        """The kind of the tree, as saved states hold it."""
        return self.tree.kind


def _begin_groups(problem: ProofProblem) -> Tree:
    search = tree_in_memory(problem)
    search.offer(problem.quick_subset())
    return search


def _begin_in_passes(problem: ProofProblem) -> Tree:
    arguments: dict[str, Any] = {"incumbent": problem.start, "memory_limit": problem.memory_limit}
    if problem.limited:
        tree = OutOfCoreTree(
            problem.objective, problem.k, coefficient_limit=problem.coefficient_limit,
            largest_coefficient=problem.largest_coefficient, **arguments,
        )  # fmt: skip
        if tree.limited:  # otherwise no column explains anything
            return tree if problem.largest_coefficient is not None else _with_or_without_limit(problem, tree)
    if relaxable(problem.objective):
        return OutOfCoreTree(problem.objective, problem.k, **arguments)
    return _begin_targets(problem)


def _with_or_without_limit(problem: ProofProblem, limited: OutOfCoreTree) -> Tree:
    """Return the tree for limited coefficients, or the one for all subsets in memory, whichever promises more.

    Both take turns, each as long as all its turns before, until one is done or they have taken long enough.
    """
    objective, deadline = problem.objective, problem.deadline
    if not objective.has_gram or objective.n > MOST_DENSE:
        return limited
    try:
        general = _perspective_tree(replace(problem, incumbent=limited.best), hands_over=True)
    except ValueError:  # nearly dependent columns
        return limited
    for tree in (general, limited):
        with deadline.paused():
            tree.warm_up()
    seconds, start = _FIRST_TURN, deadline.remaining
    while not (general.done or limited.done or deadline.passed) and seconds <= _LAST_TURN:
        for tree in (general, limited):
            with tree.time_limit(min(seconds, 0.5 * deadline.remaining)):
                tree.advance(problem.most_nodes)
            if tree.done:
                break
        general.offer(limited.best)
        limited.offer(general.best)
        seconds *= 2.0
    gap = limited.best_value - limited.lower
    logger.info("gap after %.1f s: %g with the limit, %g without", start - deadline.remaining, gap, general.gap)
    return general if general.done or general.gap <= gap else limited


def _begin_targets(problem: ProofProblem) -> Tree:
    return TargetBound(problem.objective, problem.k, incumbent=problem.start)


def _begin_race(problem: ProofProblem) -> Tree:
    if problem.kept is not None and problem.incumbent:
        try:
            return _perspective_tree(problem, hands_over=True)
        except ValueError as error:
            logger.info("the proof begins again: %s", error)
    known = [S for S in (problem.quick_subset(), problem.incumbent) if S]
    return better_tree(replace(problem, incumbent=min(known, key=problem.objective.value, default=())))


def _begin_branch_and_bound(problem: ProofProblem) -> Tree:
    search = _branch_and_bound(problem)
    if len(problem.incumbent) == problem.k and is_small(problem.objective, problem.k) and not search.done:
        with problem.deadline.paused():
            search.warm_up(DELETION_KERNELS)  # all at once: a process that helps takes long to start
    search.offer(problem.quick_subset())
    return search


def _begin_root(problem: ProofProblem) -> Tree:
    return RootBound(
        problem.objective, problem.k, incumbent=problem.start, deadline=problem.deadline, setup=problem.setup
    )  # fmt: skip


def _branch_and_bound(problem: ProofProblem, bound: BoundName = "combined") -> BranchAndBound:
    return BranchAndBound(
        problem.objective, problem.k, incumbent=problem.incumbent, bound=bound, memory_limit=problem.memory_limit,
        log=problem.log, deadline=problem.deadline, setup=problem.setup, near_best=problem.new_list(),
    )  # fmt: skip


def _perspective_tree(problem: ProofProblem, *, hands_over: bool) -> PerspectiveTree:
    """Return the tree of relaxations. Errors: ValueError if the columns are nearly dependent."""
    with problem.deadline.paused():
        load_kernels(*RELAXATION_KERNELS, *(REBOUND_KERNELS if problem.kept else ()))
    return PerspectiveTree(
        problem.objective, problem.k, incumbent=problem.incumbent, memory_limit=problem.memory_limit,
        setup=problem.setup, hands_over=hands_over, deadline=problem.deadline, near_best=problem.new_list(),
        kept=problem.kept, largest=problem.largest,
    )  # fmt: skip


def tree_in_memory(problem: ProofProblem, bound: BoundName | Literal["auto", "perspective"] = "auto") -> Tree:
    """Return the tree with this bound over a Gram matrix in memory, from the known subset alone.

    "auto": that of groups if groups of columns are chosen, else the better one of two, see `better_tree`.
    """
    if problem.grouped:
        near_best = problem.new_list()
        return GroupTree(problem.objective, problem.k, problem.incumbent, problem.log, near_best, problem.setup)
    if bound == "auto":
        return better_tree(problem)
    return _perspective_tree(problem, hands_over=False) if bound == "perspective" else _branch_and_bound(problem, bound)


def better_tree(problem: ProofProblem) -> BranchAndBound | PerspectiveTree:
    """Return the tree of relaxations or branch and bound, whichever has the better bound.

    The one of relaxations has a head start, which proves easy problems before the other one has its first bound. If
    there are too many subsets for the other tree to try, it may also first find better diagonals, unless the deadline
    is near.
    """
    objective = problem.objective
    if not takes_part(objective, problem.k):
        return _branch_and_bound(problem)
    try:
        tree = _perspective_tree(problem, hands_over=True)
    except ValueError:  # nearly dependent columns
        return _branch_and_bound(problem)
    _advance(tree, min(max(_SECONDS * objective.n**3, _LEAST), _MOST), problem)
    if tree.done:
        return tree
    try:
        search = _branch_and_bound(replace(problem, incumbent=tree.best))
    except (CapacityError, OutOfTime):
        return tree
    if not search.done and _is_better(tree, search, problem):
        return tree
    search.offer(tree.best)
    if search.near_best is not None and tree.near_best is not None:
        search.near_best.restore(tree.near_best.state()["subsets"])
    if not search.done and not tree.limited:
        search.narrow(tree.lower, tree.open_columns())
    return search


def _is_better(tree: PerspectiveTree, other: BranchAndBound, problem: ProofProblem) -> bool:
    """Return whether the tree of relaxations promises more."""
    if other.node_seconds() > _SLOW_NODE or tree.gap < _BETTER * (other.cutoff_value - other.lower):
        return True
    few = math.comb(other.objective.n, other.k) <= _MANY_SUBSETS
    if few or problem.deadline.remaining < _ENOUGH_TIME:
        return False
    _advance(tree, _HEAD_START, problem)
    return tree.done or tree.gap < _BETTER_THEN * (other.cutoff_value - other.lower)


def _advance(tree: PerspectiveTree, seconds: float, problem: ProofProblem) -> None:
    """Continue until the relaxations took about these seconds, or a limit of the proof is met."""
    most = problem.most_nodes
    while (
        tree.seconds < seconds
        and tree.iteration < most
        and not (tree.done or tree.memory_full or problem.deadline.passed)
    ):
        tree.advance(tree.iteration + 1)


#: The trees, those first that prove most where they suit.
TREES: Registry[TreeEntry] = Registry(
    "tree", TreeEntry, GROUP,
    (
        TreeEntry(GroupTree, lambda problem: problem.grouped, _begin_groups),
        TreeEntry(OutOfCoreTree, lambda problem: problem.wide, _begin_in_passes),
        TreeEntry(TargetBound, lambda problem: problem.wide, _begin_targets),
        TreeEntry(
            PerspectiveTree,
            lambda problem: problem.log is None and not problem.grouped and takes_part(problem.objective, problem.k),
            _begin_race,
        ),
        TreeEntry(BranchAndBound, lambda problem: not problem.grouped, _begin_branch_and_bound),
        TreeEntry(RootBound, lambda problem: not problem.grouped, _begin_root),
    ),
)  # fmt: skip


def choose_tree(problem: ProofProblem) -> Tree:
    """Return the tree that proves most about a problem, with a good subset to begin with.

    Trees of other packages come first. Raises OutOfTime if the first bound would be there after the deadline.
    """
    for name in sorted(TREES, key=lambda name: name in TREES.own):
        entry = TREES[name]
        if not entry.suits(problem):
            continue
        try:
            return entry.begin(problem)
        except CapacityError as error:
            logger.info("The proof by %s needs more memory; a simpler bound follows. %s", name, error)
    raise OptionError("No tree can prove anything about this problem.", "Select without a certificate.")


def restore_tree(
    objective: ItemObjective, state: Mapping[str, Any], *, memory_limit: int = 8 << 30,
    log: ProofLog | None = None, setup: CommonSetup | None = None,
) -> Tree:  # fmt: skip
    """Return the tree of a saved state; it continues with the same nodes."""
    tree = TREES[state["kind"]].tree
    return tree.restore(objective, state, memory_limit=memory_limit, log=log, setup=setup)  # type: ignore[arg-type]

"""Which tree proves a subset: the trees by their kind, and the choice between them.

A new tree is a subclass of `dsel.search.exact.tree.BestFirstTree` and an entry of `TREES`, or of the entry-point group
``dsel.trees`` of another package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dsel._lib.plugins import Registry
from dsel.errors import CapacityError, OptionError
from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.anytime import Deadline
from dsel.search.exact.base import CommonSetup
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.group_tree import GroupTree
from dsel.search.exact.out_of_core.choice import is_wide, limits_coefficients, relaxable
from dsel.search.exact.out_of_core.search import WideTree
from dsel.search.exact.perspective_tree.choice import better_tree, takes_part
from dsel.search.exact.perspective_tree.search import PerspectiveTree
from dsel.search.exact.proof_log import ProofLog
from dsel.search.exact.root_bound import RootBound, TargetBound
from dsel.search.exact.starting_subset import forward_subset, is_small, starting_subset
from dsel.search.exact.tree import BestFirstTree

logger = logging.getLogger("dsel")

Tree = BestFirstTree[Any]

#: The entry-point group in which a package lists its trees.
GROUP = "dsel.trees"
#: Most of the time that the quick search takes.
_START = 0.2


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
        See `WideTree`.
    setup : CommonSetup, optional
        What the proofs for several sizes share.
    """

    objective: Any
    k: int
    incumbent: tuple[int, ...] = ()
    seed: int = 0
    memory_limit: int = 8 << 30
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    log: ProofLog | None = None
    coefficient_limit: float | None = None
    setup: CommonSetup | None = None

    def __post_init__(self) -> None:
        """Share the set-up with no other proof by default."""
        self.setup = self.setup or CommonSetup(self.objective)

    @property
    def grouped(self) -> bool:
        """Whether groups of columns are chosen."""
        return self.objective.groups is not None

    @property
    def wide(self) -> bool:
        """Whether the proof must do without factorizations of the whole Gram matrix."""
        return not self.grouped and is_wide(self.objective, self.coefficient_limit)

    @property
    def start(self) -> tuple[int, ...]:
        """The known subset, or that of forward selection."""
        return self.incumbent or forward_subset(self.objective, self.k)


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
    search = GroupTree(problem.objective, problem.k, problem.incumbent, problem.log)
    search.offer(_quick_subset(problem))
    return search


def _begin_in_passes(problem: ProofProblem) -> Tree:
    limit = problem.coefficient_limit if limits_coefficients(problem.objective, problem.coefficient_limit) else None
    arguments: dict[str, Any] = {"incumbent": problem.start, "memory_limit": problem.memory_limit}
    if limit is not None:
        tree = WideTree(problem.objective, problem.k, coefficients=limit, **arguments)
        if tree.limit > 0.0:  # otherwise no column explains anything
            return tree
    if relaxable(problem.objective):
        return WideTree(problem.objective, problem.k, **arguments)
    return _begin_targets(problem)


def _begin_targets(problem: ProofProblem) -> Tree:
    return TargetBound(problem.objective, problem.k, incumbent=problem.start)


def _branch_and_bound(problem: ProofProblem, incumbent: Iterable[int]) -> BranchAndBound:
    return BranchAndBound(
        problem.objective, problem.k, incumbent=incumbent, memory_limit=problem.memory_limit, log=problem.log,
        deadline=problem.deadline, setup=problem.setup,
    )  # fmt: skip


def _quick_subset(problem: ProofProblem) -> tuple[int, ...]:
    """Return a good subset quickly."""
    deadline = problem.deadline.share(_START)
    return starting_subset(problem.objective, problem.k, problem.seed, deadline, problem.incumbent)


def _begin_race(problem: ProofProblem) -> Tree:
    """Return the tree of relaxations or branch and bound, whichever has the better bound after a head start."""
    known = [S for S in (_quick_subset(problem), problem.incumbent) if S]
    return better_tree(
        problem.objective, problem.k, lambda incumbent: _branch_and_bound(problem, incumbent),
        incumbent=min(known, key=problem.objective.value, default=()), memory_limit=problem.memory_limit,
        deadline=problem.deadline, setup=problem.setup,
    )  # fmt: skip


def _begin_branch_and_bound(problem: ProofProblem) -> Tree:
    search = _branch_and_bound(problem, problem.incumbent)
    if len(problem.incumbent) == problem.k and is_small(problem.objective, problem.k) and not search.done:
        with problem.deadline.paused():
            search.warm_up(DELETION_KERNELS)  # all at once: a process that helps takes long to start
    search.offer(_quick_subset(problem))
    return search


def _begin_root(problem: ProofProblem) -> Tree:
    return RootBound(
        problem.objective, problem.k, incumbent=problem.start, deadline=problem.deadline, setup=problem.setup
    )  # fmt: skip


#: The trees, those first that prove most where they suit.
TREES: Registry[TreeEntry] = Registry(
    "tree", TreeEntry, GROUP,
    (
        TreeEntry(GroupTree, lambda problem: problem.grouped, _begin_groups),
        TreeEntry(WideTree, lambda problem: problem.wide, _begin_in_passes),
        TreeEntry(TargetBound, lambda problem: problem.wide, _begin_targets),
        TreeEntry(
            PerspectiveTree,
            lambda problem: problem.log is None and not problem.grouped and takes_part(problem.objective),
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

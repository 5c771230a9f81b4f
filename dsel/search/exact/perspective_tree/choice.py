"""Which tree proves a subset: that of relaxations, or branch and bound by the fit of all columns that are left.

The first hands nodes over to the second where that takes less time (`subtree_solver`). The second begins
with the bound and the columns that the first one leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from dsel._lib.kernel_loading import load_kernels
from dsel.errors import CapacityError
from dsel.objective.base import Objective
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.base import CommonSetup
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.perspective_tree.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.perspective_tree.search import PerspectiveTree
from dsel.search.exact.starting_subset import MANY_COLUMNS

#: The tree of relaxations has a head start of about as many seconds as a better diagonal than the ridge penalty takes,
#: and the first bound of the other tree: this factor of n^3, at least and at most.
_SECONDS, _LEAST, _MOST = 1e-9, 0.02, 5.0
#: The share of the other tree's gap that this one's must be below to be preferred.
_BETTER = 0.35
#: With more subsets than this the other tree cannot try most of them. This one then has about these seconds before its
#: gap is compared with the other tree's first one, and with another share.
_MANY_SUBSETS, _HEAD_START, _BETTER_THEN = 10**12, 0.5, 0.65
#: With less time than this it has no such head start.
_ENOUGH_TIME = 2.5
#: The other tree is too slow if a node takes longer, in seconds.
_SLOW_NODE = 1.0


def takes_part(objective: Objective) -> bool:
    """Return whether the tree of relaxations may be better: there are many columns."""
    return objective.n >= MANY_COLUMNS and objective.has_gram


def better_tree(
    objective: Objective, k: int, other: Callable[[Iterable[int]], BranchAndBound], *, incumbent: Iterable[int] = (),
    memory_limit: int = 8 << 30, deadline: Deadline | None = None, setup: CommonSetup | None = None,
) -> BranchAndBound | PerspectiveTree:  # fmt: skip
    """Return the tree of the better bound.

    The one of relaxations has a head start, which proves easy problems before the other one has its first bound. If
    there are too many subsets for the other tree to try, it may also first find better diagonals, unless the deadline
    is near. other: returns the other tree for an incumbent. setup: what proofs for other sizes share.
    """
    deadline = deadline or Deadline(None)
    known = tuple(incumbent)
    if not takes_part(objective):
        return other(known)
    with deadline.paused():
        load_kernels(*RELAXATION_KERNELS)
    try:
        tree = PerspectiveTree(
            objective, k, incumbent=known, memory_limit=memory_limit, setup=setup, hands_over=True, deadline=deadline
        )  # fmt: skip
    except ValueError:  # nearly dependent columns
        return other(known)
    _advance(tree, min(max(_SECONDS * objective.n**3, _LEAST), _MOST), deadline)
    if tree.done:
        return tree
    try:
        search = other(tree.best)
    except (CapacityError, OutOfTime):
        return tree
    if not search.done and _is_better(tree, search, deadline):
        return tree
    search.offer(tree.best)
    if not search.done:
        search.narrow(tree.lower, tree.open_columns())
    return search


def _is_better(tree: PerspectiveTree, other: BranchAndBound, deadline: Deadline) -> bool:
    """Return whether the tree of relaxations promises more."""
    if other.node_seconds() > _SLOW_NODE or tree.gap < _BETTER * (other.best_value - other.lower):
        return True
    few = math.comb(other.objective.n, other.k) <= _MANY_SUBSETS
    if few or deadline.remaining < _ENOUGH_TIME:
        return False
    _advance(tree, _HEAD_START, deadline)
    return tree.done or tree.gap < _BETTER_THEN * (other.best_value - other.lower)


def _advance(tree: PerspectiveTree, seconds: float, deadline: Deadline) -> None:
    """Continue until the relaxations took about these seconds."""
    while tree.seconds < seconds and not (tree.done or tree.memory_full or deadline.passed):
        tree.advance(tree.iteration + 1)

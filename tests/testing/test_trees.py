"""Every tree of proofs of dsel keeps the contract of a tree, and `check_tree` finds those that break it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.choose_tree import TREES, ProofProblem, TreeEntry
from dsel.testing import SmallProblem, check_tree, small_problems
from tests.search.exact.plain_tree import PlainTree, entry_of


@dataclass(frozen=True, eq=False)
class WithoutGramMatrix(SmallProblem):
    """A problem whose Gram matrix is read row by row."""

    @cached_property
    def objective(self) -> Any:
        assert self.Y is not None
        norms, total = np.square(self.X).sum(axis=0), float(np.square(self.Y).sum())
        return OnDemandObjective(InMemoryFactor(self.X), norms, self.X.T @ self.Y, total, self.lam, batch=2)


def wide_problems() -> list[SmallProblem]:
    usable = [p for p in small_problems() if p.Y is not None and p.groups is None]
    return [WithoutGramMatrix(p.name, p.X, p.Y, p.lam) for p in usable]


def many_columns() -> list[SmallProblem]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 150))
    return [SmallProblem("150 columns", X, X[:, [3]] - X[:, [100]] + 2.0 * rng.normal(size=(200, 1)))]


@pytest.mark.parametrize("name", ["branch-and-bound", "root", "groups"])
def test_the_trees_in_memory_keep_the_contract(name: str) -> None:
    check_tree(TREES[name])


@pytest.mark.parametrize("name", ["wide-tree", "targets"])
def test_the_trees_in_passes_keep_the_contract(name: str) -> None:
    check_tree(TREES[name], wide_problems())


def test_the_tree_of_relaxations_keeps_the_contract() -> None:
    check_tree(TREES["perspective-tree"], many_columns(), k=2)


class Boastful(PlainTree):
    """Its bound is a tenth too high."""

    @property
    def lower(self):
        return 1.1 * super().lower


class Hasty(PlainTree):
    """It ends after three nodes, and calls that a proof."""

    @property
    def done(self):
        return self.iteration >= 3


class Careless(PlainTree):
    """It leaves out the last column."""

    def _push(self, key, node):
        super()._push(key, (node[0], node[1][:-1]))


class Ungrateful(PlainTree):
    """It does not take the known subset, and ends at once."""

    def offer(self, S):
        return False

    @property
    def lower(self):
        return 0.0

    @property
    def active(self):
        return False


class Forgetful(PlainTree):
    """It does not save the number of nodes that it visited."""

    def state(self):
        return {**super().state(), "visited": 0}


class Possessive(BranchAndBound):
    """It does not put back the nodes of a worker that failed."""

    kind = "possessive"

    def requeue(self, lease_id):
        del self._leased[lease_id]


def begin_possessive(problem: ProofProblem) -> BranchAndBound:
    return Possessive(problem.objective, problem.k, incumbent=problem.incumbent)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (Boastful, "the bound .* is above"),
        (Hasty, "said to be proved|proved, and|the bound .* is above"),
        (Careless, "said to be proved|proved, and|the bound .* is above"),
        (Ungrateful, "the known subset is lost"),
        (Forgetful, "the count of nodes is lost"),
    ],
)
def test_a_tree_that_breaks_the_contract_is_found(tree: type[PlainTree], message: str) -> None:
    check_tree(entry_of(PlainTree), small_problems()[:1])
    with pytest.raises(AssertionError, match=message):
        check_tree(entry_of(tree), small_problems()[:1])


def test_nodes_that_are_lost_with_a_worker_are_found() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 16)) @ (np.eye(16) + 0.7 * rng.normal(size=(16, 16)))
    noise = [SmallProblem("noise", X, rng.normal(size=(40, 1)))]
    entry = TreeEntry(Possessive, lambda problem: True, begin_possessive)
    with pytest.raises(AssertionError, match=r"a lease changes the bound|is above|is said to be proved"):
        check_tree(entry, noise, k=4)


def test_another_kind_and_a_tree_that_suits_nothing_are_found() -> None:
    other = replace(TREES["root"], suits=lambda problem: False)
    with pytest.raises(AssertionError, match="suits none of the problems"):
        check_tree(other)

"""Proofs for losses over groups of columns: the best groups by enumeration, bounds, and leaves that are kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.multinomial import Multinomial
from dsel.objective.losses.poisson import Poisson
from dsel.objective.losses.quantile import Quantile
from dsel.search.exact.losses.grouping import Grouping
from dsel.search.exact.losses.proof import LossProblem, dual_bound, prove_loss
from dsel.search.exact.losses.tree import LossTree
from dsel.search.exact.near_best import ListRule
from tests.search.exact.losses.test_proof import fitted, problem_for

SIZES = [1, 3, 2, 1, 2, 1]
STARTS = np.cumsum([0, *SIZES])
LOSSES: list[Loss] = [Logistic(), Poisson(), Quantile(0.7, 0.5)]


def grouped(loss: Loss, seed: int = 0, **changes: Any) -> LossProblem:
    """Return a random problem of six groups, two of whose columns are the codes of a category."""
    problem = problem_for(loss, seed, n=sum(SIZES))
    Z = problem.Z.copy()
    Z[:, 4:6] = np.random.default_rng(seed).integers(0, 2, 40)[:, None] == np.arange(2)
    return replace(problem, Z=Z, groups=Grouping.of_sizes(SIZES), **changes)


def columns_of(S: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(j for g in S for j in range(STARTS[g], STARTS[g + 1]))


def best_groups(problem: LossProblem, k: int, include: tuple[int, ...] = (), exclude: tuple[int, ...] = ()) -> Any:
    """Return the least F and its groups by enumeration, with a general optimizer."""
    others = [g for g in range(len(SIZES)) if g not in include + exclude]
    subsets = [tuple(sorted(include + S)) for S in combinations(others, k - len(include))]
    return min((fitted(problem, columns_of(S)), S) for S in subsets)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("changes", [{}, {"lam": 0.0, "limit": 0.4}, {"lam": 0.0}], ids=["penalty", "limit", "none"])
def test_a_proof_finds_the_best_of_all_groups(loss: Loss, changes: dict[str, Any]) -> None:
    problem = grouped(loss, **changes)
    value, members = best_groups(problem, 2)
    found = prove_loss(problem, 2)
    assert found.proven
    assert found.members == members
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.bound == pytest.approx(found.value, rel=1e-6)


def test_included_groups_are_in_the_best_subset_and_excluded_ones_are_not() -> None:
    problem = grouped(Poisson(), seed=1)
    value, members = best_groups(problem, 3, include=(4,), exclude=(0,))
    found = prove_loss(problem, 3, include=(4,), exclude=(0,))
    assert found.members == members
    assert found.value == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("limited", [False, True], ids=["penalty", "limit"])
def test_any_dual_vector_gives_a_bound_below_all_groups(limited: bool) -> None:
    problem = grouped(Logistic(), seed=2, **({"lam": 0.0, "limit": 0.5} if limited else {}))
    best, _ = best_groups(problem, 2)
    rng, useful = np.random.default_rng(3), 0
    for size in (0.0, 0.1, 0.3, 1.0):
        a = problem.w * problem.loss.slope(problem.y, problem.offset + size * problem.Z @ rng.standard_normal(10))
        for vector in (a, 0.5 * a, 0.05 * a, a + rng.standard_normal(a.size)):
            bound = dual_bound(problem, vector, 2)
            assert bound <= best
            useful += bound > 0.0
    assert useful


def test_groups_of_one_column_are_proved_as_columns_are() -> None:
    problem = problem_for(Logistic(), seed=3)
    single = prove_loss(problem, 3)
    alone = prove_loss(replace(problem, groups=Grouping.of_sizes([1] * 7)), 3)
    assert alone.members == single.members
    assert alone.value == pytest.approx(single.value, rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_three_classes_share_the_groups(intercept: bool) -> None:
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((50, 10))
    scores = np.stack([Z[:, 0], Z[:, 5], -Z[:, 0] - Z[:, 5]], axis=1) + rng.gumbel(size=(50, 3))
    y = scores.argmax(axis=1).astype(float)
    loss = Multinomial().fitted_to(y)
    problem = LossProblem(Z, y, np.ones(50), np.zeros(50), loss, 1.0, intercept, None, Grouping.of_sizes(SIZES))
    alone = replace(problem, groups=None)
    best = min(
        (prove_loss(alone, len(columns_of(S)), include=columns_of(S)).value, S) for S in combinations(range(6), 2)
    )
    found = prove_loss(problem, 2)
    assert (found.proven, found.members) == (True, best[1])
    assert found.value == pytest.approx(best[0], rel=1e-9)


def test_the_list_of_near_best_groups_is_complete() -> None:
    problem = grouped(Logistic(), seed=5)
    listed = prove_loss(problem, 2, listing=ListRule(0.5, 100)).near_best
    assert listed is not None
    values = {S: fitted(problem, columns_of(S)) for S in combinations(range(6), 2)}
    assert {tuple(sorted(S)) for S, _ in listed.subsets} == {S for S, f in values.items() if f <= listed.threshold}


class Keeper:
    """It keeps the leaves of a tree, and lets another one follow them."""

    saved: dict[str, Any] | None = None

    def begin(self, tree: LossTree) -> None:
        tree.keeps = True
        assert self.saved is None or tree.follow(self.saved)

    def after_node(self, tree: LossTree) -> bool:
        return False

    def at_end(self, tree: LossTree) -> None:
        self.saved = tree.kept(1 << 20)


def test_a_stopped_proof_continues_from_its_leaves() -> None:
    problem, keeper = grouped(Poisson(), seed=6), Keeper()
    first = prove_loss(problem, 3, nodes=5, watcher=keeper)
    later = prove_loss(problem, 3, watcher=keeper)
    assert not first.proven
    assert later.proven
    assert later.nodes > first.nodes
    assert later.members == best_groups(problem, 3)[1]

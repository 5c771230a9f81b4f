"""The near-best subsets that a tree lists are those of enumeration, and what it says about columns is true."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dsel.errors import CapacityError
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop
from dsel.search.exact.alternatives import NearBestAnswer, summarize
from dsel.search.exact.branch_and_bound import explorer
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.choose_tree import ProofProblem, restore_tree, tree_in_memory
from dsel.search.exact.near_best import ListRule, OpenBounds, near_best_of
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.root_bound import RootBound
from dsel.search.exact.trees_on_workers import SubtreeEstimate, on_workers
from pipelines.proof_check.alternatives import AllSubsets, Faults, check_answer
from tests.search.exact.cases import hard_case, regression, self_expression
from tests.search.shuffled_executor import ShuffledExecutor

ALL = 10**9
TREES = ("combined", "leaps", "eigenvalue", "perspective", "handed over")
KINDS = ("plain", "correlated", "copies", "ties", "self-expression")


def problem(rng: np.random.Generator, kind: str) -> tuple[DenseObjective, int]:
    """Return a random objective over a few columns, and k."""
    n, m, N = int(rng.integers(4, 11)), int(rng.integers(8, 30)), int(rng.choice([1, 1, 3, 12]))
    lam = float(rng.choice([0.0, 0.0, 3.0]))
    X = rng.standard_normal((m, n))
    if kind == "correlated":
        X = X @ (np.eye(n) + 0.6 * rng.standard_normal((n, n)))
    if kind == "copies":
        X[:, 1], X[:, 3] = X[:, 0] + 1e-5 * rng.standard_normal(m), X[:, 2] + X[:, 0]
    Y = X[:, :4] @ rng.standard_normal((4, N)) + 2.0 * rng.standard_normal((m, N))
    if kind == "ties":
        X, Y = rng.integers(-1, 2, (m, n)).astype(float), rng.integers(-1, 2, (m, N)).astype(float)
    k = int(rng.integers(1, min(5, n) + 1))
    return (self_expression(X, lam) if kind == "self-expression" else regression(X, Y, lam)), k


def rule(rng: np.random.Generator) -> ListRule:
    """Return a random rule."""
    within = [None, 0.0, 0.001, 0.01, 0.1, 0.5][int(rng.integers(6))]
    return ListRule(within, int(rng.choice([1, 3, 20] if within is None else [1, 3, 20, 100_000])))


def enumerated(objective: DenseObjective, k: int) -> AllSubsets:
    """Return all independent subsets of k columns."""
    members = [S for S in combinations(range(objective.n), k) if objective.rank(S) == k]
    f = np.array([objective.value(S) for S in members])
    return AllSubsets(objective.n, members, f, np.ones(f.size, np.bool_), objective.total, 1e-9 * objective.total)


def tree_of(name: str, objective: DenseObjective, k: int, listed: ListRule, **options: Any) -> Any:
    """Return a tree without a known subset, or None if the columns are nearly dependent."""
    if name in ("combined", "leaps", "eigenvalue"):
        near = ProofProblem(objective, k, near_best=listed).new_list()
        return BranchAndBound(objective, k, bound=name, near_best=near, **options)  # type: ignore[arg-type]
    near = ProofProblem(objective, k, near_best=listed).new_list()
    try:
        return PerspectiveTree(objective, k, hands_over=name == "handed over", near_best=near)
    except ValueError:
        return None


def answer_of(tree: Any) -> NearBestAnswer:
    """Return what a tree says without a search for prices."""
    opened = None if tree.done else tree.open_bounds()
    return summarize(tree.near_best, opened, tree.proved, tree.proven)


def faults_of(tree: Any, listed: ListRule, everything: AllSubsets, prices: AllSubsets | None = None) -> list[str]:
    """Return what is wrong with the answer of a tree. prices: see `check_answer`."""
    faults = Faults()
    check_answer(answer_of(tree), listed, everything, tree.done, tree.kind, faults, prices)
    return faults.any


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_lists_what_enumeration_lists(name: str, kind: str) -> None:
    rng = np.random.default_rng([KINDS.index(kind), 1])
    for _ in range(8):
        (objective, k), listed = problem(rng, kind), rule(rng)
        options = {"most_open": int(rng.choice([0, 3, 20_000])), "pairs": bool(rng.random() < 0.5)}
        tree = tree_of(name, objective, k, listed, **(options if name in TREES[:3] else {}))
        if tree is None:
            continue
        everything = enumerated(objective, k)
        while not tree.done:  # whenever it is stopped, it says nothing wrong, and its state has all of it
            tree.advance(tree.iteration + int(rng.integers(1, 20)))
            assert faults_of(tree, listed, everything) == []
            tree = restore_tree(objective, json.loads(json.dumps(tree.state())))
        assert tree.proven
        assert faults_of(tree, listed, everything) == []


@pytest.mark.parametrize("name", ["combined", "perspective", "handed over"])
def test_workers_list_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever the order of the results, and though tasks are lost."""
    monkeypatch.setattr(SubtreeEstimate, "budget", lambda self, workers: 5)
    monkeypatch.setattr("dsel.search.exact.perspective.perspective_tree._ALONE_SECONDS", 0.0)
    monkeypatch.setattr("dsel.search.exact.branch_and_bound.subproblem_tree._ALONE", 0)
    for listed in (ListRule(0.1, 5), ListRule(0.02, 1000), ListRule(None, 9)):
        objective = hard_case(1, n=14)
        tree, everything = tree_of(name, objective, 4, listed), enumerated(objective, 4)
        assert on_workers(ShuffledExecutor)(tree, Stop(iterations=ALL)) == "proven"
        assert faults_of(tree, listed, everything) == []


@pytest.mark.parametrize("room", [1, 2, 7])
@pytest.mark.parametrize("name", ["combined", "handed over"])
def test_a_list_of_the_kernel_that_is_full_loses_nothing(monkeypatch: pytest.MonkeyPatch, room: int, name: str) -> None:
    monkeypatch.setattr(explorer, "_LIST_ROOM", room)
    monkeypatch.setattr(SubtreeEstimate, "budget", lambda self, workers: 50)
    monkeypatch.setattr("dsel.search.exact.branch_and_bound.subproblem_tree._ALONE", 0)
    objective, listed = hard_case(2, n=12), ListRule(0.5, 10_000)
    everything = enumerated(objective, 4)
    for workers in (False, True):
        tree = tree_of(name, objective, 4, listed)
        if workers:
            on_workers(ShuffledExecutor)(tree, Stop(iterations=ALL))
        else:
            tree.advance(ALL)
        assert faults_of(tree, listed, everything) == []
        assert len(tree.near_best.subsets) > 2 * room


@pytest.mark.parametrize("name", ["combined", "perspective"])
def test_the_order_and_the_scale_of_columns_do_not_matter(name: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 12)) @ (np.eye(12) + 0.4 * rng.standard_normal((12, 12)))
    Y = X[:, :5] @ rng.standard_normal((5, 2)) + rng.standard_normal((40, 2))
    order, scale = rng.permutation(12), 10.0 ** rng.uniform(-4.0, 4.0, 12)
    found = []
    for A, columns in ((X, np.arange(12)), (X[:, order], order), (X * scale, np.arange(12))):
        tree = tree_of(name, regression(A, Y), 4, ListRule(0.05, 1000))
        tree.advance(ALL)
        answer = answer_of(tree)
        subsets = {tuple(sorted(columns[list(S)].tolist())): f for S, f in answer.subsets}
        found.append((subsets, {int(columns[j]): verdict for j, verdict in enumerate(answer.verdicts)}))
    assert len(found[0][0]) > 3
    for subsets, verdicts in found[1:]:
        assert subsets == pytest.approx(found[0][0])
        assert verdicts == found[0][1]


def test_a_better_subset_makes_a_witness_worthless() -> None:
    """A list of one is full at once. Then subtrees are skipped that decide about no column.

    The first witnesses are as bad as near-best subsets can be, and are not near-best when the best subset is found.
    """
    rng = np.random.default_rng(0)
    for _ in range(40):
        objective, k = problem(rng, "correlated")
        listed, everything = ListRule(0.5, 1), enumerated(objective, k)
        tree = tree_of("combined", objective, k, listed, most_open=int(rng.choice([0, 20_000])))
        order, having = np.argsort(everything.f, kind="stable"), everything.having()
        good = order[min(8, order.size - 1) :]
        for row in good[:2]:
            tree.offer(everything.members[row])
        limit = tree.near_best.threshold
        for j in range(objective.n):
            for side in (having[:, j], ~having[:, j]):
                rows = [row for row in good if side[row] and everything.f[row] <= limit]
                if rows:
                    tree.offer(everything.members[rows[-1]])
        tree.advance(ALL)
        assert faults_of(tree, listed, everything) == []


def test_prices_come_from_swaps_where_no_tree_saw_a_subset() -> None:
    objective = hard_case(1, n=12)
    proof = Proof.begin(objective, 4, near_best=ListRule(0.0, 10))
    assert proof.run()
    faults, everything = Faults(), enumerated(objective, 4)
    answer = proof.near_best()
    check_answer(answer, ListRule(0.0, 10), everything, True, "", faults)
    assert faults.any == []
    assert len(answer.subsets) == 1
    having = everything.having()
    for j in range(objective.n):  # local optima of swaps, here the best ones
        assert answer.value_with[j] == pytest.approx(everything.f[having[:, j]].min(), rel=0.05)


def test_a_proof_that_is_contradicted_decides_nothing() -> None:
    proof = Proof.begin(hard_case(1, n=10), 3, near_best=ListRule(0.05, 10))
    assert proof.run()
    proof.search.contradicted = True
    answer = proof.near_best()
    assert set(answer.verdicts) <= {"undecided", "replaceable"}
    assert answer.complete_below == 0.0
    assert not answer.complete


def test_without_a_witness_the_bound_of_n_best_subsets_is_no_higher_than_their_errors() -> None:
    objective = hard_case(1, n=8)
    near = near_best_of(objective, 3, ListRule(None, 1), 0.0)
    everything = enumerated(objective, 3)
    for row in np.argsort(everything.f)[:2]:
        near.take(everything.members[row], float(everything.f[row]))
    answer = summarize(near, None, float(everything.f.min()), True)
    unseen = [j for j in range(8) if j not in answer.example_with]
    assert unseen
    assert (answer.bound_with[unseen] <= np.sort(everything.f)[1] + 1e-12 * objective.total).all()


def test_open_nodes_bound_what_their_subsets_can_have() -> None:
    bounds = OpenBounds.none(4)
    bounds.include(1.0, np.array([0]), np.array([2, 3]))
    assert bounds.having.tolist() == [1.0, np.inf, 1.0, 1.0]
    assert bounds.lacking.tolist() == [np.inf, 1.0, 1.0, 1.0]


def test_a_tree_that_cannot_list_says_so() -> None:
    objective = hard_case(1, n=10)
    proof = Proof(RootBound(objective, 3), float("inf"))
    with pytest.raises(CapacityError, match="Near-best subsets cannot be listed"):
        proof.near_best()


def test_the_choice_of_a_tree_keeps_what_the_first_one_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.search.exact.choose_tree.MANY_COLUMNS", 1)
    listed = ListRule(0.05, 1000)
    for better in (0.0, 1e9):  # branch and bound, and the tree of relaxations
        monkeypatch.setattr("dsel.search.exact.choose_tree._BETTER", better)
        monkeypatch.setattr("dsel.search.exact.choose_tree._LEAST", 1e-4)
        objective = hard_case(1, n=14)
        tree: Any = tree_in_memory(ProofProblem(objective, 4, near_best=listed))
        tree.advance(ALL)
        assert faults_of(tree, listed, enumerated(objective, 4)) == []

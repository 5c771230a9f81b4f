"""A tree that follows the tree of the same proof on other data: the answer and bound of enumeration, whatever grew."""

from __future__ import annotations

import json
import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dsel.objective.dense import DenseObjective
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import ListRule, near_best_of
from dsel.search.exact.perspective.diagonals import scaled_columns, scaled_gram
from dsel.search.exact.perspective.kept_tree import KeptTree, feasible
from dsel.search.exact.perspective.node import WarmStart
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.perspective.relaxation import Problem
from tests.search.exact.cases import exhaustive, problems, regression

ALL, MOST = 10**9, 1 << 20
#: Nodes share one diagonal: those with their own leave nothing to follow.
SHARED = {"diagonal_after": float("inf")}


def first_tree(objective, k, **arguments):
    """A finished tree that keeps what another one follows."""
    try:
        tree = PerspectiveTree(objective, k, setup=CommonSetup(objective, guided=True), **arguments)
    except ValueError:  # nearly dependent columns
        assume(False)
    tree.advance(ALL)
    return tree


def following(objective, k, kept, **arguments):
    try:
        return PerspectiveTree(objective, k, kept=kept, setup=CommonSetup(objective, guided=True), **arguments)
    except ValueError:
        assume(False)


def grown(objective, seed, rows, scales):
    """The objective with further rows, and with columns in other units."""
    rng = np.random.default_rng(seed)
    n, N = objective.n, objective.cross.shape[1]
    X, Y = rng.standard_normal((rows, n)), rng.standard_normal((rows, N))
    D = rng.uniform(0.5, 2.0, n) if scales else np.ones(n)
    K = (objective.K + X.T @ X) * np.outer(D, D)
    cross = (objective.cross + X.T @ Y) * D[:, None]
    return DenseObjective(K, cross, objective.c + float(np.square(Y).sum()), objective.lam)


def noisy(m, n=40, seed=0, N=1):
    """Columns that explain little of their targets, so that a proof has many nodes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    X += 0.8 * np.roll(X, 1, axis=1)
    Y = X[:, :6] @ rng.uniform(0.2, 0.5, (6, N)) + 3.0 * rng.standard_normal((m, N))
    return X, Y


@given(problems(targets=(1, 2, 3)), st.integers(0, 1000), st.sampled_from((1, 3, 30)), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_after_an_append_the_answer_and_the_bound_are_those_of_enumeration(case, seed, rows, scales, hands_over):
    objective, k = case
    kept = first_tree(objective, k, hands_over=hands_over).kept(MOST)
    for night in range(2):
        objective = grown(objective, seed + night, rows, scales)
        tree = following(objective, k, kept, hands_over=hands_over)
        assert tree.advance(ALL)
        best = exhaustive(objective, k)
        assert tree.proven
        assert tree.best_value == pytest.approx(best, abs=1e-7 * objective.c)
        assert tree.proved <= best + 1e-9 * objective.c
        kept = tree.kept(MOST)


@pytest.mark.parametrize(("N", "lam"), [(1, 0.0), (1, 5.0), (2, 0.0)])
def test_night_by_night_it_proves_what_a_proof_from_the_beginning_proves_and_checks_leaves(N, lam):
    X, Y = noisy(700, N=N)
    kept, checked = first_tree(regression(X[:600], Y[:600], lam), 5, **SHARED).kept(MOST), 0
    for m in (606, 612, 630):
        objective = regression(X[:m], Y[:m], lam)
        tree, whole = following(objective, 5, kept), PerspectiveTree(objective, 5, **SHARED)
        tree.advance(ALL)
        whole.advance(ALL)
        assert (tree.best, tree.proven) == (whole.best, whole.proven)
        fields = tree.certificate_fields()
        assert 0 <= fields["leaves_searched"] <= fields["leaves_checked"]
        checked += fields["leaves_checked"]
        kept = tree.kept(MOST) or first_tree(objective, 5, **SHARED).kept(MOST)  # it took longer than the first one
    assert checked > 0


def test_on_the_same_data_every_leaf_holds():
    objective = regression(*noisy(600))
    first = first_tree(objective, 5, **SHARED)
    tree = following(objective, 5, first.kept(MOST), incumbent=first.best)
    tree.advance(ALL)
    fields = tree.certificate_fields()
    assert tree.proven
    assert fields["leaves_checked"] > 0
    assert fields["leaves_searched"] == 0


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("step", 3, 40), ("depth", 2, 0), ("column", 0, 39), ("step", 2, 400), ("support", 0, -1)],
)
def test_nodes_that_are_not_those_of_a_tree_over_these_columns_are_refused(name, place, value):
    objective = regression(*noisy(600))
    kept = first_tree(objective, 5, **SHARED).kept(MOST)
    wrong = kept[name].copy()
    wrong[place] = value
    with pytest.raises(ValueError, match="saved tree"):
        PerspectiveTree(objective, 5, kept={**kept, name: wrong}, setup=CommonSetup(objective, guided=True))


def test_coefficients_that_are_noise_cost_time_but_no_bound():
    objective = regression(*noisy(606))
    kept = first_tree(regression(*noisy(600)), 5, **SHARED).kept(MOST)
    noise = np.random.default_rng(0).standard_normal(kept["b"].shape).astype(np.float32)
    tree, whole = following(objective, 5, {**kept, "b": noise}), PerspectiveTree(objective, 5)
    tree.advance(ALL)
    whole.advance(ALL)
    assert (tree.best, tree.proven) == (whole.best, True)
    assert tree.proved <= whole.best_value


def test_coefficients_beyond_single_precision_prove_nothing_false():
    X, Y = noisy(300, n=8)
    objective = regression(1e50 * X, 1e50 * Y)
    tree = following(objective, 3, first_tree(objective, 3, **SHARED).kept(MOST))
    tree.advance(ALL)
    assert tree.best_value == exhaustive(objective, 3)


def test_other_data_cost_time_but_no_bound():
    kept = first_tree(regression(*noisy(600)), 5).kept(MOST)
    X, Y = noisy(600, seed=9)
    other = regression(X, Y[::-1].copy())
    tree, whole = following(other, 5, kept), PerspectiveTree(other, 5)
    tree.advance(ALL)
    whole.advance(ALL)
    assert tree.best == whole.best
    assert tree.lower == pytest.approx(whole.lower)


def test_a_tree_of_few_bytes_holds_the_nodes_near_the_root():
    X, Y = noisy(606)
    first = first_tree(regression(X[:600], Y[:600]), 5, **SHARED)
    whole, part = first.kept(MOST), first.kept(2000)
    assert sum(array.nbytes for array in part.values()) < 4000 < sum(array.nbytes for array in whole.values())
    assert 0 < part["depth"].size < whole["depth"].size
    objective = regression(X, Y)
    tree = following(objective, 5, part)
    tree.advance(ALL)
    assert tree.proven
    assert tree.best == first_tree(objective, 5).best


def test_an_unfinished_tree_is_continued_from_its_open_nodes():
    X, Y = noisy(606)
    old, objective = regression(X[:600], Y[:600]), regression(X, Y)
    first = PerspectiveTree(old, 5, setup=CommonSetup(old, guided=True), **SHARED)
    first.advance(20)
    assert not first.done
    tree, whole = following(objective, 5, first.kept(MOST)), first_tree(objective, 5, **SHARED)
    tree.advance(ALL)
    assert (tree.best, tree.proven, whole.proven) == (whole.best, True, True)
    assert tree.iteration < whole.iteration
    assert tree.kept(MOST)["finished"]
    assert tree.kept(MOST)["seconds"] > first.seconds  # of both parts


def test_a_tree_that_is_restored_again_and_again_keeps_all_of_it():
    objective = regression(*noisy(600))
    tree = PerspectiveTree(objective, 5, setup=CommonSetup(objective, guided=True), **SHARED)
    while not tree.done:
        tree.advance(tree.iteration + 20)
        kept, state = tree.kept(MOST), json.loads(json.dumps(tree.state()))
        tree = PerspectiveTree.restore(objective, state, setup=CommonSetup(objective, guided=True))
        tree.recall(kept)
    whole = first_tree(objective, 5, **SHARED)
    assert (tree.best, tree.iteration) == (whole.best, whole.iteration)
    assert tree.kept(MOST)["column"].tolist() == whole.kept(MOST)["column"].tolist()
    assert tree.kept(MOST)["step"].tolist() == whole.kept(MOST)["step"].tolist()


def test_near_best_subsets_are_those_of_a_proof_from_the_beginning():
    X, Y = noisy(606, n=20)
    rule = ListRule(0.15, 50)
    old, new = regression(X[:600], Y[:600]), regression(X, Y)
    kept = first_tree(old, 4, near_best=near_best_of(old, 4, rule, 0.0)).kept(MOST)
    lists = []
    for tree in (
        following(new, 4, kept, near_best=near_best_of(new, 4, rule, 0.0)),
        first_tree(new, 4, near_best=near_best_of(new, 4, rule, 0.0)),
    ):
        tree.advance(ALL)
        lists.append([S for S, _ in tree.near_best.subsets])
    assert len(lists[0]) > 1
    assert lists[0] == lists[1]


def test_workers_return_the_nodes_that_the_next_tree_follows():
    X, Y = noisy(606)
    objective = regression(X[:600], Y[:600])
    tree = PerspectiveTree(objective, 5, setup=CommonSetup(objective, guided=True), **SHARED)
    while not tree.done:
        tree.advance(tree.iteration + 1)
        work = pickle.loads(pickle.dumps(tree.work()))
        lease, nodes = tree.checkout(4, float("inf"), lambda node: 1.0)
        if nodes:
            sent = pickle.loads(pickle.dumps(nodes))
            tree.complete(lease, work.explore(work.explorer(), sent, tree.sent_cutoff, 20))
    alone = PerspectiveTree(objective, 5, setup=CommonSetup(objective, guided=True), **SHARED)
    alone.advance(ALL)
    assert tree.best == alone.best
    assert tree.kept(MOST)["depth"].size >= 0.5 * alone.kept(MOST)["depth"].size


def test_a_diagonal_of_other_columns_is_scaled_until_it_fits():
    K = scaled_gram(regression(*noisy(600)))
    d = feasible(K, np.full(40, 3.0))
    least = np.linalg.eigvalsh(K - np.diag(d))[0]
    assert 0.0 <= least < 1e-4
    with pytest.raises(ValueError, match="does not fit"):
        feasible(K, np.ones(39))


def test_columns_in_which_rounding_is_worth_as_much_as_the_diagonal_are_refused():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 6))
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    K = scaled_gram(regression(X, X[:, :1]))
    with pytest.raises(ValueError, match="nearly dependent"):
        feasible(K, np.array([1.0, 1.0, 1e-7, 1e-7, 1.0, 1.0]))


def test_open_nodes_hold_every_subset_that_explains_enough():
    runs = 0
    for seed in range(110, 180):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(4, 8)), int(rng.integers(1, 4))
        X, noise = rng.standard_normal((30, n)), rng.standard_normal((30, 1))
        X[:, 1] = X[:, 0] + 10.0 ** rng.uniform(-2, -1) * X[:, 1]
        Y, row = X[:, :3] @ rng.standard_normal((3, 1)) + noise, rng.standard_normal((1, n))
        new = regression(np.vstack([X, row]), np.vstack([Y, 3.0 * noise[:1]]))
        K, c, _ = scaled_columns(new)
        tree = KeptTree.of(first_tree(regression(X, Y), k, **SHARED).kept(MOST), k, K, c, np.sqrt(np.diag(new.K)))
        explained = {S: new.c - new.value(S) for S in combinations(range(n), k)}
        for share in (0.99, 0.9, 0.5):
            enough = share * max(explained.values())
            opened = tree.open_nodes(Problem(K, c, tree.d), enough, WarmStart(k, tree.d, ()))
            nodes = [node.masks(n) for _, node in opened]
            for S in (S for S, found in explained.items() if found > enough):
                inside = np.isin(np.arange(n), S)
                assert any(inside[fixed].all() and not inside[out].any() for fixed, out in nodes)
                runs += 1
    assert runs > 210


def test_a_tree_that_took_longer_than_the_first_one_leaves_nothing():
    objective = regression(*noisy(600))
    kept = first_tree(objective, 5, **SHARED).kept(MOST)
    tree = following(objective, 5, {**kept, "seconds": np.float64(0.0)})
    tree.advance(ALL)
    assert tree.proven
    assert tree.kept(MOST) == {}

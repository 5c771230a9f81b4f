"""Branch and bound by convex relaxation: the answer of enumeration, bounds that hold, proofs for many columns."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dsel
from dsel.search.anytime import Deadline
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.choose_tree import ProofProblem, better_tree
from dsel.search.exact.perspective.coordinate_descent import largest, penalty, weights
from dsel.search.exact.perspective.diagonals import diagonals
from dsel.search.exact.perspective.enumeration import enumerated
from dsel.search.exact.perspective.group_relaxation import relax_rows
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.perspective.relaxation import Problem, relax
from dsel.search.exact.perspective.semidefinite import solve
from dsel.search.exact.perspective.sparse_eigenvalues import MOST_ADDED, least_eigenvalues, none_better
from dsel.search.exact.proof import Proof
from tests.search.exact.cases import exhaustive, problems, regression

ALL = 10**9
CHOICE = "dsel.search.exact.choose_tree."
HANDOVER = "dsel.search.exact.perspective.subtree_solver."
BRANCHING = "dsel.search.exact.perspective.branching."


def tree_of(objective, k, **arguments):
    try:
        return PerspectiveTree(objective, k, **arguments)
    except ValueError:
        assume(False)


def planted(n, m=300, k=5, lam=0.0, seed=0, noise=0.6):
    rng = np.random.default_rng(seed)
    E = rng.standard_normal((m, n))
    X = E + 0.3 * np.roll(E, 1, axis=1)
    y = X[:, :: n // k][:, :k].sum(axis=1, keepdims=True)
    y = y + noise * y.std() * rng.standard_normal((m, 1))
    return X - X.mean(axis=0), y - y.mean(), regression(X - X.mean(axis=0), y - y.mean(), lam)


@given(problems(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_answer_is_that_of_enumeration(case, known):
    objective, k = case
    search = tree_of(objective, k, incumbent=range(k) if known else ())
    assert search.advance(ALL)
    best = exhaustive(objective, k)
    assert search.proven
    assert search.best_value == pytest.approx(best, abs=1e-7 * objective.c)
    assert search.proved <= best + 1e-9 * objective.c


@given(problems(), st.booleans(), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_with_nodes_handed_over_the_answer_is_that_of_enumeration(case, only_branch_and_bound, nodes):
    objective, k = case
    with pytest.MonkeyPatch.context() as patch:
        if only_branch_and_bound:
            patch.setattr(HANDOVER + "_ENUMERATION", (0.0,))
        patch.setattr(HANDOVER + "_WASTED", 10.0)  # attempts are made at once, and may fail
        patch.setattr(HANDOVER + "_SHARE", 0.3)
        search = tree_of(objective, k, hands_over=True)
        search.advance(nodes)
        best = exhaustive(objective, k)
        assert search.lower <= best + 1e-9 * objective.c
        again = PerspectiveTree.restore(objective, json.loads(json.dumps(search.state())))
        for one in (search, again):
            one.advance(ALL)
            assert one.proven
            assert one.best_value == pytest.approx(best, abs=1e-7 * objective.c)
        assert (again.best, again.iteration) == (search.best, search.iteration)


@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_an_enumeration_finds_the_best_subset_of_a_node(seed, fixed_columns, q, targets):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(fixed_columns + q + 1, 13))
    X = rng.standard_normal((40, n)) @ (np.eye(n) + 0.3 * rng.standard_normal((n, n)))
    X /= np.linalg.norm(X, axis=0)
    Y = rng.standard_normal((40, targets)) + X[:, :2].sum(axis=1, keepdims=True)
    K, B, fixed = X.T @ X, X.T @ Y, np.arange(n) < fixed_columns
    some = diagonals(K, np.zeros(n))
    assume(some)
    problem, b = Problem(K, B, some[0]), rng.standard_normal((n, targets)) * (rng.random((n, 1)) < 0.5)
    base, g = problem.dual(b, fixed)  # any coefficients give a valid bound
    S, J = np.flatnonzero(fixed), np.flatnonzero(~fixed)
    best = float(np.vdot(Y, Y)) - exhaustive(regression(X, Y), fixed_columns + q, tuple(S))
    for enough, better in ((0.0, True), (0.999 * best, True), (1.001 * best, False)):
        found = enumerated(K, B, S, J, q, base + g[S].sum(), g, enough, 1.0)
        assert found.closed
        assert bool(found.subsets) == better
        if better:
            T = found.subsets[0]
            assert np.vdot(B[T], np.linalg.solve(K[np.ix_(T, T)], B[T])) == pytest.approx(best)
    assert not enumerated(K, B, S, J, q, base + g[S].sum(), g, 0.0, 1e-9).closed  # it has no time


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.6]))
@settings(max_examples=40, deadline=None)
def test_no_few_columns_have_a_smaller_eigenvalue_than_stated(seed, rho):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    X = rng.standard_normal((n + 30, n))
    X[:, 1:] += rho / np.sqrt(1.0 - rho**2) * X[:, :-1]
    X /= np.linalg.norm(X, axis=0)
    K = X.T @ X
    stated = least_eigenvalues(K)
    for q in range(1, min(MOST_ADDED, n) + 1):
        true = min(np.linalg.eigvalsh(K[np.ix_(S, S)])[0] for S in combinations(range(n), q))
        assert stated[q] <= true + 1e-12
        assert q != 2 or stated[q] == pytest.approx(true, abs=1e-8)


@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, MOST_ADDED), st.sampled_from([0.5, 0.9, 1.1, 2.0]))
@settings(max_examples=150, deadline=None)
def test_a_node_is_excluded_only_if_no_subset_of_it_explains_more(seed, fixed_columns, q, share):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(fixed_columns + q + 1, 13))
    X = rng.standard_normal((60, n)) @ (np.eye(n) + 0.2 * rng.standard_normal((n, n)))
    X /= np.linalg.norm(X, axis=0)
    Y = rng.standard_normal((60, 1)) + X[:, :2].sum(axis=1, keepdims=True)
    K, c, S, J = X.T @ X, (X.T @ Y)[:, 0], np.arange(fixed_columns), np.arange(fixed_columns, n)
    best = float(np.vdot(Y, Y)) - exhaustive(regression(X, Y), fixed_columns + q, tuple(S))
    before = float(c[S] @ np.linalg.solve(K[np.ix_(S, S)], c[S])) if fixed_columns else 0.0
    for enough in (before + share * (best - before), best * (1.0 - 1e-9), best * (1.0 + 1e-9)):
        excluded, _ = none_better(K, c, S, J, q, enough, least_eigenvalues(K), 10**7)
        assert excluded == bool(enough > best)  # all is tried where bounds do not suffice
        assert not none_better(K, c, S, J, q, enough, least_eigenvalues(K), 1)[0]  # it has no time


def test_eigenvalues_close_nodes_where_only_the_penalty_is_left_for_relaxations():
    objective = planted(400, m=200, k=6, lam=2.0, noise=0.4, seed=2)[2]
    nodes = {}
    for most in (0, MOST_ADDED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HANDOVER + "MOST_ADDED", most)
            patch.setattr(BRANCHING + "MOST_ADDED", most)
            tree = PerspectiveTree(objective, 6, incumbent=range(0, 396, 66), hands_over=True, diagonal_after=1e9)
            tree.advance(2000)
            nodes[most] = tree.iteration
            assert tree.proven
    assert nodes[MOST_ADDED] < nodes[0]


def test_handing_nodes_over_proves_what_neither_tree_proves_as_quickly():
    X, y, _ = planted(40, m=80, k=6, noise=1.5, seed=3)
    objective = regression(X, y)
    alone, both = (PerspectiveTree(objective, 6, diagonal_after=0.05, hands_over=x) for x in (False, True))
    for search in (alone, both):
        search.advance(ALL)
    assert (both.proven, both.best) == (True, alone.best)
    assert both.seconds < 0.5 * alone.seconds
    assert both.iteration < 0.5 * alone.iteration


def test_tasks_that_hand_nodes_over_depend_on_their_arguments_only():
    X, y, _ = planted(40, m=80, k=6, noise=1.5, seed=3)
    tree = PerspectiveTree(regression(X, y), 6, hands_over=True)
    tree.advance(4)
    work = pickle.loads(pickle.dumps(tree.work()))
    explorer, (_, nodes) = work.explorer(), tree.checkout(100, 100.0, tree.subtree_size)
    first, again = (work.explore(explorer, nodes, tree.best_value, 50) for _ in range(2))
    assert (first.nodes, first.best) == (again.nodes, again.best)
    assert [bound for bound, _ in first.left] == [bound for bound, _ in again.left]
    assert first.seconds > 0.0


def test_a_time_limit_ends_a_slice_between_nodes_and_the_proof_continues(monkeypatch):
    X, y, _ = planted(40, m=80, k=6, noise=1.5, seed=3)
    search = PerspectiveTree(regression(X, y), 6, diagonal_after=0.0)
    search.advance(0)
    monkeypatch.setattr("dsel.search.exact.tree.Deadline", lambda seconds: Deadline(seconds and 0.0))
    with search.time_limit(1.0):
        assert not search.advance(ALL)
    assert search.iteration == 0
    assert not search.done
    search.advance(5)
    assert search.iteration == 5


@given(problems())
@settings(max_examples=40, deadline=None)
def test_the_bound_covers_better_subsets_within_the_margin(case):
    objective, k = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsel.search.exact.tree.MARGIN", 0.05)
        search = tree_of(objective, k, incumbent=range(k))
        assert search.advance(ALL)
        assert search.lower <= exhaustive(objective, k) + 1e-12 * objective.c


@given(st.integers(0, 10_000), st.sampled_from((0.0, 0.1, 30.0)), st.integers(0, 12), st.sampled_from((1, 3)))
@settings(max_examples=35, deadline=None)
def test_stopped_early_the_bound_holds_and_it_resumes_with_the_same_nodes(seed, lam, nodes, targets):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 9)) @ (np.eye(9) + 0.4 * rng.standard_normal((9, 9)))
    objective = regression(X, rng.standard_normal((30, targets)) + X[:, :2].sum(axis=1, keepdims=True), lam)
    search = tree_of(objective, 3)
    search.advance(nodes)
    best = exhaustive(objective, 3)
    assert search.lower <= best + 1e-9 * objective.c <= search.best_value + 2e-9 * objective.c
    again = PerspectiveTree.restore(objective, json.loads(json.dumps(search.state())))
    assert (again.lower, again.best, again.iteration) == (search.lower, search.best, search.iteration)
    search.advance(ALL)
    again.advance(ALL)
    assert (again.best, again.iteration) == (search.best, search.iteration)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=7), st.integers(0, 8))
def test_weights_minimize_the_penalty(a, q):
    a = np.where(np.array(a) < 1e-3, 0.0, a)
    z = weights(a, q)
    assert z.min() >= 0.0
    assert z.max() <= 1.0
    assert z.sum() <= max(q, 0) + 1e-9
    assume(q > 0)
    least = penalty(a, q)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = rng.uniform(0.001, 1.0, a.size)
        other = np.minimum(other * min(1.0, q / other.sum()), 1.0)
        assert least <= (a**2 / other).sum() * (1 + 1e-9)
    assert largest(a, q) == pytest.approx(np.sort(a)[::-1][:q].sum())


@pytest.mark.parametrize(("m", "n", "lam"), [(300, 200, 0.0), (150, 220, 15.0)])
def test_proofs_with_many_columns_take_few_nodes(m, n, lam):
    _, _, objective = planted(n, m, lam=lam)
    search = better_tree(ProofProblem(objective, 5, tuple(range(0, n, n // 5))))
    assert isinstance(search, PerspectiveTree)
    assert search.advance(500)
    assert search.proven
    assert search.best == tuple(range(0, n, n // 5))


@pytest.mark.parametrize("own", [True, False])
def test_long_proofs_find_better_diagonals(monkeypatch, own):
    monkeypatch.setattr(PerspectiveTree, "_own_diagonals_pay", lambda self, root: own)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 14)) @ (np.eye(14) + 0.3 * rng.standard_normal((14, 14)))
    objective = regression(X, rng.standard_normal((60, 1)))
    search = PerspectiveTree(objective, 5, diagonal_after=0.0)
    first = search.lower
    search.advance(3)
    assert search.lower > first  # the tree began again
    again = PerspectiveTree.restore(objective, json.loads(json.dumps(search.state())))
    for one in (search, again):
        one.advance(ALL)
        assert one.proven
        assert one.best_value == pytest.approx(exhaustive(objective, 5))
    assert again.iteration == search.iteration


@given(problems())
@settings(max_examples=80, deadline=None)
def test_trees_whose_nodes_have_their_own_diagonals_find_the_answer_of_enumeration(case):
    objective, k = case
    search = tree_of(objective, k, diagonal_after=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PerspectiveTree, "_own_diagonals_pay", lambda self, root: True)
        best, nodes = exhaustive(objective, k), 0
        while not search.advance(nodes):
            assert search.lower <= best + 1e-9 * objective.c
            nodes += 1
    assert search.proven
    assert search.best_value == pytest.approx(best, abs=1e-7 * objective.c)


@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_no_subset_explains_more_than_a_relaxation_with_its_own_diagonal(seed, fixed_columns, q, targets):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(fixed_columns + q + 1, 10))
    X = rng.standard_normal((int(rng.integers(n, 30)), n)) @ (np.eye(n) + 0.5 * rng.standard_normal((n, n)))
    X /= np.linalg.norm(X, axis=0)
    Y = X[:, : min(3, n)] @ rng.uniform(-1.0, 1.5, (min(3, n), targets)) + rng.standard_normal((X.shape[0], targets))
    fixed, K, B = np.arange(n) < fixed_columns, X.T @ X, X.T @ Y
    c = B[:, 0] if targets == 1 else B
    found = solve(K, c, fixed, q, float(np.vdot(Y, Y)), 0.0)
    assume(found is not None)
    objective = regression(X, Y)
    explained = objective.c - exhaustive(objective, fixed_columns + q, tuple(range(fixed_columns)))
    assert found.bound >= explained - 1e-9 * objective.c
    rows = relax if targets == 1 else relax_rows
    usual = [rows(Problem(K, c, d), fixed, ~fixed, q, found.b, explained) for d in diagonals(K, np.zeros(n))]
    assert found.bound <= min(one.bound for one in usual) + 0.005 * objective.c


@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_the_relaxation_of_several_targets_is_that_of_its_definition(seed, fixed_columns, q, targets):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(fixed_columns + q + 1, 12))
    X = rng.standard_normal((30, n)) @ (np.eye(n) + 0.5 * rng.standard_normal((n, n)))
    X /= np.linalg.norm(X, axis=0)
    Y = X[:, : min(3, n)] @ rng.uniform(-1.0, 1.5, (min(3, n), targets)) + rng.standard_normal((30, targets))
    K, B, fixed = X.T @ X, X.T @ Y, np.arange(n) < fixed_columns
    some = diagonals(K, np.zeros(n))
    assume(some)  # the columns are not nearly dependent
    (d,) = some
    found = relax_rows(Problem(K, B, d), fixed, ~fixed, q, np.zeros((n, targets)), 0.0, 0.0)
    explained = float(np.vdot(Y, Y)) - exhaustive(regression(X, Y), fixed_columns + q, tuple(range(fixed_columns)))
    assert found.bound >= explained * (1.0 - 1e-9)
    z = np.where(fixed, 1.0, rng.dirichlet(np.ones(n), 200) * q)  # any weights explain at most as much
    z = z[(z <= 1.0).all(axis=1)]
    for weights_of in z:
        at = np.vdot(B, np.linalg.solve(K - np.diag(d) + np.diag(d / weights_of), B))
        assert at <= found.bound * (1.0 + 1e-6)
    if targets == 1:
        usual = relax(Problem(K, B[:, 0], d), fixed, ~fixed, q, np.zeros(n), 0.0, 0.0)
        assert found.bound <= usual.bound * 1.01
    S = np.flatnonzero(found.b.any(axis=1))
    used = np.square(found.b[S]).sum(axis=1) * d[S]
    on_its_own = 2.0 * np.vdot(B, found.b) - np.vdot(found.b, (K - np.diag(d)) @ found.b)
    on_its_own -= used[fixed[S]].sum() + penalty(np.sqrt(used[~fixed[S]]), q)
    assert on_its_own == pytest.approx(found.bound, rel=0.01)  # hardly a gap: both are the value of the relaxation


@pytest.mark.parametrize(("m", "n", "lam"), [(300, 160, 0.0), (120, 160, 10.0)])
def test_proofs_for_several_targets_take_few_nodes(m, n, lam):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((m, n))
    X += 0.3 * np.roll(X, 1, axis=1)
    X -= X.mean(axis=0)
    chosen = tuple(range(0, n, n // 5))
    Y = X[:, chosen] @ rng.choice([-1.0, 1.0], (5, 3)) + rng.standard_normal((m, 3))
    objective = regression(X, Y - Y.mean(axis=0), lam)
    search = PerspectiveTree(objective, 5, incumbent=chosen)
    assert search.advance(300)
    assert search.proven
    again = PerspectiveTree.restore(objective, json.loads(json.dumps(search.state())))
    assert (again.best, again.proven) == (chosen, True)


def test_branch_and_bound_and_certificates_use_it_where_it_is_better():
    X, y, objective = planted(200)
    found = dsel.select(X, y[:, 0], k=5, method="branch-and-bound", preprocess="none")
    assert found.ended == "proven"
    assert found.iterations < 500
    assert sorted(found.indices) == [0, 40, 80, 120, 160]
    asked = dsel.select(X[:, :30], y[:, 0], k=3, method="branch-and-bound", bound="perspective", preprocess="none")
    usual = dsel.select(X[:, :30], y[:, 0], k=3, method="branch-and-bound", preprocess="none")
    assert (asked.indices, asked.certificate[-1]["proven"]) == (usual.indices, True)
    proof = Proof.begin(objective, 5)
    assert isinstance(proof.search, PerspectiveTree)
    again = Proof.resume(objective, json.loads(json.dumps(proof.state())))
    assert again.run()
    assert again.certificate().method == "perspective-tree, perspective bound"
    assert again.certificate().bound == pytest.approx(found.error)


def test_relaxations_prove_that_few_of_many_true_columns_are_the_best():
    rng = np.random.default_rng(60)
    X = rng.standard_normal((1000, 60))
    y = X[:, :30].sum(axis=1, keepdims=True) + rng.standard_normal((1000, 1))
    proof = Proof.begin(regression(X, y), 11)  # more than 10^11 subsets are too many to try, and 60 columns are few
    assert proof.run(nodes=500)
    assert proof.search.kind == PerspectiveTree.kind


@given(problems(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_branch_and_bound_keeps_the_bound_and_the_screening_of_the_other_tree(case, known):
    objective, k = case
    tree = tree_of(objective, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CHOICE + "MANY_COLUMNS", 1)
        patch.setattr(CHOICE + "_advance", lambda tree, seconds, deadline: tree.advance(2))
        patch.setattr(CHOICE + "_is_better", lambda tree, other, deadline: False)
        search = better_tree(ProofProblem(objective, k, tuple(range(k)) if known else ()))
    best = exhaustive(objective, k)
    assert min(tree.lower, search.best_value) <= search.lower + 1e-9 * objective.c
    assert search.lower <= best + 1e-9 * objective.c
    assert search.advance(ALL)
    assert search.proven
    assert search.best_value == pytest.approx(best, abs=1e-7 * objective.c)
    assert search.proved <= best + 1e-9 * objective.c


def test_with_too_many_subsets_to_try_the_tree_finds_its_diagonals_before_it_is_compared(monkeypatch):
    monkeypatch.setattr(CHOICE + "_BETTER_THEN", 10.0)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 160)) @ (np.eye(160) + 0.08 * rng.standard_normal((160, 160)))
    X -= X.mean(axis=0)
    y = X[:, ::20].sum(axis=1, keepdims=True)
    objective = regression(X, y + 2.0 * y.std() * rng.standard_normal((400, 1)))
    known = tuple(range(0, 160, 20))
    problem = ProofProblem(objective, 8, known)
    assert isinstance(better_tree(replace(problem, deadline=Deadline(2.4))), BranchAndBound)
    search = better_tree(problem)
    assert isinstance(search, PerspectiveTree)
    assert search.gap < 0.85 * PerspectiveTree(objective, 8, incumbent=known).gap
    again = PerspectiveTree.restore(objective, json.loads(json.dumps(search.state())))
    until = search.iteration + 2
    for one in (search, again):
        one.advance(until)
    assert (again.lower, again.open_nodes) == (search.lower, search.open_nodes)


def test_where_the_relaxation_is_useless_it_says_so():
    X, y, _ = planted(40, m=30)  # more columns than rows, without a penalty
    found = dsel.select(X, y[:, 0], k=2, method="branch-and-bound", bound="perspective", preprocess="none")
    assert found.ended == "failed"
    assert any("nearly dependent" in note for note in found.notes)

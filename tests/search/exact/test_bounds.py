"""No bound is above what some completion reaches, and the combined one is never below the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.objective.few_targets import few_targets
from dsel.search.exact.bounds import BOUNDS, BoundProblem, orthonormalised
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.perspective.semidefinite import relaxation_of
from tests.search.exact.cases import data, exhaustive, problems, regression, self_expression


@given(problems(), st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_no_bound_exceeds_the_best_completion(case, seed):
    objective, k = case
    problem = BoundProblem.of(objective)
    rng = np.random.default_rng(seed)
    order = rng.permutation(objective.n).tolist()
    S = order[: rng.integers(0, k + 1)]
    if objective.rank(S) < len(S):
        S = []
    R = [j for j in order if j not in S][: rng.integers(0, objective.n + 1)]
    best = exhaustive(objective, k, tuple(S), R)
    q = k - len(S)
    found = {name: problem.bound(S, R, q, name) for name in BOUNDS}
    for bound in found.values():
        assert bound <= best + 1e-7 * objective.c
    if q and R:
        assert found["combined"] >= max(found["leaps"], found["eigenvalue"]) - 1e-9 * objective.c


@given(problems())
@settings(max_examples=25, deadline=None)
def test_the_relaxation_does_not_exceed_the_optimum(case):
    objective, k = case
    assert relaxation_of(BoundProblem.of(objective), k).bound <= exhaustive(objective, k) + 1e-7 * objective.c


def test_the_relaxation_depends_on_the_number_of_columns():
    X = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 8)))[0]
    y = X @ np.arange(1.0, 9.0)[:, None]
    problem = BoundProblem.of(regression(X, y))
    assert relaxation_of(problem, 2).bound == pytest.approx(y.T @ y - 49.0 - 64.0, rel=0.01)  # orthogonal: exact
    assert problem.bound((), range(8), 2) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("N", [1, 2])
def test_the_relaxation_is_sharper_with_its_own_diagonal(N):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 20)) @ (np.eye(20) + 0.4 * rng.standard_normal((20, 20)))
    objective = regression(X, X[:, :4].sum(axis=1, keepdims=True) + rng.standard_normal((60, N)))
    own = relaxation_of(BoundProblem.of(objective), 3).bound
    assert PerspectiveTree(objective, 3).lower < 0.97 * own
    assert own <= exhaustive(objective, 3)


def test_a_target_of_zeros_changes_nothing():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 20)) @ (np.eye(20) + 0.4 * rng.standard_normal((20, 20)))
    y = X[:, :4].sum(axis=1, keepdims=True) + rng.standard_normal((60, 1))
    one = BoundProblem.of(regression(X, y))
    several = replace(one, B=np.hstack([one.B, np.zeros((20, 1))]))
    assert relaxation_of(one, 3).bound == pytest.approx(relaxation_of(several, 3).bound)


@pytest.mark.parametrize("N", [1, 2, 5])
def test_the_bound_for_all_columns_is_what_they_leave(N):
    X, Y = data(3, "plain", N)
    objective = regression(X, Y)
    problem = BoundProblem.of(objective)
    all_columns = problem.bound((), range(problem.n), problem.n, "leaps")
    assert all_columns == pytest.approx(objective.value(range(objective.n)), abs=1e-9 * objective.c)


def test_the_published_eigenvalue_bound_uses_the_targets_own_gram_matrix():
    X, Y = data(5, "plain", 4)
    problem = BoundProblem.of(regression(X, Y), Y.T @ Y)
    values = np.linalg.eigvalsh(Y.T @ Y)
    assert problem.bound((), range(X.shape[1]), 2, "eigenvalue") == pytest.approx(values[:2].sum())
    assert BoundProblem.of(regression(X, Y)).bound((), range(X.shape[1]), 2, "eigenvalue") >= values[:2].sum() - 1e-9


def test_targets_are_replaced_by_as_few_as_their_rank():
    X, Y = data(2, "plain", 2)
    wide = regression(X, np.hstack([Y, Y @ np.ones((2, 7))]))
    B = few_targets(wide)
    assert B.shape[1] == 2
    np.testing.assert_allclose(B @ B.T, wide.M, rtol=1e-10, atol=1e-10 * wide.c)
    K = self_expression(X)
    np.testing.assert_allclose(few_targets(K) @ few_targets(K).T, K.M, rtol=1e-8, atol=1e-8 * K.c**2)


def test_every_suffix_is_orthonormalised_at_once():
    X, Y = data(7, "duplicates", 3)
    objective = regression(X, Y)
    Z = orthonormalised(objective.K, objective.cross, objective.floor)
    for i in range(objective.n):
        explained = objective.c - objective.value(range(i, objective.n))
        assert np.square(Z[i:]).sum() == pytest.approx(explained, abs=1e-8 * objective.c)


@pytest.mark.parametrize("seed", range(6))
def test_the_eigenvalue_bound_holds_where_columns_of_x_itself_are_of_very_different_size(seed):
    rng = np.random.default_rng(seed)
    objective = self_expression(rng.standard_normal((2, 6)) * 10.0 ** rng.uniform(-6, 6, 6))
    bound = BoundProblem.of(objective).bound((), range(6), 3, "eigenvalue")
    assert bound <= exhaustive(objective, 3) + 1e-12 * objective.c

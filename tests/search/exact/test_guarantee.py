"""The error of a proof covers what a ridge removes; dependent subsets are excluded in any order, and counted."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

import dsel
from dsel._lib.tolerances import perturbation, ridge
from dsel.objective.subset_state import SubsetState
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.guarantee import Limits
from tests.search.exact.cases import regression, self_expression

RNG = np.random.default_rng(0)


def chain(d):
    """Each column leaves d^2 of the next one's square, so that two of them leave d^4 of the third's."""
    v, w, x, u, _ = np.eye(5)
    return np.stack([v, v + d * w, w + d * x, u, u + v], axis=1)


@pytest.mark.parametrize("d", [1e-3, 1e-2, 0.1])
def test_the_error_covers_what_the_ridge_removes(d):
    X = RNG.normal(size=(50, 4))
    X[:, 3] = X[:, 2] + d * X[:, 3]
    y = RNG.normal(size=(50, 1))
    objective = regression(X, y)
    K, b = objective.K, X.T @ y
    shrunk = K + ridge(4) * np.diag(np.diag(K))
    less = float((b.T @ np.linalg.solve(K, b) - b.T @ np.linalg.solve(shrunk, b)).item())
    assert less <= Limits(objective).guarantee(4).error * objective.total


def test_well_conditioned_columns_have_a_small_error_and_copies_do_not_count():
    X = RNG.normal(size=(60, 8))
    y = RNG.normal(size=(60, 1))
    error = Limits(regression(X, y)).guarantee(3).error
    assert error < 10 * 3 * perturbation(8)
    copies = np.hstack([X, X[:, :3], 2.0 * X[:, :1], np.zeros((60, 1))])
    assert Limits(regression(copies, y)).guarantee(3).error < 3 * error


def test_few_subsets_are_all_compared_where_there_are_more_columns_than_rows():
    X, y = RNG.normal(size=(6, 8)), RNG.normal(size=(6, 1))
    objective = regression(X, y)
    for k in (2, 3, 4):
        most = max(inflation(objective.K, list(S)) for S in combinations(range(8), k))
        found = Limits(objective).guarantee(k)
        assert perturbation(8) * most <= found.error <= 1.001 * k * perturbation(8) * most
        assert found.explained_by_all == 0.0


def test_many_subsets_of_columns_that_correlate_little_are_independent_whatever_their_number():
    X, y = RNG.normal(size=(300, 400)), RNG.normal(size=(300, 1))
    found = Limits(regression(X, y)).guarantee(3)
    assert found.error < 1e-9
    assert found.explained_by_all == 0.0
    unknown = Limits(regression(X, y)).guarantee(30)
    assert unknown.error > 1e-6
    assert unknown.explained_by_all > 0.0


@pytest.mark.parametrize("k", [3, 4])
def test_the_smallest_dependent_subsets_are_named_where_there_are_more_columns_than_rows(k):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5, 8))
    X[:, 6] = X[:, 0] + X[:, 4] + 1e-5 * rng.normal(size=5)
    X[:, 3] = X[:, 1] - X[:, 2]  # dependent to rounding
    y = rng.normal(size=(5, 1))
    found = Limits(regression(X, y)).guarantee(k)
    assert [sorted(columns) for columns in found.near_copies] == [[0, 4, 6]]
    assert found.explained_by_all > 0.0
    independent = [S for S in combinations(range(8), k) if not {0, 4, 6} <= set(S) and not {1, 2, 3} <= set(S)]
    most = max(inflation(X.T @ X, list(S)) for S in independent)
    assert perturbation(8) * most <= found.error <= 1.001 * k * perturbation(8) * most


@pytest.mark.parametrize("k", [2, 3])
def test_a_proof_is_optimal_where_no_subset_is_dependent(k):
    rng = np.random.default_rng(k)
    for m, n in ((7, 10), (9, 13), (12, 20)):
        X = rng.normal(size=(m, n))
        y = X[:, 0] + X[:, 1] + rng.normal(size=m)
        (proof,) = dsel.certify(dsel.select(X, y, k=k), X, y, seconds=20).certificate
        Z, w = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
        errors = [np.linalg.lstsq(Z[:, S], w, rcond=None)[1][0] for S in map(list, combinations(range(n), k))]
        assert proof["status"] == "optimal"
        assert proof["value"] == pytest.approx(min(errors), abs=1e-9 * m)


def test_a_proof_that_cannot_compare_all_subsets_says_why():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 40))
    y = X[:, 0] + rng.normal(size=12)
    result = dsel.certify(dsel.select(X, y, k=5), X, y, seconds=0.5)
    assert "more columns than rows, and there are too many subsets to compare" in str(result)
    assert any(note.startswith("nearly dependent subsets cannot be excluded") for note in result.notes)


def test_columns_of_unequal_size_do_not_make_a_proof_with_a_penalty_doubtful():
    rng = np.random.default_rng(0)
    Q = rng.normal(size=(60, 11))
    Q = np.linalg.qr(Q - Q.mean(axis=0))[0][:, :10]
    X, y = 8.0 * Q * [0.1, 100, 50, 20, 80, 1, 30, 70, 5, 90], rng.normal(size=(60, 1))
    assert Limits(regression(X, y, 2.0)).guarantee(3).error < 1e-9
    assert Limits(regression(Q, y, 2.0)).guarantee(3).error < 1e-12


def inflation(K, S):
    C = K[np.ix_(S, S)] / np.sqrt(np.outer(np.diag(K)[S], np.diag(K)[S]))
    return np.diag(np.linalg.inv(C)).max()


def test_categories_of_a_variable_do_not_make_a_proof_doubtful():
    """Their columns are dependent, but only together: all other subsets are far from that."""
    categories = [RNG.integers(0, size, 200) for size in (3, 4)]
    one_hot = [(values[:, None] == np.arange(values.max() + 1)).astype(float) for values in categories]
    X = np.hstack([*one_hot, RNG.normal(size=(200, 3))])
    X -= X.mean(axis=0)
    y = RNG.normal(size=(200, 1))
    objective = regression(X, y)
    found = Limits(objective).guarantee(5)
    assert found.error < 1e-8
    assert found.explained_by_all == 0.0
    independent = [S for S in combinations(range(10), 5) if not {0, 1, 2} <= set(S) and not {3, 4, 5, 6} <= set(S)]
    most = max(inflation(objective.K, list(S)) for S in independent)
    assert found.error >= perturbation(10) * most
    overlapping = np.hstack([X, X[:, [0]] + X[:, [3]]])
    assert Limits(regression(overlapping, y)).guarantee(5).explained_by_all == 0.0  # all subsets are compared
    many = np.hstack([overlapping, RNG.normal(size=(200, 20))])
    assert Limits(regression(many, y)).guarantee(5).explained_by_all > 0.0  # cannot be told


def test_dependent_subsets_explain_no_more_than_all_columns_next_to_a_category():
    rng = np.random.default_rng(0)
    category = np.eye(3)[rng.integers(0, 3, 300)]
    X = np.hstack([category, rng.normal(size=(300, 4))])
    X = np.hstack([X, X[:, [6]] + 2e-4 * rng.normal(size=(300, 1))])
    X -= X.mean(axis=0)
    y = X[:, [0]] + X[:, [4]] + rng.normal(size=(300, 1))
    all_columns = float(np.square(X @ np.linalg.lstsq(X, y)[0]).sum() / np.square(y).sum())
    found = Limits(regression(X, y)).guarantee(5).explained_by_all
    assert all_columns <= found < all_columns + 1e-4


@pytest.mark.parametrize("d", [1e-3, 1e-2, 0.03, 0.1])
def test_dependence_does_not_depend_on_the_order(d):
    X = chain(d)
    y = (X[:, 2] + 0.3 * X[:, 3])[:, None] + 0.1 * RNG.normal(size=(5, 1))
    values, ranks = [], set()
    for order in permutations(range(3)):
        columns = [*order, 3, 4]
        objective = regression(X[:, columns], y)
        ranks.add(objective.rank([0, 1, 2]))
        search = BranchAndBound(objective, 3)
        search.advance(10**6)
        values.append(search.best_value)
        state = SubsetState(objective, 3)
        assert sum(state.insert(j) for j in range(3)) == objective.rank([0, 1, 2])
    assert np.ptp(values) <= 1e-9 * objective.c
    assert ranks == {3 if d**4 > 1.1e-7 else 2}


def test_what_the_tolerance_excludes_is_stated():
    rng = np.random.default_rng(1)
    a, d, z = rng.normal(size=(3, 50))
    X = np.stack([a, a + 2e-4 * d, z], axis=1)
    y = d + 0.3 * z
    represented = dsel.select(X, y, k=2, method="branch-and-bound")  # x0 represents x1
    assert represented.certificate[-1]["status"] == "optimal-except-near-copies"
    assert not represented.certificate[-1]["proven"]
    proof = dsel.select(X, y, k=2, method="branch-and-bound", near_copies="keep")
    assert proof.certificate[-1]["status"] == "optimal-except-near-copies"
    assert not proof.certificate[-1]["proven"]
    assert proof.r2 + proof.certificate[-1]["dependent_gap"] > 0.9  # what the pair explains
    assert "nearly dependent: x0 and x1" in str(proof)
    assert "no proof covers it" in str(proof)


def test_small_columns_count_where_y_is_x():
    rng = np.random.default_rng(2)
    base = rng.normal(size=(40, 3))
    X = np.hstack([base * [1e-8, 1e-7, 1e-6], 1e8 * (base @ rng.normal(size=(3, 4)))])
    search = BranchAndBound(self_expression(X), 3)
    search.advance(10**6)
    assert search.best_value <= 1e-9 * search.total
    assert search.proven

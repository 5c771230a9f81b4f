"""A bound that is carried over to other data holds for every subset that is not listed, whatever changed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dsel.objective.dense import DenseObjective
from dsel.objective.groups import GroupedObjective
from dsel.search.exact.carried_bound import CARRIED, CarriedBound, can_carry
from dsel.search.exact.choose_tree import ProofProblem, tree_in_memory
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import ListRule
from tests.search.exact.cases import exhaustive, regression

K = 3


def data(m, n=8, N=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + 0.5 * rng.standard_normal((m, 1))
    Y = X[:, :4] @ rng.uniform(0.3, 1.0, (4, N)) + rng.standard_normal((m, N))
    return X, Y


def ranked(objective):
    """All subsets of K columns, best first."""
    return sorted(combinations(range(objective.n), K), key=objective.value)


def bound_of(objective, listed=5):
    order = ranked(objective)
    return CarriedBound.of(objective, order[:listed], objective.value(order[listed]))


@pytest.mark.parametrize("N", [1, 3])
@pytest.mark.parametrize("lam", [0.0, 4.0])
@pytest.mark.parametrize("change", ["append", "drop", "other units", "drift", "other rows"])
def test_no_other_subset_is_below_the_bound(N, lam, change):
    X, Y = data(300, N=N)
    new_X, new_Y = {
        "append": (np.vstack([X, X[:9] + 0.3]), np.vstack([Y, -Y[:9]])),
        "drop": (X[20:], Y[20:]),
        "other units": (X * np.linspace(0.97, 1.05, 8), 1.1 * Y),
        "drift": (X + np.linspace(0, 1, 300)[:, None], Y),
        "other rows": data(200, N=N, seed=5),
    }[change]
    old, new = regression(X, Y, lam), regression(new_X, new_Y, lam)
    carried = CarriedBound.from_arrays(bound_of(old).as_arrays())
    others = [new.value(S) for S in ranked(new) if S not in carried.listed]
    assert carried.bound(new) <= min(others) * (1 + 1e-9)
    certificate = carried.certificate(CommonSetup(new), K)
    if certificate is not None:
        assert certificate.value == pytest.approx(exhaustive(new, K))


def test_it_is_as_sharp_as_the_bound_of_the_proof_where_nothing_changed():
    objective = regression(*data(300))
    carried = bound_of(objective)
    assert carried.bound(objective) == pytest.approx(carried.above, rel=1e-4)


@pytest.mark.parametrize("N", [1, 2])
def test_after_one_percent_more_rows_many_rows_need_no_search(N):
    X, Y = data(20_200, N=N)
    carried = bound_of(regression(X[:20_000], Y[:20_000]))
    new = regression(X, Y)
    certificate = carried.certificate(CommonSetup(new), K, ranked(new)[0])
    assert certificate is not None
    assert (certificate.proven, certificate.method, certificate.leaves_checked) == (True, CARRIED, 5)
    assert certificate.indices == ranked(new)[0]
    assert certificate.bound <= exhaustive(new, K)


def test_other_data_prove_nothing():
    carried = bound_of(regression(*data(300)))
    X, Y = data(300, seed=3)
    assert carried.certificate(CommonSetup(regression(X, Y[::-1].copy())), K) is None


def test_of_nearly_dependent_columns_nothing_is_carried():
    X, Y = data(300)
    X[:, 7] = X[:, 6] + 1e-6 * X[:, 0]
    assert not can_carry(regression(X, Y))
    assert bound_of(regression(*data(300))).bound(regression(X, Y)) == -np.inf


def test_another_number_of_columns_proves_nothing():
    carried = bound_of(regression(*data(300)))
    assert carried.bound(DenseObjective(np.eye(7), np.ones((7, 1)), 9.0)) == -np.inf


def test_the_best_few_subsets_of_groups_are_those_of_enumeration():
    objective = regression(*data(200))
    grouped = GroupedObjective(objective, [np.array([j, j + 1]) for j in range(0, 8, 2)])
    tree = tree_in_memory(ProofProblem(grouped, 2, near_best=ListRule(None, 3)))
    assert tree.advance(10**6)
    assert tree.near_best is not None
    order = sorted(combinations(range(4), 2), key=grouped.value)
    assert [S for S, _ in tree.near_best.subsets] == order[:3]
    assert tree.near_best.listed_below == pytest.approx(grouped.value(order[3]))


def test_a_column_that_depended_on_an_included_one_may_be_the_best_on_other_data():
    rng = np.random.default_rng(0)
    X, hidden = rng.standard_normal((2000, 8)), rng.standard_normal(2000)
    Y = (X[:, 1:4] @ [0.5, 0.4, 0.3] + 2.0 * hidden + rng.standard_normal(2000))[:, None]

    def given(share):
        copy = X[:, 0] + np.sqrt(share) * hidden
        return regression(np.column_stack([X[:, :7], copy]), Y).condition([0])

    old, new = given(0.97e-7), given(1.1e-7)
    assert (old.rank([6]), new.rank([6])) == (0, 1)
    assert not can_carry(old)
    independent = [S for S in ranked(old) if old.rank(S) == K]
    carried = CarriedBound.of(old, independent[:5], old.value(independent[5]))
    certificate = carried.certificate(CommonSetup(new), K)
    assert certificate is None or certificate.bound <= exhaustive(new, K)


def with_category(m, seed=0):
    """Eight columns, the last three of which are the values of a category: they sum to 1."""
    rng = np.random.default_rng(seed)
    X, Y = data(m, seed=seed)
    kind = rng.integers(0, 3, m)
    X[:, 5:] = np.eye(3)[kind]
    return X - X.mean(axis=0), Y + 0.5 * (kind == 1)[:, None]


GROUPS = [np.array([0, 1]), np.array([2, 3]), np.array([4]), np.array([5, 6, 7])]


def grouped(X, Y, lam=0.0):
    return GroupedObjective(regression(X, Y, lam), GROUPS)


def bound_of_groups(objective, k, listed=2):
    order = sorted(combinations(range(objective.n), k), key=objective.value)
    return CarriedBound.of(objective, order[:listed], objective.value(order[listed]))


@pytest.mark.parametrize("lam", [0.0, 4.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_bound_of_groups_with_dependent_columns_holds(lam, k):
    """A category is a group whose columns are dependent. It is as good as the group without its last value."""
    X, Y = with_category(2000)
    new = grouped(*with_category(2100, seed=1), lam)
    old = grouped(X, Y, lam)
    assert can_carry(old)
    carried = CarriedBound.from_arrays(bound_of_groups(old, k).as_arrays())
    others = [new.value(S) for S in combinations(range(4), k) if S not in carried.listed]
    assert -np.inf < carried.bound(new) <= min(others) * (1 + 1e-9)
    certificate = carried.certificate(CommonSetup(old), k)
    assert certificate is not None
    assert certificate.value == pytest.approx(min(old.value(S) for S in combinations(range(4), k)))


def test_nothing_is_carried_where_a_value_of_a_category_became_independent():
    carried = bound_of_groups(grouped(*with_category(500)), 2)
    X, Y = with_category(500)
    X[:50, 7] = np.random.default_rng(1).standard_normal(50)
    assert carried.bound(grouped(X, Y)) == -np.inf


def test_nothing_is_carried_where_columns_depend_on_those_of_other_groups():
    X, Y = with_category(500)
    X[:, 4] = X[:, 0] - X[:, 2]
    assert not can_carry(grouped(X, Y))

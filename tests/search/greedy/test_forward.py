"""Forward selection against least squares on the data, column by column."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.search.greedy.path import forward
from tests.search.cases import error, random_data, regression, self_expression


def wrapper_forward(X, Y, k):
    chosen = []
    while len(chosen) < k:
        errors = {j: error(X, Y, [*chosen, j]) for j in range(X.shape[1]) if j not in chosen}
        chosen.append(min(errors, key=errors.__getitem__))
    return chosen


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("N", [1, 3, 12])
def test_is_the_wrapper(seed, N):
    X, Y = random_data(seed, N=N)
    best = forward(regression(X, Y), 6).best(6)
    assert list(best.members) == wrapper_forward(X, Y, 6)
    assert best.value == pytest.approx(error(X, Y, best.members), rel=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_is_the_wrapper_for_column_subset_selection(seed):
    X, _ = random_data(seed)
    best = forward(self_expression(X), 7).best(7)
    assert list(best.members) == wrapper_forward(X, X, 7)
    assert best.value == pytest.approx(error(X, X, best.members), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_with_ridge_is_the_wrapper_on_extended_rows(seed):
    X, Y = random_data(seed)
    lam = 7.0
    extended = np.vstack([X, np.sqrt(lam) * np.eye(X.shape[1])]), np.vstack([Y, np.zeros((X.shape[1], 1))])
    assert list(forward(regression(X, Y, lam), 6).best(6).members) == wrapper_forward(*extended, 6)


def test_every_point_is_the_path_so_far_and_its_value_the_objectives_own():
    X, Y = random_data(0)
    objective = regression(X, Y)
    outcome = forward(objective, 6)
    assert [p.size for p in outcome.front] == list(range(7))
    for point in outcome.front:
        assert point.members == outcome.front[-1].members[: point.size]
        assert point.value == objective.value(point.members)
    assert outcome.iterations == 6
    assert outcome.counts["evaluated"] == sum(14 - s for s in range(6))
    assert [t.value for t in outcome.trace] == [p.value for p in outcome.front[1:]]


def test_included_and_excluded_columns():
    X, Y = random_data(1)
    objective = regression(X, Y).condition([4, 9])
    allowed = objective.restrict([j for j in range(objective.n) if objective.columns[j] != 0])
    chosen = [4, 9]
    while len(chosen) < 6:
        errors = {j: error(X, Y, [*chosen, j]) for j in range(1, 14) if j not in chosen}
        chosen.append(min(errors, key=errors.__getitem__))
    best = forward(allowed, 4).best(4)
    assert allowed.in_data(best.members) == chosen
    assert best.value == pytest.approx(error(X, Y, chosen), rel=1e-10)


def test_of_equal_columns_the_first_is_taken_and_no_copy_after_it():
    X, Y = random_data(2, n=6)
    X = np.hstack([X, X, np.zeros((60, 2))])
    members = forward(regression(X, Y), 14).best(14).members
    assert sorted(members) == list(range(6))


def test_ends_where_no_column_brings_a_gain():
    X, _ = random_data(3)
    Y = X[:, [2]] * 3.0
    outcome = forward(regression(X, Y), 8)
    assert [p.members for p in outcome.front] == [(), (2,)]
    assert forward(regression(X, Y - Y), 8).front[-1].size == 0


def test_k_beyond_the_rank_and_k_equal_to_n():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 9))
    assert forward(self_expression(X), 9).front[-1].size == 4
    X, Y = random_data(4)
    assert forward(regression(X, Y), 14).front[-1].size == 14


@pytest.mark.parametrize("k", [0, 15])
def test_refuses_a_size_that_cannot_be(k):
    X, Y = random_data(0)
    with pytest.raises(OptionError, match="14 columns"):
        forward(regression(X, Y), k)


def test_stops_short_of_the_optimum_on_the_papers_example():
    """POSS paper, Proposition 1: (X1, X3) is the best pair; forward regression takes X2 first, then X1."""
    r2, r3, delta = 0.03, 0.5, 0.1
    K = np.array([[1.0, r2, r2 * r3], [r2, 1.0, r3], [r2 * r3, r3, 1.0]])
    objective = DenseObjective(K, delta * np.array([[1.0], [1.03], [1.02]]), 1.0)
    outcome = forward(objective, 2)
    assert outcome.best(2).members == (1, 0)
    assert 1.0 - outcome.best(2).value == pytest.approx(2.0009 * delta**2, abs=1e-6)
    assert 1.0 - objective.value([0, 2]) == pytest.approx(2.0103 * delta**2, abs=1e-6)

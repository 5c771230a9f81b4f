"""Splicing against enumeration and plain least squares: a fixed point that is never worse than its start."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import dsel
from dsel.errors import OptionError
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.objective.subset_state import SubsetState
from dsel.search.anytime import Deadline
from dsel.search.greedy.exchange import splice, splicing
from dsel.search.greedy.path import Path, forward
from tests.search.cases import error, random_data, regression, self_expression


def least(X, Y, k):
    """Return the error of the best k columns, by enumeration."""
    return min(error(X, Y, S) for S in combinations(range(X.shape[1]), k))


def planted(seed, m=80, n=40, k=5, N=1):
    """Return moderately correlated columns, and targets on k of them with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + 0.5 * rng.standard_normal((m, 1))
    true = np.sort(rng.choice(n, k, replace=False))
    weights = rng.choice([-1.0, 1.0], (k, N)) * rng.uniform(1.0, 2.0, (k, N))
    return X, X[:, true] @ weights + 0.3 * rng.standard_normal((m, N)), true


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("N", [1, 10])
def test_it_is_the_best_subset_of_each_size_in_easy_problems(seed, N):
    X, Y, _ = planted(seed, n=10, k=3, N=N)
    front = splicing(regression(X, Y), 3).front
    assert [p.value for p in front[1:]] == pytest.approx([least(X, Y, k) for k in (1, 2, 3)])


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_true_columns(seed):
    X, Y, true = planted(seed)
    assert sorted(splicing(regression(X, Y), 5).best(5).members) == true.tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("N", [1, 10, None])
@pytest.mark.parametrize("max_exchange", [1, 4])
def test_no_exchange_of_the_least_important_members_for_the_most_important_columns_helps(seed, N, max_exchange):
    X, Y = random_data(seed, N=N or 1)
    objective = regression(X, Y) if N else self_expression(X)
    Y = Y if N else X
    for point in splicing(objective, 5, max_exchange).front[1:]:
        S, f = list(point.members), point.value
        assert f == pytest.approx(error(X, Y, S))
        outside = [j for j in range(X.shape[1]) if j not in S]
        S.sort(key=lambda i: error(X, Y, [j for j in S if j != i]))
        outside.sort(key=lambda j: error(X, Y, [*S, j]))
        for c in range(1, min(max_exchange, len(S)) + 1):
            assert error(X, Y, [*S[c:], *outside[:c]]) >= f - 1e-9
        for i in S:
            rest = [j for j in S if j != i]
            assert min(error(X, Y, [*rest, j]) for j in outside) >= f - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_it_is_never_worse_than_its_start(seed):
    X, Y = random_data(seed, N=2)
    objective = regression(X, Y)
    start = np.random.default_rng(seed).choice(14, 4, replace=False).tolist()
    path = Path(objective)
    state = SubsetState(objective, 4)
    assert all(state.insert(j) for j in start)
    found, exchanged = splice(state, 4, path)
    assert found.size == 4
    assert objective.value(found.members) <= objective.value(start) + 1e-9
    assert exchanged >= len(set(start) - set(found.members))
    assert path.evaluated > 0


def test_it_leaves_a_subset_that_forward_selection_cannot_leave():
    rng = np.random.default_rng(0)
    a, b, e = rng.standard_normal((3, 500))
    X = np.column_stack([a + b + 0.3 * e, a, b])
    X /= np.linalg.norm(X, axis=0)
    objective = regression(X, (a + b)[:, None])
    assert sorted(forward(objective, 2).best(2).members) != [1, 2]
    assert sorted(splicing(objective, 2).best(2).members) == [1, 2]


def test_dependent_columns_are_left_out():
    X, Y, _ = planted(0, n=8, k=3)
    X = np.hstack([X, X])
    found = splicing(regression(X, Y), 8).best(8)
    assert np.linalg.matrix_rank(X[:, found.members]) == len(found.members)
    assert found.value == pytest.approx(error(X, Y, range(8)))


def test_it_ends_at_the_deadline_with_a_subset():
    X, Y, _ = planted(0)
    found = splicing(regression(X, Y), 5, deadline=Deadline(0.0))
    assert [p.size for p in found.front] == [0, 1]


class Counting(InMemoryFactor):
    """Columns in memory that count the passes over all of them."""

    passes = 0

    def products(self, V):
        """Count a pass."""
        type(self).passes += 1
        return super().products(V)


@pytest.mark.parametrize("N", [1, 10])
def test_columns_out_of_memory_take_a_pass_for_a_batch_of_new_members(N):
    Counting.passes = 0
    X, Y, true = planted(3, m=60, n=1100, N=N)
    dense = regression(X, Y)
    objective = OnDemandObjective(Counting(X), np.square(X).sum(axis=0), X.T @ Y, dense.c, batch=8)
    found, expected = splicing(objective, 5), splicing(dense, 5)
    assert [sorted(p.members) for p in found.front] == [sorted(p.members) for p in expected.front]
    assert set(true) == set(found.best(5).members)
    assert objective.row_passes == Counting.passes <= 2
    first = sorted(objective.columns[[0, 7]].tolist())
    rest = [sorted(p.members) for p in splicing(objective.condition(first), 3).front]
    assert rest == [sorted(p.members) for p in splicing(dense.condition(first), 3).front]


def test_it_is_a_method_with_an_option():
    X, Y, true = planted(1)
    found = dsel.select(X, Y, k=5, method="splicing", max_exchange=3)
    assert sorted(found.indices) == true.tolist()
    assert found.options == {"max_exchange": 3}
    assert [row.size for row in found.front] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(OptionError, match="max_exchange"):
        dsel.select(X, Y, k=5, method="splicing", max_exchange=0)

"""The incumbent that exact searches start from."""

import numpy as np
import pytest

from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.pareto import starting_subset as module
from dsel.search.pareto.starting_subset import starting_subset
from tests.search.exact.cases import regression


@pytest.fixture
def pareto_searches(monkeypatch):
    """Count the Pareto searches."""
    made = []

    original = module.Poss

    def search(*arguments, **options):
        made.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "Poss", search)
    return made


@pytest.fixture
def problem():
    """Return a small regression with 12 columns."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 12))
    return regression(X, X[:, [1, 4, 7]].sum(axis=1, keepdims=True) + 0.1 * rng.standard_normal((40, 1)))


def test_a_known_best_subset_needs_no_pareto_search(problem, pareto_searches):
    assert starting_subset(problem, 3, known=(1, 4, 7)) == (1, 4, 7)
    assert not pareto_searches


def test_a_known_subset_that_exchange_improves_is_followed_by_a_pareto_search(problem, pareto_searches):
    assert starting_subset(problem, 3, known=(0, 2, 3)) == (1, 4, 7)
    assert len(pareto_searches) == 1


@pytest.mark.parametrize("known", [(), (1, 4)])
def test_without_a_known_subset_of_full_size_there_is_a_pareto_search(problem, pareto_searches, known):
    assert starting_subset(problem, 3, known=known) == (1, 4, 7)
    assert len(pareto_searches) == 1


def test_where_rows_of_the_gram_matrix_are_computed_there_is_no_pareto_search(pareto_searches):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 1100))
    y = X[:, [1, 400, 700]].sum(axis=1, keepdims=True) + 0.1 * rng.standard_normal((60, 1))
    objective = OnDemandObjective(InMemoryFactor(X), np.square(X).sum(axis=0), X.T @ y, float(np.square(y).sum()))
    assert sorted(starting_subset(objective, 3)) == [1, 400, 700]
    assert objective.row_passes == 1
    assert not pareto_searches


def test_in_large_problems_there_is_a_pareto_search(problem, pareto_searches, monkeypatch):
    monkeypatch.setattr(module, "_SMALL", 10)
    starting_subset(problem, 3, known=(1, 4, 7))
    assert len(pareto_searches) == 1

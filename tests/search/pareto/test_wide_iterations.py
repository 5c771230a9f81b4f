"""How long a Pareto search takes where the Gram matrix does not fit: counted, announced, and bounded by default."""

from __future__ import annotations

import numpy as np
import pytest

import dsel
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.runtime.schedule import Division, wide_iterations
from tests.on_workers import hold_column_blocks

K = 3


def wide_data(m=30, n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    return X, X[:, :4] @ rng.uniform(0.5, 1.5, (4, 1)) + rng.standard_normal((m, 1))


@pytest.fixture
def in_blocks(monkeypatch):
    hold_column_blocks(monkeypatch.setattr)


@pytest.fixture
def short(monkeypatch):
    """Let searches on wide data end after about two milliseconds in place of 20 seconds."""
    monkeypatch.setattr("dsel.search.runtime.schedule.LONGEST_WIDE_SECONDS", 2e-3)


def run(method="poss", **options):
    X, y = wide_data()
    asked = {"k": K, "method": method, "seed": 1, **options}
    return dsel.plan(X, y, calibrate=False, **asked), dsel.select(X, y, **asked)


@pytest.mark.parametrize("method", ["poss", "pposs"])
def test_a_search_that_would_take_too_long_makes_the_iterations_that_the_plan_states(in_blocks, short, method):
    plan, selection = run(method)
    T = paper_iterations(K, 80)
    assert plan.iterations == wide_iterations(K, 1) < T
    assert selection.iterations == plan.iterations - plan.iterations % (32 if method == "pposs" else 1)
    for text in ("\n".join(plan.lines()), "\n".join(selection.notes)):
        assert f"{T:,} iterations would take" in text
        assert f"{plan.iterations:,} at most" in text
        assert "splicing" in text


def test_what_is_asked_for_is_kept(in_blocks, short):
    plan, selection = run(iterations=3000)
    assert plan.iterations == selection.iterations == 3000
    assert "would take" not in str(plan) + "".join(selection.notes)
    plan, selection = run(seconds=30)
    assert plan.iterations == selection.iterations == paper_iterations(K, 80)


def test_a_search_with_the_gram_matrix_makes_all_iterations(short):
    plan, selection = run()
    assert plan.iterations == selection.iterations == paper_iterations(K, 80)


def test_a_search_that_ends_in_minutes_makes_all_iterations(in_blocks):
    plan, selection = run()
    assert plan.iterations == selection.iterations == paper_iterations(K, 80)


def test_the_iterations_of_wide_data_follow_from_the_problem_only():
    T = paper_iterations(10, 20_000)
    assert wide_iterations(10, 1) > T
    assert 5 < Division(20_000, 10, 1, 0, T, has_gram=False).total < 60
    assert wide_iterations(20, 1) < paper_iterations(20, 1_000_000)
    assert 10 < Division(1_000_000, 20, 1, 0, wide_iterations(20, 1), has_gram=False).total < 40


def test_predictions_take_no_longer_than_the_search(monkeypatch):
    """Each accepted subset makes the prediction of the coming iterations useless, and this search accepts many."""
    X, y = wide_data(60, 2000)
    objective = OnDemandObjective(
        InMemoryFactor(X), np.square(X).sum(axis=0), X.T @ y, float(np.square(y).sum()), batch=32
    )
    search, predicted = Poss(objective, 8, seed=1), []
    look_ahead = Poss._look_ahead
    monkeypatch.setattr(Poss, "_look_ahead", lambda self, n, *more: predicted.append(n) or look_ahead(self, n, *more))
    search.advance(300_000)
    assert search.counts()["accepted"] > 30
    assert sum(predicted) < 3 * search.iteration

"""Random columns, leverage scores, pivoted QR, exhaustive search and penalized paths against independent programs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import dsel
from dsel.errors import CapacityError, MissingExtraError, OptionError
from dsel.search import penalized
from dsel.search.comparators.exhaustive import exhaustive, subsets
from dsel.search.comparators.methods import leverage, leverage_scores, pivoted_qr, random_subset
from dsel.search.method import SearchTask
from dsel.search.penalized import LASSO, MCP, SCAD
from tests.search.cases import error, random_data, regression, self_expression

# --- columns for X itself ---


@pytest.mark.parametrize("seed", range(5))
def test_pivoted_qr_is_scipys(seed: int) -> None:
    X, _ = random_data(seed)
    X *= np.random.default_rng(seed).uniform(0.5, 2.0, 14)
    pivots = scipy.linalg.qr(X, mode="r", pivoting=True)[1]
    front = {p.size: list(p.members) for p in pivoted_qr(self_expression(X), 7).front}
    assert all(front[size] == pivots[:size].tolist() for size in range(1, 8))


def test_pivoted_qr_ends_at_the_rank() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 12))
    assert pivoted_qr(self_expression(X), 8).front[-1].size == 4


def test_the_largest_leverage_scores_are_those_of_the_singular_vectors() -> None:
    X, _ = random_data(1)
    V = np.linalg.svd(X)[2][:4]
    scores = np.square(V).sum(axis=0)
    np.testing.assert_allclose(leverage_scores(self_expression(X), 4), scores, rtol=1e-9)
    chosen = leverage(self_expression(X), 4, choice="largest").best(4)
    assert list(chosen.members) == np.argsort(-scores)[:4].tolist()


def test_columns_are_sampled_in_proportion_to_their_leverage() -> None:
    X, _ = random_data(2)
    objective = self_expression(X)
    share = leverage_scores(objective, 1)
    drawn = np.bincount([leverage(objective, 1, seed=s).best(1).members[0] for s in range(600)], minlength=14) / 600
    assert np.abs(drawn - share).max() < 4 * np.sqrt(share.max() / 600)


@pytest.mark.parametrize("method", ["pivoted-qr", "leverage"])
def test_methods_for_x_itself_refuse_targets(method: str) -> None:
    X, Y = random_data(0)
    with pytest.raises(OptionError, match="X itself"):
        dsel.plan(X, Y, k=3, method=method)


# --- random columns ---


def test_random_columns_are_uniform_and_the_best_draw_is_kept() -> None:
    X, Y = random_data(3)
    objective = regression(X, Y)
    drawn = np.bincount([j for s in range(300) for j in random_subset(objective, 4, s).best(4).members], minlength=14)
    assert np.abs(drawn / 300 - 4 / 14).max() < 0.12
    values = [random_subset(objective, 4, 5, draws).best(4).value for draws in (1, 10, 50)]
    assert values[0] >= values[1] >= values[2] > exhaustive(objective, 4).best(4).value * (1 - 1e-12)


# --- exhaustive search ---


@pytest.mark.parametrize("N", [1, 3, 12])
def test_exhaustive_search_finds_the_best_subset_of_every_size(N: int) -> None:
    X, Y = random_data(4, n=9, N=N)
    front = {p.size: p for p in exhaustive(regression(X, Y), 4).front}
    for size in range(1, 5):
        best = min(error(X, Y, S) for S in itertools.combinations(range(9), size))
        assert front[size].value == pytest.approx(best, rel=1e-9)
        assert error(X, Y, front[size].members) == pytest.approx(best, rel=1e-9)


def test_exhaustive_search_agrees_with_branch_and_bound_for_x_itself() -> None:
    X, _ = random_data(5, n=12)
    X[:, 7] = X[:, 2]
    ours = dsel.select(X, k=4, method="exhaustive")
    assert ours.error == pytest.approx(dsel.select(X, k=4, method="branch-and-bound").error, rel=1e-9)


def test_more_subsets_than_allowed_are_refused_with_their_number() -> None:
    assert subsets(14, 3) == 14 + 91 + 364
    X, Y = random_data(0)
    with pytest.raises(CapacityError, match="469 subsets of at most 3 of 14 columns; most_subsets is 468"):
        dsel.plan(X, Y, k=3, method="exhaustive", most_subsets=468)
    assert dsel.select(X, Y, k=3, method="exhaustive", most_subsets=469).counts["evaluated"] == 469


# --- penalized paths ---


def coefficients(method: Any, X: Any, Y: Any, penalties: int = 12) -> tuple[penalized.PenalizedProblem, Any, list[Any]]:
    """Return the problem, its penalties and the models of a path, as the method solves it."""
    models: list[Any] = []
    saved = penalized._quietly

    def noted(found: Any) -> Any:
        for model in saved(found):
            models.append(model)
            yield model

    penalized._quietly = noted
    try:
        task = SearchTask(regression(X, Y), X.shape[1], 0, method.options(penalties=penalties, smallest_penalty=0.05))
        method.run(task)
    finally:
        penalized._quietly = saved
    problem = penalized.PenalizedProblem.of(task.objective)
    return problem, problem.penalties(task.options), models


@pytest.mark.parametrize("N", [1, 3])
def test_lasso_meets_the_conditions_of_its_optimum(N: int) -> None:
    X, Y = random_data(6, N=N)
    problem, penalties, models = coefficients(LASSO, X, Y)
    r = problem.W.shape[0]
    for penalty, b in zip(penalties, models, strict=True):
        gradient = problem.W.T @ (problem.T - problem.W @ b) / r
        length = np.linalg.norm(b, axis=1)
        assert np.linalg.norm(gradient, axis=1).max() <= penalty * (1 + 1e-2)
        active = length > 0
        np.testing.assert_allclose(gradient[active], penalty * b[active] / length[active, None], atol=1e-2 * penalty)


def test_a_note_says_that_the_steps_of_a_path_are_too_large() -> None:
    X, _ = random_data(0)
    few = dsel.select(X, X.sum(axis=1), k=2, method="lasso", penalties=2)
    assert "the first model of the path has 14 columns: more penalties have smaller steps" in few.notes
    assert dsel.select(X, X.sum(axis=1), k=2, method="lasso").labels


def test_lasso_has_the_supports_of_scikit_learns_lars() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, Y = random_data(7)
    steps = linear_model.lars_path(X, Y.ravel(), method="lasso")[2].T
    theirs = {tuple(np.flatnonzero(step).tolist()) for step in steps}
    ours = dsel.select(X, Y, k=6, method="lasso", penalties=500)
    assert {tuple(sorted(row.indices)) for row in ours.front[1:]} <= theirs
    assert len(ours.front) >= 6


@pytest.mark.parametrize("method", [MCP, SCAD], ids=["mcp", "scad"])
def test_concave_penalties_meet_the_conditions_of_a_stationary_point(method: Any) -> None:
    """The derivative of the penalty falls to 0 where it ends: strong columns are not shrunk."""
    pytest.importorskip("skglm")
    X, Y = random_data(8)
    problem, penalties, models = coefficients(method, X, Y)
    r, shape = problem.W.shape[0], method.options().shape
    for penalty, b in zip(penalties, models, strict=True):
        gradient, b = (problem.W.T @ (problem.T - problem.W @ b) / r).ravel(), b.ravel()
        size = np.abs(b)
        if method is MCP:
            slope = np.maximum(penalty - size / shape, 0.0)
        else:
            slope = np.where(size <= penalty, penalty, np.maximum(shape * penalty - size, 0.0) / (shape - 1.0))
        active = size > 0
        assert np.abs(gradient[~active]).max(initial=0.0) <= penalty * (1 + 1e-2)
        np.testing.assert_allclose(gradient[active], (np.sign(b) * slope)[active], atol=1e-2 * penalties[0])


def test_a_missing_package_is_named_before_the_data_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = random_data(0)
    monkeypatch.setattr(penalized.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r"need skglm, which is not installed.*\n?.*dsel\[penalized\]"):
        dsel.plan(X, Y, k=3, method="mcp")


# --- methods of the papers under another name ---


def test_greedy_column_subset_selection_is_forward_selection_for_x_itself() -> None:
    """Farahat, Ghodsi, Kamel 2011: the column with the largest |E' e_j|^2 / |e_j|^2, E the residual of X."""
    X, _ = random_data(9)
    E, chosen = X.copy(), []
    for _ in range(6):
        norms = np.square(E).sum(axis=0)
        scores = np.where(norms > 1e-9, np.square(E.T @ E).sum(axis=0) / np.maximum(norms, 1e-9), 0.0)
        j = int(np.argmax(scores))
        chosen.append(j)
        E = E - np.outer(E[:, j], E[:, j] @ E) / norms[j]
    assert list(dsel.select(X, k=6, method="forward").front[-1].indices) == chosen


@pytest.mark.parametrize("N", [1, 4])
def test_orthogonal_least_squares_is_forward_selection(N: int) -> None:
    """OLS (Chen, Billings, Luo 1989), SOLS and ISOLS: the largest error reduction after Gram-Schmidt on all columns."""
    X, Y = random_data(10, N=N)
    Q, chosen = X.copy(), []
    for _ in range(5):
        norms = np.square(Q).sum(axis=0)
        gains = np.where(norms > 1e-9, np.square(Q.T @ Y).sum(axis=1) / np.maximum(norms, 1e-9), 0.0)
        j = int(np.argmax(gains))
        chosen.append(j)
        Q = Q - np.outer(Q[:, j], Q[:, j] @ Q) / norms[j]
    assert list(dsel.select(X, Y, k=5, method="forward").front[-1].indices) == chosen

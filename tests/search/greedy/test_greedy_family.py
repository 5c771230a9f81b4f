"""OMP, FoBa, backward elimination, RFE, exchange, two-stage and ApproxSVD against plain least squares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import dsel
from dsel._lib.rng import weighted_sample
from dsel.errors import OptionError
from dsel.search.comparators.methods import approx_svd, rfe, two_stage
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import backward, foba, forward, omp
from tests.search.cases import error, random_data, regression, self_expression

METHODS = {
    "forward": forward,
    "omp": omp,
    "foba": foba,
    "backward": backward,
    "rfe": rfe,
    "exchange": exchange,
}
COLUMN_METHODS = {"two_stage": two_stage, "approx_svd": approx_svd}


@pytest.mark.parametrize("seed", range(10))
def test_omp_is_scikit_learns(seed):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, Y = random_data(seed, n=20)
    theirs = linear_model.OrthogonalMatchingPursuit(n_nonzero_coefs=6, fit_intercept=False).fit(X, Y.ravel())
    ours = omp(regression(X, Y), 6).best(6)
    assert sorted(ours.members) == np.flatnonzero(theirs.coef_).tolist()


@pytest.mark.parametrize("N", [2, 11])
def test_omp_with_several_targets_takes_the_largest_correlation(N):
    X, Y = random_data(0, N=N)
    X = X * np.linspace(1.0, 3.0, X.shape[1])
    chosen, R = [], Y
    for _ in range(5):
        chosen.append(int(np.argmax(np.square(X.T @ R).sum(1) / np.square(X).sum(0))))
        R = Y - X[:, chosen] @ np.linalg.lstsq(X[:, chosen], Y, rcond=None)[0]
    assert list(omp(regression(X, Y), 5).best(5).members) == chosen


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("N", [1, 10])
def test_backward_is_the_wrapper(seed, N):
    X, Y = random_data(seed, N=N)
    left, path = list(range(14)), {}
    while left:
        if len(left) <= 6:
            path[len(left)] = sorted(left)
        errors = {j: error(X, Y, [i for i in left if i != j]) for j in left}
        left.remove(min(errors, key=errors.__getitem__))
    front = backward(regression(X, Y), 6).front
    assert {p.size: list(p.members) for p in front if p.size} == path


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("N", [1, 3])
def test_rfe_is_the_wrapper(seed, N):
    X, Y = random_data(seed, N=N)
    left = list(range(14))
    while len(left) > 4:
        a = np.linalg.lstsq(X[:, left], Y, rcond=None)[0]
        left.pop(int(np.argmin(np.square(a).sum(1))))
    front = {p.size: p for p in rfe(regression(X, Y), 4).front}
    assert list(front[4].members) == left


@pytest.mark.parametrize("seed", range(3))
def test_rfe_of_a_singular_gram_matrix_takes_the_minimum_norm_solution(seed):
    X, Y = random_data(seed, m=12, n=20)
    left = list(range(20))
    while len(left) > 5:
        a = np.linalg.pinv(X[:, left], rcond=1e-10) @ Y
        left.pop(int(np.argmin(np.abs(a.ravel()))))
    points = {p.size: p for p in rfe(regression(X, Y), 5).front}
    assert list(points[5].members) == left


def plain_foba(X, y, k, nu, length):
    """Zhang's FoBa on the data: a list of the active sets after every step."""
    S, gains, path = [], {}, []
    while len(path) < length:
        w = np.linalg.lstsq(X[:, S], y, rcond=None)[0] if S else np.empty((0, 1))
        r = y - X[:, S] @ w
        zeroed = [np.square(r + X[:, [j]] * w[i]).sum() - np.square(r).sum() for i, j in enumerate(S)]
        if S and min(zeroed) <= nu * gains[len(S)]:
            S.pop(int(np.argmin(zeroed)))
        elif len(S) == X.shape[1]:
            return path
        else:
            score = np.square(X.T @ r).ravel() / np.square(X).sum(0)
            score[S] = -1.0
            S.append(int(np.argmax(score)))
            gains[len(S)] = np.square(r).sum() - error(X, y, S)
        path.append(sorted(S))
    return path


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("nu", [0.5, 0.9])
def test_foba_is_the_plain_algorithm(seed, nu):
    X, Y = random_data(seed, n=18)
    path = plain_foba(X, Y, 3, nu, 15)
    last = [S for S in path if len(S) == 3][-1]
    points = {p.size: p for p in foba(regression(X, Y), 3, nu).front}
    assert sorted(points[3].members) == last


def test_foba_deletes_what_became_superfluous():
    rng = np.random.default_rng(0)
    a, b, e = rng.standard_normal((3, 500))
    X = np.column_stack([a + b + 0.3 * e, a, b])
    X /= np.linalg.norm(X, axis=0)
    y = (a + b)[:, None]
    assert sorted(omp(regression(X, y), 2).best(2).members) != [1, 2]
    outcome = foba(regression(X, y), 2)
    assert sorted(outcome.best(2).members) == [1, 2]
    assert outcome.counts["deleted"] == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["regression", "columns"])
@pytest.mark.parametrize("start", ["random", "forward"])
def test_exchange_is_a_local_optimum(seed, kind, start):
    X, Y = random_data(seed)
    objective = regression(X, Y) if kind == "regression" else self_expression(X)
    Y = Y if kind == "regression" else X
    best = exchange(objective, 5, seed=seed, start=start).best(5)
    for i in best.members:
        rest = [j for j in best.members if j != i]
        swaps = [error(X, Y, [*rest, j]) for j in range(14) if j not in best.members]
        assert min(swaps) >= best.value * (1.0 - 1e-9)
    if start == "forward":
        assert best.value <= forward(objective, 5).best(5).value


@pytest.mark.parametrize("seed", [0, 10, 24])
def test_exchange_ends_where_columns_are_nearly_dependent(seed):
    rng = np.random.default_rng(seed)
    U, _, V = np.linalg.svd(rng.standard_normal((14, 8)), full_matrices=False)
    X = U * 10.0 ** rng.uniform(-5, 0, 8) @ V
    objective = regression(X, X / np.linalg.norm(X, axis=0) @ rng.standard_normal((8, 1)))
    assert len(exchange(objective, 5, restarts=4).trace) < 100


def test_more_restarts_are_never_worse_and_find_other_optima():
    X, _ = random_data(7, n=24)
    objective = self_expression(X)
    values = [exchange(objective, 6, seed=1, restarts=r).best(6).value for r in (1, 5, 25)]
    assert values[0] >= values[1] >= values[2]
    assert len({exchange(objective, 6, seed=s).best(6).value for s in range(25)}) > 1


@pytest.mark.parametrize("name", COLUMN_METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_column_methods_select_k_independent_columns_no_better_than_the_best_rank_k(name, seed):
    X, _ = random_data(seed, n=30)
    objective = self_expression(X)
    best = COLUMN_METHODS[name](objective, 6).best(6)
    assert len(set(best.members)) == 6 == objective.rank(best.members)
    assert best.value == pytest.approx(error(X, X, best.members), rel=1e-9)
    assert best.value >= np.square(np.linalg.svd(X, compute_uv=False)[6:]).sum()


@pytest.mark.parametrize("name", COLUMN_METHODS)
def test_column_methods_find_columns_that_span_everything(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 20))
    outcome = COLUMN_METHODS[name](self_expression(X), 8)
    assert outcome.front[-1].size == 5
    assert outcome.front[-1].value <= 1e-6 * np.square(X).sum()


@pytest.mark.parametrize("name", COLUMN_METHODS)
def test_column_methods_refuse_other_targets(name):
    X, Y = random_data(0)
    with pytest.raises(OptionError, match="targets"):
        COLUMN_METHODS[name](regression(X, Y), 3)


def test_approx_svd_is_greedy_on_the_leading_singular_vectors():
    X, _ = random_data(3)
    U, sigma, _ = np.linalg.svd(X, full_matrices=False)
    Y = U[:, :4] * sigma[:4]
    chosen = []
    for _ in range(4):
        errors = {j: error(X, Y, [*chosen, j]) for j in range(14) if j not in chosen}
        chosen.append(min(errors, key=errors.__getitem__))
    assert list(approx_svd(self_expression(X), 4).best(4).members) == chosen


@pytest.mark.parametrize("method", [exchange, two_stage])
def test_seeds_are_reproducible_and_matter(method):
    X, _ = random_data(5, n=40)
    objective = self_expression(X)
    members = [method(objective, 5, seed=s).best(5).members for s in (0, 0, 1, 2, 3, 2**62)]
    assert members[0] == members[1]
    assert len(set(members)) > 2


def test_weighted_samples_follow_their_weights():
    weights = np.array([0.0, 1.0, 2.0, 7.0])
    drawn = np.concatenate([weighted_sample(s, 0, 0, weights, 1) for s in range(4000)])
    assert np.allclose(np.bincount(drawn, minlength=4) / 4000, weights / 10.0, atol=0.025)
    assert weighted_sample(0, 0, 0, weights, 4).tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["regression", "columns"])
def test_values_are_the_objectives_own_and_the_front_improves(name, kind):
    X, Y = random_data(2)
    objective = regression(X, Y) if kind == "regression" else self_expression(X)
    front = METHODS[name](objective, 6).front
    assert front[0].members == ()
    assert front[-1].size == 6
    for point in front:
        assert point.size == len(set(point.members)) <= 6
        assert point.value == objective.value(point.members)
    assert all(a.value > b.value and a.size < b.size for a, b in pairwise(front))


@pytest.mark.parametrize("name", METHODS)
def test_all_columns_can_be_chosen(name):
    X, Y = random_data(6, n=5)
    best = METHODS[name](regression(X, Y), 5).best(5)
    assert best.value == pytest.approx(error(X, Y, range(5)), rel=1e-10)
    assert sorted(best.members) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", METHODS)
def test_duplicates_and_zero_columns_do_not_matter(name):
    X, Y = random_data(8, n=6)
    extended = regression(np.hstack([np.zeros((60, 1)), X, X, np.zeros((60, 1))]), Y)
    best = METHODS[name](extended, 3).best(3)
    assert 1 <= extended.rank(best.members) <= 3
    assert 0 not in best.members
    assert 13 not in best.members
    if name not in ("rfe", "exchange"):
        assert max(best.members) <= 6
        assert best.value == pytest.approx(METHODS[name](regression(X, Y), 3).best(3).value, rel=1e-10)


@pytest.mark.parametrize("name", METHODS)
def test_a_rank_below_k_is_no_error(name):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 8))
    Y = X @ rng.standard_normal((8, 1)) + rng.standard_normal((40, 1))
    front = METHODS[name](regression(X, Y), 8).front
    assert front[-1].size <= (8 if name == "rfe" else 3)
    assert front[-1].value == pytest.approx(error(X, Y, range(8)), rel=1e-6)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["regression", "columns"])
def test_included_columns_are_honoured(name, kind):
    X, Y = random_data(9)
    objective = regression(X, Y) if kind == "regression" else self_expression(X)
    conditioned = objective.condition([3, 8])
    best = METHODS[name](conditioned, 4).best(4)
    chosen = conditioned.in_data(best.members)
    assert chosen[:2] == [3, 8]
    assert best.value == pytest.approx(objective.value(chosen), rel=1e-9)


@pytest.mark.parametrize("method", ["backward", "foba"])
@pytest.mark.parametrize("seed", range(4))
def test_columns_that_are_nearly_one_factor_are_eliminated_to_the_end(method, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 1)) + 0.01 * rng.normal(size=(60, 40))
    selection = dsel.select(x, k=3, method=method)
    assert len(selection.indices) == 3
    assert selection.r2 > 0.999

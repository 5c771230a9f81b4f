"""No bound is above the error of a subset that somebody found, whatever the rank of the columns: errors are computed
from the data, by QR."""

from __future__ import annotations

import numpy as np
import pytest

import dsel
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BOUNDS, BoundProblem, orthonormalised
from dsel.search.exact.branch_and_bound import layout as at
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.certificate import Certificate, across_sizes, consistent_bound
from dsel.search.exact.proof import Proof
from dsel.search.exact.root_bound import RootBound
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss
from tests.datasets import standardized
from tests.search.cases import random_data
from tests.search.exact.cases import regression


def one_factor(rng, m, n, N):
    """All columns correlate by 0.9."""
    return 0.95 * rng.standard_normal((m, 1)) + 0.32 * rng.standard_normal((m, n)), rng.standard_normal((m, N))


def chain(rng, m, n, N):
    """Each column is the one before plus a little noise: AR(1) with 0.999."""
    X = rng.standard_normal((m, n))
    for j in range(1, n):
        X[:, j] = 0.999 * X[:, j - 1] + np.sqrt(1.0 - 0.999**2) * X[:, j]
    return X, rng.standard_normal((m, N))


def few_factors(rng, m, n, N):
    """Three factors hold nearly everything."""
    X = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n)) + 0.05 * rng.standard_normal((m, n))
    return X, X[:, :4] @ rng.standard_normal((4, N)) + rng.standard_normal((m, N))


def near_duplicates(rng, m, n, N):
    """A tenth of the columns many times over, but for a thousandth."""
    own = rng.standard_normal((m, max(n // 10, 1)))
    X = own[:, rng.integers(0, own.shape[1], n)] + 1e-3 * rng.standard_normal((m, n))
    return X, own[:, :3] @ rng.standard_normal((3, N)) + rng.standard_normal((m, N))


def error(X, Y, S, lam=0.0):
    """||Y - X_S A||^2 + lam ||A||^2 of the best A."""
    rows = np.vstack([X[:, list(S)], np.sqrt(lam) * np.eye(len(S))])
    targets = np.vstack([Y, np.zeros((len(S), Y.shape[1]))])
    Q = np.linalg.qr(rows)[0]
    return float(np.square(targets - Q @ (Q.T @ targets)).sum())


# Of the first seven, some were "proven" at once, others had a bound of -inf or ended in a LinAlgError.
@pytest.mark.parametrize(
    ("family", "m", "n", "N", "k", "seed"),
    [
        (one_factor, 100, 650, 1, 8, 5),
        (one_factor, 150, 600, 1, 8, 6),
        (one_factor, 150, 550, 1, 8, 0),
        (one_factor, 100, 600, 3, 8, 0),
        (chain, 200, 650, 1, 8, 0),
        (chain, 200, 550, 1, 8, 0),
        (chain, 150, 500, 3, 6, 1),
        (few_factors, 60, 450, 2, 6, 2),
    ],
)
def test_no_proof_is_false_far_beyond_the_rank(family, m, n, N, k, seed):
    X, Y = family(np.random.default_rng(seed), m, n, N)
    proof = dsel.select(X, Y, k=k, method="branch-and-bound", nodes=20)
    found = dsel.select(X, Y, k=k, method="exchange", restarts=5)
    X, Y = standardized(X), standardized(Y)
    for S in (proof.indices, found.indices):
        assert 0.0 <= proof.certificate[-1]["bound"] <= error(X, Y, S) + 1e-12 * np.square(Y).sum()
    assert not proof.certificate[-1]["proven"]
    assert "not_finite" not in proof.counts
    everything = BoundProblem.of(regression(X, Y)).bound((), range(n), n, "leaps")
    assert everything == pytest.approx(0.0, abs=1e-6 * Y.size)  # n > m: all columns explain everything


@pytest.mark.parametrize("seed", range(24))
def test_bounds_hold_with_more_columns_than_rows(seed):
    rng = np.random.default_rng([7, seed])
    family = (one_factor, chain, few_factors, near_duplicates)[seed % 4]
    m, n, N, k = int(rng.integers(8, 30)), int(rng.integers(60, 160)), int(rng.integers(1, 4)), int(rng.integers(3, 7))
    lam = (0.0, 1e-6, 1e-2)[seed % 3]
    X, Y = (standardized(a) for a in family(rng, m, n, N))
    objective = regression(X, Y, lam)
    poss = Poss(objective, k, seed=seed)
    poss.advance(3000)
    points = [forward(objective, k).best(k), exchange(objective, k, seed=seed, restarts=10).best(k), *poss.front()]
    searches = [BranchAndBound(objective, k, bound=bound) for bound in BOUNDS]
    searches += [AStar(objective, k, bound="combined"), AStar(objective, k, bound="eigenvalue")]
    for search in searches:
        search.advance(20)
    bounds = [search.proved for search in (*searches, RootBound(objective, k))]
    assert min(bounds) >= 0.0
    for point in points:
        if 0 < point.size <= k:
            assert max(bounds) <= error(X, Y, point.members, lam) + 1e-12 * objective.c
    assert not any(search.contradicted for search in searches)


def test_the_elimination_of_rounding_alone_stays_finite():
    """Past the rank G is rounding, which no order of columns makes positive semidefinite."""
    rng = np.random.default_rng(0)
    noise = 1e-13 * rng.standard_normal((700, 700))
    Z = orthonormalised(noise + noise.T, 1e-13 * rng.standard_normal((700, 2)), np.full(700, 1e-7))
    assert np.isfinite(Z).all()
    assert float(np.square(Z).sum()) < 1e-6


def test_what_is_not_a_number_prunes_nothing():
    X, Y = random_data(3, n=10, N=2)
    objective = regression(X, Y)
    problem = BoundProblem.of(objective)
    best = BranchAndBound(objective, 4)
    best.advance(10**6)
    broken = BoundProblem(problem.K, problem.B.copy(), problem.c, problem.floor)
    search = BranchAndBound(objective, 4, problem=broken, pairs=False)
    search._explorer._memory[at.ROOT_CROSS][0] = np.nan  # what column 0 has of the targets
    search.advance(10**6)
    assert search.not_finite > 0
    assert search.iteration > best.iteration
    without = exchange(regression(X[:, 1:], Y), 4, restarts=20).best(4)
    assert search.best_value <= without.value + 1e-9 * objective.c
    broken = BoundProblem(problem.K, np.full_like(problem.B, np.nan), problem.c, problem.floor)
    assert [broken.bound((), range(10), 4, name) for name in BOUNDS] == [0.0, 0.0, 0.0]
    assert [broken.bound((), range(9), 4, name) for name in ("combined", "leaps")] == [0.0, 0.0]


def test_a_bound_that_a_subset_contradicts_proves_nothing(monkeypatch):
    objective = regression(*random_data(1))
    k, best = 3, exchange(objective, 3, restarts=5).best(3)
    monkeypatch.setattr(BoundProblem, "bound", lambda *_: best.value + 0.01 * objective.c)
    for make in (BranchAndBound, AStar):
        search = make(objective, k, bound="combined", incumbent=best.members)
        search.advance(10**6)
        assert search.contradicted
        assert search.lower == 0.0
    proof = Proof.begin(objective, k, best.members)
    assert not proof.run()
    assert not proof.certificate().proven
    assert not Proof.resume(objective, proof.state()).certificate().proven
    assert not RootBound(objective, k, incumbent=best.members).proven


def test_a_better_subset_after_the_end_contradicts_the_proof():
    objective = regression(*random_data(2))
    search = BranchAndBound(objective, 3)
    search.advance(10**6)
    assert search.proven
    best, search.best, search.best_value = search.best, (0,), objective.value((0,))
    search.offer(best)
    assert search.done
    assert not search.proven


def test_a_worker_reports_bounds_that_are_not_finite():
    X, Y = random_data(3, n=10, N=2)
    search = BranchAndBound(regression(X, Y), 4, pairs=False)
    other = BranchAndBound(regression(X, Y), 4, pairs=False)._explorer
    other._memory[at.ROOT_CROSS][0] = np.nan
    lease_id, subs = search.checkout(10, 1.0, lambda _: 1.0)
    search.complete(lease_id, other.explore_all(subs, search.best_value, 10**6))
    assert search.not_finite > 0
    state = search.state()
    assert BranchAndBound.restore(search.objective, state).not_finite == search.not_finite


def test_certificates_drop_bounds_that_a_value_contradicts():
    assert consistent_bound(2.0, 3.0, 10.0) == 2.0
    assert consistent_bound(3.0 + 1e-9, 3.0, 10.0) == 3.0
    assert consistent_bound(4.0, 3.0, 10.0) == 0.0
    wrong, right = Certificate(3, 5.0, 5.0, 10.0), Certificate(3, 4.0, 1.0, 10.0)
    assert wrong.merged(right).bound == 1.0
    assert across_sizes({2: Certificate(2, 4.0, 1.0, 10.0), 3: wrong})[2].bound == 0.0

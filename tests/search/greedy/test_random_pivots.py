"""ARP and RPCholesky against enumeration, literal programs and their theorems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dsel
from dsel.errors import OptionError
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import GramRowsObjective
from dsel.search.comparators.arp import arp
from dsel.search.comparators.rpcholesky import rpcholesky
from tests.search.cases import error, random_data, self_expression


def decaying(seed: int, m: int = 40, n: int = 30) -> np.ndarray:
    """Return columns whose singular values fall as 1 / j."""
    rng, rank = np.random.default_rng(seed), min(m, n, 20)
    U, V = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (m, n))
    return (U / np.arange(1.0, rank + 1.0)) @ V.T


def tail(X: np.ndarray, k: int) -> float:
    """Return the squared error of the best approximation of rank k."""
    return float(np.square(np.linalg.svd(X)[1][k:]).sum())


def pairs_by_householder(V: np.ndarray) -> dict[tuple[int, int], float]:
    """Return the probability of each ordered pair of ARP, by reflections as in the paper."""
    found = {}
    squares = np.square(V).sum(axis=1)
    for i in range(len(V)):
        v = V[i] + np.copysign(np.linalg.norm(V[i]), V[i, 0]) * np.eye(2)[0]
        left = (V - 2.0 * np.outer(V @ v, v) / (v @ v))[:, 1]
        for j in range(len(V)):
            if j != i:
                found[i, j] = squares[i] / 2.0 * left[j] ** 2
    return found


def pairs_by_elimination(K: np.ndarray) -> dict[tuple[int, int], float]:
    """Return the probability of each ordered pair of RPCholesky."""
    found = {}
    for i in range(len(K)):
        left = np.diag(K - np.outer(K[:, i], K[i]) / K[i, i])
        for j in range(len(K)):
            if j != i:
                found[i, j] = K[i, i] / np.trace(K) * left[j] / (left.sum() - left[i])
    return found


def assert_drawn(drawn: list[tuple[int, ...]], probability: dict[tuple[int, int], float]) -> None:
    count = len(drawn)
    for pair, p in probability.items():
        assert abs(drawn.count(pair) / count - p) < 4.5 * np.sqrt(p * (1.0 - p) / count) + 1.0 / count, pair
    assert sum(probability.values()) == pytest.approx(1.0)


def test_arp_draws_as_the_reflections_of_the_paper() -> None:
    X = decaying(0, m=12, n=6)
    V = np.linalg.svd(X)[2][:2].T
    drawn = [arp(self_expression(X), 2, seed=seed).best(2).members for seed in range(2000)]
    assert_drawn(drawn, pairs_by_householder(V))


def test_rpcholesky_draws_by_what_the_chosen_columns_leave() -> None:
    X = decaying(1, m=12, n=6)
    drawn = [rpcholesky(self_expression(X), 2, seed=seed).best(2).members for seed in range(2000)]
    assert_drawn(drawn, pairs_by_elimination(X.T @ X))


@pytest.mark.parametrize("k", [2, 6])
def test_the_expected_error_of_arp_is_at_most_k_plus_1_times_the_best_of_rank_k(k: int) -> None:
    X = decaying(2)
    found = np.array([arp(self_expression(X), k, seed=seed).best(k).value for seed in range(300)])
    assert found.mean() - 3.0 * found.std() / np.sqrt(300) <= (k + 1) * tail(X, k)
    assert found.min() >= tail(X, k)


@pytest.mark.parametrize("seed", range(5))
def test_the_derandomized_choice_keeps_the_expectation_smallest_and_its_bound(seed: int) -> None:
    X, k = decaying(seed, m=12, n=7), 2
    V = np.linalg.svd(X)[2][:k].T
    E = X - X @ V @ V.T

    def oblique(S: tuple[int, int]) -> float:
        return float(np.square(X - X[:, S] @ np.linalg.solve(V[list(S)].T, V.T)).sum())

    def expected(i: int) -> float:
        left = {j: p for (first, j), p in pairs_by_householder(V).items() if first == i}
        return sum(p * oblique((i, j)) for j, p in left.items()) / sum(left.values())

    first = min(range(7), key=expected)
    second = min((j for j in range(7) if j != first), key=lambda j: oblique((first, j)))
    best = arp(self_expression(X), k, choice="derandomized").best(k)
    assert best.members == (first, second)
    assert best.value == pytest.approx(error(X, X, best.members))
    assert best.value <= (k + 1) * np.square(E).sum()


def test_more_draws_are_never_worse() -> None:
    objective = self_expression(decaying(3))
    values = [arp(objective, 4, seed=5, draws=draws).best(4).value for draws in (1, 5, 25)]
    assert values[0] >= values[1] >= values[2]


@pytest.mark.parametrize("method", ["arp", "rpcholesky"])
def test_they_end_at_the_rank(method: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 12))
    found = dsel.select(X, k=8, method=method, preprocess="none")
    assert len(found.indices) == 4
    assert found.error == pytest.approx(0.0, abs=1e-9 * np.square(X).sum())


@pytest.mark.parametrize("method", ["arp", "rpcholesky"])
def test_they_refuse_targets(method: str) -> None:
    X, Y = random_data(0)
    with pytest.raises(OptionError, match="X itself"):
        dsel.plan(X, Y, k=3, method=method)


def test_draws_of_the_derandomized_choice_are_refused() -> None:
    with pytest.raises(OptionError, match="only with choice=sampled"):
        dsel.plan(decaying(0), k=3, method="arp", choice="derandomized", draws=3)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_the_gram_matrix_alone_give_the_same_columns_and_errors(seed: int) -> None:
    X = decaying(seed)
    wide = GramRowsObjective(InMemoryFactor(X), np.square(X).sum(axis=0), None, float(np.square(X).sum()))
    one, other = rpcholesky(self_expression(X), 6, seed), rpcholesky(wide, 6, seed)
    assert [p.members for p in one.front] == [p.members for p in other.front]
    assert [p.value for p in one.front] == pytest.approx([p.value for p in other.front])
    for S in itertools.islice(itertools.combinations(range(30), 3), 5):
        assert wide.value(S) == pytest.approx(error(X, X, S))


def wide_passes(m: int, n: int) -> dict[str, int]:
    """Return the passes of RPCholesky, those for Gram rows, and the planned ones."""
    X = np.random.default_rng(0).standard_normal((m, n), np.float32)
    found = dsel.select(X, k=20, method="rpcholesky")
    return {"all": found.passes, "rows": found.counts["row_passes"], "planned": found.plan["planned"]["passes"]}


def test_wide_data_are_read_for_the_norms_for_k_gram_rows_and_for_the_check() -> None:
    assert wide_passes(100, 60_000) == {"all": 3, "rows": 1, "planned": 3}


@pytest.mark.slow
def test_1000_x_50_000_takes_two_passes_and_the_check() -> None:
    assert wide_passes(1000, 50_000) == {"all": 3, "rows": 1, "planned": 3}

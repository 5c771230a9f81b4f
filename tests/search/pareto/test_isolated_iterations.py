"""The number of iterations of POSS with the isolation function min-index, from Theorem 2 of its paper."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.search.pareto.compiled import isolated_iterations, paper_iterations

N, K = 16, 5


def exponential_decay(seed: int) -> tuple[Any, Any, float]:
    """Return X and y with covariances of the subclass Exponential Decay, and the least error of K columns.

    Columns i and j correlate by a^|y_i - y_j|. Forward selection does not find the best subset of these.
    """
    rng = np.random.default_rng(seed)
    places = np.concatenate([[0.0], np.cumsum(-np.log(rng.uniform(0.3, 0.95, N - 1)))])
    C, b = np.exp(-np.abs(places[:, None] - places)), rng.uniform(-1.0, 1.0, N)
    b /= 2.0 * np.sqrt(b @ np.linalg.solve(C, b))
    L = np.linalg.cholesky(np.block([[C, b[:, None]], [b[None], np.ones((1, 1))]])).T
    subsets = (list(S) for S in combinations(range(N), K))
    return L[:, :N], L[:, N], 1.0 - max(b[S] @ np.linalg.solve(C[np.ix_(S, S)], b[S]) for S in subsets)


@pytest.mark.parametrize("problem", range(2))
def test_every_run_finds_the_best_subset_where_forward_selection_and_fewer_iterations_do_not(problem: int) -> None:
    X, y, best = exponential_decay(problem)

    def errors(**options: Any) -> list[float]:
        shared = {"k": K, "method": "poss", "preprocess": "none", "isolation": "min-index", "exchange_every": 0}
        runs = (dsel.select(X, y, seed=seed, warm_start="none", **shared, **options) for seed in range(8))
        return [found.error for found in runs]

    assert dsel.select(X, y, k=K, method="forward", preprocess="none").error > best + 1e-4
    assert errors() == pytest.approx([best] * 8, abs=1e-12)
    assert max(errors(iterations=paper_iterations(K, N))) > best + 1e-6


def test_the_plan_says_so_and_iterations_override_it() -> None:
    X, y, _ = exponential_decay(0)
    T = math.floor(K * K * (N - K) * N * math.log(N))
    assert isolated_iterations(K, N) == T
    for method in ("poss", "pposs", "pposs-asy"):
        plan = dsel.plan(X, y, k=K, method=method, isolation="min-index")
        assert any(f"{T:,} iterations" in note for note in plan.notes)
    asked = dsel.plan(X, y, k=K, method="poss", isolation="min-index", iterations=1000)
    assert asked.iterations == 1000
    assert not any("iterations" in note for note in asked.notes)
    assert dsel.plan(X, y, k=K, method="poss").iterations == paper_iterations(K, N)

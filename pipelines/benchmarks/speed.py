"""Measure the speed of the Pareto search, compared with the same algorithm in plain NumPy and in ZOOpt."""

from __future__ import annotations

import importlib.util
import io
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.benchmarks.literal import LiteralPoss, Value, by_data, by_gram, by_recursion
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.benchmarks.timing import least_seconds, seconds_per_step
from pipelines.papers.preprocess import regression, self_expression

M, N, K = 2000, 500, 8
POCSS_K, POCSS_WIDTHS = 50, (386, 2500)


def search_seconds(objective: DenseObjective, k: int, iterations: int, repeats: int) -> float:
    """Return the seconds to set up a search and run iterations, given the Gram matrix and compiled code."""
    Poss(objective, k).advance(10)

    def work() -> None:
        Poss(objective, k).advance(iterations)

    return least_seconds(work, repeats)


def typical_archive(objective: DenseObjective, k: int, iterations: int) -> list[tuple[int, ...]]:
    """Return the archive after half of the iterations, from which the literal algorithms are measured."""
    search = Poss(objective, k, seed=1)
    search.advance(iterations // 2)
    return [point.members for point in search.front() if point.size < 2 * k]


def literal_seconds(value: Value, n: int, k: int, start: list[tuple[int, ...]], seconds: float) -> float:
    """Return the processor seconds per iteration of the literal algorithm."""
    return seconds_per_step(LiteralPoss(value, n, k, start).step, seconds)


def at_k8(quick: bool) -> dict[str, Any]:
    """Compare regression (m = 2000, n = 500, k = 8) with least squares on the data and on K, and with ZOOpt."""
    X, y = regression_data(M, N)
    objective = regression(X, y)
    T = paper_iterations(K, N)
    ours = search_seconds(objective, K, T, 5) / T
    start = typical_archive(objective, K, T)
    seconds = 1.0 if quick else 4.0
    on_data = literal_seconds(by_data(X, y), N, K, start, seconds)
    on_gram = literal_seconds(by_gram(X, y), N, K, start, seconds)
    report = {
        "us_per_iteration_k8": 1e6 * ours,
        "us_per_iteration_literal_k8": 1e6 * on_data,
        "us_per_iteration_gram_k8": 1e6 * on_gram,
        "ratio_k8": on_data / ours,
        "ratio_gram_k8": on_gram / ours,
    }
    zoopt = zoopt_seconds(X, y, K, 500 if quick else 1500)
    if zoopt is not None:
        report |= {"us_per_iteration_zoopt_k8": 1e6 * zoopt, "ratio_zoopt_k8": zoopt / ours}
    return report


def pocss(n: int, quick: bool) -> dict[str, Any]:
    """Compare column subset selection (m = 2000, k = 50) with the O(mn) recursions of the paper."""
    A = low_rank_data(M, n, 150)
    objective = self_expression(A)
    T = paper_iterations(POCSS_K, n)
    run = T // 20 if quick else T
    ours = search_seconds(objective, POCSS_K, run, 3 if n < 1000 else 1) / run
    start = typical_archive(objective, POCSS_K, min(run, 2_000_000))
    literal = literal_seconds(by_recursion(A), n, POCSS_K, start, 1.0 if quick else 4.0)
    key = f"k{POCSS_K}_n{n}"
    return {
        f"us_per_iteration_{key}": 1e6 * ours,
        f"us_per_iteration_literal_{key}": 1e6 * literal,
        f"ratio_{key}": literal / ours,
        f"iterations_{key}": run,
        f"paper_iterations_{key}": T,
    }


def zoopt_seconds(X: Floats, y: Floats, k: int, iterations: int) -> float | None:
    """Return the processor seconds per iteration of ZOOpt's POSS, or None if ZOOpt is not installed.

    ZOOpt always flips at least one column, so that every iteration makes an offspring. It starts from the empty
    subset, where evaluations are cheap.
    """
    if importlib.util.find_spec("zoopt") is None:
        return None
    from zoopt import Dimension, Objective, Opt, Parameter

    value = by_data(X, y)
    n = X.shape[1]
    none = np.empty(0, np.int64)

    def loss(solution: Any) -> float:
        S = np.flatnonzero(solution.get_x())
        return value(none, none, S) if 0 < S.size < 2 * k else float("inf")

    def room(solution: Any) -> float:
        return k - float(np.sum(solution.get_x()))

    problem = Objective(func=loss, dim=Dimension(n, [[0, 1]] * n, [False] * n), constraint=room)

    def work() -> None:
        with redirect_stdout(io.StringIO()):
            Opt.min(problem, Parameter(algorithm="poss", budget=iterations))

    return least_seconds(work, 1) / iterations

"""Compare figures with what this machine allows: bytes at its bandwidth, operations at its BLAS rate, look-ups.

All are processor seconds of one thread, the least of several repetitions. The limit of an iteration of POSS has three
parts: a loop that draws the same random numbers and looks up one entry of a table for each flipped column; 4 s^2
operations for each offspring of s columns that differs in several; and the bytes of s rows of n numbers of K, and of M
where Y = X, for the table of each new subset.

The Gram pass over 4 GB of whole numbers in float32 is timed in alternation with one over the same numbers plus a half.
Those are not whole, so that their products are summed in float64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk
from threadpoolctl import threadpool_limits

import dsel
from dsel._lib.jit import compiled
from dsel._lib.rng import binomial_cdf, draw_flips, stream, uniform
from dsel.data.as_dataset import as_dataset
from dsel.passes.gram import gram_statistics
from dsel.search.pareto.compiled import Poss
from pipelines.benchmarks.protocol import Benchmark, Figures
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.benchmarks.timing import least_seconds
from pipelines.papers.preprocess import regression, self_expression
from pipelines.table import text_table

#: A figure further than this from its limit has a reason.
FAR = 1.5
REASONS = {
    "Gram pass, 20 000 x 500": "a block is checked and its means are summed before the product",
    "forward selection, 500 x 30 000": "a pass computes 32 rows of the Gram matrix, of which few are used, and "
    "every pass centers, scales and checks X again",
    "POSS, k = 8, n = 500": "a quarter of the offspring differ in several columns and take short loops of s^2 "
    "operations, far below the BLAS rate, and each offspring is compared with the archive",
    "POSS for Y = X, k = 50, n = 2500": "a quarter of the offspring take loops of s^2 operations below the BLAS rate, "
    "and the tables of 100 subsets exceed the cache",
}


@compiled()
def _draws_and_look_ups(table: Any, seed: Any, iterations: Any, cdf: Any, flips: Any) -> Any:
    """Draw a parent and flips as POSS does, and sum one entry of the parent's table for each flip."""
    subsets, n = table.shape
    total = 0.0
    for iteration in range(iterations):
        state = stream(seed, iteration, 0)
        parent = int(uniform(state, 0) * subsets)
        for x in range(draw_flips(state, 1, n, cdf, flips)):
            total += table[parent, flips[x]]
    return total


def poss_limit(n: int, k: int, iterations: int, repeats: int) -> float:
    """Return the seconds of an iteration that only draws and looks up."""
    table, cdf = np.random.default_rng(0).random((2 * k, n)), binomial_cdf(n, 1.0 / n)
    flips = np.zeros(n, np.int32)
    _draws_and_look_ups(table, 1, 10, cdf, flips)
    return least_seconds(lambda: _draws_and_look_ups(table, 1, iterations, cdf, flips), repeats) / iterations


def _iteration(objective: Any, k: int, T: int, repeats: int, speed: float, rate: float) -> tuple[float, float, str]:
    """Return the seconds of one of T iterations, and their limit."""
    search = Poss(objective, k, seed=1)
    search.advance(T)
    counts, n = search.counts(), objective.n
    drawn = poss_limit(n, k, T, repeats)
    values = counts["valued"] * 4.0 * (2 * k) ** 2 / 3.0 / rate
    tables = counts["evaluated"] * 8.0 * n * k * (1 if objective.few_targets else 2) / speed
    print(f"k = {k}, n = {n}: {counts}", flush=True)
    seconds = least_seconds(lambda: Poss(objective, k, seed=1).advance(T), repeats) / T
    return seconds, drawn + (values + tables) / T, "random numbers, look-ups, values and tables"


def bandwidth(repeats: int) -> float:
    """Return the bytes per second that one thread reads from memory."""
    block = np.ones(1 << 25)
    return block.nbytes / least_seconds(lambda: np.dot(block, block), repeats)


@contextmanager
def _one_core() -> Iterator[None]:
    """Run on one core during the block, where a pass takes one thread. Threads share caches."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def blas_rate(repeats: int, syrk: Any = dsyrk) -> float:
    """Return the operations per second of dsyrk, which computes half of X'X in m n^2 operations."""
    X = np.ones((4000, 500), np.float32 if syrk is ssyrk else np.float64, order="F")
    return X.shape[0] * X.shape[1] ** 2 / least_seconds(lambda: syrk(1.0, X, trans=1), repeats)


def whole_numbers(quick: bool) -> Figures:
    """Return how many times as fast the Gram pass is on whole numbers in float32, the median of pairs."""
    X = np.random.default_rng(0).integers(0, 256, (20_000 if quick else 100_000, 1000)).astype(np.float32)
    whole, others = (as_dataset(one) for one in (X, X + np.float32(0.5)))
    pairs = [[least_seconds(lambda: gram_statistics(one), 1) for one in (others, whole)] for _ in range(10)]  # noqa: B023
    seconds, ratio = median(pair[1] for pair in pairs), median(a / b for a, b in pairs)
    limit = X.size * X.shape[1] / blas_rate(5, ssyrk)
    print(f"Gram pass, 10 times {X.shape[0]} x 1000 whole numbers: {ratio:.2f} times as fast as of others", flush=True)
    return {"gram_float32_speedup": ratio, "gram_float32_over_limit": seconds / limit}


def calibration(repeats: int) -> float:
    """Return the seconds of fixed work: products of matrices, a sort, and look-ups in a table."""
    rng = np.random.default_rng(0)
    A, v = rng.random((500, 500)), rng.random(300_000)
    places = rng.integers(0, v.size, 1_000_000)

    def work() -> None:
        A @ A
        np.sort(v)
        v[places].sum()

    return least_seconds(work, repeats)


def run(quick: bool) -> Figures:
    """Print each figure with its limit, and return them with their ratios to the calibration kernel."""
    repeats = 2 if quick else 5
    with threadpool_limits(1), _one_core():
        speed, rate = bandwidth(repeats), blas_rate(repeats)
        print(f"one thread reads {speed / 1e9:.1f} GB/s and makes {rate / 1e9:.1f} GFLOP/s (dsyrk)", flush=True)
        rows = {}
        for name, measure in _FIGURES.items():
            print(f"{name} ...", flush=True)
            rows[name] = measure(quick, speed, rate)
        whole = whole_numbers(quick)
        unit = calibration(5)
    table = []
    for name, (seconds, limit, what) in rows.items():
        factor = seconds / limit
        table.append([name, _written(seconds), _written(limit), f"{factor:.2f}", what])
    print(text_table(("figure", "measured", "limit", "factor", "the limit is"), table))
    far = {name: seconds / limit for name, (seconds, limit, _) in rows.items() if seconds > FAR * limit}
    for name, factor in far.items():
        print(f"{name}: {factor:.1f} times its limit, because {REASONS.get(name, 'the reason is not known')}.")
    return {
        "bytes_per_second": speed, "blas_flops": rate, "calibration_seconds": unit,
        "limits": {n: {"seconds": s, "limit": l, "factor": s / l, "what": w} for n, (s, l, w) in rows.items()},
        "far_from_limit": [{"figure": n, "factor": f, "reason": REASONS.get(n, "")} for n, f in far.items()],
        "ratios": {name: seconds / unit for name, (seconds, _, _) in rows.items()}, **whole,
    }  # fmt: skip


def _written(seconds: float) -> str:
    return f"{1e6 * seconds:.3f} us" if seconds < 1e-3 else f"{seconds:.4f} s"


def _gram(quick: bool, speed: float, rate: float) -> tuple[float, float, str]:
    X, y = regression_data(20_000, 500)
    data = as_dataset(X, y)
    gram_statistics(data)
    seconds = least_seconds(lambda: gram_statistics(data), 2 if quick else 5)
    return seconds, max(X.size * 500 / rate, X.nbytes / speed), "m n^2 operations of dsyrk"


def _forward(quick: bool, speed: float, rate: float) -> tuple[float, float, str]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 30_000)), rng.standard_normal((500, 1))
    select = partial(dsel.select, X, y[:, 0], k=10, method="forward", preprocess="none", progress=False)
    found = select()
    rows = found.counts["rows_fetched"]
    limit = found.passes * X.nbytes / speed + 2 * rows * X.size / rate
    return (
        least_seconds(select, 2 if quick else 5),
        limit,
        f"{found.passes} passes over X, and products with {rows} columns",
    )


def _poss(quick: bool, speed: float, rate: float) -> tuple[float, float, str]:
    return _iteration(regression(*regression_data(2000, 500)), 8, 200_000, 2 if quick else 5, speed, rate)


def _pocss(quick: bool, speed: float, rate: float) -> tuple[float, float, str]:
    return _iteration(
        self_expression(low_rank_data(2000, 2500, 150)),
        50,
        50_000 if quick else 1_000_000,
        1 if quick else 2,
        speed,
        rate,
    )


_FIGURES: dict[str, Callable[[bool, float, float], tuple[float, float, str]]] = {
    "Gram pass, 20 000 x 500": _gram, "forward selection, 500 x 30 000": _forward,
    "POSS, k = 8, n = 500": _poss, "POSS for Y = X, k = 50, n = 2500": _pocss,
}  # fmt: skip

BENCHMARK = Benchmark("limits", "Compare figures with what the machine allows.", {"limits": run})

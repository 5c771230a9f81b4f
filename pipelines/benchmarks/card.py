"""Measure what the papers promise and a cluster must keep, in parts that can run alone.

greedy-rls: 200 x 15 000 in memory, over Algorithm 3 of the paper in plain NumPy. wide: 60 x 1 000 000 from a store on
two workers of 1 GiB. plans: the estimates of POSS on ten shapes. driver-only, small-overhead, slices: Pareto searches
as Dask futures on two workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.generate import generate_regression
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from pipelines.benchmarks.card_futures import SPEED_SHARE, driver_only, on_workers, slices_2, small_overhead_s
from pipelines.benchmarks.greedy_rls import plain_algorithm_3
from pipelines.benchmarks.plans import data, plan_worst_factor
from pipelines.benchmarks.protocol import Benchmark

WORKERS, WORKER_MEMORY = 2, "1GiB"


def greedy_rls_in_memory(quick: bool) -> dict[str, Any]:
    """Return the time of `dsel.select` over that of Algorithm 3 in NumPy, on 200 rows and 15 000 columns.

    Runs alternate, and each pair of runs gives a ratio. The median is returned.
    """
    X, y = data(200, 3_000 if quick else 15_000)

    def ours() -> tuple[int, ...]:
        return dsel.select(X, y, k=20, method="greedy-rls", lam=1.0, preprocess="none").indices

    ours()  # loads the compiled code
    ratios, same = [], True
    for _ in range(3):
        seconds, found = _timed(ours)
        plain, expected = _timed(lambda: plain_algorithm_3(X, y, 20, 1.0))
        ratios.append(seconds / plain)
        same &= found == tuple(expected)
        print(f"greedy-rls: {seconds:.2f} s, NumPy {plain:.2f} s", flush=True)
    return {"greedy_rls_over_numpy": median(ratios), "greedy_rls_same_as_numpy": same}


def greedy_rls_wide(quick: bool) -> dict[str, Any]:
    """Return the peak memory of a worker, in GiB, that selects 10 of a million columns with 60 rows."""
    n = 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "wide.zarr"
        generate_regression(store, samples=60, features=n, chunks=(60, 1 << 14))
        dataset = as_dataset(str(store))
        with local_cluster(WORKERS, WORKER_MEMORY) as client:
            engine = DaskEngine(client)
            request = SelectionRequest(k=10, method="greedy-rls", lam=1.0)
            seconds, found = _timed(lambda: run_selection(dataset, request, RunContext(engine=engine)))
            peak = max(peak for peak, _ in engine.peak_memory().values())
    planned, measured = found.plan["planned"], found.plan["measured"]
    print(f"greedy-rls on 60 x {n}: {seconds:.1f} s, {found.passes} passes, peak {peak / 2**20:.0f} MiB a worker")
    print(f"planned: {planned['bytes_read'] / 1e9:.2f} GB, {planned['worker_memory'] / 2**20:.0f} MiB; read: "
          f"{measured['bytes_read'] / 1e9:.2f} GB", flush=True)  # fmt: skip
    return {"greedy_rls_wide_gib": peak / 2**30, "greedy_rls_wide_seconds": seconds}


def searches_in_the_driver(quick: bool) -> dict[str, Any]:
    """Return how many kinds of Pareto searches run in the driver although there is a cluster, and which."""
    stayed = on_workers(driver_only)
    return {"driver_only": len(stayed), "driver_only_names": stayed}


def overhead(quick: bool) -> dict[str, Any]:
    """Return the seconds that a small search takes longer on a cluster."""
    return {"small_overhead_s": on_workers(small_overhead_s)}


def speed_of_two_workers(quick: bool) -> dict[str, Any]:
    """Return the speed of two workers over that of this process."""
    return {"slices_2": on_workers(partial(slices_2, share=0.05 if quick else SPEED_SHARE))}


BENCHMARK = Benchmark("card", "Measure what the papers promise and a cluster must keep.", {
    "greedy-rls": greedy_rls_in_memory, "wide": greedy_rls_wide, "plans": plan_worst_factor,
    "driver-only": searches_in_the_driver, "small-overhead": overhead, "slices": speed_of_two_workers,
})  # fmt: skip


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer

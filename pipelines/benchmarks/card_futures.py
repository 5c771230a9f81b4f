"""Measure POSS and PPOSS as Dask futures: which methods stay in the driver, what a cluster costs, what it gains."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection
from pipelines.benchmarks.synthetic import regression_data
from pipelines.papers.datasets import load, missing

METHODS = ("poss", "pposs", "pposs-asy")
#: The shape of the small wide problem of `driver_only`, whose Gram matrix no process holds.
_ROWS, _WIDE = 30, 400
#: Columns and columns to choose for the speed of two workers, and the share of the iterations that is measured.
SPEED_N, SPEED_K, SPEED_SHARE = 2500, 50, 1.0


def _select(data: Dataset, method: str, k: int, context: RunContext, **options: Any) -> tuple[Selection, float]:
    """Return a selection and the seconds that it took."""
    criterion = options.pop("criterion", None)
    request = SelectionRequest(k=k, method=method, seed=1, criterion=criterion, options=options)
    start = time.perf_counter()
    found = run_selection(data, request, context)
    return found, time.perf_counter() - start


def size_of_largest(S: tuple[int, ...]) -> float:
    """Return a criterion that is cheap and is not f."""
    return -float(max(S))


def driver_only(client: Any) -> list[str]:
    """Return the searches whose iterations ran in the driver although there is a cluster: method, targets, data."""
    rng = np.random.default_rng(0)
    context, stayed = RunContext(DaskEngine(client)), []
    for method in METHODS:
        for targets in (True, False):
            for kind in ("gram", "wide", "criterion"):
                X = rng.standard_normal((_ROWS, _WIDE if kind == "wide" else 20))
                data = as_dataset(X, X[:, :1] + rng.standard_normal((_ROWS, 1)) if targets else None)
                options: dict[str, Any] = {"iterations": 2000}
                if kind == "criterion":
                    options = {"iterations": 300, "criterion": size_of_largest}
                found, _ = _select(data, method, 3, context, **options)
                if not found.counts["futures"]:
                    stayed.append(f"{method}, {'Y' if targets else 'Y = X'}, {kind}")
    return stayed


def small_overhead_s(client: Any, repeats: int = 7) -> float | str:
    """Return the median seconds that sonar with k = 8 takes on a warm cluster, less those in this process."""
    arrays = load("sonar")
    if arrays is None:
        return missing("sonar")
    data = as_dataset(arrays["X"], arrays["Y"][:, :1])
    contexts = RunContext(), RunContext(DaskEngine(client))
    for context in contexts:  # compiles, and starts what a worker needs
        _select(data, "poss", 8, context)
    pairs = [[_select(data, "poss", 8, context) for context in contexts] for _ in range(repeats)]
    assert all(alone[0].indices == there[0].indices for alone, there in pairs)
    return float(median(there[1] - alone[1] for alone, there in pairs))


def slices_2(client: Any, share: float = SPEED_SHARE) -> float:
    """Return the seconds of the search with n = 2500, k = 50 in this process over those on two workers, in pairs."""
    data = as_dataset(*regression_data(SPEED_N // 5, SPEED_N))
    here = RunContext()
    with tempfile.TemporaryDirectory() as folder:
        there = RunContext(DaskEngine(client), shared_folder=Path(folder))
        _select(data, "poss", SPEED_K, there, iterations=20_000)
        _select(data, "poss", SPEED_K, here, iterations=20_000)
        iterations = int(share * 2.0 * math.e * SPEED_K**2 * SPEED_N)
        seconds = []
        for context in (here, there, here):
            found, _ = _select(data, "poss", SPEED_K, context, iterations=iterations)
            seconds.append(found.seconds["search"])
    return 0.5 * (seconds[0] + seconds[2]) / seconds[1]


def on_workers(figure: Callable[[Any], Any]) -> Any:
    """Return a figure that is measured on two workers of this machine."""
    with local_cluster(2, "2GiB") as client:
        return figure(client)

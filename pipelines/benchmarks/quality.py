"""Compare R^2 at equal time: `dsel` gets the seconds that another package took, at most 2, on the same data."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop, drive
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss
from pipelines.papers.preprocess import regression

ENDLESS = 2**62
EXCHANGE_EVERY = 200
#: Most seconds that `dsel` gets.
MAX_SECONDS = 2.0

Start = Literal["empty", "forward", "exchange"]
OURS: dict[Start, dict[str, int]] = {"forward": {"exchange_every": EXCHANGE_EVERY}, "exchange": {}}


def local_optima(objective: DenseObjective, k: int, end: float, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield the results of exchange search from random subsets until time `end`; at least one."""
    restart = 0
    while restart == 0 or time.perf_counter() < end:
        yield exchange(objective, k, seed + 1000 * restart).best(k).members
        restart += 1


def run_search(objective: DenseObjective, k: int, start: Start, seconds: float, seed: int = 0, **options: Any) -> Poss:
    """Return the Pareto search after `seconds` of wall time, which include the time for the initial archive.

    start: the initial archive. "empty": as in the papers. "forward": the path of forward selection. "exchange": that
    path and local optima of exchange search, which get a third of the time.
    """
    began = time.perf_counter()
    search = Poss(objective, k, seed=seed, **options)
    if start != "empty":
        for point in forward(objective, k).front[1:]:
            search.offer(point.members)
    if start == "exchange":
        for members in local_optima(objective, k, began + seconds / 3.0, seed):
            search.offer(members)
    left = seconds - (time.perf_counter() - began)
    if left > 0.0:
        drive(search, Stop(iterations=ENDLESS, seconds=left))
    return search


def abess(X: Floats, y: Floats, k: int) -> list[int]:
    """Return the subset of size k that abess finds by splicing."""
    from abess import LinearRegression

    return [int(j) for j in np.flatnonzero(LinearRegression(support_size=k, thread=1).fit(X, y.ravel()).coef_)]


def scikit_learn_omp(X: Floats, y: Floats, k: int) -> list[int]:
    """Return the columns of scikit-learn's OrthogonalMatchingPursuit, which computes its own Gram matrix."""
    from sklearn.linear_model import OrthogonalMatchingPursuit

    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False, precompute=True)
    return [int(j) for j in np.flatnonzero(model.fit(X, y.ravel()).coef_)]


def scikit_learn_sfs(X: Floats, y: Floats, k: int) -> list[int]:
    """Return the columns of scikit-learn's forward SequentialFeatureSelector with two folds, the fewest."""
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LinearRegression

    selector = SequentialFeatureSelector(LinearRegression(fit_intercept=False), n_features_to_select=k, cv=2)
    return [int(j) for j in np.flatnonzero(selector.fit(X, y.ravel()).get_support())]


PEERS: dict[str, tuple[str, Callable[[Floats, Floats, int], list[int]]]] = {
    "abess": ("abess", abess),
    "scikit-learn OMP": ("sklearn", scikit_learn_omp),
    "scikit-learn SFS (cv=2)": ("sklearn", scikit_learn_sfs),
}


def at_equal_time(X: Floats, y: Floats, k: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row per package: its seconds and R^2, and those of `dsel`, Gram matrix included.

    With one repetition, SFS is left out.
    """
    objective = regression(X, y)
    run_search(objective, k, "exchange", 0.01, exchange_every=1)
    rows: list[dict[str, Any]] = []
    for name, (package, select) in PEERS.items():
        if repeats == 1 and "SFS" in name:
            continue  # it takes longer than all others together
        if importlib.util.find_spec(package) is None:
            rows.append({"peer": name, "r2": None})
            continue
        times = 1 if "SFS" in name else repeats
        seconds, chosen = _fastest(partial(select, X, y, k), times)
        row = {"peer": name, "seconds": seconds, "r2": 1.0 - objective.value(chosen) / objective.c}
        for start, options in OURS.items():
            allowed = min(seconds, MAX_SECONDS)
            ours, f = _fastest(partial(_ours, X, y, k, allowed, start, options), times)
            row |= {f"dsel_{start}_seconds": ours, f"dsel_{start}_r2": 1.0 - f / objective.c}
        rows.append(row)
    return rows


def _ours(X: Floats, y: Floats, k: int, seconds: float, start: Start, options: dict[str, int]) -> float:
    began = time.perf_counter()
    objective = regression(X, y)
    return run_search(objective, k, start, seconds - (time.perf_counter() - began), **options).best_value


def _fastest(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    least, answer = float("inf"), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats):
            start = time.perf_counter()
            result = work()
            took = time.perf_counter() - start
            if took < least:
                least, answer = took, result
    return least, answer

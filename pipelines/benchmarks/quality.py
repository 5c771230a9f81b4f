"""R^2 at equal time: `dsel` is given the seconds that another package took (2 at most), on the same data."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import QuadraticObjective
from dsel.search.anytime import Stop, drive
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.forward import forward
from dsel.search.pareto.poss import Poss
from pipelines.papers.preprocess import regression

ENDLESS = 2**62
EXCHANGE_EVERY = 200
#: No more than this is given to `dsel`, however long the other one took.
MOST_SECONDS = 2.0

Start = Literal["empty", "forward", "swapping"]
OURS: dict[Start, dict[str, int]] = {"forward": {"exchange_every": EXCHANGE_EVERY}, "swapping": {}}


def local_optima(objective: QuadraticObjective, k: int, end: float, seed: int) -> Iterator[tuple[int, ...]]:
    """What exchange search finds from random subsets, one after another until the clock says `end`; at least
    one."""
    restart = 0
    while restart == 0 or time.perf_counter() < end:
        yield exchange(objective, k, seed + 1000 * restart).best(k).members
        restart += 1


def searched(
    objective: QuadraticObjective, k: int, start: Start, seconds: float, seed: int = 0, **options: Any
) -> Poss:
    """The Pareto search after so many seconds of wall time, starting subsets included.

    start: "empty" as in the papers, "forward" the path of forward selection, "swapping" that and local optima
    of exchange search for a third of the time.
    """
    began = time.perf_counter()
    search = Poss(objective, k, seed=seed, **options)
    if start != "empty":
        for point in forward(objective, k).front[1:]:
            search.offer(point.members)
    if start == "swapping":
        for members in local_optima(objective, k, began + seconds / 3.0, seed):
            search.offer(members)
    left = seconds - (time.perf_counter() - began)
    if left > 0.0:
        drive(search, Stop(iterations=ENDLESS, seconds=left))
    return search


def abess(X: Floats, y: Floats, k: int) -> list[int]:
    """abess, best subset of size k by splicing."""
    from abess import LinearRegression

    return [int(j) for j in np.flatnonzero(LinearRegression(support_size=k, thread=1).fit(X, y.ravel()).coef_)]


def scikit_learn_omp(X: Floats, y: Floats, k: int) -> list[int]:
    """OrthogonalMatchingPursuit with its own Gram matrix."""
    from sklearn.linear_model import OrthogonalMatchingPursuit

    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False, precompute=True)
    return [int(j) for j in np.flatnonzero(model.fit(X, y.ravel()).coef_)]


def scikit_learn_sfs(X: Floats, y: Floats, k: int) -> list[int]:
    """SequentialFeatureSelector, forward, cross-validated in two parts as its least."""
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
    """One row a package: its seconds and R^2, and those of `dsel`, whose own pass over the data is in its
    seconds."""
    objective = regression(X, y)
    searched(objective, k, "swapping", 0.01, exchange_every=1)
    rows: list[dict[str, Any]] = []
    for name, (package, select) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            rows.append({"peer": name, "r2": None})
            continue
        times = 1 if "SFS" in name else repeats
        seconds, chosen = _fastest(partial(select, X, y, k), times)
        row = {"peer": name, "seconds": seconds, "r2": 1.0 - objective.value(chosen) / objective.c}
        for start, options in OURS.items():
            allowed = min(seconds, MOST_SECONDS)
            ours, f = _fastest(partial(_ours, X, y, k, allowed, start, options), times)
            row |= {f"dsel_{start}_seconds": ours, f"dsel_{start}_r2": 1.0 - f / objective.c}
        rows.append(row)
    return rows


def _ours(X: Floats, y: Floats, k: int, seconds: float, start: Start, options: dict[str, int]) -> float:
    began = time.perf_counter()
    objective = regression(X, y)
    return searched(objective, k, start, seconds - (time.perf_counter() - began), **options).best_value


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

"""Compare selections by the logistic loss with other tools on data with two classes.

Every tool returns at most k columns of the standardized data. F is the deviance of these columns with the ridge penalty
LAM, fitted by the same code for all. `beaten`: the rows in which another tool has a smaller F. `over_squared`: the
median CPU time of `select` with the loss over that with the squared error, compiled code warm.

Tools: abess (support size k), the path of the l1 penalty with a refit of its largest subset of at most k columns, and
scikit-learn's SequentialFeatureSelector by the log loss on all rows, where it takes less than LIMIT seconds. abess is
optional; a tool that is not installed, or left out, is named.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.api.select import select
from dsel.data.as_dataset import as_dataset
from dsel.objective.losses.registry import find_loss
from dsel.passes.gram import gram_statistics
from dsel.passes.loss_data import LossData, loss_targets, without_scale_of_targets
from dsel.passes.loss_fits import fit_subsets
from pipelines.benchmarks.protocol import Benchmark
from pipelines.papers.datasets import load, missing
from pipelines.table import text_table

DATA_SETS = (
    "a9a", "mushrooms", "german.numer", "australian", "colon-cancer", "ionosphere", "madelon", "clean1", "sonar",
)  # fmt: skip
_QUICK = ("sonar",)
SIZES, LAM = (5, 10), 1.0
#: A tool is left out where it is expected to take more seconds, from m n k.
LIMIT, _FIT_SPEED = 120.0, 2e7
#: F counts as smaller from this share on.
_SMALLER = 1e-6


def run(quick: bool) -> dict[str, Any]:
    """Print the comparison, and return its summary."""
    warnings.filterwarnings("ignore")
    rows, beaten, ratios = [], [], []
    for name in _QUICK if quick else DATA_SETS:
        arrays = load(name)
        if arrays is None:
            print(missing(name))
            continue
        X, y = _data(arrays)
        for k in SIZES:
            results = _results(X, y, k, quick)
            ours = results["dsel"][0]
            others = [f for tool, (f, _) in results.items() if tool != "dsel"]
            if min(others, default=np.inf) < ours * (1.0 - _SMALLER):
                beaten.append(f"{name} k={k}")
            ratios.append(results["dsel"][1] / _squared_seconds(X, y, k))
            cells = [f"{f:.6g} ({s:.2f} s)" for f, s in (results.get(t, (np.nan, np.nan)) for t in _TOOLS)]
            rows.append([f"{name} k={k}", *cells, f"{ratios[-1]:.1f}"])
            print(f"{name} k={k}: dsel {ours:.6g}", flush=True)
    print(text_table(["data", *_TOOLS, "over squared"], rows))
    absent = {} if find_spec("abess") else {"abess, for losses": "not installed: pip install -e .[benchmarks]"}
    return {"rows": len(rows), "beaten": beaten, "over_squared": median(ratios), "absent": absent}


def _data(arrays: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Return the standardized columns that vary, and the classes as 0 and 1."""
    X, y = arrays["X"], arrays["Y"][:, 0]
    X = X[:, X.std(axis=0) > 0.0]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y == y.max()).astype(np.float64)


def _results(X: Floats, y: Floats, k: int, quick: bool) -> dict[str, tuple[float, float]]:
    """Return F and the CPU seconds of each tool."""
    found = {}
    for tool, run_tool in _TOOLS.items():
        if tool == "abess" and not find_spec("abess"):
            continue
        if tool == "sequential" and quick:
            continue
        if tool == "sequential" and X.shape[1] * k * (X.size / _FIT_SPEED + 0.003) > LIMIT:
            continue
        if tool == "dsel":
            run_tool(X, y, k)  # compiled code is loaded
        began = time.process_time()
        columns = run_tool(X, y, k)
        seconds = time.process_time() - began
        found[tool] = _value(X, y, columns), seconds
    return found


def _value(X: Floats, y: Floats, columns: Ints) -> float:
    """Return F of some columns."""
    few = as_dataset(X[:, columns], y)
    targets, scaling = loss_targets(few), without_scale_of_targets(gram_statistics(few).scaling("standardize"))
    problem = LossData(few, find_loss("logistic").fitted_to(targets.y), scaling, targets, LAM)
    return fit_subsets(problem, [np.arange(columns.size)])[0].value


def _squared_seconds(X: Floats, y: Floats, k: int) -> float:
    select(X, y, k=k, lam=LAM)
    began = time.process_time()
    select(X, y, k=k, lam=LAM)
    return time.process_time() - began


def _dsel(X: Floats, y: Floats, k: int) -> Ints:
    return np.sort(np.array(select(X, y, k=k, lam=LAM, loss="logistic").indices))


def _abess(X: Floats, y: Floats, k: int) -> Ints:
    from abess.linear import LogisticRegression

    model = LogisticRegression(path_type="seq", support_size=[k], alpha=[LAM / 2.0 / len(y)])
    return np.flatnonzero(model.fit(X, y).coef_)


def _l1_path(X: Floats, y: Floats, k: int) -> Ints:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import l1_min_c

    best = np.empty(0, np.int64)
    for C in l1_min_c(X, y, loss="log") * np.logspace(0.0, 3.0, 40):
        model = LogisticRegression(penalty="l1", C=C, solver="liblinear", intercept_scaling=100.0, tol=1e-5)
        support = np.flatnonzero(model.fit(X, y).coef_[0])
        if support.size > k:
            break
        best = support
    return best


def _sequential(X: Floats, y: Floats, k: int) -> Ints:
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LogisticRegression

    everything = np.arange(len(y))
    selector = SequentialFeatureSelector(
        LogisticRegression(C=1.0 / LAM), n_features_to_select=k, scoring="neg_log_loss", cv=[(everything, everything)]
    )
    return np.flatnonzero(selector.fit(X, y).get_support())


_TOOLS: dict[str, Callable[[Floats, Floats, int], Ints]] = {
    "dsel": _dsel, "abess": _abess, "l1 path": _l1_path, "sequential": _sequential,
}  # fmt: skip

BENCHMARK = Benchmark(
    "losses", "Compare selections by the logistic loss with other tools on data with two classes.", {"losses": run}
)

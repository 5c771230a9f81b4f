"""Run selections of dsel or of other packages as asked on the standard input, in the environment of the packages.

A request is a line of JSON: `tool`, `X` and `y` (paths of .npy files; without `y` columns are chosen for X itself), and
`k`. The answer is a line of JSON: `indices`, `seconds` (processor time), `peak` (bytes above what the data take), and
`version`; or `failed`. The first request of a tool is answered after a tiny one, which compiles.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

import numpy as np

Select = Callable[[Any, Any, int], Any]


def dsel_by(method: str | None, **options: Any) -> Select:
    """Return the selection by a method of dsel."""

    def select(X: Any, y: Any, k: int) -> Any:
        import dsel

        named: dict[str, Any] = {"method": method} if method else {}
        return dsel.select(X, y, k=k, preprocess="none", progress=False, **named, **options).indices

    return select


def abess(X: Any, y: Any, k: int) -> Any:
    """Splice as abess does, with a fixed size."""
    from abess import LinearRegression

    return np.flatnonzero(LinearRegression(support_size=k, thread=1).fit(X, y).coef_)


def omp(X: Any, y: Any, k: int) -> Any:
    """Run scikit-learn's OMP with its Gram matrix."""
    from sklearn.linear_model import OrthogonalMatchingPursuit

    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False, precompute=True)
    return np.flatnonzero(model.fit(X, y).coef_)


def sfs(X: Any, y: Any, k: int) -> Any:
    """Run scikit-learn's SequentialFeatureSelector with two folds, the fewest."""
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LinearRegression

    selector = SequentialFeatureSelector(LinearRegression(fit_intercept=False), n_features_to_select=k, cv=2)
    return np.flatnonzero(selector.fit(X, y).get_support())


def rfe(X: Any, y: Any, k: int) -> Any:
    """Run scikit-learn's RFE, a tenth of the columns at a time."""
    from sklearn.feature_selection import RFE
    from sklearn.linear_model import LinearRegression

    selector = RFE(LinearRegression(fit_intercept=False), n_features_to_select=k, step=0.1)
    return np.flatnonzero(selector.fit(X, y).get_support())


def lars(X: Any, y: Any, k: int) -> Any:
    """Run scikit-learn's LARS for k steps."""
    from sklearn.linear_model import Lars

    return Lars(n_nonzero_coefs=k, fit_intercept=False).fit(X, y).active_[:k]


def fastcan(X: Any, y: Any, k: int) -> Any:
    """Run fastcan's greedy selection by canonical correlation."""
    from fastcan import FastCan

    return FastCan(k, verbose=0).fit(X, y).indices_


def mcp(X: Any, y: Any, k: int) -> Any:
    """Return the largest support of at most k columns on skglm's path of the MCP."""
    from skglm import MCPRegression

    most, best = np.abs(X.T @ y).max() / len(y), np.empty(0, np.int64)
    for alpha in most * np.geomspace(1.0, 0.02, 30):
        support = np.flatnonzero(MCPRegression(alpha=alpha, fit_intercept=False).fit(X, y).coef_)
        if len(support) > k:
            break
        best = support
    return best


def zoopt(X: Any, y: Any, k: int) -> Any:
    """Run ZOOpt's POSS with 2000 evaluations: the number of the paper would take minutes."""
    from zoopt import Dimension, Objective, Opt, Parameter

    n = X.shape[1]

    def loss(solution: Any) -> float:
        S = np.flatnonzero(solution.get_x())
        if not 0 < S.size < 2 * k:
            return float("inf")
        return float(np.square(y - X[:, S] @ np.linalg.lstsq(X[:, S], y, rcond=None)[0]).sum())

    def room(solution: Any) -> float:
        return k - float(np.sum(solution.get_x()))

    problem = Objective(func=loss, dim=Dimension(n, [[0, 1]] * n, [False] * n), constraint=room)
    return np.flatnonzero(Opt.min(problem, Parameter(algorithm="poss", budget=2000, seed=1)).get_x())[:k]


def skmatter_by(name: str) -> Select:
    """Return a selection of columns for X itself by skmatter."""

    def select(X: Any, y: Any, k: int) -> Any:
        import skmatter.feature_selection

        return getattr(skmatter.feature_selection, name)(n_to_select=k).fit(X).selected_idx_

    return select


def strong_rrqr(X: Any, y: Any, k: int) -> Any:
    """Return the columns of a strong rank-revealing QR with f = 2 (Gu and Eisenstat 1996), in SciPy."""
    import scipy.linalg

    R, order = scipy.linalg.qr(X, mode="r", pivoting=True)
    R = R[: X.shape[1]]
    while True:
        inner, outer, rest = R[:k, :k], R[:k, k:], R[k:, k:]
        inverse = np.linalg.inv(inner)
        growth = np.square(inverse @ outer) + np.outer(np.square(inverse).sum(axis=1), np.square(rest).sum(axis=0))
        i, j = np.unravel_index(np.argmax(growth), growth.shape)
        if growth[i, j] <= 4.0:
            return order[:k]
        order[[i, k + j]], R[:, [i, k + j]] = order[[k + j, i]], R[:, [k + j, i]]
        R = scipy.linalg.qr(R, mode="r")[0]


#: Tools by name: the distribution, and how they select. Those of dsel run in its environment.
TARGET: dict[str, tuple[str, Select]] = {
    "dsel": ("dsel", dsel_by(None)), "dsel forward": ("dsel", dsel_by("forward")),
    "dsel omp": ("dsel", dsel_by("omp")), "dsel splicing": ("dsel", dsel_by("splicing")),
    "dsel portfolio 1 s": ("dsel", dsel_by("portfolio", seconds=1.0)),
    "abess": ("abess", abess), "OMP": ("scikit-learn", omp), "SFS": ("scikit-learn", sfs),
    "RFE": ("scikit-learn", rfe), "LARS": ("scikit-learn", lars), "fastcan": ("fastcan", fastcan),
    "skglm MCP": ("skglm", mcp), "ZOOpt POSS": ("zoopt", zoopt),
}  # fmt: skip
ITSELF: dict[str, tuple[str, Select]] = {
    "dsel": ("dsel", dsel_by(None)), "dsel forward": ("dsel", dsel_by("forward")),
    "dsel arp": ("dsel", dsel_by("arp")), "dsel arp derandomized": ("dsel", dsel_by("arp", choice="derandomized")),
    "dsel rpcholesky": ("dsel", dsel_by("rpcholesky")), "dsel leverage": ("dsel", dsel_by("leverage")),
    "dsel pivoted-qr": ("dsel", dsel_by("pivoted-qr")),
    "strong RRQR": ("scipy", strong_rrqr), "skmatter CUR": ("skmatter", skmatter_by("CUR")),
    "skmatter FPS": ("skmatter", skmatter_by("FPS")),
}  # fmt: skip


def peak_bytes() -> int:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def answered(request: dict[str, Any], compiled: set[tuple[str, bool]]) -> dict[str, Any]:
    """Return the answer to a request."""
    X, y = np.load(request["X"]), np.load(request["y"]) if request["y"] else None
    package, select = (ITSELF if y is None else TARGET)[request["tool"]]
    try:
        if (request["tool"], y is None) not in compiled:
            tiny = np.random.default_rng(0).standard_normal((60, 20))
            select(tiny, None if y is None else tiny[:, :3].sum(axis=1), 3)
            compiled.add((request["tool"], y is None))
        before, start = peak_bytes(), time.process_time()
        indices = [int(j) for j in select(X, y, request["k"])]
        seconds = time.process_time() - start
        return {"indices": indices, "seconds": seconds, "peak": peak_bytes() - before, "version": version(package)}
    except ImportError as error:
        return {"absent": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


def main() -> None:
    """Answer requests until the standard input ends."""
    warnings.simplefilter("ignore")
    compiled: set[tuple[str, bool]] = set()
    for line in sys.stdin:
        with redirect_stdout(io.StringIO()):
            answer = answered(json.loads(line), compiled)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

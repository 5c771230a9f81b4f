"""The penalized methods in the POSS paper: the last model with at most k variables on a regularisation path."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

from dsel._lib.types import Floats

_STEPS = 100
_LEAST_ALPHA = 1e-3
#: Shape parameters that the authors of the penalties recommend.
_SHAPE = {"MCP": 3.0, "SCAD": 3.7}


def installed(method: str) -> bool:
    """Return whether the package for this method is installed."""
    return importlib.util.find_spec("sklearn" if method == "Lasso" else "skglm") is not None


def last_support(method: str, X: Floats, y: Floats, k: int) -> list[int]:
    """Return the columns of the last model before one has more than k variables, from the largest penalty."""
    path = _lasso_path(X, y) if method == "Lasso" else _nonconvex_path(method, X, y, k)
    support: list[int] = []
    for coefficients in path:
        chosen = np.flatnonzero(coefficients).tolist()
        if len(chosen) > k:
            break
        support = chosen
    return support


def _lasso_path(X: Floats, y: Floats) -> Floats:
    from sklearn.linear_model import lars_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coefficients = lars_path(X, y, method="lasso", alpha_min=_LEAST_ALPHA * np.abs(X.T @ y).max() / y.size)[2]
    return np.asarray(coefficients.T)


def _nonconvex_path(method: str, X: Floats, y: Floats, k: int) -> list[Floats]:
    from skglm.datafits import Quadratic
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.solvers import AndersonCD

    alpha_max = float(np.abs(X.T @ y).max()) / y.size
    X = np.asfortranarray(X)
    model = GeneralizedLinearEstimator(
        datafit=Quadratic(),
        penalty=_penalty(method, alpha_max),
        solver=AndersonCD(tol=1e-5, fit_intercept=False, warm_start=True, max_iter=200),
    )
    path: list[Floats] = []
    for alpha in alpha_max * np.geomspace(1.0, _LEAST_ALPHA, _STEPS):
        model.penalty = _penalty(method, float(alpha))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        path.append(np.asarray(model.coef_).ravel().copy())
        if np.count_nonzero(path[-1]) > k:
            break
    return path


def _penalty(method: str, alpha: float) -> Any:
    from skglm.penalties import SCAD, MCPenalty

    return {"MCP": MCPenalty, "SCAD": SCAD}[method](alpha, _SHAPE[method])

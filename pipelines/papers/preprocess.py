"""How the papers prepare their data."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import QuadraticObjective


def standardised(X: Floats) -> Floats:
    """Mean 0 and variance 1 (divided by m) in every column; constant columns are dropped."""
    X = X[:, np.ptp(X, axis=0) > 0.0]
    centred = X - X.mean(axis=0)
    return np.asarray(centred / centred.std(axis=0))


def between_minus_one_and_one(X: Floats) -> Floats:
    """Every column moved and scaled to [-1, 1], as in LIBSVM's *_scale files."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.asarray(2.0 * (X - low) / (high - low) - 1.0)


def unit_columns(X: Floats) -> Floats:
    """Every column with norm 1, not centred; zero columns are dropped."""
    norms = np.linalg.norm(X, axis=0)
    return np.asarray(X[:, norms > 0.0] / norms[norms > 0.0])


def regression(X: Floats, Y: Floats) -> QuadraticObjective:
    """f(S) = residual sum of squares of Y (m, N) on X_S."""
    return QuadraticObjective(X.T @ X, X.T @ Y, float(np.square(Y).sum()))


def self_expression(X: Floats) -> QuadraticObjective:
    """f(S) = ||X - X_S X_S^+ X||^2."""
    return QuadraticObjective(X.T @ X, None, float(np.square(X).sum()))

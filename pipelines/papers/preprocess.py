"""Prepare data as the papers do."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective


def standardized(X: Floats) -> Floats:
    """Return the columns with mean 0 and variance 1 (dividing by m), without constant columns."""
    X = X[:, np.ptp(X, axis=0) > 0.0]
    centered = X - X.mean(axis=0)
    return np.asarray(centered / centered.std(axis=0))


def between_minus_one_and_one(X: Floats) -> Floats:
    """Return the columns shifted and scaled to [-1, 1], as in LIBSVM's *_scale files."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.asarray(2.0 * (X - low) / (high - low) - 1.0)


def unit_columns(X: Floats) -> Floats:
    """Return the columns scaled to norm 1, not centered, without zero columns."""
    norms = np.linalg.norm(X, axis=0)
    return np.asarray(X[:, norms > 0.0] / norms[norms > 0.0])


def regression(X: Floats, Y: Floats) -> DenseObjective:
    """Return the objective f(S) = residual sum of squares of Y (m, N) on X_S."""
    return DenseObjective(X.T @ X, X.T @ Y, float(np.square(Y).sum()))


def self_expression(X: Floats) -> DenseObjective:
    """Return the objective f(S) = ||X - X_S X_S^+ X||^2."""
    return DenseObjective(X.T @ X, None, float(np.square(X).sum()))

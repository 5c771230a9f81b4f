"""Small data, and the objectives of the greedy methods' tests, with f computed from the data."""

from __future__ import annotations

import numpy as np

from dsel.objective.dense import DenseObjective
from dsel.search.pareto.compiled import Poss


def error(X, Y, S):
    """RSS of Y on the columns S, from the data."""
    S = list(S)
    if not S:
        return float(np.square(Y).sum())
    return float(np.square(Y - X[:, S] @ np.linalg.lstsq(X[:, S], Y, rcond=None)[0]).sum())


def regression(X, Y, lam=0.0):
    return DenseObjective(X.T @ X, X.T @ Y, float(np.square(Y).sum()), lam)


def self_expression(X):
    return DenseObjective(X.T @ X, None, float(np.square(X).sum()))


def random_data(seed, m=60, n=14, N=1):
    """Correlated standardized columns and N targets on five of them, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) @ (np.eye(n) + 0.4 * rng.standard_normal((n, n)))
    Y = X[:, :5] @ rng.standard_normal((5, N)) + rng.standard_normal((m, N))
    X, Y = X - X.mean(0), Y - Y.mean(0)
    return X / X.std(0), Y / Y.std(0)


def continued(search, objective, **options):
    """Return a search of its own tables that continues from the archive of another, as a slice on a worker does."""
    again = Poss(objective, search.k, isolation=search.isolation, processors=search.processors, **options)
    again.restart(search.iteration, [point.members for point in search.archived if point.size])
    return again

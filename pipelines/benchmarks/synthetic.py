"""Synthetic data for the benchmarks, from a seed."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats
from pipelines.papers.preprocess import standardized, unit_columns


def regression_data(m: int, n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return X (m, n) and y (m, 1), both standardized.

    Neighbouring columns of X have correlation 0.7 (AR(1)) before the columns are shuffled. y depends on 30 columns, and
    its noise has the variance of the signal.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    for j in range(1, n):
        X[:, j] = 0.7 * X[:, j - 1] + np.sqrt(1.0 - 0.7**2) * X[:, j]
    X = X[:, rng.permutation(n)]
    signal = X[:, rng.choice(n, 30, replace=False)] @ rng.uniform(0.5, 1.5, 30)
    y = signal + signal.std() * rng.standard_normal(m)
    return standardized(X), standardized(y[:, None])


def low_rank_data(m: int, n: int, rank: int, noise: float = 0.1, seed: int = 0) -> Floats:
    """Return X (m, n) with unit columns: `rank` factors with singular values as 1 / sqrt(j), plus noise."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((m, rank)) / np.sqrt(np.arange(1.0, rank + 1.0))
    X = factors @ rng.standard_normal((rank, n))
    return unit_columns(X + noise * X.std() * rng.standard_normal((m, n)))

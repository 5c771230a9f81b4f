"""Random halves of the data sets, each standardized by itself, as in the experiments of the POSS paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel._lib.types import Floats
from pipelines.papers.datasets import load
from pipelines.papers.preprocess import standardized


@dataclass(frozen=True)
class Halves:
    """Training and test half: X (m, n) without the columns that are constant in one of them, y (m, 1)."""

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats

    def test_r2(self, S: list[int], ridge: float = 0.0) -> float:
        """Return R^2 on the test half of the coefficients from the training half. ridge: absolute."""
        X = self.X[:, S]
        coefficients = np.linalg.solve(X.T @ X + ridge * np.eye(len(S)), X.T @ self.y)
        left = self.y_test - self.X_test[:, S] @ coefficients
        return float(1.0 - np.square(left).sum() / np.square(self.y_test).sum())


def rows_and_target(name: str) -> tuple[Floats, Floats] | None:
    """Return X (m, n) and y (m, 1) with the paper's rows: all 367 of eunite2001, the first 5822 of coil2000."""
    arrays = load(name)
    if arrays is None:
        return None
    X, y = arrays["X"], arrays["Y"][:, :1]
    if name == "eunite2001":
        X, y = np.vstack([X, arrays["X_test"]]), np.vstack([y, arrays["Y_test"][:, :1]])
    return (X[:5822], y[:5822]) if name == "coil2000" else (X, y)


def training_half(name: str, split: int, seed: int) -> tuple[Floats, Floats]:
    """Return the training half of a split: X (m, n) without constant columns, and y (m, 1)."""
    data = rows_and_target(name)
    assert data is not None
    half = np.random.default_rng([seed, split]).permutation(data[0].shape[0])[: data[0].shape[0] // 2]
    return standardized(data[0][half]), standardized(data[1][half])


def halves(name: str, split: int, seed: int) -> Halves:
    """Return both halves of a split."""
    data = rows_and_target(name)
    assert data is not None
    order, middle = np.random.default_rng([seed, split]).permutation(data[0].shape[0]), data[0].shape[0] // 2
    train, test = order[:middle], order[middle:]
    varying = (np.ptp(data[0][train], axis=0) > 0.0) & (np.ptp(data[0][test], axis=0) > 0.0)
    X = data[0][:, varying]
    return Halves(
        standardized(X[train]), standardized(data[1][train]), standardized(X[test]), standardized(data[1][test])
    )

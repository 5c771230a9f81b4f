"""Columns that are nearly dependent are detected, whatever their scale and number."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.objective.conditioning import bound_error, smallest_pivot_share

RNG = np.random.default_rng(0)


def gram(X):
    return X.T @ X


def chain(d: float):
    """Three columns of which each leaves d^2 of the next one's square, so that two of them leave d^4 of the third's."""
    v, w, x, u, _ = np.eye(5)
    return gram(np.stack([v, v + d * w, w + d * x, u, u + v], axis=1))


@pytest.mark.parametrize(("m", "n"), [(40, 10), (40, 40), (10, 40)])
def test_independent_and_dependent_columns_are_not_reported(m: int, n: int) -> None:
    X = RNG.normal(size=(m, n))
    assert smallest_pivot_share(gram(X)) is None
    assert smallest_pivot_share(gram(np.hstack([X, X[:, :3], X[:, :1] + X[:, 1:2], np.zeros((m, 1))]))) is None


@pytest.mark.parametrize("d", [1e-5, 1e-4, 1e-3])
def test_nearly_equal_columns_are_detected_at_any_scale(d: float) -> None:
    X = RNG.normal(size=(60, 8))
    X[:, 3] = X[:, 5] + d * RNG.normal(size=60)
    share = smallest_pivot_share(gram(X * 10.0 ** np.arange(-4, 4)))
    assert share is not None
    assert 0.1 * d**2 < share < 10.0 * d**2
    assert smallest_pivot_share(gram(X), lam=1.0) is None  # a penalty makes them independent


def test_a_product_of_small_pivots_is_detected() -> None:
    share = smallest_pivot_share(chain(7e-4))
    assert share is not None
    assert share < 1e-12


@pytest.mark.parametrize("d", [1e-3, 1e-2])
def test_the_ridge_removes_at_most_the_bound(d: float) -> None:
    X = RNG.normal(size=(50, 4))
    X[:, 3] = X[:, 2] + d * X[:, 3]
    K, y = gram(X), RNG.normal(size=50)
    share = smallest_pivot_share(K)
    assert share is not None
    b, whole = X.T @ y, y @ y
    ridge = 1e-14 * np.diag(np.diag(K))
    less = b @ np.linalg.solve(K, ridge @ np.linalg.solve(K, b))  # first order of what K + ridge explains less
    assert 0.0 < less <= bound_error(share, 4) * whole
    assert bound_error(1e-20, 4) == 1.0

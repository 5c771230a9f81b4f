"""Systems with a positive definite matrix are solved as well whatever the scale of its columns."""

from __future__ import annotations

import numpy as np

from dsel._lib.positive_definite import inverse, near_norms, solve

RNG = np.random.default_rng(0)


def test_the_scale_of_columns_does_not_change_a_bit_but_the_exponents():
    X = RNG.standard_normal((20, 4))
    D = 2.0 ** np.array([-240.0, 0.0, 100.0, 240.0])
    K, B = X.T @ X, X.T @ RNG.standard_normal((20, 2))
    unit = near_norms(np.diag(K))
    K = K / np.outer(unit, unit)
    np.testing.assert_array_equal(solve(D[:, None] * K * D, D[:, None] * B) * D[:, None], solve(K, B))
    np.testing.assert_array_equal(inverse(D[:, None] * K * D) * D[:, None] * D, inverse(K))


def test_columns_of_one_norm_are_solved_as_they_are():
    X = RNG.standard_normal((20, 4))
    X /= np.linalg.norm(X, axis=0)
    K, B = 7.0 * X.T @ X, X.T @ RNG.standard_normal((20, 2))
    np.testing.assert_array_equal(solve(K, B), np.linalg.solve(K, B))
    np.testing.assert_array_equal(inverse(K), np.linalg.inv(K))


def test_a_column_of_zeros_has_the_norm_one():
    np.testing.assert_array_equal(near_norms(np.array([0.0, 1.0, 4.0, 1e-300])) > 0.0, True)
    assert near_norms(np.array([0.0]))[0] == 1.0

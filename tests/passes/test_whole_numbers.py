"""Products of whole numbers are summed in float32 without rounding, and in float64 where they become too large."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.data.as_dataset import as_dataset
from dsel.passes.gram import gram_statistics
from dsel.passes.moments import Moments, block_moments, merge, plan_tiles
from dsel.passes.statistics import Statistics

EPS = float(np.finfo(np.float64).eps)


def in_blocks(X: np.ndarray, edges: list[int], w: np.ndarray | None = None) -> Moments:
    parts = [block_moments(X[a:b], None, w=None if w is None else w[a:b]) for a, b in pairwise(edges)]
    total = parts[0]
    for part in parts[1:]:
        total = merge(total, part)
    return total


def exact_gram(X: np.ndarray) -> np.ndarray:
    """Return X'X about the means by whole numbers of any size, rounded once."""
    x = X.astype(object)
    m, sums = len(x), x.sum(axis=0)
    return np.asarray((m * (x.T @ x) - np.outer(sums, sums)) / m, np.float64)


def error(moments: Moments, X: np.ndarray) -> float:
    """Return the largest error of an inner product, as a share of the norms of both columns."""
    K, exact = Statistics.from_moments(moments).K, exact_gram(X)
    norms = np.sqrt(np.diag(exact))
    norms[norms == 0.0] = 1.0
    return float((np.abs(K - exact) / np.outer(norms, norms)).max())


def counts(seed: int, rows: int, n: int, largest: int, offset: int) -> np.ndarray:
    """Return whole numbers of which each column has another size, one a large outlier, and two nearly cancel."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 1 + rng.integers(1, largest, n, endpoint=True), (rows, n)) + offset
    X[rng.integers(rows), 0] += largest * 10
    X[:, 1] = X[:, 0] + (rng.random(rows) < 0.1)
    return X


@given(
    seed=st.integers(0, 10**6), largest=st.sampled_from([1, 3, 255, 4000, 300_000]),
    offset=st.sampled_from([0, -128, 70_000, 2**22]), cut=st.integers(1, 1499),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_error_is_a_few_roundings_whatever_the_size_and_the_mean(
    seed: int, largest: int, offset: int, cut: int
) -> None:
    X = counts(seed, 1500, 5, largest, offset)
    share = 4.0 + 2.0 * abs(offset) / np.sqrt(X.var(axis=0).min() + 1e-300)  # the merge of two means
    assert error(in_blocks(X.astype(np.float64), [0, 1500]), X) < 8.0 * EPS
    assert error(in_blocks(X.astype(np.float64), [0, cut, 1500]), X) < 8.0 * share * EPS


@pytest.mark.parametrize("other", ["none", "large"])
@pytest.mark.parametrize("largest", [1, 255, 500])
def test_the_order_of_rows_changes_no_bit(largest: int, other: str) -> None:
    """So no sum was rounded, also where float32 is full and its sums are added to those of float64."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, largest, (9000, 40), endpoint=True).astype(np.float32)
    if other == "large":
        X[:, 7] = rng.permutation(np.r_[np.full(4500, -3000), np.full(4500, 3000)])
    found, other = (in_blocks(Z, [0, 9000]) for Z in (X, rng.permutation(X)))
    np.testing.assert_array_equal(np.triu(found.K), np.triu(other.K))
    np.testing.assert_array_equal(found.mean_x, other.mean_x)


@pytest.mark.parametrize("n", [4, 30])
@pytest.mark.parametrize("value", [0.1, 2.0**22])
def test_columns_with_other_numbers_are_multiplied_in_float64(n: int, value: float) -> None:
    X = np.random.default_rng(0).integers(0, 9, (3000, n)).astype(np.float64)
    X[[0, 2500, 2999], [1, 2, 3]] = value
    x = X - X.mean(axis=0)
    np.testing.assert_allclose(
        Statistics.from_moments(in_blocks(X, [0, 3000])).K, x.T @ x, rtol=1e-12, atol=1e-10 * value
    )
    np.testing.assert_allclose(
        Statistics.from_moments(in_blocks(X, [0, 2000, 3000])).K, x.T @ x, rtol=1e-12, atol=1e-10 * value
    )


def test_held_out_rows_do_not_count_whatever_their_values() -> None:
    rng = np.random.default_rng(1)
    X = rng.integers(-100, 100, (2000, 6)).astype(np.float64)
    w = (rng.random(2000) < 0.7).astype(np.float64)
    expected = block_moments(X[w > 0.0], None)
    for outlier in (77.0, 0.5, 1e300):
        X[w == 0.0] = outlier
        found = block_moments(X, None, w=w)
        np.testing.assert_allclose(np.triu(found.K), np.triu(expected.K), rtol=1e-13, atol=1e-9)
        np.testing.assert_allclose(found.mean_x, expected.mean_x, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
def test_tiles_targets_and_missing_values_give_the_same_sums(dtype: str) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.integers(0, 2, (1200, 70)).astype(dtype), rng.normal(size=1200)
    data = as_dataset(X, y)
    expected, tiled = gram_statistics(data), gram_statistics(data, tiling=plan_tiles(70, 8 * 40 * 40))
    filled = gram_statistics(data, missing="mean")
    x = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(expected.B[:, 0], x.T @ (y - y.mean()), atol=1e-10)
    for found in (tiled, filled):
        np.testing.assert_allclose(found.K, expected.K, rtol=1e-13, atol=1e-10)
        np.testing.assert_array_equal(found.B, expected.B)

"""One pass leaves exact sufficient statistics, whatever the blocks, the dtype and the offset of the columns."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError, OptionError
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics
from dsel.passes.moments import block_moments, merge
from dsel.passes.statistics import PREPROCESS, Statistics, duplicates
from tests.stores import make_store


def statistics_in_blocks(X: np.ndarray, Y: np.ndarray | None, edges: list[int]) -> Statistics:
    parts = [block_moments(X[a:b], None if Y is None else Y[a:b]) for a, b in pairwise(edges)]
    total = parts[0]
    for part in parts[1:]:
        total = merge(total, part)
    return Statistics.from_moments(total)


@given(seed=st.integers(0, 10**6), cuts=st.sets(st.integers(1, 39), max_size=6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_cut_into_blocks_gives_the_statistics_of_the_whole(seed: int, cuts: set[int]) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 6)) * rng.uniform(0.1, 100, 6) + rng.normal(size=6) * 1000
    Y = rng.normal(size=(40, 2))
    found = statistics_in_blocks(X, Y, [0, *sorted(cuts), 40])
    x, y = X - X.mean(0), Y - Y.mean(0)
    np.testing.assert_allclose(found.mean_x, X.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.K, x.T @ x, rtol=1e-10, atol=1e-10 * np.abs(x.T @ x).max())
    np.testing.assert_allclose(found.B, x.T @ y, rtol=1e-9, atol=1e-9 * np.abs(x.T @ y).max())
    np.testing.assert_allclose(found.yy, (y**2).sum(0), rtol=1e-12)


def test_a_column_of_mean_1e6_and_standard_deviation_1_is_exact_to_1e_9() -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(-(2**20), 2**20, size=(30_000, 3)) / 2**20  # exact in float64 with 1e6 added
    edges = list(range(0, 30_001, 1000))
    found = statistics_in_blocks(small + 1e6, None, edges)
    centered = small - small.mean(0)
    np.testing.assert_allclose(found.K, centered.T @ centered, rtol=0, atol=1e-9 * 30_000)
    np.testing.assert_allclose(np.diag(found.K), np.diag(centered.T @ centered), rtol=1e-9)


def test_rows_that_drift_do_not_lose_precision() -> None:
    """Each block has another mean, so the merges carry most of the variance."""
    rows = np.arange(10_000.0)
    X = np.column_stack([rows + 1e7, np.cos(rows)])
    found = statistics_in_blocks(X, None, list(range(0, 10_001, 500)))
    centered = np.column_stack([rows - rows.mean(), X[:, 1] - X[:, 1].mean()])
    np.testing.assert_allclose(found.K, centered.T @ centered, rtol=1e-9, atol=1e-9 * np.abs(found.K).max())


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64"])
def test_the_dtype_does_not_matter_for_numbers_it_holds_exactly(dtype: str) -> None:
    X = np.random.default_rng(0).integers(0, 100, size=(500, 7))
    as_stored = gram_statistics(as_dataset(X.astype(dtype), X[:, 0].astype(dtype)))
    as_float64 = gram_statistics(as_dataset(X.astype("float64"), X[:, 0].astype("float64")))
    np.testing.assert_array_equal(as_stored.K, as_float64.K)
    np.testing.assert_array_equal(as_stored.B, as_float64.B)


def test_a_sparse_matrix_gives_the_statistics_of_the_dense_one() -> None:
    X = scipy.sparse.random(300, 20, density=0.1, random_state=0, format="csc")
    sparse = gram_statistics(as_dataset(X))
    dense = gram_statistics(as_dataset(X.toarray()))
    np.testing.assert_allclose(sparse.K, dense.K, atol=1e-12)


@pytest.mark.parametrize("preprocess", PREPROCESS)
@pytest.mark.parametrize("targets", [None, 1, 3])
def test_the_objective_is_that_of_the_preprocessed_matrices(preprocess: str, targets: int | None) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5)) * [1, 10, 0.1, 3, 1] + [0, 5, 1, -2, 100]
    Y = X if targets is None else rng.normal(size=(60, targets)) * 3 + 7

    def prepared(A: np.ndarray) -> np.ndarray:
        if preprocess in ("standardize", "center"):
            A = A - A.mean(0)
        scale = {"standardize": A.std(0), "unit": np.linalg.norm(A, axis=0)}.get(preprocess, 1.0)
        return A / scale

    statistics = gram_statistics(as_dataset(X, None if targets is None else Y))
    objective = statistics.objective(preprocess)  # type: ignore[arg-type]
    x, y = prepared(X), prepared(Y)
    for S in ([], [2], [0, 3], [4, 1, 2]):
        fit = np.linalg.lstsq(x[:, S], y, rcond=None)[0]
        expected = ((y - x[:, S] @ fit) ** 2).sum()
        assert objective.value(S) == pytest.approx(expected, rel=1e-7, abs=1e-9 * (y**2).sum())


class TestBadNumbers:
    X = np.arange(40.0).reshape(10, 4) % 7

    @pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
    def test_they_are_refused_with_variable_rows_and_column(self, bad: float, word: str) -> None:
        X = self.X.copy()
        X[7, 2] = bad
        with pytest.raises(DataError, match=rf"X has {word} values in rows 0 to 9: 1, in column 2, row 7"):
            gram_statistics(as_dataset(X))

    def test_in_targets_too(self) -> None:
        y = np.arange(10.0)
        y[3] = np.nan
        with pytest.raises(DataError, match=r"Y has NaN values in rows 0 to 9: 1, in column 0, row 3"):
            gram_statistics(as_dataset(self.X, y), missing="mean")

    def test_infinite_values_are_refused_where_missing_ones_are_filled(self) -> None:
        X = self.X.copy()
        X[7, 2] = np.inf
        with pytest.raises(DataError, match="row 7"):
            gram_statistics(as_dataset(X), missing="mean")

    def test_missing_mean_fills_with_the_mean_of_the_values_there_are_in_a_second_pass(self) -> None:
        X = np.random.default_rng(0).normal(size=(50, 4))
        X[3, 1] = X[40, 1] = X[3, 2] = np.nan
        filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        with log_passes() as log:
            found = gram_statistics(as_dataset(X), missing="mean")
        expected = gram_statistics(as_dataset(filled))
        np.testing.assert_allclose(found.K, expected.K, atol=1e-12)
        assert log.passes == 2


class TestColumnsThatCannotExplain:
    def test_a_constant_column_is_found_exactly_whatever_its_value(self) -> None:
        X = np.random.default_rng(0).normal(size=(1000, 3))
        X[:, 1] = 0.1  # not a sum of powers of two: its mean is not 0.1 to the last bit
        found = statistics_in_blocks(X, None, list(range(0, 1001, 100)))
        assert found.constant.tolist() == [False, True, False]
        assert found.unusable("standardize").tolist() == [False, True, False]

    def test_without_centring_only_a_zero_column_is_useless(self) -> None:
        X = np.column_stack([np.ones(10), np.zeros(10), np.arange(10.0)])
        found = gram_statistics(as_dataset(X))
        assert found.unusable("none").tolist() == [False, True, False]

    def test_constant_targets_are_refused(self) -> None:
        statistics = gram_statistics(as_dataset(np.random.default_rng(0).normal(size=(10, 3)), np.ones(10)))
        with pytest.raises(DataError, match="constant"):
            statistics.objective("standardize")

    def test_an_unknown_preprocessing_is_named(self) -> None:
        statistics = gram_statistics(as_dataset(np.random.default_rng(0).normal(size=(10, 3))))
        with pytest.raises(OptionError, match="'scale'"):
            statistics.objective("scale")  # type: ignore[arg-type]

    def test_multiples_are_found(self) -> None:
        X = np.random.default_rng(0).normal(size=(50, 4))
        X[:, 3] = -2 * X[:, 1]
        statistics = gram_statistics(as_dataset(X))
        assert duplicates(statistics.K, np.arange(4), 10) == [(1, 3)]
        assert duplicates(statistics.K, np.arange(3), 10) == []


class TestNumbersOutOfRange:
    @pytest.mark.parametrize("factor", [1e200, 1e-200])
    def test_a_column_whose_squares_leave_float64_is_named(self, factor: float) -> None:
        X = np.random.default_rng(0).normal(size=(40, 4))
        X[:, 2] *= factor
        with pytest.raises(DataError, match=r"X has 1 column .* x2 "):
            gram_statistics(as_dataset(X))
        with pytest.raises(DataError, match=r"Y has 1 column .* y0 "):
            gram_statistics(as_dataset(X[:, :2], X[:, 2]))

    def test_a_column_that_is_constant_but_for_rounding_is_constant(self) -> None:
        X = np.random.default_rng(0).normal(size=(40, 3))
        X[:, 1] = 0.1
        X[7, 1] = np.nextafter(0.1, 1)
        found = gram_statistics(as_dataset(X))
        assert found.constant.tolist() == [False, True, False]


def test_arrays_in_memory_and_stores_leave_blas_as_it_was_and_agree_bit_for_bit(tmp_path: Path) -> None:
    from threadpoolctl import threadpool_info

    before = [library["num_threads"] for library in threadpool_info()]
    X = np.random.default_rng(0).normal(size=(4000, 30))
    first = gram_statistics(as_dataset(X))
    store = make_store(tmp_path / "s.zarr", X, chunks=(500, 30))
    of_store = gram_statistics(as_dataset(str(store)))
    again = gram_statistics(as_dataset(X))
    assert [library["num_threads"] for library in threadpool_info()] == before
    np.testing.assert_array_equal(first.K, again.K)
    np.testing.assert_allclose(of_store.K, first.K, rtol=1e-12, atol=1e-9)


def test_columns_that_are_multiples_of_each_other_are_found_in_pairs() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 600))
    X[:, 500], X[:, 257], X[:, 7], X[:, 9] = -3.0 * X[:, 2], 2.0 * X[:, 256], 0.0, 0.0
    X[:, 599] = X[:, 2]
    every = [(2, 500), (2, 599), (256, 257), (500, 599)]
    K = X.T @ X
    assert duplicates(K, np.arange(600), 100) == every
    assert duplicates(K, np.arange(600), 3) == every[:3]
    assert duplicates(K, np.delete(np.arange(600), [500]), 100) == [(2, 599), (256, 257)]

"""The eigendecomposition is scipy's, whatever the chunks; a sketch is within the bound it states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from dsel.data.as_dataset import as_dataset
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.columns.column_statistics import column_statistics
from dsel.passes.columns.eigendecomposition import (
    Eigen,
    exact_eigendecomposition,
    normals,
    randomized_eigendecomposition,
)
from dsel.passes.data_pass import log_passes
from dsel.passes.statistics_cache import StatisticsCache
from tests.stores import make_store

SHAPES = {"tall": (90, 12), "wide": (14, 70), "square": (20, 20), "one column": (30, 1), "rank one": (25, 18)}


def data(kind: str) -> Any:
    rng = np.random.default_rng(len(kind))
    m, n = SHAPES[kind]
    if kind == "rank one":
        return np.outer(rng.standard_normal(m), rng.standard_normal(n))
    return rng.standard_normal((m, n)) * 0.8 ** np.arange(n) + 3.0


def factor_of(dataset: Any, preprocess: Any = "center") -> ColumnFactor:
    blocks = ColumnBlocks(dataset)
    return ColumnFactor(blocks, column_statistics(blocks), preprocess, "refuse")


def assert_the_same(found: Eigen, Z: Any, tolerance: float = 1e-10) -> None:
    """Eigenvalues, projectors and the reduced matrix are those of Z."""
    values, U = scipy.linalg.eigh(Z @ Z.T)
    r, scale = found.rank, float(values[-1])
    np.testing.assert_allclose(found.values, values[::-1][:r], atol=tolerance * scale)
    np.testing.assert_allclose(found.W @ found.W.T, np.diag(found.values), atol=tolerance * scale)
    np.testing.assert_allclose(found.W.T @ found.W, Z.T @ Z, atol=tolerance * scale)
    np.testing.assert_allclose(found.U @ found.U.T, U[:, -r:] @ U[:, -r:].T, atol=tolerance)
    largest = np.abs(found.W).argmax(axis=1)
    assert (found.W[np.arange(r), largest] > 0).all()


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [(kind, *chunks) for kind in SHAPES for chunks in ((1, 90), (7, 5), (90, 90))] + [("tall", 90, 1), ("wide", 19, 4)],
)
def test_both_algorithms_agree_with_scipy_for_any_chunks(tmp_path: Path, kind: str, rows: int, columns: int) -> None:
    X = data(kind)
    Z = X - X.mean(axis=0)
    rows, columns = min(rows, X.shape[0]), min(columns, X.shape[1])
    dataset = as_dataset(str(make_store(tmp_path / "x.zarr", X, chunks=(rows, columns))))
    if columns < X.shape[1] or rows == X.shape[0]:
        assert_the_same(exact_eigendecomposition(factor_of(dataset)), Z)
    rank = min(Z.shape)
    exact = randomized_eigendecomposition(factor_of(dataset), float(np.vdot(Z, Z)), rank, powers=1, seed=4)
    assert_the_same(exact, Z, 1e-9)


@pytest.mark.parametrize("chunks", [(60, 200), (60, 33), (17, 200), (17, 33)])
@pytest.mark.parametrize("powers", [1, 2])
def test_a_sketch_is_within_its_bound_in_as_many_passes_as_it_says(
    tmp_path: Path, chunks: tuple[int, int], powers: int
) -> None:
    rng = np.random.default_rng(1)
    X = np.linalg.qr(rng.standard_normal((60, 60)))[0] * 0.75 ** np.arange(60) @ rng.standard_normal((60, 200))
    Z = X - X.mean(axis=0)
    total, best = float(np.vdot(Z, Z)), scipy.linalg.svdvals(Z)
    dataset = as_dataset(str(make_store(tmp_path / "x.zarr", X, chunks=chunks)))
    factor = factor_of(dataset)
    with log_passes() as log:
        found = randomized_eigendecomposition(factor, total, 12, powers=powers, seed=2)
    assert log.passes == found.passes == 2 + 2 * powers
    error = scipy.linalg.svdvals(Z - found.U @ found.W)[0]
    assert error <= found.error_bound
    assert error <= best[12] * (1.0 + 9.0 * np.sqrt(12 + 10) * np.sqrt(60)) ** (1.0 / (2 * powers + 1))  # Halko, (1.10)
    whole = randomized_eigendecomposition(factor_of(as_dataset(X)), total, 12, powers=powers, seed=2)
    np.testing.assert_allclose(found.W, whole.W, atol=1e-9 * best[0])


def test_the_test_matrix_is_keyed_by_feature() -> None:
    whole = normals(7, 0, 500, 9)
    np.testing.assert_array_equal(normals(7, 123, 321, 9), whole[123:321])
    np.testing.assert_array_equal(normals(7, 0, 500, 4), whole[:, :4])
    assert abs(whole.mean()) < 0.05
    assert abs(whole.std() - 1.0) < 0.05
    assert not np.array_equal(whole, normals(8, 0, 500, 9))


def test_a_saved_one_is_found_again_and_no_other(tmp_path: Path) -> None:
    cache = StatisticsCache(tmp_path)
    found = exact_eigendecomposition(factor_of(as_dataset(data("wide"))))
    key = cache.key("abc", kind="eigen", rank=None)
    path = cache.save(key, found)
    assert path is not None
    again = cache.load(key)
    assert again is not None
    for name in ("W", "values", "U"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert (again.total, again.passes, again.rank) == (found.total, found.passes, found.rank)
    assert cache.load(cache.key("abc", kind="eigen", rank=3)) is None
    (tmp_path / "eigen-0123").mkdir()  # as version 0.1 wrote it, without a digest
    (tmp_path / "eigen-0123" / "manifest.json").write_text(json.dumps({"key": key, "eigen": {"way": "rows"}}))
    assert cache.load(key) is not None
    path.write_bytes(b"cut off")
    assert cache.load(key) is None

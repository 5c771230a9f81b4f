"""The eigendecomposition is scipy's, whatever the chunks; a sketch is within the bound it states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from dsel.data.dataset import as_dataset
from dsel.errors import OptionError
from dsel.passes.cache import ArtefactStore
from dsel.passes.column_blocks import ColumnBlocks
from dsel.passes.column_factor import ColumnFactor, column_statistics
from dsel.passes.eigen_cache import eigen_key, load_eigen, save_eigen
from dsel.passes.eigendecomposition import Eigen, from_gram, from_rows, from_sketch, normals
from dsel.passes.gram import gram
from dsel.search.exact.reduced_problem import Reduced
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
    if found.U is not None:
        np.testing.assert_allclose(found.U @ found.U.T, U[:, -r:] @ U[:, -r:].T, atol=tolerance)
    largest = np.abs(found.W).argmax(axis=1)
    assert (found.W[np.arange(r), largest] > 0).all()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 90), (90, 1), (7, 5), (19, 4), (90, 90)])
def test_exact_ways_agree_with_scipy_for_any_chunks(tmp_path: Path, kind: str, rows: int, columns: int) -> None:
    X = data(kind)
    Z = X - X.mean(axis=0)
    rows, columns = min(rows, X.shape[0]), min(columns, X.shape[1])
    dataset = as_dataset(str(make_store(tmp_path / "x.zarr", X, chunks=(rows, columns))))
    statistics = gram(dataset)[0]
    assert_the_same(from_gram(statistics.objective("center").K), Z)
    if columns < X.shape[1] or rows == X.shape[0]:
        assert_the_same(from_rows(factor_of(dataset)), Z)
    rank = min(Z.shape)
    exact = from_sketch(factor_of(dataset), float(np.vdot(Z, Z)), rank, powers=1, seed=4)
    assert_the_same(exact, Z, 1e-9)


@pytest.mark.parametrize("chunks", [(60, 200), (60, 33), (17, 200), (17, 33)])
@pytest.mark.parametrize("powers", [0, 1, 2])
def test_a_sketch_is_within_its_bound_in_as_many_passes_as_it_says(
    tmp_path: Path, chunks: tuple[int, int], powers: int
) -> None:
    rng = np.random.default_rng(1)
    X = np.linalg.qr(rng.standard_normal((60, 60)))[0] * 0.75 ** np.arange(60) @ rng.standard_normal((60, 200))
    Z = X - X.mean(axis=0)
    total, best = float(np.vdot(Z, Z)), scipy.linalg.svdvals(Z)
    dataset = as_dataset(str(make_store(tmp_path / "x.zarr", X, chunks=chunks)))
    factor = factor_of(dataset)
    before = factor.passes
    found = from_sketch(factor, total, 12, powers=powers, seed=2)
    assert factor.passes - before == found.passes == (2 if powers == 0 else 1 + 2 * powers)
    assert found.U is not None
    error = scipy.linalg.svdvals(Z - found.U @ found.W)[0]
    assert error <= found.error_bound
    assert error <= best[12] * (1.0 + 9.0 * np.sqrt(12 + 10) * np.sqrt(60)) ** (1.0 / (2 * powers + 1))  # Halko, (1.10)
    assert found.left_out == pytest.approx(total - float(np.square(found.W).sum()), abs=1e-9 * total)
    whole = from_sketch(factor_of(as_dataset(X)), total, 12, powers=powers, seed=2)
    np.testing.assert_allclose(found.W, whole.W, atol=1e-9 * best[0])


def test_an_error_target_sets_the_powers() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 120)) * 0.9 ** np.arange(120)
    factor, total = factor_of(as_dataset(X), "none"), float(np.vdot(X, X))
    rough, fine = (from_sketch(factor, total, 20, target=t) for t in (0.9, 1e-9))
    assert rough.powers == 1
    assert fine.powers == 8
    assert rough.error_bound <= 0.9 * np.sqrt(total)


def test_rank_and_energy() -> None:
    X = data("wide")
    Z = X - X.mean(axis=0)
    K = Z.T @ Z
    values = scipy.linalg.eigvalsh(K)[::-1]
    assert from_gram(K, rank=3).rank == 3
    found = from_gram(K, energy=0.95)
    assert found.values.sum() >= 0.95 * values.sum() > found.values[:-1].sum()
    assert found.left_out == pytest.approx(values[found.rank :].sum())
    with pytest.raises(OptionError, match="energy"):
        from_gram(K, energy=1.5)


def test_the_test_matrix_is_keyed_by_feature() -> None:
    whole = normals(7, 0, 500, 9)
    np.testing.assert_array_equal(normals(7, 123, 321, 9), whole[123:321])
    np.testing.assert_array_equal(normals(7, 0, 500, 4), whole[:, :4])
    assert abs(whole.mean()) < 0.05
    assert abs(whole.std() - 1.0) < 0.05
    assert not np.array_equal(whole, normals(8, 0, 500, 9))


def test_targets_reduce_as_in_the_search_on_the_gram_matrix() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 50)), rng.standard_normal((30, 4))
    found = from_rows(factor_of(as_dataset(X), "none"))
    D, P = found.reduced_targets(Y)
    statistics = gram(as_dataset(X, Y))[0]
    expected = Reduced.of(statistics.objective("none"))
    np.testing.assert_allclose(D, expected.D, rtol=1e-9)
    np.testing.assert_allclose(P @ P.T, np.diag(D), atol=1e-9 * D[0])


def test_a_saved_one_is_found_again_and_no_other(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    found = from_rows(factor_of(as_dataset(data("wide"))))
    key = eigen_key("abc", rank=None)
    path = save_eigen(store, key, found)
    again = load_eigen(store, key)
    assert again is not None
    np.testing.assert_array_equal(again.W, found.W)
    np.testing.assert_array_equal(again.values, found.values)
    assert (again.total, again.way, again.rank) == (found.total, "rows", found.rank)
    assert load_eigen(store, eigen_key("abc", rank=3)) is None
    (path / "arrays.npz").write_bytes(b"cut off")
    assert load_eigen(store, key) is None

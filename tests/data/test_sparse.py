"""Sparse X in Zarr, written by AnnData and by hand: the same statistics, block by block."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import load_block
from dsel.data.info import describe, render
from dsel.data.store import sparse as sparse_store
from dsel.errors import DataError, OptionError
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics


def sparse_data(m: int = 300, n: int = 25, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = scipy.sparse.random(m, n, 0.2, format="csr", random_state=seed, dtype=np.float32)
    X.data[X.indptr[5] : X.indptr[6]] = 0.0
    X.eliminate_zeros()
    y = X[:, [2, 9, 17]].toarray().astype(float) @ [3.0, -2.0, 1.0] + rng.normal(size=m) / 20
    return X, y


def write(path: Path, X: Any, zarr_format: int = 3, chunk: int = 200, kind: str = "csr_matrix", **obs: Any) -> Path:
    """Write the layout of AnnData by hand."""
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group = root.create_group("X", attributes={"encoding-type": kind, "shape": list(X.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(X, name)
        group.create_array(name, data=values, chunks=(min(chunk, values.size),))
    columns = root.create_group("obs", attributes={"encoding-type": "dataframe"})
    for name, values in obs.items():
        columns.create_array(name, data=np.asarray(values), chunks=(64,))
    return path


def same(found: Any, expected: Any) -> None:
    assert found.indices == expected.indices
    for name in ("r2", "error", "coefficients", "intercept"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_anndata_writes_is_read(tmp_path: Path, zarr_format: int) -> None:
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    X, y = sparse_data()
    obs = pd.DataFrame({"yield": y, "count": np.arange(300), "kind": pd.Categorical(["a", "b"] * 150)})
    obs.index = obs.index.astype(str)
    data = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(25)]))
    path = tmp_path / "cells.zarr"
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=zarr_format):
        warnings.simplefilter("ignore")
        data.write_zarr(path)
    found = dsel.select(path, k=3, targets=["yield"], sample_weight="count")
    same(found, dsel.select(X, y, k=3, sample_weight=np.arange(300)))
    assert sorted(found.labels) == ["gene17", "gene2", "gene9"]
    assert (found.targets, found.weights) == (("yield",), "count")
    same(dsel.select(path, k=3), dsel.select(X, k=3))  # without targets Y = X
    with pytest.raises(DataError, match=r"'kind' in obs of .* is not one number per sample"):
        as_dataset(path, targets=["kind"])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunk", [17, 200, 10**6])
def test_chunks_change_nothing(tmp_path: Path, monkeypatch: Any, zarr_format: int, chunk: int) -> None:
    monkeypatch.setattr(sparse_store, "BLOCK_BYTES", 800)
    X, y = sparse_data()
    path = write(tmp_path / "s.zarr", X, zarr_format, chunk, y=y, v=np.ones(300))
    dataset = as_dataset(path, targets=["y"])
    assert scipy.sparse.vstack([load_block(b.x) for b in dataset.blocks]).toarray().tolist() == X.toarray().tolist()
    sizes = [load_block(b.x).nnz for b in dataset.blocks]
    assert (len(sizes) == 1) if chunk > X.nnz else (max(sizes) <= max(100, chunk) and len(sizes) > 5)
    for method in ("forward", "kfold", "greedy-rls") if chunk == 200 and zarr_format == 3 else ("forward",):
        same(dsel.select(path, k=3, targets=["y"], method=method), dsel.select(X, y, k=3, method=method))


def test_held_out_rows_may_be_sparse(tmp_path: Path) -> None:
    X, y = sparse_data()
    train = write(tmp_path / "train.zarr", X[:200], y=y[:200])
    test = write(tmp_path / "test.zarr", X[200:], y=y[200:])
    found = dsel.select(train, k=3, targets=["y"], method="greedy-rls", held_out=str(test))
    expected = dsel.select(X[:200], y[:200], k=3, method="greedy-rls", held_out=(X[200:].toarray(), y[200:]))
    np.testing.assert_allclose([row.test_error for row in found.path], [row.test_error for row in expected.path])


def test_only_pieces_of_a_block_are_ever_dense(tmp_path: Path, monkeypatch: Any) -> None:
    from dsel.data import blocks

    X, y = sparse_data(2000, 40)
    monkeypatch.setattr(sparse_store, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(blocks, "PIECE_BYTES", 8 * 41 * 50)
    dense: list[int] = []
    plain = scipy.sparse.csr_matrix.toarray

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        dense.append(self.shape[0])
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(scipy.sparse.csr_matrix, "toarray", counted)
    dataset = as_dataset(write(tmp_path / "s.zarr", X, y=y), targets=["y"])
    with log_passes() as log:
        found = gram_statistics(dataset)
    assert (max(dense), log.passes) == (50, 1)
    x = plain(X).astype(float) - plain(X).mean(axis=0)
    np.testing.assert_allclose(found.K, x.T @ x, rtol=0, atol=1e-5)


def test_every_byte_of_x_is_counted_and_a_change_is_seen(tmp_path: Path) -> None:
    X, y = sparse_data()
    path = write(tmp_path / "s.zarr", X, y=y)
    dataset = as_dataset(path, targets=["y"])
    assert dataset.nbytes == X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
    before = dataset.fingerprint
    assert as_dataset(path).fingerprint != before
    zarr.open_array(path / "obs" / "y", mode="r+")[0] = 5.0
    assert as_dataset(path, targets=["y"]).fingerprint != before


def test_info_describes_the_store(tmp_path: Path) -> None:
    X, y = sparse_data()
    text = render(describe(write(tmp_path / "s.zarr", X, y=y)))
    assert f"X: 300 x 25 float32, {X.nnz:,} values (0.2 of the elements), by rows, 1 row block" in text
    assert "obs: y" in text


class TestRefused:
    def test_columns_first(self, tmp_path: Path) -> None:
        X, _ = sparse_data()
        write(tmp_path / "s.zarr", X.tocsc(), kind="csc_matrix")
        with pytest.raises(DataError, match=r"by columns .*tocsr\(\)"):
            as_dataset(tmp_path / "s.zarr")

    def test_targets_that_are_not_in_obs(self, tmp_path: Path) -> None:
        X, y = sparse_data()
        path = write(tmp_path / "s.zarr", X, y=y)
        with pytest.raises(OptionError, match=r"no column 'z' in obs. It has y"):
            as_dataset(path, targets=["z"])
        with pytest.raises(OptionError, match="0 names no column of obs"):
            as_dataset(path, targets=[0])

    @pytest.mark.parametrize(
        ("name", "place", "value", "words"),
        [
            ("indptr", 3, 10**6, "indptr does not increase"),
            ("indices", 10, 25, "column numbers from 0 to 25, and X has 25"),
            ("data", 10, np.nan, r"X of .* has NaN values.*: 1, in column"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path: Path, name: str, place: int, value: float, words: str) -> None:
        X, y = sparse_data()
        path = write(tmp_path / "s.zarr", X, y=y)
        zarr.open_array(path / "X" / name, mode="r+")[place] = value
        with pytest.raises(DataError, match=words):
            dsel.select(path, k=2, targets=["y"])


def test_held_out_rows_have_the_targets_and_weights_that_the_data_have(tmp_path: Path) -> None:
    X, y = sparse_data()
    w = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    one, other = slice(0, 200), slice(200, 300)
    store = write(tmp_path / "data.zarr", X[one], y=y[one], trust=w[one])
    test = write(tmp_path / "test.zarr", X[other], y=y[other], trust=w[other])
    options = {"k": 3, "method": "greedy-rls", "lam": 1.0}
    for weights in (False, "trust"):
        found = dsel.select(store, targets=["y"], sample_weight=weights, held_out=str(test), **options)
        p = found.intercept + X[other].toarray()[:, found.indices] @ found.coefficients
        squares = np.square(y[other] - p[:, 0])
        scale = np.cov(y[one], ddof=0, aweights=w[one] if weights else None)
        assert found.path[-1].test_error * scale == pytest.approx(
            np.average(squares, weights=w[other] if weights else None)
        )
    write(test, X[other], y=y[other])
    with pytest.raises(OptionError, match="trust"):
        dsel.select(store, targets=["y"], sample_weight="trust", held_out=str(test), **options)

"""Weights of the samples: a row of weight w is that row w times, in every statistic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError, OptionError
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_statistics import column_statistics
from dsel.passes.gram import gram_statistics
from tests.stores import regression

WHOLE = ("indices", "r2", "error", "coefficients", "intercept")


def weighted(seed: int = 0, m: int = 120, n: int = 9) -> tuple[Any, Any, Any]:
    """Data, and whole weights of which some are 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n)) + rng.normal(size=n) * 3
    Y = X[:, [1, 4]] @ [[2.0], [-1.0]] + rng.normal(size=(m, 1))
    return X, Y, rng.integers(0, 4, m).astype(float)


def repeated(X: Any, Y: Any, w: Any) -> tuple[Any, Any]:
    rows = np.repeat(np.arange(len(w)), w.astype(int))
    return X[rows], Y[rows]


def close(a: Any, b: Any, rtol: float = 1e-9) -> None:
    for name in WHOLE:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-9, err_msg=name)


def in_blocks(X: Any, Y: Any, w: Any, rows: int) -> Dataset:
    import dask.array as da

    x = da.from_array(X, chunks=(rows, X.shape[1]))  # type: ignore[no-untyped-call]
    return as_dataset(x, Y, sample_weight=w)


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 50), scale=st.sampled_from([1e-3, 1.0, 7.0]))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_statistics_in_any_blocks_are_those_of_repeated_rows(seed: int, rows: int, scale: float) -> None:
    X, Y, w = weighted(seed, m=50, n=5)
    w[:5], w[-1] = 0.0, 1.0
    found = gram_statistics(in_blocks(X, Y, scale * w, rows))
    expected = gram_statistics(as_dataset(*repeated(X, Y, w)))
    assert (found.m, found.weight) == (np.count_nonzero(w), pytest.approx(scale * expected.m))
    for name, factor in (("mean_x", 1.0), ("mean_y", 1.0), ("K", scale), ("B", scale), ("yy", scale)):
        wanted = factor * getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-9, atol=1e-11 * np.abs(wanted).max())


def test_column_blocks_weigh_as_row_blocks_do(tmp_path: Path) -> None:
    X, Y, w = weighted()
    w[:40] = 1.0  # a block without need of weights next to others
    ingest_arrays(X, tmp_path / "s.zarr", y=Y, chunks=(40, 4), weight=w)
    dataset = as_dataset(tmp_path / "s.zarr")
    found, expected = column_statistics(ColumnBlocks(dataset), "refuse"), gram_statistics(dataset)
    assert (found.weight, found.m) == (expected.weight, expected.m)
    for name in ("mean_x", "mean_y", "squares", "B", "yy"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_selection_is_that_of_repeated_rows(preprocess: Any, sparse: bool) -> None:
    X, Y, w = weighted()
    keys: dict[str, Any] = {"k": 3, "method": "forward", "preprocess": preprocess, "lam": 2.0}
    data = scipy.sparse.csr_matrix(X) if sparse else X
    found = dsel.select(data, Y, sample_weight=w, **keys)
    close(found, dsel.select(*repeated(X, Y, w), **keys))
    assert (found.weights, found.shape) == ("sample_weight", X.shape)
    both = [dsel.select(x, sample_weight=v, **keys) for x, v in ((X, w), (repeated(X, Y, w)[0], None))]
    close(*both)  # where Y = X


def test_missing_values_get_the_weighted_mean() -> None:
    X, Y, w = weighted()
    X[3, 2], X[7, 4] = np.nan, np.nan
    close(
        dsel.select(X, Y, k=3, missing="mean", sample_weight=w),
        dsel.select(*repeated(X, Y, w), k=3, missing="mean"),
    )


def test_a_column_that_is_constant_where_there_is_weight_is_constant() -> None:
    X, Y, w = weighted()
    X[w > 0, 1] = 5.0
    assert dsel.select(X, Y, k=2, sample_weight=w).constant == ("x1",)


@pytest.mark.parametrize("method", ["poss", "forward", "kfold", "greedy-rls"])
def test_weights_of_one_change_not_a_bit_and_their_scale_changes_no_selection(method: str) -> None:
    X, Y, w = weighted()
    plain = dsel.select(X, Y, k=3, method=method)
    ones = dsel.select(X, Y, k=3, method=method, sample_weight=np.ones(len(X)))
    for name in (*WHOLE, "path"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(ones, name))
    a, b = (dsel.select(X, Y, k=3, method=method, sample_weight=c * w) for c in (1.0, 1e3))
    assert a.indices == b.indices
    np.testing.assert_allclose([a.r2, *a.coefficients[:, 0]], [b.r2, *b.coefficients[:, 0]], rtol=1e-9)
    np.testing.assert_allclose([p.error for p in a.path], [p.error for p in b.path], rtol=1e-9)


def left_out(X: Any, Y: Any, w: Any, S: list[int], lam: float, centered: bool, loss: str) -> float:
    """Weighted mean error of rows predicted by weighted ridge regression without them, fitted again each time."""
    errors = []
    for i in range(len(X)):
        keep = np.delete(np.arange(len(X)), i)
        a = np.average(X[keep], 0, w[keep]) if centered else 0.0 * X[0]
        b = np.average(Y[keep], 0, w[keep]) if centered else 0.0 * Y[0]
        Z, T, v = (X[keep] - a)[:, S], Y[keep] - b, w[keep, None]
        beta = np.linalg.solve(Z.T @ (v * Z) + lam * np.eye(len(S)), Z.T @ (v * T))
        p = b + (X[i] - a)[S] @ beta
        errors.append(float((((Y[i] - p) ** 2) if loss == "squared" else Y[i] * p <= 0).sum()))
    return float(np.average(errors, weights=w))


@pytest.mark.parametrize("preprocess", ["center", "none"])
@pytest.mark.parametrize("loss", ["squared", "zero-one"])
@pytest.mark.parametrize("direction", ["forward", "floating"])
def test_weighted_leave_one_out_is_exact(preprocess: Any, loss: str, direction: str, tmp_path: Path) -> None:
    X, Y, w = weighted(3, m=40, n=6)
    w = w * 0.7
    if loss == "zero-one":
        Y = np.where(np.median(Y) < Y, 1.0, -1.0)
    keys: dict[str, Any] = {
        "k": 3, "method": "greedy-rls", "lam": 0.5, "preprocess": preprocess, "loss": loss, "direction": direction,
    }  # fmt: skip
    ingest_arrays(X, tmp_path / "s.zarr", y=Y, chunks=(7, 6), weight=w)
    in_memory, streamed = dsel.select(X, Y, sample_weight=w, **keys), dsel.select(tmp_path / "s.zarr", **keys)
    for selection in (in_memory, streamed):
        S: list[int] = []
        for row in selection.path:
            S.append(row.index) if row.action == "insert" else S.remove(row.index)
            assert row.error == pytest.approx(left_out(X, Y, w, S, 0.5, preprocess == "center", loss), rel=1e-9)
    assert in_memory.indices == streamed.indices


def test_lam_by_weighted_leave_one_out_and_weighted_held_out_rows(tmp_path: Path) -> None:
    X, Y, w = weighted(5, m=40, n=5)
    ingest_arrays(X, tmp_path / "test.zarr", y=Y, weight=w)
    keys: dict[str, Any] = {"method": "greedy-rls", "preprocess": "center"}
    found = dsel.select(X, Y, k=4, sample_weight=w, lam_grid=(0.1, 10.0), held_out=str(tmp_path / "test.zarr"), **keys)
    for lam, error in found.counts["lam_grid"]:
        assert error / w.sum() == pytest.approx(left_out(X, Y, w, [0, 1, 2, 3, 4], lam, True, "squared"), rel=1e-9)
    fitted = found.intercept + X[:, found.indices] @ found.coefficients
    assert found.path[-1].test_error == pytest.approx(np.average((Y - fitted)[:, 0] ** 2, weights=w), rel=1e-9)


class TestInAStore:
    def test_the_variable_weight_counts_unless_it_is_switched_off(self, tmp_path: Path) -> None:
        X, Y, w = weighted()
        path = tmp_path / "s.zarr"
        ingest_arrays(X, path, y=Y, chunks=(13, 9), weight=w)
        by_convention, off = dsel.select(path, k=3), dsel.select(path, k=3, sample_weight=False)
        close(by_convention, dsel.select(X, Y, k=3, sample_weight=w))
        close(off, dsel.select(X, Y, k=3))
        assert (by_convention.weights, off.weights) == ("weight", None)
        assert by_convention.fingerprint != off.fingerprint
        assert by_convention.bytes_read == 2 * 8 * (X.size + Y.size + w.size)

    @pytest.mark.parametrize("asked", [{}, {"sample_weight": False}, {"loss": "poisson", "sample_weight": False}])
    def test_a_proof_uses_the_weights_of_the_selection(self, tmp_path: Path, asked: dict[str, Any]) -> None:
        X, Y, w = weighted()
        path = tmp_path / "s.zarr"
        ingest_arrays(X, path, y=np.round(np.abs(Y[:, :1])), chunks=(13, 9), weight=w)
        found = dsel.select(path, k=2, lam=0.1, **asked)
        (row,) = dsel.certify(found, path).certificate
        assert row["value"] == pytest.approx(found.error)
        assert dsel.alternatives(found, path, within=0.01).subsets
        if not asked:
            of_rows = dsel.select(X, np.round(np.abs(Y[:, :1])), k=2, lam=0.1, sample_weight=w)
            assert dsel.certify(of_rows, path).certificate[0]["value"] == pytest.approx(row["value"])

    def test_another_variable_is_named_and_watched_for_changes(self, tmp_path: Path) -> None:
        import xarray as xr

        X, Y, w = weighted()
        dataset = xr.Dataset({"X": (("sample", "feature"), X), "Y": (("sample", "target"), Y), "v": ("sample", w)})
        path = tmp_path / "s.zarr"
        dataset.to_zarr(path, zarr_format=3, consolidated=False)
        found = dsel.select(path, k=3, sample_weight="v")
        close(found, dsel.select(X, Y, k=3, sample_weight=w))
        close(found, dsel.select(dataset, k=3, sample_weight="v"))
        assert dsel.certify(found, path).certificate[0]["value"] == pytest.approx(found.error)
        dataset.assign(v=("sample", w + 1.0)).to_zarr(path, mode="w", zarr_format=3, consolidated=False)
        assert as_dataset(path, sample_weight="v").fingerprint != found.fingerprint
        with pytest.raises(DataError, match=r"no variable u of weights; .* it has v"):
            as_dataset(path, sample_weight="u")
        with pytest.raises(DataError, match=r"no variable u, only"):
            as_dataset(dataset, sample_weight="u")

    def test_a_row_of_text_can_bring_its_weight(self, tmp_path: Path) -> None:
        X, Y, w = weighted()
        table = np.hstack([X, w[:, None], Y])
        names = [*(f"x{j}" for j in range(9)), "w", "y"]
        (tmp_path / "d.csv").write_text(
            "\n".join([",".join(names), *(",".join(repr(float(v)) for v in row) for row in table)]) + "\n"
        )
        dsel.ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target=["y"], weight="w")
        np.savez(tmp_path / "d.npz", X=X, Y=Y, weight=w)
        dsel.ingest(tmp_path / "d.npz", tmp_path / "t.zarr", weight="weight")
        for name in ("s.zarr", "t.zarr"):
            close(dsel.select(tmp_path / name, k=3), dsel.select(X, Y, k=3, sample_weight=w))
        with pytest.raises(OptionError, match="weight"):
            dsel.ingest(tmp_path / "d.csv", tmp_path / "u.zarr", weight="z")

    @pytest.mark.parametrize(("value", "kind"), [(-1.0, "negative"), (np.nan, "NaN"), (np.inf, "infinite")])
    def test_what_cannot_be_a_weight_is_refused_before_any_pass(self, tmp_path: Path, value: float, kind: str) -> None:
        X, Y, w = weighted()
        w[100:102] = value
        ingest_arrays(X, tmp_path / "s.zarr", y=Y, weight=w)
        with pytest.raises(DataError, match=rf"weight of .*s\.zarr has {kind} values: 2, in rows 100, "):
            as_dataset(tmp_path / "s.zarr")
        with pytest.raises(DataError, match=rf"sample_weight has {kind} values: \d+, in rows? \d"):
            dsel.select(X, Y, k=2, sample_weight=w)

    def test_a_lost_chunk_of_weights_is_named(self, tmp_path: Path) -> None:
        X, Y, w = weighted()
        ingest_arrays(X, tmp_path / "s.zarr", y=Y, chunks=(13, 9), weight=w)
        (tmp_path / "s.zarr" / "weight" / "c" / "2").unlink()
        with pytest.raises(DataError, match=r"weight/c/2"):
            as_dataset(tmp_path / "s.zarr")


def test_weights_that_do_not_fit_are_refused() -> None:
    X, Y = regression(m=50)
    for wrong, words in (
        (np.ones(49), "shape"), (np.zeros(50), "add up to 0"), (["a"] * 50, "dtype"), (np.ones((50, 2)), "shape"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=words):
            dsel.select(X, Y, k=2, sample_weight=wrong)
    with pytest.raises(OptionError, match="one number for each row"):
        dsel.select(X, Y, k=2, sample_weight="weight")

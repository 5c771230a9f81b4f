"""Predictions for a store: they are those of the arrays, whole or absent, whatever the chunks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError, OutputError
from dsel.passes.data_pass import log_passes
from dsel.selection.results import predict_store as module
from dsel.selection.results.predict_store import predict_store
from tests.stores import count_reads, make_store, reads_so_far, regression

X, Y = regression(m=200, n=20)
TWO = np.column_stack([Y[:, 0], X[:, 3] - 2 * X[:, 8] + 4])
SELECTION = dsel.select(X, TWO, k=4, method="forward")


def opened(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_zarr(path)


@pytest.mark.parametrize("chunks", [(64, 5), (7, 20), (200, 1), (1, 20)])
@pytest.mark.parametrize("chunk_bytes", [16 << 20, 2000])
def test_they_are_those_of_the_arrays(
    tmp_path: Path, chunks: tuple[int, int], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    store = make_store(tmp_path / "s.zarr", X, chunks=chunks)
    report = predict_store(SELECTION, store, tmp_path / "p.zarr")
    found = opened(tmp_path / "p.zarr").prediction
    np.testing.assert_allclose(found.values, SELECTION.predict(X), rtol=1e-12)
    assert found.dims == ("sample", "target")
    assert report.shape == (200, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr", "p.zarr"}


def test_labels_of_rows_and_targets_are_kept_and_columns_are_found_by_label(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(20)
    names, samples = [f"x{j}" for j in order], [f"row {i}" for i in range(200)]
    store = tmp_path / "s.zarr"
    ingest_arrays(X[:, order], store, features=names, samples=samples, chunks=(64, 5))
    predict_store(SELECTION, store, tmp_path / "p.zarr")
    found = opened(tmp_path / "p.zarr").prediction
    assert found.sample.values.tolist() == samples
    assert found.target.values.tolist() == ["y0", "y1"]
    np.testing.assert_allclose(found.values, SELECTION.predict(X), rtol=1e-12)


def test_sparse_stores_are_read_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.data.test_sparse import write

    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    sparse = scipy.sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    predict_store(SELECTION, write(tmp_path / "s.zarr", sparse), tmp_path / "p.zarr")
    np.testing.assert_allclose(
        opened(tmp_path / "p.zarr").prediction.values, SELECTION.predict(sparse.toarray()), rtol=1e-12
    )


def test_only_chunks_with_chosen_columns_are_read_and_once(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, chunks=(50, 4))
    count_reads()
    with log_passes() as made:
        report = predict_store(SELECTION, store, tmp_path / "p.zarr")
    reads = {key: times for key, times in reads_so_far().items() if key.startswith("X/c/")}
    assert set(reads.values()) == {1}
    assert {int(key.split("/")[-1]) for key in reads} == {j // 4 for j in SELECTION.indices}
    assert made.bytes_read == report.bytes_read


def test_what_exists_is_not_replaced_without_being_told(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, chunks=(50, 4))
    out = tmp_path / "p.zarr"
    predict_store(SELECTION, store, out)
    with pytest.raises(OutputError, match="exists already"):
        predict_store(SELECTION, store, out)
    other = dsel.select(X, Y, k=2, method="forward")
    predict_store(other, store, out, overwrite=True)
    np.testing.assert_allclose(opened(out).prediction.values, other.predict(X), rtol=1e-12)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="not a Zarr store"):
        predict_store(SELECTION, store, tmp_path / "folder", overwrite=True)
    with pytest.raises(OutputError, match="in each other"):
        predict_store(SELECTION, store, store / "p.zarr")
    with pytest.raises(OutputError, match="in each other"):
        predict_store(SELECTION, store, store, overwrite=True)


def test_nothing_is_left_where_it_fails(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, chunks=(50, 20))
    out = tmp_path / "p.zarr"
    (store / "X" / "c" / "2" / "0").write_bytes(b"damaged")
    with pytest.raises(DataError, match="rows 100 to 149"):
        predict_store(SELECTION, store, out)
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


def test_missing_columns_are_named_before_anything_is_written(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X[:, :7], chunks=(50, 4))
    with pytest.raises(DataError, match="7 columns without labels, and the selection was made from 20"):
        predict_store(SELECTION, store, tmp_path / "p.zarr")
    ingest_arrays(X[:, :7], tmp_path / "t.zarr", features=[f"x{j}" for j in range(1, 8)])
    with pytest.raises(DataError, match="lacks"):
        predict_store(SELECTION, tmp_path / "t.zarr", tmp_path / "p.zarr")
    assert not (tmp_path / "p.zarr").exists()


def test_where_y_is_x_all_columns_are_written(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, chunks=(50, 4))
    s = dsel.select(store, k=3, method="forward")
    predict_store(s, store, tmp_path / "p.zarr")
    found = opened(tmp_path / "p.zarr").prediction
    assert found.target.values.tolist() == [f"x{j}" for j in range(20)]
    np.testing.assert_allclose(found.values, s.predict(X), rtol=1e-12)
    assert zarr.open_group(tmp_path / "p.zarr", mode="r").attrs["columns"] == s.labels


@pytest.fixture
def towns() -> tuple[pd.DataFrame, dsel.Selection]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=60), "city": rng.choice(["B", "K", "U"], 60)})
    frame["y"] = 2.0 * (frame.city == "K") + frame.a + 0.1 * rng.normal(size=60)
    return frame, dsel.select(frame, "y", k=2)


@pytest.mark.parametrize("cities", [["B", "K"], ["B"], ["B", None]])
def test_a_store_may_lack_values_of_a_category(towns: Any, tmp_path: Path, cities: list[str | None]) -> None:
    frame, selection = towns
    new = frame.head(6).assign(city=(cities * 6)[:6])
    dsel.ingest(new, tmp_path / "s.zarr", target="y", categorical="city")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = selection.predict(new)
        np.testing.assert_allclose(selection.predict(tmp_path / "s.zarr").values, expected)
        chosen = selection.transform(tmp_path / "s.zarr")
        assert chosen.feature.values.tolist() == selection.labels
        np.testing.assert_array_equal(chosen.values, selection.transform(new))
        report = predict_store(selection, tmp_path / "s.zarr", tmp_path / "p.zarr")
    np.testing.assert_allclose(opened(tmp_path / "p.zarr").prediction.values[:, 0], expected)
    assert report.columns == 4
    if None not in cities:
        assert selection.score(tmp_path / "s.zarr", "y") == pytest.approx(selection.score(new, "y"))


def test_a_store_without_the_category_lacks_a_column(towns: Any, tmp_path: Path) -> None:
    frame, selection = towns
    dsel.ingest(frame[["a", "y"]], tmp_path / "s.zarr", target="y")
    with pytest.raises(DataError, match=r"X lacks 1 of the 2 chosen columns: city\. It has a\."):
        selection.predict(tmp_path / "s.zarr")
    plain = frame.assign(**{"city=B": 1.0, "city=K": 0.0}).drop(
        columns="city"
    )  # numbers: nothing tells that U is absent
    dsel.ingest(plain, tmp_path / "t.zarr", target="y")
    with pytest.raises(DataError, match="X lacks 1 of the 2 chosen columns"):
        predict_store(selection, tmp_path / "t.zarr", tmp_path / "p.zarr")


def test_a_value_that_the_selection_did_not_see_is_a_warning_for_a_store_as_for_a_frame(
    towns: Any, tmp_path: Path
) -> None:
    frame, selection = towns
    new = frame.head(6).assign(city=["B", "Z", "K", "U", "B", "B"])
    dsel.ingest(new, tmp_path / "s.zarr", target="y", categorical="city")
    reference = next(name for name, b in zip(selection.names, selection.coefficients, strict=True) if not b.any())
    said = f"such as 'Z': they predict as '{reference.removeprefix('city=')}', whose coefficient is 0"
    with pytest.warns(UserWarning, match=f"Column 'city' has values that the selection was not made from, {said}"):
        expected = selection.predict(new)
    with pytest.warns(UserWarning, match=said):
        np.testing.assert_allclose(selection.predict(tmp_path / "s.zarr").values, expected)
    with pytest.warns(UserWarning, match="such as 'Z'"):
        predict_store(selection, tmp_path / "s.zarr", tmp_path / "p.zarr")

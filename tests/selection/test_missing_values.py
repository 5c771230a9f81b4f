"""Missing values in a frame or a matrix: how many the means replaced, and what an error says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel.data import in_memory
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError
from dsel.passes import finite_values
from tests.cli_runner import call

M = 40
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"x": RNG.normal(size=M), "city": RNG.choice(["bonn", "kiel", "ulm"], M), "z": RNG.normal(size=M)})
Y = FRAME["x"].to_numpy() + FRAME["city"].eq("ulm").to_numpy() + RNG.normal(size=M)
HOLES = FRAME.assign(city=FRAME["city"].where(np.arange(M) % 9 > 0), x=FRAME["x"].where(np.arange(M) > 1))
COUNTS = "2 of 40 in 'x', 5 of 40 in 'city'"
SHARES = "; a row without a category has the share of each value in its indicator columns"


def note_on_means(notes: Any) -> list[str]:
    return [note.removeprefix("missing values became the mean of their column: ") for note in notes if "mean" in note]


@pytest.mark.parametrize("kind", [lambda f: f, lambda f: f.assign(city=f["city"].astype("category")), pl.from_pandas])
def test_a_note_counts_the_values_that_means_replaced(kind: Callable[[Any], Any]) -> None:
    frame = kind(HOLES)
    assert note_on_means(dsel.select(frame, Y, k=2, missing="mean").notes) == [COUNTS + SHARES]
    assert note_on_means(dsel.select(frame, Y, k=1, missing="mean", exclude=["city"]).notes) == ["2 of 40 in 'x'"]
    assert note_on_means(dsel.select(FRAME, Y, k=2, missing="mean").notes) == []


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, lambda X: np.ma.masked_invalid(X)])
def test_matrices_have_the_note_too(kind: Callable[[Any], Any]) -> None:
    X = HOLES[["x", "z"]].to_numpy()
    assert note_on_means(dsel.select(kind(X), Y, k=1, missing="mean").notes) == ["2 of 40 in 'x0'"]


def test_a_row_without_a_category_has_the_shares_of_its_values() -> None:
    chosen = dsel.select(HOLES, Y, k=3, missing="mean")
    fill = dict(zip(chosen.names, chosen.fill, strict=True))
    shares = HOLES["city"].value_counts(normalize=True)
    assert {name: fill[f"city={name}"] for name in shares.index} == pytest.approx(dict(shares))
    missing, filled = HOLES.tail(4).assign(city=None), pd.get_dummies(HOLES, columns=["city"], prefix_sep="=")
    filled = filled.tail(4).assign(**{f"city={name}": share for name, share in shares.items()})
    np.testing.assert_allclose(chosen.predict(missing), chosen.predict(filled))


def test_an_ingest_counts_them_by_column_of_the_frame(tmp_path: Path) -> None:
    kept = dsel.ingest(HOLES, tmp_path / "kept.zarr", categorical="city")
    assert any(line.startswith("missing values in 2 columns: x (2), city (5);") for line in kept.lines())
    replaced = dsel.ingest(HOLES, tmp_path / "replaced.zarr", categorical="city", missing="mean")
    assert note_on_means(replaced.notes) == [COUNTS + SHARES]


def test_an_error_names_the_category_and_what_helps(tmp_path: Path) -> None:
    dsel.ingest(HOLES, tmp_path / "kept.zarr", y=Y, categorical="city")
    says = r"NaN values: 7, in columns 'x' \(2\), 'city' \(5\), rows 0, 1, 9, .* A category may also have a value"
    for data in ((HOLES, Y), (tmp_path / "kept.zarr",)):
        with pytest.raises(DataError, match=says):
            dsel.select(*data, k=2)
    with pytest.raises(DataError, match=r"in column 'x', rows 0, 1 .*of each column\.$"):
        dsel.select(HOLES[["x", "z"]], Y, k=1)


def test_an_error_counts_all_rows_in_memory_and_in_a_small_store_and_says_elsewhere_what_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = RNG.normal(size=(M, 3))
    X[[3, 17, 38], [0, 0, 2]] = np.nan
    monkeypatch.setattr(in_memory, "BLOCK_BYTES", 8 * 3 * 10)  # blocks of ten rows
    found = r"NaN values: 3, in columns 'x0' \(2\), 'x2' \(1\), rows 3, 17, 38 \("
    with pytest.raises(DataError, match="^X has " + found):
        dsel.select(X, Y, k=1)
    ingest_arrays(X, tmp_path / "s.zarr", y=Y, chunks=(10, 3))
    with pytest.raises(DataError, match=r"^X of .*s\.zarr has " + found):
        dsel.select(tmp_path / "s.zarr", k=1)
    monkeypatch.setattr(finite_values, "COUNTED_BYTES", 0)  # as if the store were large
    of_store = r"^X of .*s\.zarr has NaN values in rows \d+ to \d+: 1, .* X had 3 missing values when it was written\."
    with pytest.raises(DataError, match=of_store):
        dsel.select(tmp_path / "s.zarr", k=1)
    lazy = r"^X has NaN values in rows \d+ to \d+: 1, .* 3 other blocks of rows were not counted\."
    with pytest.raises(DataError, match=lazy):
        dsel.select(da.from_array(X, chunks=(10, 3)), Y, k=1)


READS: dict[str, Callable[..., Any]] = {
    "select": partial(dsel.select, k=2),
    "random folds": partial(dsel.select, k="auto", max_k=3),
    "folds of blocks": partial(dsel.select, k="auto", max_k=3, choose_k={"folds": 4, "split": "blocks"}),
    "held-out rows": partial(dsel.select, k="auto", max_k=3, choose_k={"held_out": 0.25, "split": "blocks"}),
    "held-out random rows": partial(dsel.select, k="auto", max_k=3, choose_k={"held_out": 0.25}),
    "groups of rows": partial(
        dsel.select, k="auto", max_k=3, choose_k={"folds": 3, "row_groups": np.arange(200) // 20}
    ),
    "kfold": partial(dsel.select, k=2, method="kfold"),
    "logistic": partial(dsel.select, k=2, loss="logistic"),
    "leave-one-out": partial(dsel.select, k=2, method="greedy-rls"),
    "stability": partial(dsel.stability, k=2),
}


@pytest.mark.parametrize("kind", ["array", "blocks", "lazy", "store", "large store"])
@pytest.mark.parametrize("read", READS)
def test_an_error_gives_rows_of_the_data_whatever_part_of_them_is_read(
    read: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(float)
    X[[150, 160, 170], 2] = np.nan
    data: tuple[Any, ...] = (X, y)
    if kind == "blocks":
        monkeypatch.setattr(in_memory, "BLOCK_BYTES", 8 * 4 * 60)
    if kind == "lazy":
        data = (da.from_array(X, chunks=(200, 4)), y)
    if kind.endswith("store"):
        ingest_arrays(X, tmp_path / "s.zarr", y=y, chunks=(200, 4))
        data = (tmp_path / "s.zarr",)
    if kind == "large store":
        monkeypatch.setattr(finite_values, "COUNTED_BYTES", 0)
    with pytest.raises(DataError, match=r"^X .*has NaN values: 3, in column 'x2', rows 150, 160, 170 \("):
        READS[read](*data)


def test_an_error_about_a_window_of_a_store_gives_rows_of_the_store(tmp_path: Path) -> None:
    X = RNG.normal(size=(M, 3))
    X[[3, 38], 0] = np.nan
    ingest_arrays(X, tmp_path / "s.zarr", y=Y, chunks=(M, 3))
    with pytest.raises(DataError, match=r"NaN values: 1, in column 'x0', row 38 \("):
        dsel.select(tmp_path / "s.zarr", k=1, rows={"last": 0.5})


def test_a_selection_from_a_store_says_how_many_values_were_missing(tmp_path: Path) -> None:
    dsel.ingest(HOLES[["x", "z"]], tmp_path / "s.zarr", y=Y)
    notes = dsel.select(tmp_path / "s.zarr", k=1, missing="mean").notes
    assert (
        "the mean of its column replaced each missing value; X had 2 missing values when the store was written" in notes
    )
    dsel.ingest(FRAME[["x", "z"]], tmp_path / "full.zarr", y=Y)
    assert not note_on_means(dsel.select(tmp_path / "full.zarr", k=1, missing="mean").notes)


def test_all_that_is_wrong_with_the_columns_of_a_frame_is_one_message() -> None:
    frame = HOLES[["x", "z"]].assign(day=pd.date_range("2020-01-01", periods=M))
    with pytest.raises(DataError) as error:
        dsel.select(frame, Y, k=1)
    assert "X has 2 problems" in str(error.value)
    assert "column 'day' holds dates or times" in str(error.value)
    assert "row 0, column 'x': the value is missing, and 1 more. Fill it in, or set missing=\"mean\"." in str(
        error.value
    )
    with pytest.raises(DataError, match=r"^X: column 'day' holds dates or times") as error:
        dsel.select(frame, Y, k=1, missing="mean")
    assert "is missing" not in str(error.value)
    dated = dsel.select(frame, Y, k=1, dates="days", missing="mean")
    assert dated.k == 1
    for lacking in (frame.day.where(frame.index > 2), frame.day.astype(str).where(frame.index > 2)):
        with pytest.raises(
            DataError, match=r"(?s)column 'day'.*Ask for numbers.*row 0, column 'day': the value is mis"
        ):
            dsel.select(frame.assign(x=0.0, day=lacking), Y, k=1)


def test_a_missing_category_of_a_store_counts_once_also_in_rows_that_were_appended(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": list("pqrst") * 6, "x": RNG.normal(size=30), "y": RNG.normal(size=30)})
    frame.loc[:2, "c"] = None
    store, job = tmp_path / "s.zarr", tmp_path / "job.yaml"
    dsel.ingest(frame, store, target="y", categorical=["c"])
    assert "X had 3 missing values when the store was written" in str(dsel.select(store, k=1, missing="mean").notes)
    dsel.append(frame[:10], store)
    assert "X had 6 missing values when the store was written" in str(dsel.select(store, k=1, missing="mean").notes)
    assert call("init", store, "--out", job)[0] == 0
    assert "# X has 6 missing values.\nmissing: mean" in job.read_text()


def test_the_count_of_an_older_store_is_one_of_cells(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": list("pqrst") * 6, "y": RNG.normal(size=30)})
    frame.loc[:2, "c"] = None
    dsel.ingest(frame, tmp_path / "s.zarr", target="y", categorical=["c"])
    file = tmp_path / "s.zarr" / "zarr.json"
    older = file.read_text().replace('"dsel_missing_values": 3', '"dsel_missing": 15')
    file.write_text(older)
    dsel.append(frame[:5], tmp_path / "s.zarr")
    notes = dsel.select(tmp_path / "s.zarr", k=1, missing="mean").notes
    assert "X had 30 missing cells when the store was written" in str(notes)


def test_a_column_of_mixed_kinds_is_one_of_the_problems() -> None:
    frame = FRAME[["x", "z"]].assign(day=pd.date_range("2020-01-01", periods=M), age=[39, "unknown"] * (M // 2))
    with pytest.raises(DataError) as error:
        dsel.select(frame, Y, k=1)
    assert "X has 2 problems" in str(error.value)
    assert "column 'age' of type object holds values of several kinds: int, str. Give it one type" in str(error.value)
    assert dsel.select(frame, Y, k=1, exclude=["age"], dates="days").k == 1


@pytest.mark.parametrize("lazy", ["dask", "xarray"])
def test_values_that_are_not_counted_have_a_note(lazy: str) -> None:
    values = np.random.default_rng(5).normal(size=(60, 4))
    y = values[:, 1].copy()
    values[:20, 1] = np.nan
    X = da.from_array(values, chunks=(20, 4))
    X = X if lazy == "dask" else xr.DataArray(X, dims=("time", "feature"))
    expected, found = (dsel.select(data, y, k=1, missing="mean") for data in (values, X))
    assert found.error == pytest.approx(expected.error)
    assert "20 of 60 in 'x1'" in expected.notes[0]
    assert "missing values of X, if there are any, became the mean of their column" in found.notes[0]
    whole = dsel.select(np.nan_to_num(values), y, k=1, missing="mean")
    assert not any("missing" in note for note in whole.notes)


def test_a_note_says_that_left_out_rows_count_in_the_means() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    X[3, 1] = np.nan
    asked: dict[str, Any] = {"k": "auto", "max_k": 2, "method": "forward", "missing": "mean"}
    said = "the means are those of all rows, so the left-out rows that choose k count in them"
    for rule, there in (({"folds": 3}, True), ({"held_out": 0.2}, True), ("bic", False), ({"held_out": (X, y)}, False)):
        assert (said in dsel.select(X, y, choose_k=rule, **asked).notes) == there

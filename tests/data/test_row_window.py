"""A window is the same as a store of its rows alone, and no row outside it is read."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import xarray as xr
import zarr

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.append.append import compact_store
from dsel.data.as_dataset import as_dataset
from dsel.data.divide_rows import select_rows
from dsel.data.ingest import ingest_arrays
from dsel.data.store.reader import open_store
from dsel.data.store.segments import begin_append, publish_append
from dsel.errors import DataError, OptionError
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_statistics import column_statistics
from dsel.passes.gram import gram_statistics
from dsel.passes.statistics_cache import StatisticsCache
from tests.data.test_sparse import write
from tests.stores import append_rows, count_reads, make_store, regression, write_rows

X, Y = regression(m=500)
NIGHTS = [300, 320, 341, 400, 460, 500]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_store(tmp_path_factory.mktemp("window") / "s.zarr", X[:300], Y[:300], chunks=(20, 7))
    for rows in NIGHTS[1:]:
        append_rows(path, X[:rows], Y[:rows])
    group = zarr.open_group(path)
    minutes = np.arange(500) * 30
    times = group.create_array("time", data=minutes, dimension_names=["sample"])
    times.attrs.update({"units": "minutes since 2026-08-01", "calendar": "proleptic_gregorian"})
    group.create_array("batch", data=np.arange(500) // 50, dimension_names=["sample"])
    group.create_array("mixed", data=np.arange(500) % 50, dimension_names=["sample"])
    named = group.create_array("day", shape=(500,), dtype="str", dimension_names=["sample"])
    named[:] = np.array([f"2026-08-{1 + i // 48:02d}" for i in range(500)], dtype=object)
    return path


def rows_of(store: Path, rows: Any) -> tuple[int, int]:
    window = SelectionRequest(k=1, rows=rows).rows
    found = select_rows(as_dataset(str(store)), window)
    return found.first_row, found.first_row + found.m


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"last": 1}, (460, 500)), ({"last": 3}, (341, 500)), ({"last": 6}, (0, 500)), ({"last": 90}, (0, 500)),
        ({"first": 1}, (0, 300)), ({"first": 4}, (0, 400)), ({"first": 7}, (0, 500)),
        ({"last": 0.2}, (400, 500)), ({"first": 0.2}, (0, 100)), ({"last": 0.001}, (499, 500)),
        ({"batch": [4, 6]}, (200, 300)), ({"batch": [None, 1]}, (0, 50)), ({"batch": [8.5, None]}, (450, 500)),
        ({"day": ["2026-08-02", "2026-08-03"]}, (48, 96)), ({"day": ["2026-08-09", None]}, (384, 500)),
        ({"time": ["2026-08-02", None]}, (48, 500)), ({"time": [None, "2026-08-01T01:00:00Z"]}, (0, 2)),
        ({"time": [date(2026, 8, 2), date(2026, 8, 3)]}, (48, 96)),
    ],
)  # fmt: skip
def test_the_rows_of_a_window(store: Path, rows: Any, expected: tuple[int, int]) -> None:
    assert rows_of(store, rows) == expected


@pytest.mark.parametrize("method", ["poss", "forward", "greedy-rls", "kfold"])
@pytest.mark.parametrize("rows", [{"last": 3}, {"batch": [1, 9]}])
def test_a_selection_on_a_window_is_one_on_its_rows(store: Path, rows: Any, method: str) -> None:
    options = {"iterations": 2000} if method == "poss" else {"lam": 1.0}
    start, stop = rows_of(store, rows)
    found = dsel.select(store, k=3, rows=rows, method=method, **options)  # type: ignore[arg-type]
    expected = dsel.select(X[start:stop], Y[start:stop], k=3, method=method, **options)  # type: ignore[arg-type]
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-10)


def test_column_blocks_have_windows_too(store: Path) -> None:
    found = column_statistics(ColumnBlocks(select_rows(as_dataset(str(store)), {"batch": [1, 9]})))
    expected = column_statistics(ColumnBlocks(as_dataset(X[50:450], Y[50:450])))
    np.testing.assert_allclose(found.squared, expected.squared, rtol=1e-12)
    np.testing.assert_allclose(found.B, expected.B, rtol=1e-10, atol=1e-10)


def test_folds_of_groups_are_those_of_the_window(store: Path) -> None:
    rule: Any = {"by": "folds", "row_groups": "mixed", "folds": 3}
    found = dsel.select(store, k="auto", choose_k=rule, rows={"last": 0.4}, max_k=4, method="forward")
    rule = {**rule, "row_groups": np.arange(500)[300:] % 50}
    expected = dsel.select(X[300:], Y[300:], k="auto", choose_k=rule, max_k=4, method="forward")
    assert found.indices == expected.indices


def test_a_sparse_store_has_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.data.store.sparse.BLOCK_BYTES", 1000)
    sparse = scipy.sparse.random(90, 12, density=0.3, random_state=0, format="csr")
    y = np.asarray(sparse[:, [3]].todense()).ravel() + np.arange(90) / 90
    path = write(tmp_path / "s.zarr", sparse, chunk=50, y=y)
    found = dsel.select(path, k=2, rows={"last": 0.4}, method="forward", targets=["y"])
    expected = dsel.select(sparse[54:], y[54:], k=2, method="forward")
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-10)


def test_a_rolling_window_reads_only_new_segments(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.zarr", X[:100], Y[:100], chunks=(20, 24))
    cache = StatisticsCache(tmp_path / "artefacts")
    for rows in (140, 180, 220, 260):
        append_rows(path, X[:rows], Y[:rows])
        data = select_rows(as_dataset(str(path)), {"last": 3})
        count = count_reads()
        found = gram_statistics(data, cache=cache)
        read = sorted(int(key.split("/")[2]) for key in count if key.startswith("X/"))
        assert read == ([0, 1, 2, 3, 4, 5, 6] if rows == 140 else [rows // 20 - 2, rows // 20 - 1])
        np.testing.assert_array_equal(found.K, gram_statistics(data).K)
        np.testing.assert_allclose(
            found.K, gram_statistics(as_dataset(X[data.first_row : rows])).K, rtol=1e-11, atol=1e-9
        )


def test_a_window_and_all_rows_share_what_is_saved(store: Path, tmp_path: Path) -> None:
    cache = StatisticsCache(tmp_path / "artefacts")
    gram_statistics(as_dataset(str(store)), cache=cache)
    count = count_reads()
    gram_statistics(select_rows(as_dataset(str(store)), {"last": 4}), cache=cache)
    assert not [key for key in count if key.startswith("X/")]


def test_weights_and_fingerprints_are_those_of_the_window(tmp_path: Path) -> None:
    w = np.linspace(0.5, 2.0, 500)
    path = tmp_path / "s.zarr"
    ingest_arrays(X, path, y=Y, weight=w, chunks=(20, 24))
    found = dsel.select(path, k=3, rows={"last": 0.31}, method="forward")
    expected = dsel.select(X[345:], Y[345:], k=3, sample_weight=w[345:], method="forward")
    assert (found.indices, found.error) == (expected.indices, pytest.approx(expected.error, rel=1e-12))
    whole = as_dataset(str(path))
    prints = {whole.fingerprint, *(select_rows(whole, rows).fingerprint for rows in ({"last": 0.3}, {"last": 0.4}))}
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"last": 0}, "at least 1 segment"), ({"last": 1.5}, "share of the rows"), ({"last": True}, "a number of"),
        ({"last": 3, "first": 2}, "one key"), (90, "one key"), ({"time": "2026"}, "from, to"),
        ({"time": [None, None]}, "one of the two ends"), ({"time": [1, "b"]}, "both ends"),
        ({"time": [[1], None]}, "neither a number"),
    ],
)  # fmt: skip
def test_a_window_that_makes_no_sense_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SelectionRequest.of(k=1, rows=rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"tim": [1, None]}, "no variable 'tim'. It has .*batch"), ({"X": [1, None]}, "shape"),
        ({"batch": ["a", None]}, "numbers"),
        ({"day": [3, None]}, "text"), ({"time": ["soon", None]}, "not a time"), ({"batch": [100, None]}, "no row"),
    ],
)  # fmt: skip
def test_a_window_that_the_store_does_not_have_is_refused(store: Path, rows: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        dsel.select(store, k=1, rows=rows)


def test_rows_out_of_order_are_refused(store: Path) -> None:
    with pytest.raises(DataError, match="row 50 has 0 after 49"):
        dsel.select(store, k=1, rows={"mixed": [3, None]})


def test_data_in_memory_have_no_windows() -> None:
    with pytest.raises(OptionError, match="not in a store"):
        dsel.select(X, Y, k=1, rows={"last": 2})
    with pytest.raises(OptionError, match="not in a store"):
        dsel.select(xr.DataArray(X, dims=("sample", "feature")), Y, k=1, rows={"last": 2})


def test_without_a_variable_time_segments_are_chosen_by_their_time(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.zarr", X[:100], Y[:100], chunks=(20, 24))
    for day, rows in ((1, 120), (2, 150), (3, 180)):
        begin_append(path, open_store(path).shape[0])
        write_rows(path, X[:rows], Y[:rows])
        publish_append(path, rows, time=f"2031-08-{day:02d}T02:00:00+00:00")
    assert rows_of(path, {"time": ["2031-08-02", None]}) == (120, 180)
    assert rows_of(path, {"time": ["2031-08-01", "2031-08-03T03:00:00+02:00"]}) == (100, 150)
    assert rows_of(path, {"time": [None, "2031-08-02"]}) == (0, 120)
    with pytest.raises(OptionError, match="no row"):
        dsel.select(path, k=1, rows={"time": ["2040-01-01", None]})


def test_merged_segments_keep_the_windows(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    dsel.ingest(X[:300], path, y=Y[:300])
    for night, (start, stop) in enumerate(pairwise(NIGHTS), 1):
        dsel.append(X[start:stop], path, y=Y[start:stop], time=f"2030-01-{night:02d}")
    windows: list[Any] = [{side: n} for side in ("first", "last") for n in range(1, 7)]
    windows += [{"time": [f"2030-01-{a:02d}", f"2030-01-{b:02d}"]} for a in range(1, 6) for b in range(a + 1, 7)]
    expected = [rows_of(path, rows) for rows in windows]
    assert expected[5:8] == [(0, 500), (460, 500), (400, 500)]
    found = dsel.select(path, k=3, rows={"last": 2}, method="forward")
    for left in (3, 1):
        compact_store(path, left)
        assert [rows_of(path, rows) for rows in windows] == expected
        again = dsel.select(path, k=3, rows={"last": 2}, method="forward")
        assert (again.indices, again.error) == (found.indices, pytest.approx(found.error, rel=1e-10))
    dsel.append(X[:7], path, y=Y[:7], time="2030-01-06")
    assert rows_of(path, {"last": 3}) == (400, 507)


def test_a_segment_that_an_older_version_merged_is_one_append(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    dsel.ingest(X[:300], path, y=Y[:300])
    for night, (start, stop) in enumerate(pairwise(NIGHTS), 1):
        dsel.append(X[start:stop], path, y=Y[start:stop], time=f"2030-01-{night:02d}")
    compact_store(path, 2)
    group = zarr.open_group(path)
    listed: Any = group.attrs["dsel_segments"]
    for one in listed["segments"]:
        one.pop("appends", None)
    group.attrs["dsel_segments"] = listed
    assert rows_of(path, {"last": 1}) == (300, 500)
    assert rows_of(path, {"time": ["2030-01-05", None]}) == (300, 500)

"""Appending rows: a store that grew holds what an ingest of all rows writes, and readers see the old rows or all."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsel
from dsel.data.info import describe, render
from dsel.data.ingest import ingest_arrays
from dsel.data.schema import staging_path
from dsel.data.store.reader import open_store
from dsel.data.store.sparse import open_sparse
from dsel.errors import DataError, DselError, OptionError, OutputError
from dsel.storage.locks import locked
from dsel.storage.paths import walk

M, N, ROWS = 37, 5, 8
RNG = np.random.default_rng(7)
X = RNG.normal(size=(M, N))
Y = RNG.normal(size=M)
PARTS = ((0, 10), (10, 11), (11, 30), (30, 37))
LABELS = list("abcde")


def table(start: int = 0, stop: int = M) -> pd.DataFrame:
    """Rows with labels, weights, a category and a target."""
    rows = pd.DataFrame(X[start:stop], columns=LABELS)
    rows["colour"] = ["red" if i % 3 else "blue" for i in range(start, stop)]
    rows["name"] = [f"s{i}" for i in range(start, stop)]
    rows["weight"] = np.arange(start, stop) % 4 + 0.5
    rows["yield"] = Y[start:stop]
    return rows


TABLE = {"target": "yield", "index": "name", "weight": "weight", "categorical": "colour"}


def write_csv(path: Path, start: int, stop: int) -> None:
    table(start, stop).to_csv(path, index=False)


def write_parquet(path: Path, start: int, stop: int) -> None:
    table(start, stop).to_parquet(path, index=False)


def write_npz(path: Path, start: int, stop: int) -> None:
    np.savez(path, X=X[start:stop], Y=Y[start:stop])


def write_npy(path: Path, start: int, stop: int) -> None:
    np.save(path, X[start:stop])


def write_nc(path: Path, start: int, stop: int) -> None:
    data = {"X": (("sample", "feature"), X[start:stop]), "Y": ("sample", Y[start:stop])}
    xr.Dataset(data, {"feature": LABELS}).to_netcdf(path, engine="h5netcdf")


FORMATS: dict[str, tuple[Callable[[Path, int, int], None], dict[str, Any]]] = {
    "csv": (write_csv, TABLE), "parquet": (write_parquet, TABLE), "npz": (write_npz, {}),
    "npy": (write_npy, {}), "nc": (write_nc, {"target": "Y", "variable": "X"}),
}  # fmt: skip


def contents(store: Path) -> dict[str, bytes]:
    """Return all files of a store but the metadata of its group, which say when it was written."""
    return {entry.key: (store / entry.key).read_bytes() for entry in walk(store) if entry.key != "zarr.json"}


# --- what is written ---


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_store_that_grew_is_that_of_all_rows_byte_for_byte(tmp_path: Path, suffix: str) -> None:
    write, options = FORMATS[suffix]
    write(tmp_path / f"all.{suffix}", 0, M)
    dsel.ingest(tmp_path / f"all.{suffix}", tmp_path / "all.zarr", **options, chunks=(ROWS, 2))
    for i, (start, stop) in enumerate(PARTS):
        file = tmp_path / f"{i}.{suffix}"
        write(file, start, stop)
        if i == 0:
            dsel.ingest(file, tmp_path / "s.zarr", **options, chunks=(ROWS, 2))
        else:
            report = dsel.append(file, tmp_path / "s.zarr")  # with the options of the ingest
            assert (report.rows, report.shape[0], report.segments) == (stop - start, stop, i + 1)
    assert contents(tmp_path / "s.zarr") == contents(tmp_path / "all.zarr")
    segments = open_store(tmp_path / "s.zarr").segments
    assert [(one.start, one.stop) for one in segments] == list(PARTS)
    assert segments[-1].source == f"3.{suffix}"
    assert xr.open_zarr(tmp_path / "s.zarr", consolidated=False)["X"].shape[0] == M
    assert not staging_path(tmp_path / "s.zarr").exists()


def test_a_sparse_store_grows(tmp_path: Path) -> None:
    import scipy.sparse as sp
    from sklearn.datasets import dump_svmlight_file

    dense = np.where(RNG.random((M, 12)) < 0.3, RNG.integers(1, 9, (M, 12)), 0).astype(float)
    dense[:, 11] = 1.0
    dense[0, 11] = 2.0
    for i, (start, stop) in enumerate(PARTS):
        part = dense[start:stop].copy()
        if i == 1:
            part[:, 11] = 0.0  # the last column has no value in this file
            dense[start:stop] = part
        dump_svmlight_file(part, Y[start:stop], str(tmp_path / f"{i}.svm"))
        (dsel.append if i else dsel.ingest)(tmp_path / f"{i}.svm", tmp_path / "s.zarr")
    store = open_sparse(tmp_path / "s.zarr")
    assert store.shape == (M, 12)
    found = sp.vstack([rows.read() for rows in store.blocks()]).toarray()
    np.testing.assert_array_equal(found, dense)
    np.testing.assert_allclose(store.column("target", "targets").read(0, M), Y)
    assert [(one.start, one.stop) for one in store.segments] == list(PARTS)
    assert len({one.fingerprint() for one in store.segments}) == 4
    attributes = json.loads((tmp_path / "s.zarr/X/zarr.json").read_text())["attributes"]
    assert attributes["shape"] == [M, 12]  # AnnData reads it


def test_columns_match_by_label_in_any_order_and_absent_categories_are_zeros(tmp_path: Path) -> None:
    dsel.ingest(table(0, 20), tmp_path / "s", **TABLE)
    more = table(20, 30)
    more["colour"] = "red"
    report = dsel.append(more[more.columns[::-1]], tmp_path / "s")
    store = open_store(tmp_path / "s")
    rows = store.x.read(20, 30)
    np.testing.assert_array_equal(rows[:, :5], X[20:30])
    assert rows[:, store.features.tolist().index("colour=blue")].tolist() == [0.0] * 10
    assert report.notes == ["categories that do not occur: colour=blue"]


def test_a_missing_category_of_new_rows_counts_once(tmp_path: Path) -> None:
    city = pd.Categorical(["Ulm", "Bonn", "Kiel", None])
    frame = pd.DataFrame({"city": city, "age": [1.0, np.nan, 3.0, 4.0]})
    missing = "missing values in 2 columns"
    ingested, appended = dsel.ingest(frame, tmp_path / "s"), dsel.append(frame, tmp_path / "s")
    assert any(line.startswith(f"{missing}: city (1), age (1);") for line in ingested.lines())
    assert f"{missing} of the new rows: city (1), age (1)" in appended.lines()
    assert ingested.missing == appended.missing == {"city": 1, "age": 1}


def test_categories_may_hold_the_sign_after_their_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"town=1": ["x=y", "z=1", "x=y"], "size": [1.0, 2.0, 4.0]})
    dsel.ingest(frame, tmp_path / "s", categorical="town=1")
    report = dsel.append(frame[:1], tmp_path / "s")
    assert report.notes == ["categories that do not occur: town=1=z=1"]
    with pytest.raises(DataError, match="new categories, for which the store has no column: town=1=new=1"):
        dsel.append(pd.DataFrame({"town=1": ["new=1"], "size": [3.0]}), tmp_path / "s")


def test_a_coarse_chunk_holds_many_small_appends(tmp_path: Path) -> None:
    dsel.ingest(table(0, 3), tmp_path / "s", **TABLE, chunk_rows=100)
    for start in (3, 5, 7):
        dsel.append(table(start, start + 2), tmp_path / "s")
    assert open_store(tmp_path / "s").x.read(0, 9).shape == (9, 7)
    assert len(list((tmp_path / "s/X/c").iterdir())) == 1


def test_the_time_of_the_rows_is_recorded(tmp_path: Path) -> None:
    dsel.ingest(table(0, 3), tmp_path / "s", **TABLE)
    dsel.append(table(3, 5), tmp_path / "s", time="2026-08-01")
    assert open_store(tmp_path / "s").segments[1].time == "2026-08-01"
    assert "2026-08-01" in render(describe(tmp_path / "s"))
    with pytest.raises(OptionError, match="time is 'yesterday'"):
        dsel.append(table(3, 5), tmp_path / "s", time="yesterday")


def test_a_file_is_appended_once(tmp_path: Path) -> None:
    dsel.ingest(table(0, 3), tmp_path / "s", **TABLE)
    write_csv(tmp_path / "n.csv", 3, 6)
    assert dsel.append(tmp_path / "n.csv", tmp_path / "s").rows == 3
    report = dsel.append(tmp_path / "n.csv", tmp_path / "s")
    assert (report.rows, report.shape[0]) == (0, 6)
    assert "nothing to do" in report.lines()[0]
    assert dsel.append(tmp_path / "n.csv", tmp_path / "s", again=True).shape[0] == 9


# --- what does not fit ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="b"), "missing: 'b'"),
        (lambda t: t.assign(humidity=1.0), "not in the store: 'humidity'"),
        (lambda t: t.rename(columns={"c": "temperature", "d": "e2"}), "missing: 'c', 'd'; not in the store: 'temp"),
        (lambda t: t.assign(colour="green"), "new categories, for which the store has no column: colour=green"),
        (lambda t: t.assign(colour=1.5), "column 'colour' has numbers, and categories in the store"),
        (lambda t: t.assign(b="x"), "column 'b' has words, and numbers in the store"),
    ],
)
def test_an_error_names_all_differences_before_anything_is_written(tmp_path: Path, change: Any, words: str) -> None:
    dsel.ingest(table(0, 6), tmp_path / "s", **TABLE)
    before = contents(tmp_path / "s"), (tmp_path / "s/zarr.json").read_bytes()
    categorical = ["colour", "b"] if "words" in words else [] if "has numbers" in words else None
    with pytest.raises(DataError, match=words) as raised:
        dsel.append(change(table(6, 9)), tmp_path / "s", categorical=categorical)
    assert "Correct the source, or the options that name its columns" in str(raised.value)
    assert (contents(tmp_path / "s"), (tmp_path / "s/zarr.json").read_bytes()) == before


def test_a_renamed_column_is_recognized(tmp_path: Path) -> None:
    dsel.ingest(pd.DataFrame({"a": [1.0, 2.0]}), tmp_path / "blank")
    with pytest.raises(DataError, match="column 'a' is missing and ' a ' is new: perhaps it was renamed"):
        dsel.append(pd.DataFrame({" a ": [3.0]}), tmp_path / "blank")
    frame = pd.DataFrame({"pressure": [1.0, 2.0], "yield": [0.0, 1.0]})
    dsel.ingest(frame, tmp_path / "s", target="yield")
    with pytest.raises(DataError, match="'pressure' is missing and 'Pressure1' is new: perhaps it was renamed"):
        dsel.append(frame.rename(columns={"pressure": "Pressure1"}), tmp_path / "s")


def counts(**columns: Any) -> pd.DataFrame:
    """Rows of whole numbers, with weights."""
    return pd.DataFrame({"a": [1, 2, 3], "weight": [1, 2, 1], "y": [4, 0, 7]}).assign(**columns)


def test_values_that_the_dtypes_of_the_store_hold_are_appended_from_a_file_with_other_dtypes(tmp_path: Path) -> None:
    dsel.ingest(counts(), tmp_path / "s", target="y", weight="weight")  # int64
    counts().iloc[::-1].to_csv(tmp_path / "more.csv", index=False)  # float64
    dsel.append(tmp_path / "more.csv", tmp_path / "s")
    store = open_store(tmp_path / "s")
    rows = (
        store.x.read(3, 6)[:, 0],
        store.y.read(3, 6)[:, 0],
        xr.open_zarr(tmp_path / "s", consolidated=False)["weight"].values[3:],
    )
    assert [part.tolist() for part in rows] == [[3, 2, 1], [7, 0, 4], [1, 2, 1]]
    assert {part.dtype.name for part in rows} == {"int64"}


def test_a_value_that_the_dtype_of_the_store_does_not_hold_is_named_with_a_remedy_that_works(tmp_path: Path) -> None:
    first = counts()
    dsel.ingest(first, tmp_path / "s", target="y", weight="weight")

    def append(store: str, rows: pd.DataFrame, **options: Any) -> int:
        return dsel.append(rows, tmp_path / store, **options).rows

    with pytest.raises(DataError, match=r"row 1, column 'a', is 2\.5, and int64, the dtype of X in.*dtype=.float64"):
        append("s", counts(a=[1, 2.5, 3]))
    with pytest.raises(
        DataError, match=r"row 0 is 0\.5, and int64, the dtype of the weights in the store, does not hold it"
    ):
        append("s", counts(weight=[0.5, 1, 1]))
    with pytest.raises(DataError, match=r"'y', is missing.*missing=.rows"):
        append("s", counts(y=[1, np.nan, 1]))
    assert append("s", counts(y=[1, np.nan, 1]), missing="rows") == 2
    dsel.ingest(first, tmp_path / "t", target="y", weight="weight", dtype="float64")
    assert append("t", counts(a=[1, 2.5, 3])) == 3
    dsel.ingest(first.astype({"a": "float32"}), tmp_path / "u", target="y", weight="weight")
    with pytest.raises(DataError, match=r"is 0\.1, and float32, .* dtype=.float32., which rounds"):
        append("u", counts(a=0.1))
    assert append("u", counts(a=0.1), dtype="float32") == 3


def test_a_file_of_another_format_gets_the_options_of_the_ingest_that_its_format_takes(tmp_path: Path) -> None:
    write_nc(tmp_path / "0.nc", 0, 20)
    dsel.ingest(tmp_path / "0.nc", tmp_path / "s", target="Y", variable="X")
    pd.DataFrame({**dict(zip(LABELS, X[20:].T, strict=True)), "Y": Y[20:]}).to_csv(tmp_path / "1.csv", index=False)
    dsel.append(tmp_path / "1.csv", tmp_path / "s")  # variable is no option of text files
    assert rows_seen(tmp_path / "s") == M


def test_a_text_file_has_the_categories_that_a_type_has_shown(tmp_path: Path) -> None:
    frame = table().astype({"colour": "category"})
    dsel.ingest(frame, tmp_path / "s", **TABLE | {"categorical": None})
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert dsel.append(tmp_path / "new.csv", tmp_path / "s").shape[0] == 2 * M
    x = open_store(tmp_path / "s").x
    assert np.array_equal(x.read(0, M), x.read(M, 2 * M))


def test_missing_targets_are_told_of(tmp_path: Path) -> None:
    dsel.ingest(pd.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]}), tmp_path / "s", target="y")
    report = dsel.append(pd.DataFrame({"a": [3.0, 4.0], "y": [np.nan, 2.0]}), tmp_path / "s")
    assert report.missing_targets == {"y": 1}
    assert any(line.startswith("missing targets in the new rows: y (1); no selection") for line in report.lines())


def test_a_missing_class_counts_once_and_a_plan_says_that_targets_are_missing(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(8.0), "y": [*"uvwuvw", None, "u"]})
    ingested = dsel.ingest(frame, tmp_path / "s", target="y")
    assert any("missing values in 1 target: y (1); no selection" in line for line in ingested.lines())
    report = dsel.append(frame.assign(a=frame.a + 1.0), tmp_path / "s")
    assert any(line.startswith("missing targets in the new rows: y (1); no selection") for line in report.lines())
    assert ingested.missing_targets == report.missing_targets == {"y": 1}
    plan = dsel.plan(tmp_path / "s", k=1, calibrate=False)
    assert any("of the targets are missing" in note and "--missing rows" in note for note in plan.notes)


def test_an_error_about_an_option_of_the_ingest_says_so(tmp_path: Path) -> None:
    X = np.ones((3, 2))
    np.savez(tmp_path / "a.npz", X=X, w=X[:, 0])
    np.savez(tmp_path / "b.npz", X=X, v=X[:, 0])
    dsel.ingest(tmp_path / "a.npz", tmp_path / "s", weight="w")
    with pytest.raises(OptionError, match="This weight is that with which the store was ingested"):
        dsel.append(tmp_path / "b.npz", tmp_path / "s")
    assert dsel.append(tmp_path / "b.npz", tmp_path / "s", weight="v").rows == 3


def test_labels_of_samples_that_the_store_has_no_place_for_are_left_out(tmp_path: Path) -> None:
    dsel.ingest(counts(), tmp_path / "s", target="y")
    report = dsel.append(counts().set_index(pd.Index(list("uvw"), name="name")), tmp_path / "s")
    assert report.notes == ["the labels of the samples are left out: the store has none"]


def test_other_differences(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=X.astype("float32"), Y=Y)
    dsel.ingest(tmp_path / "x.npz", tmp_path / "s")
    np.savez(tmp_path / "y.npz", X=X[:, :4], Y=Y)
    with pytest.raises(DataError, match="X has 4 columns, and 5 in the store"):
        dsel.append(tmp_path / "y.npz", tmp_path / "s")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match=r"the store has targets \(y0\), and the source has none"):
        dsel.append(tmp_path / "x.npy", tmp_path / "s", dtype="float32")
    dsel.ingest(table(0, 6), tmp_path / "t", target="yield", drop=["colour", "name", "weight"])
    dsel.append(table(6, 9), tmp_path / "t")  # leaves the same columns out
    with pytest.raises(DataError, match="the source has weights, and the store has none"):
        dsel.append(table(6, 9), tmp_path / "t", weight="weight", drop=["colour", "name"])
    import zarr

    zarr.open_group(tmp_path / "f")
    xr.Dataset({"X": (("sample", "feature"), X)}).to_zarr(tmp_path / "f.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(OptionError, match="was not written by dsel"):
        dsel.append(table(0, 3), tmp_path / "f.zarr")


# --- interruptions, and readers meanwhile ---


def rows_seen(store: Path) -> int:
    """Return how many rows a reader sees, all of which are right."""
    found = open_store(store)
    m = found.shape[0]
    np.testing.assert_array_equal(found.x.read(0, m), X[:m])
    assert found.y is not None
    np.testing.assert_array_equal(found.y.read(0, m)[:, 0], Y[:m])
    return m


def start_store(folder: Path) -> Path:
    write_npz(folder / "0.npz", 0, 10)
    write_npz(folder / "1.npz", 10, M)
    dsel.ingest(folder / "0.npz", folder / "s", chunks=(ROWS, 3))
    return folder / "s"


def killed_at(write: int, work: Callable[[], Any]) -> bool:
    """Do the work in a process that is dead before it replaces a file for this time; return whether it died."""
    child = os.fork()
    if child == 0:
        real, count = os.replace, [0]

        def replace(*arguments: Any, **options: Any) -> None:
            count[0] += 1
            if count[0] > write:
                os._exit(9)
            real(*arguments, **options)

        os.replace = replace  # type: ignore[assignment]
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_a_process_killed_at_any_write_leaves_the_old_rows_and_the_same_call_continues(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    expected = start_store(plain)
    dsel.append(plain / "1.npz", expected)
    seen, write = [], 0
    while True:
        folder = tmp_path / str(write)
        folder.mkdir()
        store = start_store(folder)
        dead = killed_at(write, lambda: dsel.append(folder / "1.npz", store))  # noqa: B023  (it is called at once)
        seen.append(rows_seen(store))
        dsel.append(folder / "1.npz", store)
        assert rows_seen(store) == M
        assert contents(store) == contents(expected)
        assert len(open_store(store).segments) == 2
        if not dead:
            break
        write += 2
    assert seen[:-1].count(10) >= len(seen) - 4
    assert seen[-1] == M
    assert len(seen) > 8


def test_what_an_abandoned_append_wrote_is_replaced_by_the_next_one(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    before = [one.fingerprint() for one in open_store(store).segments]
    np.savez(tmp_path / "wrong.npz", X=X + 1, Y=Y)
    assert killed_at(16, lambda: dsel.append(tmp_path / "wrong.npz", store))
    assert rows_seen(store) == 10
    assert [one.fingerprint() for one in open_store(store).segments] == before
    write_npz(tmp_path / "small.npz", 10, 12)
    dsel.append(tmp_path / "small.npz", store)
    assert rows_seen(store) == 12
    assert sorted(entry.key for entry in walk(store / "X")) == ["c/0/0", "c/0/1", "c/1/0", "c/1/1", "zarr.json"]
    assert [one.fingerprint() for one in open_store(store).segments][:1] == before


def test_readers_during_an_append_see_the_old_rows_or_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = start_store(tmp_path)
    old, seen, real = open_store(store), [], os.replace
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(rows_seen(store))
            np.testing.assert_array_equal(old.x.read(0, 10), X[:10])

    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            read()
        except BaseException as error:
            errors.append(error)

    def replace(*arguments: Any, **options: Any) -> None:
        before, real_result = len(seen), real(*arguments, **options)
        while len(seen) <= before + 1 and not errors:  # at least one more look after each write
            done.wait(0.005)
        return real_result

    thread = threading.Thread(target=guarded)
    thread.start()
    monkeypatch.setattr(os, "replace", replace)
    try:
        dsel.append(tmp_path / "1.npz", store)
    finally:
        done.set()
        thread.join()
    assert not errors
    assert set(seen) == {10, M} or set(seen) == {10}
    assert seen == sorted(seen)
    assert len(seen) > 10


def test_a_temporary_file_that_is_renamed_while_files_are_listed_is_left_out(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    listed = walk(tmp_path)
    left = {"a", "b"} - {next(listed).key}
    (tmp_path / left.pop()).unlink()
    assert list(listed) == []


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    with locked(staging_path(store), "first", "s"), pytest.raises(OutputError, match="Another run is writing"):
        dsel.append(tmp_path / "1.npz", store)
    (staging_path(store) / "store").mkdir(parents=True)
    (staging_path(store) / "progress.json").write_text('{"key": {"format": 1}, "rows": 5}')
    with pytest.raises(OutputError, match=r"An ingest that replaces .* was interrupted"):
        dsel.append(tmp_path / "1.npz", store)
    assert rows_seen(store) == 10


def test_a_disk_that_is_full_is_an_error_and_the_call_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dsel.data.store.dense_writer as writing

    store, real = start_store(tmp_path), writing._store

    def full(array: Any, first: int, band: Any) -> None:
        if first == 24:
            raise OSError(28, "No space left on device")
        real(array, first, band)

    monkeypatch.setattr(writing, "_store", full)
    with pytest.raises(DselError, match="disk is full"):
        dsel.append(tmp_path / "1.npz", store)
    assert rows_seen(store) == 10
    monkeypatch.setattr(writing, "_store", real)
    assert dsel.append(tmp_path / "1.npz", store).resumed_rows == 14
    assert rows_seen(store) == M


def test_arrays_in_memory(tmp_path: Path) -> None:
    ingest_arrays(X[:10], tmp_path / "s", features=LABELS)
    dsel.append(pd.DataFrame(X[10:], columns=LABELS), tmp_path / "s")
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)

"""Tables as people have them: text, categories, dates, missing values; one message lists all that cannot be used."""

from __future__ import annotations

import io
import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dsel
from dsel.data.ingest import ingest
from dsel.data.store.reader import Store, open_store
from dsel.errors import DataError, OptionError

HOUSES = """id,area,rooms,colour,sold,comment,garden,price
h1,120.5,3,red,2020-01-05,quiet street,true,high
h2,,4,blue,2020-02-07,near the station,false,low
h3,98,unknown,red,2021-03-01,needs a new roof,TRUE,high
h4,70,2,,2021-04-01,as new,false,mid
"""


def write(folder: Path, text: str, name: str = "d.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def stored(folder: Path, text: str, **options: Any) -> Store:
    ingest(write(folder, text), folder / "s.zarr", **options)
    return open_store(folder / "s.zarr")


def whole(store: Store) -> list[Any]:
    return store.x.read(0, store.shape[0]).tolist()


def test_all_problems_are_reported_together_with_the_value_the_row_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        ingest(write(tmp_path, HOUSES), tmp_path / "s.zarr", target="price")
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("has 5 problems (the first row of data is row 0):")
    for line, words in zip(
        lines[1:],
        [
            ("row 0, column 'id': 'h1' is text (4 different values)", "categorical", "index", "drop"),
            ("row 2, column 'rooms': 'unknown' is not a number (1 of 4 values are not)", "under na"),
            ("row 0, column 'colour': 'red' is text (2 different values)", "categorical"),
            ("column 'sold' holds dates or times (date32[day]), such as 2020-01-05 in row 0", "drop"),
            ("row 0, column 'comment': 'quiet street' is text (4 different values)", "drop"),
        ],
        strict=True,
    ):
        assert all(word in line for word in words), line
    assert not (tmp_path / "s.zarr").exists()


def test_the_remedies_of_the_message_make_a_store(tmp_path: Path) -> None:
    report = ingest(
        write(tmp_path, HOUSES), tmp_path / "s.zarr", target="price", index="id", na="unknown", categorical="colour",
        drop="sold,comment",
    )  # fmt: skip
    store = open_store(tmp_path / "s.zarr")
    assert store.features.tolist() == ["area", "rooms", "colour=blue", "colour=red", "garden"]
    nan = np.nan
    np.testing.assert_array_equal(
        whole(store), [[120.5, 3, 0, 1, 1], [nan, 4, 1, 0, 0], [98, nan, 0, 1, 1], [70, 2, nan, nan, 0]]
    )
    assert store.sources is not None
    assert store.sources.tolist() == ["area", "rooms", "colour", "colour", "garden"]
    assert store.targets.tolist() == ["price=high", "price=low", "price=mid"]
    assert store.attributes["dsel_classes"] == {"price": ["high", "low", "mid"]}
    assert report.missing == {"area": 1, "rooms": 1, "colour": 1}
    assert report.categories == {"colour": 2}
    assert report.classes == {"price": ["high", "low", "mid"]}


def test_auto_takes_text_with_few_values_and_no_column_that_is_mostly_numbers(tmp_path: Path) -> None:
    rows = "\n".join(f"{'ab'[i % 2]},note {i},{i if i != 5 else 'five'}" for i in range(60))
    with pytest.raises(DataError) as caught:
        ingest(write(tmp_path, f"kind,note,number\n{rows}\n"), tmp_path / "s.zarr", categorical="auto")
    said = str(caught.value)
    assert "has 2 problems" in said
    assert "'note 0' is text, and nearly all of its values differ, as those of an identifier." in said
    assert "row 5, column 'number': 'five' is not a number (1 of 60" in said
    store = stored(tmp_path, f"kind,note,number\n{rows}\n", categorical=["auto", "number"], drop="note")
    assert store.shape == (60, 62)


def test_numbers_may_be_categories(tmp_path: Path) -> None:
    store = stored(tmp_path, "zip,a\n10115,1\n80331,2\n9999,3\n10115,4\n", categorical="zip")
    assert store.features.tolist() == ["zip=9999", "zip=10115", "zip=80331", "a"]
    assert whole(store)[3] == [0, 1, 0, 4]


def test_a_late_value_that_is_not_of_the_guessed_type_is_found(tmp_path: Path) -> None:
    """pyarrow guesses types from the first block only."""
    rows = "\n".join(f"{i},{i}" for i in range(40_000))
    with pytest.raises(DataError) as caught:
        ingest(write(tmp_path, f"a,b\n{rows}\n1,x\ny,2\n"), tmp_path / "s.zarr")
    assert "row 40001, column 'a': 'y' is not a number (1 of 40002" in str(caught.value)
    assert "row 40000, column 'b': 'x' is not a number (1 of 40002" in str(caught.value)
    store = stored(tmp_path, f"a,b\n{rows}\n1,x\ny,2\n", na=["x", "y"])
    assert store.shape == (40_002, 2)
    assert np.isnan(store.x.read(40_000, 40_002)).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("words", [" null ", "+5", "1_000", "0x10", "TRUE", "1e400", "-inf", "Infinity", ".5", "5."])
def test_a_word_is_a_number_whatever_stands_around_it_or_is_reported(tmp_path: Path, words: str) -> None:
    expected = {" null ": np.nan, "+5": 5.0, ".5": 0.5, "5.": 5.0, "TRUE": 1.0}
    text = f"a,b\n1,1\n{words},2\n"
    if words in expected:
        np.testing.assert_array_equal(whole(stored(tmp_path, text)), [[1, 1], [expected[words], 2]])
    else:
        with pytest.raises(DataError, match=r"row 1, column 'a'"):
            stored(tmp_path, text)


def test_a_point_is_no_decimal_mark_next_to_another_one(tmp_path: Path) -> None:
    text = "a;y\n" + "".join(f"{i},5;1\n" for i in range(5)) + "1.234;2\n"
    with pytest.raises(DataError, match=r"'1.234' is not a number .* write them without marks of thousands"):
        stored(tmp_path, text, separator=";", decimal=",")


def test_separator_decimal_mark_and_line_breaks_in_quotes(tmp_path: Path) -> None:
    text = 'name;a;b\n"first\nline";1,5;2\n"x;y";-3,25;4\n'
    store = stored(tmp_path, text, separator=";", decimal=",", index="name")
    assert whole(store) == [[1.5, 2.0], [-3.25, 4.0]]
    assert store.samples is not None
    assert store.samples.tolist() == ["first\nline", "x;y"]


def test_wrong_lines_are_listed_with_their_numbers_next_to_other_problems(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        stored(tmp_path, "a,b\n1,2\n1,2,3\n4\n\nred,6\n")
    said = str(caught.value)
    assert "line 3 has 3 fields and the header has 2, line 4 has 1 fields" in said
    assert "column 'a': 'red' is not a number" in said


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("a,b\nM\xfcnchen,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        ingest(tmp_path / "d.csv", tmp_path / "s.zarr", categorical="a")


# --- missing values ---

GAPS = "a,b,y\n1,10,1\n,20,2\n3,,3\n5,40,\n6,50,5\n"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("keep", [[1, 10], [np.nan, 20], [3, np.nan], [5, 40], [6, 50]]),
        ("rows", [[1, 10], [6, 50]]),
    ],
)
def test_missing_values_are_kept_or_their_rows_left_out(tmp_path: Path, missing: Any, expected: Any) -> None:
    store = stored(tmp_path, GAPS, target="y", missing=missing)
    np.testing.assert_array_equal(whole(store), expected)


def test_missing_values_become_means_but_not_in_targets(tmp_path: Path) -> None:
    store = stored(tmp_path, GAPS, drop="y", missing="mean")
    np.testing.assert_array_equal(whole(store), [[1, 10], [3.75, 20], [3, 30], [5, 40], [6, 50]])
    with pytest.raises(DataError, match=r"row 3, column 'y': the value is missing.*missing=rows"):
        stored(tmp_path, GAPS, target="y", missing="mean", overwrite=True)


def test_means_are_weighted_where_rows_have_weights(tmp_path: Path) -> None:
    text = "a,c,w\n1,u,3\n,v,2\n5,v,1\n2,,1\n"
    found = whole(stored(tmp_path, text, weight="w", categorical="c", missing="mean"))
    np.testing.assert_allclose(found, [[1, 1, 0], [2, 0, 1], [5, 0, 1], [2, 0.5, 0.5]])
    frame = pd.read_csv(io.StringIO(text))
    selection = dsel.select(frame[["a", "c"]], [0.0, 1.0, 2.0, 4.0], k=2, sample_weight=frame.w, missing="mean")
    fill = dict(zip(selection.labels, selection.fill.tolist(), strict=True))  # the means of a selection
    assert fill == pytest.approx({"a": 2.0, "c=u": 0.5, "c=v": 0.5})


def test_only_remedies_for_missing_targets_that_help_are_named(tmp_path: Path) -> None:
    text = "a,b,y,z\n1,2,3,1\n2,,4,0\n3,1,,1\n"
    for missing in ("refuse", "mean"):
        with pytest.raises(DataError) as caught:
            stored(tmp_path, text, target=("y", "z"), missing=missing, overwrite=True)
        of_target = next(line for line in str(caught.value).splitlines() if "column 'y'" in line)
        assert "missing=rows leaves such rows out." in of_target
        assert "keep" not in of_target
    with pytest.raises(DataError, match="missing=rows leaves such rows out, missing=mean or keep admits them"):
        stored(tmp_path, text, drop=("y", "z"), missing="refuse")
    values = np.array([[1.0, 2.0], [3.0, np.nan]])
    np.savez(tmp_path / "x.npz", X=values)
    np.savez(tmp_path / "xy.npz", X=np.eye(2), Y=values)
    with pytest.raises(DataError, match=r"rows leaves such rows out, mean fills in means, keep stores NaN\.$"):
        ingest(tmp_path / "x.npz", tmp_path / "x.zarr", missing="refuse")
    with pytest.raises(DataError, match=r"rows leaves such rows out\.$"):
        ingest(tmp_path / "xy.npz", tmp_path / "x.zarr", missing="refuse")


def test_a_report_says_which_targets_have_missing_values(tmp_path: Path) -> None:
    text = "a,c,y,z,kind\n1,u,3,1,no\n2,v,,0,yes\n3,u,4,1,\n4,u,4,3,\n"

    def lines(*targets: str) -> str:
        others = tuple(name for name in ("y", "z", "kind") if name not in targets)
        report = ingest(write(tmp_path, text), tmp_path / "s.zarr", target=targets, drop=others, overwrite=True,
                        categorical="c")  # fmt: skip
        return "\n".join(report.lines())

    assert "missing values in 1 target: y (1); no selection takes them: ingest again with missing=rows (" in lines("y")
    some = "no selection of y takes them: select other targets, or ingest again with missing=rows (--missing rows)"
    assert f"missing values in 1 target: y (1); {some}" in lines("y", "z")
    assert "missing values in 1 target: kind (2); no selection takes them" in lines("kind")
    assert "missing values in 2 targets: y (1), kind (2); no selection of y, kind takes them" in lines("y", "z", "kind")
    assert ", 1 category" in lines("y")
    assert "columns: 1 double, 1 category; targets: 1 category" in lines("kind")


def test_refused_missing_values_are_listed_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        stored(tmp_path, GAPS, target="y", missing="refuse")
    for place in ("row 1, column 'a'", "row 2, column 'b'", "row 3, column 'y'", "missing=rows"):
        assert place in str(caught.value)
    with pytest.raises(OptionError, match="missing='drop' is not known"):
        stored(tmp_path, GAPS, missing="drop")


@pytest.mark.parametrize("missing", ["rows", "mean", "refuse"])
@pytest.mark.parametrize("stop_at", [None, 7, 14])
def test_arrays_with_missing_values(tmp_path: Path, missing: Any, stop_at: int | None) -> None:
    values = np.random.default_rng(0).standard_normal((30, 4))
    values[[3, 11, 12, 20], [0, 1, 1, 3]] = np.nan
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "y.npy", np.arange(30.0))
    options = {"y": tmp_path / "y.npy", "missing": missing, "chunks": (7, 4)}
    if missing == "refuse":
        with pytest.raises(DataError, match=r"3 columns have missing values: column 0 \(1, the first in row 3\)"):
            ingest(tmp_path / "x.npy", tmp_path / "s", **options)
        return
    if stop_at is not None:

        def stop(done: int, _: int) -> None:
            if done == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ingest(tmp_path / "x.npy", tmp_path / "s", progress=stop, **options)
    assert ingest(tmp_path / "x.npy", tmp_path / "s", **options).resumed_rows == (stop_at or 0)
    keep = ~np.isnan(values).any(axis=1) if missing == "rows" else slice(None)
    expected = np.where(np.isnan(values), np.nanmean(values, axis=0), values)[keep]
    store = open_store(tmp_path / "s")
    assert store.y is not None
    np.testing.assert_allclose(whole(store), expected, rtol=1e-14)
    np.testing.assert_array_equal(store.y.read(0, store.shape[0])[:, 0], np.arange(30.0)[keep])


def test_buffers_of_any_height_leave_out_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.data.formats.source.BUFFER_BYTES", 5 * 2 * 8)
    values = np.random.default_rng(0).standard_normal((50, 2))
    values[np.random.default_rng(1).random((50, 2)) < 0.3] = np.nan
    np.save(tmp_path / "x.npy", values)

    def stop(done: int, _: int) -> None:
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "x.npy", tmp_path / "s", missing="rows", chunks=(4, 2), progress=stop)
    ingest(tmp_path / "x.npy", tmp_path / "s", missing="rows", chunks=(4, 2))
    np.testing.assert_array_equal(whole(open_store(tmp_path / "s")), values[~np.isnan(values).any(axis=1)])


# --- the report ---


def test_the_report_counts_types_missing_values_constants_and_equal_columns(tmp_path: Path) -> None:
    text = "a,b,c,d,e,f\n" + "\n".join(f"{i},{2 * i},7,{i},{'' if i % 3 else i},true" for i in range(20))
    report = ingest(write(tmp_path, text), tmp_path / "s.zarr", chunks=(6, 6))
    assert (report.types, report.target_types) == ({"double": 5, "bool": 1}, {})
    assert report.missing == {"e": 13}
    assert report.constant == ["c", "f"]
    assert report.duplicates == [["a", "d"]]
    lines = "\n".join(report.lines())
    assert "missing values in 1 column: e (13)" in lines
    assert "equal columns: a = d" in lines
    assert "constant: c, f" in lines
    assert report.to_dict()["duplicates"] == [["a", "d"]]


def test_the_report_counts_features_and_targets_apart(tmp_path: Path) -> None:
    text = "a,b,kind,y\n" + "\n".join(f"{i},{i % 3},{'uv'[i % 2]},{i * i}" for i in range(20))
    report = ingest(write(tmp_path, text), tmp_path / "s.zarr", target="y", categorical="kind")
    assert "columns: 2 double, 1 category; targets: 1 double" in report.lines()


def test_the_report_after_an_interruption_is_that_of_all_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 3, (40, 6)).astype("float32")
    values[:, 3], values[:, 4], values[2, 5] = values[:, 0], 1.0, np.nan
    np.save(tmp_path / "x.npy", values)

    def stop(done: int, _: int) -> None:
        if done == 21:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "x.npy", tmp_path / "s", chunks=(7, 6), progress=stop)
    report = ingest(tmp_path / "x.npy", tmp_path / "s", chunks=(7, 6))
    assert (report.missing, report.constant, report.duplicates) == ({"x5": 1}, ["x4"], [["x0", "x3"]])


def test_both_readings_report_their_progress(tmp_path: Path) -> None:
    done: list[tuple[str, int, int]] = []
    path = write(tmp_path, "a,b\n1,2\n3,4\n")
    ingest(
        path, tmp_path / "s", scanned=lambda now, of: done.append(("scan", now, of)),
        progress=lambda now, of: done.append(("write", now, of)),
    )  # fmt: skip
    assert [kind for kind, _, _ in done] == ["scan", "write"]
    assert all(now == of for _, now, of in done)
    assert done[0][2] == path.stat().st_size


# --- data frames ---


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "a": [1.5, 2.5, 4.0],
            "flag": [True, False, True],
            "count": pd.array([1, None, 3], "Int64"),
            "size": pd.Categorical(["S", "L", "S"], categories=["S", "M", "L"]),
            "y": [0, 1, 2],
        },
        index=["p", "q", "r"],
    )


EXPECTED = [[1.5, 1, 1, 0, 1], [2.5, 0, np.nan, 1, 0], [4.0, 1, 3, 0, 1]]


def polars_frame() -> Any:
    data = frame().assign(size=frame()["size"].astype(str))
    columns = {name: data[name].tolist() for name in data} | {"count": [1, None, 3]}
    return pl.DataFrame(columns).with_columns(pl.col("size").cast(pl.Categorical))


def dask_frame() -> Any:
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(frame().assign(size=frame()["size"].astype(str)), npartitions=2)


FRAMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "pandas": (frame, {}),
    "pandas with pyarrow": (lambda: frame().convert_dtypes(dtype_backend="pyarrow"), {"categorical": ["size"]}),
    "polars": (polars_frame, {}),
    "arrow": (lambda: pa.Table.from_pandas(frame(), preserve_index=False), {}),
    "dask": (dask_frame, {"categorical": ["size"]}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_data_frame_is_stored_with_labels_and_categories(tmp_path: Path, kind: str) -> None:
    make, options = FRAMES[kind]
    ingest(make(), tmp_path / "s.zarr", target=["y"], **options)
    store = open_store(tmp_path / "s.zarr")
    assert store.features.tolist() == ["a", "flag", "count", "size=L", "size=S"]
    np.testing.assert_array_equal(whole(store), EXPECTED)
    assert store.targets.tolist() == ["y"]
    assert (None if store.samples is None else store.samples.tolist()) == (
        ["p", "q", "r"] if "pandas" in kind else None
    )


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    mixed = pd.DataFrame({"a": [1, "two", 3.0], "b": [date(2020, 1, 1)] * 3})
    with pytest.raises(DataError, match="olumn 'a' of type object holds values of several kinds: int, str, float"):
        ingest(mixed, tmp_path / "s.zarr")
    with pytest.raises(OptionError, match=r"source is a int.*Give a path"):
        ingest(3, tmp_path / "s.zarr")
    with pytest.raises(
        OptionError,
        match=r"data of type DataFrame do not take the option separator\. Leave it out: it is for csv, tsv files",
    ):
        ingest(frame(), tmp_path / "s.zarr", separator=";")
    pq.write_table(pa.table({"a": [[1, 2], [3]], "b": [1.0, 2.0]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"column 'a' holds no numbers \(list"):
        ingest(tmp_path / "d.parquet", tmp_path / "s.zarr")


def test_the_columns_of_a_category_are_chosen_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "green", "blue"], 80), rng.standard_normal(80)
    y = np.select([colour == "red", colour == "green"], [3.0, -2.0], 0.5) + size / 5
    ingest(
        pd.DataFrame({"size": size, "colour": colour, "y": y}), tmp_path / "s.zarr", target="y", categorical="colour"
    )
    found = dsel.select(tmp_path / "s.zarr", k=1, groups="source", method="forward")
    assert sorted(found.labels) == ["colour=blue", "colour=green", "colour=red"]


DAYS = pd.date_range("2022-01-12", periods=40)
AS_TEXT = {
    "a date": "%Y-%m-%d", "a time": "%Y-%m-%d %H:%M:%S", "T and Z": "%Y-%m-%dT%H:%M:%SZ",
    "an offset": "%Y-%m-%dT02:00+02:00",
}  # fmt: skip


def dated(dates: Any) -> pd.DataFrame:
    """Rows of an id, a date, a number and a target."""
    a = np.arange(len(dates)) % 7 / 2
    return pd.DataFrame({"id": [f"h{i}" for i in range(len(dates))], "sold": dates, "a": a, "y": a**2})


@pytest.mark.parametrize("form", AS_TEXT.values(), ids=AS_TEXT)
@pytest.mark.parametrize(("name", "separator"), [("d.csv", ","), ("d.csv.gz", ","), ("d.tsv", "\t")])
def test_dates_in_text_become_the_same_days_as_those_of_a_frame(
    tmp_path: Path, form: str, name: str, separator: str
) -> None:
    dated(DAYS.strftime(form)).to_csv(tmp_path / name, index=False, sep=separator)
    ingest(tmp_path / name, tmp_path / "s.zarr", target="y", index="id", dates="days")
    ingest(dated(DAYS), tmp_path / "f.zarr", target="y", index="id", dates="days")
    store = open_store(tmp_path / "s.zarr")
    assert whole(store) == whole(open_store(tmp_path / "f.zarr"))
    assert whole(store)[0][0] == 19004


@pytest.mark.parametrize("bad", ["soon", "2022-02-30", "12.5"])
def test_text_that_is_no_date_is_an_error_that_names_the_column_the_value_and_the_row(tmp_path: Path, bad: str) -> None:
    words = DAYS.strftime("%Y-%m-%d").to_list()
    words[7] = bad
    dated(words).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(DataError, match=rf"row 7, column 'sold': '{bad}' is not a date \(1 of 40 values are not\)"):
        ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y", index="id", dates="days")
    assert not (tmp_path / "s.zarr").exists()


def test_a_date_that_is_missing_in_text_is_missing(tmp_path: Path) -> None:
    words = ["", *DAYS.strftime("%Y-%m-%d")[1:]]
    dated(words).to_csv(tmp_path / "d.csv", index=False)
    ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y", index="id", dates="days")
    assert [row[0] for row in whole(open_store(tmp_path / "s.zarr"))[:3]] == [
        pytest.approx(np.nan, nan_ok=True),
        19005,
        19006,
    ]


def test_dates_in_text_are_appended_as_days(tmp_path: Path) -> None:
    rows = dated(DAYS.strftime("%Y-%m-%d"))
    rows[:20].to_csv(tmp_path / "a.csv", index=False)
    rows[20:].to_csv(tmp_path / "b.csv", index=False)
    ingest(tmp_path / "a.csv", tmp_path / "s.zarr", target="y", index="id", dates="days")
    dsel.append(tmp_path / "b.csv", tmp_path / "s.zarr")
    assert [row[0] for row in whole(open_store(tmp_path / "s.zarr"))] == list(range(19004, 19044))


def test_text_of_a_frame_that_consists_of_dates_follows_the_rule_of_text_files() -> None:
    frame = dated(DAYS.strftime("%Y-%m-%d")).drop(columns="id")
    found, expected = (
        dsel.select(data, "y", k=1, dates="days", include=["sold"]) for data in (frame, frame.assign(sold=DAYS))
    )
    assert repr(found) == repr(expected)
    with pytest.raises(DataError, match=r"column 'sold': '2022-01-12' is text and looks like a date. Ask for numbers"):
        dsel.select(frame, "y", k=1)


def polars_lazy(frame: pd.DataFrame, folder: Path) -> Any:
    return pl.from_pandas(frame).lazy()


def arrow_views(frame: pd.DataFrame, folder: Path) -> Any:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    kinds = [
        pa.string_view() if pa.types.is_large_string(t) or pa.types.is_string(t) else t for t in table.schema.types
    ]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def arrow_view_categories(frame: pd.DataFrame, folder: Path) -> Any:
    table = arrow_views(frame, folder)
    found = table["colour"].cast(pa.string()).combine_chunks().dictionary_encode()
    of_views = pa.DictionaryArray.from_arrays(found.indices, found.dictionary.cast(pa.string_view()))
    return table.set_column(table.column_names.index("colour"), "colour", of_views)


def arrow_file(frame: pd.DataFrame, folder: Path) -> Any:
    pl.from_pandas(frame).write_ipc(folder / "d.arrow")
    return folder / "d.arrow"


@pytest.mark.parametrize("make", [polars_lazy, arrow_views, arrow_view_categories, arrow_file])
def test_text_of_any_type_of_arrow_is_that_of_pandas(tmp_path: Path, make: Any) -> None:
    frame = dated(DAYS.strftime(" %Y-%m-%d")).drop(columns="id").assign(colour=["red", "blue", None, "red"] * 10)
    options: dict[str, Any] = {"dates": "days", "missing": "mean"}
    expected = dsel.select(frame, "y", k=2, **options)
    data = make(frame, tmp_path)
    ingest(data, tmp_path / "s.zarr", target="y", categorical="colour", dates="days")
    found = [dsel.select(tmp_path / "s.zarr", k=2, missing="mean")]
    if not isinstance(data, Path):
        found.append(dsel.select(data, "y", k=2, **options))
    for selection in found:
        assert selection.labels == expected.labels
        np.testing.assert_allclose(selection.coefficients, expected.coefficients, rtol=1e-12)
        np.testing.assert_allclose(np.ravel(selection.predict(frame)), expected.predict(frame), rtol=1e-12)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "pandas", "polars"])
def test_words_for_missing_values_are_taken_for_every_table_whose_message_names_them(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame(
        {
            "a": ["1", "2.5", "unknown"],
            "size": pd.Categorical(["S", "NA", "L"]),
            "colour": ["red", "unknown", "NA"],
            "y": 1,
        }
    )
    source: Any = tmp_path / f"d.{kind}"
    if kind == "parquet":
        frame.to_parquet(source)
    elif kind == "arrow":
        arrow_file(frame, tmp_path)
    else:
        source = frame if kind == "pandas" else pl.from_pandas(frame)
    with pytest.raises(DataError, match=r"'unknown' is not a number.* words for missing values under na"):
        ingest(source, tmp_path / "s.zarr", target="y", categorical="colour")
    ingest(source, tmp_path / "s.zarr", target="y", categorical="colour", na="unknown")
    store = open_store(tmp_path / "s.zarr")
    assert list(store.features) == ["a", "size=L", "size=NA", "size=S", "colour=red"]
    np.testing.assert_array_equal(
        np.array(whole(store), float), [[1, 0, 0, 1, 1], [2.5, 0, 1, 0, np.nan], [np.nan, 1, 0, 0, np.nan]]
    )


@pytest.mark.parametrize("categories", ["groups", "columns", "refuse"])
def test_excluded_columns_without_numbers_are_left_out_before_they_are_refused(categories: Any) -> None:
    frame = dated(DAYS).assign(colour=["red", "blue"] * 20, b=np.arange(40) ** 2 % 11)
    options: dict[str, Any] = {"k": 1, "categories": categories}
    found = dsel.select(frame, "y", exclude=["id", "sold", "colour", "b"], **options)
    assert found.names == ["a"]
    assert found.shape == (40, 2)
    assert repr(found) == repr(dsel.select(frame[["a", "b", "y"]], "y", exclude=["b"], **options))
    assert found.predict(frame).tolist() == found.predict(frame[["a"]]).tolist()
    for again in (frame, frame.drop(columns="colour")):
        assert dsel.certify(found, again, "y", seconds=5.0).certificate[-1]["proven"]


def test_a_table_in_a_file_is_no_store_also_with_a_target(tmp_path: Path) -> None:
    dated(DAYS).to_csv(tmp_path / "f.csv", index=False)
    with pytest.raises(dsel.errors.MissingInputError, match=r"is a \.csv file, not a store. Create one: dsel ingest f"):
        dsel.select(str(tmp_path / "f.csv"), "y", k=1)


@pytest.mark.usefixtures("no_pictures")
def test_messages_name_an_array_once_and_a_report_advises_what_works_for_arrays(tmp_path: Path) -> None:
    x = np.arange(20.0).reshape(10, 2) % 7
    bad = x.copy()
    bad[3, 1] = np.nan
    with pytest.raises(DataError, match=r"^X has NaN values: 1, in column"):
        dsel.select(bad, x[:, 0], k=1, method="forward")
    report = dsel.select(x, x[:, 0] + x[::-1, 1], k=1, method="forward").report(tmp_path / "r.html").read_text()
    assert "dsel.certify(selection, X, y)" in report
    assert "dsel certify" not in report


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_every_kind_of_table_names_identifiers_and_codes(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"invoice": np.arange(9000, 9200), "plz": rng.choice([1067, 20095], 200)})
    frame = frame.assign(quantity=rng.integers(1, 99, 200), price=np.arange(200) + 0.5, y=rng.normal(size=200))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    notes = ingest(frame if kind == "frame" else tmp_path / f"t.{kind}", tmp_path / "s.zarr", target="y").notes
    assert notes == [
        "leave 'invoice' out if it is an identifier: its first 200 whole numbers are all different",
        "make 'plz' a category, or leave it out, if its numbers are codes: their size means nothing",
    ]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ('"1,234"', "If a comma marks thousands, write the numbers without it"),
        ('"1,5"', "if it is the decimal mark, decimal=',' reads it in text files"),
        ("1.234.567", "write them without marks of thousands"),
        ("5%", "If these are percentages, write them without the sign %"),
    ],
)
def test_text_that_people_write_for_numbers_has_a_hint(tmp_path: Path, value: str, hint: str) -> None:
    for other in (value, "3"):
        with pytest.raises(DataError, match=re.escape(hint)):
            stored(tmp_path, f"a,y\n{other},1\n{value},2\n{value},3\n")


def test_an_unknown_column_of_a_file_with_another_separator_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"2 columns and none of that name.*divided by ';', give it as separator"):
        ingest(write(tmp_path, "a;y;b, m\n1;2;3,5\n"), tmp_path / "s.zarr", target="y")


def test_blanks_around_the_names_of_a_text_file_do_not_count_in_new_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({" a": rng.normal(size=40), "b ": rng.choice(["u", "v"], 40), "c": rng.normal(size=40)})
    data[" y"] = data[" a"] + (data["b "] == "u") + 0.1 * rng.normal(size=40)
    data.to_csv(tmp_path / "d.csv", index=False)
    ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y", categorical="b")
    found, own = dsel.select(tmp_path / "s.zarr", k=2), dsel.select(data, " y", k=2)
    assert own.labels == [" a", "b =u", "b =v"]
    assert found.labels == ["a", "b=u", "b=v"]
    np.testing.assert_allclose(np.ravel(found.predict(data)), np.ravel(own.predict(data)))
    assert found.score(data) == pytest.approx(own.score(data))

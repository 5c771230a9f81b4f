"""Every format is stored without change, in any layout; values that are not numbers are named and refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsel.data.ingest import ingest
from dsel.data.store.reader import Store, open_store
from dsel.errors import DataError, MissingInputError, OptionError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((23, 5))
Y = RNG.standard_normal((23, 2))
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool", ">f4", ">i8"]


def x_as(dtype: str) -> np.ndarray:
    return (X * 10).astype(dtype) if dtype != "bool" else X > 0


def whole(store: Store) -> np.ndarray:
    return store.x.read(0, store.shape[0])


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == (np.uint8 if expected.dtype == bool else expected.dtype.newbyteorder("="))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.zarr"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_round_trip(tmp_path: Path, out: Path, dtype: str, order: Any) -> None:
    values = np.asarray(x_as(dtype), order=order)
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "y.npy", Y[:, 0])
    ingest(tmp_path / "x.npy", out, y=tmp_path / "y.npy", chunks=(7, 3))
    store = open_store(out)
    check(whole(store), values)
    assert store.y is not None
    check(store.y.read(0, 23), Y[:, :1])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "bool", ">f4"])
def test_npz_round_trip(tmp_path: Path, out: Path, save: Any, order: Any, dtype: str) -> None:
    values = np.asarray(x_as(dtype), order=order)
    rows = np.array([f"sample {i}" for i in range(23)])
    save(
        tmp_path / "d.npz",
        X=values,
        Y=np.asarray(Y, order=order),
        feature_names=np.array(list("abcde")),
        target_names=np.array(["u", "v"]),
        sample_names=rows,
    )
    ingest(tmp_path / "d.npz", out, chunks=(7, 5))
    store = open_store(out)
    check(whole(store), values)
    assert store.y is not None
    assert store.samples is not None
    check(store.y.read(0, 23), Y)
    assert (store.features.tolist(), store.targets.tolist()) == (list("abcde"), ["u", "v"])
    assert store.samples.tolist() == rows.tolist()


def test_csv_round_trip_with_targets_and_index(tmp_path: Path, out: Path) -> None:
    lines = ['name,a,"b, quoted",t,c']
    lines += [f'"row, ""{i}"" 5",{x[0]!r},{x[1]!r},{x[3]!r},{x[2]!r}' for i, x in enumerate(X.tolist())]
    (tmp_path / "d.csv").write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n\n")
    ingest(tmp_path / "d.csv", out, target=["t"], index="name", chunks=(7, 3))
    store = open_store(out)
    check(whole(store), X[:, :3])
    assert store.y is not None
    assert store.samples is not None
    check(store.y.read(0, 23), X[:, 3:4])
    assert store.features.tolist() == ["a", "b, quoted", "c"]
    assert store.targets.tolist() == ["t"]
    assert store.samples.tolist()[:2] == ['row, "0" 5', 'row, "1" 5']


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64"])
def test_csv_with_a_dtype(tmp_path: Path, out: Path, dtype: str) -> None:
    values = (X * 10).astype("int64").astype(dtype)
    np.savetxt(tmp_path / "d.tsv", values, delimiter="\t", header="a\tb\tc\td\te", comments="", fmt="%d")
    ingest(tmp_path / "d.tsv", out, dtype=dtype, target=[-1])
    store = open_store(out)
    check(whole(store), values[:, :4])
    assert store.y is not None
    check(store.y.read(0, 23), values[:, 4:].astype(float))  # the dtype is that of X


def test_csv_whose_target_is_not_the_last_column(tmp_path: Path, out: Path) -> None:
    (tmp_path / "d.csv").write_text("y,a,b\n1,2,3\n4,5,6\n")
    ingest(tmp_path / "d.csv", out, target=["y"])
    store = open_store(out)
    assert store.features.tolist() == ["a", "b"]
    check(store.x.read(0, 2), np.array([[2.0, 3.0], [5.0, 6.0]]))
    assert store.y is not None
    check(store.y.read(0, 2), np.array([[1.0], [4.0]]))


def test_csv_missing_values_are_nan(tmp_path: Path, out: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b,c\n1,,NA\n?,nan,2.5\n null ,4,5\n")
    ingest(tmp_path / "d.csv", out)
    nan = np.nan
    check(whole(open_store(out)), np.array([[1, nan, nan], [nan, nan, 2.5], [nan, 4, 5]]))


def test_large_integers_in_text_are_exact(tmp_path: Path, out: Path) -> None:
    (tmp_path / "d.csv").write_text(f"a,b\n{2**62 + 1},1\n3,4\n")
    ingest(tmp_path / "d.csv", out, dtype="int64")
    check(whole(open_store(out)), np.array([[2**62 + 1, 1], [3, 4]]))


def parquet(path: Path, rows_per_group: int = 6) -> pa.Table:
    table = pa.table(
        {
            "a": pa.array(X[:, 0].astype("float32")),
            "label": [f"s{i}" for i in range(23)],
            "flag": pa.array(X[:, 1] > 0),
            "t": pa.array(X[:, 2]),
            "a.b": pa.array((X[:, 3] * 10).astype("int16")),
        }
    )
    pq.write_table(table, path, row_group_size=rows_per_group)
    return table


@pytest.mark.parametrize("rows_per_group", [1, 6, 100])
def test_parquet_round_trip(tmp_path: Path, out: Path, rows_per_group: int) -> None:
    parquet(tmp_path / "d.parquet", rows_per_group)
    ingest(tmp_path / "d.parquet", out, target=["t"], index="label", chunks=(7, 2))
    store = open_store(out)
    expected = np.column_stack([X[:, 0].astype("f4"), X[:, 1] > 0, (X[:, 3] * 10).astype("i2")]).astype("f4")
    check(whole(store), expected)
    assert store.y is not None
    assert store.samples is not None
    check(store.y.read(0, 23), X[:, 2:3])
    assert store.features.tolist() == ["a", "flag", "a.b"]
    assert store.samples.tolist()[-1] == "s22"


def test_parquet_takes_the_index_of_pandas_as_sample_labels(tmp_path: Path, out: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcde"), index=[f"p{i}" for i in range(23)])
    frame.to_parquet(tmp_path / "d.parquet")
    ingest(tmp_path / "d.parquet", out)
    store = open_store(out)
    check(whole(store), X)
    assert store.samples is not None
    assert store.samples.tolist() == frame.index.tolist()


def test_parquet_nulls_are_nan_in_a_float_dtype_or_refused(tmp_path: Path, out: Path) -> None:
    table = pa.table({"a": pa.array([1, 2, None], pa.int32()), "b": pa.array([True, None, False])})
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"(?s)row 2, column 'a'.* missing, which int32.*float64.*row 1, column 'b'"):
        ingest(tmp_path / "d.parquet", out, dtype="int32")
    ingest(tmp_path / "d.parquet", out)
    check(whole(open_store(out)), np.array([[1, 1], [2, np.nan], [np.nan, 0]]))


CSV_REFUSED = {
    "text": ("a,b\n1,2\n3,red\n", {}, "row 1, column 'b': 'red' is not a number"),
    "ragged": ("a,b\n1,2\n3\n", {}, "line 3 has 1 fields and the header has 2"),
    "open quote": ('a,b\n0,1\n1,"2\n3,4\n', {}, "line 3 has 1 fields|row 1, column 'b'"),
    "duplicate names": ("a,b,a\n1,2,3\n", {}, r"'a' \(2 times\)"),
    "no header": ("1.5,0.25,3\n4,5,6\n", {}, "numbers, not names: 1.5, 0.25, 3"),
    "unnamed index": (",a\n0,1\n", {}, "index=0"),
    "empty file": ("", {}, "no header"),
    "no rows": ("a,b\n", {}, "0 x 2"),
    "nothing left": ("a,b\n1,2\n", {"target": ["a"], "index": "b"}, "no column left for X"),
    "fraction as int": (
        "a,b\n1,2\n3,4.5\n",
        {"dtype": "int32"},
        "row 1, column 'b': the value 4.5 does not fit",
    ),
    "missing as int": ("a,b\n1,2\n3,\n", {"dtype": "int32"}, "row 1, column 'b': the value is missing, which int32"),
    "too large": ("a\n1\n70000\n", {"dtype": "float16"}, "row 1, column 'a': the value 70000.0 does not fit"),
    "infinite": ("a,b\n1,2\n1e999,3\n", {}, "row 1, column 'a': the value inf is infinite"),
    "data in the first line": ("5.1,3.5,red\n4,5,blue\n", {}, "numbers, not names: 5.1, 3.5, red.*header=False"),
    "ambiguous header": ("1,2,3\n4,5,6\n", {}, "numbers, not names: 1, 2, 3.*header=False"),
    "negative weight": ("a,w\n1,2\n3,-4\n", {"weight": "w"}, "row 1, column 'w': the value -4.0 is negative"),
    "missing weight": ("a,w\n1,2\n3,\n", {"weight": "w"}, "row 1, column 'w': the value is missing.*missing=rows"),
    "other separator": ("a;b\n1;2\n", {}, "one column, named 'a;b'.*';', give it as separator"),
    "two separators": ("a;b\n1;2\n", {"separator": ";", "decimal": ";"}, "separator and decimal are both"),
    "long separator": ("a;b\n1;2\n", {"separator": ";;"}, "';;' is not one character"),
    "all of it": ("a,b\n1,2\n", {"drop": ["a", "b"]}, "no column left for X"),
}


@pytest.mark.parametrize("case", CSV_REFUSED)
def test_csv_refused(tmp_path: Path, out: Path, case: str) -> None:
    text, options, message = CSV_REFUSED[case]
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises((DataError, OptionError), match=f"(?s){message}"):
        ingest(tmp_path / "d.csv", out, **options)
    assert not out.exists()


def test_wavelengths_are_names(tmp_path: Path, out: Path) -> None:
    (tmp_path / "d.csv").write_text("350.5,351,352.25\n1,2,3\n")
    ingest(tmp_path / "d.csv", out, header=True)
    assert open_store(out).features.tolist() == ["350.5", "351", "352.25"]


def test_a_table_without_names_has_default_labels(tmp_path: Path, out: Path) -> None:
    (tmp_path / "d.csv").write_text("1,2,3\n4,5,6\n")
    ingest(tmp_path / "d.csv", out, header=False, target=[-1])
    store = open_store(out)
    assert (store.features.tolist(), store.targets.tolist()) == (["x0", "x1"], ["x2"])
    check(whole(store), np.array([[1.0, 2.0], [4.0, 5.0]]))


ARRAYS_REFUSED = {
    "objects": ({"X": np.array([[1, "a"]], dtype=object)}, "Python objects"),
    "strings": ({"X": np.array([["1", "2"]])}, "not numbers"),
    "complex": ({"X": np.ones((2, 2), complex)}, "complex"),
    "one dimension": ({"X": np.ones(3)}, r"shape \(3,\)"),
    "no X": ({"data": X}, "no array X; it has data"),
    "rows of Y": ({"X": X, "Y": Y[:-1]}, "22 rows and .* 23"),
    "labels": ({"X": X, "feature_names": np.array(["a"])}, "one label for the 5 columns"),
    "repeated labels": ({"X": X, "feature_names": np.array(list("abcda"))}, r"'a' \(2 times\)"),
    "empty": ({"X": np.ones((0, 3))}, "0 x 3"),
}


@pytest.mark.parametrize("case", ARRAYS_REFUSED)
def test_npz_refused(tmp_path: Path, out: Path, case: str) -> None:
    arrays, message = ARRAYS_REFUSED[case]
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / "d.npz", out)
    assert not out.exists()


@pytest.mark.parametrize(("dtype", "message"), [("text", "not a numeric dtype"), ("complex64", "not a numeric")])
def test_dtype_option_must_be_numeric(tmp_path: Path, out: Path, dtype: str, message: str) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(OptionError, match=message):
        ingest(tmp_path / "x.npy", out, dtype=dtype)


def test_overflow_of_a_narrower_dtype_names_row_and_column(tmp_path: Path, out: Path) -> None:
    values = X.copy()
    values[20, 3] = 1e300
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(DataError, match="row 20, column 3: the value 1e\\+300 does not fit float32"):
        ingest(tmp_path / "x.npy", out, dtype="float32", chunks=(7, 5))


def test_a_cut_off_npy_is_refused_before_anything_is_written(tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-8])
    with pytest.raises(DataError, match="cut off"):
        ingest(tmp_path / "x.npy", out)
    assert list(tmp_path.iterdir()) == [tmp_path / "x.npy"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_npz_member_is_found(tmp_path: Path, out: Path, save: Any) -> None:
    save(tmp_path / "d.npz", X=X)
    with zipfile.ZipFile(tmp_path / "d.npz") as archive:
        middle = archive.getinfo("X.npy").header_offset + 600
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[middle] ^= 255
    (tmp_path / "d.npz").write_bytes(bytes(data))
    with pytest.raises(DataError, match="array X of"):
        ingest(tmp_path / "d.npz", out)
    assert not out.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, out: Path, suffix: str) -> None:
    (tmp_path / f"d{suffix}").write_text("something else entirely\n" * 10)
    with pytest.raises(DataError, match="is not a"):
        ingest(tmp_path / f"d{suffix}", out)


def test_options_that_a_format_does_not_have(tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "d.csv").write_text("alpha,beta\n1,2\n")
    with pytest.raises(OptionError, match="no named columns"):
        ingest(tmp_path / "x.npy", out, target=["a"])
    with pytest.raises(OptionError, match="Name the target columns"):
        ingest(tmp_path / "d.csv", out, y=tmp_path / "x.npy")
    with pytest.raises(OptionError, match=r"target='alpah'.*'alpha'"):
        ingest(tmp_path / "d.csv", out, target=["alpah"])
    with pytest.raises(OptionError, match="given twice"):
        ingest(tmp_path / "d.csv", out, target=["alpha", 0])


def test_missing_and_unknown_sources(tmp_path: Path, out: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(MissingInputError, match="is no regular file"):
        ingest(tmp_path / "pipe.csv", out)
    (tmp_path / "folder").mkdir()
    with pytest.raises(MissingInputError, match="Cannot tell the format of the folder"):
        ingest(tmp_path / "folder", out)
    with pytest.raises(MissingInputError, match="no file"):
        ingest(tmp_path / "absent.csv", out)
    with pytest.raises(MissingInputError, match=r"'.xlsx'.*\.parquet"):
        ingest(tmp_path / "d.xlsx", out)

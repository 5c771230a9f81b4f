"""Opening and reading a store: blocks are exact, and damage is reported with its chunk and rows."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import LocalStore

import dsel
from dsel.data.info import describe, render
from dsel.data.ingest import ingest_arrays
from dsel.data.store.array import StoredArray
from dsel.data.store.reader import open_store
from dsel.errors import DataError, MissingInputError, OptionError

M, N = 23, 5
X = np.random.default_rng(3).standard_normal((M, N)).astype("float32")
Y = np.arange(M)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """23 x 5 in chunks of 7 x 2: four row blocks, three column blocks; the last ones are smaller."""
    ingest_arrays(X, tmp_path / "s.zarr", y=Y, features=list("abcde"), chunks=(7, 2))
    return tmp_path / "s.zarr"


# --- contents ---


def test_a_store_describes_its_contents(path: Path) -> None:
    store = open_store(path)
    assert (store.shape, store.n_targets, store.dtype) == ((M, N), 1, np.float32)
    assert (store.row_bounds, store.column_bounds) == ([0, 7, 14, 21, 23], [0, 2, 4, 5])
    assert (store.nbytes, store.chunk_bytes) == (M * N * 4, 7 * 2 * 4)
    assert (store.features.tolist(), store.targets.tolist(), store.samples) == (list("abcde"), ["y0"], None)
    assert store.absent_chunks() == []
    assert store.attributes["dsel_format"] == 1


def test_default_labels(tmp_path: Path) -> None:
    ingest_arrays(X, tmp_path / "s")
    store = open_store(tmp_path / "s")
    assert store.features.tolist() == ["x0", "x1", "x2", "x3", "x4"]
    assert (store.y, store.targets.tolist()) == (None, [])


def test_xarray_opens_it_without_a_warning(tmp_path: Path) -> None:
    samples = [f"näme {i}" for i in range(M)]
    ingest_arrays(X, tmp_path / "s", y=Y, features=list("abcde"), targets=["t"], samples=samples, chunks=(7, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xr.open_zarr(tmp_path / "s", consolidated=False, chunks={})
        assert dataset.X.dims == ("sample", "feature")
        assert dataset.X.chunks == ((7, 7, 7, 2), (2, 2, 1))
        np.testing.assert_array_equal(dataset.X.sel(feature=["b", "e"]).values, X[:, [1, 4]])
        assert dataset.Y.sel(sample="näme 4", target="t").values == 4


def test_xarray_writes_it_and_dsel_reads_it(tmp_path: Path) -> None:
    coords = {"feature": list("abcde"), "sample": np.arange(M) * 10}
    variables = {"X": (("sample", "feature"), X), "Y": (("sample", "target"), (X[:, :1] > 0))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray writes <U1 labels and consolidated metadata, with warnings
        xr.Dataset(variables, coords=coords).to_zarr(tmp_path / "s")
    store = open_store(tmp_path / "s")
    assert store.y is not None
    np.testing.assert_array_equal(store.x.read(0, M), X)
    found = store.y.read(0, M)
    np.testing.assert_array_equal(found, X[:, :1] > 0)
    assert found.dtype == np.uint8
    assert store.features.tolist() == list("abcde")
    assert store.samples is not None
    assert store.samples.tolist()[:3] == ["0", "10", "20"]


# --- reading ---


@pytest.mark.parametrize("rows", [(0, M), (0, 7), (5, 9), (21, 23), (4, 4)])
@pytest.mark.parametrize("columns", [None, [0, 1, 2, 3, 4], [1, 4], [2], []])
def test_any_rows_and_columns(path: Path, rows: tuple[int, int], columns: list[int] | None) -> None:
    found = open_store(path).x.read(*rows, columns)
    expected = X[slice(*rows)] if columns is None else X[slice(*rows)][:, columns]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == X.dtype
    assert found.shape == expected.shape
    assert found.base is None  # nothing keeps a larger block alive
    assert found.flags.c_contiguous
    assert found.flags.writeable


@pytest.mark.parametrize(
    ("rows", "columns"), [((0, 24), None), ((-1, 3), None), ((5, 4), None), ((0, 3), [5]), ((0, 3), [2, 1])]
)
def test_rows_or_columns_that_do_not_exist(path: Path, rows: tuple[int, int], columns: Any) -> None:
    with pytest.raises(OptionError, match=r"s\.zarr"):
        open_store(path).x.read(*rows, columns)


def test_only_the_column_chunks_needed_are_read(path: Path) -> None:
    """Chunks of the other columns may be damaged."""
    for row in range(4):
        (path / f"X/c/{row}/0").write_bytes(b"rubbish")
    np.testing.assert_array_equal(StoredArray(str(path), "X").read(0, M, [2, 4]), X[:, [2, 4]])


def test_a_stored_array_pickles_to_two_strings(path: Path) -> None:
    open_store(path).x.read(0, M)
    sent = pickle.dumps(open_store(path).x)
    assert len(sent) < 200 + len(str(path))
    np.testing.assert_array_equal(pickle.loads(sent).read(3, 20), X[3:20])


def test_an_overwritten_store_is_not_read_from_the_cache(path: Path) -> None:
    array = open_store(path).x
    array.read(0, M)
    ingest_arrays(X[:10, :3] + 1, path, chunks=(4, 3), overwrite=True)
    np.testing.assert_array_equal(array.read(0, 10), X[:10, :3] + 1)


# --- damage ---


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(bytes(data))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:9])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("columns", [None, [0, 4]])
def test_a_damaged_chunk_is_named_with_its_rows(
    tmp_path: Path, damage: Callable[[Path], None], compression: str, columns: list[int] | None
) -> None:
    ingest_arrays(X, tmp_path / "s", chunks=(7, 2), compression=compression)
    array = open_store(tmp_path / "s").x
    damage(tmp_path / "s/X/c/1/2")
    with pytest.raises(DataError, match=r"Chunk \(1, 2\) of X .*c/1/2, rows 7 to 13.*Restore") as caught:
        array.read(0, M, columns)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), DataError)
    np.testing.assert_array_equal(array.read(14, M), X[14:])  # the others can still be read


@pytest.mark.parametrize("values", [np.zeros((M, N), "int8"), np.zeros((M, N)), np.full((M, N), np.nan)])
def test_a_lost_chunk_is_found_when_the_store_is_opened(tmp_path: Path, values: np.ndarray) -> None:
    """Even if it contained only the fill value, which Zarr does not write by default."""
    ingest_arrays(values, tmp_path / "s", chunks=(7, 2))
    store = open_store(tmp_path / "s")
    (tmp_path / "s/X/c/3/1").unlink()
    assert store.absent_chunks() == ["X/c/3/1"]
    for call in (store.fingerprint, lambda: open_store(tmp_path / "s")):
        with pytest.raises(DataError, match="lost 1 chunk: X/c/3/1"):
            call()


@pytest.mark.parametrize("file", ["zarr.json", "X/zarr.json", "feature/zarr.json"])
def test_damaged_metadata_is_a_data_error(path: Path, file: str) -> None:
    (path / file).write_text('{"zarr_format": 3, ')
    with pytest.raises(DataError, match=r"s\.zarr"):
        open_store(path)


def test_damaged_labels_are_a_data_error(path: Path) -> None:
    flip(path / "feature/c/0")
    with pytest.raises(DataError, match="labels feature"):
        open_store(path)


# --- fingerprint ---


@pytest.mark.parametrize("file", ["X/c/2/1", "Y/c/0/0", "feature/c/0", "X/zarr.json"])
def test_the_fingerprint_changes_when_a_file_is_written(path: Path, file: str) -> None:
    store = open_store(path)
    before, status = store.fingerprint(), (path / file).stat()
    assert open_store(path).fingerprint() == before
    (path / file).write_bytes((path / file).read_bytes() + b" ")
    os.utime(path / file, ns=(status.st_atime_ns, status.st_mtime_ns))  # only the size differs
    assert store.fingerprint() != before


def test_the_fingerprint_changes_with_the_time_of_a_chunk_alone(path: Path) -> None:
    before, status = open_store(path).fingerprint(), (path / "X/c/0/0").stat()
    os.utime(path / "X/c/0/0", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert open_store(path).fingerprint() != before


def test_the_fingerprint_does_not_depend_on_the_path(path: Path, tmp_path: Path) -> None:
    before = open_store(path).fingerprint()
    path.rename(tmp_path / "moved")
    assert open_store(tmp_path / "moved").fingerprint() == before


# --- stores of other programs ---


def foreign(path: Path, variables: dict[str, tuple[np.ndarray, tuple[str, ...] | None]], **options: Any) -> zarr.Group:
    group = zarr.create_group(path)
    for name, (values, dims) in variables.items():
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            dimension_names=dims,
            **{"chunks": tuple(min(3, s) for s in values.shape) or "auto", **options},
        )
        array[...] = values
    return group


SF, ST = ("sample", "feature"), ("sample", "target")
NOT_A_DATA_SET: dict[str, tuple[dict[str, Any], str]] = {
    "no X": ({"data": (X, SF)}, "no variable X; it has data"),
    "transposed": ({"X": (X.T, SF[::-1])}, "transposed.*transpose"),
    "other dimensions": ({"X": (X, ("row", "column"))}, r"dimensions \('row', 'column'\).*'sample'"),
    "unnamed dimensions": ({"X": (X, None)}, "dimensions None"),
    "one dimension": ({"X": (X[0], ("feature",))}, r"dimensions \('feature',\)"),
    "rows of Y": ({"X": (X, SF), "Y": (X[:9], ST)}, "X has 23 rows and Y has 9"),
    "Y transposed": ({"X": (X, SF), "Y": (X.T, ST[::-1])}, "Y of .*transposed"),
    "complex": ({"X": (X.astype(complex), SF)}, "complex"),
    "dates": ({"X": (X.astype("M8[s]"), SF)}, "not numeric"),
    "repeated labels": (
        {"X": (X, SF), "feature": (np.array([1, 2, 1, 4, 5]), ("feature",))},
        r"'1' \(2 times\)",
    ),
    "labels of other size": (
        {"X": (X, SF), "feature": (np.arange(4), ("feature",))},
        "shape .4,. for 5 labels",
    ),
}


@pytest.mark.parametrize("case", NOT_A_DATA_SET)
@pytest.mark.filterwarnings("ignore")
def test_a_store_that_is_not_a_data_set(tmp_path: Path, case: str) -> None:
    variables, message = NOT_A_DATA_SET[case]
    foreign(tmp_path / "f", variables)
    with pytest.raises(DataError, match=message):
        open_store(tmp_path / "f")


def test_an_empty_array_is_refused(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "f").create_array("X", shape=(0, 4), chunks=(1, 4), dtype="f4", dimension_names=SF)
    with pytest.raises(DataError, match="empty"):
        open_store(tmp_path / "f")


@pytest.mark.parametrize("encoding", [{"scale_factor": 0.1, "dtype": "int16"}, {"_FillValue": -1.0}])
def test_values_that_xarray_would_decode_are_refused(tmp_path: Path, encoding: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.Dataset({"X": (SF, X)}).to_zarr(tmp_path / "f", encoding={"X": encoding})
    with pytest.raises(DataError, match=r"encoded.*decoded"):
        open_store(tmp_path / "f")


def test_absent_chunks_of_a_foreign_store_are_missing_values_or_refused(tmp_path: Path) -> None:
    for fill in (0.0, np.nan):
        values = X.copy()
        values[3:6] = fill
        foreign(tmp_path / str(fill), {"X": (values, SF)}, fill_value=fill)
        store = open_store(tmp_path / str(fill))
        assert store.absent_chunks() == ["X/c/1/0", "X/c/1/1"]
        assert len(store.fingerprint()) == 32
        if np.isnan(fill):
            np.testing.assert_array_equal(store.x.read(0, M), values)
        else:
            with pytest.raises(
                DataError, match=r"Chunk \(1, 0\) of X .*is not there.* copy the store with dsel ingest"
            ):
                store.x.read(0, M)


def test_a_truncated_chunk_of_a_foreign_store_without_checksum(tmp_path: Path) -> None:
    foreign(tmp_path / "f", {"X": (X, SF)}, compressors=None)
    truncate(tmp_path / "f/X/c/2/1")
    with pytest.raises(DataError, match=r"Chunk \(2, 1\) of X .*rows 6 to 8"):
        open_store(tmp_path / "f").x.read(0, M)


def test_row_blocks_of_a_sharded_store_are_its_shards(tmp_path: Path) -> None:
    foreign(tmp_path / "f", {"X": (X, SF)}, chunks=(2, 5), shards=(8, 5))
    store = open_store(tmp_path / "f")
    assert store.row_bounds == [0, 8, 16, 23]
    np.testing.assert_array_equal(store.x.read(5, 20, [0, 3]), X[5:20, [0, 3]])
    assert store.absent_chunks() == []
    (tmp_path / "f/X/c/1/0").unlink()
    assert store.absent_chunks() == ["X/c/1/0"]
    flip(tmp_path / "f/X/c/2/0")


def test_a_pass_over_a_sharded_store_reads_each_shard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(240, 6))
    foreign(tmp_path / "f", {"X": (values, SF)}, chunks=(10, 6), shards=(60, 6))
    plain, reads = LocalStore.get, Counter[str]()

    async def get(store: LocalStore, key: str, *arguments: Any, **options: Any) -> Any:
        reads[key] += 1
        return await plain(store, key, *arguments, **options)

    monkeypatch.setattr(LocalStore, "get", get)
    found = dsel.select(str(tmp_path / "f"), k=2, method="forward")
    shards = {key: times for key, times in reads.items() if re.search(r"\bc/\d", key)}
    assert len(shards) == 4
    assert set(shards.values()) == {found.passes} == {2}


def test_chunk_files_with_keys_of_format_2(tmp_path: Path) -> None:
    foreign(tmp_path / "f", {"X": (X, SF)}, chunk_key_encoding={"name": "v2", "separator": "."})
    assert open_store(tmp_path / "f").absent_chunks() == []
    (tmp_path / "f/X/1.1").unlink()
    assert open_store(tmp_path / "f").absent_chunks() == ["X/1.1"]


# --- not a store ---


def test_what_is_not_a_store_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a\n1\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/.zgroup").write_text("{}")
    (tmp_path / "part.ingesting").mkdir()
    foreign(tmp_path / "f", {"X": (X, SF)})
    shutil.copytree(tmp_path / "f/X", tmp_path / "alone")
    expected = {
        "absent": "no store",
        "d.csv": r"dsel ingest d\.csv d\.zarr",
        "folder": "not a Zarr store",
        "old": "format 2",
        "part": "interrupted.*run the same ingest again",
        "f/X": rf"single Zarr array\. Give the group that contains it: {tmp_path}/f$",
        "alone": rf"single Zarr array\. Give the array, zarr\.open_array\('{tmp_path}/alone'\), or .* dsel ingest",
    }
    for name, message in expected.items():
        with pytest.raises(MissingInputError, match=message):
            open_store(tmp_path / name)


# --- info ---


def test_info_says_how_each_variable_is_stored(path: Path) -> None:
    info = describe(path)
    x = info.variables[0]
    assert [v.name for v in info.variables] == ["X", "Y", "feature"]
    assert (x.shape, x.dtype, x.chunks, x.n_chunks) == ((M, N), "float32", (7, 2), 12)
    assert (x.bytes_in_memory, x.compression) == (M * N * 4, "uncompressed with checksum")
    assert x.bytes_on_disk == 12 * (7 * 2 * 4 + 4) + (path / "X/zarr.json").stat().st_size
    text = render(info)
    for part in (
        "23 x 5",
        "7 x 2",
        "uncompressed with checksum",
        "features: a, b, c, d, e",
        "dsel_format: 1",
    ):
        assert part in text


def test_info_gives_advice(tmp_path: Path) -> None:
    foreign(tmp_path / "f", {"X": (X, SF)}, compressors=None, fill_value=0)
    shutil.rmtree(tmp_path / "f/X/c/1")
    notes = "\n".join(describe(tmp_path / "f").notes)
    for advice in ("divided by columns", "no checksum", "2 chunks are absent", "not written by dsel"):
        assert advice in notes


@pytest.mark.parametrize(("chunks", "advice"), [((100_000, 1000), "400.0 MB are slow"), ((10, 1000), "many small")])
def test_info_warns_about_chunks_of_the_wrong_size(tmp_path: Path, chunks: tuple[int, int], advice: str) -> None:
    zarr.create_group(tmp_path / "f").create_array(
        "X", shape=(1_000_000, 1000), chunks=chunks, dtype="f4", dimension_names=SF
    )
    assert any(advice in note for note in describe(tmp_path / "f").notes)


def test_a_missing_chunk_of_a_foreign_store_is_counted_in_a_note(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6))
    y = x[:, [0]] - x[:, [4]]
    foreign(tmp_path / "f", {"X": (x, SF), "Y": (y, ST)}, fill_value=np.nan)
    whole = dsel.select(tmp_path / "f", k=2, method="forward", missing="mean")
    assert not any("do not exist" in note for note in whole.notes)
    shutil.rmtree(tmp_path / "f/X/c/1")
    notes = dsel.select(tmp_path / "f", k=2, method="forward", missing="mean").notes
    assert any("2 of 8 chunks of X do not exist" in note for note in notes)

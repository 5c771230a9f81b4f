"""Files that other libraries write: what they hold is stored in any layout, and an interrupted ingest continues."""

from __future__ import annotations

import bz2
import gzip
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import xarray as xr
import zarr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest
from dsel.data.store import sparse_writer
from dsel.data.store.reader import open_store
from dsel.data.store.sparse import open_sparse
from dsel.errors import DataError, MissingExtraError, OptionError

M, N = 23, 4
X = np.random.default_rng(3).standard_normal((M, N))
Y = X[:, 0] - X[:, 2]
NAMES = list("abcd")
ROWS = [f"s{i}" for i in range(M)]
Made = tuple[Path, dict[str, Any]]


def frame() -> pd.DataFrame:
    return pd.DataFrame({**dict(zip(NAMES, X.T, strict=True)), "t": Y}, index=pd.Index(ROWS, name="label"))


def packed_csv(path: Path) -> Made:
    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[path.suffix]
    with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, codec) as packed:
        packed.write(frame().to_csv().encode())
    return path, {"target": "t", "index": "label"}


def parquet_folder(path: Path) -> Made:
    path.mkdir()
    for i, part in enumerate(np.array_split(np.arange(M), 3)):
        pq.write_table(pa.Table.from_pandas(frame().iloc[part]), path / f"part-{i}.parquet", row_group_size=4)
    (path / "_SUCCESS").touch()
    return path, {"target": "t"}


def feather(path: Path) -> Made:
    pa.feather.write_feather(pa.Table.from_pandas(frame()), path, chunksize=5, compression="uncompressed")
    return path, {"target": "t"}


def arrow_stream(path: Path) -> Made:
    table = pa.Table.from_pandas(frame())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path, {"target": "t"}


def hdf5(path: Path) -> Made:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("run/values", data=X, chunks=(5, 2), compression="gzip")
        file.create_dataset("run/yield", data=Y)
        file["run/feature_names"] = NAMES
        file["run/label"] = ROWS
    return path, {"target": "run/yield", "index": "run/label"}


def dataset() -> xr.Dataset:
    ds = xr.Dataset({"temperature": (("station", "time"), X.T), "t": ("time", Y)})
    return ds.assign_coords(station=NAMES, time=ROWS)


def netcdf(path: Path) -> Made:
    pytest.importorskip("h5netcdf")
    dataset().to_netcdf(path, engine="h5netcdf")
    return path, {"target": "t"}


def netcdf3(path: Path) -> Made:
    dataset().drop_vars(["station", "time"]).to_netcdf(path, engine="scipy")
    return path, {"target": "t"}


def xarray_zarr(path: Path, zarr_format: Any = 3) -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chunked = dataset().chunk(time=5)
        chunked.to_zarr(path, zarr_format=zarr_format, consolidated=False)
    return path, {"target": "t"}


def plain_zarr(path: Path) -> Made:
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.create_array("X", data=X, chunks=(5, 3))
    group.create_array("Y", data=Y, chunks=(5,))
    return path, {}


def annotated(path: Path, values: Any = X) -> Made:
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"t": Y, "kind": pd.Categorical(["a", "b"] * 11 + ["a"])}, index=ROWS)
    data = anndata.AnnData(values, obs=obs, var=pd.DataFrame(index=NAMES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.write_zarr(path) if path.suffix == ".zarr" else data.write_h5ad(path)
    return path, {"target": "t"}


KINDS: dict[str, tuple[str, Callable[[Path], Made], bool, bool]] = {  # name, how it is made, has names, has row labels
    "csv.gz": ("d.csv.gz", packed_csv, True, True),
    "csv.bz2": ("d.csv.bz2", packed_csv, True, True),
    "csv.zst": ("d.csv.zst", packed_csv, True, True),
    "parquet folder": ("d", parquet_folder, True, True),
    "feather": ("d.feather", feather, True, True),
    "arrow stream": ("d.arrow", arrow_stream, True, True),
    "hdf5": ("d.h5", hdf5, True, True),
    "netcdf": ("d.nc", netcdf, True, True),
    "netcdf 3": ("d.nc", netcdf3, False, False),
    "zarr": ("d.zarr", xarray_zarr, True, True),
    "zarr 2": ("d", lambda path: xarray_zarr(path, 2), True, True),
    "zarr without dimensions": ("d.zarr", plain_zarr, False, False),
    "h5ad": ("d.h5ad", annotated, True, True),
    "anndata zarr": ("d.zarr", annotated, True, True),
}


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_and_continued_after_an_interruption(tmp_path: Path, kind: str) -> None:
    name, make, has_names, has_rows = KINDS[kind]
    source, options = make(tmp_path / name)
    out = tmp_path / "out.zarr"

    def stop(done: int, total: int) -> None:
        assert total == M
        if done == 14:
            raise Stop

    with pytest.raises(Stop):
        ingest(source, out, chunks=(7, 3), progress=stop, **options)
    assert not out.exists()
    report = ingest(source, out, chunks=(7, 3), **options)
    assert report.resumed_rows == 14
    store = open_store(out)
    np.testing.assert_array_equal(store.x.read(0, M), X)
    assert store.y is not None
    np.testing.assert_array_equal(store.y.read(0, M)[:, 0], Y)
    assert store.features.tolist() == (NAMES if has_names else [f"x{j}" for j in range(N)])
    assert (store.samples is not None) == has_rows
    assert store.samples is None or store.samples.tolist() == ROWS


# --- sparse stores ---

SPARSE = scipy.sparse.random(60, 9, 0.3, format="csr", random_state=1)


def svmlight(path: Path, zero_based: bool = False) -> Path:
    from sklearn.datasets import dump_svmlight_file

    plain = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    dump_svmlight_file(SPARSE, np.arange(60.0), str(plain), zero_based=zero_based, comment="a test")
    if path != plain:
        path.write_bytes({".gz": gzip, ".bz2": bz2}[path.suffix].compress(plain.read_bytes()))  # type: ignore[attr-defined]
    return path


@pytest.mark.parametrize("name", ["d.svm", "d.libsvm.gz", "d.svmlight.bz2"])
def test_svmlight_becomes_a_sparse_store_that_knows_its_target(tmp_path: Path, name: str) -> None:
    report = ingest(svmlight(tmp_path / name), tmp_path / "s.zarr")
    assert (report.shape, report.stored) == ((60, 9), SPARSE.nnz)
    found = as_dataset(tmp_path / "s.zarr")
    assert found.targets.tolist() == ["target"]
    np.testing.assert_allclose(open_sparse(tmp_path / "s.zarr").blocks()[0].read().toarray(), SPARSE.toarray())
    ours, theirs = dsel.select(tmp_path / "s.zarr", k=2), dsel.select(SPARSE.toarray(), np.arange(60.0), k=2)
    assert ours.indices == theirs.indices


@pytest.mark.parametrize("kind", ["svmlight", "h5ad"])
@pytest.mark.parametrize("stop_at", range(1, 6))
def test_a_sparse_ingest_continues_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stop_at: int
) -> None:
    monkeypatch.setattr("dsel.data.formats.svmlight.BLOCK_BYTES", 300)
    monkeypatch.setattr("dsel.data.formats.annotated.BLOCK_VALUES", 20)
    monkeypatch.setattr(sparse_writer, "CHUNK_VALUES", 32)
    monkeypatch.setattr(sparse_writer, "CHUNK_ROWS", 7)
    source, options = tmp_path / "d.svm", {}
    if kind == "svmlight":
        svmlight(source)
    else:
        source, options = tmp_path / "d.h5ad", {"target": "t"}
        anndata = pytest.importorskip("anndata")
        obs = pd.DataFrame({"t": np.arange(60.0)}, index=[f"s{i}" for i in range(60)])
        anndata.AnnData(SPARSE, obs=obs).write_h5ad(source)
    ingest(source, tmp_path / "whole", **options)
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == stop_at:
            raise Stop

    with pytest.raises(Stop):
        ingest(source, tmp_path / "parts", progress=stop, **options)
    report = ingest(source, tmp_path / "parts", **options)
    assert (report.resumed_rows > 0) == (stop_at > 2) or stop_at <= 2
    assert report.resumed_rows <= calls[-1]
    files = [f.relative_to(tmp_path / "whole") for f in (tmp_path / "whole").rglob("*") if f.is_file()]
    assert len(files) > 20
    for file in files:
        if str(file) != "zarr.json":  # the metadata of the group hold the time
            assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float64"])
def test_a_chunk_that_is_not_there_is_never_taken_for_zeros(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 9, size=(40, 4)).astype(dtype)
    stored = xr.Dataset({"X": (("sample", "feature"), values), "Y": (("sample", "target"), values[:, [2]] * 2.0)})
    stored.to_zarr(tmp_path / "x.zarr", encoding={"X": {"chunks": (10, 4)}}, consolidated=False)
    assert dsel.select(tmp_path / "x.zarr", k=1, method="forward").indices == (2,)
    (tmp_path / "x.zarr/X/c/2/0").unlink()
    problem = (
        r"X of .* has NaN values.*: 40, in column"
        if dtype == "float64"
        else r"file c/2/0, rows 20 to 29\) is not there"
    )
    with pytest.raises(DataError, match=problem):
        dsel.select(tmp_path / "x.zarr", k=1, method="forward")
    if dtype != "float64":  # the owner knows that these are zeros
        ingest(tmp_path / "x.zarr", tmp_path / "copy.zarr")
        assert not dsel.open_store(tmp_path / "copy.zarr").x.read(20, 30).any()


def test_a_lost_chunk_of_a_sparse_store_is_found(tmp_path: Path) -> None:
    ingest(svmlight(tmp_path / "d.svm"), tmp_path / "s.zarr")
    (tmp_path / "s.zarr/X/data/c/0").unlink()
    with pytest.raises(DataError, match="X/data"):
        dsel.select(tmp_path / "s.zarr", k=2)


def test_sparse_anndata_keeps_values_classes_and_weights_and_anndata_reads_the_store(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame(
        {"kind": pd.Categorical(list("ab") * 30), "w": np.arange(60)}, index=[f"s{i}" for i in range(60)]
    )
    data = anndata.AnnData(SPARSE.astype("float32"), obs=obs, layers={"counts": SPARSE * 2})
    data.write_h5ad(tmp_path / "d.h5ad")
    report = ingest(tmp_path / "d.h5ad", tmp_path / "s.zarr", target="kind", weight="w", variable="layers/counts")
    assert report.classes == {"kind": ["a", "b"]}
    assert report.dtype == "float64"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = anndata.read_zarr(tmp_path / "s.zarr")
    np.testing.assert_array_equal(read.X.toarray(), (SPARSE * 2).toarray())
    assert read.obs["kind=a"].tolist() == [1, 0] * 30
    assert read.obs_names.tolist() == obs.index.tolist()
    found = as_dataset(tmp_path / "s.zarr")
    assert found.targets.tolist() == ["kind=b"]
    assert found.weights is not None
    in_memory = ingest(data, tmp_path / "m.zarr", target="kind")
    assert in_memory.stored == SPARSE.nnz


def test_a_matrix_stored_by_columns_is_refused(tmp_path: Path) -> None:
    path, _ = annotated(tmp_path / "d.h5ad", scipy.sparse.csc_matrix(X))
    with pytest.raises(DataError, match=r"by columns.*tocsr"):
        ingest(path, tmp_path / "s.zarr")


def test_options_of_dense_stores_are_refused_for_sparse_ones(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="sparse X has no missing"):
        ingest(svmlight(tmp_path / "d.svm"), tmp_path / "s.zarr", missing="mean")


# --- which array is X ---


def test_a_matrix_of_three_dimensions_has_a_feature_for_each_point(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((6, 2, 3))
    ds = xr.Dataset({"t2m": (("lat", "day", "lon"), values.transpose(1, 0, 2))})
    ds = ds.assign_coords(lat=[10.0, 20.0], lon=[1, 2, 3])
    report = ingest(ds, tmp_path / "s.zarr", dimension="day")
    store = open_store(tmp_path / "s.zarr")
    np.testing.assert_array_equal(store.x.read(0, 6), values.reshape(6, 6))
    assert store.features.tolist()[:2] == ["lat=10.0,lon=1", "lat=10.0,lon=2"]
    assert report.notes == ["samples are along the dimension day"]


def test_a_data_array_is_x(tmp_path: Path) -> None:
    ingest(dataset().temperature, tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    np.testing.assert_array_equal(store.x.read(0, M), X)
    assert store.features.tolist() == NAMES


def test_variables_of_one_dimension_are_columns(tmp_path: Path) -> None:
    ds = xr.Dataset({"wind": ("time", [1.0, 2.0, 4.0]), "rain": ("time", [5, 6, 7]), "load": ("time", [0.0, 1.0, 0.0])})
    ingest(ds, tmp_path / "s.zarr", target="load")
    store = open_store(tmp_path / "s.zarr")
    assert store.features.tolist() == ["wind", "rain"]
    np.testing.assert_array_equal(store.x.read(0, 3), [[1, 5], [2, 6], [4, 7]])


def test_several_matrices_are_listed(tmp_path: Path) -> None:
    both = dataset().assign(pressure=dataset().temperature)
    with pytest.raises(DataError, match=r"temperature \('station', 'time'\).*variable"):
        ingest(both, tmp_path / "s.zarr", target="t")
    ingest(both, tmp_path / "s.zarr", target="t", variable="pressure")
    with pytest.raises(OptionError, match=r"dimension='tme'.*'time'"):
        ingest(dataset(), tmp_path / "t.zarr", dimension="tme")
    with pytest.raises(OptionError, match=r"variable='temprature'.*'temperature'"):
        ingest(dataset(), tmp_path / "t.zarr", variable="temprature")


def test_a_target_of_text_in_hdf5_has_classes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["X"], file["label"] = X[:3], ["red", "blue", "red"]
        file["other"] = X[:3]
    report = ingest(tmp_path / "d.h5", tmp_path / "s.zarr", target="label")
    assert report.classes == {"label": ["blue", "red"]}
    store = open_store(tmp_path / "s.zarr")
    assert store.y is not None
    assert store.y.read(0, 3).tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(OptionError, match=r"target='lable'.*'label'"):
        ingest(tmp_path / "d.h5", tmp_path / "t.zarr", target="lable")


def test_a_folder_of_partitions_has_columns_from_its_names(tmp_path: Path) -> None:
    for year in (2020, 2021):
        (tmp_path / f"d/year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"a": [1.5, 2.5]}), tmp_path / f"d/year={year}/p.parquet")
    ingest(tmp_path / "d", tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    assert store.features.tolist() == ["a", "year"]
    np.testing.assert_array_equal(store.x.read(0, 4), [[1.5, 2020], [2.5, 2020], [1.5, 2021], [2.5, 2021]])


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("d.h5", "h5py", "hdf5"), ("d.svm", "sklearn.datasets", "sklearn"), ("d.h5ad", "anndata.io", "anndata")],
)
def test_a_missing_package_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    if name == "d.h5ad":
        annotated(tmp_path / name)
    (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"dsel\[{extra}\]"):
        ingest(tmp_path / name, tmp_path / "s.zarr")


@pytest.mark.parametrize("name", ["d.h5", "d.nc", "d.h5ad", "d.feather", "d.svm"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("something else entirely\n" * 10)
    with pytest.raises(DataError, match=r"is not an? |cannot be read"):
        ingest(tmp_path / name, tmp_path / "s.zarr")


def test_what_another_library_said_ends_with_one_full_stop(tmp_path: Path) -> None:
    (tmp_path / "d.nc").write_bytes(b"CDF\x01" + bytes(20))
    with pytest.raises(DataError, match=r"cannot be read as a NetCDF file: [^.]+\. Copy or write the file again"):
        ingest(tmp_path / "d.nc", tmp_path / "s.zarr")


def test_a_file_that_another_process_writes_is_not_said_to_be_damaged(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["X"] = X
        file.flush()
        code = "import sys, dsel; dsel.ingest(sys.argv[1], sys.argv[1] + '.zarr')"
        done = subprocess.run([sys.executable, "-c", code, file.filename], capture_output=True, text=True, check=False)
    assert "unable to lock" in done.stderr
    assert "that no other process writes to it" in done.stderr


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
@pytest.mark.parametrize(
    ("times", "error", "words"),
    [
        (
            {"units": "fortnights since 2000-02-25"},
            DataError,
            "cannot be decoded. Correct their units and calendar, or",
        ),
        ({"units": "days since 2000-02-25", "calendar": "noleap"}, MissingExtraError, "needs cftime. pip install cft"),
    ],
)
def test_times_that_cannot_be_decoded_are_named_and_may_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, times: dict[str, str], error: Any, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "cftime", None)
    path = tmp_path / f"data.{suffix}"
    packed = np.round(X, 1)
    data = xr.Dataset({"x": (("time", "lat"), packed)}, {"time": ("time", np.arange(M), times)})
    save = data.to_netcdf if suffix == "nc" else partial(data.to_zarr, consolidated=False)
    save(path, encoding={"x": {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -99}})
    with pytest.raises(error, match=f"the times 'time' are '{times['units']}'.*{words}"):
        ingest(path, tmp_path / "s")
    ingest(path, tmp_path / "s", drop="time")
    np.testing.assert_allclose(open_store(tmp_path / "s").x.read(0, M), packed)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix])
def test_rows_of_annotated_data_are_predicted_by_label(make: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(3)
    D = rng.normal(size=(80, 12)) * (rng.random((80, 12)) < 0.5)
    y = 3 * D[:, 3] - D[:, 9] + 0.3 * rng.normal(size=80)
    obs = pd.DataFrame({"y": y, "kind": np.where(y > 0, "up", "down")}, index=[f"cell {i}" for i in range(80)])
    data = anndata.AnnData(make(D), obs=obs, var=pd.DataFrame(index=[f"gene {j}" for j in range(12)]))
    every: list[dict[str, Any]] = [{"Y": "y"}, {}, {"Y": "kind", "loss": "logistic", "lam": 1.0}]
    for asked in every:
        selection = dsel.select(data, k=2, **asked)
        frame = data.to_df()
        pd.testing.assert_index_equal(selection.predict(data).index, obs.index)
        np.testing.assert_allclose(selection.predict(data[:, ::-1]), selection.predict(frame), rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(selection.transform(data), frame[selection.names])
    with pytest.raises(DataError, match="X lacks 2 of the 2 chosen columns"):
        selection.predict(data[:, ["gene 0", "gene 1"]])
    data.write_h5ad(tmp_path / "data.h5ad")
    dsel.ingest(tmp_path / "data.h5ad", tmp_path / "store.zarr", target="kind")
    stored = dsel.select(tmp_path / "store.zarr", k=2, loss="logistic", lam=1.0)
    assert (stored.targets, stored.classes) == (("kind=up",), {"kind": ["down", "up"]})
    np.testing.assert_allclose(np.ravel(stored.predict(data)), selection.predict(data), rtol=1e-6)
    assert dsel.select(tmp_path / "store.zarr", k=1, targets=["kind=down"]).targets == ("kind=down",)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix])
def test_a_view_of_annotated_data_is_as_its_copy(make: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(3)
    D = rng.normal(size=(80, 6))
    obs = pd.DataFrame({"y": D[:, 3] - D[:, 1], "w": rng.uniform(1, 2, 80), "batch": list("ab") * 40})
    whole = anndata.AnnData(make(D), obs=obs.set_index(obs.index.astype(str)))
    for view in (whole[whole.obs.batch == "a"], whole[:50], whole[:, :4], whole[5:60, [1, 3, 5]]):
        copy = view.copy()
        found = dsel.select(view, "y", k=2, sample_weight="w")
        expected = dsel.select(copy, "y", k=2, sample_weight="w")
        assert (found.labels, found.r2) == (expected.labels, expected.r2)
        assert dsel.select(view, ["y", "w"], k=1).targets == ("y", "w")
        assert expected.score(view, "y") == expected.score(copy, "y")
        assert dsel.certify(expected, view, "y", sample_weight="w").certificate[0]["proven"]
        np.testing.assert_array_equal(expected.predict(view), expected.predict(copy))
    whole.write_h5ad(tmp_path / "data.h5ad")
    backed = anndata.read_h5ad(tmp_path / "data.h5ad", backed="r")[:50]
    with pytest.raises(OptionError, match=r"AnnData object in a file. Read it: X.to_memory\(\)"):
        dsel.select(backed, "y", k=2)
    np.testing.assert_allclose(found.predict(backed), found.predict(whole)[:50])
    for source in (view, backed):
        report = dsel.ingest(source, tmp_path / "data.zarr", target="y", overwrite=True)
        assert (report.shape, report.notes) == (source.shape, ["targets are y"])

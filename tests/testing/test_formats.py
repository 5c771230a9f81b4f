"""Every file format of dsel keeps the contract of a format, and `check_format` finds those that break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dsel.data.formats.arrays import ArraySource
from dsel.data.formats.npy import FORMAT as NPY
from dsel.data.formats.registry import FORMATS
from dsel.data.formats.source import Format, Reader, Rows
from dsel.testing import check_format

X = np.random.default_rng(0).normal(size=(7, 3)).round(3)
Y = (2 * X[:, 0] - 1).round(3)
LABELS = ["a", "b", "c"]


def frame() -> pd.DataFrame:
    return pd.DataFrame(X, columns=LABELS).assign(t=Y)


def dataset() -> xr.Dataset:
    return xr.Dataset({"X": (("sample", "feature"), X), "t": (("sample",), Y)}, {"feature": LABELS})


def write_hdf5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["X"], file["t"] = X, Y


def write_annotated(path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    obs, var = pd.DataFrame({"t": Y}, [f"s{i}" for i in range(7)]), pd.DataFrame(index=LABELS)
    anndata.AnnData(X, obs, var).write_h5ad(path)


def write_svmlight(path: Path) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    datasets.dump_svmlight_file(X, Y, str(path))


def write_arrow(path: Path) -> None:
    frame().to_feather(path)


TARGET = {"target": ("t",)}
ARRAYS = {"variable": "X", **TARGET}
FILES: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any]]] = {
    "csv": ("d.csv", lambda path: frame().to_csv(path, index=False), TARGET),
    "csv, compressed": ("d.csv.gz", lambda path: frame().to_csv(path, index=False), TARGET),
    "tsv": ("d.tsv", lambda path: frame().to_csv(path, index=False, sep="\t"), TARGET),
    "parquet": ("d.parquet", lambda path: frame().to_parquet(path, index=False, row_group_size=3), TARGET),
    "arrow": ("d.feather", write_arrow, TARGET),
    "npy": ("d.npy", lambda path: np.save(path, X), {}),
    "npz": ("d.npz", lambda path: np.savez(path, X=X, Y=Y, feature_names=np.array(LABELS)), {}),
    "netcdf": ("d.nc", lambda path: dataset().to_netcdf(path, engine="h5netcdf"), ARRAYS),
    "zarr": ("d.zarr", lambda path: dataset().to_zarr(path, consolidated=False), ARRAYS),
    "hdf5": ("d.h5", write_hdf5, ARRAYS),
    "anndata": ("d.h5ad", write_annotated, TARGET),
    "svmlight": ("d.svm", write_svmlight, {}),
}


@pytest.mark.parametrize("case", FILES)
def test_the_formats_of_dsel_keep_the_contract(case: str, tmp_path: Path) -> None:
    file, write, options = FILES[case]
    write(tmp_path / file)
    labelled = case not in ("npy", "hdf5", "svmlight")
    check_format(
        FORMATS[case.split(",")[0]], tmp_path / file, X, None if case == "npy" else Y,
        features=LABELS if labelled else None, **options,
    )  # fmt: skip


def test_every_format_is_checked() -> None:
    assert {case.split(",")[0] for case in FILES} >= set(FORMATS.own)


class Forgetful(ArraySource):
    """It begins at the first row wherever it should begin."""

    def open(self, start: int, scratch: Path) -> Reader:
        return super().open(0, scratch)


class Impatient(ArraySource):
    """Its reader fills the first row alone."""

    def open(self, start: int, scratch: Path) -> Reader:
        reader, fill = super().open(start, scratch), super().open(start, scratch).fill

        def first(rows: Rows) -> None:
            fill(rows[:1])

        reader.fill = first  # type: ignore[method-assign]
        return reader


class Restless(ArraySource):
    """Its identity is that of the object, not of the file."""

    def identity(self) -> dict[str, Any]:
        return {"object": id(self)}


def saved(path: Path) -> Path:
    """Write X as NumPy does, under any suffix."""
    with path.open("wb") as file:
        np.save(file, X)
    return path


def loads(kind: type[ArraySource]) -> Format:
    return Format("broken", (".values",), lambda path, options: kind(np.load(path), files=[path], name=path.name))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Forgetful, "the rows from 1 on, 7 at a time, differ"),
        (Impatient, "1 at a time, differ|2 at a time, differ"),
        (Restless, "the identity of an unchanged file changes"),
    ],
)
def test_a_source_that_breaks_the_contract_is_found(kind: type[ArraySource], message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        check_format(loads(kind), saved(tmp_path / "d.values"))


def test_other_values_and_labels_are_found(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", X)
    with pytest.raises(AssertionError, match="X is not what the file holds"):
        check_format(NPY, tmp_path / "d.npy", X + 1e-12)
    with pytest.raises(AssertionError, match="the columns have no labels"):
        check_format(NPY, tmp_path / "d.npy", features=LABELS)


def test_a_file_that_is_accepted_although_it_is_damaged_is_found(tmp_path: Path) -> None:
    def forgiving(path: Any, options: Any) -> ArraySource:
        try:
            return ArraySource(np.load(path), files=[path])
        except (ValueError, EOFError):
            return ArraySource(np.zeros((3, 3)), files=[path])

    with pytest.raises(AssertionError, match="accepts a file of no bytes"):
        check_format(Format("forgiving", (".values",), forgiving), saved(tmp_path / "d.values"))


def test_a_suffix_of_another_format_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"reads d\.npy as npy, and not as other"):
        check_format(replace(NPY, name="other"), saved(tmp_path / "d.npy"))


def test_suffixes_and_options_that_cannot_be_are_found(tmp_path: Path) -> None:
    saved(tmp_path / "d.npy")
    with pytest.raises(AssertionError, match="the suffix 'npy' is not valid"):
        check_format(replace(NPY, suffixes=("npy",)), tmp_path / "d.npy")
    with pytest.raises(AssertionError, match="no options"):
        check_format(replace(NPY, takes=frozenset(["colour"])), tmp_path / "d.npy")

"""The commands that use a saved result: export and predict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsel
from dsel.errors import MissingInputError, OptionError, OutputError
from tests.cli.test_cli import invoke
from tests.stores import make_store, regression

X, Y = regression(m=120, n=18)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(50, 6))
    dsel.select(store, k=3, method="forward").save(tmp_path / "result")
    return tmp_path / "result"


def test_labels_are_printed_for_other_programs(result: Path) -> None:
    assert invoke("export", result) == "x2\nx5\nx7\n"


def test_csv_and_json_have_the_coefficients(result: Path) -> None:
    s = dsel.open_selection(result)
    assert invoke("export", result, "--format", "csv").splitlines()[1] == f"(intercept),,{float(s.intercept[0])!r}"
    found = json.loads(invoke("export", result, "--format", "json"))
    assert found["coefficients"] == s.coefficients.tolist()
    assert found["groups"] == {}


def test_json_has_the_groups(tmp_path: Path) -> None:
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(50, 6))
    dsel.select(store, k=2, method="forward", groups={"both": ["x2", "x5"]}).save(tmp_path / "groups")
    found = json.loads(invoke("export", tmp_path / "groups", "--format", "json"))
    assert found["groups"]["both"] == [2, 5]
    assert found["labels"][:2] == ["x2", "x5"]


def test_a_file_is_not_replaced(result: Path, tmp_path: Path) -> None:
    invoke("export", result, "--out", tmp_path / "labels.txt")
    assert (tmp_path / "labels.txt").read_text() == "x2\nx5\nx7\n"
    with pytest.raises(OutputError, match="exists already"):
        invoke("export", result, "--out", tmp_path / "labels.txt")


def test_predictions_of_a_store_are_written(result: Path, tmp_path: Path) -> None:
    said = invoke("predict", result, tmp_path / "data.zarr", tmp_path / "predictions.zarr")
    assert "120 rows x 1 target from 3 columns" in said
    found = xr.open_zarr(tmp_path / "predictions.zarr").prediction.values
    np.testing.assert_allclose(found, dsel.open_selection(result).predict(X))
    with pytest.raises(OutputError, match="exists already"):
        invoke("predict", result, tmp_path / "data.zarr", tmp_path / "predictions.zarr")


def test_workers_of_a_cluster_write_the_same(result: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("cluster:\n  local: {workers: 1, memory: 512MiB}\n")
    for name, options in (("a.zarr", ()), ("b.zarr", ("--cluster", tmp_path / "cluster.yaml"))):
        invoke("predict", result, tmp_path / "data.zarr", tmp_path / name, *options)
    a, b = (xr.open_zarr(tmp_path / name).load() for name in ("a.zarr", "b.zarr"))
    assert a.equals(b)


def test_what_is_not_there_or_wrong_is_named(result: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"selection\.json"):
        invoke("export", tmp_path)
    with pytest.raises(MissingInputError, match="no store"):
        invoke("predict", result, tmp_path / "none.zarr", tmp_path / "p.zarr")
    (tmp_path / "cluster.yaml").write_text("cluster:\n  local: {worker: 1}\n")
    with pytest.raises(OptionError, match="worker"):
        invoke("predict", result, tmp_path / "data.zarr", tmp_path / "p.zarr", "--cluster", tmp_path / "cluster.yaml")


def test_a_value_that_the_selection_did_not_see_is_a_line_of_the_log(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "city": np.where(X[:, 1] > 0, "B", "K"), "y": X[:, 0] + (X[:, 1] > 0)})
    dsel.select(frame, "y", k=2).save(tmp_path / "result")
    dsel.ingest(frame.head(4).assign(city=["B", "Z", "B", "B"]), tmp_path / "new.zarr", target="y", categorical="city")
    said = invoke("predict", tmp_path / "result", tmp_path / "new.zarr", tmp_path / "p.zarr")
    assert "4 rows x 1 target from 3 columns" in said
    assert "Column 'city' has values that the selection was not made from, such as 'Z'" in said

"""`dsel ingest`: its options, what it prints, and what it says about a table that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dsel.data.store.reader import open_store
from tests.cli_runner import call

TABLE = "id;10;size;kind;note\na;1;1,5;red;x1\nb;1;?;blue;x2\nc;1;2,5;red;x3\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "d.csv").write_text(TABLE)
    return tmp_path / "d.csv"


def test_every_option_of_a_table(table: Path, tmp_path: Path) -> None:
    code, out, _ = call(
        "ingest", table, tmp_path / "s.zarr", "--separator", ";", "--decimal", ",", "--index", "id",
        "--drop", "note,10", "--categorical", "auto", "--missing", "mean", "--target", "kind",
    )  # fmt: skip
    assert code == 0
    store = open_store(tmp_path / "s.zarr")
    assert store.x.read(0, 3).tolist() == [[1.5], [2.0], [2.5]]
    assert store.targets.tolist() == ["kind=blue", "kind=red"]
    assert "3 samples x 1 feature and 1 target of 2 classes, " in out
    assert "target kind has the classes blue, red" in out
    assert "missing values became the mean of their column: 1 of 3 in 'size'\n" in out + "\n"


def test_a_name_of_digits_is_a_name_and_other_digits_are_a_position(table: Path, tmp_path: Path) -> None:
    code, _, _ = call(
        "ingest", table, tmp_path / "s.zarr", "--separator", ";", "--decimal", ",", "--index", "0", "--target", "10",
        "--drop", "-1", "--drop", "3",
    )  # fmt: skip
    assert code == 0
    store = open_store(tmp_path / "s.zarr")
    assert (store.features.tolist(), store.targets.tolist()) == (["size"], ["10"])
    np.testing.assert_array_equal(store.x.read(0, 3), [[1.5], [np.nan], [2.5]])


def test_the_report_as_json(table: Path, tmp_path: Path) -> None:
    _, out, _ = call(
        "ingest", table, tmp_path / "s.zarr", "--separator", ";", "--decimal", ",", "--drop", "note,id",
        "--categorical", "kind", "--json",
    )  # fmt: skip
    report = json.loads(out)
    assert report["shape"] == [3, 4]
    assert report["missing"] == {"size": 1}
    assert report["constant"] == ["10"]
    assert report["categories"] == {"kind": 2}


def test_append_to_a_store_with_a_category(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,town,y\n1,A,1\n2,B,2\n3,A,4\n")
    (tmp_path / "b.csv").write_text("a,town,y\n4,B,3\n")
    call("ingest", tmp_path / "a.csv", tmp_path / "s.zarr", "--target", "y", "--categorical", "town")
    code, out, _ = call("append", tmp_path / "b.csv", tmp_path / "s.zarr", "--json")
    assert code == 0
    assert json.loads(out)["categories"] == {"town": 2}


def test_missing_targets_are_named_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,3,1\n2,1,\n3,4,3\n4,1,5\n5,5,4\n6,9,\n")
    code, out, _ = call("ingest", path, tmp_path / "s.zarr", "--target", "y")
    assert (code, "missing values in 1 target: y (2)" in out, "missing=rows" in out) == (0, True, True)
    _, out, _ = call("ingest", path, tmp_path / "s.zarr", "--target", "y", "--overwrite", "--json")
    assert (json.loads(out)["missing"], json.loads(out)["missing_targets"]) == ({}, {"y": 2})
    _, out, _ = call("init", tmp_path / "s.zarr", "--out", tmp_path / "job.yaml")
    assert "2 values of the targets are missing" in out
    assert "2 values of the targets are missing" in (tmp_path / "job.yaml").read_text()
    code, _, err = call("run", tmp_path / "job.yaml")
    assert (code, "--missing rows" in err) == (65, True)
    assert call("ingest", path, tmp_path / "s.zarr", "--target", "y", "--overwrite", "--missing", "rows")[0] == 0
    _, out, _ = call("init", tmp_path / "s.zarr", "--out", tmp_path / "job.yaml", "--overwrite", "--json")
    assert json.loads(out)["problem"] == ""
    assert call("run", tmp_path / "job.yaml")[0] == 0


def test_problems_are_listed_line_by_line(table: Path, tmp_path: Path) -> None:
    code, _, err = call("ingest", table, tmp_path / "s.zarr", "--separator", ";", "--decimal", ",")
    assert code == 65
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == [
        "  - row 0, column 'id'", "  - row 0, column 'kind'", "  - row 0, column 'note'",
    ]  # fmt: skip
    code, _, err = call("ingest", table, tmp_path / "s.zarr")
    assert code == 65
    assert "give it as separator" in err

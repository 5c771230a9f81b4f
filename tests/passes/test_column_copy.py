"""A copy by columns: what it holds, who reads it, when it is made, and that nothing is left of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.engine_protocol import THREADS, ThreadEngine
from dsel.errors import CapacityError, DataError
from dsel.passes import column_copy, loss_data, loss_fits, loss_models
from dsel.passes.column_copy import ColumnCopy, copied
from dsel.passes.data_pass import log_passes
from dsel.planning.validation import validate
from dsel.selection import loss_certificate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection
from tests.stores import make_store

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 30)).astype(np.float32)
Y = (RNG.random(400) < 1.0 / (1.0 + np.exp(-X[:, 3] + X[:, 11] - 0.5 * X[:, 20]))).astype(float)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose chunks are full rows."""
    return make_store(tmp_path / "data.zarr", X, Y[:, None], chunks=(64, 30))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files, where small data are copied, too, and not read into this process."""
    monkeypatch.setattr(column_copy, "_SAVES_BYTES", 1)
    monkeypatch.setattr(loss_data, "KEPT_BYTES", 0)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def reads(selection: Any) -> tuple[Any, Any]:
    """Return the planned and the measured passes, bytes and tasks."""
    plan = selection.plan
    return tuple({name: plan[which][name] for name in ("passes", "bytes_read")} for which in ("planned", "measured"))


def test_a_copy_holds_the_values_and_reads_only_the_columns_that_are_asked_for(store: Path, tmp_path: Path) -> None:
    dataset = as_dataset(str(store))
    copy = ColumnCopy(dataset, tmp_path)
    assert copy.writing.run() == X.nbytes
    rows = copy.rows
    assert np.array_equal(np.concatenate([b.x.read() for b in rows.blocks]), X)
    few = np.array([2, 29])
    (cut,) = rows.rows(70, 90)
    assert np.array_equal(cut.x.read(few), X[70:90, few])
    y = Y.nbytes
    assert (rows.bytes_of_pass(few), rows.bytes_of_pass()) == (400 * 2 * 4 + y, dataset.bytes_of_pass())
    assert dataset.bytes_of_pass(few) == dataset.bytes_of_pass()


def test_the_answer_is_that_without_a_copy_and_much_less_is_read(
    store: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dsel.select(store, k=3, loss="logistic", lam=1.0)
    planned, measured = reads(found)
    assert planned["passes"] == measured["passes"] == 6  # the Gram matrix, the copy, three models, the check
    assert measured["bytes_read"] == pytest.approx(planned["bytes_read"], rel=0.2)
    assert not list(small.iterdir())
    monkeypatch.setattr(column_copy, "_SAVES_BYTES", 1 << 60)
    direct = dsel.select(store, k=3, loss="logistic", lam=1.0)
    assert (direct.indices, direct.error) == (found.indices, found.error)
    assert reads(direct)[1]["bytes_read"] > 1.8 * measured["bytes_read"]
    there = dsel.select(X, Y, k=3, loss="logistic", lam=1.0)
    assert there.indices == found.indices


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({"k": 2, "class_weight": "balanced"}, 7),  # the first model is not the squared error
        ({"k": "auto", "max_k": 2}, 8),  # a model about the best subset of each size
        ({"k": "auto", "max_k": 2, "choose_k": {"held_out": 0.3}}, 15),  # also on some of the rows, with their scales
    ],
)
def test_passes_are_as_planned(store: Path, asked: dict[str, Any], passes: int) -> None:
    planned, measured = reads(dsel.select(store, loss="logistic", lam=1.0, **asked))
    assert planned["passes"] == measured["passes"] == passes
    assert measured["bytes_read"] == pytest.approx(planned["bytes_read"], rel=0.2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("columns", "most"),
    [(False, 1 << 20), (True, 1 << 20), (False, 8 * 12**2)],
    ids=["one target", "a column for each class", "one fit at a time"],
)
def test_three_or_more_classes_take_the_planned_passes_over_the_copy(
    tmp_path: Path, columns: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (loss_fits, loss_models):
        monkeypatch.setattr(module, "STEP_BYTES", most)
    scores = np.stack([X[:, 3], -X[:, 11], X[:, 20], 0.0 * X[:, 0]], axis=1)
    classes = (2.0 * scores + np.random.default_rng(1).gumbel(size=(400, 4))).argmax(axis=1)
    y = np.eye(4)[classes] if columns else classes[:, None].astype(float)
    found = dsel.select(make_store(tmp_path / "classes.zarr", X, y, chunks=(200, 30)), k=3, loss="multinomial", lam=1.0)
    planned, measured = reads(found)
    assert sorted(found.indices) == [3, 11, 20]
    assert planned["passes"] == measured["passes"] == 7 - columns  # for one target, the first model needs a pass
    assert measured["bytes_read"] == pytest.approx(planned["bytes_read"], rel=0.3)
    there = dsel.select(X, y if columns else classes, k=3, loss="multinomial", lam=1.0)
    assert there.indices == found.indices
    assert there.error == pytest.approx(found.error, rel=1e-9)


@pytest.mark.usefixtures("small")
def test_a_wide_proof_reads_the_columns_of_its_pool_from_a_copy(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dsel")
    monkeypatch.setattr(loss_certificate, "MOST_RELAXED", 5)  # 30 columns are wide
    selection = dsel.select(store, k=3, loss="logistic", lam=1.0)
    made, found = [], []
    for least in (1, 1 << 60):
        monkeypatch.setattr(column_copy, "_SAVES_BYTES", least)
        with log_passes() as log:
            found.append(dsel.certify(selection, store).certificate[-1])
        made.append([record for record in log.records if record.name in ("columns", "copy by columns")])
    assert [row["status"] for row in found] == ["optimal", "optimal"]
    assert found[0]["value"] == found[1]["value"]
    assert found[0]["nodes"] == found[1]["nodes"]
    (copy,) = [record for record in made[0] if record.name == "copy by columns"]
    read, direct = ([r.bytes_read for r in records if r.name == "columns"] for records in made)
    assert len(read) == len(direct)
    assert set(direct) == {copy.bytes_read}  # each time all of the store
    assert sum(read) == sum(400 * 4 * columns + Y.nbytes for columns in (3, 27))
    assert "read a copy of X by columns" in caplog.text


def test_the_plan_names_the_copy_and_what_it_takes(store: Path, small: Path) -> None:
    made = dsel.plan(store, k=3, loss="logistic")
    assert made.copies_columns
    assert made.disk_bytes == X.nbytes
    assert "note: the passes of the loss read a copy of X by columns, 46.88 kiB on disk, which is removed" in str(made)
    assert {stage.name: stage.passes for stage in made.stages}["copy by columns"] == 1
    assert not dsel.plan(store, k=3).copies_columns


@pytest.mark.usefixtures("small")
def test_chunks_of_few_columns_and_a_full_disk_need_none(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = make_store(tmp_path / "columns.zarr", X, Y[:, None], chunks=(400, 1))
    assert not dsel.plan(few, k=3, loss="logistic").copies_columns
    assert not dsel.plan(X, Y, k=3, loss="logistic").copies_columns
    monkeypatch.setattr(column_copy, "_DISK_SHARE", 0.0)
    made = dsel.plan(store, k=3, loss="logistic")
    assert not made.copies_columns
    assert "temporary has too little room; chunks of fewer columns save most of it, too" in str(made)


def test_a_disk_that_fills_up_is_a_warning(
    store: Path, small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: Any, **more: Any) -> None:
        raise CapacityError("The disk is full.", "Free some space.")

    monkeypatch.setattr(column_copy.np, "save", full)
    with caplog.at_level(logging.WARNING, "dsel"):
        found = dsel.select(store, k=3, loss="logistic", lam=1.0)
    assert "continuing without a copy by columns" in caplog.text
    assert sorted(found.indices) == [3, 11, 20]
    assert not list(small.iterdir())


def test_a_copy_that_is_lost_is_an_error_that_says_so(store: Path, tmp_path: Path) -> None:
    with copied(as_dataset(str(store)), None, THREADS) as rows:
        Path(rows.blocks[2].x.path).unlink()
        with pytest.raises(DataError, match="A copy of the data cannot be read"):
            loss_data.read_columns(rows, np.array([1]), None)


def test_what_a_killed_run_left_is_removed(store: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "out" / "cache"
    (scratch / "dsel-columns-old").mkdir(parents=True)
    with copied(as_dataset(str(store)), scratch, THREADS) as rows:
        assert [Path(rows.blocks[0].x.path).parent] == list(scratch.iterdir())
    assert not scratch.exists()


class Elsewhere(ThreadEngine):
    """An engine whose workers may be anywhere."""

    on_this_host = False


def test_workers_that_see_no_folder_of_this_process_get_no_copy(tmp_path: Path) -> None:
    assert RunContext(THREADS).copies is not None
    assert RunContext(Elsewhere()).copies is None
    assert RunContext(THREADS, shared_folder=tmp_path).copies is None  # of a job: its cluster shares no files
    assert RunContext(Elsewhere(), shared_folder=tmp_path, scratch=tmp_path).copies == tmp_path


@pytest.mark.usefixtures("small")
def test_the_plan_says_what_a_folder_of_the_workers_would_save(store: Path) -> None:
    validated = validate(as_dataset(str(store)), SelectionRequest(k=3, loss="logistic"))
    made = plan_selection(validated, RunContext(Elsewhere()))
    (note,) = (note for note in made.notes if "copy" in note)
    assert note.startswith("a copy of X by columns, 46.88 kiB on disk, would save ")
    assert "of reading, but the workers share no folder with this process" in note


def test_workers_of_this_machine_are_recognized() -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert DaskEngine(client).on_this_host


def test_columns_are_read_in_ranges_of_rows(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_data, "_RANGE_BYTES", 5 * 130 * 8)
    dataset, few = as_dataset(str(store)), np.array([4, 7])
    assert loss_data.read_pass(dataset, few).ranges == ((0, 128), (128, 256), (256, 384), (384, 400))
    assert np.array_equal(loss_data.read_columns(dataset, few, None), X[:, few])

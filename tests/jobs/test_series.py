"""A repeated job on a store that grows: folders, warm starts, what changed, and interruptions."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

import dsel
from dsel._lib.npz import pack_npz
from dsel.config.job import JobFile, RunSeries, read_job
from dsel.data.as_dataset import as_dataset
from dsel.errors import MissingInputError, OptionError, OutputError
from dsel.jobs import certify_folder
from dsel.jobs.locations import finished_job
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolders
from dsel.jobs.runner import resume_job, run_job
from dsel.selection.changes.compare import PreviousRun, part_sums
from dsel.selection.changes.runs import read_history, run_names
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.render import describe_changes
from dsel.selection.result import Selection
from dsel.storage.json_files import write_json
from dsel.storage.leftovers import machine
from dsel.storage.locks import is_free, locked
from dsel.storage.paths import latest_name
from tests.cli_runner import call
from tests.no_workers import run_here
from tests.stores import count_reads, reads_so_far

N, K = 10, 3
#: The address of no scheduler.
NOWHERE = "tcp://nowhere:1"
LABELS = [f"c{j}" for j in range(N)]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a scheduler with a worker in this process."""
    from distributed import LocalCluster

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def night(number: int, rows: int = 23, shifted: bool = False) -> pd.DataFrame:
    """The rows of one night. From night 3 on, c9 explains most of the target."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, N)) + (2.0 if shifted else 0.0)
    beta = np.zeros(N)
    beta[[1, 4, 7]] = 3.0, 2.0, 1.0
    beta[9] = 12.0 if number >= 3 else 0.0
    frame = pd.DataFrame(X, columns=LABELS)
    frame["y"] = X @ beta + rng.normal(size=rows)
    return frame


def first_store(store: Any) -> None:
    dsel.ingest(night(0, 100), store, target="y", chunk_rows=40)


@dataclass
class Job:
    """A job on a store, in a folder of runs."""

    folder: Any
    address: str
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> Any:
        return f"{self.folder}/data.zarr"

    @property
    def runs(self) -> Any:
        from dsel.storage.paths import as_path

        return as_path(f"{self.folder}/runs")

    def file(self, **keys: Any) -> JobFile:
        out = {"folder": str(self.runs), "keep": keys.pop("keep", 30)}
        values = {"store": self.store, "k": K, "out": out, "cluster": {"address": self.address}, "seed": 5}
        return JobFile.model_validate({**values, **self.keys, **keys})

    def run(self, **keys: Any) -> Selection:
        return run_job(self.file(**keys))


@pytest.fixture
def job(tmp_path: Path, no_workers: None) -> Job:
    first_store(tmp_path / "data.zarr")
    return Job(tmp_path, NOWHERE)


def from_the_beginning(store: Any, previous: Path | None, **keys: Any) -> Selection:
    """A run without any statistics that were saved, from the same previous front."""
    dataset = as_dataset(str(store))
    start = () if previous is None else PreviousRun.open(previous).subsets(dataset.features)
    request = JobFile.model_validate({"store": str(store), "k": K, "seed": 5, **keys}).request()
    return run_selection(dataset, request, RunContext(start=start))


def answer(selection: Selection) -> tuple[Any, ...]:
    return selection.indices, selection.error, selection.r2, selection.front, selection.coefficients.tobytes()


# --- losses ---


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_runs_by_a_loss_are_compared(tmp_path: Path, scheduler: str, loss: str) -> None:
    job, frames = (
        Job(tmp_path, scheduler, {"loss": loss, "lam": 1.0, "method": "forward"}),
        [night(0, 100), night(3, 90)],
    )
    for frame in frames:
        y = frame["y"].to_numpy()
        frame["y"] = np.digitize(y, [0.0] if loss == "logistic" else [-3.0, 3.0]).astype(float)
    dsel.ingest(frames[0], job.store, target="y", chunk_rows=40)
    first = job.run()
    dsel.append(frames[1], job.store)
    second = job.run()
    assert second.changes is not None
    assert second.changes["entered"] == ["c9"]
    both = pd.concat(frames)
    X, y = both[LABELS].to_numpy(), both["y"].to_numpy()
    before = dsel.select(X, y, k=K, loss=loss, lam=1.0, include=first.indices)
    assert second.changes["previous_error"] == pytest.approx(before.error, rel=1e-8)
    assert second.changes["previous_r2"] == pytest.approx(before.r2, rel=1e-8)
    assert second.changes["error"] == pytest.approx(second.error)
    new = first.score(frames[1][LABELS].to_numpy(), frames[1]["y"].to_numpy())
    assert second.changes["on_new_rows"]["error"] == pytest.approx(new["deviance"], rel=1e-8)
    assert second.changes["on_new_rows"]["r2"] == pytest.approx(new["d2"], rel=1e-8)
    assert any("The previous columns have error" in line for line in str(second).splitlines())


def test_survival_times_are_selected_on_workers_with_k_by_folds(tmp_path: Path, scheduler: str) -> None:
    asked: dict[str, Any] = {
        "loss": "cox", "lam": 1.0, "method": "forward", "seed": 5, "k": "auto", "max_k": 2,
        "choose_k": {"by": "folds", "folds": 2},
    }  # fmt: skip
    job, frames = Job(tmp_path, scheduler, {**asked, "targets": ["time", "event"]}), [night(0, 100), night(3, 90)]
    for number, frame in enumerate(frames):
        draw = np.random.default_rng(number)
        time, cut = draw.exponential(np.exp(-frame.pop("y") / 5.0)), draw.exponential(2.0, size=len(frame))
        frame["event"], frame["time"] = (time <= cut).astype(float), np.minimum(time, cut)
    dsel.ingest(frames[0], job.store, target=["event", "time"], chunk_rows=40)
    found = job.run()
    there = dsel.select(frames[0], ["time", "event"], **asked)
    assert found.indices == there.indices
    assert found.error == pytest.approx(there.error, rel=1e-9)
    dsel.append(frames[1], job.store)
    second = job.run()
    new = found.score(frames[1][LABELS].to_numpy(), frames[1][["time", "event"]].to_numpy())
    assert second.changes is not None
    assert second.changes["on_new_rows"]["error"] == pytest.approx(new["deviance"], rel=1e-8)


# --- groups ---


@pytest.mark.parametrize("rule", [{"folds": 2}, {"held_out": 0.3}])
@pytest.mark.parametrize("method", ["poss", "pposs"])
def test_groups_are_selected_on_workers_with_k_by_rows_that_are_left_out(
    tmp_path: Path, scheduler: str, rule: dict[str, Any], method: str
) -> None:
    draw, groups = np.random.default_rng(5), [[0, 1], [2], [3, 4, 5], [6], [7, 8], [9]]
    X = draw.normal(size=(300, 10))
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(10)])
    frame["y"] = X[:, 1] - 0.6 * X[:, 4] + 0.5 * X[:, 9] + draw.normal(size=300)
    asked: dict[str, Any] = {
        "groups": groups, "k": "auto", "max_k": 4, "choose_k": rule, "method": method,
    }  # fmt: skip
    options = {"warm_start": "none", "iterations": 300}
    job = Job(tmp_path, scheduler, {**asked, "options": options})
    dsel.ingest(frame, job.store, target="y", chunk_rows=100)
    found = job.run()
    there = dsel.select(frame, "y", seed=5, **asked, **options)
    assert [row.indices for row in found.front] == [row.indices for row in there.front]
    assert [row.error for row in found.front] == pytest.approx([row.error for row in there.front])
    assert found.notes == there.notes


# --- folders ---


def test_each_run_gets_a_folder_and_latest_points_to_the_last_good_one(job: Job) -> None:
    first = job.run()
    assert job.run().indices == first.indices  # nothing is new
    assert len(run_names(job.runs)) == 1
    for number in (1, 2, 3):
        dsel.append(night(number), job.store)
        selection = job.run(keep=3)
    names = run_names(job.runs)
    assert len(names) == 3  # the oldest one is removed
    assert names == sorted(names)
    assert latest_name(job.runs) == names[-1]
    for place in (job.runs, job.runs / "latest", job.runs / names[-1]):
        assert dsel.open_selection(place) == selection
    assert (job.runs / "latest").is_symlink()
    assert selection.changes is not None
    assert selection.changes["run"] == names[-2]


def test_an_unchanged_store_is_not_read(job: Job) -> None:
    expected = job.run()
    count_reads()
    assert job.run() == expected
    assert not [key for key in reads_so_far() if key.startswith(("X/", "Y/"))]


def test_what_a_run_left_that_was_killed_at_its_end_is_removed_when_nothing_is_new(job: Job) -> None:
    expected = job.run()
    owner = {"run": "killed", "host": "here", "machine": machine(), "pid": 2**22 + 1, "started": 0.0}
    run = (job.runs / "latest").resolve()
    for folder in (job.runs, run):
        write_json(folder / ".lock", owner)
    (run / "checkpoint.json").touch()
    assert finished_job(job.file(), Reporter()) is None  # the lock of the runs must be freed
    assert job.run() == expected
    assert not list(job.runs.rglob("checkpoint.json"))
    assert is_free(job.runs)
    assert is_free(run)
    assert finished_job(job.file(), Reporter()) == expected


def test_names_are_in_the_order_of_time_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    folders, moment = RunFolders(tmp_path), datetime(2026, 8, 1, 2, 0, tzinfo=UTC)
    for expected in ("20260801T020000Z", "20260801T020000Z-1", "20260801T020000Z-2"):
        assert folders.new(moment) == expected
        (tmp_path / expected).mkdir()
    assert folders.new(moment.replace(year=2025)) == "20260801T020000Z-3"
    assert folders.new(moment.replace(day=2)) == "20260802T020000Z"
    assert run_names(tmp_path)[-1] == "20260801T020000Z-2"


def test_one_run_at_a_time(job: Job) -> None:
    job.runs.mkdir()
    with locked(job.runs, "other"), pytest.raises(OutputError, match="Another run is writing to"):
        job.run()


def test_a_job_file_names_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"store": "s.zarr", "k": 2, "out": {"folder": "runs", "keep": 7}}))
    out = read_job(path).out
    assert out == RunSeries(folder=tmp_path / "runs", keep=7)
    assert JobFile.model_validate(read_job(path).model_dump(mode="json")).out == out
    for wrong, words in (({"folder": "runs", "keep": 0}, "keep"), ({"keep": 3}, "folder"), ({"foldr": "r"}, "fold")):
        path.write_text(yaml.safe_dump({"store": "s.zarr", "k": 2, "out": wrong}))
        with pytest.raises(OptionError, match=words):
            read_job(path)


# --- warm starts ---


def test_the_next_run_starts_from_the_previous_front(job: Job) -> None:
    job.run()
    previous = PreviousRun.open(job.runs / "latest")
    dsel.append(night(1), job.store)
    options = {"iterations": 1, "warm_start": "none", "exchange_every": 0}
    found = job.run(options=options)
    cold = run_selection(as_dataset(job.store), job.file(options=options).request())
    assert found.error < cold.error
    assert found.indices == previous.selection.indices
    assert set(previous.subsets(as_dataset(job.store).features)) >= {tuple(sorted(previous.selection.indices))}


def test_a_run_says_whose_verdict_differs_from_that_of_the_previous_run(job: Job) -> None:
    job.keys = {"method": "forward", "alternatives": {"within": "1%", "time": "1h"}}
    first = job.run().alternatives
    dsel.append(night(3, 60), job.store)
    found = job.run()
    assert first is not None
    assert found.alternatives is not None
    assert found.changes is not None
    verdicts = {label: [first.verdicts[label], now] for label, now in found.alternatives.verdicts.items()}
    assert found.changes["verdicts"] == {label: pair for label, pair in verdicts.items() if pair[0] != pair[1]}
    assert found.changes["verdicts"]["c9"][1] == "necessary"
    assert "Other verdicts: " in str(found)
    job.keys["alternatives"]["within"] = "20%"
    assert re.search(r"Other verdicts, about (.+) within 1.00% and \1 within 20.00% of the best: ", str(job.run()))


@pytest.mark.parametrize("method", ["pposs", "forward", "branch-and-bound"])
def test_other_methods_run_again_too(job: Job, method: str) -> None:
    job.keys = {"method": method}
    job.run()
    before = PreviousRun.open(job.runs / "latest").name
    dsel.append(night(1), job.store)
    found = job.run()
    assert answer(found) == answer(from_the_beginning(job.store, job.runs / before, method=method))
    assert found.changes is not None


# --- what changed ---


def test_the_result_says_what_changed_and_whether_it_is_better(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.run()
    dsel.append(night(1), job.store)
    changes = job.run(certify={"time": "1h"}).changes
    assert changes is not None
    assert (changes["entered"], changes["left"], changes["changed"]) == ([], [], False)
    assert (changes["rows_before"], changes["rows"], changes["new_rows"]) == (100, 123, 23)
    assert 0.8 < changes["on_new_rows"]["r2"] < 1.0
    assert changes["comparison"] is None
    assert changes["distance"] == pytest.approx(0.0, abs=1e-6)
    assert "The previous columns have the least possible error up to rounding" in list(describe_changes(changes))

    dsel.append(night(3, 60), job.store)
    selection = run_job(job.file(certify={"time": "1h"}), Reporter(log_format="json"))
    changes = selection.changes
    assert changes is not None
    assert (changes["entered"], changes["left"]) == (["c9"], ["c7"])
    old = ["c1", "c4", "c7"]
    X, Y = night(0, 100), night(1)
    data = pd.concat([X, Y, night(3, 60)])
    Z = (data[old] - data[old].mean()) / data[old].std(ddof=0)
    y = ((data["y"] - data["y"].mean()) / data["y"].std(ddof=0)).to_numpy()
    rest = y - Z.to_numpy() @ np.linalg.lstsq(Z.to_numpy(), y, rcond=None)[0]
    assert changes["previous_error"] == pytest.approx(rest @ rest, rel=1e-9)
    assert changes["distance"] == pytest.approx(changes["previous_error"] - changes["bound"], rel=1e-9)
    below = f"{changes['distance'] / changes['previous_error']:.2%} below that of the previous columns"
    assert f"The least possible error is at most {below}" in list(describe_changes(changes))
    comparison = changes["comparison"]
    assert comparison["gain"] == pytest.approx((changes["previous_error"] - selection.error) / len(y), rel=1e-6)
    assert comparison["beyond_splitting"]
    assert comparison["low"] < comparison["gain"] < comparison["high"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    event = next(line for line in lines if line.get("event") == "run-finished")
    assert event["level"] == "WARNING"
    assert (event["changed"], event["entered"]) == (True, ["c9"])


@pytest.mark.parametrize("loss", [None, "poisson"])
def test_a_bound_on_fewer_columns_is_not_compared_with_more_previous_columns(job: Job, loss: str | None) -> None:
    frames = [night(0, 100), night(1)]
    for frame in frames:
        frame["y"] = np.exp(frame["y"] / 5.0) if loss else frame["y"]
    dsel.ingest(frames[0], job.store, target="y", chunk_rows=40, overwrite=True)
    job.keys = {"loss": loss} if loss else {}
    job.run()
    dsel.append(frames[1], job.store)
    found = job.run(k=2, certify={"time": "1h"})
    assert found.changes is not None
    assert found.changes["previous_error"] < found.changes["bound"]
    assert found.changes["distance"] is None
    said = " ".join(describe_changes(found.changes))
    assert "east possible error" not in said
    if not loss:
        assert re.search(r"The new columns explain \d+\.\d+% less of Y", said)


def test_shares_of_the_previous_columns_are_without_the_penalty(job: Job) -> None:
    job.keys = {"lam": 20.0}
    first = job.run()
    for number, changed in ((1, False), (3, True)):
        dsel.append(night(number, 60), job.store)
        found = job.run()
        before = dsel.select(job.store, k=K, include=first.names, lam=20.0)
        assert found.changes is not None
        assert found.changes["changed"] == changed
        assert found.changes["previous_r2"] == pytest.approx(before.r2, rel=1e-9)
    gain = found.r2 - before.r2
    assert found.changes["comparison"]["gain"] == pytest.approx(gain, rel=1e-9)
    assert f"The new columns explain {gain:.4%} more of Y" in (job.runs / "latest/run.log").read_text()


def test_the_error_on_the_new_rows_is_that_of_the_previous_coefficients(job: Job) -> None:
    before = job.run()
    new = night(1)
    dsel.append(new, job.store)
    after = job.run().changes
    assert after is not None
    predicted = before.predict(new[LABELS].to_numpy()).ravel()
    y = new["y"].to_numpy()
    scale = pd.concat([night(0, 100), new])["y"].std(ddof=0)
    assert after["on_new_rows"]["error"] == pytest.approx(float(np.sum((y - predicted) ** 2)) / scale**2, rel=1e-9)
    assert after["on_new_rows"]["r2"] == pytest.approx(1 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))


def test_drift_is_measured_on_the_new_rows(job: Job) -> None:
    job.run()
    old, new = night(0, 100)[LABELS], night(1, 50, shifted=True)[LABELS]
    dsel.append(night(1, 50, shifted=True), job.store)
    selection = job.run()
    assert selection.changes is not None
    found = selection.changes["drift"]
    assert found["rows"] == "new"
    shift = (new.mean() - old.mean()) / old.std(ddof=0)
    assert found["largest_shift"] == pytest.approx(shift.abs().max(), rel=1e-9)
    for one in found["columns"]:
        assert one["shift"] == pytest.approx(shift[one["label"]], rel=1e-9)
        assert one["scale_ratio"] == pytest.approx((new.std(ddof=0) / old.std(ddof=0))[one["label"]], rel=1e-9)
    assert "Means that moved by 1 standard deviation" in (job.runs / "latest/run.log").read_text()


def test_all_columns_that_moved_are_counted(job: Job) -> None:
    job.run()
    dsel.append(night(1, 50, shifted=True), job.store)
    changes = job.run().changes
    assert changes is not None
    assert changes["drift"]["moved"] == N
    (line,) = (line for line in describe_changes(changes) if line.startswith("Means that moved"))
    assert line.count(" sd)") == 6
    assert line.endswith(" and 4 more")


def test_the_drift_of_a_column_that_was_constant_is_not_known(job: Job) -> None:
    dsel.ingest(night(0, 100).assign(c4=0.1, c7=0.3), job.store, target="y", chunk_rows=40, overwrite=True)
    job.run()
    dsel.append(night(1).assign(c7=0.3), job.store)
    changes = job.run().changes
    assert changes is not None
    assert changes["drift"]["unknown"] == 1  # c7 still is what it was
    lines = list(describe_changes(changes))
    assert "The drift of 1 column is not known: it was constant in the earlier rows" in lines


@pytest.mark.parametrize("case", ["window", "replaced", "replaced in another order"])
def test_rows_are_new_only_if_those_of_the_previous_run_come_before_them(job: Job, case: str) -> None:
    dsel.append(night(1, 30), job.store)
    job.run(rows={"last": 1} if case == "window" else None)
    if case != "window":
        labels = LABELS[::-1] if case == "replaced in another order" else LABELS
        dsel.ingest(night(2, 150)[[*labels, "y"]], job.store, target="y", chunk_rows=40, overwrite=True)
    changes = job.run().changes
    assert changes is not None
    assert (changes["new_rows"], changes["on_new_rows"]) == (None, None)
    assert (changes["drift"] or {"rows": None})["rows"] == (None if case == "replaced in another order" else "all")


def test_coefficients_for_other_targets_or_another_loss_predict_nothing_of_the_new_rows(job: Job) -> None:
    frames = [
        night(number, 60).assign(z=lambda f: f.c2 - f.c5, b=lambda f: (f.y > 0).astype(float)) for number in (0, 1)
    ]
    dsel.ingest(frames[0], job.store, target=["y", "z", "b"], chunk_rows=40, overwrite=True)
    job.run(targets=["b"], loss="logistic", lam=1.0, method="forward")
    dsel.append(frames[1], job.store)
    for target in ("b", "z"):
        changes = job.run(targets=[target]).changes
        assert changes is not None
        assert changes["on_new_rows"] is None
        dsel.append(frames[1], job.store)


def test_one_new_row_has_no_variance_to_explain(job: Job) -> None:
    dsel.ingest(night(0, 100).assign(w=1.0), job.store, target="y", weight="w", overwrite=True)
    for number in range(5):
        job.run()
        dsel.append(night(number, 1).assign(w=0.3 + number), job.store)
        changes = job.run().changes
        assert changes is not None
        assert changes["on_new_rows"]["r2"] is None


def test_new_rows_of_one_class_have_no_deviance_to_explain(job: Job) -> None:
    frames = [night(number, 60).assign(y=lambda f: (f.y > 0).astype(float), w=1.0) for number in range(7)]
    dsel.ingest(frames[0], job.store, target="y", weight="w", overwrite=True)
    job.keys = {"loss": "logistic", "lam": 3.0, "method": "forward"}
    for number, frame in enumerate(frames[1:]):
        job.run()
        dsel.append(frame[frame.y == number % 2][:1].assign(w=0.3 + 0.41 * number), job.store)
        changes = job.run().changes
        assert changes is not None
        assert changes["on_new_rows"]["r2"] is None


def test_previous_columns_below_the_bound_may_not_be_chosen_today(job: Job) -> None:
    job.run()
    dsel.append(night(1), job.store)
    found = job.run(exclude=["c1"], certify={"time": "1h"})
    assert found.changes is not None
    assert found.changes["previous_error"] < found.changes["bound"]
    assert not any("least possible error" in line for line in describe_changes(found.changes))
    assert "(worse beyond splitting)" in call("history", job.runs)[1]


def test_splitting_the_rows_explains_a_difference_between_equally_good_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + X[:, 1] + rng.normal(size=400)
    dataset = as_dataset(X, y)
    from dsel.passes.gram import gram_statistics

    scaling = gram_statistics(dataset).scaling("standardize")
    from dsel.engine.engine_protocol import THREADS

    sums = part_sums(
        dataset, np.arange(4), scaling, first_new=400, only_new=False, centered=True, lam=0.0, fill=None,
        engine=THREADS,
    )  # fmt: skip
    assert not sums.compare([0], [1], 0)["beyond_splitting"]
    assert not sums.compare([1], [0], 0)["beyond_splitting"]
    assert sums.compare([2], [0, 1], 0)["beyond_splitting"]
    assert sums.compare([2], [0, 1], 0) == sums.compare([2], [0, 1], 0)
    assert sums.rss([0, 1], sums.parts.sum(axis=0)) == pytest.approx(
        dsel.select(X, y, k=2, method="forward", exclude=[2, 3]).error, rel=1e-9
    )


def test_a_previous_run_that_cannot_be_read_is_no_obstacle(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.run()
    (job.runs / "latest/selection.json").write_text("{")
    dsel.append(night(1), job.store)
    selection = job.run()
    assert selection.changes is None
    said = capsys.readouterr().err
    assert "cannot be compared with" in said
    assert "selection not compared with an earlier one" in said
    assert call("history", job.runs)[1].splitlines()[-1].endswith("not compared")


# --- commands ---


def test_the_history_and_the_exit_code_for_a_change(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    keys = {"store": "data.zarr", "k": K, "cluster": {"address": job.address}, "seed": 5}
    path.write_text(yaml.safe_dump({**keys, "out": {"folder": "runs", "keep": 5}}))
    codes = [call("run", path, "--fail-on-change")[0]]
    for number in (1, 3):
        dsel.append(night(number, 60), job.store)
        code, out, err = call("run", path, "--fail-on-change")
        codes.append(code)
    assert codes == [0, 0, 80]
    assert "The selection changed since run" in err
    assert "entered c9; left c7" in err
    assert str(job.runs) in out
    assert call("run", path, "--fail-on-change")[0] == 0  # nothing is new
    (job.runs / "latest").unlink()
    assert call("run", path)[0] == 0
    assert latest_name(job.runs) == run_names(job.runs)[-1]
    code, out, err = call("history", job.runs)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:]] == run_names(job.runs)
    assert "+ c9  - c7 (better beyond splitting)" in out
    found = json.loads(call("history", job.runs, "--json")[1])
    assert [one["rows"] for one in found] == [100, 160, 220]
    assert [one["changed"] for one in found] == [False, False, True]
    assert found[-1]["columns"] == list(dsel.open_selection(job.runs).labels)
    assert "Changed since run" in call("show", job.runs)[1]
    code, out, err = call("report", job.runs)
    assert code == 0, err
    page = Path(out.strip()).read_text()
    assert "3 runs, 1 of which changed the selection. 2 columns are in the answer of every run." in page
    assert "Changed since run" in page
    assert call("status", job.runs)[0] == 0
    assert call("history", tmp_path)[0] == MissingInputError.exit_code
    path.write_text(yaml.safe_dump(keys))
    code, _, err = call("run", path, "--fail-on-change")
    assert (code, "needs a folder of runs" in err) == (64, True)


def test_a_report_says_that_no_column_is_in_the_answer_of_every_run(job: Job) -> None:
    job.run(k=1)
    dsel.append(night(3, 60), job.store)
    job.run(k=1)
    page = Path(call("report", job.runs)[1].strip()).read_text()
    assert "2 runs, 1 of which changed the selection. No column is in the answer of every run." in page


def test_a_folder_whose_only_run_was_killed_has_no_finished_run(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "20260101T000000Z"
    run.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        pass
    (run / "job.json").write_text(json.dumps({"job": {"k": 2, "method": "poss", "store": "data.zarr"}}))
    known = {"state": "running", "run": "a", "host": socket.gethostname(), "pid": gone.pid, "process_started": 0.0}
    (run / "status.json").write_text(json.dumps({**known, "started": time.time() - 9, "updated": time.time() - 3}))
    code, _, err = call("show", run.parent)
    assert code == MissingInputError.exit_code
    assert f"{run.parent} has no finished run yet: the newest is {run.name}." in err
    assert f"dsel status {run.parent} says what it does. If it was stopped: dsel resume {run}" in err
    first, _, second = call("status", run.parent)[1].splitlines()
    assert first == f"{run}: killed: its process is gone; continue it with: dsel resume {run}"
    assert ", last sign of life " in second
    with subprocess.Popen(["true"]) as dead:  # nobody has asked for its exit status yet
        process = psutil.Process(dead.pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        zombie = {**known, "pid": dead.pid, "process_started": process.create_time()}
        (run / "status.json").write_text(json.dumps({**zombie, "started": time.time(), "updated": time.time()}))
        assert "killed: its process is gone" in call("status", run.parent)[1]
    (run / "status.json").write_text(json.dumps({**known, "host": "another machine", "updated": time.time() - 90}))
    assert "no sign of life: it was killed, its machine is down" in call("status", run.parent)[1].splitlines()[0]


# --- a proof that replaces the answer of the search ---


def misleading(number: int, rows: int, first: int = 0, weight: float = 1.0) -> pd.DataFrame:
    """Rows whose target is the sum of two columns from `first` on; forward begins with the third, which is near it."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, 6))
    X[:, 2] = X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=rows)
    X[:, 5] = X[:, 3] + X[:, 4] + 0.5 * rng.normal(size=rows)
    y = weight * (X[:, first] + X[:, first + 1]) + 0.1 * rng.normal(size=rows)
    return pd.DataFrame(X, columns=LABELS[:6]).assign(y=y)


@pytest.fixture
def proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that searches by forward, and proves."""
    run_here(monkeypatch)
    dsel.ingest(misleading(0, 80), tmp_path / "data.zarr", target="y")
    return Job(tmp_path, NOWHERE, {"k": 2, "method": "forward", "certify": {"nodes": 1000}})


def gain(frame: pd.DataFrame, before: list[str], now: list[str]) -> float:
    """How much more of the target columns explain than others do, by numpy."""
    y = frame.y - frame.y.mean()
    errors = []
    for labels in (before, now):
        Z = frame[labels] - frame[labels].mean()
        errors.append(float(((y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]) ** 2).sum()))
    return (errors[0] - errors[1]) / float((y**2).sum())


def test_what_changed_is_about_the_answer_that_the_proof_found(proved: Job) -> None:
    first = proved.run()
    assert first.names == ["c0", "c1"]
    assert any("the proof found these columns" in note for note in first.notes)
    dsel.append(misleading(1, 30), proved.store)
    same = proved.run()
    assert any("the proof found these columns" in note for note in same.notes)
    assert same.changes is not None
    assert (same.changes["entered"], same.changes["left"], same.changes["changed"]) == ([], [], False)
    assert same.changes["error"] == same.changes["previous_error"] == same.error
    assert same.changes["comparison"] is None
    assert same.changes["status"] == "optimal"
    dsel.append(misleading(2, 300, first=3, weight=4.0), proved.store)
    other = proved.run()
    assert other.changes is not None
    assert (sorted(other.changes["entered"]), sorted(other.changes["left"])) == (["c3", "c4"], ["c0", "c1"])
    assert other.changes["error"] == other.error
    rows = pd.concat([misleading(0, 80), misleading(1, 30), misleading(2, 300, first=3, weight=4.0)])
    expected = gain(rows, ["c0", "c1"], ["c3", "c4"])
    assert other.changes["comparison"]["gain"] == pytest.approx(expected, rel=1e-9)
    assert other.changes["comparison"]["beyond_splitting"]
    assert {row["label"] for row in other.changes["drift"]["columns"] if row["chosen"]} == {"c3", "c4"}
    history = read_history(proved.runs)
    assert [run.changed for run in history] == [False, False, True]
    assert [sorted(run.columns) for run in history] == [["c0", "c1"], ["c0", "c1"], ["c3", "c4"]]


def test_the_exit_code_is_that_of_the_answer_that_the_proof_found(proved: Job, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "store: data.zarr\nk: 2\nmethod: forward\nout: {folder: runs}\ncertify: {nodes: 1000}\n"
        "cluster: {local: {workers: 1, memory: 1GiB}}\n"
    )
    codes = []
    for number, more in ((0, {}), (1, {}), (2, {"first": 3, "weight": 4.0})):
        if number:
            dsel.append(misleading(number, 300 if more else 30, **more), proved.store)
        code, _, err = call("run", path, "--fail-on-change")
        codes.append(code)
    assert codes == [0, 0, 80]
    assert "entered c4, c3; left c0, c1" in err
    lines = [line.split("  ")[-1] for line in call("history", proved.runs)[1].splitlines()]
    assert lines[1].endswith("first run")
    assert lines[2].endswith("none")


def test_a_proof_that_is_continued_after_an_interruption_compares_its_answer(
    proved: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved.run()
    dsel.append(misleading(1, 30), proved.store)
    certify = certify_folder.certify_selection
    monkeypatch.setattr(certify_folder, "certify_selection", killed)
    with pytest.raises(Killed):
        proved.run()
    left = dsel.open_selection(proved.runs / run_names(proved.runs)[-1])
    assert left.changes is not None
    assert left.changes["entered"] == ["c2"]  # what forward chose, before its proof
    monkeypatch.setattr(certify_folder, "certify_selection", certify)
    found = proved.run()
    assert found.changes is not None
    assert (found.changes["changed"], found.changes["comparison"]) == (False, None)


def killed(*values: Any) -> Selection:
    raise Killed


@pytest.mark.parametrize("there", [True, False], ids=["compared", "previous run removed"])
def test_a_later_proof_of_a_run_compares_its_answer(proved: Job, there: bool) -> None:
    proved.run()
    dsel.append(misleading(1, 30), proved.store)
    before = proved.run(certify=None)
    assert before.changes is not None
    assert before.changes["entered"] == ["c2"]
    first, second = run_names(proved.runs)
    if not there:
        shutil.rmtree(proved.runs / first)
    code, _, err = call("certify", proved.runs / second, "--time", "1m")
    assert code == 0, err
    found = dsel.open_selection(proved.runs)
    assert found.names == ["c0", "c1"]
    assert found.changes is not None
    assert (found.changes["entered"], found.changes["left"], found.changes["changed"]) == ([], [], False)
    assert (found.changes["error"], found.changes["comparison"]) == (found.error, None)
    assert found.changes["previous_error"] == pytest.approx(found.error, rel=1e-9)
    assert found.changes["status"] == "optimal"
    last = read_history(proved.runs)[-1]
    assert (last.changed, last.columns, last.status) == (False, ["c0", "c1"], "optimal")


def test_a_proof_by_a_loss_compares_its_answer(proved: Job) -> None:
    keys: dict[str, Any] = {"loss": "logistic", "lam": 1.0, "certify": None}
    frames = [misleading(number, 100) for number in (0, 1)]
    for frame in frames:
        frame["y"] = np.where(frame["y"] > 0.0, "yes", "no")
    dsel.ingest(frames[0], proved.store, target="y", overwrite=True)
    proved.run(**keys)
    dsel.append(frames[1], proved.store)
    best = proved.run(**keys)
    assert best.changes is not None
    assert not best.changes["changed"]
    worse = dsel.select(proved.store, k=2, loss="logistic", lam=1.0, include=["c2", "c5"])
    request = worse.request.model_copy(update={"include": ()})
    replace(worse, request=request, changes={**best.changes, "changed": True}).save(
        proved.runs / run_names(proved.runs)[-1], overwrite=True
    )
    code, _, err = call("certify", proved.runs, "--time", "1m")
    assert code == 0, err
    found = dsel.open_selection(proved.runs)
    assert sorted(found.names) == sorted(best.names)
    assert found.changes is not None
    assert (found.changes["changed"], found.changes["comparison"]) == (False, None)
    assert found.changes["error"] == found.changes["previous_error"] == found.error
    assert found.changes["on_new_rows"] == pytest.approx(best.changes["on_new_rows"])


def test_a_proof_in_python_compares_the_labels_of_its_answer(proved: Job) -> None:
    proved.run()
    dsel.append(misleading(1, 30), proved.store)
    before = proved.run(certify=None)
    found = dsel.certify(before, proved.store)
    assert before.changes is not None
    assert found.changes is not None
    assert (before.changes["changed"], found.changes["changed"]) == (True, False)


# --- interruptions ---


class Killed(BaseException):
    """The process is dead."""


class Killer:
    """Ends the work before it replaces a file for the nth time, as if the process were dead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self._real = -1, os.replace
        monkeypatch.setattr(os, "replace", self._replace)

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        if not str(target).endswith("status.json") and ".lock" not in str(target):
            if self.left == 0:
                raise Killed
            self.left -= 1
        self._real(source, target, **options)

    def interrupt(self, after: int, work: Callable[[], Any]) -> bool:
        """Do the work until it has replaced this number of files; return whether it was ended."""
        self.left = after
        try:
            work()
        except Killed:
            return True
        finally:
            self.left = -1
        return False


def nights(job: Job, interrupt: Callable[[int, Callable[[], Any]], bool], count: int, seed: int) -> list[bool]:
    """Append a segment each night and run, both interrupted at random; each answer is that of a run from scratch."""
    rng, ended = random.Random(seed), []
    for number in range(1, count + 1):
        file = night(number, 5 + number % 7)
        source = Path(os.environ["NIGHTS"]) / f"{number}.csv"
        file.to_csv(source, index=False)
        while interrupt(rng.randrange(12), lambda: dsel.append(source, job.store)):  # noqa: B023
            ended.append(True)
        previous = None if latest_name(job.runs) is None else job.runs / str(latest_name(job.runs))
        expected = from_the_beginning(job.store, previous)
        if number % 3 == 0 and interrupt(rng.randrange(30), job.run):
            ended.append(True)
        found = job.run()
        assert answer(found) == answer(expected)
        assert found.shape[0] == dsel.open_store(job.store).shape[0]
        assert dsel.open_selection(job.runs) == found
    assert len(dsel.open_store(job.store).segments) == count + 1
    assert len(read_history(job.runs)) == count
    return ended


def test_nights_with_interruptions_give_what_runs_from_the_beginning_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m pipelines.chaos.nights` has thirty of them, and real kills."""
    run_here(monkeypatch)
    first_store(tmp_path / "data.zarr")
    monkeypatch.setenv("NIGHTS", str(tmp_path))
    ended = nights(Job(tmp_path, NOWHERE), Killer(monkeypatch).interrupt, 8, 1)
    assert len(ended) > 4


def test_an_unfinished_run_continues_and_one_of_older_data_is_left_behind(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_store(tmp_path / "data.zarr")
    job = Job(tmp_path, scheduler)
    killer = Killer(monkeypatch)
    assert killer.interrupt(3, job.run)
    unfinished = run_names(job.runs)
    assert len(unfinished) == 1
    job.run()
    assert run_names(job.runs) == unfinished
    dsel.append(night(1), job.store)
    assert killer.interrupt(3, job.run)
    left = run_names(job.runs)[-1]
    dsel.append(night(2), job.store)
    selection = job.run()
    assert selection.shape[0] == 146
    assert selection.changes is not None
    assert selection.changes["run"] == unfinished[0]
    assert left not in run_names(job.runs)


def test_a_run_that_lacks_only_its_summary_counts(job: Job) -> None:
    job.run()
    dsel.append(night(1), job.store)
    job.run()
    first, second = run_names(job.runs)
    (job.runs / second / "summary.json").unlink()
    dsel.append(night(2), job.store)
    selection = job.run()
    assert selection.changes is not None
    assert selection.changes["run"] == second
    assert [one.run for one in read_history(job.runs)][:2] == [first, second]


def test_resume_continues_a_run_of_a_series(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.run()
    dsel.append(night(1), job.store)
    assert Killer(monkeypatch).interrupt(4, job.run)
    name = run_names(job.runs)[-1]
    found = resume_job(job.runs / name)
    assert answer(job.run()) == answer(found)
    assert run_names(job.runs)[-1] == name
    assert [one.run for one in read_history(job.runs)][-1] == name


def with_gaps(frame: pd.DataFrame, share: float, seed: int, column: str = "c4") -> pd.DataFrame:
    gone = np.random.default_rng(seed).random(len(frame)) < share
    return frame.assign(**{column: frame[column].mask(gone)})


@pytest.mark.parametrize("weight", [False, "weight"])
def test_drift_is_that_of_the_values_that_are_there(tmp_path: Path, no_workers: None, weight: str | bool) -> None:
    """The mean of all rows replaces missing values, and changes with the new rows: no value of an old row moved."""
    rng = np.random.default_rng(3)
    old, new = with_gaps(night(0, 100), 0.6, 1), with_gaps(night(1, 50, shifted=True), 0.1, 2)
    old["weight"], new["weight"] = rng.uniform(1.0, 2.0, 100), rng.uniform(1.0, 2.0, 50)
    dsel.ingest(old, tmp_path / "data.zarr", target="y", weight="weight", chunk_rows=40)
    job = Job(tmp_path, NOWHERE, {"missing": "mean", "method": "forward", "sample_weight": weight})
    job.run()
    dsel.append(new, job.store)
    selection = job.run()
    assert selection.changes is not None
    found = {column["label"]: column for column in selection.changes["drift"]["columns"]}["c4"]

    def moments(frame: pd.DataFrame) -> tuple[float, float]:
        known = frame.dropna()
        by = known["weight"] if weight else np.ones(len(known))
        mean = np.average(known["c4"], weights=by)
        return mean, np.sqrt(np.average((known["c4"] - mean) ** 2, weights=by))

    (mean, deviation), (later, other) = moments(old), moments(new)
    assert found["shift"] == pytest.approx((later - mean) / deviation, rel=1e-9)
    assert found["scale_ratio"] == pytest.approx(other / deviation, rel=1e-9)
    assert selection.changes["drift"]["unknown"] == 0


def test_the_drift_of_a_column_without_a_new_value_is_not_known(tmp_path: Path, no_workers: None) -> None:
    dsel.ingest(with_gaps(night(0, 100), 0.3, 1), tmp_path / "data.zarr", target="y", chunk_rows=40)
    job = Job(tmp_path, NOWHERE, {"missing": "mean", "method": "forward"})
    job.run()
    dsel.append(with_gaps(night(1, 50), 1.0, 2), job.store)
    changes = job.run().changes
    assert changes is not None
    assert "c4" not in {column["label"] for column in changes["drift"]["columns"]}
    lines = list(describe_changes(changes))
    assert "The drift of 1 column is not known: the new or the earlier rows have no value" in lines


def test_no_drift_is_given_where_the_number_of_values_is_not_saved(tmp_path: Path, no_workers: None) -> None:
    """Earlier versions saved no such numbers with a run."""
    dsel.ingest(with_gaps(night(0, 100), 0.3, 1), tmp_path / "data.zarr", target="y", chunk_rows=40)
    job = Job(tmp_path, NOWHERE, {"missing": "mean", "method": "forward"})
    job.run()
    file = job.runs / "latest/columns.npz"
    saved = dict(np.load(io.BytesIO(file.read_bytes())))
    del saved["present"]
    file.write_bytes(pack_npz(saved))
    dsel.append(night(1, 50, shifted=True), job.store)
    changes = job.run().changes
    assert changes is not None
    assert changes["drift"]["columns"] == []
    assert changes["drift"]["largest_shift"] is None
    assert any("The drift of 10 columns is not known: with missing: mean" in line for line in describe_changes(changes))

"""A job that is stopped in its first pass continues that pass; one that is finished reads nothing more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.config.job import JobFile, read_job
from dsel.errors import Interrupted
from dsel.jobs.locations import finished_job
from dsel.jobs.reporting import Reporter
from dsel.jobs.runner import run_job
from tests.cli_runner import LIMIT
from tests.stores import append_rows, make_store, regression


class Stopping(Reporter):
    """A reporter that stops the run when this number of tasks is done."""

    def __init__(self, after: float) -> None:
        super().__init__()
        self._after = after
        self.seen: list[tuple[int, int]] = []

    def tasks(self, done: int, total: int) -> None:
        super().tasks(done, total)
        self.seen.append((done, total))
        if done >= self._after:
            raise Interrupted("Stopped.")


def test_a_pass_of_a_job_continues(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(10, 24))
    cluster: Any = {"local": {"workers": 1, "memory": "1GiB"}}
    job = JobFile(store=store, k=3, method="forward", out=tmp_path / "out", cluster=cluster, checkpoint_seconds=1e-3)
    reporter, planned = Stopping(8), dsel.plan(str(store), k=3, method="forward", calibrate=False)
    with pytest.raises(Interrupted):
        run_job(job, reporter)
    assert {total for _, total in reporter.seen} == {planned.stages[0].tasks}  # in waves, too
    assert reporter.seen == sorted(reporter.seen)
    saved = list((tmp_path / "out" / "passes").rglob("node-*"))
    assert saved
    found = run_job(job, Reporter())
    expected = dsel.select(str(store), k=3, method="forward")
    assert found.indices == expected.indices
    assert (found.error, found.front) == (expected.error, expected.front)
    assert found.bytes_read < expected.bytes_read
    assert "continuing a pass" in (tmp_path / "out" / "run.log").read_text()
    assert not (tmp_path / "out" / "passes").exists()


_AGAIN = """
import json, sys
from tests.stores import count_reads
counted = count_reads()
from typer.testing import CliRunner
from dsel.cli import app
found = CliRunner().invoke(app, ["run", sys.argv[1], "--json"])
assert found.exit_code == 0, found.output
heavy = sorted({"numba", "distributed", "scipy.optimize", "pandas", "xarray"} & set(sys.modules))
print(json.dumps([dict(counted), heavy, json.loads(found.stdout)["indices"]]))
"""


@pytest.mark.usefixtures("no_workers")
def test_a_finished_job_on_unchanged_data_reads_no_x_and_loads_little(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(10, 24))
    (tmp_path / "job.yaml").write_text("store: data.zarr\nk: 3\nmethod: forward\ncluster: {local: {workers: 1}}\n")
    expected = run_job(read_job(tmp_path / "job.yaml"), Reporter())
    command = [sys.executable, "-c", _AGAIN, str(tmp_path / "job.yaml")]
    again = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    reads, heavy, indices = json.loads(again.stdout.splitlines()[-1])
    assert not [key for key in reads if key.startswith(("X/", "Y/"))]
    assert heavy == []
    assert tuple(indices) == expected.indices
    append_rows(store, *regression(m=310))
    assert finished_job(read_job(tmp_path / "job.yaml"), Reporter()) is None


@pytest.mark.parametrize(("saves", "code"), [(False, 76), (True, 75)])
def test_a_stopped_run_that_saved_nothing_has_a_separate_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool, code: int
) -> None:
    def stopped(job: JobFile, reporter: Reporter) -> None:
        if saves:
            reporter.saved()
        raise Interrupted("Stopped by SIGTERM.", "Start the same command again to continue.")

    monkeypatch.setattr("dsel.jobs.runner.run_job", stopped)
    (tmp_path / "job.yaml").write_text("store: data.zarr\nk: 3\n")
    found = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml"), "--require-progress"])
    assert getattr(found.exception, "exit_code", None) == code

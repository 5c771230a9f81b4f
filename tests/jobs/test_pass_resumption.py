"""A job that is stopped in its first pass continues that pass, and ends with the same selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsel
from dsel.config.job import JobFile
from dsel.errors import Interrupted
from dsel.jobs.reporting import Reporter
from dsel.jobs.runner import run_job
from tests.stores import make_store, regression


class Stopping(Reporter):
    """A reporter that stops the run when so many tasks are done."""

    def __init__(self, after: float) -> None:
        super().__init__()
        self._after = after

    def tasks(self, done: int, total: int) -> None:
        super().tasks(done, total)
        if done >= self._after:
            raise Interrupted("Stopped.")


def test_a_pass_of_a_job_continues(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(10, 24))
    cluster: Any = {"local": {"workers": 1, "memory": "1GiB"}}
    job = JobFile(store=store, k=3, method="forward", out=tmp_path / "out", cluster=cluster, checkpoint_seconds=1e-3)
    with pytest.raises(Interrupted):
        run_job(job, Stopping(8))
    saved = list((tmp_path / "out" / "passes").rglob("node-*"))
    assert saved
    found = run_job(job, Reporter())
    expected = dsel.select(str(store), k=3, method="forward")
    assert found.indices == expected.indices
    assert (found.error, found.front) == (expected.error, expected.front)
    assert found.bytes_read < expected.bytes_read
    assert "continuing a pass" in (tmp_path / "out" / "run.log").read_text()
    assert not (tmp_path / "out" / "passes").exists()

"""Job files: what they may contain, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsel.config.job import read_job


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    path = tmp_path / "job.yaml"
    path.write_text("store: ~/x.zarr\nk: 5\nlam: 1e-3\ninclude: [a, 3]\n")
    job = read_job(path)
    assert job.store == Path("/home/somebody/x.zarr")
    assert job.out == tmp_path / "job.result"
    assert job.lam == 1e-3
    assert job.include == ("a", 3)

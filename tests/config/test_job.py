"""Job files: what they may contain, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsel.config.job import read_job
from dsel.errors import OptionError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k: yes", "'k' is True"),
        ("k: '5'", "'k' is '5'"),
        ("k: 5\nseed: true", "'seed' is True"),
        ("k: 5\nlam: yes", "it must be a number, not true or false"),
        ("k: 5\ninclude: [true]", "is not a column: quote a label"),
        ("k: 5\nexclude: [no]", "is not a column: quote a label"),
        ("k: 5\ncluster: {local: {workers: yes}}", "'cluster.local.workers' is True"),
        ("k: 5\noptions: {target: .nan}", "target is not a number"),
        ("k: 5\ncertify: {nodes: yes}", "whole number"),
        ("k: 5\ncertify: {time: yes}", "it must be a duration"),
        ("k: 5\nout: 2026-13-45", "is not YAML"),
        ("k: 5\nout: ''", "'out' is '': it is empty"),
        ("k: 5\nlam: 1\nk: 6", "the key 'k' is in line 2 and again in line 4"),
        ("k: 5\noptions: {seconds: 5, seconds: 6}", "the key 'seconds' is in line 3 and again in line 3"),
        ("k: 5\ninclude: [1.5]", r"'include' is \[1.5\]: 1.5 is neither a label nor an index from 0.$"),
        ("k: 5\nsample_weight: yes", "'sample_weight' is True: it must be the name of a variable"),
        ("k: 5\ncertify: yes", "'certify' is True: it must be keys with their values"),
        ("k: 5\ncertify: {time: soon}", "'certify.time' is 'soon': 'soon' is not a duration"),
        ("k: 5\ncluster: {address: x, wait: yes}", "unknown key 'cluster.wait'"),
        ("k: 5\ncluster: {gateway: {workers: 1, wait: yes}}", "it must be a duration"),
        ("k: 5\ncluster: {slurm: {workers: 1, memory: 1GB, walltime: 12:00:00}}", "it must be text .in quotes"),
        ("k: 5\nout: 5", "s3://, gs:// or az:// URL"),
    ],
)
def test_values_that_only_look_right_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"store: x.zarr\n{text}\n")
    with pytest.raises(OptionError, match=message):
        read_job(path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(OptionError, match="not a text file"):
        read_job(path)


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    path = tmp_path / "job.yaml"
    path.write_text("store: ~/x.zarr\nk: 5\nlam: 1e-3\ninclude: [a, 3]\n")
    job = read_job(path)
    assert job.store == Path("/home/somebody/x.zarr")
    assert job.out == tmp_path / "job.result"
    assert job.lam == 1e-3
    assert job.include == ("a", 3)

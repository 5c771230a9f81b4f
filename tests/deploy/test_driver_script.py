"""deploy/slurm/driver.sbatch as a shell script, with commands that only say how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.programs import ROOT

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def appended(folder: Path, pattern: str) -> tuple[list[str], str]:
    """The files that the script appends, and what it writes to stderr."""
    program = folder / "bin" / "dsel"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = append ] && echo "$2" >> {folder / "calls"}\nexit 0\n')
    program.chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}",
        "DSEL_JOB": "job.yaml", "DSEL_STORE": "data.zarr", "DSEL_APPEND": pattern,
    }  # fmt: skip
    script = ["bash", str(ROOT / "deploy" / "slurm" / "driver.sbatch")]
    done = subprocess.run(script, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    calls = folder / "calls"
    return calls.read_text().splitlines() if calls.exists() else [], done.stderr


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("incoming/*.csv", ["incoming/day 1.csv", "incoming/day2.csv"]),
        ("new files/*.csv", ["new files/day 3.csv"]),
        ("new files/day 3.csv", ["new files/day 3.csv"]),
        ("new files/*.csv\nincoming/*2.csv", ["new files/day 3.csv", "incoming/day2.csv"]),
    ],
)
def test_files_to_append_may_have_spaces_in_their_names(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("incoming/day 1.csv", "incoming/day2.csv", "new files/day 3.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert appended(tmp_path, pattern)[0] == expected


def test_a_pattern_without_files_is_reported(tmp_path: Path) -> None:
    calls, messages = appended(tmp_path, "incoming/*.csv")
    assert calls == []
    assert "No file matches DSEL_APPEND=incoming/*.csv" in messages

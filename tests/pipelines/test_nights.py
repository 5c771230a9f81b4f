"""Two nights with kills: each answer is that of a run from the beginning, and only new rows are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_nights_with_kills_have_the_answers_of_runs_from_the_beginning(tmp_path: Path) -> None:
    asked = ["--nights", "2", "--places", "disk", "--workers", "0", "--seed", "1", "--folder", str(tmp_path / "nights")]
    command = [sys.executable, "-m", "pipelines.chaos.nights", *asked]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert found.stdout, found.stderr
    counts = json.loads(found.stdout.splitlines()[-1])
    assert counts.pop("nights") == 2, found.stdout + found.stderr
    counts.pop("kills")
    counts.pop("followed")
    assert counts == {"different": 0, "read_again": 0, "failures": 0}, found.stdout
    assert found.returncode == 0

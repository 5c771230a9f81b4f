"""A few kills: whatever is killed, the job ends with the same result and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_few_kills_change_nothing_and_leave_nothing(tmp_path: Path) -> None:
    asked = [
        "--kills",
        "4",
        "--lanes",
        "1",
        "--only",
        "wide forward",
        "--seed",
        "3",
        "--folder",
        str(tmp_path / "chaos"),
    ]
    command = [sys.executable, "-m", "pipelines.chaos", *asked]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    counts = json.loads(found.stdout.splitlines()[-1])
    assert counts.pop("kills") >= 4, found.stdout + found.stderr
    assert set(counts) == {"different", "orphans", "hangs", "leftovers", "unlisted_exit_codes", "work_lost"}
    assert not any(counts.values()), found.stdout
    assert found.returncode == 0

"""A few kills: whatever is killed, the job ends with the same result and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsel.search.registry import methods_with
from pipelines.chaos.cases import CASES
from pipelines.chaos.findings import COUNTS
from pipelines.chaos.left import left_behind

ROOT = Path(__file__).parents[2]
#: No limit of time depends on how busy the machine is.
PATIENCE = "100"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kinds", "kills"),
    [
        ("wide forward", "kill,term,worker,stopped,second run", 5),
        ("bucket kfold", "5xx,partial body,slow body,hang", 2),
    ],
)
def test_a_few_disturbances_change_nothing_and_leave_nothing(tmp_path: Path, case: str, kinds: str, kills: int) -> None:
    options = {"kills": str(kills), "lanes": "1", "only": case, "kinds": kinds, "patience": PATIENCE}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "pipelines.chaos", *words, "--folder", str(tmp_path / "chaos")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = json.loads(found.stdout.splitlines()[-1])
    assert counts.pop("kills") >= kills, found.stdout + found.stderr
    assert {"kills", *counts} == set(COUNTS)
    assert not any(counts.values()), found.stdout + found.stderr
    assert found.returncode == 0


def test_every_method_is_disturbed() -> None:
    assert {case.job["method"] for case in CASES if case.job} == set(methods_with("name"))


def test_what_is_left_is_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = out / "20261123T020000Z"
    for folder in (run, tmp_path / "artefacts", tmp_path / "store.zarr", tmp_path / "tmp"):
        folder.mkdir(parents=True)
    (out / ".lock-2").write_text("free")
    (run / "selection.json").touch()
    assert left_behind(str(tmp_path), str(out), f"{tmp_path}/store.zarr") == []
    left = ("store.zarr.ingesting", "out/.lock-3", "out/20261123T020000Z/checkpoint.json", "artefacts/.gram-1-ab",
            "store.zarr/.zarr.json-1", "tmp/dsel-journal-1")  # fmt: skip
    for name in left:
        (tmp_path / name).write_text("{}")
    found = left_behind(str(tmp_path), str(out), f"{tmp_path}/store.zarr")
    assert sorted(found) == sorted(str(tmp_path / name).replace(".lock-3", ".lock") for name in left)

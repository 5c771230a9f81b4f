"""A few damages: no command answers something else without an error, and a job that runs again gives its answer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.chaos.damage import KINDS, STATES, DamageCampaign

ROOT = Path(__file__).parents[2]


def test_a_few_damages_are_noticed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines.chaos", "--damages", "5", "--only", "finished runs"]
    found = subprocess.run(
        [*command, "--patience", "100", "--folder", str(tmp_path / "damage")], cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    counts = json.loads(found.stdout.splitlines()[-1])
    expected = {"damages": 5, "silently_wrong": 0, "unlisted_exit_codes": 0, "hangs": 0}
    assert counts == expected, found.stdout + found.stderr
    assert found.returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_damage_changes_a_file_by_one_bit_cuts_it_or_removes_it(tmp_path: Path, kind: str) -> None:
    campaign = DamageCampaign(tmp_path, list(STATES), 0, 1.0)
    campaign._random = random.Random(0)
    data = bytes(range(50))
    for _ in range(20):
        damaged = campaign._damaged(data, kind)
        if kind == "remove":
            assert damaged is None
        elif kind == "cut":
            assert damaged is not None
            assert data.startswith(damaged)
            assert len(damaged) < len(data)
        else:
            assert damaged is not None
            changed = [(a ^ b).bit_count() for a, b in zip(data, damaged, strict=True)]
            assert sum(changed) == 1


def test_an_answer_that_differs_and_an_unlisted_exit_code_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, state = DamageCampaign(tmp_path, list(STATES), 0, 1.0), STATES[2]
    campaign._random = random.Random(0)
    (tmp_path / "whole").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "whole" / "file").write_bytes(b"content")
    answers = iter([(0, "", "another answer"), (70, "", None), (None, "", None), (65, "", None)])
    campaign._answers = {(state.name, command): "the answer" for command in (*state.reading, *state.writing)}
    monkeypatch.setattr(campaign, "_attempt", lambda *_: next(answers))
    monkeypatch.setattr("pipelines.chaos.damage._WRITING", 0.0)
    campaign._turn(state, tmp_path, tmp_path / "whole" / "file", "flip")
    assert (campaign.findings.counts["silently_wrong"], campaign.findings.counts["unlisted_exit_codes"]) == (1, 1)
    campaign._turn(state, tmp_path, tmp_path / "whole" / "file", "cut")
    assert campaign.findings.counts["hangs"] == 1
    assert campaign.findings.counts["unlisted_exit_codes"] == 1

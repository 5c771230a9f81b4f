"""PPOSS as a job: killed, stopped, broken by its criterion, and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

import dsel
from dsel.search.journal import read_journal
from tests.cli_runner import HELD, PLAIN, Forked, call, wait_for
from tests.stores import make_store, regression

ROOT = Path(__file__).parents[2]
X, Y = regression(m=400, n=18)

OWN = """
import time
from pathlib import Path

def score(S, data):
    with open("calls", "a") as file:
        file.write(f"{S}\\n")
    if Path("broken").exists():
        raise ZeroDivisionError("no folds left")
    time.sleep(0.01)
    return float(abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())
"""


@pytest.mark.slow
def test_killed_at_random_moments_the_job_ends_with_the_same_bits(tmp_path: Path) -> None:
    lives = 24
    found = subprocess.run(
        [sys.executable, "-m", "tests.crash_loop", str(tmp_path), str(lives)], cwd=ROOT, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    killed = int(found.stdout)
    assert killed == lives
    calm, often = dsel.open_selection(tmp_path / "calm"), dsel.open_selection(tmp_path)
    for name in ("indices", "criterion", "front", "trace", "iterations", "ended", "error"):
        assert getattr(often, name) == getattr(calm, name), name
    for name in ("evaluated", "recalled", "accepted", "archive"):
        assert often.counts[name] == calm.counts[name], name

    calls = Counter((tmp_path / "calls").read_text().splitlines())
    whole = [S for S in calls if S.endswith(")")]
    assert set(whole) == set((tmp_path / "calm" / "calls").read_text().splitlines())
    events = list(read_journal(tmp_path / "journal.jsonl"))
    longest = max(event["units"] for event in events if event["event"] == "sent")
    assert 0 < calls.total() - len(whole) <= killed * longest  # a life loses the package it is in, no more
    assert {event["event"] for event in events} >= {"started", "resumed", "sent", "merged", "checkpoint", "ended"}


class TestAJobFromTheShell:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 18))
        (tmp_path / "own.py").write_text(OWN)
        description = {
            "store": "data.zarr", "k": 3, "method": "pposs", "criterion": "own:score", "seed": 5,
            "options": {"processors": 16, "iterations": 1600}, "cluster": {"local": {"workers": 1, "memory": "600MB"}},
            "checkpoint_seconds": 0.2,
        }  # fmt: skip
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(description))
        return tmp_path

    def expected(self) -> dsel.Selection:
        scope: dict[str, object] = {"os": os}
        exec(OWN.replace("time.sleep(0.01)", "pass").replace('open("calls", "a")', 'open(os.devnull, "a")'), scope)
        return dsel.select(X, Y, k=3, method="pposs", criterion=scope["score"], seed=5, processors=16, iterations=1600)

    @pytest.mark.slow
    def test_stopped_or_broken_by_its_criterion_it_continues_and_evaluates_nothing_twice(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        calls, checkpoint = folder / "calls", folder / "job.result" / "checkpoint.json"
        first = Forked(HELD, "run", folder / "job.yaml", cwd=folder)
        wait_for(lambda: checkpoint.exists() or first.poll() is not None)
        first.send_signal(signal.SIGTERM)
        _, err = first.communicate(timeout=600)
        assert first.returncode == 75, err
        state = json.loads(checkpoint.read_text())["state"]
        assert len(state["values"]) > 0

        (folder / "broken").touch()
        code, _, err = call("resume", folder / "job.result")
        assert code == 70, err
        assert "ZeroDivisionError: no folds left" in err
        assert "The criterion failed on the columns [" in err
        kept = json.loads(checkpoint.read_text())["state"]
        assert len(kept["values"]) >= len(state["values"])

        (folder / "broken").unlink()
        code, _, err = call("resume", folder / "job.result")
        assert code == 0, err
        found, expected = dsel.open_selection(folder / "job.result"), self.expected()
        for name in ("indices", "criterion", "trace", "iterations"):
            assert getattr(found, name) == getattr(expected, name), name
        fronts = [[(row.indices, row.criterion) for row in selection.front] for selection in (found, expected)]
        assert fronts[0] == fronts[1]
        lines = calls.read_text().splitlines()
        events = list(read_journal(folder / "job.result" / "journal.jsonl"))
        longest = max(event["units"] for event in events if event["event"] == "sent")
        assert len(lines) - len(set(lines)) <= 4 * longest  # those that were out when it broke

    def test_stopped_in_a_slow_evaluation_only_dsel_speaks(self, folder: Path) -> None:
        slow = OWN.replace("time.sleep(0.01)", "time.sleep(60)").replace("score(S", "slow(S")
        (folder / "own.py").write_text(slow)
        job = yaml.safe_load((folder / "job.yaml").read_text()) | {"criterion": "own:slow"}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        run = Forked(PLAIN, "run", folder / "job.yaml", cwd=folder)
        wait_for(lambda: (folder / "calls").exists() or run.poll() is not None)
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=60)
        assert run.returncode == 75, err
        said = [line for line in err.splitlines() if " INFO " not in line]
        assert said == ["dsel: Stopped by SIGTERM.", "  remedy: Start the same command again to continue."]

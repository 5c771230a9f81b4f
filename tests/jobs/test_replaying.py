"""A run's journal held against what the run saved: when it is interrupted, done, or one of the two was changed."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.config.job import read_job
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.jobs.replaying import replay_run
from dsel.jobs.runner import run_job
from tests.cli_runner import run, start, wait_for
from tests.jobs.test_runner import write_job
from tests.stores import make_store, regression

X, Y = regression(m=400, n=18)
X[:, 5] = 1.0  # constant: no candidate

OWN = """
import time

def score(S, data):
    time.sleep(0.003)
    return float(abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())

def parity(S):
    return sum(S) % 2
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 18))


def test_a_run_of_one_s_own_criterion_stopped_and_gone_on_with(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.parent / "own.py").write_text(OWN)
    monkeypatch.chdir(store.parent)
    monkeypatch.syspath_prepend(str(store.parent))
    job = write_job(
        store, k=4, method="pposs-asy", criterion="own:score", include=[3], exclude=[0], seed=5,
        options={"iterations": 1500, "isolation": "own:parity"}, cluster={"local": {"workers": 2, "memory": "600MB"}},
    )  # fmt: skip
    folder = store.parent / "job.result"
    journal = folder / "journal.jsonl"
    process = start("run", job)
    wait_for(lambda: (journal.exists() and journal.read_text().count("merged") > 4) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    stopped = replay_run(folder)
    assert stopped.against == "the archive of the checkpoint"
    assert not stopped.replay.ended

    code, _, err = run("resume", folder)
    assert code == 0, err
    found, replayed = dsel.open_selection(folder), replay_run(folder)
    assert replayed.against == "the front of the result"
    assert (replayed.replay.lives, replayed.replay.ended) == (2, "iterations")
    best = replayed.replay.steps[-1]
    assert set(replayed.columns.in_data(best.members)) == set(found.indices)
    assert best.value == found.criterion
    assert replayed.replay.subsets > len(stopped.replay.points)

    for change, what in ((lambda f: f + 1e-12, "for the columns"), (lambda f: f / 2, "front of the result")):
        _change_best(journal, list(best.members), change)
        with pytest.raises(DataError, match=what):
            replay_run(folder)


def _change_best(journal: Path, members: list[int], change) -> None:
    """As if the best subset had come in with another f."""
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    for event in events:
        for pair in event.get("found", []):
            if pair[0] == members:
                pair[1] = change(pair[1])
        for pair in event.get("solutions", []):
            if pair[0] == members:
                pair[1] = change(pair[1])
    journal.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_a_run_of_slices_and_what_cannot_be_replayed(store: Path) -> None:
    cluster = {"local": {"workers": 1, "memory": "600MB"}}
    options = {"isolation": "min-index", "iterations": 20_000}
    job = write_job(store, k=4, method="pposs-asy", options=options, include=[3], cluster=cluster)
    folder = store.parent / "job.result"
    found = run_job(read_job(job))
    shown = CliRunner().invoke(app, ["replay", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "The merges give the front of the result" in shown.output
    assert shown.output.splitlines()[-2].split()[1] == str(len(found))
    last = found.front[-1]
    better = (*found.front[:-1], replace(last, error=last.error / 2, indices=tuple(range(last.size))))
    replace(found, front=better, certificate=({},)).save(folder, overwrite=True)  # as a proof may leave it
    assert replay_run(folder).against == "the front of the result"

    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"merged"' not in line))
    with pytest.raises(DataError, match="do not give the front of the result"):
        replay_run(folder)
    journal.write_text('{"event": "started"}\n')
    with pytest.raises(DataError, match="no journal that can be replayed: KeyError"):
        replay_run(folder)
    journal.unlink()
    with pytest.raises(MissingInputError, match="tells of no search"):
        replay_run(folder)
    job = write_job(store, k=2, method="forward", cluster=cluster)
    run_job(read_job(job, out=store.parent / "other"))
    with pytest.raises(OptionError, match="a run of forward"):
        replay_run(store.parent / "other")

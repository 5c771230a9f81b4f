"""The journal of a pposs-asy job replays to what the job saved: its checkpoint, and the front of its result."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import dsel
from dsel.config.job import read_job
from dsel.jobs.runner import run_job
from dsel.search.journal import journalled_values, read_journal
from dsel.search.outcome import improving
from dsel.search.pareto.archive import IsolationFunction, min_index
from tests.cli_runner import call
from tests.jobs.test_runner import write_job
from tests.no_workers import exit_code_after
from tests.search.runtime.replay import Columns, Replay
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


def replay(folder: Path, isolation: IsolationFunction | None = None) -> tuple[Replay, Columns, list[Any]]:
    """Return the replayed journal of a run, its columns, and the archive after every event. isolation: of columns of
    the data."""
    events = list(read_journal(folder / "journal.jsonl"))
    columns = Columns.from_event(events[0])
    own = isolation or (lambda S: 0)
    found = Replay(columns.k, lambda S: own(tuple(sorted(columns.in_data(S)))))
    archives = []
    for event in events:
        found.add(event)
        archives.append(found.archive.state())
    return found, columns, archives


@pytest.mark.slow
def test_stopped_and_resumed_with_a_custom_criterion(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.parent / "counted.py").write_text(OWN)
    monkeypatch.chdir(store.parent)
    monkeypatch.syspath_prepend(str(store.parent))
    job = write_job(
        store, k=4, method="pposs-asy", criterion="counted:score", include=[3], exclude=[0], seed=5,
        options={"iterations": 1500, "isolation": "counted:parity"}, checkpoint_seconds=0.2,
        cluster={"local": {"workers": 2, "memory": "600MB"}},
    )  # fmt: skip
    folder = store.parent / "job.result"
    assert exit_code_after(signal.SIGTERM, 2, "run", job) == 75
    stopped, _, archives = replay(folder, lambda S: sum(S) % 2)
    saved = json.loads((folder / "checkpoint.json").read_text())["state"]
    assert list(saved["solutions"]) in archives
    assert not stopped.ended

    code, _, err = call("resume", folder)
    assert code == 0, err
    found = dsel.open_selection(folder)
    whole, columns, _ = replay(folder, lambda S: sum(S) % 2)
    assert (whole.lives, whole.ended) == (2, "iterations")
    best = whole.steps[-1]
    assert set(columns.in_data(best.members)) == set(found.indices)
    assert best.value == found.criterion
    front = [(columns.in_data(point.members), point.value) for point in improving(whole.points) if point.size]
    assert front == [(row.indices, row.criterion) for row in found.front if row.size > 1]


def test_slices_on_the_quadratic_objective(store: Path) -> None:
    options = {"isolation": "min-index", "iterations": 20_000}
    cluster = {"local": {"workers": 1, "memory": "600MB"}}
    found = run_job(read_job(write_job(store, k=4, method="pposs-asy", options=options, include=[3], cluster=cluster)))
    events = list(read_journal(store.parent / "job.result" / "journal.jsonl"))
    columns = Columns.from_event(events[0])
    whole = Replay(columns.k, min_index)
    for event in events:
        whole.add(event)
    front = [columns.in_data(point.members) for point in improving(whole.points) if point.size]
    assert front == [row.indices for row in found.front if row.size > 1]
    assert found.trace[-1].error == whole.steps[-1].value


#: It writes each subset to a file, and fails from the 50th on, as long as there is a file "fail".
COUNTED = """
from pathlib import Path
HERE = Path(__file__).parent
def score(S):
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(" ".join(map(str, S)) + "\\n")
    if (HERE / "fail").exists() and len((HERE / "calls.txt").read_text().splitlines()) > 50:
        raise RuntimeError("the server of the criterion is gone")
    return sum((j - 7) ** 2 for j in S) - 10.0 * len(S)
"""


@pytest.mark.parametrize("method", ["exchange", "poss"])
def test_a_run_that_continues_evaluates_no_subset_of_the_journal_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    folder, store = tmp_path, make_store(tmp_path / "data.zarr", X[:, 6:], Y, chunks=(100, 12))
    (folder / f"kept_{method}.py").write_text(COUNTED)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "fail").touch()
    job = write_job(
        store, k=4, method=method, criterion=f"kept_{method}:score",
        cluster={"local": {"workers": 1, "memory": "600MB"}},
        options={"iterations": 400} if method == "poss" else {},
    )  # fmt: skip
    code, _, err = call("run", job)
    assert code == 70, err
    assert "the server of the criterion is gone" in err
    known = journalled_values(folder / "job.result" / "journal.jsonl")
    before = (folder / "calls.txt").read_text().splitlines()
    assert 10 < len(known) <= len(before)
    (folder / "fail").unlink()

    code, _, err = call("resume", folder / "job.result")
    assert code == 0, err
    after = (folder / "calls.txt").read_text().splitlines()[len(before) :]
    assert not {" ".join(map(str, S)) for S in known} & set(after)
    assert len(after) == len(set(after))
    found = dsel.open_selection(folder / "job.result")
    assert found.counts["evaluated"] == len(known) + len(after)
    assert found.criterion == -34.0

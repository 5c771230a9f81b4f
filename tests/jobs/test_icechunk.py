"""Jobs on snapshots of Icechunk: what is pinned, continued, verified, and run again when a branch moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dsel
from dsel.config.job import read_job
from dsel.errors import DselError
from dsel.jobs.locations import finished_job, pinned
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.selection.changes.runs import run_names
from dsel.storage.paths import RepositoryPath
from tests.cli_runner import call

icechunk, xr = pytest.importorskip("icechunk"), pytest.importorskip("xarray")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 12))
Y = X[:, 3] - 2 * X[:, 7] + RNG.normal(size=300)


def commit(repository: Any, X: np.ndarray, y: np.ndarray) -> str:
    """Make a snapshot of these data on the branch main, and return its identifier."""
    session = repository.writable_session("main")
    data = xr.Dataset({"X": (("sample", "feature"), X), "Y": ("sample", y)}).chunk(sample=100)
    data.to_zarr(session.store, consolidated=False, mode="w")
    return str(session.commit("measurements"))


@pytest.fixture
def repository(tmp_path: Path) -> Any:
    return icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))


def write_job(folder: Path, **keys: Any) -> Path:
    path = folder / "job.yaml"
    cluster = {"local": {"workers": 1, "memory": "600MB"}}
    path.write_text(yaml.safe_dump({"store": "icechunk://repository", "k": 3, "cluster": cluster, **keys}))
    return path


def test_a_job_pins_the_snapshot_of_its_branch(repository: Any, tmp_path: Path) -> None:
    snapshot = commit(repository, X, Y)
    job = write_job(tmp_path, certify={"time": "20s", "log": True})
    code, _, err = call("run", job)
    assert code == 0, err
    saved = dsel.open_selection(tmp_path / "job.result")
    expected = dsel.select(X, Y, k=3)
    assert saved.indices == expected.indices
    assert saved.error == pytest.approx(expected.error, rel=1e-10)
    assert saved.source == f"icechunk://{tmp_path}/repository?snapshot={snapshot}"
    assert snapshot in str(saved.fingerprint)

    asked = read_job(job)
    assert finished_job(asked, Reporter()) is not None  # nothing to do
    assert str(pinned(asked).store) == saved.source
    repository.create_tag("first", snapshot)
    by_tag = asked.model_copy(update={"store": RepositoryPath.from_url(f"icechunk://{tmp_path}/repository?tag=first")})
    assert str(pinned(by_tag).store) == saved.source

    commit(repository, X, -Y)
    code, _, err = call("run", job)
    assert code == 73
    assert f"store was '{saved.source}'" in err
    code, out, err = call("verify", tmp_path / "job.result")  # the pinned snapshot is still there
    assert code == 0, err
    assert "accepted" in out
    measured = saved.plan["measured"]["worker_memory"]
    assert 0.5 * saved.plan["planned"]["worker_memory"] < measured < saved.plan["planned"]["worker_memory"]


def test_a_repeated_job_runs_again_when_its_branch_has_moved(repository: Any, tmp_path: Path) -> None:
    first = commit(repository, X[:200], Y[:200])
    job = write_job(tmp_path, out={"folder": "runs"}, method="forward")
    assert call("run", job)[0] == call("run", job)[0] == 0
    assert len(run_names(tmp_path / "runs")) == 1
    second = commit(repository, X, Y)
    code, _, err = call("run", job)
    assert code == 0, err
    earlier, latest = (dsel.open_selection(tmp_path / "runs" / name) for name in run_names(tmp_path / "runs"))
    assert (first in str(earlier.source), second in str(latest.source)) == (True, True)
    assert latest.shape[0] == 300
    assert latest.changes is not None


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        ({"store": "icechunk://repositry"}, 66, "There is no Icechunk repository"),
        ({"store": "icechunk://repository?branch=dev"}, 66, "ref not found"),
        ({"store": "icechunk://repository?brnch=main"}, 64, "Did you mean 'branch'"),
        ({"out": "repository/result"}, 73, "lies inside the store"),
        ({"statistics_folder": "icechunk://repository"}, 64, "key store of job files take icechunk://"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    repository: Any, tmp_path: Path, keys: dict[str, Any], code: int, message: str
) -> None:
    commit(repository, X, Y)
    found, _, err = call("run", write_job(tmp_path, **keys))
    assert message in err
    assert found == code


def test_a_target_of_a_snapshot_is_scored_by_its_name(repository: Any, tmp_path: Path) -> None:
    session = repository.writable_session("main")
    data = xr.Dataset(
        {"X": (("sample", "feature"), X), "Y": (("sample", "target"), np.column_stack([-Y, Y]))},
        coords={"target": ["loss", "gain"]},
    ).chunk(sample=100)
    data.to_zarr(session.store, consolidated=False, mode="w")
    session.commit("measurements")
    place = f"icechunk://{tmp_path}/repository"
    selection = dsel.select(place, k=2, targets=["gain"])
    expected = dsel.select(X, Y, k=2).score(X, Y)
    assert selection.indices == dsel.select(data, "gain", k=2).indices
    for rows in (place, data):  # the name is of a column of the variable Y
        assert selection.score(rows, "gain") == pytest.approx(expected)


def test_the_call_that_certifies_names_the_snapshot(repository: Any, tmp_path: Path) -> None:
    snapshot = commit(repository, X, Y)
    place = f"icechunk://{tmp_path}/repository"
    named, session = json.dumps(f"{place}?snapshot={snapshot}"), repository.readonly_session("main")
    for number, (data, said) in enumerate(
        [((place,), f", {named})"), ((place, Y), f", {named}, y)"), ((session,), ", X)"), ((session, Y), ", X, y)")]
    ):
        dsel.select(*data, k=2).save(tmp_path / str(number))
        with pytest.raises(DselError) as caught:
            RunFolder(tmp_path / str(number)).job()
        assert f"dsel.certify(dsel.open_selection({json.dumps(str(tmp_path / str(number)))}){said}" in str(caught.value)

"""Code that a result names runs only for its owner, or where it is trusted."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsel.config.job import read_job
from dsel.data.ingest import ingest_arrays
from dsel.errors import OptionError
from dsel.jobs.certify import ProofBudget
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.runner import resume_job, run_job
from tests.cli_runner import call
from tests.verification.logs import noisy

pytestmark = pytest.mark.usefixtures("no_workers")

#: Its import leaves a file, and its function is like the errors of columns.
CODE = """
from pathlib import Path
Path(__file__).with_suffix(".imported").touch()
def criterion(columns):
    return float(sum((c - 2.5) ** 2 for c in columns)) - 10 * len(columns)
def isolation(columns):
    return len(columns)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose import can be noticed."""
    (tmp_path / "named_by_a_job.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "named_by_a_job.imported"
    sys.modules.pop("named_by_a_job", None)


@pytest.fixture(scope="module")
def finished() -> dict[str, Path]:
    """Folders of jobs that have run, by their keys."""
    return {}


@pytest.fixture
def result(tmp_path: Path, module: Path, finished: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that returns a copy of the folder of a finished job with these keys."""

    def run(**keys: Any) -> Path:
        if (name := json.dumps(keys)) not in finished:
            folder = tmp_path_factory.mktemp("finished")
            X, Y = noisy(1, 40, 8)
            ingest_arrays(X, folder / "store", y=Y)
            values = {"store": str(folder / "store"), "k": 3, "cluster": {"local": {"workers": 1}}, **keys}
            (folder / "job.yaml").write_text(yaml.safe_dump(values))
            run_job(read_job(folder / "job.yaml", folder / "result"))
            finished[name] = folder / "result"
        module.unlink(missing_ok=True)
        sys.modules.pop("named_by_a_job", None)
        return shutil.copytree(finished[name], tmp_path / "result")

    return run


@pytest.fixture(params=["folder", "job file"])
def give_away(request: pytest.FixtureRequest) -> Any:
    """A function that gives a folder, or the job file in it, to another user."""
    if os.geteuid():
        pytest.skip("only root can give files to another user")

    def give(folder: Path) -> None:
        os.chown(folder if request.param == "folder" else folder / "job.json", 4711, 4711)

    return give


def unfinished(folder: Path) -> Path:
    (folder / "selection.json").unlink()
    return folder


CRITERION = {"criterion": "named_by_a_job:criterion", "options": {"iterations": 200}}
ISOLATION = {"options": {"iterations": 200, "isolation": "named_by_a_job:isolation"}}


def resume(folder: Path, **options: Any) -> None:
    resume_job(unfinished(folder), **options)


def certify(folder: Path, **options: Any) -> None:
    certify_run(folder, ProofBudget(nodes=1), **options)


@pytest.mark.parametrize(("command", "keys"), [(resume, CRITERION), (resume, ISOLATION), (certify, ISOLATION)])
def test_the_functions_of_another_user_are_not_imported(
    result: Any, module: Path, give_away: Any, command: Any, keys: dict[str, Any]
) -> None:
    folder = result(**keys)
    give_away(folder)
    with pytest.raises(OptionError) as error:
        command(folder)
    for word in (str(folder / "job.json"), "user 4711", "named_by_a_job:", "--trust"):
        assert word in str(error.value)
    assert not module.exists()


@pytest.mark.parametrize(("command", "keys"), [(resume, CRITERION), (certify, ISOLATION)])
def test_they_are_imported_if_they_are_trusted(
    result: Any, module: Path, give_away: Any, command: Any, keys: dict[str, Any]
) -> None:
    folder = result(**keys)
    give_away(folder)
    command(folder, trust=True)
    assert module.exists()


@pytest.mark.parametrize("user", ["the owner", "another user"])
def test_a_user_trusts_himself_and_root(result: Any, module: Path, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    folder = result(**CRITERION)
    if user == "another user":
        if os.geteuid():
            pytest.skip("only root has folders of root")
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    resume(folder)
    assert module.exists()


def test_a_job_without_functions_may_belong_to_anybody(result: Any, give_away: Any) -> None:
    folder = result(method="forward")
    give_away(folder)
    certify(folder)
    resume(folder)


def test_a_cluster_of_another_user_is_not_used(result: Any, give_away: Any) -> None:
    folder = unfinished(result(method="forward"))
    values = json.loads((folder / "job.json").read_text())
    values["job"]["cluster"] = {"address": "tls://10.0.0.1:8786"}
    del values["digest"]  # as an older version wrote it
    (folder / "job.json").write_text(json.dumps(values))
    give_away(folder)
    with pytest.raises(OptionError, match=r"names a cluster \(address\).*--trust"):
        resume_job(folder)


@pytest.mark.parametrize("command", ["resume", "certify"])
def test_the_commands_have_the_option(result: Any, module: Path, give_away: Any, command: str) -> None:
    folder = result(**ISOLATION)
    give_away(folder if command == "certify" else unfinished(folder))
    code, _, err = call(command, folder)
    assert code == 64
    assert "belongs to user 4711" in err
    assert not module.exists()
    assert call(command, folder, "--trust")[0] == 0
    assert module.exists()

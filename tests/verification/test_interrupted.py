"""A check that is interrupted continues, and uses nothing that it has not checked itself."""

from __future__ import annotations

import json
import logging
import os
import shutil

import pytest
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.data.ingest import ingest_arrays
from dsel.errors import OptionError
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.proof_store import ProofBudget
from dsel.verification import check as module
from tests.verification.logs import LogFolder, certified_run, noisy

X, Y = noisy(4, 60, 24)
K = 6


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A result whose log has several files, since the proof was stopped."""
    out = certified_run(tmp_path_factory.mktemp("proved"), X, Y, K, nodes=30)
    certify_run(out, ProofBudget(log=True))
    assert len(LogFolder(out / f"proof-log-{K}").manifest["files"]) > 2
    return out


@pytest.fixture
def result(proved, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_TASKS", 1)
    shutil.copytree(proved, tmp_path / "result")
    return tmp_path / "result"


@pytest.fixture
def checked(monkeypatch):
    """The names of the files that were checked, not taken from an earlier check."""
    names, plain = [], module._check_content
    monkeypatch.setattr(module, "_check_content", lambda name, *rest: names.append(name) or plain(name, *rest))
    return names


def interrupt(result, after=2, **options):
    """Check some files of the log, and stop."""

    def stop(done, files):
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dsel.verify(result, progress=stop, **options)


def first_log(result):
    return LogFolder(result / f"proof-log-{K}")


def test_it_continues_where_it_was_and_leaves_nothing(result, checked, state_home):
    whole = dsel.verify(result).checks[0]
    files = list(checked)
    before = {file: file.read_bytes() for file in result.rglob("*") if file.is_file()}
    checked.clear()
    interrupt(result)
    assert checked == files[:2]
    (check,) = dsel.verify(result).checks
    assert checked == files
    assert (check.accepted, check.leaves, check.checked) == (True, whole.leaves, whole.checked)
    assert not list((state_home / "dsel" / "verify").iterdir())
    assert {file: file.read_bytes() for file in result.rglob("*") if file.is_file()} == before


def test_a_file_that_changed_after_its_check_is_checked_again(result):
    interrupt(result)
    log = first_log(result)
    log.bounds[0] += 0.5
    log.save()
    assert "000000.npz, leaf" in str(dsel.verify(result))


def test_a_file_that_was_removed_after_its_check_is_missing(result):
    interrupt(result)
    first_log(result).file.unlink()
    assert "000000.npz: the file is missing" in str(dsel.verify(result))


@pytest.mark.parametrize("other", ["data", "claim", "tolerance"])
def test_another_check_begins_with_the_first_file(result, checked, tmp_path, other):
    interrupt(result)
    checked.clear()
    options = {}
    if other == "data":
        ingest_arrays(X * [[1.0 + 1e-15 * (j == 3) for j in range(24)]], tmp_path / "other", y=Y + 1e-14)
        options = {"store": tmp_path / "other"}
    elif other == "claim":
        log = first_log(result)
        log.manifest["bound"] -= 1e-9
        log.save()
    else:
        options = {"tolerance": 2e-9}
    assert dsel.verify(result, **options).checks[0].accepted
    assert checked[0] == "000000.npz"


def test_a_damaged_result_of_an_earlier_check_is_not_used(result, checked, state_home):
    interrupt(result)
    (folder,) = (state_home / "dsel" / "verify").iterdir()
    for file, damage in zip(sorted(folder.iterdir()), ("{", json.dumps({"open": [], "digest": "0"})), strict=True):
        file.write_text(damage)
    checked.clear()
    assert dsel.verify(result).accepted
    assert checked[0] == "000000.npz"


def test_the_folder_may_be_chosen_outside_the_result(result, tmp_path, state_home):
    interrupt(result, state=tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir())
    assert not list(state_home.iterdir())
    shown = CliRunner().invoke(app, ["verify", str(result), "--state", str(tmp_path / "mine")])
    assert shown.exit_code == 0, shown.output
    with pytest.raises(OptionError, match="lies inside"):
        dsel.verify(result, state=result / "state")


def make_file(folder):
    folder.write_text("")


def open_to_all(folder):
    folder.mkdir()
    folder.chmod(0o777)


def give_away(folder):
    folder.mkdir()
    if os.geteuid():
        pytest.skip("only root can give a folder to another user")
    os.chown(folder, 4711, 4711)


@pytest.mark.parametrize(
    ("spoil", "why"), [(make_file, "exists"), (open_to_all, "other users may write"), (give_away, "user 4711")]
)
def test_without_a_safe_folder_the_check_is_complete_but_cannot_continue(result, checked, tmp_path, caplog, spoil, why):
    spoil(tmp_path / "mine")
    with caplog.at_level(logging.WARNING, "dsel"):
        interrupt(result, state=tmp_path / "mine")
    (note,) = {record.getMessage() for record in caplog.records}
    assert "the check cannot be continued if it is interrupted" in note
    assert why in note
    checked.clear()
    assert dsel.verify(result, state=tmp_path / "mine").accepted
    assert checked[0] == "000000.npz"

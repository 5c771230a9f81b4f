"""Temporary files that killed runs left: which ones are removed, and which ones may still be written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dsel.storage import leftovers as module
from dsel.storage.leftovers import remove_leftovers, temporary_tag

KILLED = """
import os, sys; from pathlib import Path
from dsel.storage import paths
tree = paths.staging_tree(Path(sys.argv[1]), "gram-1")
tree.mkdir(); (tree / "arrays.npz").touch()
os.replace = lambda *names: os.kill(os.getpid(), 9)
paths.write_bytes(Path(sys.argv[1], "job.json"), b"{}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a killed process has left."""
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    return tmp_path


def test_what_a_dead_process_of_this_machine_left_is_removed(folder: Path) -> None:
    (folder / "job.json").write_text("{}")
    removed = remove_leftovers(folder)
    assert [name[:9] for name in removed] == [".gram-1-" + removed[0][8], ".job.json"]
    assert [path.name for path in folder.iterdir()] == ["job.json"]


def test_what_a_live_process_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".job.json-{temporary_tag()}").touch()
    assert remove_leftovers(tmp_path) == remove_leftovers(tmp_path, owned=True) == []
    other = temporary_tag().replace(f"p{os.getpid()}-", f"p{os.getppid()}-")
    (tmp_path / f".gram-{other}").mkdir()
    assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path, owned=True) == [f".gram-{other}"]  # the lock says that no other run writes there


def test_what_a_hidden_process_of_another_user_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is mounted with hidepid=2: a signal is refused, and nothing else is seen."""

    def not_permitted(pid: int, signal: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", not_permitted)
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: False)
    (tmp_path / f".job.json-{temporary_tag().replace(f'p{os.getpid()}-', f'p{os.getppid()}-')}").touch()
    assert remove_leftovers(tmp_path) == []


def test_of_another_machine_only_old_ones_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (tmp_path / f".gram-1-abcdef-p1-{word}" for word in ("00000000", "11111111"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    assert remove_leftovers(tmp_path) == [old.name]


def test_files_of_earlier_releases_go_where_one_run_writes(tmp_path: Path) -> None:
    for name in (".checkpoint.json-0123abcd", ".hidden", "..lock-0123abcd", "run.log"):
        (tmp_path / name).touch()
    assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path, owned=True) == [".checkpoint.json-0123abcd"]
    assert module.machine()

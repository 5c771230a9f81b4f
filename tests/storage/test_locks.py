"""One run at a time, wherever it runs: who is refused, who takes over, and what a run does that was taken for dead."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dsel.errors import OutputError
from dsel.storage import locks as module
from dsel.storage.locks import FolderLockFile, locked


@pytest.fixture
def file(tmp_path: Path) -> FolderLockFile:
    return FolderLockFile(tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.5)


def without_links(*names: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def owner(**keys: object) -> str:
    return json.dumps({"run": "first", "host": "elsewhere", "pid": 7, "started": 0.0, "beat": 0, **keys})


def test_the_second_is_refused_and_told_who_is_first(file: FolderLockFile, tmp_path: Path) -> None:
    with locked(file, "first", "out"):
        with (
            pytest.raises(OutputError, match="Another run is writing to out: run first"),
            locked(file, "second", "out"),
        ):
            pytest.fail("both hold it")
        assert json.loads(file.read() or "")["run"] == "first"
    assert list(tmp_path.iterdir()) == []
    with locked(file, "second", "out"):
        pass


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_gets_it(file: FolderLockFile, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:
        monkeypatch.setattr(module.os, "link", without_links)
    begin, got, refused = threading.Barrier(8), [], threading.Semaphore(0)

    def work(number: int) -> None:
        begin.wait()
        try:
            with locked(file, f"run {number}", "out"):
                got.append(number)
                for _ in range(7):
                    refused.acquire(timeout=20)
        except OutputError:
            refused.release()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_a_file_that_is_being_written_is_waited_for(
    file: FolderLockFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / module.LOCK_NAME
    path.touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_text("first"))  # written while we wait
    assert file.read() == "first"


def test_a_lock_file_is_whole_from_the_first_moment(file: FolderLockFile, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda *args: (seen.append(file.read()), plain(*args))[1])
    assert file.create("first")
    assert (seen, file.read()) == ([None], "first")
    assert not file.create("second")
    assert (seen, file.read()) == ([None, "first"], "first")


def test_a_killed_process_of_this_machine_is_followed_at_once(
    file: FolderLockFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = (
        "import time, sys; from pathlib import Path; from dsel.storage.locks import *\n"
        f"with locked(FolderLockFile(Path({str(tmp_path)!r})), 'first', 'out'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    with caplog.at_level(logging.WARNING, "dsel"), locked(file, "second", "out") as lock:
        lock.require()
    assert "taking over out from run first" in caplog.text


def test_a_process_number_that_was_given_anew_is_not_the_owner(file: FolderLockFile) -> None:
    me = psutil.Process()
    file.create(owner(host=module._host(), pid=me.pid, started=me.create_time() - 1000))
    with locked(file, "second", "out"):
        pass


@pytest.mark.usefixtures("quick")
class TestAnotherMachine:
    def test_while_it_says_that_it_lives_it_keeps_the_folder(self, tmp_path: Path) -> None:
        class Living(FolderLockFile):
            """Its owner's heart beats when it is looked at for the fourth time."""

            looks = 0

            def read(self) -> str | None:
                self.looks += 1
                if self.looks == 4:
                    self.replace(owner(beat=1))
                return super().read()

        file = Living(tmp_path)
        file.create(owner())
        with pytest.raises(OutputError, match="process 7 on elsewhere"), locked(file, "second", "out"):
            pass
        assert file.looks == 4

    def test_silent_it_is_followed(self, file: FolderLockFile, caplog: pytest.LogCaptureFixture) -> None:
        file.create(owner())
        with caplog.at_level(logging.INFO, "dsel"), locked(file, "second", "out"):
            assert json.loads(file.read() or "")["run"] == "second"
        assert "watching" in caplog.text
        assert "taking over" in caplog.text

    def test_a_damaged_file_is_of_an_owner_as_any(self, file: FolderLockFile) -> None:
        file.create("{")
        with locked(file, "second", "out"):
            pass

    def test_an_owner_says_that_it_lives(self, file: FolderLockFile) -> None:
        with locked(file, "first", "out"):
            before = file.read()
            deadline = time.monotonic() + 10
            while file.read() == before and time.monotonic() < deadline:
                time.sleep(0.02)
            assert file.read() != before

    def test_one_that_was_taken_for_dead_writes_nothing_more(self, file: FolderLockFile) -> None:
        with locked(file, "first", "out") as lock:
            file.replace(owner(run="second"))
            with pytest.raises(OutputError, match=r"lost its hold .* run second"):
                lock.require()
        assert json.loads(file.read() or "")["run"] == "second"  # left to the one that holds it

"""One run at a time: which run is refused, which takes over, and what a run does that was taken for dead."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from dsel.errors import OutputError
from dsel.storage import locks as module
from dsel.storage import paths
from dsel.storage.locks import locked, remove_free_folder
from tests.storage.contenders import winners
from tests.storage.schedules import contend


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.5)


def without_links(*names: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def not_permitted(pid: int, signal: int) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def hidden(pid: int) -> Any:
    """Return psutil's class of processes, for which this one does not exist."""
    plain = psutil.Process

    def process(number: int | None = None) -> psutil.Process:
        if number == pid:
            raise psutil.NoSuchProcess(pid)
        return plain(number)

    return process


def owner(**keys: object) -> str:
    return json.dumps({"run": "first", "host": "elsewhere", "pid": 7, "started": 0.0, "beat": 0, **keys})


def dead_owner() -> str:
    """A process of this machine that has ended."""
    return owner(machine=module.machine(), pid=ended_process())


def later_owner() -> str:
    """A process of this machine whose number was given to another process since."""
    me = psutil.Process()
    return owner(host=earlier_name(), machine=module.machine(), pid=me.pid, started=me.create_time() - 1000)


def earlier_name() -> str:
    """Return what earlier releases took for the identity of this machine."""
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"


def live_owner(**keys: object) -> str:
    """The process that started the tests: it is alive, and writes no heartbeat."""
    parent = psutil.Process(os.getppid())
    return owner(
        **{
            "host": earlier_name(),
            "machine": module.machine(),
            "pid": parent.pid,
            "started": parent.create_time(),
            **keys,
        }
    )


@cache
def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def holder(folder: Path) -> Any:
    return json.loads(max(folder.glob(".lock*"), key=lambda file: file.name).read_text()).get("run")


def test_the_second_run_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    with locked(tmp_path, "first", "out"):
        since = r"since 20\d\d-\d\d-\d\dT"
        match = rf"Another run is writing to out: run first \(process {os.getpid()} on .*, {since}"
        with pytest.raises(OutputError, match=match), locked(tmp_path, "second", "out"):
            pytest.fail("both hold it")
        assert holder(tmp_path) == "first"
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path, "second", "out"):
        pass


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("dead", [False, True])
def test_of_several_contenders_one_gets_it(
    tmp_path: Path, links: bool, dead: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not links:
        monkeypatch.setattr(paths.os, "link", without_links)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if dead:
            (folder / ".lock").write_text(dead_owner())
        caplog.clear()
        assert len(winners(folder, 8)) == 1
        assert caplog.text.count("taking the lock on") == dead


def test_a_contender_that_was_slow_does_not_take_the_lock_from_a_faster_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One contender reads that the owner is dead, and waits. Others take the lock over, free it, and take it again."""
    (tmp_path / ".lock").write_text(dead_owner())
    judged, proceed = threading.Event(), threading.Event()
    create = module.create_file
    errors: list[OutputError] = []

    def delayed(file: Any, data: bytes) -> bool:
        if threading.current_thread().name == "slow" and not judged.is_set():
            judged.set()
            proceed.wait(600)
        return create(file, data)

    def slow() -> None:
        try:
            with locked(tmp_path, "slow", "out"):
                pytest.fail("both hold it")
        except OutputError as error:
            errors.append(error)

    monkeypatch.setattr(module, "create_file", delayed)
    thread = threading.Thread(target=slow, name="slow")
    thread.start()
    assert judged.wait(600)
    with locked(tmp_path, "second", "out"):
        pass
    with locked(tmp_path, "third", "out") as lock:
        assert {file.name for file in tmp_path.iterdir()} == {".lock-2"}
        proceed.set()
        thread.join()
        lock.require()
    assert "run third" in str(errors[0])


@pytest.mark.parametrize("dead", [False, True])
def test_on_no_schedule_do_two_contenders_hold_it(tmp_path: Path, dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules of single operations force the races between judging an owner dead and taking its lock."""
    monkeypatch.setattr(paths.os, "fsync", lambda file: None)
    most = 0
    for seed in range(60):
        (folder := tmp_path / str(seed)).mkdir()
        if dead:
            (folder / ".lock").write_text(dead_owner())
        held = contend(folder, 4, seed, monkeypatch)
        most = max(most, len(held))
        assert held
    assert most > 1  # they followed each other, too


@pytest.mark.parametrize("freed", [False, True])
def test_a_file_created_too_late_is_withdrawn(tmp_path: Path, freed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner frees the lock after it was judged dead; then another run may be first."""
    (tmp_path / ".lock").write_text(dead_owner())
    create, calls = module.create_file, []

    def meanwhile(file: Any, data: bytes) -> bool:
        calls.append(file.name)
        if len(calls) == 1:
            (tmp_path / ".lock").unlink()
            if not freed:
                (tmp_path / ".lock").write_text(live_owner())
        return create(file, data)

    monkeypatch.setattr(module, "create_file", meanwhile)
    if freed:
        with locked(tmp_path, "second", "out") as lock:
            lock.require()
            assert calls == [".lock-1", ".lock"]
    else:
        with pytest.raises(OutputError, match=f"process {os.getppid()} on"), locked(tmp_path, "second", "out"):
            pytest.fail("both hold it")
        assert {file.name for file in tmp_path.iterdir()} == {".lock"}


def test_a_killed_process_of_this_machine_is_followed_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = (
        "import time, sys; from pathlib import Path; from dsel.storage.locks import *\n"
        f"with locked(Path({str(tmp_path)!r}), 'first'):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    with caplog.at_level(logging.WARNING, "dsel"), locked(tmp_path, "second", "out") as lock:
        lock.require()
    assert "taking the lock on out over from run first" in caplog.text


def test_a_read_only_folder_is_refused_without_a_watch_on_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".lock").write_text(owner())
    monkeypatch.setattr(module.time, "sleep", lambda seconds: pytest.fail("it waits"))
    monkeypatch.setattr(module.os, "access", lambda folder, mode: False)  # the tests may run as root
    with (
        pytest.raises(OutputError, match="out cannot be written: the folder is read-only"),
        locked(tmp_path, "second", "out"),
    ):
        pytest.fail("it holds it")
    assert holder(tmp_path) == "first"


def test_a_lock_that_was_taken_over_once_stays_as_a_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(dead_owner())
    for number in (1, 2):
        with locked(tmp_path, "second", "out") as lock:
            lock.require()
        assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {f".lock-{number}": "free"}
    remove_free_folder(tmp_path)
    assert not tmp_path.exists()


def test_a_folder_that_another_run_holds_is_not_removed(tmp_path: Path) -> None:
    with locked(tmp_path, "first", "out") as lock:
        remove_free_folder(tmp_path)
        lock.require()


def test_a_process_that_has_ended_and_waits_for_its_parent_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        started = psutil.Process(process.pid).create_time()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        (tmp_path / ".lock").write_text(owner(machine=module.machine(), pid=process.pid, started=started))
        with locked(tmp_path, "second", "out"):
            assert holder(tmp_path) == "second"


def test_a_machine_is_known_by_its_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot in module.machine()
    monkeypatch.setattr(Path, "read_text", without_links)  # a system without such an id
    assert module.machine() == module.machine() != ""


@pytest.mark.usefixtures("quick")
class TestUncertain:
    """What this machine shows of an owner is no proof that it is dead: its heartbeat decides."""

    @pytest.fixture(params=["hidden", "later", "host name", "earlier release"])
    def text(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        """The lock of an owner that seems dead here."""
        if request.param == "hidden":  # as where /proc is mounted with hidepid=2
            text = live_owner()
            monkeypatch.setattr(module.psutil, "Process", hidden(os.getppid()))
            monkeypatch.setattr(os, "kill", not_permitted)
            return text
        if request.param == "later":
            return later_owner()
        if request.param == "host name":  # of two machines
            other = module.machine().replace(Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "other")
            return owner(host=earlier_name(), machine=other, pid=ended_process())
        return owner(host=earlier_name(), pid=ended_process())

    def test_while_its_heart_beats_it_keeps_the_lock(self, tmp_path: Path, text: str) -> None:
        (tmp_path / ".lock").write_text(text)
        beaten = threading.Timer(0.1, (tmp_path / ".lock").write_text, [json.dumps({**json.loads(text), "beat": 1})])
        beaten.start()
        with pytest.raises(OutputError, match="Another run is writing to out: run first"), locked(tmp_path, "2", "out"):
            pytest.fail("both hold it")
        beaten.join()

    def test_after_a_silence_it_is_followed(self, tmp_path: Path, text: str) -> None:
        (tmp_path / ".lock").write_text(text)
        began = time.monotonic()
        with locked(tmp_path, "second", "out"):
            assert time.monotonic() - began >= module.SILENCE_SECONDS

    def test_of_several_contenders_one_gets_it(self, tmp_path: Path, text: str) -> None:
        (tmp_path / ".lock").write_text(text)
        assert len(winners(tmp_path, 6)) == 1


@pytest.mark.usefixtures("quick")
class TestAnotherMachine:
    def test_while_its_heart_beats_it_keeps_the_lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / ".lock").write_text(owner())
        monkeypatch.setattr(module, "SILENCE_SECONDS", 600.0)
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                (tmp_path / ".lock").write_text(owner(beat=1))

        monkeypatch.setattr(module.time, "sleep", sleep)
        with pytest.raises(OutputError, match="process 7 on elsewhere"), locked(tmp_path, "second", "out"):
            pass
        assert len(pauses) == 3

    def test_after_a_silence_it_is_followed(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / ".lock").write_text(owner())
        with caplog.at_level(logging.INFO, "dsel"), locked(tmp_path, "second", "out"):
            assert holder(tmp_path) == "second"
        assert "watching" in caplog.text
        assert "taking the lock on" in caplog.text

    def test_of_several_that_watch_it_one_follows(self, tmp_path: Path) -> None:
        (tmp_path / ".lock").write_text(owner())
        assert len(winners(tmp_path, 6)) == 1

    @pytest.mark.parametrize("text", ["{", ""])
    def test_a_damaged_file_is_watched_as_any(
        self, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / ".lock").write_text(text)
        with caplog.at_level(logging.INFO, "dsel"), locked(tmp_path, "second", "out"):
            pass
        assert "run unknown (process unknown on an unknown machine): watching" in caplog.text

    def test_an_owner_keeps_its_heart_beating(self, tmp_path: Path) -> None:
        with locked(tmp_path, "first", "out"):
            before = (tmp_path / ".lock").read_text()
            deadline = time.monotonic() + 600
            while (tmp_path / ".lock").read_text() == before and time.monotonic() < deadline:
                time.sleep(0.02)
            assert (tmp_path / ".lock").read_text() != before

    def test_one_that_was_taken_for_dead_writes_nothing_more(self, tmp_path: Path) -> None:
        with locked(tmp_path, "first", "out") as lock:
            (tmp_path / ".lock-1").write_text(owner(run="second"))
            with pytest.raises(OutputError, match=r"lost its lock on out, .* run second"):
                lock.require()
        assert holder(tmp_path) == "second"  # left to the run that holds it

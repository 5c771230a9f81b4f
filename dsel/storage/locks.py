"""One run at a time in a folder, across machines, on shared file systems and in object storage.

The lock is a numbered file: `.lock`, `.lock-1`, `.lock-2` and so on; the highest number counts. A contender that finds
the lock free, or its owner dead, creates the file with the next number. Creating a new file is atomic on every storage,
so of several contenders one succeeds. No contender changes the file of another. So a delayed one cannot destroy a lock
that was taken meanwhile.

The owner rewrites its file every `BEAT_SECONDS`. Others watch it by their own clock; clocks of two machines are never
compared. On the same machine they ask the system for the owner's process first. Only an answer that is certain spares
the watch: a process of another user may be hidden, which is no sign that it is dead.

Why not flock, or the package filelock? Network file systems may not forward flock. The lease of filelock (4.2) takes a
dead owner's lock over by exchanging two names. NFS, SMB, Lustre and CephFS refuse that, so there the lock would stay.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from dsel.errors import AccessError, DselError, OutputError, StorageError
from dsel.storage.leftovers import has_ended, machine
from dsel.storage.object_store import ending, is_hurried
from dsel.storage.paths import AnyPath, ObjectPath, create_file, list_names, make_folder, write_bytes

log = logging.getLogger("dsel")

#: How often the owner rewrites its file, and after which silence others take it for dead.
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 30.0

#: For so long a hurried release waits for the heartbeat.
JOIN_SECONDS = 10.0

#: The content of the file while nobody holds the lock.
_FREE = "free"


class Lock:
    """A lock that this process holds, until another run takes it over because this one was silent for too long."""

    def __init__(
        self, folder: AnyPath, number: int, owner: dict[str, Any], name: str, names: frozenset[str] = frozenset()
    ) -> None:
        self._folder, self._number, self._owner, self._name = folder, number, owner, name
        #: What was in the folder when the lock was taken.
        self.names = names
        self._beat = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="dsel-lock", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise OutputError if another run has taken the lock over. Call it before anything is written."""
        if self._is_held():
            return
        time.sleep(BEAT_SECONDS / 4)  # a contender that was too late withdraws its file at once
        if not self._is_held():
            text = _latest(self._folder)[1]
            holder = "nobody" if text in (None, _FREE) else _describe(_parse(text))
            raise OutputError(
                f"This run lost its lock on {self._name}, which is now held by {holder}.",
                "It was silent for too long (a suspended job?). The other run continues in its place.",
            )

    def _is_held(self) -> bool:
        number, text = _latest(self._folder)
        return number == self._number and self._is_own(text)

    def _is_own(self, text: str | None) -> bool:
        return bool(_parse(text).get("run") == self._owner["run"])

    def release(self) -> None:
        """Stop the heartbeat and free the lock, if this run still holds it.

        On disk the first file is removed. A higher number shows that a run was taken for dead. That run may wake up
        later, so no number is used again: the file stays and says that the lock is free. So it does in object storage,
        where a run may have permission to write but not to delete.
        """
        self._stopped.set()
        self._thread.join(JOIN_SECONDS if is_hurried() else None)
        with suppress(OSError, DselError):
            self.require()
            file = _file(self._folder, self._number)
            if self._number == 0 and isinstance(file, Path):
                file.unlink()
            else:
                write_bytes(file, _FREE.encode())

    def _keep_alive(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                if not self._is_own(_read(self._folder, self._number)):  # another run removed the file
                    self.require()
                self._beat += 1
                write_bytes(_file(self._folder, self._number), _text(self._owner, self._beat))
            except OutputError:
                return  # the next `require` reports it in the main thread
            except (OSError, StorageError, AccessError) as error:
                log.warning("the lock on %s could not be refreshed: %s", self._name, error)


@contextmanager
def locked(folder: AnyPath, run: str, name: str | None = None) -> Iterator[Lock]:
    """Hold the lock of `folder` for the run with this id; create the folder if needed.

    `name` is what messages call the folder, by default its path. A dead owner's lock is taken over with a warning: at
    once if its process ran on this machine, otherwise after `SILENCE_SECONDS`. Raises OutputError if it is alive.
    """
    name = name or str(folder)
    me = psutil.Process()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    owner = {
        "run": run, "host": socket.gethostname(), "machine": machine(), "pid": me.pid, "started": me.create_time(),
        "since": since,
    }  # fmt: skip
    try:
        number, names = _acquire(folder, owner, name)
    except OSError as error:
        raise OutputError(
            f"{name} cannot be written: {error.strerror}.", "Check the permissions of the folder and the disk."
        ) from error
    lock = Lock(folder, number, owner, name, names)
    with ending(lock.release):
        yield lock


def is_free(folder: AnyPath) -> bool:
    """Return whether no run holds the lock of a folder. A run that was killed holds it until another takes it over."""
    return _latest(folder)[1] in (None, _FREE)


def remove_free_folder(folder: AnyPath) -> None:
    """Remove a folder with nothing in it but free locks. A lock that another run holds stays."""
    with suppress(OSError, DselError):
        for number in _numbers(list_names(folder)):
            if _read(folder, number) == _FREE:
                _file(folder, number).unlink(missing_ok=True)
        if not isinstance(folder, ObjectPath):
            folder.rmdir()


def _acquire(folder: AnyPath, owner: dict[str, Any], name: str) -> tuple[int, frozenset[str]]:
    """Return the number of the file that makes `owner` the holder, and the names in the folder then."""
    make_folder(folder)
    while True:
        number, text = _latest(folder)
        owner_text = None if text in (None, _FREE) else text
        # The lock of a folder that this process may not write to cannot be taken over.
        if owner_text is not None and isinstance(folder, Path) and not os.access(folder, os.W_OK | os.X_OK):
            raise OutputError(
                f"{name} cannot be written: the folder is read-only.",
                "Check the permissions of the folder and the disk.",
            )
        if owner_text is not None and _is_alive(folder, number, owner_text, name):
            raise OutputError(
                f"Another run is writing to {name}: {_describe(_parse(owner_text))}.",
                "Wait until it ends, or write to another place.",
            )
        if owner_text is not None and _latest(folder) != (number, text):  # judging it took time
            continue
        names = _claim(folder, number, text, owner)
        if names is not None:
            if owner_text is not None:
                log.warning("taking the lock on %s over from %s, which is dead", name, _describe(_parse(owner_text)))
            return number + 1, names


def _claim(folder: AnyPath, number: int, text: str | None, owner: dict[str, Any]) -> frozenset[str] | None:
    """Create the next file. Return the names in the folder if that makes `owner` the holder, else None.

    Between reading and creating, others may have taken and freed the lock. Then the file judged before is gone or
    changed, or a higher number exists, and the new file is withdrawn.
    """
    if not create_file(_file(folder, number + 1), _text(owner, 0)):
        return None
    names = frozenset(list_names(folder))
    numbers = _numbers(names)
    if max(numbers, default=-1) == number + 1 and _read(folder, number) == text:
        with suppress(OSError, AccessError):
            for old in sorted(numbers):
                if old <= number:
                    _file(folder, old).unlink(missing_ok=True)
        return names
    _file(folder, number + 1).unlink(missing_ok=True)
    return None


def _is_alive(folder: AnyPath, number: int, text: str, name: str) -> bool:
    """Return whether the owner is alive: by its process if that is certain, otherwise by its heartbeat."""
    owner = _parse(text)
    runs = _runs_here(owner)
    if runs is not None:
        return runs
    log.info("%s is locked by %s: watching whether it is alive", name, _describe(owner))
    start = time.monotonic()
    while time.monotonic() - start < SILENCE_SECONDS:
        time.sleep(BEAT_SECONDS / 4)
        latest = _latest(folder)
        if latest != (number, text):
            return latest[1] not in (None, _FREE)
    return False


def _runs_here(owner: dict[str, Any]) -> bool | None:
    """Return whether the owner's process runs on this machine; None if that is not certain.

    A process may be hidden. One with the same number may be a later one, or the clock was set meanwhile. Earlier
    releases did not write which machine of a host name it is.
    """
    pid, certain = owner.get("pid"), "machine" in owner
    if owner.get("machine", machine()) != machine() or not isinstance(pid, int) or pid <= 0:
        return None
    if has_ended(pid):
        return False if certain else None
    with suppress(psutil.Error, KeyError, TypeError, ValueError):
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False if certain else None
        if abs(process.create_time() - float(owner["started"])) < 1.0:
            return True
    return None


def _numbers(names: Iterable[str]) -> set[int]:
    found = (re.fullmatch(r"\.lock(?:-(\d+))?", name) for name in names)
    return {int(match[1] or 0) for match in found if match}


def _latest(folder: AnyPath) -> tuple[int, str | None]:
    """Return the highest number and the text of its file; -1 and None without a file."""
    while (number := max(_numbers(list_names(folder)), default=-1)) >= 0:
        if (text := _read(folder, number)) is not None:
            return number, text
    return -1, None


def _read(folder: AnyPath, number: int) -> str | None:
    """Return the text of a file, or None if it does not exist.

    An empty file on disk is just being created. An empty object is a lock that an earlier release has freed.
    """
    if number < 0:
        return None
    try:
        text = _file(folder, number).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return text or (_FREE if isinstance(folder, ObjectPath) else "")


def _file(folder: AnyPath, number: int) -> AnyPath:
    return folder / (".lock" if number == 0 else f".lock-{number}")


def _text(owner: dict[str, Any], beat: int) -> bytes:
    return json.dumps({**owner, "beat": beat}).encode()


def _parse(text: str | None) -> dict[str, Any]:
    """Return the owner that a lock file names; an empty dict if it is free or damaged."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _describe(owner: dict[str, Any]) -> str:
    host = str(owner["host"]).split(" ")[0] if "host" in owner else "an unknown machine"
    since = f", since {owner['since']}" if "since" in owner else ""
    return f"run {owner.get('run', 'unknown')} (process {owner.get('pid', 'unknown')} on {host}{since})"

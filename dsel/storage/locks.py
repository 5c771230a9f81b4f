"""One run at a time in a folder, across machines: a lock file that its owner keeps alive.

A lock that is enforced by the file system (flock) is no help on network file systems that do not pass it on, and none
on object stores. So the owner writes down who it is, and counts up a number there every `BEAT_SECONDS`. Whoever finds
the file watches that number by a clock of his own: clocks of two machines are never compared. An owner on the same
machine whose process is gone need not be watched.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import psutil

from dsel.errors import AccessError, DselError, OutputError, StorageError

log = logging.getLogger("dsel")

LOCK_NAME = ".lock"
#: How often the owner says that it lives, and how long its silence lasts before others take it for dead.
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 30.0
#: How long a file without links may stay empty between being made and being written, before it counts as damaged.
EMPTY_SECONDS = 1.0


class LockFile(Protocol):
    """A small file that can be made by one only. Errors: OSError, OutputError, StorageError."""

    def create(self, text: str) -> bool:
        """Write it where there is none; False where there is one already."""

    def read(self) -> str | None:
        """Its text, or None where there is none."""

    def replace(self, text: str) -> None:
        """Write it anew, whole at any moment."""

    def remove(self) -> None:
        """Remove it, if it is there."""


class FolderLockFile:
    """In a folder that several machines may share: that a file is new is decided by the server, over NFS too."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME

    def create(self, text: str) -> bool:
        """Write it where there is none, whole from the first moment; False where there is one already."""
        temporary = self._written(text)
        try:
            os.link(temporary, self._path)
        except FileExistsError:  # NFS may say so of an own link, when its answer was lost and the request made again
            return temporary.stat().st_nlink == 2
        except OSError:  # a file system without hard links
            return self._create_in_place(text)
        finally:
            temporary.unlink()
        return True

    def _create_in_place(self, text: str) -> bool:
        try:
            with self._path.open("x") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def _written(self, text: str) -> Path:
        temporary = self._path.with_name(f"{LOCK_NAME}-{uuid4().hex[:8]}")
        try:
            temporary.write_text(text)
        except OSError:  # a full disk
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return temporary

    def read(self) -> str | None:
        """Its text, or None where there is none."""
        end = time.monotonic() + EMPTY_SECONDS
        try:
            while not (text := self._path.read_text()) and time.monotonic() < end:
                time.sleep(0.01)  # made in place, and about to be written
        except FileNotFoundError:
            return None
        return text

    def replace(self, text: str) -> None:
        """Write it anew, whole at any moment."""
        os.replace(self._written(text), self._path)

    def remove(self) -> None:
        """Remove it, if it is there."""
        self._path.unlink(missing_ok=True)


class Lock:
    """A lock that is held. It can be lost: a machine that slept for long finds that another run has taken over."""

    def __init__(self, file: LockFile, owner: dict[str, Any], place: str) -> None:
        self._file, self._owner, self._place = file, owner, place
        self._beat = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="dsel-lock", daemon=True)

    def require(self) -> None:
        """To be called before anything is written. Errors: OutputError where the lock is another run's by now."""
        found = _parsed(self._file.read())
        if found is None or found.get("run") != self._owner["run"]:
            by = "nobody" if found is None else _named(found)
            raise OutputError(
                f"This run lost its hold on {self._place}: it is held by {by}.",
                "It was silent for too long (a suspended job?); the other run goes on in its place.",
            )

    def _text(self) -> str:
        return json.dumps({**self._owner, "beat": self._beat})

    def _take(self) -> bool:
        try:
            return self._file.create(self._text())
        except OSError as error:
            raise OutputError(f"{self._place} cannot be written: {error.strerror}.") from error

    def _keep_alive(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            try:
                self.require()
                self._beat += 1
                self._file.replace(self._text())
            except OutputError:
                return  # the next `require` says so where it can be heard
            except (OSError, StorageError, AccessError) as error:
                log.warning("the lock of %s could not be kept alive: %s", self._place, error)

    def _release(self) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError, DselError):
            self.require()
            self._file.remove()


@contextmanager
def locked(file: LockFile, run: str, place: str) -> Iterator[Lock]:
    """Hold the lock for the run of that id while the block lasts; `place` is its name in messages.

    What a dead owner left is taken over, with a message: at once where it was a process of this machine, else after
    `SILENCE_SECONDS` of watching. Errors: OutputError where another run is alive.
    """
    me = psutil.Process()
    lock = Lock(file, {"run": run, "host": _host(), "pid": me.pid, "started": me.create_time()}, place)
    while not lock._take():
        found = _parsed(file.read())
        if found is None:
            continue  # released, or taken over, just now
        if _alive(file, found, place):
            raise OutputError(
                f"Another run is writing to {place}: {_named(found)}.", "Wait for it, or choose another --out."
            )
        now = _parsed(file.read())
        if now is not None and now.get("run") == found.get("run"):  # nobody else was quicker
            log.warning("taking over %s from %s, which is dead", place, _named(found))
            file.remove()
    lock._thread.start()
    try:
        yield lock
    finally:
        lock._release()


def _alive(file: LockFile, owner: dict[str, Any], place: str, clock: Callable[[], float] = time.monotonic) -> bool:
    """Whether the owner lives: its process, on this machine; its heartbeat, on another one."""
    if owner.get("host") == _host():
        with suppress(psutil.Error, KeyError, TypeError, ValueError):
            started: float = psutil.Process(owner["pid"]).create_time()
            return abs(started - float(owner["started"])) < 1.0
        return False
    log.info("%s is held by %s: watching whether it is alive", place, _named(owner))
    start = clock()
    while clock() - start < SILENCE_SECONDS:
        time.sleep(BEAT_SECONDS / 4)
        now = _parsed(file.read())
        if now is None:
            return False
        if now.get("run") != owner.get("run") or now.get("beat") != owner.get("beat"):
            return True
    return False


def _host() -> str:
    """This machine, or container: process numbers mean nothing outside it."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _named(owner: dict[str, Any]) -> str:
    host = str(owner.get("host", "an unknown machine")).split(" ")[0]
    return f"run {owner.get('run', 'unknown')} (process {owner.get('pid')} on {host})"


def _parsed(text: str | None) -> dict[str, Any] | None:
    """What the file says; a damaged one is of an unknown owner."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

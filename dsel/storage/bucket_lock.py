"""The lock file of `dsel.storage.locks` in object storage, where a put can be told what it may replace.

That there is none (If-None-Match) or that it is the one last read (If-Match) is decided by the server: of several runs
that take the lock, or take it over from a dead one, one succeeds. A lock that is given back stays as an empty object,
for a removal cannot be told which object it may remove.
"""

from __future__ import annotations

import threading
import time
from typing import Literal

from dsel.errors import OutputError, StorageError
from dsel.storage import retries as bucket_errors
from dsel.storage.locks import LOCK_NAME
from dsel.storage.object_store import Remote, TakenError, Version

_FREE = b""


class BucketLockFile:
    """A `dsel.storage.locks.LockFile`. Errors: those of `Remote`."""

    def __init__(self, folder: Remote) -> None:
        self._object = folder / LOCK_NAME
        self._version: Version | None = None
        self._turn = threading.RLock()  # the heartbeat and the run ask at the same time

    def create(self, text: str) -> bool:
        """Write it where there is none; False where there is one already."""
        if self._put(text.encode(), "create"):
            return True
        return self.read() is None and self._replaced(text.encode())

    def read(self) -> str | None:
        """Its text, or None where there is none."""
        data = self._read()
        return data.decode("utf-8", "replace") if data else None

    def replace(self, text: str) -> None:
        """Write it anew. Errors: OutputError where it is not what was last read or written."""
        if not self._replaced(text.encode()):
            raise OutputError(f"{self._object} was taken over by another run.")

    def remove(self) -> None:
        """Empty it, if it is still what was last read."""
        self._replaced(_FREE)

    def _read(self) -> bytes | None:
        with self._turn:
            try:
                data, self._version = self._object.read_version()
            except FileNotFoundError:
                self._version = None
                return None
            return data

    def _replaced(self, data: bytes) -> bool:
        with self._turn:
            return self._version is not None and self._put(data, self._version)

    def _put(self, data: bytes, mode: Literal["create"] | Version) -> bool:
        """Whether it holds `data` now. A request whose answer got lost may have been carried out."""
        for attempt in range(bucket_errors.AGAIN + 1):
            try:
                self._version = self._object.put(data, mode)
                return True
            except TakenError:
                return self._read() == data
            except StorageError as error:
                if attempt == bucket_errors.AGAIN or error.attempts > 1:
                    raise
            time.sleep(bucket_errors.pause(attempt))
        raise AssertionError

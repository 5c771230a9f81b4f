"""The journal of a search on workers: one JSON line an event, written as it happens.

Events (each with `at`, seconds since 1970): started and resumed (with the archive then, and what its subsets are of:
see `dsel.search.parallel.replay.Columns`), sent, merged (what was put before the archive, in that order), lost,
workers (their
number changed), checkpoint, failed, ended. A process that is
killed in the middle of a line leaves half a line, which readers pass over and the next writer cuts off. In object
storage, where nothing can be appended to, it is put anew at every checkpoint, now and then between, and at the end.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dsel.errors import OutputError
from dsel.search.pareto.archive import Subset
from dsel.storage.paths import Place, Remote

#: An event waits at most about so many seconds (and for the next one) until it is in object storage.
_PUBLISH_SECONDS = 10.0


class Journal:
    """Appends events to a file. path: where it can be read, which for object storage is a copy on disk.

    Errors: OutputError where it cannot be written, those of `Remote` in object storage.
    """

    def __init__(self, place: Place) -> None:
        self._remote = place if isinstance(place, Remote) else None
        self._last = time.monotonic()
        self.path = place if isinstance(place, Path) else _fetched(place)
        try:
            _cut_half_line(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, event: str, **values: Any) -> None:
        """One event, handed to the system in one piece."""
        line = json.dumps({"event": event, "at": round(time.time(), 3), **values}) + "\n"
        try:
            _write_whole(self._file, line.encode())
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        if time.monotonic() - self._last >= _PUBLISH_SECONDS:
            self.publish()

    def publish(self) -> None:
        """Put it in object storage, if that is its place."""
        if self._remote is not None:
            self._remote.write_bytes(self.path.read_bytes())
            self._last = time.monotonic()

    def close(self) -> None:
        """No more events."""
        os.close(self._file)
        if self._remote is not None:
            try:
                self.publish()
            finally:
                self.path.unlink(missing_ok=True)


def _write_whole(file: int, line: bytes) -> None:
    """A disk that fills up takes the beginning, and says so only when it is asked to take the rest."""
    rest = line[os.write(file, line) :]
    if rest:
        os.write(file, rest)


def _fetched(place: Remote) -> Path:
    """A copy on disk of what stands there so far."""
    handle, name = tempfile.mkstemp(prefix="dsel-journal-", suffix=".jsonl")
    with os.fdopen(handle, "wb") as copy:
        if place.exists():
            copy.write(place.read_bytes())
    return Path(name)


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"The journal {path} cannot be written: {error.strerror}.", "Free some space there.")


def _cut_half_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)


def read_journal(path: Place) -> Iterator[dict[str, Any]]:
    """The events in order; half a line at the end is passed over."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def valued(found: Iterable[tuple[Subset, float]]) -> list[list[Any]]:
    """Subsets and f as JSON holds them (None: +inf)."""
    return [[list(S), f if f < math.inf else None] for S, f in found]


def found_in(event: dict[str, Any]) -> Iterator[tuple[Subset, float]]:
    """What a merged event put before the archive, in that order."""
    for S, f in event["found"]:
        yield tuple(S), math.inf if f is None else f


def journalled_values(path: Path) -> dict[Subset, float]:
    """The value of every subset that the journal holds one of: what need not be evaluated again."""
    return {S: f for event in read_journal(path) if event["event"] == "merged" for S, f in found_in(event)}

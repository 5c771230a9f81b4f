"""The journal of a search on workers: one JSON line per event with its digest, written as it happens.

Each event has the key `at`, in seconds since 1970. The events started and resumed have the archive at that moment, and
what its columns are in the data (see `columns_of`). The event merged has what was offered to the archive, in that
order. The others are sent, lost, workers (their number changed), checkpoint, failed and ended. A process that is killed
while it writes leaves half a line. Readers skip it, and the next writer removes it. Object storage cannot append: there
the whole journal is uploaded at every checkpoint, every few seconds, and at the end.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dsel._lib.damage import warn_of_damage
from dsel.errors import OutputError
from dsel.objective.objective_interface import Objective
from dsel.storage.json_files import checked_json, parse_checked_json
from dsel.storage.leftovers import remove_leftovers, temporary_tag
from dsel.storage.paths import AnyPath, ObjectPath

Subset = tuple[int, ...]

#: The first event after this time uploads the journal to object storage.
_PUBLISH_SECONDS = 10.0


class Journal:
    """Appends events to a file.

    Parameters
    ----------
    place : Path or ObjectPath
        The journal's file.

    Attributes
    ----------
    path : Path
        Where the journal can be read. For object storage, a copy on disk.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """

    def __init__(self, place: AnyPath) -> None:
        self._remote = place if isinstance(place, ObjectPath) else None
        self._last = time.monotonic()
        self.path = place if isinstance(place, Path) else _fetched(place)
        try:
            _cut_half_line(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, event: str, **values: Any) -> None:
        """Append one event by a single system call."""
        line = checked_json({"event": event, "at": round(time.time(), 3), **values}) + "\n"
        try:
            _write_whole(self._file, line.encode())
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        if time.monotonic() - self._last >= _PUBLISH_SECONDS:
            self.publish()

    def publish(self) -> None:
        """Upload the journal if it is in object storage."""
        if self._remote is not None:
            self._remote.write_bytes(self.path.read_bytes())
            self._last = time.monotonic()

    def close(self) -> None:
        """Publish and close the journal."""
        os.close(self._file)
        if self._remote is not None:
            try:
                self.publish()
            finally:
                self.path.unlink(missing_ok=True)


#: How copies on disk of journals in object storage are called.
_COPY = "dsel-journal-"


def _write_whole(file: int, line: bytes) -> None:
    """Write the line. A disk that fills up accepts the beginning, and reports an error only for the rest."""
    rest = line[os.write(file, line) :]
    if rest:
        os.write(file, rest)


def _fetched(place: ObjectPath) -> Path:
    """Return a copy on disk of the journal so far, and remove copies of runs that were killed."""
    remove_leftovers(Path(tempfile.gettempdir()), pattern=f"{_COPY}*")
    handle = os.open(
        name := os.path.join(tempfile.gettempdir(), _COPY + temporary_tag()), os.O_RDWR | os.O_CREAT, 0o600
    )
    with os.fdopen(handle, "wb") as copy, suppress(FileNotFoundError):
        copy.write(place.read_bytes())
    return Path(name)


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"The journal {path} cannot be written: {error.strerror}.", "Free some space there.")


def _cut_half_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)


def columns_of(objective: Objective, k: int) -> dict[str, Any]:
    """Return what a started or resumed event says of the columns of a search for k of them.

    Local column i is the i-th column of the data that is not in `without`. The columns in `included` belong to every
    subset and do not count towards k.
    """
    columns = np.asarray(objective.columns, np.int64)
    without = np.setdiff1d(np.arange(columns.max(initial=-1) + 1), columns)
    return {"k": k, "included": [int(j) for j in objective.included], "without": without.tolist()}


def read_journal(path: AnyPath) -> Iterator[dict[str, Any]]:
    """Yield the events in order. Half a line at the end is skipped, and so are damaged lines, with a warning."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield parse_checked_json(line.decode())[0]
                except ValueError as error:
                    warn_of_damage(path, "what its damaged lines hold is computed again", f"line {number}: {error}")


def valued(found: Iterable[tuple[Subset, float]]) -> list[list[Any]]:
    """Return subsets and their f in JSON's form (None: +inf)."""
    return [[list(S), f if f < math.inf else None] for S, f in found]


def found_in(event: dict[str, Any]) -> Iterator[tuple[Subset, float]]:
    """Yield what a merged event offered to the archive, in that order."""
    for S, f in event["found"]:
        yield tuple(S), math.inf if f is None else f


def journalled_values(path: Path) -> dict[Subset, float]:
    """Return the value of every subset in the journal, so that none is evaluated again.

    A job has one journal for its searches. Only a criterion has the same values in all of them: f of a fold, of other
    rows or of another penalty is another function.
    """
    return {S: f for event in read_journal(path) if event["event"] == "merged" for S, f in found_in(event)}

"""Events as lines of JSON in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, Final

from dsel._lib.events import Event, Observer
from dsel.storage.json_files import valid_json
from dsel.storage.paths import AnyPath

FILE = "events.jsonl"
#: Seconds between slices. A search has about ten in a second.
_EVERY: Final = 1.0


class JsonLines(Observer):
    """Appends events to a file as they happen. Object storage cannot append: there it is uploaded at the end.

    Of the slices it writes at most one each second, and the last one of a stage.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._lines: list[str] = []
        self._shown = -math.inf
        self._left_out: Event | None = None

    def observe(self, event: Event) -> None:
        """Append the event, or leave out a slice that follows another one within a second."""
        if event.kind == "slice" and event.at - self._shown < _EVERY:
            self._left_out = event
            return
        if event.kind == "slice":
            self._shown = event.at
        elif self._left_out is not None:
            self._append(self._left_out)
        self._left_out = None
        self._append(event)

    def _append(self, event: Event) -> None:
        line = json.dumps(valid_json(event.as_dict())) + "\n"
        if not isinstance(self._path, Path):
            self._lines.append(line)
            return
        if self._file is None:
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        self._file.write(line)

    def close(self) -> None:
        """Close the file, or upload it."""
        if self._file is not None:
            self._file.close()
        if not isinstance(self._path, Path) and self._lines:
            before = self._path.read_bytes() if self._path.is_file() else b""
            self._path.write_bytes(before + "".join(self._lines).encode())


def open_jsonl(folder: AnyPath, run: str) -> JsonLines:
    """Return the observer that writes events.jsonl in a folder."""
    return JsonLines(folder / FILE)

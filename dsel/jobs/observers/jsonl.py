"""Events as lines of JSON in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from dsel._lib.events import Event, Observer
from dsel.storage.paths import AnyPath

FILE = "events.jsonl"


class JsonLines(Observer):
    """Appends each event to a file as it happens. Object storage cannot append: there it is uploaded at the end."""

    def __init__(self, path: AnyPath) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._lines: list[str] = []

    def observe(self, event: Event) -> None:
        """Append the event."""
        line = json.dumps(event.as_dict()) + "\n"
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

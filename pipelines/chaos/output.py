"""What a command has printed: the stage that it is in, and for how long it has searched."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from pipelines.chaos.cases import RUN, Command

_STAGES = ("statistics", "search", "check", "certificate")


def printed(file: Path, start: int) -> str:
    """Return what the current attempt has printed."""
    with suppress(OSError), file.open() as stream:
        stream.seek(start)
        return stream.read()
    return ""


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def stage(file: Path, start: int, command: Command) -> str:
    """Return the stage that the current attempt is in: the last one that its log names."""
    words = [line.rsplit(" ", 1)[-1] for line in printed(file, start).splitlines() if " INFO " in line]
    found = next((word for word in reversed(words) if word in _STAGES), "start")
    return found if command == RUN else command[0] if found == "start" else f"{command[0]}: {found}"


def seconds_of_search(file: Path, start: int) -> float:
    """Return for how long the current attempt has searched; 0 if it does not."""
    lines = [line for line in printed(file, start).splitlines() if line.endswith("INFO search")]
    if not lines:
        return 0.0
    moment = time.mktime(time.strptime(lines[-1][:19], "%Y-%m-%d %H:%M:%S"))
    return max(time.time() - moment - 1.0, 0.0)

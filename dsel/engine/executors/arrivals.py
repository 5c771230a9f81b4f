"""What has come in from other threads."""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def arrivals(came: queue.SimpleQueue[T], seconds: float) -> list[T]:
    """All that is there, waited for at most so long where nothing is."""
    found = []
    with suppress(queue.Empty):
        found.append(came.get(timeout=seconds))
        while True:
            found.append(came.get_nowait())
    return found

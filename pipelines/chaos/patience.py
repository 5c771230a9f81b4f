"""How long to wait for a process, so that limits hold on a machine with other work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

#: CPU seconds of a measurement, and seconds between two.
_PROBE_SECONDS, _BETWEEN_SECONDS = 0.02, 2.0


class Process(Protocol):
    """What ends at some time."""

    def wait(self, seconds: float) -> int | None:
        """Return the exit code as soon as it ends; None if that takes longer."""


def slowness() -> float:
    """Return the wall time of some work as a multiple of its CPU time."""
    wall, cpu = time.monotonic(), time.thread_time()
    while (used := time.thread_time() - cpu) < _PROBE_SECONDS:
        pass
    return max((time.monotonic() - wall) / used, 1.0)


class Patience:
    """Wait for processes. A limit is a time on an idle machine, multiplied by a factor.

    Parameters
    ----------
    factor : float
        Multiplies each limit, for what the measurement does not show, such as a slow disk.
    slowness : callable
        Returns how much slower than alone this process runs now.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self,
        factor: float,
        slowness: Callable[[], float] = slowness,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factor, self._slowness, self._clock = factor, slowness, clock

    def allowed(self, seconds: float) -> float:
        """Return how many seconds something may take now that takes at most `seconds` alone."""
        return seconds * self._factor * self._slowness()

    def wait(self, process: Process, seconds: float, between: Callable[[], object] = lambda: None) -> int | None:
        """Return the exit code of a process as soon as it ends; None if that takes longer than is allowed.

        Each interval counts as the time that an idle machine would have needed. `between` is called after each.
        """
        left, before = seconds * self._factor, self._clock()
        while (code := process.wait(_BETWEEN_SECONDS)) is None and left > 0:
            now = self._clock()
            left -= (now - before) / self._slowness()
            before = now
            between()
        return code

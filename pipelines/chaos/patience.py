"""How much slower than alone this process runs now, so that limits hold on a machine with other work."""

from __future__ import annotations

import time

from pipelines.chaos.forks import Child

#: CPU seconds of a measurement, and seconds between two.
_PROBE_SECONDS, _BETWEEN_SECONDS = 0.005, 2.0


class Patience:
    """Wait for processes. A limit is a time on an idle machine, multiplied by a factor and by the present slowness.

    Parameters
    ----------
    factor : float
        Multiplies each limit, for what the measurement does not show, such as a slow disk.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def allowed(self, seconds: float) -> float:
        """Return how many seconds something may take now that takes at most `seconds` alone."""
        return seconds * self._factor * slowness()

    def wait(self, child: Child, seconds: float) -> int | None:
        """Return the exit code of a process as soon as it ends; None if that takes longer than is allowed."""
        began, most = time.monotonic(), self.allowed(seconds)
        while child.wait(min(_BETWEEN_SECONDS, most)) is None:
            most = max(most, self.allowed(seconds))
            if time.monotonic() - began > most:
                break
        return child.poll()


def slowness() -> float:
    """Return the wall time of some work as a multiple of its CPU time."""
    wall, cpu = time.monotonic(), time.thread_time()
    while (used := time.thread_time() - cpu) < _PROBE_SECONDS:
        pass
    return max((time.monotonic() - wall) / used, 1.0)

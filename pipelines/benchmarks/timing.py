"""Measure processor time of this process, which other load on the machine affects little."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the processor seconds of the fastest of several repetitions."""
    least = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least


def seconds_per_step(step: Callable[[], object], seconds: float) -> float:
    """Return the processor seconds per step, over as many steps as fit into `seconds`."""
    start = time.process_time()
    steps = 0
    while time.process_time() - start < seconds:
        step()
        steps += 1
    return (time.process_time() - start) / steps

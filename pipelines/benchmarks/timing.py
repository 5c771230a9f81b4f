"""Clocks of the benchmarks: processor time of this process, so that neighbours on the machine count
little."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_seconds(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the fastest of some repetitions."""
    least = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least


def seconds_per_step(step: Callable[[], object], seconds: float) -> float:
    """Processor seconds of one step, from as many as fit into some seconds."""
    start = time.process_time()
    steps = 0
    while time.process_time() - start < seconds:
        step()
        steps += 1
    return (time.process_time() - start) / steps

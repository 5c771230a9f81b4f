"""Processes that are stopped for some seconds, as by a suspended machine, and then continue."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil

#: How long a process is stopped, and how often that is drawn. The last one is longer than a lock may be silent.
_SECONDS, _WEIGHTS = (0.5, 2.0, 5.0, 33.0), (8, 8, 8, 1)
#: A second run that meets a stopped owner of the lock says so; one that meets a finished job has nothing to do.
CODES_OF_SECOND_RUN = (0, 73)


def drawn_seconds(draw: random.Random) -> float:
    """Return for how long to stop a process."""
    return draw.choices(_SECONDS, _WEIGHTS)[0]


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes, and let them continue at the end."""
    processes = []
    for pid in pids:
        with suppress(psutil.Error):
            processes.append(psutil.Process(pid))
    try:
        _send(processes, signal.SIGSTOP)
        yield
    finally:
        _send(processes, signal.SIGCONT)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)

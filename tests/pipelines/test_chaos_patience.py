"""A limit of time is one of an idle machine, however slow the machine is at some moments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pipelines.chaos.patience import Patience


class _Process:
    """A process that ends at some time of a clock, which passes only while somebody waits for the process."""

    def __init__(self, ends: float) -> None:
        self.now = 0.0
        self._ends = ends

    def wait(self, seconds: float) -> int | None:
        self.now = min(self.now + seconds, max(self._ends, self.now))
        return 0 if self.now >= self._ends else None


def waited(slowness: Iterator[float], *, ends: float, seconds: float, factor: float = 2.0) -> tuple[int | None, float]:
    """Return the exit code that was waited for, and how long that took."""
    process = _Process(ends)
    patience = Patience(factor, lambda: next(slowness), lambda: process.now)
    return patience.wait(process, seconds), process.now


def test_a_process_that_ends_in_time_is_waited_for() -> None:
    assert waited(itertools.repeat(1.0), ends=15.0, seconds=10.0) == (0, 15.0)


@pytest.mark.parametrize("slow", [1.0, 3.0, 10.0])
def test_on_a_slow_machine_the_limit_is_as_much_longer(slow: float) -> None:
    code, took = waited(itertools.repeat(slow), ends=1e9, seconds=10.0)
    assert code is None
    assert 20.0 * slow <= took <= 20.0 * slow + 4.0


def test_one_slow_moment_does_not_last() -> None:
    code, took = waited(itertools.chain([1000.0], itertools.repeat(1.0)), ends=1e9, seconds=10.0)
    assert code is None
    assert 20.0 <= took <= 26.0


def test_something_can_be_done_between_two_looks() -> None:
    process, done = _Process(ends=9.0), list[float]()
    Patience(1.0, lambda: 1.0, lambda: process.now).wait(process, 60.0, lambda: done.append(process.now))
    assert done == [2.0, 4.0, 6.0, 8.0]

"""Run an anytime search slice by slice until a stop rule is met."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dsel._lib.events import emit, is_observed

#: The clock of all limits of time that name no other. Measurements replace it by the CPU time of the process.
default_clock: Callable[[], float] = time.monotonic
#: Seconds of a slice of iterations, about. The rules that depend on the clock are checked between slices.
SLICE_SECONDS = 0.1
#: Most iterations of a slice: an interrupted search may return at once many times, until its time is over.
_LONGEST_SLICE = 1 << 40
#: A bound is reached if f is above it by at most this share of ||Y||^2.
BOUND_TOLERANCE = 1e-12


def slice_event(stage: str, search: AnytimeSearch) -> None:
    """Tell observers how far a search is, between two slices."""
    if is_observed():
        best = search.best_value
        emit("slice", stage=stage, iterations=search.iteration, best=best if math.isfinite(best) else None)


class OutOfTime(Exception):
    """A step would end after the deadline, or did not end before it."""


class Deadline:
    """A time limit that several steps share.

    Parameters
    ----------
    seconds : float, optional
        Wall time from now on; None for no limit.
    clock : callable, optional
        Returns the time in seconds; by default `default_clock`.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] | None = None) -> None:
        self.seconds = seconds
        self._clock = clock or default_clock
        self._start = self._clock()
        self._whole: Deadline | None = None

    @property
    def left(self) -> float | None:
        """The seconds that are left, at least a millisecond; None without a limit."""
        if self.seconds is None:
            return None
        return max(self.seconds - self.elapsed, 0.001)

    @property
    def elapsed(self) -> float:
        """The seconds since it was made, without pauses."""
        return self._clock() - self._start

    @property
    def remaining(self) -> float:
        """The seconds that are left; infinity without a limit."""
        left = self.left
        return float("inf") if left is None else left

    @property
    def overdue(self) -> float:
        """The seconds since the time was over, negative before; -infinity without a limit."""
        return -float("inf") if self.seconds is None else self.elapsed - self.seconds

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self.seconds is not None and self.elapsed >= self.seconds

    def share(self, part: float) -> Deadline:
        """Return a deadline after this part of the time that is left."""
        left = self.left
        found = Deadline(None if left is None else part * left, self._clock)
        found._whole = self
        return found

    def require(self, seconds: float = 0.0) -> None:
        """Raise OutOfTime if a step of this many seconds would end after the deadline."""
        if self.passed:
            raise OutOfTime("no time is left")
        if seconds > self.remaining:
            raise OutOfTime(f"the next step takes about {seconds:.2g} s, {self.remaining:.2g} s are left")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of the block, which compiles, nor in the deadline that this one is a share of."""
        before = self._clock()
        try:
            yield
        finally:
            self._extend(self._clock() - before)

    def _extend(self, seconds: float) -> None:
        self._start += seconds
        if self._whole is not None:
            self._whole._extend(seconds)


#: A deadline that never comes.
NEVER = Deadline(None)


@dataclass(frozen=True)
class Stop:
    """The rules that end a search. The first one that is met ends it; None is never met.

    Parameters
    ----------
    iterations : int, optional
        Number of iterations.
    seconds : float, optional
        Wall time.
    target : float, optional
        f of some subset of at most k columns is at most this.
    patience : int, optional
        Number of iterations without a better subset.
    bound : float, optional
        A proved lower bound on f. The search ends if it is reached, because its answer is then optimal.
    """

    iterations: int | None = None
    seconds: float | None = None
    target: float | None = None
    patience: int | None = None
    bound: float | None = None

    def met(self, search: ReadableSearch, iterations: int, seconds: float) -> str | None:
        """Return the first rule that is met, except `iterations`, or None."""
        if self.target is not None and search.best_value <= self.target:
            return "target"
        if self.patience is not None and iterations - search.last_gain >= self.patience:
            return "patience"
        if self.bound is not None and search.best_value <= self.bound + BOUND_TOLERANCE * search.total:
            return "bound"
        return "seconds" if self.seconds is not None and seconds >= self.seconds else None


class ReadableSearch(Protocol):
    """A search whose state can be read at any time."""

    @property
    def iteration(self) -> int:
        """The number of iterations so far."""

    @property
    def best_value(self) -> float:
        """The least f, or criterion, of a subset of at most k columns so far."""

    @property
    def last_gain(self) -> int:
        """The iteration at which `best_value` last decreased."""

    @property
    def total(self) -> float:
        """||Y||^2, or another scale of f."""


class AdvancingSearch(ReadableSearch, Protocol):
    """A search that advances by iterations."""

    def advance(self, until: int, target: float | None) -> bool:
        """Continue to iteration `until`; return True as soon as f <= target for a subset of at most k columns."""


class AnytimeSearch(ReadableSearch, Protocol):
    """A search that can be saved at any time."""

    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, as JSON holds it."""


class SavedAs:
    """A search whose saved state is what a function returns."""

    def __init__(self, search: AnytimeSearch, state: Callable[[], dict[str, Any]]) -> None:
        self._search, self.state = search, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)


def drive(
    search: AdvancingSearch,
    stop: Stop,
    on_slice: Callable[[AnytimeSearch], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> str:
    """Advance the search slice by slice until a rule of `stop` is met, and return the name of the rule.

    The length of slices depends on the clock, but only the rules `seconds` and `bound` depend on the slices. `on_slice`
    may raise to interrupt the search, which is then consistent at the end of a slice.
    """
    assert stop.iterations is not None
    clock = clock or default_clock
    start = clock()
    step = 1  # a single evaluation of a costly criterion may take longer than a slice
    while search.iteration < stop.iterations:
        limit = stop.iterations
        if stop.patience is not None:
            limit = min(limit, search.last_gain + stop.patience)
        before = clock()
        reached = search.advance(min(search.iteration + step, limit), stop.target)
        now = clock()
        if reached:
            return "target"
        if met := stop.met(search, search.iteration, now - start):
            return met
        if on_slice is not None:
            on_slice(search)  # type: ignore[arg-type]  # whoever passes it has a search that can be saved
        step = _next_step(step, now - before, stop.seconds, now - start)
    return "iterations"


def _next_step(step: int, took: float, seconds: float | None, spent: float) -> int:
    slice_seconds = SLICE_SECONDS if seconds is None else min(SLICE_SECONDS, max(seconds - spent, 0.001))
    return max(1, min(4 * step, int(step * slice_seconds / max(took, 1e-6)), _LONGEST_SLICE))

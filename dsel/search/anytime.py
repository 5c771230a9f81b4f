"""When an anytime search ends, and the loop that asks after every slice of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

#: A slice of iterations between two looks at the clock takes about this long.
SLICE_SECONDS = 0.1


@dataclass(frozen=True)
class Stop:
    """A search ends at the first of these that comes true; None never does.

    seconds: wall time. target: f of some subset of at most k columns is at or below it. patience: so many iterations
    without a better one. bound: a proven lower bound on f, as a number or a callable that returns the best so far (a
    certificate that runs beside the search): reached within `bound_tolerance` of ||Y||^2, the answer is optimal.
    """

    iterations: int | None = None
    seconds: float | None = None
    target: float | None = None
    patience: int | None = None
    bound: float | Callable[[], float] | None = None
    bound_tolerance: float = 1e-12

    def met(self, search: ReadableSearch, iterations: int, seconds: float) -> str | None:
        """The rule that has come true after so many iterations and seconds, but for the limit on iterations."""
        if self.target is not None and search.best_value <= self.target:
            return "target"
        if self.patience is not None and iterations - search.last_gain >= self.patience:
            return "patience"
        if self.bound is not None:
            bound = self.bound() if callable(self.bound) else self.bound
            if search.best_value <= bound + self.bound_tolerance * search.total:
                return "bound"
        return "seconds" if self.seconds is not None and seconds >= self.seconds else None


class ReadableSearch(Protocol):
    """A search that can be read at any moment."""

    @property
    def best_value(self) -> float:
        """The least f (or criterion) so far of at most k columns."""

    @property
    def last_gain(self) -> int:
        """Iteration at which `best_value` last fell."""

    @property
    def total(self) -> float:
        """||Y||^2, or what else differences of f are compared to."""

    def state(self) -> dict[str, Any]:
        """All that a restart needs, as JSON holds it."""


class AnytimeSearch(ReadableSearch, Protocol):
    """A search that advances by iterations."""

    @property
    def iteration(self) -> int:
        """Iterations made so far."""

    def advance(self, until: int, target: float | None) -> bool:
        """Go on to iteration `until`; True as soon as f <= target for some subset of at most k columns."""


def drive(
    search: AnytimeSearch,
    stop: Stop,
    on_slice: Callable[[AnytimeSearch], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Advance the search slice by slice until `stop` says so; returns which rule ended it.

    Slices follow the clock, yet nothing but the rules `seconds` and `bound` can depend on it. `on_slice` may raise to
    interrupt: the search then stands at the end of a slice, whole.
    """
    assert stop.iterations is not None
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
            on_slice(search)
        step = _next_step(step, now - before, stop.seconds, now - start)
    return "iterations"


def _next_step(step: int, took: float, seconds: float | None, spent: float) -> int:
    slice_seconds = SLICE_SECONDS if seconds is None else min(SLICE_SECONDS, max(seconds - spent, 0.001))
    return max(1, min(4 * step, int(step * slice_seconds / max(took, 1e-6))))

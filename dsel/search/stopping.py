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


class AnytimeSearch(Protocol):
    """A search that advances by iterations and can be read at any moment."""

    @property
    def iteration(self) -> int: ...
    @property
    def best_value(self) -> float: ...
    @property
    def last_gain(self) -> int: ...
    @property
    def total(self) -> float: ...
    def advance(self, until: int, target: float | None) -> bool: ...
    def state(self) -> dict[str, Any]: ...


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
        if stop.patience is not None and search.iteration - search.last_gain >= stop.patience:
            return "patience"
        if stop.bound is not None:
            bound = stop.bound() if callable(stop.bound) else stop.bound
            if search.best_value <= bound + stop.bound_tolerance * search.total:
                return "bound"
        if stop.seconds is not None and now - start >= stop.seconds:
            return "seconds"
        if on_slice is not None:
            on_slice(search)
        step = _next_step(step, now - before, stop.seconds, now - start)
    return "iterations"


def _next_step(step: int, took: float, seconds: float | None, spent: float) -> int:
    slice_seconds = SLICE_SECONDS if seconds is None else min(SLICE_SECONDS, max(seconds - spent, 0.001))
    return max(1, min(4 * step, int(step * slice_seconds / max(took, 1e-6))))

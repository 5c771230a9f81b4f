"""When an anytime search ends: each rule alone, and that slices follow the clock without deciding anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsel.objective.dense import DenseObjective
from dsel.search.anytime import BOUND_TOLERANCE, SLICE_SECONDS, AnytimeSearch, Stop, drive
from dsel.search.pareto.compiled import Poss


class Scripted:
    """A search whose best value falls at given iterations, with a clock that advances by some seconds per iteration."""

    total = 100.0

    def __init__(self, gains: dict[int, float] | None = None, cost: float = 0.001) -> None:
        self.gains = gains or {}
        self.cost = cost
        self.now = 0.0
        self.iteration = 0
        self.last_gain = 0
        self.best_value = 50.0
        self.slices: list[int] = []

    def advance(self, until: int, target: float | None) -> bool:
        start = self.iteration
        reached = target is not None and self.best_value <= target
        while self.iteration < until and not reached:
            if self.iteration in self.gains:
                self.best_value, self.last_gain = self.gains[self.iteration], self.iteration
                reached = target is not None and self.best_value <= target
            self.iteration += 1
            self.now += self.cost
        self.slices.append(self.iteration - start)
        return reached

    def state(self) -> dict[str, Any]:
        return {"iteration": self.iteration}

    def clock(self) -> float:
        return self.now


def test_it_ends_at_the_number_of_iterations() -> None:
    search = Scripted()
    assert drive(search, Stop(iterations=12_345), clock=search.clock) == "iterations"
    assert search.iteration == sum(search.slices) == 12_345


def test_no_iterations_are_none() -> None:
    search = Scripted()
    assert drive(search, Stop(iterations=0), clock=search.clock) == "iterations"
    assert search.slices == []


@pytest.mark.parametrize("cost", [1e-5, 1e-3, 1e-2, 1.0])
def test_a_slice_takes_about_as_long_as_it_should(cost: float) -> None:
    search = Scripted(cost=cost)
    drive(search, Stop(iterations=max(100, int(50 * SLICE_SECONDS / cost))), clock=search.clock)
    settled = search.slices[12:-1]
    assert max(settled) <= max(1, 1.01 * SLICE_SECONDS / cost)
    assert min(settled) >= max(1, 0.9 * SLICE_SECONDS / cost)


@pytest.mark.parametrize("cost", [1e-5, 1e-3, 0.4, 10.0])
def test_it_ends_when_the_time_is_up_and_not_long_after(cost: float) -> None:
    search = Scripted(cost=cost)
    assert drive(search, Stop(iterations=10**9, seconds=3.0), clock=search.clock) == "seconds"
    assert 3.0 <= search.now < 3.0 + SLICE_SECONDS + cost
    assert search.iteration == sum(search.slices)


def test_it_ends_at_the_target_at_the_very_iteration() -> None:
    search = Scripted({10: 40.0, 700: 30.0, 701: 20.0})
    assert drive(search, Stop(iterations=5000, target=35.0), clock=search.clock) == "target"
    assert (search.iteration, search.best_value) == (701, 30.0)


def test_a_target_reached_before_ends_it_at_once() -> None:
    search = Scripted()
    assert drive(search, Stop(iterations=5000, target=50.0), clock=search.clock) == "target"
    assert search.iteration == 0


@pytest.mark.parametrize("cost", [1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize(
    ("gains", "end"), [({}, 300), ({100: 9.0, 399: 8.0, 650: 7.0}, 950), ({100: 9.0, 400: 8.0}, 400)]
)
def test_it_ends_where_patience_does_whatever_the_slices(gains: dict[int, float], end: int, cost: float) -> None:
    search = Scripted(gains, cost)
    assert drive(search, Stop(iterations=5000, patience=300), clock=search.clock) == "patience"
    assert search.iteration == end


def test_patience_that_ran_out_before_the_search_was_saved_ends_it_at_once() -> None:
    search = Scripted()
    search.iteration, search.last_gain = 900, 500
    assert drive(search, Stop(iterations=5000, patience=300), clock=search.clock) == "patience"
    assert search.iteration == 900


def test_it_ends_at_a_proven_bound() -> None:
    search = Scripted({600: 30.0})
    assert drive(search, Stop(iterations=10**6, bound=30.0), clock=search.clock) == "bound"
    assert 600 < search.iteration < 3000  # at the end of a slice


@pytest.mark.parametrize(("share", "ended"), [(0.9, "bound"), (1.1, "iterations")])
def test_a_bound_is_reached_within_a_tolerance_of_the_total(share: float, ended: str) -> None:
    search = Scripted()
    stop = Stop(iterations=1000, bound=search.best_value - share * BOUND_TOLERANCE * search.total)
    assert drive(search, stop, clock=search.clock) == ended


def test_every_slice_is_reported_and_the_report_may_interrupt() -> None:
    search, seen = Scripted(), list[int]()

    def report(at: AnytimeSearch) -> None:
        seen.append(at.iteration)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(search, Stop(iterations=10**6), report, clock=search.clock)
    assert seen == np.cumsum(search.slices).tolist()
    assert search.state() == {"iteration": seen[-1]}


def test_a_real_search_driven_is_the_search_advanced() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 12))
    y = X[:, :4].sum(axis=1, keepdims=True) + rng.standard_normal((50, 1))
    objective = DenseObjective(X.T @ X, X.T @ y, float(np.sum(y**2)))
    driven, advanced = Poss(objective, 4, seed=1), Poss(objective, 4, seed=1)
    assert drive(driven, Stop(iterations=5000)) == "iterations"
    advanced.advance(5000)
    assert driven.archived == advanced.archived

    goal = advanced.trace[-1]
    again = Poss(objective, 4, seed=1)
    assert drive(again, Stop(iterations=5000, target=goal.value)) == "target"
    assert again.iteration == goal.iteration + 1

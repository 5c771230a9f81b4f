"""The cost model behind rewrite_every, against rounds played one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.passes.cross_validation.disk_cache import Speeds, best_every, seconds_of_rounds

SPEEDS = Speeds()


def played(every: int | None, start: int, k: int, elements: float, x_bytes: float) -> float:
    """Seconds, by keeping account of what is on disk."""
    cached: int | None = None
    seconds = 0.0
    for s in range(start, k):
        if every is not None and s > start and (s - start) % every == 0:
            forward = s if cached is None else s - cached
            seconds += (x_bytes if cached is None else 8 * elements) / SPEEDS.read + 8 * elements / SPEEDS.write
            seconds += 2 * forward * elements / SPEEDS.flops
            cached = s
        elif cached is None:
            seconds += x_bytes / SPEEDS.read + 2 * s * elements / SPEEDS.flops
        else:
            seconds += 8 * elements / SPEEDS.read + 2 * (s - cached) * elements / SPEEDS.flops
    return seconds


PROBLEM = {"start": st.integers(0, 5), "rounds": st.integers(1, 60), "itemsize": st.sampled_from([1, 4, 8])}


@settings(max_examples=50, deadline=None)
@given(every=st.one_of(st.none(), st.integers(1, 70)), **PROBLEM)
def test_seconds_are_those_of_the_rounds_played_one_by_one(
    every: int | None, start: int, rounds: int, itemsize: int
) -> None:
    found = seconds_of_rounds(every, start, start + rounds, 1000, 50, itemsize * 5e4)
    assert found == pytest.approx(played(every, start, start + rounds, 5e4, itemsize * 5e4))


@settings(max_examples=30, deadline=None)
@given(**PROBLEM)
def test_the_choice_is_the_cheapest(start: int, rounds: int, itemsize: int) -> None:
    k, x_bytes = start + rounds, itemsize * 5e4
    costs = {p: played(p, start, k, 5e4, x_bytes) for p in range(1, rounds)}
    plain = played(None, start, k, 5e4, x_bytes)
    best = best_every(start, k, 1000, 50, x_bytes)
    assert played(best, start, k, 5e4, x_bytes) == pytest.approx(min([plain, *costs.values()]))


def test_few_rounds_need_no_cache_and_many_do() -> None:
    assert best_every(0, 20, 10**6, 1000, 4e9) is None
    many = best_every(0, 719, 70_000, 780, 70_000 * 780)
    assert many is not None
    assert 5 <= many <= 60


@pytest.mark.parametrize("name", ["read", "write", "flops"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("k", [50, 200, 719])
def test_with_a_speed_taken_for_half_or_twice_what_it_is_a_run_is_at_most_a_third_longer(
    name: str, factor: float, k: int
) -> None:
    problem = (0, k, 70_000, 780, 4.0 * 70_000 * 780)
    truth = replace(SPEEDS, **{name: getattr(SPEEDS, name) * factor})
    chosen = seconds_of_rounds(best_every(*problem), *problem, truth)
    best = seconds_of_rounds(best_every(*problem, truth), *problem, truth)
    assert chosen <= best * 4 / 3

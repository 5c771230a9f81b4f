"""The archive of POSS: lines 6 to 9 of Algorithm 2, example by example, then what they come to."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.search.outcome import FrontPoint
from dsel.search.pareto.archive import ParetoArchive, Subset, min_index

steady = settings(derandomize=True, deadline=None, max_examples=200)


def members(archive: ParetoArchive) -> list[Subset]:
    return [z.members for z in archive.points]


def test_it_starts_with_the_empty_set() -> None:
    archive = ParetoArchive(3)
    assert archive.points == [FrontPoint(0, math.inf, ())]
    assert archive.best() == archive[0]


def test_incomparable_subsets_are_kept_oldest_first() -> None:
    archive = ParetoArchive(3)
    assert archive.offer((4, 2), 5.0)
    assert archive.offer(frozenset({1}), 7.0)
    assert archive.offer((0, 3, 5), 1.0)
    assert members(archive) == [(), (2, 4), (1,), (0, 3, 5)]
    assert len(archive) == 4


@pytest.mark.parametrize(
    ("offered", "value"),
    [((2, 3), 5.1), ((2, 3, 4), 5.0), ((2, 3, 4), 5.1)],
    ids=["worse at equal size", "larger at equal value", "larger and worse"],
)
def test_what_is_strictly_dominated_is_refused(offered: Subset, value: float) -> None:
    archive = ParetoArchive(3)
    archive.offer((0, 1), 5.0)
    assert not archive.offer(offered, value)
    assert members(archive) == [(), (0, 1)]


@pytest.mark.parametrize(
    ("offered", "value"),
    [((2, 3), 4.9), ((2,), 5.0), ((2, 3), 5.0)],
    ids=["better at equal size", "smaller at equal value", "equal in both"],
)
def test_what_the_newcomer_weakly_dominates_is_dropped(offered: Subset, value: float) -> None:
    archive = ParetoArchive(3)
    archive.offer((0, 1), 5.0)
    archive.offer((0, 1, 4), 1.0)
    assert archive.offer(offered, value)
    assert members(archive) == [(), (0, 1, 4), offered]


def test_the_same_subset_again_changes_nothing() -> None:
    archive = ParetoArchive(3)
    archive.offer((0, 1), 5.0)
    archive.offer((2,), 6.0)
    assert not archive.offer((1, 0), 5.0)
    assert members(archive) == [(), (0, 1), (2,)]


@pytest.mark.parametrize("isolated", [True, False])
def test_no_columns_and_2k_columns_and_infinite_values_are_never_archived(isolated: bool) -> None:
    archive = ParetoArchive(2, min_index) if isolated else ParetoArchive(2)
    assert not archive.offer((), -1.0)
    assert not archive.offer((0, 1, 2, 3), -1.0)
    assert not archive.offer((0,), math.inf)
    assert archive.offer((0, 1, 2), 1.0)


def test_only_subsets_of_the_same_isolation_value_compete() -> None:
    archive = ParetoArchive(3, lambda S: sum(S) % 2)
    assert archive.offer((1, 3), 1.0)
    assert archive.offer((1, 2), 9.0)
    assert not archive.offer((2, 4), 2.0)
    assert archive.offer((0, 5), 8.0)
    assert members(archive) == [(), (1, 3), (0, 5)]


def test_the_answer_has_at_most_k_columns_the_least_value_and_then_the_least_size() -> None:
    archive = ParetoArchive(2, min_index)
    archive.offer((0, 1, 2), 1.0)
    archive.offer((1, 2), 3.0)
    archive.offer((4,), 3.0)
    archive.offer((5,), 4.0)
    assert archive.best().members == (4,)
    assert archive.best(3).members == (0, 1, 2)


offers = st.lists(st.tuples(st.sets(st.integers(0, 6)).map(lambda S: tuple(sorted(S))), st.integers(0, 5)), max_size=40)


@steady
@given(offers, st.integers(1, 4), st.booleans())
def test_the_archive_is_what_no_offer_beats(made: list[tuple[Subset, int]], k: int, isolated: bool) -> None:
    """Nothing in it is weakly dominated by another, and all that was offered is by something in it."""
    archive = ParetoArchive(k, min_index) if isolated else ParetoArchive(k)
    value = {S: float(f) for S, f in reversed(made)}  # f is a function: its first value holds
    last_arrival: dict[Subset, int] = {}
    for time, (S, _) in enumerate(made):
        if archive.offer(S, value[S]):
            last_arrival[S] = time

    def beats(z: Subset, s: Subset) -> bool:
        return value[z] <= value[s] and len(z) <= len(s) and not (isolated and z[0] != s[0])

    inside = members(archive)[1:]
    assert not any(beats(z, s) for z in inside for s in inside if z != s)
    assert all(any(beats(z, s) for z in inside) for s in value if 0 < len(s) < 2 * k)
    assert inside == sorted(inside, key=lambda s: last_arrival[s])
    assert all(0 < len(s) < 2 * k for s in inside)


@steady
@given(offers, st.booleans())
def test_a_saved_archive_continues_as_it_was(made: list[tuple[Subset, int]], isolated: bool) -> None:
    isolation = min_index if isolated else (lambda S: 0)
    archive = ParetoArchive(3, isolation)
    for S, f in made:
        archive.offer(S, float(f))
    again = ParetoArchive.restore(3, json.loads(json.dumps(archive.state())), isolation)
    assert again.points == archive.points
    assert [again.offer(S, -1.0) for S, _ in made] == [archive.offer(S, -1.0) for S, _ in made]
    assert again.points == archive.points

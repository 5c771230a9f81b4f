"""The table of a subset stays right through insertions and deletions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.kernels import layout
from dsel.objective.kernels import neighbour_table as table
from dsel.objective.kernels.multi_flip import value_after_flips
from dsel.objective.subset_state import SubsetState
from tests.objective.test_dense import objective, subset_of
from tests.oracles.expansion import expand
from tests.oracles.literal_poss import Criterion, least_squares

N_COLUMNS, LIMIT = 15, 10
steady = settings(derandomize=True, deadline=None, max_examples=30)
targets = st.sampled_from([1, 3, 12, None])
penalties = st.sampled_from([0.0, 0.7])
seeds = st.integers(0, 2**32 - 1)
walks = st.lists(st.integers(0, N_COLUMNS - 1), max_size=60)


def problem(seed: int, N: int | None, lam: float) -> tuple[Criterion, DenseObjective]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, N_COLUMNS)) + 0.5 * rng.standard_normal((40, 1))
    Y = X if N is None else X[:, :4] @ rng.standard_normal((4, N)) + rng.standard_normal((40, N))
    return least_squares(X, Y, lam), objective(X, Y, lam)


def flip(solution: SubsetState, j: int) -> None:
    """Flip one column, where the limit allows."""
    if j in solution.members:
        solution.delete(j)
    elif solution.size < solution.limit:
        assert solution.insert(j)


def assert_sound(solution: SubsetState, tolerance: float) -> None:
    """The table agrees with the objective on its members."""
    obj, S = solution.objective, solution.members
    gains, losses = expand(obj, S)
    assert solution.value == pytest.approx(obj.value(S), abs=tolerance)
    np.testing.assert_allclose(solution.gains(), gains, atol=tolerance)
    np.testing.assert_allclose(solution.losses(), losses, atol=tolerance)


@steady
@given(seeds, targets, penalties, walks)
def test_the_table_follows_a_walk(seed: int, N: int | None, lam: float, walk: list[int]) -> None:
    f, obj = problem(seed, N, lam)
    solution, S = SubsetState(obj, LIMIT), set[int]()
    for j in walk:
        if j in S or len(S) < LIMIT:
            S ^= {j}
        flip(solution, j)
        assert set(solution.members) == S
        assert solution.value == pytest.approx(f(frozenset(S)), abs=1e-9 * obj.c)
        assert_sound(solution, 1e-9 * obj.c)


@pytest.mark.parametrize("lam", [0.0, 0.7])
@pytest.mark.parametrize("N", [1, 3, 12, None])
def test_rounding_errors_do_not_accumulate_over_a_long_walk(N: int | None, lam: float) -> None:
    _, obj = problem(1, N, lam)
    solution = SubsetState(obj, LIMIT)
    for j in np.random.default_rng(1).integers(0, N_COLUMNS, 2000):
        flip(solution, int(j))
    assert_sound(solution, 1e-9 * obj.c)


@steady
@given(seeds, targets, penalties, walks, st.sets(st.integers(0, N_COLUMNS - 1), min_size=1, max_size=layout.MOST_FLIPS))
def test_the_value_after_several_flips_is_computed_without_making_them(
    seed: int, N: int | None, lam: float, walk: list[int], flips: set[int]
) -> None:
    f, obj = problem(seed, N, lam)
    solution = SubsetState(obj, LIMIT)
    for j in walk:
        flip(solution, j)
    after = frozenset(solution.members) ^ frozenset(flips)
    columns = np.random.default_rng(seed).permutation(sorted(flips))
    value = value_after_flips(solution.tables.P, 0, columns, len(columns))
    assert value == pytest.approx(f(after), abs=1e-9 * obj.c)
    assert_sound(solution, 1e-9 * obj.c)


@steady
@given(seeds, targets, penalties, walks)
def test_outcomes_are_the_values_after_every_single_flip(seed: int, N: int | None, lam: float, walk: list[int]) -> None:
    f, obj = problem(seed, N, lam)
    solution = SubsetState(obj, LIMIT)
    for j in walk:
        flip(solution, j)
    table.fill_outcome(solution.tables.P, 0)
    S = frozenset(solution.members)
    outcome = solution.tables[layout.NEIGHBOURS][0, layout.OUTCOME]
    np.testing.assert_allclose(outcome, [f(S ^ {j}) for j in range(N_COLUMNS)], atol=1e-9 * obj.c)


@pytest.mark.parametrize("N", [1, 12])
def test_slots_do_not_touch_each_other(N: int) -> None:
    _, obj = problem(2, N, 0.0)
    memory = obj.subset_tables(LIMIT, 3)
    P = memory.P
    assert table.rebuild(P, 0, np.array([1, 4, 7]), 3)
    assert table.rebuild(P, 2, np.array([5]), 1)
    table.copy(P, 0, 1)
    table.delete(P, 1, 4)
    assert table.insert(P, 1, 9)
    values = [float(f) for f in memory[layout.F]]
    assert values == pytest.approx([obj.value([1, 4, 7]), obj.value([1, 7, 9]), obj.value([5])], abs=1e-10 * obj.c)
    for slot, S in ((0, [1, 4, 7]), (1, [1, 7, 9]), (2, [5])):
        table.fill_outcome(P, slot)
        expected = [obj.value({*S} ^ {j}) for j in range(N_COLUMNS)]
        np.testing.assert_allclose(memory[layout.NEIGHBOURS][slot, layout.OUTCOME], expected, atol=1e-10 * obj.c)


def nearly_dependent(N: int | None, noise: float) -> DenseObjective:
    """Columns 10 to 14 are columns 0 to 4 with some noise."""
    rng = np.random.default_rng(3)
    X: Floats = rng.standard_normal((60, 10))
    X = np.hstack([X, X[:, :5] + noise * rng.standard_normal((60, 5))])
    Y = X if N is None else X[:, :4] @ rng.standard_normal((4, N)) + rng.standard_normal((60, N))
    return objective(X, Y)


@pytest.mark.parametrize("N", [1, 3, 12, None])
def test_members_that_nearly_depend_on_each_other_can_be_deleted(N: int | None) -> None:
    """f is exact; the gain of a column whose tolerance is 1e-6 has six digits fewer."""
    obj = nearly_dependent(N, 1e-3)
    solution = subset_of(obj, LIMIT, [0, 10, 1, 11, 6, 2, 12])
    for j in (10, 1, 12, 2, 0, 11):
        solution.delete(j)
        assert solution.value == pytest.approx(obj.value(solution.members), abs=1e-10 * obj.c)
        assert_sound(solution, 1e-6 * obj.c)
    assert solution.members == [6]
    assert_sound(solution, 1e-9 * obj.c)


@pytest.mark.parametrize("N", [1, 12])
def test_where_a_deletion_leaves_only_rounding_errors_the_table_is_inexact(N: int) -> None:
    """Exchange one of two nearly equal columns: the search then evaluates the subset from K and B."""
    obj = nearly_dependent(N, 1e-3)
    solution = subset_of(obj, LIMIT, [0, 10, 6])
    flips = np.array([10, 7])
    assert value_after_flips(solution.tables.P, 0, flips, 2) == -np.inf
    flips = np.array([6, 7])
    expected = obj.value([0, 10, 7])
    assert value_after_flips(solution.tables.P, 0, flips, 2) == pytest.approx(expected, abs=1e-9 * obj.c)


@pytest.mark.parametrize("N", [1, 3, 12, None])
def test_a_dependent_column_is_not_inserted_and_nothing_changes(N: int | None) -> None:
    obj = nearly_dependent(N, 1e-5)
    solution = subset_of(obj, LIMIT, [0, 6])
    before = (solution.members, solution.value, solution.gains().tolist())
    assert not solution.insert(10)
    assert (solution.members, solution.value, solution.gains().tolist()) == before
    assert not solution.insertable()[10]
    assert solution.insertable()[11]
    columns = np.array([1, 10])
    # Near the tolerance the table is inexact; a plain copy is surely dependent.
    assert value_after_flips(solution.tables.P, 0, columns, 2) == -np.inf
    copied = subset_of(nearly_dependent(N, 0.0), LIMIT, [0, 6])
    assert value_after_flips(copied.tables.P, 0, columns, 2) == np.inf


def test_once_its_copy_is_deleted_a_column_is_insertable_again() -> None:
    obj = nearly_dependent(1, 1e-5)
    solution = subset_of(obj, LIMIT, [0, 6])
    solution.delete(0)
    assert solution.insertable()[10]
    assert solution.insert(10)
    assert solution.value == pytest.approx(obj.value([6, 10]), abs=1e-9 * obj.c)


def test_impossible_steps_are_refused() -> None:
    _, obj = problem(0, 1, 0.0)
    solution = subset_of(obj, 2, [3])
    with pytest.raises(OptionError, match="Column 3 is in the subset already"):
        solution.insert(3)
    with pytest.raises(OptionError, match="Column 4 is not in the subset"):
        solution.delete(4)
    solution.insert(4)
    with pytest.raises(OptionError, match="holds 2 columns already"):
        solution.insert(5)

"""Tabu search by swaps: the table holds the outcome of every swap, and the search finds what enumeration finds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dsel.objective.dense import DenseObjective
from dsel.objective.kernels import layout
from dsel.search.tabu import kernel
from dsel.search.tabu import kernel as swaps
from dsel.search.tabu.search import TabuSearch

#: No gain is larger: forbidden swaps stay forbidden. Any gain is larger: they are allowed.
NEVER, ALWAYS = np.inf, -np.inf


def problem(targets: int | None, seed: int = 0, n: int = 13, lam: float = 0.0) -> DenseObjective:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, n)) + rng.normal(size=(40, 1))
    Y = X if targets is None else rng.normal(size=(40, targets))
    return DenseObjective(X.T @ X, None if targets is None else X.T @ Y, float(np.square(Y).sum()), lam)


def gains(objective: DenseObjective, S: list[int]) -> dict[tuple[int, int], float]:
    """Return the decrease of f by each swap, from f itself."""
    before = objective.value(S)
    outside = [j for j in range(objective.n) if j not in S]
    return {(i, j): before - objective.value([*(l for l in S if l != i), j]) for i in S for j in outside}


@pytest.mark.parametrize("targets", [None, 1, 3, 12])
@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_the_best_swap_is_that_of_all_values_of_f_after_any_number_of_swaps(targets: int | None, lam: float) -> None:
    objective = problem(targets, lam=lam)
    search = TabuSearch(objective, 4, (0, 1, 2, 3))
    for _ in range(8):
        S = search._state.members
        i, j, gain = kernel.best_swap(search._tables.P, ALWAYS)
        expected = gains(objective, S)
        assert gain == pytest.approx(max(expected.values()), abs=1e-9 * objective.c)
        assert gain == pytest.approx(expected[S[i], int(j)], abs=1e-9 * objective.c)
        assert kernel.swap(search._tables.P, i, j)
        assert search._state.value == pytest.approx(objective.value(search._state.members), rel=1e-9)


@pytest.mark.parametrize("targets", [None, 12])
def test_rounding_errors_stay_small_until_the_tables_are_computed_again(targets: int | None) -> None:
    search = TabuSearch(problem(targets), 4, (0, 1, 2, 3))
    kernel.run_moves(search._tables.P, 90)
    updated = {slot: search._tables[slot].copy() for slot in (swaps.COEFFICIENTS, swaps.PRODUCTS, layout.A)}
    search._refresh()
    for slot, table in updated.items():
        np.testing.assert_allclose(table, search._tables[slot], rtol=0, atol=1e-9 * (1 + np.abs(table).max()))


@pytest.mark.parametrize("targets", [None, 1, 3, 12])
def test_it_finds_the_best_subset_of_all(targets: int | None) -> None:
    objective = problem(targets, seed=3)
    search = TabuSearch(objective, 4, (9, 10, 11, 12), seed=1)
    search.advance(600)
    assert search.best_value == pytest.approx(min(objective.value(S) for S in combinations(range(objective.n), 4)))
    assert objective.value(search.best) == search.best_value


def test_a_column_that_left_may_not_come_back_at_once() -> None:
    search = TabuSearch(problem(1), 4, (0, 1, 2, 3))
    search.advance(1)
    left = set(range(4)) - set(search._state.members)
    _, j, _ = kernel.best_swap(search._tables.P, NEVER)
    assert j not in left


def test_duplicates_and_a_subset_of_all_columns_do_no_harm() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 6))
    X = np.hstack([X, X[:, :2], np.zeros((30, 1))])
    y = rng.normal(size=(30, 1))
    objective = DenseObjective(X.T @ X, X.T @ y, float(np.square(y).sum()))
    search = TabuSearch(objective, 9, range(9))
    search.advance(50)
    assert len(search.best) == 6
    assert search.best_value == pytest.approx(objective.value(range(6)))


def test_the_same_seed_gives_the_same_bits_however_the_moves_are_divided() -> None:
    objective = problem(1, seed=4, n=30)
    whole, parts = (TabuSearch(objective, 5, range(5), seed=7) for _ in range(2))
    whole.advance(500)
    for until in range(100, 501, 100):
        parts.advance(until)
    assert (whole.best, whole.best_value, whole.last_gain) == (parts.best, parts.best_value, parts.last_gain)


def test_a_better_subset_from_elsewhere_is_taken() -> None:
    objective = problem(1, seed=6)
    best = min(combinations(range(objective.n), 4), key=objective.value)
    search = TabuSearch(objective, 4, (0, 1, 2, 3))
    search.offer(best)
    assert search.best == best

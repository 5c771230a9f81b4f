"""The bound on f after several insertions never exceeds f, and is useful."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.objective.kernels import layout
from dsel.objective.kernels.multi_flip import bound_after_insertions, value_after_flips
from dsel.objective.kernels.neighbour_table import fill_outcome, rebuild
from tests.search.cases import random_data, self_expression


@pytest.fixture(scope="module")
def filled():
    """The objective Y = X of 20 columns, and a slot with the columns 2, 5, 11 of it."""
    objective = self_expression(random_data(4, m=60, n=20)[0])
    memory = objective.subset_tables(6, 1)
    assert rebuild(memory.P, 0, np.array([2, 5, 11]), 3)
    fill_outcome(memory.P, 0)
    return objective, memory


@pytest.mark.parametrize("size", [2, 3, 5, layout.MOST_FLIPS])
def test_it_is_a_lower_bound(filled, size: int) -> None:
    objective, memory = filled
    rng, outside = np.random.default_rng(size), [j for j in range(20) if j not in (2, 5, 11)]
    told = 0
    for _ in range(200):
        flips = rng.choice(outside, size, replace=False)
        bound = bound_after_insertions(memory.P, 0, flips, size)
        assert bound <= value_after_flips(memory.P, 0, flips, size) + 1e-12 * objective.c
        told += bound > -np.inf
    assert told > 0 or size > 3


def test_with_uncorrelated_columns_it_is_the_value() -> None:
    objective = self_expression(np.diag(np.arange(1.0, 9.0)))
    memory = objective.subset_tables(4, 1)
    assert rebuild(memory.P, 0, np.array([0]), 1)
    flips = np.array([3, 6, 5])
    assert bound_after_insertions(memory.P, 0, flips, 3) == pytest.approx(objective.value([0, 3, 5, 6]))


def test_there_is_no_bound_for_members_and_for_many_columns(filled) -> None:
    _, memory = filled
    assert bound_after_insertions(memory.P, 0, np.array([3, 5]), 2) == -np.inf
    most = np.array([j for j in range(20) if j not in (2, 5, 11)])
    assert bound_after_insertions(memory.P, 0, most, layout.MOST_FLIPS + 1) == -np.inf

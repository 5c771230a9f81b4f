"""A fit that is perfect up to rounding ends the search. Saturation is noted, and errors are never negative."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import OptionError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 8))
Y = 2 * X[:, 3] + X[:, 5]
METHODS = ["poss", "forward", "exchange", "splicing", "backward", "branch-and-bound", "astar"]


@pytest.mark.parametrize("method", METHODS)
def test_the_target_among_the_columns_is_chosen_alone_and_named(method: str) -> None:
    found = dsel.select(np.column_stack([X, Y]), Y, k=3, method=method)
    assert found.labels == ["x8"]
    assert any(
        note.startswith("leave x8 out if it should not be there: this column is the target") for note in found.notes
    )


@pytest.mark.parametrize("method", METHODS)
def test_no_column_is_added_for_rounding_errors(method: str) -> None:
    found = dsel.select(X, Y, k=5, method=method)
    assert found.labels == ["x3", "x5"]
    assert "2 columns explain all of Y up to rounding: the search stops there" in found.notes
    assert max(row.size for row in found.front) == 2


def test_all_columns_explain_x_where_they_are_chosen_for_it() -> None:
    assert "8 columns explain all of X up to rounding: the search stops there" in dsel.select(X, k=8).notes


@pytest.mark.parametrize("k", [8, 9, 12])
def test_as_many_columns_as_rows_are_noted_and_no_error_is_negative(k: int) -> None:
    Z = RNG.standard_normal((10, 20))
    found = dsel.select(Z, RNG.standard_normal(10), k=k)
    assert len(found) <= 9
    assert any("fit 10 rows nearly whatever Y is" in note for note in found.notes)
    assert found.error >= 0.0
    assert found.r2 <= 1.0
    assert all(row.error >= 0.0 and row.r2 <= 1.0 for row in (*found.front, *found.forward))
    assert all(row.error >= 0.0 for row in found.trace)


@pytest.mark.parametrize(("lam", "free"), [(1e-6, True), (1000.0, False)])
def test_a_penalty_may_keep_as_many_columns_as_rows_from_fitting_whatever_y_is(lam: float, free: bool) -> None:
    Z = RNG.standard_normal((10, 20))
    found = dsel.select(Z, RNG.standard_normal(10), k=9, lam=lam, method="forward")
    assert any("fit 10 rows nearly whatever Y is" in note for note in found.notes) == free


@pytest.mark.parametrize("method", ["poss", "forward"])
def test_a_good_fit_is_not_taken_for_a_perfect_one(method: str) -> None:
    y = Y + 1e-4 * X[:, 0] + 1e-5 * X[:, 1]
    assert sorted(dsel.select(X, y, k=4, method=method).indices) == [0, 1, 3, 5]


@pytest.mark.parametrize("preprocess", ["standardize", "unit", "center", "none"])
@pytest.mark.parametrize("power", [-150, -100, -60, 60, 100, 150])
@pytest.mark.parametrize("columns", [[0], [3], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_columns_of_any_scale_give_the_answer_of_the_scaled_data(
    preprocess: str, power: int, columns: list[int]
) -> None:
    y = Y + 0.1 * RNG.standard_normal(200)
    scaled = X.copy()
    scaled[:, columns] *= 10.0**power
    found = dsel.select(scaled, y, k=2, method="forward", preprocess=preprocess)
    assert sorted(found.indices) == [3, 5]
    assert found.r2 == pytest.approx(dsel.select(X, y, k=2, method="forward", preprocess=preprocess).r2, abs=1e-9)


@pytest.mark.parametrize("power", [-200, 200])
def test_squares_beyond_the_range_of_float64_are_refused(power: int) -> None:
    with pytest.raises(dsel.errors.DataError, match=r"8 columns whose squares are out of float64's range"):
        dsel.select(X * 10.0**power, Y, k=2)


def test_an_included_copy_of_the_target_is_named_and_ends_the_search() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    found = dsel.select(np.column_stack([X, 2 * y]), y, k=3, include=[5])
    assert found.labels == ["x5"]
    assert any(
        note.startswith("leave x5 out if it should not be there: this column is the target") for note in found.notes
    )


def test_included_columns_that_depend_on_each_other_are_named() -> None:
    X = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.raises(OptionError, match=r"depend on each other: x0, x1, x5\. Include the others without x5"):
        dsel.select(np.column_stack([X, X[:, 0] + X[:, 1]]), X[:, 2], k=4, include=[0, 1, 5])


@pytest.mark.parametrize("method", ["exhaustive", "rfe", "greedy-rls"])
def test_an_included_category_of_a_method_without_groups_has_a_remedy_that_works(method: str) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "city": rng.choice(["B", "G", "Z"], 60)})
    y = X.a + (X.city == "B") + 0.1 * rng.normal(size=60)
    with pytest.raises(OptionError, match=r"city=B, city=G, city=Z\. Include the others without city=Z, one by one"):
        dsel.select(X, y, k=3, method=method, include=["city"])
    found = dsel.select(X, y, k=3, method=method, include=["city=B", "city=G"])
    assert set(found.labels) == {"a", "city=B", "city=G"}

"""A row of weight 0 does not count: the answer is that of the other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError, OptionError
from dsel.sklearn import SubsetRegressor

#: The first rows of all have a weight.
COUNTING, ROWS = 8, 120
WEIGHTS = (np.arange(ROWS) < COUNTING).astype(np.float64)


def problem() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(ROWS, 12))
    return X, X[:, 0] + rng.normal(size=ROWS)


def alone(X: Any, y: Any, **options: Any) -> dsel.Selection:
    return dsel.select(X[:COUNTING], y[:COUNTING], **options)


@pytest.mark.parametrize("rule", ["aic", "aicc", "bic", "ebic", "adjusted-r2", "folds"])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_automatic_sizes(rule: str, loss: str) -> None:
    if loss == "huber" and rule in ("aicc", "adjusted-r2"):
        pytest.skip("for the squared error")
    X, y = problem()
    found = dsel.select(X, y, k="auto", choose_k=rule, loss=loss, sample_weight=WEIGHTS)
    expected = alone(X, y, k="auto", choose_k=rule, loss=loss)
    assert (found.indices, found.request.max_k) == (expected.indices, expected.request.max_k)
    assert found.r2 == pytest.approx(expected.r2)
    assert not any("sum to" in note for note in found.notes)


def test_automatic_sizes_of_each_kind_of_data(tmp_path: Path) -> None:
    X, y = problem()
    ingest_arrays(X, tmp_path / "store", y=y, weight=WEIGHTS, chunks=(40, 12))
    asked: dict[str, Any] = {"k": "auto", "choose_k": "bic"}
    found = [
        dsel.select(da.from_array(X, chunks=(40, 12)), y, sample_weight=WEIGHTS, **asked),
        dsel.select(tmp_path / "store", **asked),
        dsel.select(tmp_path / "store", rows={"first": 0.5}, **asked),
        dsel.select(dsel.sums(X, y, sample_weight=WEIGHTS), **asked),
        SubsetRegressor("auto", choose_k="bic").fit(X, y, sample_weight=WEIGHTS).selection_,
    ]
    expected = alone(X, y, **asked)
    assert {(one.indices, one.request.max_k) for one in found} == {(expected.indices, 2)}


def test_columns_that_fit_any_target() -> None:
    X, y = problem()
    found, expected = dsel.select(X, y, k=7, sample_weight=WEIGHTS), alone(X, y, k=7)
    assert found.indices == expected.indices
    assert any("7 columns fit 8 rows nearly whatever Y is" in note for note in found.notes)


@pytest.mark.parametrize("method", [{"method": "greedy-rls"}, {"method": "kfold", "folds": 4}])
def test_methods_on_left_out_rows_end_with_the_rows(method: dict[str, Any]) -> None:
    X, y = problem()
    found, expected = dsel.select(X, y, k=8, sample_weight=WEIGHTS, **method), alone(X, y, k=8, **method)
    assert (found.indices, found.ended) == (expected.indices, expected.ended) == (expected.indices, "too few rows")


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("split", ["random", "blocks"])
@pytest.mark.parametrize("rule", [{"by": "held-out", "held_out": 0.25}, {"by": "folds", "folds": 5, "repeats": 2}])
def test_rows_are_divided_as_if_there_were_no_others(rule: dict[str, Any], split: str, loss: str) -> None:
    X, y = problem()
    weights = np.random.default_rng(5).integers(0, 2, ROWS).astype(np.float64)
    there = weights > 0.0
    if split == "blocks":
        rule = {name: value for name, value in rule.items() if name != "repeats"}
    asked: dict[str, Any] = {"k": "auto", "choose_k": {**rule, "split": split}, "loss": loss}
    found, expected = dsel.select(X, y, sample_weight=weights, **asked), dsel.select(X[there], y[there], **asked)
    assert found.size_curve is not None
    assert expected.size_curve is not None
    assert [point.value for point in found.size_curve.points] == pytest.approx(
        [point.value for point in expected.size_curve.points]
    )
    assert found.size_curve.rule == expected.size_curve.rule


def test_too_few_rows_for_folds() -> None:
    X, y = problem()
    with pytest.raises(OptionError, match="8 rows are too few for 9 folds"):
        dsel.select(X, y, k="auto", choose_k={"by": "folds", "folds": 9}, sample_weight=WEIGHTS)


def test_the_number_of_rows_says_how_many_have_a_weight(tmp_path: Path) -> None:
    X, y = problem()
    found = dsel.select(X, y, k=2, sample_weight=WEIGHTS)
    assert "(120 rows, 8 of them with a weight; " in str(found)
    assert "120 rows, 8 of them with a weight" in found._repr_html_()
    assert dsel.open_selection(found.save(tmp_path)) == found
    assert "(120 rows; " in str(dsel.select(X, y, k=2, sample_weight=WEIGHTS + 1.0))


def test_notes_on_columns_that_vary_only_in_rows_without_weight() -> None:
    X, y = problem()
    X[:COUNTING, 2], X[:COUNTING, 3] = 0.0, 1.0
    notes = dsel.select(X, y, k=2, missing="mean", sample_weight=WEIGHTS).notes
    assert (
        "1 column that is never chosen has no value at all, or only zeros, in the rows that have a weight: x2" in notes
    )
    assert "1 column is constant in the rows that have a weight, and never chosen: x3" in notes


def test_a_class_of_which_no_row_has_a_weight_is_named() -> None:
    X, y = problem()
    classes = np.where(WEIGHTS > 0.0, np.where(y > 0.0, "a", "b"), "c")
    with pytest.raises(OptionError, match="Leave out the rows of y=c: all of them have weight 0"):
        dsel.select(X, classes, k=2, loss="logistic", sample_weight=WEIGHTS)
    classes[:2] = "d"
    with pytest.raises(DataError, match=r"No row of y=c has a weight\. Leave out these rows"):
        dsel.select(X, classes, k=2, loss="multinomial", sample_weight=WEIGHTS)

"""A comparison says when the errors of two selections are of other units or rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.selection.results.compare import compare_selections

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(80, 5)), columns=list("abcde"))
NUMBERS = (X["a"] + RNG.normal(size=80)).rename("y")
CLASSES = pd.Series(np.where(NUMBERS > 0.5, "p", "n"), name="y")
LOGISTIC = {"y": CLASSES, "loss": "logistic"}


def selected(y: Any = NUMBERS, rows: int = 80, **arguments: Any) -> dsel.Selection:
    return dsel.select(X[:rows], y if y is None else y[:rows], **{"k": 2, "method": "forward", **arguments})


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ({}, {"lam": 0.1, "preprocess": "center"}, "preprocess, lam"),
        ({}, {"loss": "huber"}, "loss or its parameters"),
        ({"loss": "quantile"}, {"loss": {"quantile": {"level": 0.9}}}, "loss or its parameters"),
        ({}, {"sample_weight": np.arange(1, 81)}, "sample_weight"),
        ({"sample_weight": np.arange(1, 81)}, {"sample_weight": np.ones(80)}, "sum of the weights"),
        (LOGISTIC, {**LOGISTIC, "class_weight": {"p": 4.0}}, "class_weight"),
        ({"y": NUMBERS.rename("z")}, {}, "targets"),
        ({}, {"y": None}, "targets"),
        ({}, {"y": CLASSES}, "targets"),
        ({}, {"rows": 70}, "number of rows"),
    ],
)
def test_every_difference_that_changes_the_unit_of_the_error_is_named(
    first: dict[str, Any], second: dict[str, Any], differ: str
) -> None:
    notes = compare_selections(selected(**first), selected(**second)).notes
    assert f"the errors cannot be compared: the selections differ in {differ}" in notes


def test_a_saved_selection_of_the_same_data_has_comparable_errors(tmp_path: Path) -> None:
    weighted = {**LOGISTIC, "class_weight": {"p": 4.0}, "sample_weight": np.arange(1, 81)}
    selected(**weighted).save(tmp_path / "saved")
    compared = compare_selections(dsel.open_selection(tmp_path / "saved"), selected(**weighted, method="exchange"))
    assert not [note for note in compared.notes if "cannot be compared" in note]


def test_a_store_has_the_same_values_whatever_their_weights(tmp_path: Path) -> None:
    store = str(tmp_path / "data.zarr")
    dsel.ingest(X.assign(y=NUMBERS, w=np.arange(1.0, 81.0)), store, target="y", weight="w")
    weighted, plain = (dsel.select(store, k=2, sample_weight=weight) for weight in ("weight", False))
    notes = compare_selections(weighted, plain).notes
    assert "the errors cannot be compared: the selections differ in sample_weight" in notes
    assert not [note for note in notes if "other values" in note]

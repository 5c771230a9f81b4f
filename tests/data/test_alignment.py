"""Rows of X, Y and weights that have labels are brought together by their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.model_selection import GroupKFold

import dsel
from dsel.errors import DataError

rng = np.random.default_rng(3)
A = rng.normal(size=(40, 6))
Y = 2 * A[:, 3]
TIME = np.arange(40) * 10
X = xr.DataArray(A, dims=("time", "column"), coords={"time": TIME})
TARGET = xr.DataArray(Y, dims=("time",), coords={"time": TIME})
SHUFFLED = rng.permutation(40)


def chosen(*data: Any, **options: Any) -> tuple[list[int], float]:
    selection = dsel.select(*data, k=1, method="forward", **options)
    return list(selection.indices), round(selection.r2, 6)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X, TARGET),
        (X, TARGET[::-1]),
        (X, TARGET[SHUFFLED]),
        (X[SHUFFLED], TARGET),
        (X.T, TARGET[SHUFFLED]),
        (X.T, TARGET.expand_dims(target=["a"])),
        (X, TARGET.expand_dims(target=["a"])[:, SHUFFLED]),
        (X.drop_vars("time"), TARGET),
        (X.T.drop_vars("time"), TARGET),
        (X.chunk(time=7)[SHUFFLED], TARGET.chunk(time=7)),
        (xr.DataArray(A.T, dims=("feature", "sample")), Y),
        (xr.DataArray(A.T, dims=("anything", "sample")), Y),
        (X, Y),
        (A, TARGET.drop_vars("time")),
        (A, TARGET.drop_vars("time").expand_dims("target").rename(time="sample")),
        (xr.Dataset({"X": X.T, "Y": TARGET[SHUFFLED]}), None),
        (xr.Dataset({"X": X}), TARGET[SHUFFLED]),
        (X, pd.Series(Y, index=TIME)),
    ],
)
def test_rows_are_matched_by_dimension_and_coordinate(x: Any, y: Any) -> None:
    assert chosen(x, y) == ([3], 1.0)


def test_weights_are_matched_as_the_targets_are() -> None:
    noisy = TARGET + 3 * xr.DataArray(rng.normal(size=40), dims="time")
    weights = xr.DataArray(rng.random(40), dims=("time",), coords={"time": TIME})
    expected = chosen(A, noisy.values, sample_weight=weights.values)
    assert chosen(X, noisy[SHUFFLED], sample_weight=weights[::-1]) == expected
    assert chosen(xr.Dataset({"X": X, "Y": noisy[SHUFFLED], "weight": weights[::-1]})) == expected
    assert chosen(X, noisy, sample_weight=weights.values) == expected


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (X, TARGET.assign_coords(time=TIME + 5), "Y has no rows for 40 of the 40 samples of X: 0, 10"),
        (X, TARGET.assign_coords(time=[*TIME[:-1], 500]), "Y has no rows for 1 of the 40 samples of X: 390"),
        (X.assign_coords(time=TIME // 20), TARGET, "labels occur more than once"),
        (X, xr.DataArray(A, dims=("time", "column")), "share the dimensions column, time with X"),
        (X, pd.Series(Y, index=TIME[::-1]), "indexes of X and Y differ: row 0 is 0 in X and 390 in Y"),
        (X, TARGET[:-1], "Y has no rows for 1 of the 40 samples of X: 390"),
    ],
)
def test_rows_that_cannot_be_matched_are_refused(x: Any, y: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        chosen(x, y)


def test_weights_of_other_samples_are_refused() -> None:
    weights = xr.DataArray(np.ones(40), dims=("time",), coords={"time": TIME + 1})
    with pytest.raises(DataError, match="sample_weight has no rows for 40 of the 40 samples"):
        chosen(X, TARGET, sample_weight=weights)


COUNTS = np.random.default_rng(5).poisson(np.exp(0.5 * A[:, 3]))
SHIFT = 0.5 * A[:, 1]
PATIENT = np.arange(40) % 8
SERIES = pd.Series(SHIFT, TIME)
FRAME = pd.DataFrame(A, TIME).add_prefix("x")


def counted(x: Any, y: Any = COUNTS, offset: Any = SHIFT) -> dsel.Selection:
    return dsel.select(x, y, k=1, loss="poisson", offset=offset)


def test_offsets_are_matched_as_the_targets_are() -> None:
    offset, counts = xr.DataArray(SHIFT, {"time": TIME}, dims="time"), TARGET.copy(data=COUNTS)
    expected = counted(A)
    for x, y, shift in (
        (X, COUNTS, offset[SHUFFLED]),
        (X[SHUFFLED], counts, offset),
        (X.T, counts, offset[::-1]),
        (X.chunk(time=7), COUNTS, offset[::-1]),
        (xr.Dataset({"X": X, "Y": counts[::-1]}), None, offset[SHUFFLED]),
        (FRAME, COUNTS, SERIES),
    ):
        found = counted(x, y, shift)
        assert (found.indices, found.error) == (expected.indices, pytest.approx(expected.error, rel=1e-9))
    found = counted(X, counts, offset)
    shuffled = X[SHUFFLED]
    assert np.allclose(found.predict(shuffled, offset=offset), expected.predict(A, offset=SHIFT)[SHUFFLED])
    again = found.score(shuffled, counts, offset=offset[::-1])
    assert again["deviance"] == pytest.approx(expected.score(A, COUNTS, offset=SHIFT)["deviance"])
    assert dsel.certify(found, X, counts, offset=offset[SHUFFLED]).certificate[-1]["proven"]


def test_offsets_of_another_order_are_refused() -> None:
    found, wrong = counted(FRAME), SERIES[::-1]
    for call in (
        lambda: counted(FRAME, offset=wrong),
        lambda: counted(X, offset=wrong),
        lambda: found.predict(FRAME, offset=wrong),
        lambda: found.score(FRAME, COUNTS, offset=wrong),
        lambda: dsel.certify(found, FRAME, COUNTS, offset=wrong),
        lambda: dsel.alternatives(found, FRAME, COUNTS, offset=wrong),
        lambda: dsel.stability(FRAME, COUNTS, k=1, loss="poisson", offset=wrong, samples=4),
    ):
        with pytest.raises(DataError, match="indexes of X and offset differ: row 0 is 0 in X and 390 in offset"):
            call()
    with pytest.raises(DataError, match="offset has no rows for 40 of the 40 samples of X: 0, 10"):
        counted(X, offset=xr.DataArray(SHIFT, {"time": TIME + 5}, dims="time"))


def test_groups_of_rows_are_matched_as_the_targets_are() -> None:
    given = pd.Series(PATIENT, TIME)
    groups = xr.DataArray(PATIENT, {"time": TIME}, dims="time")
    expected = dsel.select(A, Y, k=2, method="kfold", folds=4, row_groups=PATIENT)
    for x, labels in ((FRAME, given), (X, groups[SHUFFLED])):
        found = dsel.select(x, Y, k=2, method="kfold", folds=4, row_groups=labels)
        assert (found.indices, found.path) == (expected.indices, expected.path)
    by_size = [
        dsel.select(x, Y, k="auto", choose_k={"folds": 4, "row_groups": labels}).size_curve
        for x, labels in ((A, PATIENT), (FRAME, given), (X, groups[::-1]))
    ]
    assert by_size[0].points == by_size[1].points == by_size[2].points
    for call in (
        lambda: dsel.select(FRAME, Y, k=2, method="kfold", row_groups=given[::-1]),
        lambda: dsel.select(FRAME, Y, k="auto", choose_k={"row_groups": given[::-1]}),
        lambda: dsel.select(FRAME, Y, k=2, method="kfold", split=GroupKFold(4), row_groups=given[::-1]),
        lambda: dsel.stability(FRAME, Y, k=1, parts=4, samples=4, row_groups=given[::-1]),
    ):
        with pytest.raises(DataError, match="indexes of X and row_groups differ: row 0 is 0 in X and 390"):
            call()


def test_a_note_says_that_another_dimension_has_dates() -> None:
    days = pd.date_range("2020", periods=17)
    values = np.random.default_rng(0).normal(size=(3, 17, 4))
    X = xr.DataArray(values, {"date": days}, dims=("lat", "date", "lon"))
    y = xr.DataArray(values[:, :, 0].sum(axis=0), {"date": days}, dims="date")
    found = dsel.select(X, k=1)
    said = (
        "the samples are along the dimension 'lat', the first one, but 'date' has dates: if they are the samples, give "
        "X.transpose('date', ...)"
    )
    assert (found.shape, said in found.notes) == ((3, 68), True)
    assert said in dsel.select(X[:, :, 0], k=1).notes
    for clear, Y in (
        (X, y), (X.transpose("date", ...), None), (X.rename(date="time"), None), (X.drop_vars("date"), None),
        (X.rename(lat="sample"), None),
    ):  # fmt: skip
        notes = dsel.select(clear, Y, k=1).notes
        assert not any("has dates" in note for note in notes)


def test_a_cube_whose_first_dimension_is_not_the_samples_says_which_was_taken() -> None:
    X = xr.DataArray(np.random.default_rng(0).normal(size=(3, 120, 4)), dims=("band", "when", "lat"))
    y = np.arange(120.0)
    with pytest.raises(DataError, match="X has 3 rows and Y has 120: its samples are along the dimension 'band'"):
        dsel.select(X, y, k=1)
    by_name = dsel.select(X, xr.DataArray(y, dims="when"), k=1)
    assert by_name.labels == dsel.select(X.transpose("when", ...), y, k=1).labels

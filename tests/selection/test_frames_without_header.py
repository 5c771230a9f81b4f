"""Whole numbers name all columns of a frame without a header: they are labels, also if some columns hold text."""

from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import DataError, OptionError
from dsel.sklearn import SubsetSelector


def headerless(text: bool = True) -> pd.DataFrame:
    """Numbers 0 to 7 and, with `text`, a column 8 of text. Column 3 depends on 5, 6 and 8, or 7."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 8)))
    other = pd.Series(rng.choice(["red", "blue"], 120))
    frame[3] = frame[5] + 0.5 * frame[6] + 0.1 * rng.normal(size=120) + ((other == "red") if text else frame[7])
    return frame.assign(**{"8": other}).rename(columns={"8": 8}) if text else frame


def best_two(
    frame: pd.DataFrame, target: int, *, without: tuple[int, ...] = (), having: tuple[int, ...] = ()
) -> set[int]:
    """The two columns of least squared error, by least squares on the rows."""
    one = {c: pd.get_dummies(frame[[c]]).astype(float) for c in frame.columns if c != target and c not in without}

    def error(pair: tuple[int, ...]) -> float:
        Z = np.column_stack([np.ones(len(frame)), *(one[c] for c in pair)])
        y = frame[target].to_numpy()
        return float(((y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]) ** 2).sum())

    return set(min((pair for pair in combinations(one, 2) if set(having) <= set(pair)), key=error))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (88, "X has no column 88. Known"),
        ([3, 88], "X has no column 88. Known"),
        ((3, 88), "X has no column 88. Known"),
        (True, "Y is True. Give the targets as an array, or the name of a column"),
    ],
)
def test_numbers_that_name_no_column_are_named(targets: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        dsel.select(headerless(), targets, k=2)


def columns_of(selection: dsel.Selection) -> set[int]:
    return {int(name) for name in selection.groups} if selection.groups else {int(label) for label in selection.labels}


@pytest.mark.parametrize("asked", [{"exclude": [5]}, {"exclude": [8]}, {"include": [8]}, {"include": [0]}])
def test_numbers_in_include_and_exclude_name_columns_of_the_frame(asked: dict[str, Any]) -> None:
    frame = headerless()
    best = best_two(frame, 3, without=tuple(asked.get("exclude", ())), having=tuple(asked.get("include", ())))
    selection = dsel.select(frame, 3, k=2, method="branch-and-bound", **asked)
    assert columns_of(selection) == best
    certified = dsel.certify(selection, frame, 3)
    assert certified.certificate[-1]["status"] == "optimal"
    assert columns_of(certified) == best
    found = dsel.alternatives(selection, frame, 3)
    assert set(asked.get("exclude", ())).isdisjoint(found.verdicts)
    assert columns_of(selection) >= {label for label, verdict in found.verdicts.items() if verdict == "necessary"}
    selector = SubsetSelector(n_features_to_select=2, method="branch-and-bound", **asked)
    assert {frame.drop(columns=3).columns[j] for j in selector.fit(frame.drop(columns=3), frame[3]).indices_} == best


def test_an_excluded_number_leaves_out_a_column_that_holds_no_numbers() -> None:
    frame = headerless().assign(**{"9": pd.Timestamp("2020-01-01")}).rename(columns={"9": 9})
    with pytest.raises(DataError, match="dates"):
        dsel.select(frame, 3, k=2)
    selection = dsel.select(frame, 3, k=2, exclude=[9])
    assert columns_of(selection) == best_two(headerless(), 3)
    assert dsel.certify(selection, frame, 3).certificate[-1]["status"] == "optimal"


def test_numbers_in_groups_name_columns_of_the_frame(tmp_path: Path) -> None:
    frame = headerless()
    selection = dsel.select(frame, 3, k=1, groups={"both": [5, 6]})
    assert selection.labels == [5, 6]
    assert selection.groups == {"both": (4, 5)}
    assert dsel.alternatives(selection, frame, 3).verdicts["both"] == "necessary"
    assert "8+0" in dsel.stability(frame, 3, k=1, samples=4, groups=[[8, 0]]).names
    frequency = dsel.stability(frame, 3, k=1, samples=4, exclude=[6])
    assert frequency.names[:5] == (0, 1, 2, 4, 5)
    assert frequency.frequencies[:, frequency.names.index(6)].max() == 0.0
    assert dsel.Stability.open(frequency.save(tmp_path / "stable")).names == frequency.names


def test_a_selector_takes_labels_of_a_frame_of_numbers() -> None:
    frame = headerless(text=False)[[7, 6, 5, 3, 0]]
    selector = SubsetSelector(n_features_to_select=2, exclude=[5], include=[0]).fit(frame.drop(columns=3), frame[3])
    assert set(selector.selection_.labels) == {0, 7}
    assert list(frame.drop(columns=3).columns[selector.get_support()]) == [7, 0]


def test_results_have_numbers_as_labels_where_the_frame_has(tmp_path: Path) -> None:
    frame = headerless()
    selection = dsel.select(frame, [7, 3], k=2, include=[8])
    assert set(selection.labels) == {"8=red", "8=blue", 5}
    selection.save(tmp_path / "saved")
    for one in (selection, dsel.open_selection(tmp_path / "saved"), dsel.select(frame, [7, 3], k=1, include=[8])):
        rest = frame[[7, 3]] - one.predict(frame)
        assert list(rest.columns) == [7, 3]
        assert not rest.isna().to_numpy().any()
    found = dsel.alternatives(selection, frame, [7, 3])
    assert set(found.verdicts) == {0, 1, 2, 4, 5, 6}
    assert {price.label for price in found.columns} == set(found.verdicts)
    assert dsel.select(frame, 3, k=2).predict(frame).name == 3


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("targets", [[4, 3], [3]])
def test_targets_may_be_named_in_the_same_ways_for_every_function(targets: list[int], text: bool) -> None:
    frame = headerless(text)
    one = {"target": targets[0]} if len(targets) == 1 else {}
    calls = [((), {"targets": targets}), ((targets,), {}), *([((), one), ((targets[0],), {})] if one else [])]
    for Y, named in calls:
        selection = dsel.select(frame, *Y, k=2, **named)
        for again in [(), (targets,), *([(targets[0],)] if one else [])]:
            assert dsel.certify(selection, frame, *again).certificate[-1]["status"] == "optimal"
            assert dsel.alternatives(selection, frame, *again).complete


def test_weights_and_offsets_may_be_numbers() -> None:
    rng = np.random.default_rng(1)
    frame = headerless().assign(**{"9": rng.normal(size=120), "10": rng.uniform(0.5, 2.0, 120)})
    frame.columns = range(11)
    frame[3] = rng.poisson(np.exp(0.3 * frame[5] + 0.2 * frame[9]))
    plain = frame.drop(columns=[9, 10])
    asked = {"offset": 9, "sample_weight": 10}
    values = {"offset": frame[9], "sample_weight": frame[10]}
    found = dsel.select(frame, 3, k=2, loss="poisson", **asked)
    assert found.labels == dsel.select(plain, 3, k=2, loss="poisson", **values).labels
    assert found.score(frame, **asked) == found.score(plain, **values)
    assert np.array_equal(found.predict(frame, offset=9), found.predict(plain, offset=frame[9]))
    assert np.array_equal(found.predict(plain, offset=9), found.predict(plain, offset=np.full(120, 9.0)))
    assert dsel.certify(found, frame, 3, **asked).certificate[-1]["status"] == "optimal"
    for name, value in (("offset", 77), ("sample_weight", 77)):
        with pytest.raises(DataError, match=r"or the label of a column of a frame\. A number is a label where"):
            dsel.select(frame, 3, k=2, loss="poisson", **{name: value})
    with pytest.raises(OptionError, match="'3' is a target and the sample_weight"):
        dsel.select(frame, [3, 5], k=2, sample_weight=3)


def test_a_target_of_classes_may_be_a_number() -> None:
    frame = headerless()
    for selection in (dsel.select(frame, target=8, k=2), dsel.select(frame, targets=[8], k=2)):
        assert selection.targets == ("8=red",)
        for again in [(), (8,), ([8],)]:
            assert dsel.certify(selection, frame, *again).certificate[-1]["status"] == "optimal"


def test_rows_that_were_numbered_again_without_the_target_give_a_warning() -> None:
    frame = headerless(text=False)
    selection = dsel.select(frame, 3, k=2)
    rest = frame.drop(columns=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = selection.predict(frame)
        np.testing.assert_array_equal(selection.predict(rest), expected)
        dsel.select(headerless(), 3, k=2).predict(headerless())
    again = rest.set_axis(range(7), axis=1)
    selection = dsel.select(frame, 3, k=1, exclude=[7])  # the last number exists in rows that were numbered again
    with pytest.warns(UserWarning, match="numbered without a gap, and in the selection's data 3 was a target"):
        selection.predict(again)


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_including_or_excluding_the_target_is_named_as_such(argument: str) -> None:
    with pytest.raises(OptionError, match=f"{argument}: '3' is a target"):
        dsel.select(headerless(), 3, k=2, **{argument: [3]})

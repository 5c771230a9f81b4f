"""A selection from a frame of text, categories and dates, or from a cube, is applied to data of the same form."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from sklearn.metrics import r2_score

import dsel
from dsel.errors import DataError, OptionError

M = 60
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "size": RNG.standard_normal(M),
        "built": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, M), "D"),
        "energy": pd.Categorical(RNG.choice(["A", "B", "C"], M)),
        "town": RNG.choice(["x=y", "z"], M),
    }
)
DAYS = (FRAME["built"] - pd.Timestamp("1970-01-01")).dt.days
NUMBERS = pd.DataFrame(
    {"size": FRAME["size"], "built": DAYS} | {f"energy={v}": FRAME["energy"].eq(v) for v in "ABC"}
    | {f"town={v}": FRAME["town"].eq(v) for v in ("x=y", "z")}
).astype(float)  # fmt: skip
Y = FRAME["size"] + DAYS / 100 + 3.0 * (FRAME["energy"] == "A") + 2.0 * (FRAME["town"] == "z")

KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda f: f,
    "polars": lambda f: pl.from_pandas(f),
    "lazy polars": lambda f: pl.from_pandas(f).lazy(),
    "arrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
    "dask": lambda f: pytest.importorskip("dask.dataframe").from_pandas(f, npartitions=3),
}


def by_hand(selection: dsel.Selection, numbers: pd.DataFrame) -> Any:
    return numbers[selection.names].to_numpy() @ selection.coefficients[:, 0] + selection.intercept[0]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_converted_as_the_selection_converted_them(kind: str, tmp_path: Path) -> None:
    selection = dsel.select(FRAME, Y.to_numpy(), k=4, dates="days", method="forward", categories="columns")
    assert {"built", "energy=A"} <= set(selection.names)
    selection.save(tmp_path / "saved")
    for found in (selection, dsel.open_selection(tmp_path / "saved")):
        data = KINDS[kind](FRAME)
        np.testing.assert_allclose(np.asarray(found.predict(data)), by_hand(selection, NUMBERS), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found.transform(data)), NUMBERS[selection.names])
        np.testing.assert_allclose(found.score(data, Y)["r2"], selection.r2, rtol=1e-9)


def test_dates_in_text_are_days_as_in_the_selection() -> None:
    text = FRAME[["size"]].assign(built=FRAME["built"].dt.strftime("%Y-%m-%d"))
    selection = dsel.select(text, FRAME["size"] + DAYS / 100, k=2, dates="days", method="forward")
    np.testing.assert_allclose(selection.predict(text), by_hand(selection, NUMBERS), rtol=1e-12)


def test_unknown_values_are_zero_in_all_indicators_and_missing_ones_are_nan() -> None:
    selection = dsel.select(FRAME[["size", "energy"]], Y, k=3, categories="columns", method="forward")
    rows = pd.DataFrame({"size": [0.0, 0.0], "energy": ["D", None]})
    found = selection.transform(rows)
    levels = [name for name in selection.names if name != "size"]
    assert (found[levels].iloc[0] == 0.0).all()
    assert found[levels].iloc[1].isna().all()


@pytest.mark.parametrize("groups", [None, {"label": ["energy"]}, {"label": ["energy", "size"]}], ids=str)
def test_values_that_the_selection_does_not_know_give_a_warning(groups: Any, tmp_path: Path) -> None:
    chosen = dsel.select(FRAME[["size", "energy"]], Y, k=1 if "size" in str(groups) else 2, groups=groups)
    selection = dsel.open_selection(chosen.save(tmp_path / "saved"))
    assert selection.categories == ("energy",)
    rows = pd.DataFrame({"size": [0.0, 0.0, 0.0], "energy": ["A", None, "D"]})
    with pytest.warns(UserWarning, match=r"'energy' has values .* such as 'D': they predict") as caught:
        selection.predict(rows)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection.predict(rows[:2])


def test_values_whose_column_was_not_chosen_give_no_warning() -> None:
    known = [f"energy={value}" for value in sorted(set(FRAME["energy"]))]
    selection = dsel.select(FRAME[["size", "energy"]], Y, k=2, groups={"energy": known[:-1]})
    assert "energy" in selection.groups
    assert selection.categories == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection.predict(FRAME)


def test_a_missing_column_is_named_without_the_indicators_that_were_made() -> None:
    selection = dsel.select(FRAME[["size", "energy"]], Y, k=2)
    with pytest.raises(DataError, match=r"lacks 1 of the 2 chosen columns: size. It has energy, town\."):
        selection.predict(FRAME[["energy", "town"]])


def test_dates_without_days_and_numbers_in_place_of_categories_are_refused() -> None:
    numbers = FRAME.assign(built=DAYS)
    selection = dsel.select(numbers, Y.to_numpy(), k=4, method="forward", categories="columns")
    with pytest.raises(DataError, match=r"'built' of X holds dates .* dates=\"days\""):
        selection.predict(FRAME)
    with pytest.raises(DataError, match=r"'energy' of X is of type int64, .* as categories"):
        selection.predict(numbers.assign(energy=1))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("kind", [np.asarray, pd.Series, pd.Categorical, pl.Series])
def test_two_classes_of_text_are_scored_by_name(loss: str, kind: Callable[[Any], Any]) -> None:
    y = np.where(FRAME["size"] + RNG.standard_normal(M) > 0, "yes", "no")
    selection = dsel.select(NUMBERS, kind(y), k=2, loss=loss, lam=1.0, method="forward")
    assert selection.score(NUMBERS, kind(y)) == selection.score(NUMBERS, (y == "yes").astype(float))
    if loss == "logistic":
        selection.plot.roc(NUMBERS, kind(y))
        with pytest.raises(DataError, match="y has the class maybe, and the classes are no, yes"):
            selection.score(NUMBERS, np.where(y == "no", "maybe", y))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dims", [("time", "lat", "lon"), ("lat", "lon", "time"), ("lon", "time", "lat")])
def test_a_cube_is_stacked_as_the_selection_stacked_it(dims: tuple[str, ...], lazy: bool) -> None:
    values = RNG.standard_normal((M, 3, 4))
    cube = xr.DataArray(
        values, {"lat": [-10.0, 0.0, 10.0], "lon": [0.0, 90.0, 180.0, 270.0]}, dims=("time", "lat", "lon"), name="t"
    )
    y = values[:, 0, 1] - 2.0 * values[:, 2, 3]
    selection = dsel.select(cube, y, k=2)
    assert set(selection.labels) == {"lat=-10.0,lon=90.0", "lat=10.0,lon=270.0"}
    data = cube.transpose(*dims)
    data = data.chunk({"time": 20}) if lazy else data
    found = selection.predict(data)
    assert not lazy or hasattr(found.data, "dask")
    np.testing.assert_allclose(found, y, atol=1e-9)
    assert selection.transform(data).shape == (M, 2)
    assert selection.score(data, y)["r2"] > 0.999999
    np.testing.assert_allclose(selection.predict(data.to_dataset()), y, atol=1e-9)


@pytest.mark.parametrize("preprocess", ["standardize", "center"])
def test_a_squared_error_of_three_classes_is_scored_as_the_selection_weights_them(preprocess: str) -> None:
    size = FRAME["size"].to_numpy() + 0.3 * RNG.standard_normal(M)
    y = np.where(size > 1, "high", np.where(size > -0.5, "mid", "low"))
    selection = dsel.select(NUMBERS, y, k=2, preprocess=preprocess, method="forward")
    found = selection.score(NUMBERS, y)
    assert found["r2"] == pytest.approx(selection.r2, abs=1e-12)
    assert selection.score(NUMBERS, pd.Series(y, name="other name")) == found
    new, weight = slice(10, 50), RNG.random(40)
    indicators = np.column_stack([y[new] == name.removeprefix("y=") for name in selection.targets]).astype(float)
    average = "uniform_average" if preprocess == "standardize" else "variance_weighted"
    scored = selection.score(NUMBERS[new], y[new], sample_weight=weight)
    predicted = selection.predict(NUMBERS[new])
    assert scored["r2"] == pytest.approx(r2_score(indicators, predicted, sample_weight=weight, multioutput=average))
    assert scored["deviance"] == pytest.approx(float(weight @ np.square(indicators - predicted).sum(axis=1)))
    with pytest.raises(DataError, match="y has the class other, and the classes are high, low, mid"):
        selection.score(NUMBERS, np.where(y == "mid", "other", y))


@pytest.mark.parametrize("kind", KINDS)
def test_targets_and_weights_are_scored_by_their_name_in_a_frame(kind: str) -> None:
    whole = NUMBERS.assign(y=Y, z=-Y, w=RNG.random(M))
    data = KINDS[kind](whole)
    found = dsel.select(NUMBERS, Y, k=2)
    assert found.score(data, "y") == pytest.approx(found.score(NUMBERS, Y))
    weighted = found.score(NUMBERS, Y, sample_weight=whole["w"].to_numpy())
    if kind != "dask":  # the rows of a column that is computed later are not counted
        assert found.score(data, "y", sample_weight="w") == pytest.approx(weighted)
    two = dsel.select(whole, ["y", "z"], k=2)
    assert two.score(data, ["y", "z"]) == pytest.approx(two.score(whole, whole[["y", "z"]]))
    with pytest.raises(DataError, match="has no column 'q'"):
        found.score(data, "q")


def test_classes_are_scored_and_drawn_by_their_name_in_a_frame() -> None:
    frame = NUMBERS.assign(kind=np.where(Y.median() < Y, "high", "low"))
    found = dsel.select(frame, "kind", k=1, loss="logistic")
    assert found.score(frame, "kind") == found.score(frame, frame["kind"])
    assert len(found.plot.roc(frame, "kind").lines) == len(found.plot.roc(frame, frame["kind"]).lines)


def test_several_targets_are_scored_by_position_or_by_name() -> None:
    size = FRAME["size"].to_numpy()
    Y = pd.DataFrame({"rank": np.where(size > 0, "b", np.where(size > -1, "a", "c")), "twice": 2.0 * size})
    selection = dsel.select(NUMBERS, Y, k=2, method="forward")
    found = selection.score(NUMBERS, Y[["twice", "rank"]])
    assert found["r2"] == pytest.approx(selection.r2, abs=1e-12)
    assert selection.score(NUMBERS, pl.DataFrame({name: Y[name].to_list() for name in Y})) == found
    numbers = dsel.select(NUMBERS, np.column_stack([size, size**2]), k=2, method="forward")
    assert numbers.score(NUMBERS, np.column_stack([size, size**2]))["r2"] == pytest.approx(numbers.r2, abs=1e-12)
    with pytest.raises(DataError, match=r"y has no target rank=a. Give all of rank=a, rank=b, rank=c, twice"):
        selection.score(NUMBERS, Y[["twice"]])
    with pytest.raises(DataError, match=r"y has the shape \(60, 2\), and the predictions for X have \(60, 4\)"):
        selection.score(NUMBERS, np.zeros((M, 2)))
    with pytest.raises(OptionError, match="The columns were chosen for X itself"):
        dsel.select(NUMBERS, k=2).score(NUMBERS, size)


@pytest.mark.parametrize("named", ["y", 2, ["y"]])
def test_a_selection_is_certified_with_the_frame_that_it_was_made_from(named: Any) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", 2 if named == 2 else "y"])
    found = dsel.select(frame, named, k=1)
    assert dsel.certify(found, frame).certificate[-1]["status"] == "optimal"
    assert dsel.certify(found, frame, named).certificate[-1]["status"] == "optimal"


def test_a_selection_of_classes_is_certified_with_the_frame_that_it_was_made_from() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=list("abc"))
    frame["group"] = np.where(frame["a"] > 0.5, "up", "down")
    found = dsel.select(frame, "group", k=1, loss="logistic", lam=1.0)
    assert dsel.certify(found, frame).certificate[-1]["status"] == "optimal"


def test_variables_of_a_dataset_that_are_not_used_are_named() -> None:
    data = np.random.default_rng(0).normal(size=(20, 3, 2))
    cube = xr.Dataset({"sst": (("time", "lat", "lon"), data), "rain": ("time", data[:, 0, 0])})
    assert any("variables that are not used: rain" in note for note in dsel.select(cube, k=2).notes)
    assert not any("not used" in note for note in dsel.select(cube, target="rain", k=2).notes)
    assert not any("not used" in note for note in dsel.select(cube, k=2, unsupervised=True).notes)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "batch", "lazy"])
def test_one_named_target_is_predicted_as_a_series(kind: str) -> None:
    import polars as pl
    import pyarrow as pa

    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, 3.0], "b": [1.0, 0.0, 1.0, 1.0], "y": [1, 2, 4, 3]})
    table = pa.Table.from_pandas(frame)
    given = {"pandas": frame, "pyarrow": table, "batch": table.to_batches()[0], "lazy": pl.from_pandas(frame).lazy()}
    selection = dsel.select(given[kind], "y", k=1)
    found, chosen = selection.predict(given[kind]), selection.transform(given[kind])
    assert (type(found).__name__, type(chosen).__name__) == ("Series", "DataFrame")
    np.testing.assert_allclose(found.to_numpy(), frame["y"])
    assert selection.targets == ("y",)
    assert list(chosen.columns) == ["a"]
    assert type(dsel.select(given[kind], ["y"], k=1).predict(given[kind])).__name__ == "DataFrame"


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "arrow dictionary"])
def test_one_named_target_of_classes_is_predicted_as_a_series(kind: str) -> None:
    frame = NUMBERS.assign(kind=np.where(Y.median() < Y, "high", "low"))
    own = frame.astype({"kind": "category"}) if kind == "arrow dictionary" else frame
    found = dsel.select(KINDS[kind.split()[0]](own), "kind", k=2, loss="logistic", lam=1.0)
    predicted = found.predict(frame)
    assert (found.flat_target, type(predicted).__name__, predicted.shape) == (True, "Series", (M,))
    assert predicted.equals(dsel.select(frame, "kind", k=2, loss="logistic", lam=1.0).predict(frame))
    three = frame.assign(kind=np.where(Y.index % 3 == 0, "mid", frame["kind"]))
    assert dsel.select(KINDS[kind.split()[0]](three), "kind", k=2).predict(frame).shape == (M, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_may_be_dates_and_durations(kind: str) -> None:
    own = NUMBERS.assign(built=FRAME["built"])
    days = NUMBERS.assign(built=DAYS)
    found = dsel.select(KINDS[kind](own), "built", k=2, dates="days", method="forward")
    expected = dsel.select(days, "built", k=2, method="forward")
    assert (found.labels, found.error) == (expected.labels, pytest.approx(expected.error))
    np.testing.assert_allclose(np.asarray(found.predict(own)), expected.predict(days))
    if kind != "dask":
        assert found.score(KINDS[kind](own)) == pytest.approx(expected.score(days))
        assert dsel.certify(found, KINDS[kind](own)).certificate[-1]["proven"]
    with pytest.raises(DataError, match="holds dates or times"):
        dsel.select(KINDS[kind](own), "built", k=2)


def test_times_to_events_may_be_durations(tmp_path: Path) -> None:
    ends = np.random.default_rng(1).random(M) < 0.7
    plain = NUMBERS.assign(time=2.0 + np.tanh((Y - Y.mean()) / Y.std()), event=ends)
    own = plain.assign(time=pd.to_timedelta(plain["time"], unit="D").dt.round("us"))
    found = dsel.select(own, ["time", "event"], k=2, loss="cox", lam=1.0, dates="days")
    expected = dsel.select(plain, ["time", "event"], k=2, loss="cox", lam=1.0)
    assert found.error == pytest.approx(expected.error, rel=1e-9)
    for rows in (own, plain):
        assert found.score(rows) == pytest.approx(expected.score(plain))
    dsel.ingest(own, tmp_path / "times.zarr", target=["time", "event"], dates="days")
    stored = dsel.select(tmp_path / "times.zarr", k=2, loss="cox", lam=1.0)
    assert (stored.labels, stored.error) == (expected.labels, pytest.approx(expected.error, rel=1e-9))


@pytest.mark.parametrize("kind", ["polars", "lazy polars", "arrow"])
def test_a_frame_holds_the_targets_that_scores_and_proofs_need(kind: str) -> None:
    whole = NUMBERS.assign(y=Y, kind=np.where(Y.median() < Y, "high", "low"))
    data = KINDS[kind](whole)
    found = dsel.select(data, "y", k=2, exclude=["kind"])
    assert found.score(data) == pytest.approx(found.score(whole, "y"))
    assert dsel.certify(found, data).certificate[-1]["proven"]
    assert dsel.alternatives(found, data).subsets[0].indices == found.indices
    two = dsel.select(data, ["y", "kind"], k=2)
    assert two.score(data) == pytest.approx(two.score(whole))


@pytest.mark.parametrize(
    ("target", "loss"), [("over=50", "squared"), ("over=50", "logistic"), ("type=x", "multinomial")]
)
def test_names_and_classes_may_hold_the_sign_between_them(target: str, loss: str, tmp_path: Path) -> None:
    classes = {"over=50": ["no", "y=es"], "type=x": ["A", "B=C", "O"]}[target]
    frame = FRAME[["size"]].assign(**{target: RNG.choice(classes, M)})
    selection = dsel.select(frame, target, k=1, loss=loss)
    selection.save(tmp_path / "saved")
    opened = dsel.open_selection(tmp_path / "saved")
    assert opened.classes == {target: classes}
    for y in (target, frame[target], frame[target].to_numpy()):
        assert opened.score(frame, y)["d2" if loss != "squared" else "r2"] == pytest.approx(selection.r2, abs=1e-9)


@pytest.mark.parametrize("named", [["class"], ["number"], ["kind"], ["number", "class"]])
def test_targets_of_a_store_are_scored_by_name_or_by_label(named: list[str], tmp_path: Path) -> None:
    targets = {"class": RNG.choice(["no", "yes"], M), "number": Y, "kind": RNG.choice(list("abc"), M)}
    frame = FRAME[["size"]].assign(**targets)
    dsel.ingest(frame, tmp_path / "s", target=list(targets))
    selection = dsel.select(tmp_path / "s", targets=named, k=1)
    y = xr.open_zarr(tmp_path / "s", consolidated=False)["Y"]
    for given in (named, y, y[:, ::-1]):
        assert selection.score(tmp_path / "s", given)["r2"] == pytest.approx(selection.r2)


@pytest.mark.parametrize("levels", ["ab", "abc"])
def test_a_target_of_classes_of_an_opened_store_is_scored_by_its_name(levels: str, tmp_path: Path) -> None:
    kinds = np.random.default_rng(0).choice(list(levels), M)
    frame = FRAME[["size"]].assign(kind=kinds, number=Y)
    dsel.ingest(frame, tmp_path / "s", target=["kind", "number"])
    loss = "logistic" if len(levels) == 2 else "multinomial"
    selection = dsel.select(frame[["size"]], frame["kind"], k=1, loss=loss)
    opened = xr.open_zarr(tmp_path / "s", consolidated=False)
    for named in ("kind", ["kind"]):
        assert selection.score(opened, named)["d2"] == pytest.approx(selection.r2)
    assert dsel.select(opened, "kind", k=1).targets == selection.targets
    for wrong in (["kind", "nope"], ["number", "nope"], "nope"):
        with pytest.raises(DataError, match="has no variable nope, only"):
            dsel.select(opened, wrong, k=1)


def test_a_store_of_days_is_applied_to_dates(tmp_path: Path) -> None:
    dsel.ingest(FRAME[["size", "built"]].assign(y=Y), tmp_path / "s", target="y", dates="days")
    selection = dsel.select(tmp_path / "s", k=2)
    np.testing.assert_allclose(np.ravel(selection.predict(FRAME)), np.ravel(by_hand(selection, NUMBERS)))


@pytest.mark.parametrize("categories", ["groups", "columns"])
@pytest.mark.parametrize("kind", [lambda f: f, pl.from_pandas, lambda f: pa.Table.from_pandas(f).to_pandas()])
def test_numbers_of_new_rows_are_the_categories_that_a_text_file_has_as_numbers(categories: Any, kind: Any) -> None:
    codes = np.array([101, 205, 330])[RNG.integers(0, 3, M)]
    frame = pd.DataFrame({"code": pd.Categorical(codes), "a": RNG.normal(size=M)})
    selection = dsel.select(frame, (codes == 205) + 0.1 * frame["a"], k=2, categories=categories)
    expected = selection.predict(frame)
    np.testing.assert_array_equal(selection.predict(kind(frame.assign(code=codes))), expected)
    lacks = frame.assign(code=frame["code"].where(codes != 101))
    np.testing.assert_array_equal(selection.predict(kind(lacks.astype({"code": float}))), selection.predict(lacks))
    new = frame.assign(code=999)
    for given in (new.astype({"code": str}), new):
        told = pytest.warns(UserWarning, match="was not made from, such as '999'")
        with told if categories == "groups" else nullcontext():
            found = selection.predict(kind(given))
        np.testing.assert_allclose(found, by_hand(selection, new.assign(**{f"code={c}": 0 for c in codes})))
    for other in (True, 20.5):
        with pytest.raises(DataError, match="has its values as categories"):
            selection.predict(frame.assign(code=other))


def test_a_store_is_scored_by_its_own_targets(tmp_path: Path) -> None:
    frame = pd.DataFrame(RNG.normal(size=(M, 4)), columns=list("abcd")).assign(
        kind=np.where(RNG.random(M) < 0.5, "u", "v")
    )
    dsel.ingest(frame, tmp_path / "s.zarr", target=["d", "kind"])
    for targets in (["d"], ["kind"], ["d", "kind"]):
        selection = dsel.select(frame.drop(columns=["d", "kind"]), frame[targets], k=2)
        expected = selection.score(frame, targets)
        assert selection.score(tmp_path / "s.zarr") == pytest.approx(expected)
        assert selection.score(frame) == pytest.approx(expected)
    unnamed = dsel.select(frame[["a", "b"]], frame["c"].to_numpy(), k=1)
    dsel.ingest(frame[["a", "b", "c"]], tmp_path / "other.zarr", target="c")
    assert unnamed.score(tmp_path / "other.zarr") == pytest.approx(unnamed.score(frame, "c"))
    for lacking in (frame.to_numpy(), frame[["a", "b"]]):
        with pytest.raises(OptionError, match="X holds no targets"):
            unnamed.score(lacking)


def test_text_of_truth_values_predicts_as_truth_values() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "lift": rng.random(40) < 0.5})
    frame["y"] = frame["a"] + frame["lift"]
    selection = dsel.select(frame, "y", k=2)
    expected = selection.predict(frame).to_numpy()
    for words in (frame["lift"].astype(str), frame["lift"].map({True: "true", False: "FALSE"})):
        assert selection.predict(frame.assign(lift=words)).to_numpy() == pytest.approx(expected)
    with pytest.raises(DataError, match="lift does not hold numbers"):
        selection.predict(frame.assign(lift="yes"))


@pytest.mark.parametrize("to", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_approximations_of_columns_have_the_labels_of_the_selection(to: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
    frame["d"] += frame["a"] + frame["b"]
    frame["town"] = rng.choice(["Bonn", "Kiel"], 60)
    selection = dsel.select(frame, k=2, exclude=["town"])
    chosen = selection.names
    selection.save(tmp_path / "saved")
    others = [name for name in "abcd" if name not in chosen]
    moved = frame[[*reversed(others), "town", *chosen]].assign(more=1.0).drop(columns=others[0])
    for used in (selection, dsel.open_selection(tmp_path / "saved")):
        expected, found = used.predict(frame), used.predict(to(moved))
        names = found.columns if hasattr(found, "columns") else found.dims
        assert list(names) == list(expected.columns) == list(used.approximated) == list("abcd")
        np.testing.assert_allclose(np.asarray(found), expected.to_numpy(), rtol=1e-12)
        np.testing.assert_allclose(expected[chosen], frame[chosen], rtol=1e-10)


def test_approximations_of_categories_name_their_indicators(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"a": rng.normal(size=50), "town": rng.choice(["Bonn", "Kiel", "Ulm"], 50)})
    selection = dsel.select(frame, k=1)
    assert list(selection.predict(frame).columns) == ["a", "town=Bonn", "town=Kiel", "town=Ulm"]
    dsel.ingest(frame, tmp_path / "store.zarr", categorical=["town"])
    stored = dsel.select(tmp_path / "store.zarr", k=1)
    assert stored.predict(tmp_path / "store.zarr").target.values.tolist() == list(stored.approximated)


@pytest.mark.parametrize("targets", [1, 2])
def test_no_chosen_column_predicts_the_mean_for_each_row_of_polars(targets):
    rng = np.random.default_rng(0)
    frame, y = pl.DataFrame(rng.standard_normal((40, 3))), rng.standard_normal((40, 2))[:, :targets]
    selection = dsel.select(frame, y, k="auto", choose_k="bic", method="forward")
    assert len(selection) == 0
    np.testing.assert_allclose(selection.predict(frame), np.broadcast_to(y.mean(axis=0), y.shape))

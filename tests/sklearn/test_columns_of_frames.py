"""A selector returns the columns of the frame that its selection names, whatever other columns the frame has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

import dsel
from dsel.sklearn import (
    BestSubsetSelector,
    ColumnSubsetSelector,
    ForwardSelector,
    GreedyRLSSelector,
    OMPSelector,
    SubsetClassifier,
    SubsetRegressor,
    SubsetSelector,
)

M = 120
RNG = np.random.default_rng(5)
SHOP = RNG.choice(["north", "south", "west"], M)
DAYS = pd.date_range("2024-01-01", periods=M)
NUMBERS = pd.DataFrame(RNG.normal(size=(M, 3)), columns=["price", "promo", "junk"])
Y = 3 * NUMBERS["price"] + 2 * NUMBERS["promo"] + 4 * (SHOP == "south") + RNG.normal(size=M)
WIDE = NUMBERS.assign(shop=SHOP)[["shop", "price", "promo", "junk"]]

#: Columns that are excluded, and the options that a frame without them needs.
EXCLUDED: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": ([f"c{i}" for i in range(M)], {}),
    "category": (pd.Categorical(RNG.choice(["a", "b"], M)), {"categories": "refuse"}),
    "date": (pd.date_range("2024-01-01", periods=M), {}),
}
ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "subset": (SubsetSelector, {}),
    "forward": (ForwardSelector, {"method": "forward"}),
    "omp": (OMPSelector, {"method": "omp"}),
    "best": (BestSubsetSelector, {"method": "branch-and-bound"}),
    "greedy-rls": (GreedyRLSSelector, {"method": "greedy-rls", "lam": 1.0}),
    "columns": (ColumnSubsetSelector, {}),
    "regressor": (SubsetRegressor, {}),
    "classifier": (SubsetClassifier, {"loss": "logistic", "lam": 1.0}),
}


def frame_with(kind: str, place: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a frame with a column `extra` of a kind at a place, and the options that it needs without it."""
    values, options = EXCLUDED[kind]
    frame = NUMBERS.copy() if options else WIDE.copy()
    frame.insert(place % (frame.shape[1] + 1), "extra", values)
    return frame, options


@pytest.mark.parametrize(
    ("name", "kind", "place"),
    [(name, kind, (0, 2, -1)[(i + j) % 3]) for i, name in enumerate(ESTIMATORS) for j, kind in enumerate(EXCLUDED)],
)
def test_selectors_return_what_select_selects_without_an_excluded_column(name: str, kind: str, place: int) -> None:
    frame, options = frame_with(kind, place)
    estimator, arguments = ESTIMATORS[name]
    y = np.where(Y > 0.0, "yes", "no") if name == "classifier" else Y
    for include in ([], ["junk"], [frame.columns.tolist().index("junk")]):
        for exclude in (["extra"], [frame.columns.tolist().index("extra")]):
            asked = {**options, "include": include, "exclude": exclude}
            expected = dsel.select(frame, None if name == "columns" else y, k=2, **asked, **arguments)
            fitted = estimator(2, **asked).fit(frame, y)
            columns = {label.split("=")[0] for label in expected.labels}
            assert fitted.selection_.labels == expected.labels
            assert set(fitted.get_feature_names_out()) == columns
            assert np.array_equal(fitted.transform(frame), frame[[c for c in frame.columns if c in columns]])
            assert "junk" in columns or not include
            if hasattr(fitted, "predict"):
                assert np.array_equal(fitted.predict(frame), fitted.predict(frame.assign(extra=frame["extra"].iloc[0])))


def test_the_columns_of_an_array_with_sources_are_its_own(tmp_path: Any) -> None:
    dsel.ingest(WIDE.assign(y=Y), tmp_path / "shop.zarr", target="y", categorical=["shop"])
    with xr.open_zarr(tmp_path / "shop.zarr") as store:
        array = store.X.load()
    expected = dsel.select(array, Y.to_numpy(), k=1, method="forward", exclude=["price"], categories="columns")
    selector = SubsetSelector(1, method="forward", exclude=["price"], categories="columns").fit(array, Y.to_numpy())
    assert selector.get_feature_names_out().tolist() == list(expected.labels)


class TestPositions:
    """A whole number is a position among the columns of a frame without targets, weights and offset."""

    @pytest.mark.parametrize("categories", ["groups", "columns"])
    @pytest.mark.parametrize("position", range(4))
    def test_they_count_the_columns_of_the_frame(self, position: int, categories: Any) -> None:
        label = WIDE.columns[position]
        depend = categories == "columns" and label == "shop"  # the indicators of a category, one by one
        for argument in ("exclude",) if depend else ("include", "exclude"):
            by_name, by_position = (
                dsel.select(WIDE, Y, k=3, method="forward", categories=categories, **{argument: [column]})
                for column in (label, position)
            )
            assert by_name.labels == by_position.labels
            chosen = {found.split("=")[0] for found in by_position.labels}
            assert (label in chosen) == (argument == "include")

    def test_targets_weights_and_offset_do_not_count(self) -> None:
        frame = WIDE.assign(y=RNG.poisson(2.0, M), w=1.0, o=0.0)[["y", "w", "o", *WIDE.columns]]
        asked: dict[str, Any] = {"k": 1, "sample_weight": "w", "offset": "o", "loss": "poisson"}
        assert dsel.select(frame, "y", include=[3], **asked).labels == ["junk"]

    def test_groups_take_them(self) -> None:
        for groups in ({"both": [0, 3]}, [[0, 3]], {0: "both", 3: "both"}):
            for categories in ("groups", "columns"):
                selection = dsel.select(WIDE, Y, k=1, include=[3], groups=groups, categories=categories)
                assert {label.split("=")[0] for label in selection.labels} == {"shop", "junk"}

    def test_a_position_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(dsel.errors.OptionError, match=r"no feature 4 among 4\. Positions go from 0 to 3"):
            dsel.select(WIDE, Y, k=1, exclude=[4])

    def test_a_proof_leaves_out_the_same_columns(self) -> None:
        selection = dsel.select(WIDE, Y, k=1, exclude=[0, 1])
        assert selection.labels == ["promo"]
        assert dsel.certify(selection, WIDE, Y).certificate[-1]["proven"]
        listed = dsel.alternatives(selection, WIDE, Y, within=0.99)
        assert set(listed.verdicts) <= {"promo", "junk"}


def test_the_name_of_a_category_stands_for_its_columns_where_they_are_chosen_one_by_one() -> None:
    selector = GreedyRLSSelector(4, include=["shop"]).fit(WIDE, Y)
    assert {"shop=north", "shop=south", "shop=west"} < set(selector.selection_.labels)
    with pytest.raises(ValueError, match="3 columns are included, and k is 2"):
        GreedyRLSSelector(2, include=["shop"]).fit(WIDE, Y)


def test_the_name_of_a_series_is_the_name_of_the_target() -> None:
    y, kind = pd.Series(Y, name="sales"), pd.Series(np.where(NUMBERS["price"] > 0.0, "high", "low"), name="kind")
    three = kind.where(NUMBERS["promo"] < 1.0, "top")
    for target in (y, kind, three):
        expected = dsel.select(NUMBERS, target, k=1).targets
        assert SubsetSelector(1).fit(NUMBERS, target).selection_.targets == expected
    assert SubsetSelector(1).fit(NUMBERS, y.rename(None)).selection_.targets == ("y0",)


def test_targets_keep_the_names_of_a_frame() -> None:
    targets = pd.DataFrame({"sales": Y, "visits": -Y})
    assert list(SubsetSelector(1).fit(NUMBERS, targets).selection_.targets) == ["sales", "visits"]


def test_several_variables_that_may_be_x_are_refused_with_what_works() -> None:
    cube = xr.Dataset(
        {"sst": (("time", "place"), RNG.normal(size=(9, 3))), "rain": (("time", "place"), np.ones((9, 3)))}
    )
    with pytest.raises(dsel.errors.DataError, match=r'Give one of them as X, such as dataset\["sst"\]'):
        dsel.select(cube, k=1)


#: Columns that arrays of numbers do not hold, and the options that they need.
OTHER: dict[str, tuple[Any, dict[str, Any]]] = {
    "dictionary": (pd.Series(SHOP).astype(pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))), {}),
    "arrow date": (pd.Series(DAYS).dt.date.astype(pd.ArrowDtype(pa.date32())), {"dates": "days"}),
    "arrow moment": (pd.Series(DAYS).astype(pd.ArrowDtype(pa.timestamp("us", tz="UTC"))), {"dates": "days"}),
    "date": (pd.Series(DAYS.date), {"dates": "days"}),
    "duration": (pd.Series(DAYS - DAYS[0]), {"dates": "days"}),
    "month": (pd.period_range("2024-01", periods=M, freq="M"), {"dates": "days"}),
}


@pytest.mark.parametrize("kind", OTHER)
def test_a_frame_may_hold_every_kind_of_column_that_select_takes(kind: str) -> None:
    values, options = OTHER[kind]
    frame = NUMBERS.assign(extra=values)
    fitted = SubsetRegressor(2, include=["extra"] if options else (), **options).fit(frame, Y)
    asked = {"include": ["extra"], **options} if options else {}
    assert fitted.selection_.labels == dsel.select(frame, Y, k=2, **asked).labels
    assert fitted.transform(frame).tolist() == fitted.set_output(transform="pandas").transform(frame).values.tolist()


@pytest.mark.parametrize("values", [[b"a", b"b"] * (M // 2), [[1.0]] * M], ids=["bytes", "lists"])
def test_a_column_that_select_refuses_has_its_error(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"column 'extra' holds no numbers .* Encode it, or leave the column out"):
        SubsetSelector(2).fit(NUMBERS.assign(extra=values), Y)


def test_the_index_of_a_frame_with_text_does_not_matter_for_classes() -> None:
    frame, y = WIDE[::-1], pd.Series(np.where(Y > 0.0, "yes", "no"))[::-1]
    assert SubsetSelector(2).fit(frame, y).selection_.labels == dsel.select(frame, y, k=2).labels


def test_a_masked_value_is_missing() -> None:
    X = np.ma.masked_greater(NUMBERS.to_numpy(), 1.0)
    with pytest.raises(ValueError, match=r"Input X contains NaN.*missing=.mean"):
        SubsetRegressor(2).fit(X, Y)
    fitted = SubsetRegressor(2, missing="mean").fit(X, Y)
    assert fitted.selection_.error == dsel.select(X, Y, k=2, missing="mean").error
    assert np.array_equal(fitted.predict(X), fitted.predict(X.filled(np.nan)))
    assert np.isnan(fitted.transform(X)).any()


def test_labels_that_are_no_text_name_columns() -> None:
    frame = NUMBERS.set_axis(pd.MultiIndex.from_product([["shop"], NUMBERS.columns]), axis=1)
    fitted = SubsetSelector(2, include=[("shop", "junk")]).fit(frame, Y)
    assert fitted.selection_.labels == dsel.select(frame, Y, k=2, include=[("shop", "junk")]).labels
    data = pytest.importorskip("anndata").AnnData(NUMBERS.set_axis(map(str, range(M)), axis=0))
    assert SubsetSelector(1, include=["junk"]).fit(data, Y).selection_.labels == ["junk"]


def test_equal_labels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'price' .2 times.. Give every column a unique name"):
        SubsetSelector(2).fit(pd.concat([NUMBERS, NUMBERS["price"]], axis=1), Y)


def test_targets_have_the_names_of_their_columns_and_classes() -> None:
    y = pd.DataFrame({"shop": SHOP, "sold": np.where(Y > 0.0, "yes", "no")})
    assert SubsetSelector(2).fit(NUMBERS, y).selection_.targets == dsel.select(NUMBERS, y, k=2).targets
    for name, of_loss in (("shop", "multinomial"), ("sold", "logistic")):
        expected = dsel.select(NUMBERS, y[name], k=2, loss=of_loss, lam=1.0)
        fitted = SubsetClassifier(2).fit(NUMBERS, y[name])
        assert fitted.selection_.targets == expected.targets
        assert np.allclose(fitted.coef_[:, fitted.indices_].T, expected.coefficients)


def test_an_error_about_the_weight_of_a_class_names_the_class() -> None:
    with pytest.raises(ValueError, match=r"class_weight is \{'west': 0.0\}"):
        SubsetClassifier(2, class_weight={"west": 0.0}).fit(NUMBERS, SHOP)

"""The selectors select what `dsel.select` selects, from every kind of data, and keep its kind."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
import xarray as xr
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline

import dsel
from dsel.sklearn import (
    BestSubsetSelector,
    ColumnSubsetSelector,
    ForwardSelector,
    GreedyRLSSelector,
    OMPSelector,
    SubsetSelector,
)
from tests.stores import regression

X, Y = regression(m=200, n=20)
y = Y[:, 0]
NAMES = [f"gene {j}" for j in range(20)]
FRAME = pd.DataFrame(X, columns=NAMES)

SAME = {
    "poss": (SubsetSelector(4), {}),
    "seed": (SubsetSelector(4, random_state=7), {"seed": 7}),
    "options": (SubsetSelector(4, options={"iterations": 500}), {"iterations": 500}),
    "exchange": (SubsetSelector(4, method="exchange", lam=2.0), {"method": "exchange", "lam": 2.0}),
    "forward": (ForwardSelector(4, preprocess="center"), {"method": "forward", "preprocess": "center"}),
    "omp": (OMPSelector(4, include=[0], exclude=[2]), {"method": "omp", "include": [0], "exclude": [2]}),
    "greedy-rls": (GreedyRLSSelector(4), {"method": "greedy-rls", "lam": 1.0}),
    "kfold": (GreedyRLSSelector(4, cv=5, lam=0.5), {"method": "kfold", "lam": 0.5, "folds": 5}),
    "earlier name of cv": (GreedyRLSSelector(4, folds=5), {"method": "kfold", "lam": 1.0, "folds": 5}),
    "splitter": (GreedyRLSSelector(4, cv=KFold(4)), {"method": "kfold", "lam": 1.0, "split": KFold(4)}),
    "best": (BestSubsetSelector(4), {"method": "branch-and-bound"}),
    "criterion": (SubsetSelector(2, criterion=len), {"criterion": len}),
}


@pytest.mark.parametrize("name", SAME)
def test_they_select_what_select_selects(name: str) -> None:
    selector, arguments = SAME[name]
    k = selector.n_features_to_select
    expected = dsel.select(X, y, k=k, **arguments)
    selector.fit(X, y)
    assert tuple(selector.indices_) == expected.indices
    assert selector.selection_.method == expected.method
    np.testing.assert_array_equal(selector.transform(X), X[:, np.sort(expected.indices)])


@pytest.mark.parametrize(("kind", "method"), [(ForwardSelector, "forward"), (OMPSelector, "omp")])
def test_each_runs_its_own_method_where_methods_differ(kind: type[SubsetSelector], method: str) -> None:
    mixed = X[:, :8].copy()
    mixed[:, 7] = mixed[:, 0] + mixed[:, 1] + 0.5 * mixed[:, 7]  # a greedy search takes it first
    summed = mixed[:, 0] + mixed[:, 1]
    assert tuple(kind(2).fit(mixed, summed).indices_) == dsel.select(mixed, summed, k=2, method=method).indices
    assert set(SubsetSelector(2).fit(mixed, summed).indices_) == {0, 1} != set(kind(2).fit(mixed, summed).indices_)


def test_column_subset_selection_ignores_y() -> None:
    found = ColumnSubsetSelector(3).fit(X, y)
    assert tuple(found.indices_) == dsel.select(X, k=3).indices == tuple(SubsetSelector(3).fit(X).indices_)


def _values(found: Any) -> Any:
    found = found.compute() if hasattr(found, "compute") else found
    return found.toarray() if hasattr(found, "toarray") else np.asarray(found)


KINDS: dict[str, Any] = {
    "sparse": scipy.sparse.csr_array(X),
    "pandas": FRAME,
    "pandas, mixed dtypes": FRAME.assign(**{"gene 3": X[:, 3] > 0, "gene 6": (X[:, 6] * 256).astype("int8")}),
    "pandas, nullable": FRAME.convert_dtypes(),
    "polars": pl.from_pandas(FRAME),
    "dask": da.from_array(X, chunks=(64, 7)),
    "dask frame": dd.from_pandas(FRAME, npartitions=3),
    "xarray": xr.DataArray(X, {"feature": NAMES}, dims=("sample", "feature")),
    "xarray of dask": xr.DataArray(X, {"feature": NAMES}, dims=("sample", "feature")).chunk({"sample": 64}),
    "xarray dataset": xr.Dataset({"X": (("sample", "feature"), X)}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_kind_of_data_is_taken_and_kept(kind: str) -> None:
    data = KINDS[kind]
    selector = ForwardSelector(3).fit(data, y)
    assert set(selector.indices_) == set(ForwardSelector(3).fit(X, y).indices_)
    assert selector.n_features_in_ == 20
    found = selector.transform(data)
    np.testing.assert_allclose(_values(found), X[:, selector.get_support(indices=True)])
    assert hasattr(found, "__dask_graph__") == hasattr(data, "__dask_graph__") or "dataset" in kind
    if "pandas" in kind or kind in ("polars", "dask frame", "xarray", "xarray of dask"):
        expected = [NAMES[j] for j in selector.get_support(indices=True)]
        assert selector.feature_names_in_.tolist() == NAMES
        assert selector.get_feature_names_out().tolist() == expected
    back = selector.inverse_transform(found)
    np.testing.assert_allclose(_values(back), np.where(selector.get_support(), X, 0.0))


def test_output_is_a_frame_on_demand() -> None:
    for data in (FRAME, KINDS["xarray of dask"], KINDS["dask frame"]):
        found = ForwardSelector(3).set_output(transform="pandas").fit_transform(data, y)
        assert isinstance(found, pd.DataFrame)
        assert list(found.columns) == [NAMES[j] for j in sorted(ForwardSelector(3).fit(X, y).indices_)]
    assert isinstance(ForwardSelector(3).set_output(transform="polars").fit_transform(FRAME, y), pl.DataFrame)


def test_include_takes_the_labels_of_a_frame() -> None:
    for data in (FRAME, pl.from_pandas(FRAME), KINDS["dask frame"], KINDS["xarray"]):
        selector = ForwardSelector(3, include=["gene 9"]).fit(data, y)
        assert selector.indices_[0] == 9
        assert selector.selection_.labels[0] == "gene 9"


def test_a_share_or_more_than_there_are_columns() -> None:
    assert ForwardSelector(0.2).fit(X, y).n_features_ == 4
    with pytest.warns(UserWarning, match="n_features_to_select=30 is greater than n_features=20"):
        assert ForwardSelector(30).fit(X, y).n_features_ == 20


def test_the_number_of_columns_may_be_chosen() -> None:
    noisy = y + np.random.default_rng(1).normal(size=200) * 3
    selector = SubsetSelector("auto", method="forward", max_k=7, choose_k={"folds": 4}).fit(X, noisy)
    expected = dsel.select(X, noisy, k="auto", method="forward", max_k=7, choose_k={"folds": 4})
    assert tuple(selector.indices_) == expected.indices
    assert selector.n_features_ == expected.k < 7
    assert OMPSelector("auto").fit(X, noisy).n_features_ > 1


def test_groups_of_columns_are_selected_together() -> None:
    groups = {"pair": ["gene 2", "gene 4"], "three": ["gene 5", "gene 6", "gene 8"]}
    for kind in (SubsetSelector, ForwardSelector, OMPSelector, BestSubsetSelector):
        selector = kind(2, groups=groups).fit(FRAME, y)
        assert set(selector.indices_) == {2, 4, 5, 6, 8}
    assert len(ColumnSubsetSelector(2, groups=groups).fit(FRAME).indices_) > 2
    assert ForwardSelector(2, groups=[list(range(12)), list(range(12, 20))]).fit(X, y).n_features_ == 20
    with pytest.raises(ValueError, match="X has 2 groups"):
        ForwardSelector(3, groups=[list(range(12)), list(range(12, 20))]).fit(X, y)


def test_weights_count_as_repeated_rows_and_are_routed() -> None:
    w = np.random.default_rng(0).integers(0, 3, size=200)
    noisy = y + np.random.default_rng(1).normal(size=200) * 3
    repeated = ForwardSelector(5).fit(X.repeat(w, axis=0), noisy.repeat(w))
    weighted = ForwardSelector(5).fit(X, noisy, sample_weight=w)
    np.testing.assert_array_equal(weighted.indices_, repeated.indices_)
    assert weighted.selection_.r2 == pytest.approx(repeated.selection_.r2)
    with sklearn.config_context(enable_metadata_routing=True):
        select = ForwardSelector(5).set_fit_request(sample_weight=True)
        model = make_pipeline(select, LinearRegression().set_fit_request(sample_weight=True))
        model.fit(X, noisy, sample_weight=w)
    np.testing.assert_array_equal(model[0].indices_, repeated.indices_)
    lazy = ForwardSelector(5).fit(da.from_array(X, chunks=(50, 20)), noisy, sample_weight=w)
    np.testing.assert_array_equal(lazy.indices_, repeated.indices_)


def test_groups_of_rows_are_left_out_together_and_routed() -> None:
    patients = np.random.default_rng(0).integers(0, 12, size=200)
    noisy = y + np.random.default_rng(1).normal(size=200) * 3
    splits = list(GroupKFold(3).split(X, noisy, patients))
    given = GreedyRLSSelector(4, cv=splits).fit(X, noisy)
    selector = GreedyRLSSelector(4, cv=GroupKFold(3)).fit(X, noisy, groups=patients)
    assert selector.selection_.path == given.selection_.path
    with sklearn.config_context(enable_metadata_routing=True):
        routed = GreedyRLSSelector(4, cv=GroupKFold(3)).set_fit_request(groups=True)
        model = make_pipeline(routed, LinearRegression()).fit(X, noisy, groups=patients)
    assert model[0].selection_.path == given.selection_.path
    by_number = dsel.select(X, noisy, k=4, method="kfold", lam=1.0, folds=3, row_groups=patients)
    assert GreedyRLSSelector(4, cv=3).fit(X, noisy, groups=patients).selection_.path == by_number.path
    for cv, groups, match in ((GroupKFold(3), None, "Give row_groups"), (None, patients, "groups need cv")):
        with pytest.raises(ValueError, match=match):
            GreedyRLSSelector(4, cv=cv).fit(X, noisy, groups=groups)


def test_missing_values_are_refused_or_filled_for_the_selection_alone() -> None:
    x = X.copy()
    x[3, 5] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        ForwardSelector(3).fit(x, y)
    selector = ForwardSelector(3, missing="mean").fit(x, y)
    assert 5 in selector.indices_
    assert np.isnan(selector.transform(x)).sum() == 1
    assert np.isnan(ForwardSelector(3, missing="mean").fit(da.from_array(x), y).transform(da.from_array(x))).sum() == 1


def test_a_proof_that_is_not_finished_is_told() -> None:
    rng = np.random.default_rng(0)
    hard, target = rng.normal(size=(60, 45)), rng.normal(size=60)
    with pytest.warns(ConvergenceWarning, match="without a proof"):
        selector = BestSubsetSelector(14, seconds=0.01).fit(hard, target)
    assert not selector.proven_
    assert selector.bound_ <= selector.selection_.error
    assert BestSubsetSelector(2).fit(hard, target).proven_


class TestClasses:
    KIND = np.digitize(X[:, 3], [-0.7, 0.7])
    TEXT = np.array(["low", "mid", "high"])[KIND]

    @pytest.mark.parametrize(
        "target",
        [
            TEXT, TEXT.astype(object), pd.Series(TEXT), pd.Series(TEXT, dtype="category"), pl.Series(TEXT.tolist()),
            pd.Series(TEXT, dtype="string"), da.from_array(TEXT.astype(object), chunks=70), TEXT[:, None],
        ],
    )  # fmt: skip
    def test_text_becomes_a_column_for_each_class(self, target: Any) -> None:
        selector = ForwardSelector(3).fit(X, target)
        assert list(selector.classes_) == ["high", "low", "mid"]
        assert selector.selection_.targets == ("high", "low", "mid")
        one_hot = (self.TEXT[:, None] == ["high", "low", "mid"]).astype(float)
        assert tuple(selector.indices_) == dsel.select(X, one_hot, k=3, method="forward").indices

    def test_two_classes_become_one_column(self) -> None:
        for target in (X[:, 3] > 0, np.where(X[:, 3] > 0, "yes", "no"), pd.Series(X[:, 3] > 0, dtype="boolean")):
            selector = ForwardSelector(2).fit(X, target)
            assert len(selector.classes_) == 2
            assert tuple(selector.indices_) == dsel.select(X, (X[:, 3] > 0) * 1.0, k=2, method="forward").indices

    def test_numbers_that_look_like_classes_are_noted(self) -> None:
        with pytest.warns(UserWarning, match="Y has 3 different whole numbers.*set task='classification'"):
            numbers = ForwardSelector(3).fit(X, self.KIND)
        assert not hasattr(numbers, "classes_")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            classes = ForwardSelector(3, task="classification").fit(X, self.KIND)
            ForwardSelector(3, task="regression").fit(X, self.KIND)
        assert classes.classes_.tolist() == [0, 1, 2]
        assert classes.selection_.targets == ("0", "1", "2")
        assert any("whole numbers" in note for note in dsel.select(X, self.KIND, k=2, method="forward").notes)
        assert not any("whole numbers" in note for note in dsel.select(X, y, k=2, method="forward").notes)

    def test_several_columns_of_classes_are_encoded_one_by_one(self) -> None:
        both = np.column_stack([self.TEXT, np.where(X[:, 8] > 0, "yes", "no")])
        selector = ForwardSelector(3).fit(X, both)
        assert [list(classes) for classes in selector.classes_] == [["high", "low", "mid"], ["no", "yes"]]
        assert selector.selection_.targets == ("y0=high", "y0=low", "y0=mid", "y1=yes")

    def test_the_zero_one_loss_counts_wrong_classes(self) -> None:
        selector = GreedyRLSSelector(2, loss="zero-one").fit(X, np.where(X[:, 3] > 0, "yes", "no"))
        assert selector.indices_[0] == 3
        assert selector.selection_.path[-1].accuracy > 0.9

    @pytest.mark.parametrize(
        ("target", "match"),
        [
            (["a"] * 200, "y has 1 class"),
            (["a", None] * 100, "classes in rows 1, 3, 5, 7, 9 and 95 more are missing"),
            ([{"a": 1}] * 200, "Unknown label type"),
        ],
    )
    def test_what_is_no_target_is_named(self, target: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            ForwardSelector(2).fit(X, np.array(target, dtype=object))


@pytest.mark.parametrize(
    ("selector", "match"),
    [
        (SubsetSelector(0), "n_features_to_select must be"),
        (SubsetSelector("most"), "n_features_to_select must be"),
        (SubsetSelector(1.5), "n_features_to_select must be"),
        (SubsetSelector(2, method="pos"), "poss"),
        (SubsetSelector(2, options={"iteration": 5}), "iteration"),
        (SubsetSelector(2, task="both"), "task must be"),  # type: ignore[arg-type]
        (SubsetSelector(2, include=["no such"]), "no such"),
        (SubsetSelector(2, cache=5), "cache must be"),
        (GreedyRLSSelector(2, folds=5, loss="zero-one"), "leave cv out"),
    ],
)
def test_wrong_parameters_are_value_errors(selector: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        selector.fit(X, y)


def test_other_columns_than_those_of_fit_are_refused() -> None:
    for fitted, other in (
        (KINDS["dask"], KINDS["dask"][:, :7]), (KINDS["xarray"], KINDS["xarray"][:, ::-1]),
        (KINDS["dask frame"], KINDS["dask frame"][NAMES[::-1]]), (FRAME, FRAME[NAMES[::-1]]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="feature"):
            ForwardSelector(2).fit(fitted, y).transform(other)
    with pytest.raises(NotFittedError):
        ForwardSelector(2).transform(KINDS["dask"])
    with pytest.raises(ValueError, match="2D"):
        ForwardSelector(2).fit(da.from_array(y), y)
    with pytest.raises(ValueError, match="requires y"):
        GreedyRLSSelector(2).fit(X, None)


def test_alternatives_are_listed_where_they_are_asked_for() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 9)) @ (np.eye(9) + rng.normal(size=(9, 9)) / 2)
    y, weights = X[:, :4] @ rng.normal(size=4) + 2 * rng.normal(size=40), rng.uniform(0.5, 2.0, 40)
    for weighted in (None, weights):
        plain = SubsetSelector(3).fit(X, y, sample_weight=weighted)
        assert plain.alternatives_ is None
        expected = dsel.alternatives(plain.selection_, X, y, within=0.05, sample_weight=weighted)
        for asked in (0.05, {"within": 0.05, "seconds": 100}):
            found = SubsetSelector(3, alternatives=asked).fit(X, y, sample_weight=weighted)
            assert found.alternatives_ == found.selection_.alternatives
            assert found.alternatives_.verdicts == expected.verdicts
            assert [row.error for row in found.alternatives_.subsets] == [row.error for row in expected.subsets]
    with pytest.raises(ValueError, match=r"'within' is 2.0"):
        SubsetSelector(3, alternatives=2.0).fit(X, y)

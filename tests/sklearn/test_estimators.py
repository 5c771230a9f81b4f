"""The classifier and the regressor predict by the best model on few columns, as scikit-learn's models there do."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.feature_selection import RFE, RFECV, SelectFromModel
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dsel.objective.losses.huber import Huber
from dsel.sklearn import ForwardSelector, SubsetClassifier, SubsetRegressor

RNG = np.random.default_rng(0)
M = 200
X = RNG.normal(size=(M, 12)) * np.linspace(1.0, 3.0, 12)
ETA = 0.9 * X[:, 3] - 0.6 * X[:, 7]
LABELS = np.where(ETA + RNG.logistic(size=M) > 1.0, "yes", "no")
COUNTS = RNG.poisson(np.exp(0.3 * ETA))


def scaled(estimator: Any, weights: Any = None) -> Any:
    """Return the selected columns with mean 0 and standard deviation 1."""
    return StandardScaler().fit_transform(estimator.transform(X), sample_weight=weights)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"yes": 3.0, "no": 0.5}])
@pytest.mark.parametrize("lam", [1.0, 10.0])
def test_it_is_logistic_regression_on_the_selected_columns(class_weight: Any, lam: float) -> None:
    w = RNG.uniform(0.5, 2.0, size=M)
    found = SubsetClassifier(3, lam=lam, class_weight=class_weight).fit(X, LABELS, sample_weight=w)
    yes = LABELS == "yes"
    shares = {"yes": 0.5 * w.sum() / w[yes].sum(), "no": 0.5 * w.sum() / w[~yes].sum()}
    factors = {None: {"yes": 1.0, "no": 1.0}, "balanced": shares}.get(
        class_weight if not isinstance(class_weight, dict) else "", class_weight
    )
    Z = scaled(found, w)
    model = LogisticRegression(C=1.0 / lam, tol=1e-12, max_iter=10_000)
    model.fit(Z, LABELS, sample_weight=w * np.where(yes, factors["yes"], factors["no"]))
    assert found.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(Z), atol=1e-6)
    np.testing.assert_allclose(found.decision_function(X), model.decision_function(Z), atol=1e-6)
    assert found.predict(X).tolist() == model.predict(Z).tolist()
    assert found.score(X, LABELS) == accuracy_score(LABELS, model.predict(Z))
    eta = X @ found.coef_[0] + found.intercept_
    np.testing.assert_allclose(eta, found.decision_function(X))


@pytest.mark.parametrize("labels", [LABELS == "yes", np.where(LABELS == "yes", 5, -3), pd.Categorical(LABELS)])
def test_labels_are_of_any_type(labels: Any) -> None:
    found = SubsetClassifier(2).fit(X, labels)
    np.testing.assert_allclose(found.predict_proba(X), SubsetClassifier(2).fit(X, LABELS).predict_proba(X))
    assert set(found.predict(X).tolist()) == set(np.asarray(labels).tolist())


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_many_classes_share_the_columns_of_multinomial_regression(class_weight: Any) -> None:
    labels = np.array(["blue", "green", "red"])[(np.c_[ETA, -ETA, X[:, 5]] + RNG.gumbel(size=(M, 3))).argmax(axis=1)]
    w = RNG.uniform(0.5, 2.0, size=M)
    found = SubsetClassifier(3, class_weight=class_weight).fit(X, labels, sample_weight=w)
    sums = {label: w[labels == label].sum() for label in np.unique(labels)}
    factors = np.array([1.0 if class_weight is None else w.sum() / (3.0 * sums[label]) for label in labels])
    Z = scaled(found, w)
    model = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(Z, labels, sample_weight=w * factors)
    assert found.classes_.tolist() == ["blue", "green", "red"]
    assert found.get_support(indices=True).tolist() == [3, 5, 7]
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(Z), atol=1e-6)
    scores = found.decision_function(X)
    np.testing.assert_allclose(scores, X @ found.coef_.T + found.intercept_)
    assert found.predict(X).tolist() == model.predict(Z).tolist()


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="y has one class only: 'yes'"):
        SubsetClassifier(2).fit(X, np.full(M, "yes"))
    with pytest.raises(ValueError, match="the rows with weight have one class only"):
        SubsetClassifier(2).fit(X, LABELS, sample_weight=(LABELS == "yes").astype(float))
    three = np.arange(M) % 3
    with pytest.raises(ValueError, match="No row with weight is in the class 2"):
        SubsetClassifier(2).fit(X, three, sample_weight=(three < 2).astype(float))


def test_frames_sparse_and_lazy_data_are_predicted() -> None:
    da = pytest.importorskip("dask.array")
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)])
    p = SubsetClassifier(2).fit(X, LABELS).predict_proba(X)
    found = SubsetClassifier(2).fit(frame, LABELS)
    np.testing.assert_allclose(found.predict_proba(frame), p)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.rename(columns={"c0": "other"}))
    found = SubsetClassifier(2).fit(scipy.sparse.csr_array(X), LABELS)
    np.testing.assert_allclose(found.predict_proba(scipy.sparse.csr_array(X)), p)
    lazy = da.from_array(X, chunks=(50, 12))
    found = SubsetClassifier(2).fit(lazy, da.from_array((LABELS == "yes").astype(int), chunks=50))
    np.testing.assert_allclose(found.predict_proba(lazy), p)


def test_missing_values_are_the_means_also_in_predictions() -> None:
    holes = X.copy()
    holes[::7, 3] = np.nan
    found = SubsetClassifier(2, missing="mean").fit(holes, LABELS)
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    np.testing.assert_allclose(found.predict_proba(holes), found.predict_proba(filled))


def test_searches_and_pipelines_take_it() -> None:
    search = GridSearchCV(SubsetClassifier(), {"n_features_to_select": [1, 2]}, scoring="neg_log_loss", cv=3)
    assert search.fit(X, LABELS).best_params_ == {"n_features_to_select": 2}
    scores = cross_val_score(make_pipeline(StandardScaler(), SubsetClassifier(2)), X, LABELS, cv=3)
    assert (scores > 0.7).all()
    assert clone(SubsetClassifier(2, lam=3.0)).lam == 3.0
    found = pickle.loads(pickle.dumps(SubsetClassifier(2).fit(X, LABELS)))
    assert found.predict(X).tolist() == SubsetClassifier(2).fit(X, LABELS).predict(X).tolist()


def test_the_number_of_columns_is_chosen_by_bic() -> None:
    assert SubsetClassifier("auto", max_k=6, lam=0.0).fit(X, LABELS).get_support(indices=True).tolist() == [3, 7]


def test_counts_are_predicted_as_by_poisson_regression() -> None:
    found = SubsetRegressor(3, loss="poisson", lam=4.0).fit(X, COUNTS)
    Z = scaled(found)
    model = PoissonRegressor(alpha=4.0 / M, solver="newton-cholesky", tol=1e-12).fit(Z, COUNTS)
    np.testing.assert_allclose(found.predict(X), model.predict(Z), rtol=1e-6)
    assert found.score(X, COUNTS) == pytest.approx(model.score(Z, COUNTS), rel=1e-6)
    np.testing.assert_allclose(np.exp(X @ found.coef_ + found.intercept_), found.predict(X))


def test_the_squared_error_gives_least_squares() -> None:
    y = ETA + RNG.normal(size=M)
    found = SubsetRegressor(2).fit(X, y)
    model = LinearRegression().fit(found.transform(X), y)
    np.testing.assert_allclose(found.predict(X), model.predict(found.transform(X)))
    assert found.score(X, y) == pytest.approx(model.score(found.transform(X), y))


def test_bad_targets_are_refused() -> None:
    with pytest.raises(ValueError, match='loss="poisson" takes targets >= 0'):
        SubsetRegressor(2, loss="poisson").fit(X, COUNTS - 1)
    with pytest.raises(ValueError, match="use SubsetClassifier"):
        SubsetRegressor(2).fit(X, LABELS)
    with pytest.raises(ValueError, match=r"There is no loss 'possion'\. Did you mean"):
        SubsetRegressor(2, loss="possion").fit(X, COUNTS)


def test_several_targets_are_refused_with_the_remedy() -> None:
    both = np.column_stack([X[:, 0], X[:, 1]])
    with pytest.raises(ValueError, match=r"SubsetRegressor takes one target.*\(\d+, 2\).*SubsetSelector"):
        SubsetRegressor(2).fit(X, both)
    with pytest.raises(ValueError, match="SubsetClassifier takes one target"):
        SubsetClassifier(2).fit(X, (both > 0.0).astype(int))
    assert MultiOutputRegressor(SubsetRegressor(2)).fit(X, both).predict(X) == pytest.approx(both)


@pytest.mark.parametrize("data", ["array", "frame", "sparse"])
def test_selectors_by_coefficients_choose_the_columns_of_the_estimator(data: str) -> None:
    given: Any = {"array": X, "frame": pd.DataFrame(X).add_prefix("c"), "sparse": scipy.sparse.csr_array(X)}[data]
    three = np.digitize(X[:, 3] - X[:, 8], [-2.0, 2.0])
    cases = ((SubsetClassifier, LABELS, (1, 12)), (SubsetClassifier, three, (3, 12)), (SubsetRegressor, ETA, (12,)))
    for estimator, y, shape in cases:
        found = estimator(2).fit(given, y)
        chosen = found.get_support(indices=True).tolist()
        assert found.coef_.shape == shape
        assert np.flatnonzero(np.atleast_2d(found.coef_).any(axis=0)).tolist() == chosen
        np.testing.assert_array_equal(clone(found).fit(given, y).coef_, pickle.loads(pickle.dumps(found)).coef_)
        for selector in (
            RFE(estimator(2), n_features_to_select=2, step=5),
            RFECV(estimator(2), min_features_to_select=2, step=5, cv=2),
            SelectFromModel(estimator(2), threshold=1e-12),
            SelectFromModel(found, threshold=1e-12, prefit=True),
            SelectFromModel(estimator(2), threshold=-np.inf, max_features=2),
        ):
            assert selector.fit(given, y).get_support(indices=True).tolist() == chosen
    if data == "frame":
        selector = SelectFromModel(SubsetRegressor(2), threshold=1e-12).set_output(transform="pandas")
        assert selector.fit_transform(given, ETA).columns.tolist() == ["c3", "c7"]


def test_excluded_columns_and_dates_have_a_place_among_the_coefficients() -> None:
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(built=pd.date_range("2020-01-01", periods=M))
    found = SubsetRegressor(2, dates="days", exclude=["a"]).fit(frame, X[:, 2] + 0.5 * np.arange(M))
    assert found.coef_ == pytest.approx([0.0, 0.0, 1.0, 0.5])
    frame.insert(0, "kind", np.arange(M) % 3 > 0)
    text = frame.astype({"kind": str})[["kind", "b", "c"]]
    found = SubsetRegressor(1, exclude=["kind"]).fit(text, X[:, 2])
    assert found.coef_ == pytest.approx([0.0, 0.0, 1.0])


def test_indicator_columns_have_coefficients_by_label_and_no_place_in_coef() -> None:
    kind = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    frame = pd.DataFrame({"kind": kind, "size": X[:, 0], "noise": X[:, 1]})
    y = 3.0 * (kind == "b") - 2.0 * (kind == "c") + X[:, 0]
    fitted = SubsetRegressor(2).fit(frame, y)
    assert set(fitted.feature_names_in_[fitted.indices_]) == {"kind", "size"}
    named = dict(zip(fitted.selection_.labels, fitted.selection_.coefficients[:, 0], strict=True))
    assert named["size"] == pytest.approx(1.0)
    assert named["kind=b"] - named["kind=c"] == pytest.approx(5.0)
    with pytest.raises(AttributeError, match=r"'kind' became indicator columns\. selection_\.coefficients has"):
        _ = fitted.coef_
    with pytest.raises(ValueError, match="SubsetRegressor should have `coef_`"):
        SelectFromModel(SubsetRegressor(2)).fit(frame, y).transform(frame)
    assert fitted.fit(frame[["size", "noise"]], X[:, 0]).coef_ == pytest.approx([1.0, 0.0])


def test_a_loss_keeps_its_parameters() -> None:
    assert SubsetRegressor(2, loss=Huber(0.7)).fit(X, ETA + RNG.standard_t(2, size=M)).selection_.loss == Huber(0.7)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_estimators_predict_frames_with_categories_and_dates(loss: str) -> None:
    rng = np.random.default_rng(4)
    energy, days = rng.choice(["A", "B", "C"], 90), rng.integers(0, 900, 90)
    built = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")
    frame = pd.DataFrame({"size": rng.normal(size=90), "built": built, "energy": energy})
    y = rng.poisson(np.exp(0.5 * frame["size"] + days / 900 + (energy == "A")))
    options: dict[str, Any] = {"dates": "days", "categories": "columns", "method": "forward"}
    regressor = SubsetRegressor(3, loss=loss, **options).fit(frame, y)
    np.testing.assert_array_equal(regressor.predict(frame), regressor.selection_.predict(frame))
    np.testing.assert_allclose(regressor.score(frame, y), regressor.selection_.r2, rtol=1e-6)
    assert regressor.transform(frame).shape[0] == 90
    search = GridSearchCV(SubsetRegressor(loss=loss, **options), {"n_features_to_select": [1, 3]}, error_score="raise")
    assert search.fit(frame, y).best_params_ == {"n_features_to_select": 3}
    classifier = SubsetClassifier(3, **options).fit(frame, np.where(y > 2, "many", "few"))
    assert classifier.score(frame, np.where(y > 2, "many", "few")) > 0.6
    with pytest.raises(ValueError, match="contains NaN in a selected column"):
        regressor.predict(frame.assign(energy=None))


def test_the_error_for_missing_values_names_the_remedy() -> None:
    X = np.random.default_rng(5).normal(size=(40, 4))
    holes = np.where(X > 1.5, np.nan, X)
    for fit in (
        lambda: SubsetRegressor(2).fit(holes, X[:, 0]),
        lambda: ForwardSelector(2).fit(holes, X[:, 0]),
        lambda: SubsetRegressor(2).fit(X, X[:, 0]).predict(holes),
    ):
        with pytest.raises(ValueError, match=r"NaN. Fill it in, or fit with missing=.mean."):
            fit()
    assert SubsetRegressor(2, missing="mean").fit(holes, X[:, 0]).predict(holes).shape == (40,)

"""What users do with a selection by a loss: predict, score, save, print, report and draw it."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import xarray as xr
from sklearn.linear_model import GammaRegressor, HuberRegressor, LogisticRegression, PoissonRegressor, QuantileRegressor
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    d2_tweedie_score,
    log_loss,
    mean_pinball_loss,
    roc_auc_score,
    roc_curve,
)

import dsel
from dsel._lib.types import Floats
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.quantile import Quantile
from dsel.search.exact.losses import relaxation
from dsel.selection.results.predict_store import predict_store
from dsel.sklearn import SubsetRegressor
from tests.cli.test_cli import invoke
from tests.stores import make_store

RNG = np.random.default_rng(0)
M = 240
X = RNG.normal(size=(M, 10))
ETA = 1.2 * X[:, 3] - 0.8 * X[:, 7] + 0.3
CLASSES = (ETA + RNG.logistic(size=M) > 0).astype(float)
COUNTS = RNG.poisson(np.exp(0.5 * ETA)).astype(float)
AMOUNTS = RNG.gamma(3.0, np.exp(0.5 * ETA) / 3.0)
NUMBERS = ETA + RNG.standard_t(2, size=M)
EXPOSURE = RNG.uniform(0.5, 4.0, size=M)


def scaled(selection: Any) -> Any:
    """Return the chosen columns with mean 0 and standard deviation 1."""
    Z = X[:, selection.indices]
    return (Z - Z.mean(axis=0)) / Z.std(axis=0)


# The fits are those of scikit-learn. Its penalties: C = 1 / lam; alpha = lam / m for means of half a deviance; and for
# Huber's loss with a fixed scale alpha = lam.


@pytest.mark.parametrize("lam", [0.5, 20.0])
def test_probabilities_are_those_of_logistic_regression(lam: float) -> None:
    s = dsel.select(X, CLASSES, k=3, loss="logistic", lam=lam)
    Z = scaled(s)
    model = LogisticRegression(C=1.0 / lam, tol=1e-12, max_iter=10_000).fit(Z, CLASSES)
    np.testing.assert_allclose(s.predict(X), model.predict_proba(Z)[:, 1], atol=1e-6)
    np.testing.assert_allclose(s.predict(X, kind="link"), model.decision_function(Z), atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "y", "model"), [("poisson", COUNTS, PoissonRegressor), ("gamma", AMOUNTS, GammaRegressor)]
)
@pytest.mark.parametrize("lam", [0.0, 5.0])
def test_expected_counts_and_amounts_are_those_of_the_regressions(loss: str, y: Any, model: Any, lam: float) -> None:
    s = dsel.select(X, y, k=3, loss=loss, lam=lam)
    Z = scaled(s)
    expected = model(alpha=lam / M, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(Z, y)
    np.testing.assert_allclose(s.predict(X), expected.predict(Z), rtol=1e-6)
    assert s.score(X, y)["d2"] == pytest.approx(expected.score(Z, y), rel=1e-6)
    assert s.score(X, y)["d2"] == pytest.approx(s.r2, rel=1e-9)
    assert s.score(X, y)["d2"] == pytest.approx(
        d2_tweedie_score(y, s.predict(X), power=1 if loss == "poisson" else 2), rel=1e-6
    )


def test_predictions_by_hubers_loss_are_those_of_the_regression_at_its_scale() -> None:
    model = HuberRegressor(epsilon=1.5, alpha=0.0, tol=1e-12, max_iter=10_000).fit(X[:, [3, 7]], NUMBERS)
    s = dsel.select(X[:, [3, 7]], NUMBERS, k=2, loss=Huber(1.5 * model.scale_))
    found, expected = s.predict(X[:, [3, 7]]), model.predict(X[:, [3, 7]])
    np.testing.assert_allclose(found, expected, atol=1e-5)  # the minimizer of scikit-learn ends early
    theirs = float(s.loss.deviance(NUMBERS, expected).sum())
    assert theirs * (1.0 - 1e-6) <= s.error <= theirs


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_quantiles_are_those_of_the_regression_but_for_smoothing(tau: float) -> None:
    Z = X[:, [3, 7]]
    s = dsel.select(Z, NUMBERS, k=2, loss=Quantile(tau))
    model = QuantileRegressor(quantile=tau, alpha=0.0).fit(Z, NUMBERS)
    theirs, ours = (M * mean_pinball_loss(NUMBERS, p, alpha=tau) for p in (model.predict(Z), s.predict(Z)))
    error = M * max(tau, 1.0 - tau) ** 2 * s.loss.width / 2.0
    assert s.error <= theirs <= ours <= s.error + error
    assert (s.predict(Z) > NUMBERS).mean() == pytest.approx(tau, abs=0.05)
    assert any(f"the quantile {tau:g}, smoothed" in note for note in s.notes)
    below = (s.predict(Z) > NUMBERS).mean()
    said = f"{below:.1%} of the rows are below the predicted quantile {tau:g}"
    (note,) = (note for note in s.notes if note.startswith(said))
    assert (": a smaller width" in note) == (abs(below - tau) > 3 / M + 1e-9)  # 3 coefficients


def test_with_weights_the_share_below_a_quantile_is_of_the_weight() -> None:
    w = RNG.uniform(0.5, 2.0, size=M)
    s = dsel.select(X[:, [3, 7]], NUMBERS, k=2, loss=Quantile(0.3), sample_weight=w)
    below = w @ (s.predict(X[:, [3, 7]]) > NUMBERS) / w.sum()
    assert any(note.startswith(f"{below:.1%} of the weight of the rows is below") for note in s.notes)


def test_few_rows_have_no_note_on_a_smaller_width_which_would_not_help() -> None:
    s = dsel.select(X[:40], NUMBERS[:40], k=3, loss={"quantile": {"level": 0.999}})
    share = (s.predict(X[:40]) > NUMBERS[:40]).mean()
    assert share < 0.98
    assert f"{share:.1%} of the rows are below the predicted quantile 0.999" in s.notes


def test_a_smaller_width_brings_the_share_of_rows_to_the_level_as_the_note_says() -> None:
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(400, 4))
    y = 2 * columns[:, 0] - columns[:, 2] + rng.normal(size=400)
    s = dsel.select(columns, y, k=2, loss={"quantile": {"level": 0.95}})
    (note,) = (note for note in s.notes if "of the rows are below" in note)
    options = json.loads(re.search(r"loss=(\{.*\}\})", note)[1])
    narrow = dsel.select(columns, y, k=2, loss=options)
    shares = [(y < one.predict(columns)).mean() for one in (s, narrow)]
    assert abs(shares[1] - 0.95) < 0.005 < 0.01 <= abs(shares[0] - 0.95)
    assert note.startswith(f"{shares[0]:.1%} of the rows")
    assert f"{shares[1]:.1%} of the rows are below the predicted quantile 0.95" in narrow.notes
    exact = dsel.select(columns, columns[:, 0], k=1, loss={"quantile": {"level": 0.95}})
    assert not any("a smaller width" in one for one in exact.notes)


def test_the_note_on_the_share_of_rows_is_about_the_columns_of_the_proof() -> None:
    s = dsel.select(X, NUMBERS, k=2, exclude=[3], loss=Quantile(0.9))
    missed = replace(s, request=s.request.model_copy(update={"exclude": ()}))
    found = dsel.certify(missed, X, NUMBERS)
    assert found.labels != s.labels
    (note,) = (note for note in found.notes if "of the rows are below" in note)
    assert note.startswith(f"{(found.predict(X) > NUMBERS).mean():.1%} ")


def test_a_narrow_parabola_is_fitted_exactly() -> None:
    s = dsel.select(X[:, [3, 7]], NUMBERS, k=2, loss=Quantile(0.5, width=1e-3))
    model = QuantileRegressor(quantile=0.5, alpha=0.0).fit(X[:, [3, 7]], NUMBERS)
    theirs = M * mean_pinball_loss(NUMBERS, model.predict(X[:, [3, 7]]))
    assert s.error == pytest.approx(theirs, rel=1e-3)
    assert s.error <= theirs


@pytest.mark.parametrize(("seed", "tau", "width"), [(3, 0.1, None), (4, 0.9, None), (0, 0.02, 0.01)])
def test_the_best_columns_for_a_quantile_are_proved_without_a_penalty(
    seed: int, tau: float, width: float | None
) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(60, 7))
    y = columns[:, 0] * 0.5 + 0.4 * columns[:, 3] + rng.standard_t(2, size=60)
    loss = Quantile(tau, width)
    found = dsel.certify(dsel.select(columns, y, k=2, loss=loss), columns, y)
    assert found.certificate[-1]["status"] == "optimal"
    pairs = [dsel.select(columns[:, S], y, k=2, loss=loss, method="forward").error for S in combinations(range(7), 2)]
    assert found.error == pytest.approx(min(pairs), rel=1e-6)


def test_a_proof_whose_fits_do_not_converge_says_that_time_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxation, "_STEPS", 3)
    found = dsel.certify(dsel.select(X, NUMBERS, k=2, loss=Quantile(0.1)), X, NUMBERS)
    assert found.certificate[-1]["status"] != "optimal"
    assert "All nodes are closed, but fits by the loss do not converge: more time does not help." in str(found)
    monkeypatch.undo()
    again = dsel.certify(found, X, NUMBERS)
    assert again.certificate[-1]["status"] == "optimal"
    assert "more time does not help" not in str(again)


def test_a_proof_for_separable_classes_says_that_time_does_not_help() -> None:
    column = np.linspace(-1.0, 1.0, 40)[:, None]
    classes = (column[:, 0] > 0.0).astype(int)
    found = dsel.certify(dsel.select(column, classes, k=1, loss="logistic"), column, classes)
    certificate = found.certificate[-1]
    assert (certificate["closed"], certificate["proven"]) == (True, False)
    assert "more time does not help. A larger ridge penalty (lam) does" in str(found)
    penalized = dsel.certify(dsel.select(column, classes, k=1, loss="logistic", lam=0.1), column, classes)
    assert penalized.certificate[-1]["status"] == "optimal"
    assert "more time" not in str(penalized)


def test_what_no_quantile_loss_takes() -> None:
    with pytest.raises(OptionError, match="between 0 and 1"):
        Quantile(1.0)
    with pytest.raises(OptionError, match="width is 0"):
        Quantile(0.5, 0)
    with pytest.raises(DataError, match="robust spread is 0"):
        dsel.select(X, np.where(np.arange(M) < 10, 1.0, 0.0), k=1, loss="quantile")


def test_scores_of_classes_are_those_of_scikit_learn() -> None:
    half = M // 2
    s = dsel.select(X[:half], CLASSES[:half], k=2, loss="logistic", lam=1.0)
    w = np.tile([1.0, 2.0, 0.5], half // 3)
    new, y = X[half:], CLASSES[half:]
    p = s.predict(new)
    found = s.score(new, y, sample_weight=w)
    assert found["auc"] == pytest.approx(roc_auc_score(y, p, sample_weight=w), rel=1e-12)
    assert found["log_loss"] == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-9)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, p > 0.5, sample_weight=w), rel=1e-12)
    constant = np.full(half, np.average(y, weights=w))
    null = 2.0 * w.sum() * log_loss(y, constant, sample_weight=w)
    assert found["d2"] == pytest.approx(1.0 - found["deviance"] / null, rel=1e-9)


def test_d2_of_a_quantile_compares_with_the_best_constant() -> None:
    s = dsel.select(X, NUMBERS, k=1, loss={"quantile": {"level": 0.8, "width": 0.05}})
    for seed in (68, 193):
        rng = np.random.default_rng(seed)
        y, w = rng.standard_t(1.5, size=20), rng.uniform(0.2, 2.0, 20)
        constants = (y[:, None] + np.linspace(-0.05, 0.05, 101)).ravel()
        null = min(float(w @ s.loss.deviance(y, np.full(20, constant))) for constant in constants)
        found = s.score(X[:20], y, sample_weight=w)
        assert found["d2"] == pytest.approx(1.0 - found["deviance"] / null, abs=1e-6)


def test_equal_scores_share_a_step_of_the_roc_curve() -> None:
    binary = (X[:, :3] > 0).astype(float)
    s = dsel.select(binary, CLASSES, k=1, loss="logistic")
    assert s.score(binary, CLASSES)["auc"] == pytest.approx(roc_auc_score(CLASSES, s.predict(binary)), rel=1e-12)


def test_the_squared_error_has_scores_too() -> None:
    s = dsel.select(X, NUMBERS, k=2)
    found = s.score(X, NUMBERS)
    assert found.keys() == {"deviance", "r2"}
    assert found["r2"] == pytest.approx(s.r2, rel=1e-9)


def test_scores_refuse_other_targets() -> None:
    s = dsel.select(X, CLASSES, k=1, loss="logistic")
    with pytest.raises(DataError, match="y has the value 2, and the classes are 0 and 1"):
        s.score(X, CLASSES + 1)
    with pytest.raises(DataError, match="y has 3 values, and X has 240 rows"):
        s.score(X, CLASSES[:3])
    with pytest.raises(DataError, match="y is not finite in row 1"):
        s.score(X, np.where(np.arange(M) == 1, np.nan, CLASSES))
    with pytest.raises(DataError, match="y has the class no, and the classes are 0, 1"):
        s.score(X, np.where(CLASSES > 0, "yes", "no"))


@pytest.mark.parametrize("offset", [None, EXPOSURE[:20]])
@pytest.mark.parametrize(
    ("loss", "y", "value", "deviance"),
    [
        ("logistic", CLASSES, 1.0, lambda eta, p: 2.0 * np.log1p(np.exp(-eta))),
        ("logistic", CLASSES, 0.0, lambda eta, p: 2.0 * np.log1p(np.exp(eta))),
        ("poisson", COUNTS, 0.0, lambda eta, p: 2.0 * p),
    ],
)
def test_rows_whose_best_constant_is_infinite_have_a_deviance_and_no_d2(
    loss: str, y: Any, value: float, deviance: Any, offset: Any
) -> None:
    s = dsel.select(X, y, k=2, loss=loss, offset=None if offset is None else EXPOSURE)
    new = X[:20]
    link, mean = s.predict(new, offset=offset, kind="link"), s.predict(new, offset=offset)
    found = s.score(new, np.full(20, value), offset=offset)
    assert found["deviance"] == pytest.approx(deviance(link, mean).sum(), rel=1e-9)
    assert np.isnan(found["d2"])
    assert loss == "poisson" or np.isnan(found["auc"])
    weighted = s.score(new, y[:20], sample_weight=(y[:20] == value).astype(float), offset=offset)
    assert np.isnan(weighted["d2"])


@pytest.mark.parametrize(
    ("loss", "y"), [("squared", NUMBERS), ("huber", NUMBERS), ("quantile", NUMBERS), ("gamma", AMOUNTS)]
)
def test_equal_targets_have_no_d2(loss: str, y: Any) -> None:
    found = dsel.select(X, y, k=2, loss=loss).score(X[:7], np.full(7, 0.1))  # the mean of 7 times 0.1 is not 0.1
    assert np.isnan(found["r2" if loss == "squared" else "d2"])
    assert found["deviance"] > 0.0


def test_several_equal_targets_have_no_r2() -> None:
    Y = np.column_stack([NUMBERS, COUNTS])
    equal = np.column_stack([NUMBERS[:7], np.full(7, 0.1)])
    for preprocess, constants in (("standardize", equal), ("center", np.full((7, 2), 0.1))):
        found = dsel.select(X, Y, k=2, preprocess=preprocess).score(X[:7], constants)
        assert np.isnan(found["r2"]), preprocess


def test_a_class_without_a_row_leaves_the_area_of_three_classes_undefined() -> None:
    classes = np.digitize(NUMBERS, [-0.5, 0.7])
    s = dsel.select(X, classes, k=2, loss="multinomial")
    found = s.score(X[classes < 2], classes[classes < 2])
    assert np.isnan(found["auc"])
    assert np.isfinite(found["d2"])


def test_folds_and_estimators_take_rows_whose_counts_are_all_0() -> None:
    order = np.argsort(COUNTS, kind="stable")
    rule = {"folds": 5, "split": "blocks"}
    assert not COUNTS[order][: M // 5].any()  # the first block
    curve = dsel.select(X[order], COUNTS[order], k="auto", max_k=2, loss="poisson", choose_k=rule).size_curve
    assert curve is not None
    assert np.isfinite([point.value for point in curve.points]).all()
    assert np.isnan(SubsetRegressor(2, loss="poisson").fit(X, COUNTS).score(X[:9], np.zeros(9)))


def test_an_offset_is_given_again_to_predict() -> None:
    offset = np.log(EXPOSURE)
    s = dsel.select(X, COUNTS, k=2, loss="poisson", offset=offset)
    rates = s.predict(X, offset=0)
    np.testing.assert_allclose(s.predict(X, offset=offset), EXPOSURE * rates, rtol=1e-12)
    np.testing.assert_allclose(s.predict(X, offset=offset, kind="link"), offset + np.log(rates), rtol=1e-9, atol=1e-12)
    assert s.score(X, COUNTS, offset=offset)["deviance"] == pytest.approx(s.error, rel=1e-9)
    assert s.score(X, COUNTS, offset=offset)["d2"] == pytest.approx(s.r2, rel=1e-9)
    with pytest.raises(DataError, match="there is none for these rows"):
        s.predict(X)
    with pytest.raises(DataError, match=r"offset has shape \(3,\), and X has 240 rows"):
        s.predict(X, offset=np.zeros(3))
    with pytest.raises(OptionError, match="other data in memory"):
        s.predict(X, offset="exposure")
    with pytest.raises(OptionError, match="offset needs a loss"):
        dsel.select(X, COUNTS, k=2).predict(X, offset=offset)


def test_predictions_are_of_the_kind_of_the_data() -> None:
    da, pl = pytest.importorskip("dask.array"), pytest.importorskip("polars")
    import dask.dataframe as dd

    names = [f"c{j}" for j in range(10)]
    frame = pd.DataFrame(X, columns=names, index=np.arange(M) + 7)
    s = dsel.select(frame, CLASSES, k=2, loss="logistic")
    p = s.predict(frame.to_numpy())
    assert ((p > 0) & (p < 1)).all()
    series = s.predict(frame)
    assert isinstance(series, pd.Series)
    assert series.index.equals(frame.index)
    np.testing.assert_allclose(series, p)
    lazy = s.predict(da.from_array(X, chunks=(100, 10)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), p)
    np.testing.assert_allclose(s.predict(dd.from_pandas(frame, npartitions=3)).compute(), p)
    found = s.predict(pl.DataFrame(X, schema=names))
    assert isinstance(found, pl.Series)
    np.testing.assert_allclose(found.to_numpy(), p)
    table = dsel.select(frame, CLASSES[:, None], k=2, loss="logistic")
    for kind in (frame, pl.DataFrame(X, schema=names)):
        for offset in (0.5, np.full(M, 0.5)):
            shifted = table.predict(kind, offset=offset)
            assert type(shifted) is type(kind)
            np.testing.assert_allclose(shifted.to_numpy()[:, 0], s.predict(X, offset=0.5))
    array = s.predict(xr.DataArray(X, dims=("sample", "feature"), coords={"feature": names}))
    assert isinstance(array, xr.DataArray)
    np.testing.assert_allclose(array.values, p)
    with pytest.raises(OptionError, match="kind is 'median'"):
        s.predict(X, kind="median")  # type: ignore[arg-type]


def test_a_store_is_predicted_block_by_block_with_its_offset(tmp_path: Path) -> None:
    offset = np.log(EXPOSURE)
    data = xr.Dataset(
        {"X": (("sample", "feature"), X), "Y": (("sample", "target"), COUNTS[:, None]), "exposure": ("sample", offset)}
    )
    store = tmp_path / "data.zarr"
    data.chunk({"sample": 50, "feature": 5}).to_zarr(store, consolidated=False)
    s = dsel.select(store, k=2, loss="poisson", offset="exposure")
    s.save(tmp_path / "result")
    expected = s.predict(X, offset=offset)[:, 0]
    np.testing.assert_allclose(np.asarray(s.predict(store))[:, 0], expected, rtol=1e-12)
    predict_store(s, store, tmp_path / "a.zarr")
    np.testing.assert_allclose(xr.open_zarr(tmp_path / "a.zarr").prediction.values[:, 0], expected, rtol=1e-12)
    predict_store(s, store, tmp_path / "b.zarr", offset=0)
    np.testing.assert_allclose(xr.open_zarr(tmp_path / "b.zarr").prediction.values[:, 0], expected / EXPOSURE)
    invoke("predict", tmp_path / "result", store, tmp_path / "c.zarr", "--link")
    np.testing.assert_allclose(
        xr.open_zarr(tmp_path / "c.zarr").prediction.values[:, 0], np.log(expected), rtol=1e-9, atol=1e-12
    )
    invoke("predict", tmp_path / "result", store, tmp_path / "d.zarr", "--offset", "exposure")
    np.testing.assert_allclose(xr.open_zarr(tmp_path / "d.zarr").prediction.values[:, 0], expected, rtol=1e-12)
    for given in (None, "exposure", offset):
        assert s.score(store, COUNTS, offset=given)["d2"] == pytest.approx(s.r2, rel=1e-9)
    with pytest.raises(DataError, match=r"no variable other of offsets; of numbers over its samples it has exposure\."):
        predict_store(s, store, tmp_path / "e.zarr", offset="other")


def test_an_offset_is_ingested_as_a_target_and_is_then_none(tmp_path: Path) -> None:
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(count=COUNTS, hours=np.log(EXPOSURE))
    store = tmp_path / "data.zarr"
    half = len(table) // 2
    dsel.ingest(table[:half], store, target=["count", "hours"])
    dsel.append(table[half:], store)
    found = dsel.select(store, k=2, loss="poisson", offset="hours")
    expected = dsel.select(X, COUNTS, k=2, loss="poisson", offset=np.log(EXPOSURE))
    assert (found.indices, found.targets) == (expected.indices, ("count",))
    assert found.error == pytest.approx(expected.error, rel=1e-10)
    assert dsel.certify(found, store).certificate[-1]["proven"]
    np.testing.assert_allclose(
        np.asarray(found.predict(store))[:, 0], expected.predict(X, offset=np.log(EXPOSURE)), rtol=1e-9
    )
    predict_store(found, store, tmp_path / "p.zarr")
    np.testing.assert_allclose(xr.open_zarr(tmp_path / "p.zarr").prediction.values, np.asarray(found.predict(store)))
    assert found.score(store, COUNTS)["d2"] == pytest.approx(found.r2, rel=1e-9)
    with pytest.raises(OptionError, match="'hours' is a target and the offset"):
        dsel.select(store, k=2, loss="poisson", offset="hours", targets=["count", "hours"])


def test_probabilities_of_a_store_are_those_of_the_arrays(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, CLASSES[:, None], chunks=(64, 3))
    s = dsel.select(store, k=2, loss="logistic")
    predict_store(s, store, tmp_path / "p.zarr")
    found = xr.open_zarr(tmp_path / "p.zarr").prediction.values
    np.testing.assert_allclose(found, np.asarray(s.predict(X)).reshape(-1, 1), rtol=1e-12)


@pytest.mark.parametrize(
    ("y", "loss"), [(np.where(CLASSES > 0, 7.0, -2.0), "logistic"), (COUNTS, "poisson"), (NUMBERS, Huber(0.7))]
)
def test_a_saved_selection_predicts_the_same(tmp_path: Path, y: Any, loss: Any) -> None:
    s = dsel.select(X, y, k=2, loss=loss)
    s.save(tmp_path / "result")
    again = dsel.open_selection(tmp_path / "result")
    assert again == s
    assert again.loss == s.loss
    assert again.request.loss == again.loss.name
    np.testing.assert_array_equal(again.predict(X), s.predict(X))
    assert again.score(X, y) == s.score(X, y)


def test_ratios_are_by_standard_deviations_where_units_make_them_unreadable() -> None:
    scale = np.ones(10)
    scale[[3, 7]] = 1e6, 1e-3
    s = dsel.select(X * scale, CLASSES, k=2, loss="logistic")
    odds = np.exp(s.coefficients[:, 0] * (X * scale)[:, s.indices].std(axis=0))
    unit = "for one more standard deviation of a column, since some units are small or large"
    assert f"Odds ratios, {unit}: x3 {odds[0]:.4g}, x7 {odds[1]:.4g}" in str(s).splitlines()
    assert s.ratios[:, 0] == pytest.approx(np.exp(s.coefficients[:, 0]))
    of_older = replace(s, statistics=None)
    assert f"for one more unit of a column: x3 1{np.expm1(s.coefficients[0, 0]):+.3g}, x7 " in str(of_older)


@pytest.mark.parametrize("method", ["exhaustive", "branch-and-bound", "astar"])
def test_exact_methods_prove_models_and_a_certificate_proves_the_loss(method: str) -> None:
    rng = np.random.default_rng(13)
    Z = rng.normal(size=(50, 6)) @ (np.eye(6) + 0.5 * rng.normal(size=(6, 6)))
    y = (Z @ rng.normal(size=6) * 0.4 + rng.logistic(size=50) > 0).astype(float)
    s = dsel.select(Z, y, k="auto", max_k=2, choose_k="aic", loss="logistic", method=method)
    assert any(f"{method} proves the best subset of quadratic models of the logistic loss" in n for n in s.notes)
    for other in ("poss", "exchange"):
        assert not any("models" in n for n in dsel.select(Z, y, k=2, loss="logistic", method=other).notes)
    whole = dsel.certify(dsel.select(Z, y, k=2, loss="logistic", method=method), Z, y, sizes="all")
    assert not any("quadratic models" in n for n in whole.notes)
    row = whole.information_criteria()[0]
    values = {}
    for S in [S for size in (1, 2) for S in combinations(range(6), size)]:
        fit = LogisticRegression(C=1e10, tol=1e-10).fit(Z[:, S], y)
        values[S] = 2.0 * 50 * log_loss(y, fit.predict_proba(Z[:, S])) + 2.0 * (len(S) + 1)
    assert row.proved
    assert row.value == pytest.approx(min(values.values()), rel=1e-5)
    assert tuple(sorted(row.indices)) == min(values, key=values.__getitem__)


def test_a_certificate_is_about_the_loss_with_its_parameters() -> None:
    s = dsel.select(X, NUMBERS, k=2, loss=Huber(0.5), lam=1.0)
    certified = dsel.certify(s, X, NUMBERS)
    assert certified.certificate[-1]["status"] == "optimal"
    assert certified.loss == Huber(0.5)
    assert certified.request.loss == "huber"


def test_texts_name_the_loss_and_its_deviance() -> None:
    s = dsel.select(X, CLASSES, k=2, loss="logistic")
    assert repr(s).startswith(f"<Selection: 2 of 10 columns, logistic, D2 {s.r2:.6g}, poss: x3, x7>")
    lines = str(s).splitlines()
    assert lines[0].startswith(f"2 of 10 columns explain {s.r2:.4%} of the logistic deviance (240 rows; poss")
    assert lines[2].split() == ["size", "deviance", "D2", "columns"]
    odds = np.exp(s.coefficients[:, 0])
    assert f"Odds ratios, for one more unit of a column: x3 {odds[0]:.4g}, x7 {odds[1]:.4g}" in lines
    assert "R2" not in str(s)
    assert "deviance + penalty" in str(dsel.select(X, CLASSES, k=2, loss="logistic", lam=1.0))
    assert "Rate ratios" in str(dsel.select(X, COUNTS, k=2, loss="poisson"))
    huber = str(dsel.select(X, NUMBERS, k=2, loss="huber"))
    assert "ratios" not in huber
    assert "count linearly" in huber


def test_the_table_has_ratios() -> None:
    for y, loss, name in ((CLASSES, "logistic", "odds_ratio"), (AMOUNTS, "gamma", "mean_ratio")):
        table = dsel.select(X, y, k=2, loss=loss).to_frame()
        np.testing.assert_allclose(table[name], np.exp(table["coefficient"]))
    assert "odds_ratio" not in dsel.select(X, CLASSES, k=2).to_frame()


def test_ratios_of_large_coefficients_are_printed_as_powers(tmp_path: Path) -> None:
    tiny = X / 1e5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dsel.select(tiny, COUNTS, k=2, loss="poisson")
        assert re.search(r"Rate ratios.*\d\.\d+e[+-]\d{4,}", str(replace(found, statistics=None)))
        found.report(tmp_path / "report.html")
        ratios = found.to_frame()["rate_ratio"]
    assert set(ratios) <= {0.0, np.inf}


def test_texts_name_what_rounding_and_gaps_are_shares_of() -> None:
    found = dsel.certify(dsel.select(X, CLASSES, k=2, loss="logistic", lam=1.0), X, CLASSES)
    (row,) = found.certificate
    rounded = {**row, "rounding_error": 2e-8, "status": "optimal"}
    assert "proved optimal to 2e-08 of the deviance without columns" in str(replace(found, certificate=(rounded,)))
    hardly = {**rounded, "rounding_error": 1.2e-8}  # 1e-08 in one digit
    assert "proved optimal to" not in str(replace(found, certificate=(hardly,)))
    near = {**row, "status": "bounded", "gap": 2e-5 * row["value"], "relative_gap": 2e-5}
    assert ", 0.002% of the error;" in str(replace(found, certificate=(near,)))
    squared = {**rounded, "method": "branch-and-bound"}
    assert "to 2e-08 of ||Y||^2" in str(replace(found, certificate=(squared,)))


def test_the_report_speaks_of_the_deviance(tmp_path: Path) -> None:
    s = dsel.certify(dsel.select(X, CLASSES, k=2, loss="logistic"), X, CLASSES)
    page = s.report(tmp_path / "report.html").read_text()
    for text in ("D²", "Odds ratio", "logistic deviance", "share of the deviance explained, D²"):
        assert text in page
    assert "R²" not in page
    assert "‖Y‖" not in page
    assert "D²" in s._repr_html_()
    penalized = dsel.select(X, COUNTS, k=2, loss="poisson", lam=1.0)
    page = penalized.report(tmp_path / "report.html").read_text()
    assert "Rate ratio" in page
    assert "deviance with the penalty" in page
    assert "‖Y‖" not in page


def test_curves_of_classes_are_drawn_for_given_rows() -> None:
    s = dsel.select(X, CLASSES, k=2, loss="logistic")
    ax = s.plot.roc(X, CLASSES)
    assert ax.get_legend_handles_labels()[1] == [f"area {s.score(X, CLASSES)['auc']:.3f}"]
    alone = s.plot.roc(X[CLASSES > 0], CLASSES[CLASSES > 0])
    assert alone.get_legend_handles_labels()[1] == ["one class only, so no area"]
    line = s.plot.calibration(X, CLASSES).get_lines()[-1]
    predicted, observed = line.get_xdata(), line.get_ydata()
    p = np.sort(s.predict(X))
    np.testing.assert_allclose(predicted, p.reshape(10, -1).mean(axis=1))
    np.testing.assert_allclose(observed, CLASSES[np.argsort(s.predict(X))].reshape(10, -1).mean(axis=1))
    with pytest.raises(OptionError, match="which has no classes"):
        dsel.select(X, COUNTS, k=2, loss="poisson").plot.roc(X, COUNTS)


@pytest.mark.parametrize("stored", [False, True])
def test_the_result_has_the_curves_and_the_confusion_of_its_own_rows(tmp_path: Path, stored: bool) -> None:
    y = np.where(CLASSES > 0, "yes", "no")
    data = (make_store(tmp_path / "s.zarr", X, CLASSES[:, None], chunks=(64, 3)),) if stored else (X, y)
    w = RNG.uniform(0.5, 2.0, size=M)
    s = dsel.select(*data, k=2, loss="logistic", sample_weight=None if stored else w)
    w = np.ones(M) if stored else w
    p = dsel.select(X, CLASSES, k=2, loss="logistic", sample_weight=w).predict(X)
    figures = s.class_figures
    assert figures.names == (("0", "1") if stored else ("no", "yes"))
    np.testing.assert_allclose(figures.confusion, confusion_matrix(CLASSES, p > 0.5, sample_weight=w))
    assert figures.auc[0] == pytest.approx(roc_auc_score(CLASSES, p, sample_weight=w), rel=1e-9)
    exact = np.column_stack(roc_curve(CLASSES, p, sample_weight=w, drop_intermediate=False)[:2])
    away = np.abs(np.column_stack(figures.roc[0])[:, None] - exact).max(axis=2).min(axis=1)
    assert away.max() < 0.02
    predicted, observed = (np.array(values) for values in figures.calibration[0])
    assert observed.size == 10
    assert predicted.mean() == pytest.approx(np.average(p, weights=w), abs=0.01)
    assert observed.mean() == pytest.approx(np.average(CLASSES, weights=w), abs=0.01)
    s.save(tmp_path / "result")
    assert dsel.open_selection(tmp_path / "result").class_figures == figures
    page = s.report(tmp_path / "report.html").read_text()
    counted = "Rows" if stored else "Weight of the rows"
    right = f"right for {s.score(X, CLASSES, sample_weight=w)['accuracy']:.2%} of the {counted.lower()}."
    for text in ("ROC curve", "Calibration", f"{counted} of each class by predicted class", "which flatter it", right):
        assert text in page
    assert f"area {figures.auc[0]:.3f}" in s.plot.roc().get_legend_handles_labels()[1]
    assert len(s.plot.calibration().get_lines()) == 2


@pytest.mark.usefixtures("no_pictures")
def test_a_loss_without_classes_has_no_roc_curve(tmp_path: Path) -> None:
    s = dsel.select(X, COUNTS, k=2, loss="poisson")
    assert s.class_figures is None
    assert "ROC curve" not in s.report(tmp_path / "report.html").read_text()
    with pytest.raises(MissingInputError, match="no counts of classes"):
        s.plot.roc()


def test_two_values_for_the_squared_error_offer_the_logistic_loss() -> None:
    note = 'if they are classes, loss="logistic" fits their probabilities'
    assert any(note in one for one in dsel.select(X, CLASSES, k=2).notes)
    assert any('loss="logistic"' in one for one in dsel.select(X, np.where(CLASSES > 0, "a", "b"), k=2).notes)
    assert not any("logistic" in one for one in dsel.select(X, CLASSES, k=2, loss="logistic").notes)
    assert not any("logistic" in one for one in dsel.select(X, NUMBERS, k=2).notes)


def test_text_classes_are_mapped_and_reported() -> None:
    text = dsel.select(X, np.where(CLASSES > 0, "yes", "no"), k=2, loss="logistic")
    assert text.indices == dsel.select(X, CLASSES, k=2, loss="logistic").indices
    assert "target 'y' has 2 classes (no, yes): 1 stands for 'yes', 0 for 'no'" in text.notes
    numbers = dsel.select(X, np.where(CLASSES > 0, 7.0, -2.0), k=2, loss="logistic")
    assert "the target has the classes -2 and 7: 7 counts as 1" in numbers.notes
    np.testing.assert_allclose(numbers.predict(X), text.predict(X))


def test_columns_that_separate_the_classes_are_named() -> None:
    y = (X[:, 4] > 0).astype(float)
    s = dsel.select(X, y, k=1, loss="logistic")
    assert s.indices == (4,)
    assert any(note.startswith("column x4 separates the classes") for note in s.notes)
    assert not any("separate" in note for note in dsel.select(X, y, k=1, loss="logistic", lam=0.1).notes)


def _has_a_minimum(loss: str, A: Floats, y: Floats) -> bool:
    """Return whether the loss rises somewhere in each direction of the coefficients in which it changes."""
    Z, exact = np.column_stack([A, np.ones(len(A))]), np.zeros((0, A.shape[1] + 1))
    if loss == "logistic":
        rows = (2.0 * y - 1.0)[:, None] * Z
    elif loss == "poisson":
        rows, exact = -Z[y == 0.0], Z[y > 0.0]
    elif loss == "cox":
        rows = np.array([A[i] - A[j] for i in np.flatnonzero(y[:, 1]) for j in np.flatnonzero(y[:, 0] >= y[i, 0])])
        exact = np.zeros((0, A.shape[1]))
    else:
        rows = np.array([np.kron(np.eye(3)[int(y[i])] - np.eye(3)[c], Z[i]) for i in range(len(A)) for c in range(3)])
        exact = np.zeros((0, rows.shape[1]))
    best = scipy.optimize.linprog(
        -rows.sum(axis=0),
        A_ub=-rows,
        b_ub=np.zeros(len(rows)),
        A_eq=exact,
        b_eq=np.zeros(len(exact)),
        bounds=(-1.0, 1.0),
    )
    return bool(-best.fun < 1e-7)


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "poisson", "cox"])
def test_a_note_says_exactly_where_the_deviance_has_no_minimum(loss: str) -> None:
    kinds = set()
    for seed in (*range(9), 58):
        rng = np.random.default_rng(seed)
        Z = np.column_stack([rng.integers(0, 3, size=(25, 2)), rng.permutation(np.arange(25) < 6)]).astype(float)
        scores = (Z - Z.mean(axis=0)) @ rng.normal(size=(3, 3)) * rng.uniform(0.0, 3.0)
        y: Floats = {
            "logistic": (scores[:, 0] + rng.logistic(size=25) > 0.0) * 1.0,
            "multinomial": (scores + rng.gumbel(size=(25, 3))).argmax(axis=1) * 1.0,
            "poisson": rng.poisson(np.exp(np.minimum(scores[:, 0] - 1.0, 3.0))) * 1.0,
            "cox": np.column_stack([np.ceil(9.0 * rng.exponential(np.exp(-scores[:, 0]))), rng.random(25) < 0.4]),
        }[loss]
        if np.unique(y if y.ndim == 1 else y[:, 1]).size < (3 if loss == "multinomial" else 2):
            continue
        s = dsel.select(Z, y, k=3, loss=loss, method="exhaustive")
        endless = any("the fit is infinite" in note or "no finite coef" in note for note in s.notes)
        kinds.add(endless)
        assert endless == (not _has_a_minimum(loss, Z[:, list(s.indices)], y)), seed
    assert kinds == {False, True}


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "poisson", "cox"])
def test_an_indicator_whose_rows_all_have_one_outcome_is_named(loss: str) -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 8))
    one = rng.random(200) < 0.2
    Z[:, 3] = one
    linear = Z[:, 0] + rng.logistic(size=200)
    y: Any = {
        "logistic": np.where(one, 1.0, linear > 0),
        "multinomial": np.where(one, "c", np.array(["a", "b", "c"])[np.digitize(linear, [-1.0, 1.0])]),
        "poisson": np.where(one, 0.0, rng.poisson(np.exp(0.5 * Z[:, 0]))),
        "cox": np.column_stack([rng.exponential(np.exp(-Z[:, 0])), ~one]),
    }[loss]
    s = dsel.select(Z, y, k=2, loss=loss)
    assert set(s.labels) == {"x0", "x3"}
    assert any(note.startswith("no finite coefficient of x3 fits best") for note in s.notes)
    penalized = dsel.select(Z, y, k=2, loss=loss, lam=0.1)
    assert not any("no finite" in note for note in penalized.notes)


@pytest.mark.parametrize(
    ("loss", "change", "problem"),
    [
        ("logistic", lambda y: y * 0, "one class only, 0"),
        ("logistic", lambda y: np.arange(M) % 3, "takes two classes, and the target has 3 values"),
        ("poisson", lambda y: y - 0.5, r"takes targets >= 0\. Row \d+ has -0.5 \(\d+ more rows? like it\)\."),
        ("poisson", lambda y: y * 0, "All targets are 0"),
        ("gamma", lambda y: y, r"takes targets > 0\. Row"),
        ("logistic", lambda y: np.where(np.arange(M) == 5, np.nan, y), "NaN"),
    ],
)
def test_targets_that_a_loss_cannot_take_are_refused(loss: str, change: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        dsel.select(X, change(CLASSES), k=2, loss=loss)


def test_a_class_without_weight_is_no_class() -> None:
    with pytest.raises(DataError, match="one class only, 0"):
        dsel.select(X, CLASSES, k=2, loss="logistic", sample_weight=1.0 - CLASSES)


def test_a_proof_for_wide_data_is_the_same_for_a_store_and_an_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    wide = rng.normal(size=(150, 3100))
    y = (2.0 * wide[:, 5] - 1.5 * wide[:, 3000] + rng.logistic(size=150) > 0).astype(float)
    store = make_store(tmp_path / "wide.zarr", wide, y, chunks=(60, 700))
    options = {"k": 2, "loss": "logistic", "lam": 20.0, "method": "forward"}
    of_array = dsel.certify(dsel.select(wide, y, **options), wide, y)
    of_store = dsel.certify(dsel.select(store, **options), store)
    for selection in (of_array, of_store):
        assert selection.certificate[-1]["proven"]
        assert sorted(selection.indices) == [5, 3000]
    assert of_store.certificate[-1]["bound"] == pytest.approx(of_array.certificate[-1]["bound"], rel=1e-9)


def test_a_proof_for_wide_data_needs_a_penalty() -> None:
    rng = np.random.default_rng(3)
    wide = rng.normal(size=(60, 3100))
    y = (wide[:, 5] + 3.0 * rng.logistic(size=60) > 0).astype(float)
    selection = dsel.select(wide, y, k=1, loss="logistic", method="forward")
    with pytest.raises(OptionError, match="Set lam, or coefficient_limit"):
        dsel.certify(selection, wide, y)


def test_a_selection_with_an_offset_in_memory_is_certified_with_it() -> None:
    rng = np.random.default_rng(5)
    X, offset = rng.normal(size=(60, 5)), rng.normal(size=60)
    y = rng.poisson(np.exp(0.5 * X[:, 1] + offset))
    selection = dsel.select(X, y, k=1, loss="poisson", offset=offset)
    assert dsel.certify(selection, X, y, offset=offset).certificate[-1]["proven"]
    with pytest.raises(
        OptionError, match=r"made with an offset in memory\. Give it again: one number for each row, as offset"
    ):
        dsel.certify(selection, X, y)
    with pytest.raises(DataError, match="These are not the data of the selection"):
        dsel.certify(selection, X, y, offset=2 * offset)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dataset", "annotated"])
def test_an_offset_is_named_in_a_frame(kind: str) -> None:
    columns = {f"x{j}": X[:, j] for j in range(4)}
    frame = pd.DataFrame({**columns, "count": COUNTS, "years": np.log(EXPOSURE)})
    kinds: dict[str, Any] = {
        "pandas": lambda: frame,
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame),
        "dataset": lambda: xr.Dataset({name: ("sample", frame[name]) for name in frame}),
        "annotated": lambda: pytest.importorskip("anndata").AnnData(
            frame[list(columns)].rename(index=str), frame[["count", "years"]].rename(index=str)
        ),
    }  # fmt: skip
    data, options = kinds[kind](), {"k": 2, "loss": "poisson"}
    expected = dsel.select(X[:, :4], COUNTS, offset=frame["years"], **options)
    found = dsel.select(data, "count", offset="years", **options)
    assert (found.names, found.shape) == (expected.names, (M, 4))
    assert found.error == pytest.approx(expected.error)
    assert dsel.certify(found, data, "count", offset="years").certificate[-1]["proven"]
    assert dsel.alternatives(found, data, "count", offset="years").complete
    if kind != "annotated":  # predict takes its X
        np.testing.assert_allclose(
            found.predict(data, offset="years"), expected.predict(X[:, :4], offset=frame["years"])
        )
    assert found.score(data, "count", offset="years")["d2"] == pytest.approx(expected.r2)
    with pytest.raises(DataError, match=r"has no (column|variable) 'year'.*years"):
        dsel.select(data, "count", offset="year", **options)
    for use in (dsel.certify, dsel.alternatives):
        with pytest.raises(OptionError, match=r"made with the offset 'years'\. Give it again: offset='years'\."):
            use(found, data, "count")
    with pytest.raises(OptionError, match="one number for each row, as offset"):
        dsel.certify(found, frame[list(columns)], frame["count"])
    with pytest.raises(DataError, match=r"made with the offset 'years'.*Give offset='years' or one number"):
        found.score(data, "count")


@pytest.mark.parametrize("loss", ["squared", "cox"])
def test_a_store_is_scored_with_the_weights_of_its_job(loss: str, tmp_path: Path) -> None:
    y = {"time": AMOUNTS, "event": CLASSES} if loss == "cox" else {"time": AMOUNTS}
    weight = RNG.uniform(0.5, 2.0, size=M)
    dsel.ingest(X, tmp_path / "s.zarr", y=pd.DataFrame(y), weight=weight)
    (tmp_path / "job.yaml").write_text(f"store: s.zarr\nk: 2\nloss: {loss}\nout: result\n")
    invoke("run", tmp_path / "job.yaml")
    found = dsel.open_selection(tmp_path / "result")
    weighted = found.score(str(tmp_path / "s.zarr"), list(y))
    assert weighted["r2" if loss == "squared" else "d2"] == pytest.approx(found.r2)
    assert weighted.get("concordance") == pytest.approx(found.concordance)
    if loss == "cox":
        assert weighted["deviance"] == pytest.approx(found.error)
    for asked in ("weight", weight):
        assert found.score(tmp_path / "s.zarr", list(y), sample_weight=asked) == pytest.approx(weighted)
    plain = found.score(tmp_path / "s.zarr", list(y), sample_weight=False)
    assert plain == pytest.approx(found.score(X, pd.DataFrame(y)))
    assert plain == pytest.approx(found.score(X, pd.DataFrame(y), sample_weight=False))
    assert plain != pytest.approx(weighted)
    with pytest.raises(DataError, match="no variable mass of weights; of numbers over its samples it has weight"):
        found.score(tmp_path / "s.zarr", list(y), sample_weight="mass")


def test_two_classes_of_a_store_are_one_target_of_the_logistic_loss(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(rng.normal(size=(80, 5)), columns=list("abcde"))
    frame["answer"] = np.where(frame["b"] + rng.normal(size=80) > 0, "yes", "no")
    dsel.ingest(frame, tmp_path / "store.zarr", target="answer")
    expected = dsel.select(frame, "answer", k=2, loss="logistic", class_weight={"yes": 3.0})
    for targets in (None, ["answer"], ["answer=yes"]):
        found = dsel.select(tmp_path / "store.zarr", k=2, loss="logistic", targets=targets, class_weight={"yes": 3.0})
        assert (found.labels, found.targets) == (expected.labels, ("answer=yes",))
        assert found.error == pytest.approx(expected.error, rel=1e-9)
    assert dsel.select(tmp_path / "store.zarr", k=2, targets=["answer"]).targets == ("answer=yes",)
    with pytest.raises(DataError, match=r"the target has two classes.*Use loss=.logistic."):
        dsel.select(tmp_path / "store.zarr", k=2, loss="multinomial")


def test_classes_are_whole_numbers_or_text() -> None:
    X = np.random.default_rng(7).normal(size=(60, 4))
    with pytest.raises(DataError, match=r"takes classes, and the target has values such as .* For numbers use"):
        dsel.select(X, X[:, 0], k=1, loss="multinomial")


def test_a_fit_without_an_end_has_one_deviance_everywhere() -> None:
    X = np.random.default_rng(0).normal(size=(60, 8))
    y = (X[:, 2] > 0).astype(int)
    selection = dsel.select(X, y, k=2, loss="logistic")
    assert [row.r2 for row in selection.front if row.size == 2] == [selection.r2]
    assert not any("recomputed" in note for note in selection.notes)
    certified = dsel.certify(selection, X, y)
    assert certified.certificate[-1]["value"] == selection.error
    assert "more time does not help" in str(certified)


def test_many_rows_are_counted_in_bins_with_nearly_the_same_area() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(70_000, 2))
    y = (Z[:, 0] + rng.logistic(size=70_000) > 0).astype(float)
    found = dsel.select(Z, y, k=1, loss="logistic")
    assert found.class_figures.auc[0] == pytest.approx(roc_auc_score(y, Z[:, 0]), abs=1e-5)

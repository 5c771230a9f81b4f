"""Selections by a loss other than the squared error: the best subset by brute force, and what may be asked."""

from __future__ import annotations

import json
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize
from scipy.stats import poisson
from sklearn.metrics import roc_auc_score

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.row_partition import folds_of
from dsel.errors import CapacityError, DataError, OptionError
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.registry import LOSSES, find_loss
from dsel.search.outcome import SearchOutcome
from dsel.selection.context import RunContext, SelectionRun
from dsel.selection.pipeline import run_selection
from dsel.selection.render import render_alternatives
from dsel.selection.run_method import run_method
from tests.stores import make_store

NAMES = ("logistic", "poisson", "gamma", "huber", "quantile")


def drawn(loss: str, m: int = 80, n: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated columns, and targets that follow the loss with three of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    X[:, 1:] += 0.6 * X[:, :-1]
    eta = X[:, 1] - 0.8 * X[:, 4] + 0.6 * X[:, 6]
    if loss == "logistic":
        return X, (rng.random(m) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    if loss == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float)
    if loss == "gamma":
        return X, rng.gamma(2.0, np.exp(0.5 * eta) / 2.0)
    return X, eta + rng.standard_t(2, size=m)


def least(X: np.ndarray, y: np.ndarray, S: Any, loss: str, lam: float, w: np.ndarray, offset: np.ndarray) -> float:
    """Return F(S) by a general minimizer, for standardized columns."""
    mean = np.average(X, axis=0, weights=w)
    Z = ((X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w)))[:, list(S)]
    fitted = find_loss(loss).fitted_to(y, w)
    t = fitted.encode(y)

    def value(b: np.ndarray) -> float:
        return float(w @ fitted.deviance(t, Z @ b[:-1] + b[-1] + offset) + lam * b[:-1] @ b[:-1])

    def slope(b: np.ndarray) -> np.ndarray:
        s = w * fitted.slope(t, Z @ b[:-1] + b[-1] + offset)
        return np.append(Z.T @ s + 2.0 * lam * b[:-1], s.sum())

    return float(minimize(value, np.zeros(len(S) + 1), jac=slope, method="BFGS", options={"gtol": 1e-8}).fun)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize(("method", "lam"), [("poss", 0.0), ("forward", 2.0), ("splicing", 0.5)])
def test_finds_the_subset_of_least_deviance(loss: str, method: str, lam: float) -> None:
    X, y = drawn(loss)
    rng = np.random.default_rng(1)
    w, offset = rng.integers(1, 4, 80).astype(float), 0.3 * rng.normal(size=80)
    found = dsel.select(X, y, k=3, loss=loss, method=method, lam=lam, sample_weight=w, offset=offset)
    best = min(least(X, y, S, loss, lam, w, offset) for S in combinations(range(8), 3))
    assert found.error == pytest.approx(best, rel=1e-6)
    assert found.error == pytest.approx(least(X, y, found.indices, loss, lam, w, offset), rel=1e-6)
    assert found.request.loss == loss


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_the_certificate_proves_the_best_subset(loss: str, lam: float) -> None:
    X, y = drawn(loss, seed=3)
    found = dsel.certify(dsel.select(X, y, k=2, loss=loss, lam=lam), X, y)
    ones, zeros = np.ones(80), np.zeros(80)
    best = min(least(X, y, S, loss, lam, ones, zeros) for S in combinations(range(8), 2))
    (row,) = found.certificate
    assert row["proven"]
    assert row["bound"] <= best * (1.0 + 1e-9)
    assert row["value"] == pytest.approx(best, rel=1e-6)
    assert found.error == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("loss", NAMES)
def test_more_columns_than_rows_may_be_chosen_with_a_penalty(loss: str) -> None:
    X, y = drawn(loss, m=7, n=10)
    found = dsel.select(X, y, k=9, loss=loss, lam=1.0, method="forward")
    assert len(found) == 9
    assert found.error == pytest.approx(least(X, y, found.indices, loss, 1.0, np.ones(7), np.zeros(7)), rel=1e-6)


def test_the_seconds_of_a_stage_are_counted_once() -> None:
    X, y = drawn("logistic", m=30_000, n=30)
    began = time.perf_counter()
    seconds = dsel.select(X, y, k=2, loss="logistic", method="forward").seconds
    assert seconds["check"] > 0.0
    assert sum(seconds.values()) < time.perf_counter() - began


def test_all_sizes_begin_one_above_the_included_columns() -> None:
    X, y = drawn("logistic", seed=3)
    for loss in ("squared", "logistic"):
        for include in ([], [0]):
            found = dsel.certify(dsel.select(X, y, k=3, loss=loss, include=include), X, y, sizes="all")
            assert [row["size"] for row in found.certificate] == [1, 2, 3][len(include) :]
        found = dsel.certify(dsel.select(X, y, k=1, loss=loss, include=[0]), X, y, sizes="all")
        assert [row["size"] for row in found.certificate] == [1]


def test_a_certificate_replaces_a_worse_selection() -> None:
    X, y = drawn("logistic", seed=3)
    worse = dsel.select(X, y, k=2, loss="logistic", lam=1.0, include=[0, 2])
    worse = worse.__class__(**{**vars(worse), "request": worse.request.model_copy(update={"include": ()})})
    found = dsel.certify(worse, X, y)
    direct = dsel.certify(dsel.select(X, y, k=2, loss="logistic", lam=1.0), X, y)
    assert found.error == pytest.approx(direct.error)
    assert set(found.indices) == set(direct.indices)
    assert any("the proof found these columns" in note for note in found.notes)


def test_d2_is_the_share_of_the_deviance_explained() -> None:
    X, y = drawn("poisson")
    found = dsel.select(X, y, k=3, loss="poisson")
    assert found.front[0].error == pytest.approx(least(X, y, (), "poisson", 0.0, np.ones(80), np.zeros(80)))
    assert found.r2 == pytest.approx(1.0 - found.error / found.front[0].error)


def test_the_coefficients_are_on_the_scale_of_the_data() -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=3, loss="logistic")
    eta = X[:, list(found.indices)] @ found.coefficients[:, 0] + found.intercept[0]
    assert 2.0 * np.sum(np.logaddexp(0.0, eta) - y * eta) == pytest.approx(found.error, rel=1e-9)


@pytest.mark.parametrize("loss", NAMES)
def test_the_order_and_scale_of_columns_do_not_matter(loss: str) -> None:
    X, y = drawn(loss)
    order = np.random.default_rng(2).permutation(8)
    scale = np.logspace(-3, 3, 8)
    found = dsel.select(X, y, k=3, loss=loss)
    other = dsel.select((X * scale)[:, order], y, k=3, loss=loss)
    assert sorted(order[list(other.indices)]) == sorted(found.indices)
    assert other.error == pytest.approx(found.error, rel=1e-8)


def test_a_weight_of_two_is_a_row_twice() -> None:
    X, y = drawn("poisson")
    w = np.where(np.arange(80) < 30, 2.0, 1.0)
    twice = np.r_[np.arange(80), np.arange(30)]
    a = dsel.select(X, y, k=3, loss="poisson", sample_weight=w)
    b = dsel.select(X[twice], y[twice], k=3, loss="poisson")
    assert sorted(a.indices) == sorted(b.indices)
    assert a.error == pytest.approx(b.error, rel=1e-9)


def test_an_offset_is_an_exposure() -> None:
    rng = np.random.default_rng(4)
    X, exposure = rng.normal(size=(400, 6)), rng.gamma(3.0, size=400)
    y = rng.poisson(exposure * np.exp(0.5 * X[:, 2] - 0.4 * X[:, 5])).astype(float)
    found = dsel.select(X, y, k=2, loss="poisson", offset=np.log(exposure))
    assert sorted(found.indices) == [2, 5]
    assert found.r2 > dsel.select(X, y, k=2, loss="poisson").r2


def test_groups_included_and_excluded_columns() -> None:
    X, y = drawn("logistic")
    grouped = dsel.select(X, y, k=2, loss="logistic", groups=[[1, 2], [4, 5], [6, 7]])
    assert len(grouped.groups) == 2
    assert set(grouped.indices) in ({1, 2, 4, 5}, {1, 2, 6, 7}, {4, 5, 6, 7})
    forced = dsel.select(X, y, k=3, loss="logistic", include=[0], exclude=[1])
    assert 0 in forced.indices
    assert 1 not in forced.indices


def test_chooses_k_by_an_information_criterion() -> None:
    X, y = drawn("poisson", m=400)
    found = dsel.select(X, y, k="auto", loss="poisson")
    assert found.size_curve is not None
    assert found.size_curve.rule == "bic"
    assert sorted(found.indices) == [1, 4, 6]
    row = next(row for row in found.front if row.size == found.size_curve.k)
    point = next(point for point in found.size_curve.points if point.size == row.size)
    perfect = -2.0 * poisson.logpmf(y, y).sum()
    assert point.value == pytest.approx(row.error + perfect + (row.size + 1) * np.log(400))  # with the intercept


def test_information_criteria_count_the_weights_of_classes_as_those_of_rows() -> None:
    X, y = drawn("logistic", m=200)
    times = np.where(y > 0.0, 3, 1)
    asked: dict[str, Any] = {"k": "auto", "max_k": 3, "loss": "logistic", "choose_k": "bic"}
    found = dsel.select(X, y, class_weight={1: 3.0}, **asked)
    repeated = dsel.select(np.repeat(X, times, axis=0), np.repeat(y, times), **asked)
    values = [[point.value for point in one.size_curve.points] for one in (found, repeated) if one.size_curve]
    np.testing.assert_allclose(*values, rtol=1e-9)
    assert found.information_criteria()[1].value == pytest.approx(min(values[0]))
    assert any("BIC counts a row of weight 2 as two rows" in note for note in found.notes)


def test_class_weights_name_the_classes_of_an_array_of_booleans() -> None:
    X, y = drawn("logistic", m=100)
    found, expected = (
        dsel.select(X, data, k=2, loss="logistic", class_weight={name: 3.0}) for data, name in ((y > 0.0, True), (y, 1))
    )
    assert found.error == expected.error


def test_folds_have_the_delta_of_all_rows() -> None:
    X, y = drawn("huber", m=90)
    asked: dict[str, Any] = {"k": "auto", "max_k": 2, "choose_k": {"folds": 3}}
    found = dsel.select(X, y, loss="huber", **asked)
    assert found.size_curve == dsel.select(X, y, loss={"huber": found.loss_parameters}, **asked).size_curve


def test_information_criteria_count_the_columns_of_groups_and_included_ones() -> None:
    X, y = drawn("logistic", m=300)
    X[:, 3] = X[:, 2] - X[:, 1]  # the third group has two independent columns
    found = dsel.select(
        X, y, k="auto", loss="logistic", choose_k="bic", groups=[[0], [4, 6, 7], [1, 2, 3]], include=[0]
    )
    curve = found.size_curve
    assert curve is not None
    expected = {}
    for row in found.front:
        rank = np.linalg.matrix_rank(np.column_stack([np.ones(300), X[:, list(row.indices)]]))
        expected[row.size] = row.error + rank * np.log(300)
    assert {point.size: point.value for point in curve.points} == pytest.approx(expected)
    assert sorted(expected) == [1, 2, 3, 4]


@pytest.mark.parametrize("by", ["folds", "log-loss", "auc"])
def test_chooses_k_on_left_out_rows(by: str, tmp_path: Path) -> None:
    X, y = drawn("logistic", m=200)
    X = X[:, [1, 4, 6, 0]]
    rule = {"by": by, "folds": 3}
    found = dsel.select(X, y, k="auto", loss="logistic", method="splicing", choose_k=rule)
    fold, values, m = folds_of(0, 200, 3, 0, 0), np.zeros((3, 5)), 200
    for number in range(3):
        train, test = fold != number, fold == number
        best = (np.inf, np.zeros(test.sum()))
        for k in range(5):
            for S in map(list, combinations(range(4), k)):
                b = fitted(X[train][:, S], y[train])
                value, eta = (X[rows][:, S] @ b[:-1] + b[-1] for rows in (train, test))
                best = min(best, (deviance(y[train], value), eta), key=lambda pair: pair[0])
            left_out = deviance(y[test], best[1]) / test.sum()
            area = roc_auc_score(y[test], best[1])
            values[number, k] = {"folds": left_out, "log-loss": left_out / 2.0, "auc": 1.0 - area}[by]
    expected = np.bincount(fold) @ values / m
    assert found.size_curve is not None
    points = [point.value for point in found.size_curve.points]
    np.testing.assert_allclose(points, expected, rtol=1e-5)
    assert found.k == int(np.argmin(points))
    store = make_store(tmp_path / "s.zarr", X, y[:, None], chunks=(70, 3))
    stored = dsel.select(store, k="auto", loss="logistic", method="splicing", choose_k=rule)
    np.testing.assert_allclose([point.value for point in stored.size_curve.points], points, rtol=1e-8)


def fitted(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return coefficients and intercept of logistic regression without a penalty, by a general minimizer."""

    def value(b: np.ndarray) -> float:
        return deviance(y, X @ b[:-1] + b[-1])

    return minimize(value, np.zeros(X.shape[1] + 1), method="BFGS", options={"gtol": 1e-7}).x


def deviance(y: np.ndarray, eta: np.ndarray) -> float:
    return float(2.0 * np.sum(np.logaddexp(0.0, eta) - y * eta))


def test_k_is_chosen_on_a_held_out_share_for_any_loss() -> None:
    X, y = drawn("poisson", m=400)
    found = dsel.select(X, y, k="auto", loss="poisson", choose_k={"held_out": 0.3}, offset=np.full(400, 0.5))
    assert found.size_curve is not None
    assert found.size_curve.rule == "held-out"
    assert {1, 4, 6} <= set(found.indices)
    many = dsel.select(X, np.minimum(y, 2.0), k="auto", loss="multinomial", method="forward", choose_k="auc", max_k=4)
    assert many.size_curve is not None
    assert many.size_curve.rule == "auc"
    assert many.size_curve.points[0].value == pytest.approx(0.5)


def test_wide_data_are_searched_among_the_columns_with_the_largest_scores() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 2000))
    y = (rng.random(300) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 700] + 2.0 * X[:, 1500]))).astype(float)
    found = dsel.select(X, y, k=2, loss="logistic", method="forward")
    assert sorted(found.indices) == [700, 1500]


@pytest.mark.parametrize("chunk", [80, 33])
def test_a_store_gives_the_answer_of_the_arrays(tmp_path: Path, chunk: int) -> None:
    X, y = drawn("poisson")
    offset = np.linspace(-0.5, 0.5, 80)
    data = xr.Dataset(
        {"X": (("sample", "feature"), X), "Y": (("sample", "target"), y[:, None]), "exposure": ("sample", offset)}
    ).chunk({"sample": chunk})
    data.to_zarr(tmp_path / "data.zarr", consolidated=False)
    stored = dsel.select(tmp_path / "data.zarr", k=3, loss="poisson", offset="exposure")
    there = dsel.select(X, y, k=3, loss="poisson", offset=offset)
    assert stored.indices == there.indices
    assert stored.error == pytest.approx(there.error, rel=1e-10)
    assert stored.plan["planned"]["passes"] == stored.passes


def test_a_result_is_saved_and_read(tmp_path: Path) -> None:
    X, y = drawn("huber")
    found = dsel.select(X, y, k=3, loss=Huber(1.5))
    found.save(tmp_path / "result")
    again = dsel.open_selection(tmp_path / "result")
    assert again.request.loss == "huber" or getattr(again.request.loss, "name", "") == "huber"
    assert again.error == found.error


@pytest.mark.parametrize("names", [{}, {"method": "exchange"}, {"method": "portfolio", "seconds": 1.0}])
def test_methods_take_a_loss(names: dict[str, Any]) -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=3, loss="logistic", **names)
    best = min(least(X, y, S, "logistic", 0.0, np.ones(80), np.zeros(80)) for S in combinations(range(8), 3))
    assert found.error == pytest.approx(best, rel=1e-6)
    assert not found.certificate  # a proof about the quadratic model says nothing about the loss


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        ("logistic", np.ones(80), "one class only"),
        ("logistic", np.arange(80.0) % 3, "takes two classes, and the target has 3 values"),
        ("poisson", np.r_[-1.0, np.ones(79)], "takes targets >= 0. Row 0 has -1."),
        ("poisson", np.zeros(80), "All targets are 0"),
        ("gamma", np.arange(80.0), "takes targets > 0"),
        ("huber", np.r_[np.zeros(60), np.arange(20.0)], "robust spread is 0"),
        ({"quantile": {"level": 0.75}}, np.r_[np.zeros(60), np.arange(20.0)], '"level": 0.75, "width": 0.1'),
    ],
)
def test_targets_that_a_loss_cannot_take_are_refused(loss: Any, y: np.ndarray, message: str) -> None:
    X, _ = drawn("huber")
    with pytest.raises(DataError, match=message):
        dsel.select(X, y, k=2, loss=loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "binomial"}, "Use 'logistic'"),
        ({"loss": "logistics"}, "logistic"),
        ({"loss": "logistic", "method": "kfold"}, "kfold scores squared errors"),
        ({"loss": "logistic", "polish": "exchange"}, "does not go together with polish"),
        ({"loss": "logistic", "k": "auto", "choose_k": "cp"}, "choose_k cp is for the squared error"),
        ({"loss": "huber", "k": "auto", "choose_k": "auc"}, "choose_k auc is for classes"),
        ({"k": "auto", "choose_k": "log-loss"}, "choose_k log-loss needs a loss for classes"),
        ({"loss": "logistic", "k": "auto", "choose_k": {"held_out": "other.zarr"}}, "held_out is a share of the rows"),
        ({"offset": np.zeros(80)}, "offset needs a loss"),
        ({"loss": "poisson", "offset": np.zeros(79)}, "An offset is one number for each row"),
        ({"loss": "poisson", "offset": np.full(80, np.nan)}, "not finite in 80 rows"),
        ({"loss": "poisson", "offset": "exposure"}, "data in memory it is one number for each row"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    X, y = drawn("logistic")
    with pytest.raises((OptionError, DataError), match=message):
        dsel.select(X, y, **{"k": 2, **arguments})


def test_several_targets_are_refused() -> None:
    X, y = drawn("logistic")
    with pytest.raises(OptionError, match="takes one target, and there are 2"):
        dsel.select(X, np.c_[y, 1.0 - y], k=2, loss="logistic")


@pytest.mark.parametrize("preprocess", ["center", "none", "unit"])
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_the_unit_of_columns_does_not_make_a_fit_infinite(preprocess: Any, loss: str) -> None:
    X, y = drawn("logistic")
    asked: dict[str, Any] = {"k": 2, "method": "forward", "loss": loss, "preprocess": preprocess}
    y = y if loss == "logistic" else np.where(np.random.default_rng(1).logistic(size=len(y)) > 1.0, 2.0, y)
    whole, small, large = (dsel.select(unit * X, y, **asked) for unit in (1.0, 1e-3, 1e3))
    for unit, found in ((1e-3, small), (1e3, large)):
        np.testing.assert_allclose(found.coefficients * unit, whole.coefficients, rtol=1e-5, atol=1e-8)
        assert not any("separate" in note for note in found.notes)
    for unit in (1e-3, 1.0, 1e3):
        found = dsel.select(unit * X, (X[:, 3] > 0.0).astype(float), **{**asked, "loss": "logistic", "k": 1})
        assert any("column x3 separates the classes" in note for note in found.notes)


@pytest.mark.parametrize("preprocess", ["center", "none", "unit"])
@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_proofs_without_a_penalty_do_not_depend_on_the_units_of_columns(preprocess: Any, loss: str) -> None:
    X, y = drawn(loss)
    units = 10.0 ** np.random.default_rng(2).permutation(np.linspace(-3.0, 5.0, X.shape[1]))
    asked: dict[str, Any] = {"k": 3, "loss": loss, "preprocess": preprocess}
    of_units = {}
    for name, unit in (("equal", np.ones(X.shape[1])), ("very different", units)):
        found = dsel.certify(dsel.select(X * unit, y, **asked), X * unit, y)
        (proof,) = found.certificate
        assert proof["status"] == "optimal"
        assert not any("do not converge" in note for note in found.notes)
        of_units[name] = (set(found.indices), pytest.approx(found.error), pytest.approx(proof["largest_coefficient"]))
    assert of_units["equal"] == of_units["very different"]


def test_outliers_in_columns_do_not_make_a_fit_infinite() -> None:
    rng = np.random.default_rng(0)
    X = np.exp(3.0 * rng.normal(size=(150, 4)))  # coefficients per standard deviation are in the thousands
    y = (rng.logistic(size=150) < 0.8 * X[:, 0] - 1.2 * X[:, 1]).astype(float)
    found = dsel.certify(dsel.select(X, y, k=2, loss="logistic"), X, y)
    assert sorted(found.indices) == [0, 1]
    assert not any("separate the classes" in note for note in found.notes)
    assert found.certificate[0]["status"] == "optimal"
    Z = np.column_stack([np.ones(150), X[:, [0, 1]] / X[:, [0, 1]].std(axis=0)])
    np.testing.assert_allclose(Z.T @ (y - found.predict(X)), 0.0, atol=1e-6)  # the score equations


@pytest.mark.parametrize("loss", ["logistic", "gamma"])
def test_a_proof_that_finds_nearly_dependent_columns_gives_them_as_the_answer(loss: str) -> None:
    X, y = drawn(loss)
    X[:, [0, 3]] += 1e5  # without an intercept, their difference is what explains
    found = dsel.certify(dsel.select(X[:, :5], y, k=2, loss=loss, preprocess="none"), X[:, :5], y)
    (proof,) = found.certificate
    assert sorted(found.indices) == sorted(proof["indices"])
    assert proof["r2"] == pytest.approx(found.r2, abs=1e-6)


def test_columns_that_separate_the_classes_are_named() -> None:
    X, _ = drawn("logistic")
    found = dsel.select(X, (X[:, 3] > 0.0).astype(float), k=1, loss="logistic")
    assert found.indices == (3,)
    assert any(note.startswith("column x3 separates the classes: ") for note in found.notes)
    finite = dsel.select(X, (X[:, 3] > 0.0).astype(float), k=1, loss="logistic", lam=1.0)
    assert not any("separate" in note for note in finite.notes)


def test_other_class_values_are_mapped_and_named() -> None:
    X, y = drawn("logistic")
    found, mapped = (dsel.select(X, t, k=2, loss="logistic") for t in (y, 2.0 * y - 1.0))
    assert mapped.indices == found.indices
    assert mapped.error == pytest.approx(found.error)
    assert any("1 counts as 1" in note for note in mapped.notes)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize(("lam", "include"), [(0.0, ()), (2.0, ()), (1.0, (5,))])
def test_alternatives_are_all_near_best_subsets_with_verdicts(loss: str, lam: float, include: tuple[int, ...]) -> None:
    X, y = drawn(loss, seed=4)
    rng = np.random.default_rng(1)
    w, offset = rng.integers(1, 4, 80).astype(float), 0.3 * rng.normal(size=80)
    selection = dsel.select(X, y, k=3, loss=loss, lam=lam, include=include, sample_weight=w, offset=offset)
    found = dsel.alternatives(selection, X, y, within=0.15, sample_weight=w, offset=offset)
    others = [j for j in range(8) if j not in include]
    subsets = [(*include, *S) for S in combinations(others, 3 - len(include))]
    values = {tuple(sorted(S)): least(X, y, S, loss, lam, w, offset) for S in subsets}
    best, without = min(values.values()), least(X, y, include, loss, lam, w, offset)
    near = {S for S, value in values.items() if value <= best + 0.15 * (without - best)}
    assert found.complete
    assert found.proven
    assert {tuple(sorted(row.indices)) for row in found.subsets} == near
    assert found.total == pytest.approx(least(X, y, (), loss, lam, w, offset), rel=1e-6)
    for row in found.subsets:
        assert row.error == pytest.approx(values[tuple(sorted(row.indices))], rel=1e-6)
    assert (found.subsets[0].r2 > found.r2(found.best_error)) == (lam > 0.0)  # f has the penalty
    for price in found.columns:
        having = [S for S in near if price.index in S]
        expected = "useless" if not having else "necessary" if len(having) == len(near) else "replaceable"
        assert price.verdict == expected
        assert price.bound_with <= min(v for S, v in values.items() if price.index in S) * (1.0 + 1e-9)
        assert price.bound_without <= min(v for S, v in values.items() if price.index not in S) * (1.0 + 1e-9)
        if price.reliance is not None and lam == 0.0:
            for S in having:
                rest = least(X, y, [j for j in S if j != price.index], loss, lam, w, offset)
                share = (rest - values[S]) / found.total
                assert price.reliance[0] - 1e-6 <= share <= price.reliance[1] + 1e-6
    assert ("scaled coefficients are at most" in str(found)) == (lam == 0.0)


def test_each_column_has_a_price_after_a_proof_by_a_loss() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = (X[:, 3] - 2.0 * X[:, 5] + rng.logistic(size=200) > 0.0).astype(float)
    plain = np.ones(200), np.zeros(200)
    found = dsel.alternatives(dsel.select(X, y, k=2, loss="logistic", lam=1.0), X, y)
    assert found.complete
    for price in found.columns:
        pairs = [S for S in combinations(range(6), 2) if price.index in S]
        best = min(least(X, y, S, "logistic", 1.0, *plain) for S in pairs)
        assert price.error_with == pytest.approx(best, rel=1e-6)


def test_a_list_has_as_many_columns_as_may_be_chosen() -> None:
    X, y = drawn("logistic")
    X[:, 3:] = 1.0
    found = dsel.alternatives(dsel.select(X, y, k=5, loss="logistic", lam=1.0), X, y)
    assert [row.indices for row in found.subsets] == [(0, 1, 2)]
    assert (found.size, set(found.verdicts.values())) == (3, {"necessary"})


@pytest.mark.usefixtures("no_pictures")
def test_alternatives_by_a_loss_are_shown_and_saved(tmp_path: Path) -> None:
    X, y = drawn("logistic", seed=4)
    selection = dsel.select(X, y, k=3, loss="logistic", lam=1.0)
    found = dsel.alternatives(selection, X, y, within=0.2, sizes="all")
    assert list(found.by_size) == [1, 2, 3]
    kept = selection.with_alternatives(found)
    kept.save(tmp_path / "result")
    assert dsel.open_selection(tmp_path / "result").alternatives == found
    assert "D²" in kept.report(tmp_path / "report.html").read_text()
    names = render_alternatives(kept).splitlines()
    assert any(line.split() == ["deviance", "+", "penalty", "D2", "columns"] for line in names)
    assert dsel.alternatives(selection, X, y, nbest=2).counts.keys() >= set(selection.indices)


def test_what_there_is_for_the_squared_error_only_is_refused(tmp_path: Path) -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=2, loss="logistic", lam=1.0)
    with pytest.raises(OptionError, match="by: there is none for the loss logistic"):
        dsel.alternatives(found, X, y, nbest=2, by="bic")
    with pytest.raises(OptionError, match="k is 2, and as many columns are included"):
        dsel.alternatives(dsel.select(X, y, k=2, loss="logistic", lam=1.0, include=[0, 1]), X, y)


def test_alternatives_of_columns_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=2, loss="logistic", lam=1.0)
    monkeypatch.setattr("dsel.selection.loss_certificate.MOST_RELAXED", 5)
    with pytest.raises(CapacityError, match=r"would make passes over the data\. *Exclude columns until"):
        dsel.alternatives(found, X, y)


def test_the_registry_lists_every_loss() -> None:
    assert set(LOSSES) >= {"squared", *NAMES}
    assert all(loss.summary for loss in LOSSES.values())


@pytest.mark.usefixtures("no_pictures")
def test_a_limit_of_coefficients_is_named_in_the_certificate(tmp_path: Path) -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=2, loss="logistic")
    limited = dsel.certify(found, X, y, coefficient_limit=2.0)
    assert limited.certificate[0]["largest_coefficient"] > 0.0
    assert "scaled coefficients are at most" in str(limited)
    assert "no independent subset is better" not in limited.report(tmp_path / "report.html").read_text()
    ridge = dsel.certify(dsel.select(X, y, k=2, loss="logistic", lam=1.0), X, y)
    assert ridge.certificate[0]["largest_coefficient"] == 0.0


def test_certificates_of_all_sizes_agree_with_enumeration() -> None:
    X, y = drawn("poisson", seed=2)
    found = dsel.certify(dsel.select(X, y, k=3, loss="poisson", lam=1.0), X, y, sizes="all")
    for row in found.certificate:
        best = min(
            least(X, y, S, "poisson", 1.0, np.ones(80), np.zeros(80)) for S in combinations(range(8), row["size"])
        )
        assert row["proven"]
        assert row["value"] == pytest.approx(best, rel=1e-6)


def test_a_certificate_of_other_data_is_refused() -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=2, loss="logistic", lam=1.0)
    with pytest.raises(DataError, match="These are not the data of the selection"):
        dsel.certify(found, X, y[::-1])


@pytest.mark.parametrize("include", [[], [1]], ids=["all columns", "one included"])
def test_information_criteria_are_those_of_the_deviance(include: list[int]) -> None:
    X, y = drawn("logistic", m=300)
    found = dsel.select(X, y, k=3, loss="logistic", include=include)
    rows = found.information_criteria()
    assert [row.criterion for row in rows] == ["aic", "bic", "ebic"]
    size = rows[0].size
    error = next(row.error for row in found.front if row.size == size)
    assert rows[0].value == pytest.approx(error + 2.0 * (size + 1))
    for by, row in zip(("aic", "bic", "ebic"), rows, strict=True):
        curve = dsel.select(X, y, k="auto", max_k=3, choose_k=by, loss="logistic", include=include).size_curve
        assert curve is not None
        assert [point.value for point in curve.points if point.size == row.size] == pytest.approx([row.value])


def test_an_interrupted_search_continues_at_its_later_model() -> None:
    X, y = drawn("logistic", m=200)
    states: list[Any] = []

    def interrupted(search: Any) -> None:
        states.append(json.loads(json.dumps(search.state(), default=str)))

    dataset, request = as_dataset(X, y), SelectionRequest.of(k=3, loss="logistic", seed=1)
    whole = run_selection(dataset, request, RunContext(on_slice=interrupted))
    later = [state for state in states if "loss" in state]
    assert len({state["loss"]["counts"][1] for state in later}) == whole.counts["models"] - 1
    for state in (later[0], later[-1]):
        found = run_selection(dataset, request, RunContext(state=state))
        assert found.indices == whole.indices
        assert found.error == pytest.approx(whole.error, rel=1e-9)
        assert (found.iterations, found.counts["models"]) == (whole.iterations, whole.counts["models"])
        assert [row.indices for row in found.front] == [row.indices for row in whole.front]


def test_stability_is_that_of_the_model_about_the_best_subset() -> None:
    X, y = drawn("logistic", m=600)
    found = dsel.stability(X, y, k=3, loss="logistic", samples=20)
    assert set(np.argsort(-found.frequencies[-1])[:3].tolist()) == {1, 4, 6}
    assert found.request["loss"] == "logistic"


def test_what_holds_for_the_squared_error_alone_is_refused() -> None:
    X, y = drawn("logistic")
    found = dsel.select(X, y, k=2, loss="logistic", lam=1.0)
    with pytest.raises(OptionError, match="submodularity ratio is that of the squared error"):
        dsel.submodularity_ratio(found, X, y)
    with pytest.raises(OptionError, match="Shares are of squared residuals"):
        dsel.check_part(found, X, y)
    with pytest.raises(OptionError, match="needs the rows"):
        dsel.select(dsel.open_sums(dsel.sums(X, y)), k=2, loss="logistic")


def test_a_time_limit_is_that_of_all_models_together(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = drawn("logistic")
    given: list[float] = []

    def noted(run: SelectionRun, **more: Any) -> SearchOutcome:
        options: Any = run.validated.options
        given.append(options.seconds)
        return run_method(run, **more)

    monkeypatch.setattr("dsel.selection.loss_search.run_method", noted)
    found = dsel.select(X, y, k=3, loss="logistic", seconds=0.5, iterations=10**9)
    assert found.request.options["seconds"] == 0.5
    assert len(given) > 1
    assert sum(given) <= 0.5


def test_a_certificate_with_included_columns_counts_from_the_intercept() -> None:
    X, y = drawn("poisson")
    found = dsel.certify(dsel.select(X, y, k=3, loss="poisson", include=[0], lam=1.0), X, y)
    row = found.certificate[-1]
    assert row["total"] == pytest.approx(least(X, y, (), "poisson", 0.0, np.ones(80), np.zeros(80)))
    assert row["proven"]


def test_the_plan_of_wide_data_counts_the_scores_and_a_model_of_some_columns() -> None:
    X = np.random.default_rng(6).normal(size=(60, 2000))
    stages = {stage.name: stage for stage in dsel.plan(X, (X[:, 0] > 0).astype(float), k=3, loss="logistic").stages}
    assert stages["scores of columns"].passes == stages["model of the loss"].passes == 3
    assert stages["model of the loss"].partial_bytes == 8 * 1500**2


def test_separable_classes_have_one_deviance_in_the_answer_and_in_the_certificate() -> None:
    x = np.random.default_rng(0).normal(size=(80, 8))
    y = (x[:, 0] + x[:, 1] > 0).astype(float)
    selection = dsel.select(x, y, k=2, loss="logistic", lam=0.0)
    found = dsel.certify(selection, x, y, seconds=5)
    row = found.certificate[-1]
    assert row["r2"] == found.r2 == found.front[2].r2
    assert row["value"] == found.error
    assert not row["proven"]
    assert "separate the classes" in found.notes[0]


def test_a_store_with_two_classes_knows_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 1] + rng.normal(size=80) > 0.0, "up", "down")
    dsel.ingest(X, tmp_path / "data.zarr", y=y)
    stored, direct = dsel.select(tmp_path / "data.zarr", k=1, loss="logistic"), dsel.select(X, y, k=1, loss="logistic")
    assert stored.notes == direct.notes
    assert stored.score(X, y) == pytest.approx(direct.score(X, y))


@pytest.mark.parametrize("loss", ["poisson", "gamma", "huber"])
def test_classes_are_refused_by_a_loss_for_numbers(loss: str) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(OptionError, match=r'classes down, up.*Use loss="logistic"'):
        dsel.select(X, np.where(X[:, 0] > 0.0, "up", "down"), k=1, loss=loss)


@pytest.mark.parametrize("asked", [{"folds": 5}, {"split": "random"}, {"repeats": 1}, {"one_standard_error": True}])
def test_a_rule_that_names_options_of_folds_chooses_by_folds(asked: dict[str, Any]) -> None:
    X, y = drawn("logistic")
    found, expected = (
        dsel.select(X, y, k="auto", max_k=2, loss="logistic", method="forward", choose_k=rule)
        for rule in (asked, {**asked, "by": "folds"})
    )
    assert found.size_curve == expected.size_curve
    assert dsel.select(X, y, k="auto", max_k=2, loss="logistic", method="forward", choose_k={}).size_curve.rule == "bic"


@pytest.mark.parametrize(("loss", "seed"), [("logistic", 4), ("multinomial", 0), ("cox", 0), ("huber", 2)])
def test_two_columns_that_explain_much_together_and_little_alone_are_chosen(loss: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, difference = rng.normal(size=(120, 10)), rng.normal(size=120)
    X[:, 7] = X[:, 2] + 0.2 * difference
    score = 2.0 * difference + 1.2 * X[:, 0] - 1.2 * X[:, 5]
    if loss == "logistic":
        y = (score + rng.logistic(size=120) > 0).astype(float)
    elif loss == "multinomial":
        classes = np.stack([score, -score, 1.5 * X[:, 4]], axis=1) + rng.gumbel(size=(120, 3))
        y = np.array(["ash", "elm", "fir"])[classes.argmax(axis=1)]
    elif loss == "cox":
        y = np.column_stack([rng.exponential(np.exp(-score)), rng.random(120) < 0.7]).astype(float)
    else:
        y = score + rng.standard_t(1.2, size=120)
    pairs = [dsel.select(X[:, S], y, k=2, loss=loss, method="forward") for S in combinations(range(10), 2)]
    for method in ("poss", "forward", "splicing", "exchange"):
        selection = dsel.select(X, y, k=2, loss=loss, method=method)
        assert sorted(selection.indices) == [2, 7]
        assert selection.error == pytest.approx(min(pair.error for pair in pairs), rel=1e-8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_such_columns_are_chosen_of_many_columns_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 200))
    X[:, 1] = X[:, 0] + 0.2 * rng.normal(size=300)
    y = rng.poisson(np.exp(5.0 * (X[:, 1] - X[:, 0]))).astype(float)
    assert sorted(dsel.select(X, y, k=2, loss="poisson", method="forward").indices) == [0, 1]

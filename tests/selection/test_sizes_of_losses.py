"""Errors of losses on rows that a model has not seen, compared with one model for each size and with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_score

import dsel
from dsel.errors import OptionError

BLOCKS: dict[str, Any] = {"held_out": 0.25, "split": "blocks"}
PAIR: dict[str, Any] = {"split": [(np.arange(90), np.arange(90, 120))]}


def drawn(loss: str, m: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(m, 3))
    eta = 0.8 * X[:, 1] - 0.4 * X[:, 2]
    happens = eta + rng.logistic(size=m) > 0.5
    if loss == "cox":
        return X, np.column_stack([rng.exponential(np.exp(-eta)), happens])
    y = {"logistic": happens, "poisson": rng.poisson(np.exp(eta)), "gamma": rng.gamma(2.0, np.exp(eta))}
    return X, y.get(loss, eta + rng.normal(size=m)).astype(float)


def points(X: Any, y: Any, rule: dict[str, Any], **asked: Any) -> list[tuple[float, float | None]]:
    curve = dsel.select(X, y, k="auto", max_k=2, method="exhaustive", choose_k=rule, **asked).size_curve
    assert curve is not None
    return [(point.value, point.standard_error) for point in curve.points]


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", {"huber": {"delta": 1.0}}])
@pytest.mark.parametrize("rule", [BLOCKS, PAIR])
def test_one_set_of_tested_rows_has_a_standard_error_from_its_rows(loss: Any, rule: dict[str, Any]) -> None:
    X, y = drawn(next(iter(loss)) if isinstance(loss, dict) else loss)
    w = np.random.default_rng(4).uniform(0.5, 2.0, 120)
    found = points(X, y, rule, loss=loss, sample_weight=w)
    for k in (1, 2):
        model = dsel.select(X[:90], y[:90], k=k, loss=loss, method="exhaustive", sample_weight=w[:90])
        each = model.loss.deviance(y[90:], model.predict(X[90:], kind="link"))
        mean = np.average(each, weights=w[90:])
        error = np.sqrt(w[90:] ** 2 @ (each - mean) ** 2) / w[90:].sum()
        assert found[k] == pytest.approx((mean, error), rel=1e-5)
    assert points(X, y, rule, loss=loss, sample_weight=9.0 * w)[2] == pytest.approx(found[2])


@pytest.mark.parametrize("asked", [("logistic", "auc"), ("cox", "held-out")])
def test_one_test_that_is_no_mean_over_rows_has_no_standard_error(asked: tuple[str, str]) -> None:
    X, y = drawn(asked[0])
    rule: dict[str, Any] = {"by": asked[1], "held_out": 0.25}
    assert all(error is None for _, error in points(X, y, rule, loss=asked[0]))
    with pytest.raises(OptionError, match=r"of one set of tested rows is no mean over rows.*several folds"):
        points(X, y, {**rule, "one_standard_error": True}, loss=asked[0])


@pytest.mark.parametrize("weights", ["balanced", {1: 5.0}])
def test_class_weights_count_in_the_fits_of_folds_and_not_in_their_errors(weights: Any) -> None:
    X, y = drawn("logistic")
    rule = {"by": "log-loss", "folds": 3, "split": "blocks"}
    found = points(X[:, :1], y, rule, loss="logistic", class_weight=weights)
    model = LogisticRegression(C=np.inf, tol=1e-10, class_weight=weights)
    scores = cross_val_score(model, X[:, :1], y.astype(int), cv=KFold(3), scoring="neg_log_loss")
    assert found[1] == pytest.approx((-scores.mean(), scores.std(ddof=1) / np.sqrt(3)), rel=1e-5)

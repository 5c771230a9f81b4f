"""Information criteria of losses, compared with the densities of scipy and with literal formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy

import dsel


def columns(m: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return columns, and linear predictors that follow two of them."""
    X = np.random.default_rng(seed).normal(size=(m, 6))
    return X, 0.5 * X[:, 1] - 0.4 * X[:, 4]


def chosen(X: np.ndarray, y: np.ndarray, loss: Any, by: str = "bic", **options: Any) -> tuple[Any, float]:
    """Return the selection of an automatic k, and the value of its size, which `information_criteria` has, too."""
    found = dsel.select(X, y, k="auto", max_k=4, choose_k=by, loss=loss, **options)
    value = min(point.value for point in found.size_curve.points)
    rows = {row.criterion: row for row in found.information_criteria()}
    assert rows[by].value == pytest.approx(value, rel=1e-9)
    return found, value


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_have_the_likelihood_of_poisson(weighted: bool) -> None:
    X, eta = columns()
    y = np.random.default_rng(1).poisson(np.exp(1.0 + eta)).astype(float)
    w = np.random.default_rng(2).integers(1, 4, y.size).astype(float) if weighted else np.ones(y.size)
    found, value = chosen(X, y, "poisson", "aic", sample_weight=w if weighted else None)
    likelihood = w @ scipy.stats.poisson.logpmf(y, found.predict(X))
    assert value == pytest.approx(-2.0 * likelihood + 2.0 * (found.k + 1), rel=1e-8)


def test_amounts_have_the_likelihood_of_gamma_and_the_dispersion_of_r() -> None:
    X, eta = columns()
    y = np.random.default_rng(1).gamma(3.0, np.exp(eta) / 3.0)
    found, value = chosen(X, y, "gamma")
    dispersion = found.error / y.size
    likelihood = scipy.stats.gamma.logpdf(y, 1.0 / dispersion, scale=found.predict(X) * dispersion).sum()
    assert value == pytest.approx(-2.0 * likelihood + np.log(y.size) * (found.k + 2), rel=1e-8)
    close = np.exp(eta) * (1.0 + 1e-5 * np.random.default_rng(2).normal(size=y.size))  # a shape of 1e10
    nearly, least = chosen(X, close, "gamma")
    logs = np.log(close) - np.log(nearly.predict(X))
    normal = y.size * (np.log(2.0 * np.pi * np.mean(logs**2)) + 1.0) + 2.0 * np.log(close).sum()
    assert least == pytest.approx(normal + np.log(y.size) * (nearly.k + 2), rel=1e-4)


def test_bic_finds_small_effects_of_amounts_with_little_spread() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = rng.gamma(20.0, np.exp(0.1 * X[:, 1] + 0.1 * X[:, 2]) / 20.0)
    assert sorted(dsel.select(X, y, k="auto", loss="gamma").indices) == [1, 2]


def test_quantiles_have_the_likelihood_of_the_asymmetric_laplace_distribution() -> None:
    X, eta = columns()
    y = eta + np.random.default_rng(1).standard_t(3, size=eta.size)
    tau = 0.3
    found, value = chosen(X, y, {"quantile": {"level": tau, "width": 1e-5}})
    scale, skew = found.error / y.size, np.sqrt(tau / (1.0 - tau))
    law = scipy.stats.laplace_asymmetric(skew, loc=found.predict(X), scale=skew * scale / tau)
    expected = -2.0 * law.logpdf(y).sum() + np.log(y.size) * (found.k + 1)
    assert value == pytest.approx(expected, rel=1e-4)


def test_huber_has_the_likelihood_of_a_density_with_exponential_tails() -> None:
    X, eta = columns()
    y = eta + np.random.default_rng(1).standard_t(3, size=eta.size)
    delta = 0.7
    found, value = chosen(X, y, {"huber": {"delta": delta}})

    def likelihood(v: float) -> float:
        def density(r: float) -> float:
            return float(np.exp(-0.5 * v * (r * r if abs(r) <= delta else 2.0 * delta * abs(r) - delta**2)))

        area = 2.0 * (scipy.integrate.quad(density, 0.0, delta)[0] + scipy.integrate.quad(density, delta, np.inf)[0])
        return float(v * found.error + 2.0 * y.size * np.log(area))

    least = min(likelihood(v) for v in np.linspace(0.9, 2.1, 200) * y.size / found.error)
    assert value == pytest.approx(least + np.log(y.size) * (found.k + 2), rel=1e-5)
    wide, value = chosen(X, y, {"huber": {"delta": 1e3}})  # the squared error
    normal = y.size * (np.log(2.0 * np.pi * wide.error / y.size) + 1.0)
    assert value == pytest.approx(normal + np.log(y.size) * (wide.k + 2))


def test_tied_survival_times_have_the_partial_likelihood_of_breslow() -> None:
    X, eta = columns()
    rng = np.random.default_rng(1)
    time = np.ceil(4.0 * rng.exponential(np.exp(-eta)))
    event = rng.random(time.size) < 0.8
    found, value = chosen(X, np.column_stack([time, event]), "cox", "aic")
    scores = found.predict(X, kind="link")
    likelihood = sum(scores[i] - np.log(np.exp(scores[time >= time[i]]).sum()) for i in np.flatnonzero(event))
    assert value == pytest.approx(-2.0 * likelihood + 2.0 * found.k, rel=1e-8)


@pytest.mark.parametrize("loss", ["huber", "quantile", "gamma"])
def test_the_unit_of_the_target_does_not_change_the_number_of_columns(loss: str) -> None:
    X, eta = columns(200)
    rng = np.random.default_rng(3)
    y = rng.gamma(5.0, np.exp(eta) / 5.0) if loss == "gamma" else eta + rng.standard_t(3, size=eta.size)
    found, value = chosen(X, y, loss)
    for unit in (1e-3, 1e3):
        other, of_unit = chosen(X, unit * y, loss)
        assert other.indices == found.indices
        assert of_unit == pytest.approx(value + 2.0 * y.size * np.log(unit))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_note_names_the_criterion_by_which_no_column_is_chosen(loss: str) -> None:
    X = np.random.default_rng(0).normal(size=(120, 6))
    y = np.random.default_rng(1).integers(0, 2, size=120).astype(float)
    found = dsel.select(X, y, k="auto", choose_k="bic", loss=loss)
    assert found.k == 0
    assert "no column is chosen: 0 is the size of least BIC" in found.notes
    by_folds = dsel.select(X, y, k="auto", choose_k={"by": "folds", "one_standard_error": True}, loss=loss)
    assert by_folds.k == 0
    assert any("0 is the smallest size within one standard error" in note for note in by_folds.notes)


@pytest.mark.parametrize("preprocess", ["standardize", "unit"])
def test_folds_with_a_penalty_scale_columns_as_selections_on_their_rows_do(preprocess: Any) -> None:
    rng = np.random.default_rng(2)
    X = np.exp(rng.normal(size=(90, 4))) * [1.0, 20.0, 0.1, 3.0]
    y, w, fold = rng.poisson(np.exp(0.3 * X[:, 0] - 1.0)), rng.uniform(0.5, 2.0, 90), np.arange(90) % 3
    asked: dict[str, Any] = {"loss": "poisson", "lam": 2.0, "method": "exhaustive", "preprocess": preprocess}
    split = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(3)]
    found = dsel.select(X, y, k="auto", max_k=2, sample_weight=w, choose_k={"by": "folds", "split": split}, **asked)
    expected = np.zeros(2)
    for train, test in split:
        for k in (1, 2):
            model = dsel.select(X[train], y[train], k=k, sample_weight=w[train], **asked)
            expected[k - 1] += model.score(X[test], y[test], sample_weight=w[test])["deviance"] / w.sum()
    assert found.size_curve is not None
    assert [point.value for point in found.size_curve.points[1:]] == pytest.approx(expected, rel=1e-6)

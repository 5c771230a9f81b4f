"""What a result says about its chosen columns: gains, deviations, correlations, and forward selection to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel._lib.types import Floats
from tests.stores import regression

X, Y = regression(m=200)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.integers(1, 4, size=len(X)).astype(float)


def error(Z: Floats, y: Floats, lam: float) -> float:
    """f of all columns of Z, by least squares on rows for the penalty."""
    s = Z.shape[1]
    rows = np.vstack([Z, np.sqrt(lam) * np.eye(s)])
    targets = np.vstack([y, np.zeros((s, y.shape[1]))])
    return float(((targets - rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]) ** 2).sum())


@pytest.mark.parametrize("lam", [0.0, 20.0])
@pytest.mark.parametrize("targets", [1, 3, None])
def test_a_gain_is_by_how_much_a_column_lowers_the_error_after_those_before_it(targets: int | None, lam: float) -> None:
    y = None if targets is None else np.hstack([Y, RNG.normal(size=(len(Y), targets - 1))])
    found = dsel.select(X, y, k=4, method="forward", lam=lam)
    z = (X - X.mean(0)) / X.std(0)
    t = z if y is None else (y - y.mean(0)) / y.std(0)
    errors = [error(z[:, list(found.indices[:i])], t, lam) for i in range(5)]
    assert found.statistics is not None
    np.testing.assert_allclose(found.statistics.gains, -np.diff(errors) / (t**2).sum(), rtol=1e-9)
    assert found.statistics.gains.sum() == pytest.approx(1 - found.error / (t**2).sum())
    if not lam:
        assert found.statistics.gains.sum() == pytest.approx(found.r2)


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_correlations_and_deviations_are_those_of_the_data(preprocess: Any, weighted: bool) -> None:
    data, weights = X + 7.0, WEIGHTS if weighted else None
    found = dsel.select(data, Y, k=5, method="forward", preprocess=preprocess, sample_weight=weights)
    chosen, statistics = data[:, list(found.indices)], found.statistics
    assert statistics is not None
    covariance = np.cov(chosen.T, aweights=weights, ddof=0)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(statistics.std, deviation, rtol=1e-10)
    np.testing.assert_allclose(statistics.target_std, np.sqrt(np.cov(Y.T, aweights=weights, ddof=0)), rtol=1e-10)
    np.testing.assert_allclose(statistics.correlation, covariance / np.outer(deviation, deviation), atol=1e-9)


def test_missing_values_count_as_the_mean_of_their_column() -> None:
    holes = X.copy()
    holes[::7, 2] = np.nan
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    found = dsel.select(holes, Y, k=4, method="forward", missing="mean")
    assert found.statistics is not None
    expected = np.corrcoef(filled[:, list(found.indices)].T)
    np.testing.assert_allclose(found.statistics.correlation, expected, atol=1e-9)


def test_a_column_without_a_part_in_the_fit_has_correlations() -> None:
    twins = np.column_stack([X[:, 2], X[:, 2], X[:, 5]])
    found = dsel.select(twins, Y, k=3, iterations=300, criterion=lambda S: -float(len(S)))
    assert found.statistics is not None
    assert found.statistics.gains[-1] == 0.0
    np.testing.assert_allclose(found.statistics.correlation, np.corrcoef(found.transform(twins).T), atol=1e-9)


def test_it_holds_forward_selection_to_compare_with() -> None:
    found = dsel.select(X, Y, k=6, iterations=2000, include=[3])
    alone = dsel.select(X, Y, k=6, method="forward", include=[3])
    assert found.forward == alone.front == alone.forward


def test_it_holds_none_where_that_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.selection.run_method._OPERATIONS", 100)
    assert dsel.select(X, Y, k=6, iterations=2000).forward == ()


def test_all_of_it_is_saved(tmp_path: Path) -> None:
    found = dsel.select(X, Y, k=3, iterations=2000)
    opened = dsel.open_selection(found.save(tmp_path / "result"))
    assert opened.statistics is not None
    assert opened.statistics == found.statistics
    assert opened.forward == found.forward
    assert opened.provenance == found.provenance
    assert found.provenance["started"] <= found.provenance["finished"]
    columns = {j for row in found.front for j in row.indices}
    assert [opened.label(j) for j in sorted(columns)] == [f"x{j}" for j in sorted(columns)]


@pytest.mark.parametrize("options", [{}, {"loss": "logistic"}, {"preprocess": "none"}, {"sample_weight": WEIGHTS}])
def test_columns_that_depend_on_others_have_correlations_too(options: dict[str, Any]) -> None:
    plan = np.array(["basic", "plus", "pro"])[np.arange(len(X)) % 7 % 3]
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(plan=plan)
    y = np.where(Y[:, 0] / Y.std() + 3.0 * (plan == "pro") > 1, 1.0, 0.0)
    found = dsel.select(frame, y, k=2, **options)
    assert found.statistics is not None
    assert len(found.labels) == 4
    Z, w = found.transform(frame).to_numpy(np.float64), options.get("sample_weight", np.ones(len(X)))
    covariance = np.cov(Z.T, aweights=w)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.statistics.correlation, covariance / np.outer(scale, scale), atol=1e-9)

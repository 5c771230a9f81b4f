"""The curves of greedy RLS on sonar, and the comparison with the claims of the paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.papers.greedy_rls import curves as greedy_rls_curves
from pipelines.papers.greedy_rls.curves import (
    Curves,
    enough_features,
    findings,
    fold_curves,
    overall_findings,
    stratified,
)
from tests.datasets import load


def test_folds_have_equal_shares_of_each_class() -> None:
    y = np.where(np.arange(103) < 31, 1.0, -1.0)
    fold = stratified(y, 10, 0)
    assert np.ptp(np.bincount(fold)) <= 1
    assert np.ptp(np.bincount(fold[y > 0], minlength=10)) <= 1


def test_curves_of_one_fold_and_their_findings() -> None:
    X, Y, _ = load("sonar")
    assert Y is not None
    X, Y = np.hstack([X, np.ones((208, 1))]), np.where(Y > 0, 1.0, -1.0)
    inside = stratified(Y[:, 0], 10, 0) == 3
    curves = fold_curves(X[~inside], Y[~inside], X[inside], Y[inside], 12, 0)
    assert curves.test.shape == curves.loo.shape == curves.random.shape == (12,)
    assert curves.loo[-1] > 0.7 > curves.majority
    better = replace(curves, test=curves.loo - 0.05, random=curves.loo - 0.2)
    assert findings("colon-cancer", better, 0.01).count("NOT CONFIRMED") == 0
    assert findings("adult", better, 0.01).count("NOT CONFIRMED") == 1  # it overfits
    assert (
        findings("adult", replace(curves, test=curves.loo, random=curves.loo + 0.1), 0.01).count("NOT CONFIRMED") == 1
    )


def test_overall_findings_depend_on_the_curves() -> None:
    some = np.array([0.6, 0.8, 0.8, 0.8])
    fits = Curves(some, some, some - 0.1, 0.5, 1.0)
    overfits = replace(fits, loo=some + 0.2)
    agreed = {"adult": fits, "german.numer": fits, "colon-cancer": overfits}
    assert not any("NOT CONFIRMED" in line for line in overall_findings(agreed))
    elsewhere = {**agreed, "adult": overfits, "colon-cancer": fits}
    assert any("NOT CONFIRMED: overfitting" in line for line in overall_findings(elsewhere))
    slow = replace(fits, test=np.array([0.5, 0.6, 0.7, 0.8]))
    assert any("NOT CONFIRMED: half" in line for line in overall_findings({"adult": slow, "australian": fits}))


def test_a_fold_that_was_saved_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    monkeypatch.setattr(greedy_rls_curves, "problem", lambda name: (X, np.where(X[:, :1] > 0, 1.0, -1.0)))
    first = greedy_rls_curves.saved_fold(("sonar", 2, None, 0, tmp_path))
    assert first.test.size == 5
    monkeypatch.setattr(greedy_rls_curves, "fold_curves", None)
    again = greedy_rls_curves.saved_fold(("sonar", 2, None, 0, tmp_path))
    assert again.loo.tolist() == first.loo.tolist()
    assert again.lam == first.lam
    with pytest.raises(TypeError):  # another number of features is another fold
        greedy_rls_curves.saved_fold(("sonar", 2, 3, 0, tmp_path))


def test_the_least_number_of_features_as_accurate_as_all() -> None:
    some = np.array([0.6, 0.78, 0.795, 0.7, 0.8])
    curves = Curves(some, some, some, 0.5, 1.0)
    assert enough_features(curves) == 3
    assert enough_features(replace(curves, test=np.array([0.9, 0.8]))) == 1

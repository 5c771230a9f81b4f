"""The conformance kit of losses accepts those of dsel and of other packages, and refuses broken ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dsel
from dsel.errors import OptionError
from dsel.objective.losses.cox import Cox, RiskSets
from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.poisson import Poisson
from dsel.objective.losses.registry import LOSSES
from dsel.testing import check_loss


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """A smooth loss between the squared and the absolute error, as a package could have it."""

    scale: float = 1.5

    name = "pseudo-huber"
    summary = "numbers with outliers, smoothly"
    curvature_limit = 2.0

    def deviance(self, y: Any, eta: Any) -> Any:
        return 2.0 * self.scale**2 * (np.sqrt(1.0 + ((y - eta) / self.scale) ** 2) - 1.0)

    def slope(self, y: Any, eta: Any) -> Any:
        r = (y - eta) / self.scale
        return -2.0 * self.scale * r / np.sqrt(1.0 + r * r)

    def curvature(self, y: Any, eta: Any) -> Any:
        return 2.0 * (1.0 + ((y - eta) / self.scale) ** 2) ** -1.5

    def conjugate(self, y: Any, a: Any) -> Any:
        inside = np.abs(a) <= 2.0 * self.scale
        root = np.sqrt(np.where(inside, 1.0 - (a / (2.0 * self.scale)) ** 2, 0.0))
        return np.where(inside, a * y - 2.0 * self.scale**2 * (root - 1.0), np.inf)


@pytest.mark.parametrize("name", sorted(LOSSES.own))
def test_losses_of_dsel_keep_the_contract(name: str) -> None:
    check_loss(LOSSES[name])


def test_a_loss_of_another_package_selects_predicts_and_is_opened_again(tmp_path: Any) -> None:
    check_loss(PseudoHuber())
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = X[:, 2] - 2 * X[:, 5] + rng.standard_t(2, size=200)
    with LOSSES.including(PseudoHuber()):
        found = dsel.select(X, y, k=2, loss=PseudoHuber(0.5))
        assert sorted(found.indices) == [2, 5]
        assert PseudoHuber(0.5).deviance(y, found.predict(X)).sum() == pytest.approx(found.error, rel=1e-9)
        found.save(tmp_path / "result")
        again = dsel.open_selection(tmp_path / "result")
        assert again == found
        assert again.loss == PseudoHuber(0.5)
    with pytest.raises(OptionError, match="no loss 'pseudo-huber'"):
        again.predict(X)


def broken(**changes: Any) -> Loss:
    """Return the Poisson loss with other functions."""
    return type("Broken", (Poisson,), changes)()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"slope": lambda self, y, eta: np.exp(eta) - y}, "the slope is"),
        ({"curvature": lambda self, y, eta: np.exp(eta)}, "the curvature is"),
        ({"curvature": lambda self, y, eta: -2 * np.exp(eta)}, "curvature is negative"),
        ({"curvature_limit": 1.0}, "above the limit"),
        ({"deviance": lambda self, y, eta: 2 * (np.exp(eta) - y * eta)}, "a deviance is negative"),
        ({"deviance": lambda self, y, eta: 1 + Poisson().deviance(y, eta)}, "no fit is perfect"),
        ({"deviance": lambda self, y, eta: np.full_like(eta, np.inf)}, "not finite"),
        ({"conjugate": lambda self, y, a: 2 * Poisson().conjugate(y, a) + 1}, "the conjugate at the slope"),
        ({"mean": lambda self, eta: np.exp(-eta)}, "the mean does not increase"),
        ({"encode": lambda self, y: y[1:]}, "encode returns the shape"),
        ({"fitted_to": lambda self, y, w=None: Logistic()}, "fitted_to returns the loss 'logistic'"),
        ({"summary": ""}, "needs a name and a summary"),
    ],
)
def test_a_broken_loss_is_refused(changes: dict[str, Any], problem: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("pickle.dumps", lambda value: value)
    monkeypatch.setattr("pickle.loads", lambda value: value)
    with pytest.raises(AssertionError, match=problem):
        check_loss(broken(**changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"value": lambda self, eta: RiskSets.value(self, eta) - 100.0}, "the value is negative"),
        ({"slope": lambda self, eta: 2.0 * RiskSets.slope(self, eta)}, "the slope is wrong"),
        ({"hessian": lambda self, eta, Z, safe=0.0: Z.T @ (Z * self.curvature(eta)[:, None])}, "the Hessian is wrong"),
        ({"curvature": lambda self, eta: 0.1 * RiskSets.curvature(self, eta)}, "not below the curvature"),
        ({"working_response": lambda self, eta: (self.curvature(eta), self.slope(eta))}, "another slope"),
        ({"dual": lambda self, eta, offset: (self.slope(eta), 1.0, 0.0, 0.0)}, "the dual constant"),
        ({"terms": lambda self, eta: RiskSets.terms(replace(self, w=np.minimum(self.w, 2)), eta)}, "wrong|row twice"),
    ],
)
def test_a_broken_loss_of_all_rows_is_refused(changes: dict[str, Any], problem: str, monkeypatch: Any) -> None:
    sets = type("Broken", (RiskSets,), changes)
    monkeypatch.setattr(Cox, "of_rows", lambda self, y, w: sets(self, y, w))
    with pytest.raises(AssertionError, match=problem):
        check_loss(Cox())


def test_a_loss_without_usual_targets_needs_some() -> None:
    from dsel.errors import DataError

    def only_sevens(self: Loss, y: Any, w: Any = None) -> Loss:
        if (y != 7.0).any():
            raise DataError("Only sevens.")
        return self

    with pytest.raises(AssertionError, match="takes none of the usual targets"):
        check_loss(broken(fitted_to=only_sevens))


def test_the_logistic_deviance_is_twice_the_log_loss() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 2))
    y = (X[:, 0] + rng.logistic(size=150) > 0).astype(float)
    p = LogisticRegression().fit(X, y).predict_proba(X)[:, 1]
    expected = -2.0 * (y * np.log(p) + (1.0 - y) * np.log(1.0 - p))
    np.testing.assert_allclose(Logistic().deviance(y, np.log(p / (1.0 - p))), expected, rtol=1e-9)

"""The gamma loss: amounts above 0 whose spread grows with their size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.losses.loss import Loss, clipped_exp
from dsel.objective.losses.poisson import require_at_least_zero


@dataclass(frozen=True)
class Gamma(Loss):
    """The deviance of gamma regression with the log link, for targets > 0."""

    name = "gamma"
    link = "log"
    ratio = "rate ratio"
    summary = "amounts above 0: the deviance of gamma regression with the log link"

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Gamma:
        """Return the loss. Errors: DataError for targets that are not above 0."""
        require_at_least_zero("gamma", y, above=True)
        return self

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (y exp(-eta) + eta - log y - 1)."""
        return np.asarray(2.0 * np.maximum(y * clipped_exp(-eta) + eta - np.log(y) - 1.0, 0.0))

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (1 - y exp(-eta))."""
        return np.asarray(2.0 * (1.0 - y * clipped_exp(-eta)))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 y exp(-eta)."""
        return np.asarray(2.0 * y * clipped_exp(-eta))

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return -2 t log t with t = 1 - a / 2 > 0, where the supremum is at eta = log(y / t)."""
        t = 1.0 - a / 2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            found = a * (np.log(y) - np.log(t)) - 2.0 * (t - np.log(t) - 1.0)
        return np.where(t > 0.0, found, np.inf)

    def mean(self, eta: Floats) -> Floats:
        """Return the expected amount."""
        return clipped_exp(eta)

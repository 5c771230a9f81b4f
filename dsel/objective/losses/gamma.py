"""The gamma loss: amounts above 0 whose spread grows with their size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from dsel._lib.types import Floats
from dsel.objective.losses.loss import Loss, clipped_exp, log_ratio
from dsel.objective.losses.poisson import require_at_least_zero

#: A deviance of at most this for each row is rounding error.
_NO_SPREAD = 1e-30
_LARGE_SHAPE = 1e5


@dataclass(frozen=True)
class Gamma(Loss):
    """The deviance of gamma regression with the log link, for targets > 0.

    log_sum: the sum of the logarithms of the targets.
    """

    log_sum: float = 0.0

    name = "gamma"
    link = "log"
    ratio = "mean ratio"
    summary = "amounts above 0: the deviance of gamma regression with the log link"
    scale_parameters = 1

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Gamma:
        """Return the loss. Errors: DataError for targets that are not above 0."""
        require_at_least_zero("gamma", y, above=True)
        return replace(self, log_sum=float(np.log(y).sum() if w is None else w @ np.log(y)))

    def first_constant(self, y: Floats, offset: Floats, w: Floats) -> float:
        """Return the best constant."""
        return log_ratio(float(w @ (y * clipped_exp(-offset))), float(w.sum()))

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

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log likelihood with the dispersion deviance / count, as R does."""
        shape = count / max(deviance, _NO_SPREAD * count)
        if shape > _LARGE_SHAPE:  # the difference below is rounding error: Stirling's series
            log_scale = 0.5 * math.log(shape / (2.0 * math.pi)) - 1.0 / (12.0 * shape)
        else:
            log_scale = shape * math.log(shape) - float(scipy.special.gammaln(shape)) - shape
        return count * (1.0 - 2.0 * log_scale) + 2.0 * self.log_sum

    def mean(self, eta: Floats) -> Floats:
        """Return the expected amount."""
        return clipped_exp(eta)

"""The Huber loss: the squared error, with outliers limited."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from dsel._lib.types import Floats
from dsel.errors import DataError, OptionError
from dsel.objective.losses.loss import Loss

#: In standard deviations of normal errors: 95 % efficiency there (Huber, 1981).
_EFFICIENT = 1.345
#: The median absolute deviation of a normal distribution, in standard deviations.
_MAD = 0.6744897501960817


@dataclass(frozen=True)
class Huber(Loss):
    """The squared residual up to `delta`, and linear beyond.

    delta: in the units of the target. None: 1.345 times the robust standard deviation of the target, which is the
    median absolute deviation over .6745.
    """

    delta: float | None = None

    name = "huber"
    link = "identity"
    summary = "numbers with outliers: squared up to a limit, and linear beyond"
    curvature_limit = 2.0
    options = ("delta",)
    scale_parameters = 1

    def __post_init__(self) -> None:
        if self.delta is not None and not (np.isfinite(self.delta) and self.delta > 0.0):
            raise OptionError(f"delta is {self.delta}; it is a finite number > 0 in the units of the target.")

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Huber:
        """Return the loss with its delta."""
        if self.delta is not None:
            return self
        return replace(self, delta=_EFFICIENT * robust_spread(y, w, 'a delta, such as loss={"huber": {"delta": 1.5}}'))

    @property
    def _limit(self) -> float:
        assert self.delta is not None, "fitted_to sets delta"
        return self.delta

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return r^2, or 2 delta |r| - delta^2 beyond delta, for the residual r."""
        r = np.abs(y - eta)
        return np.where(r <= self._limit, r * r, 2.0 * self._limit * r - self._limit**2)

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return -2 r, limited to delta."""
        return np.asarray(-2.0 * np.clip(y - eta, -self._limit, self._limit))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 where the residual is at most delta, and 0 beyond."""
        return np.where(np.abs(y - eta) <= self._limit, 2.0, 0.0)

    def working_curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 min(1, delta / |r|): these quadratic models lie above the loss, so that a fit descends."""
        return np.asarray(2.0 * self._limit / np.maximum(np.abs(y - eta), self._limit))

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return a y + a^2 / 4 for |a| <= 2 delta."""
        return np.where(np.abs(a) <= 2.0 * self._limit, a * y + a * a / 4.0, np.inf)

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log likelihood of errors of density exp(-v d / 2) / c(v), with the most likely v > 0.

        d is the deviance of a row. This density is normal up to delta, with the variance 1 / v, and has exponential
        tails. The value is convex in v. With a large delta, it is count log(2 pi deviance / count) + count.
        """
        mean = max(deviance / count, np.finfo(float).tiny)

        def value(t: float) -> float:  # v is t / mean, and 1 <= t <= 2 at the least
            root = math.sqrt(t / mean)
            k = self._limit * root
            normal = math.sqrt(2.0 * math.pi) * math.erf(k / math.sqrt(2.0))
            return t + 2.0 * math.log((normal + 2.0 / k * math.exp(-0.5 * min(k * k, 1e3))) / root)

        return count * float(scipy.optimize.minimize_scalar(value, bounds=(0.5, 4.0), method="bounded").fun)

    def notes(self) -> tuple[str, ...]:
        """Return delta."""
        return (f"residuals beyond {self._limit:.6g} count linearly (Huber's delta)",)


def robust_spread(y: Floats, w: Floats | None, instead: str) -> float:
    """Return the robust standard deviation of targets with weights: the median absolute deviation over .6745.

    Errors: DataError if it is 0. instead: the parameter to give then.
    """
    weights = np.ones(y.size) if w is None else w
    spread = _median(np.abs(y - _median(y, weights)), weights) / _MAD
    if spread == 0.0:
        raise DataError("More than half of the targets are equal: their robust spread is 0.", f"Give {instead}.")
    return spread


def _median(values: Floats, weights: Floats) -> float:
    """Return the median of values with weights: with whole ones that of as many copies."""
    order = np.argsort(values, kind="stable")
    order = order[weights[order] > 0.0]
    below = np.cumsum(weights[order])
    i = int(np.searchsorted(below, below[-1] / 2.0))
    j = i + 1 if below[i] == below[-1] / 2.0 else i
    return float(values[order[i]] + values[order[j]]) / 2.0

"""The Poisson loss: counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from dsel._lib.text import counted
from dsel._lib.types import Floats
from dsel.errors import DataError
from dsel.objective.losses.loss import Loss, clipped_exp, log_ratio

#: The log link keeps its digits up to here.
_LARGEST_TARGET = 1e100


@dataclass(frozen=True)
class Poisson(Loss):
    """The deviance of Poisson regression with the log link, for targets >= 0.

    saturated: -2 log likelihood of a perfect fit to the targets.
    """

    saturated: float = 0.0

    name = "poisson"
    link = "log"
    ratio = "rate ratio"
    endless = "tell rows of the count 0 from others"
    summary = "counts: the deviance of Poisson regression with the log link"

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Poisson:
        """Return the loss. Errors: DataError for negative targets, and where all are 0."""
        require_at_least_zero("poisson", y)
        if self.endless_constant(y, np.ones(len(y)) if w is None else w):
            raise DataError("All targets are 0: the fit is infinite.", "Give targets that are not all 0.")
        perfect = 2.0 * (y - scipy.special.xlogy(y, y) + scipy.special.gammaln(y + 1.0))
        return replace(self, saturated=float(perfect.sum() if w is None else w @ perfect))

    def endless_constant(self, y: Floats, w: Floats) -> bool:
        """Return whether all counts with weight are 0."""
        return not y[w > 0.0].any()

    def first_constant(self, y: Floats, offset: Floats, w: Floats) -> float:
        """Return the best constant."""
        return log_ratio(float(w @ y), float(w @ clipped_exp(offset)))

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (exp(eta) - y eta - y + y log y)."""
        return np.asarray(2.0 * np.maximum(clipped_exp(eta) - y * eta - y + scipy.special.xlogy(y, y), 0.0))

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (exp(eta) - y)."""
        return np.asarray(2.0 * (clipped_exp(eta) - y))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 exp(eta)."""
        return np.asarray(2.0 * clipped_exp(eta))

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return 2 (t log t - t + y - y log y) with t = y + a / 2 >= 0."""
        t = y + a / 2.0
        inside, t = t >= 0.0, np.maximum(t, 0.0)
        return np.where(inside, 2.0 * (scipy.special.xlogy(t, t) - t + y - scipy.special.xlogy(y, y)), np.inf)

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log likelihood of the counts."""
        return deviance + self.saturated

    def mean(self, eta: Floats) -> Floats:
        """Return the expected count."""
        return clipped_exp(eta)


def require_at_least_zero(name: str, y: Floats, *, above: bool = False) -> None:
    """Raise DataError for targets below 0, or with `above` not above 0, and for those whose exponents overflow."""
    wrong = np.flatnonzero(y <= 0.0 if above else y < 0.0)
    if wrong.size:
        limit = "> 0" if above else ">= 0"
        more = f" ({counted(wrong.size - 1, 'more row')} like it)" if wrong.size > 1 else ""
        raise DataError(
            f'loss="{name}" takes targets {limit}. Row {wrong[0]} has {y[wrong[0]]:g}{more}.',
            'Correct the targets, or use loss="squared".',
        )
    extreme = np.flatnonzero((y > _LARGEST_TARGET) | ((y < 1.0 / _LARGEST_TARGET) & above))
    if extreme.size:
        raise DataError(
            f'loss="{name}" takes targets up to {_LARGEST_TARGET:g}{f" and from {1.0 / _LARGEST_TARGET:g}" * above}. '
            f"Row {extreme[0]} has {y[extreme[0]]:g}.",
            "Give the targets in other units.",
        )

"""The squared error as a loss: the reference for the others, and the default of a selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.losses.loss import Loss


@dataclass(frozen=True)
class Squared(Loss):
    """The squared residual, which is the Gaussian deviance."""

    name = "squared"
    summary = "numbers: the squared error"
    curvature_limit = 2.0

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return (y - eta)^2."""
        return np.asarray(np.square(y - eta))

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return -2 (y - eta)."""
        return np.asarray(2.0 * (eta - y))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2."""
        return np.full(np.shape(eta), 2.0)

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return a y + a^2 / 4."""
        return np.asarray(a * y + a * a / 4.0)

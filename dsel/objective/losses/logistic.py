"""The logistic loss: two classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dsel._lib.types import Floats
from dsel.errors import DataError
from dsel.objective.losses.class_loss import ClassLoss


@dataclass(frozen=True)
class Logistic(ClassLoss):
    """The deviance of logistic regression, -2 log likelihood, with targets 0 and 1.

    classes: the two values of the targets in the data. The second one counts as 1.
    """

    name = "logistic"
    link = "logit"
    summary = "two classes: the deviance of logistic regression"
    curvature_limit = 0.5
    ratio = "odds ratio"

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Logistic:
        """Return the loss with the two classes of the targets."""
        values = np.unique(y if w is None else y[w > 0.0])
        if values.size == 1:
            raise DataError(
                f"The target has one class only, {values[0]:g}, in the rows with weight.",
                "Give rows of both classes.",
            )
        if values.size > 2:
            shown = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if values.size > 5 else "")
            raise DataError(
                f'loss="logistic" takes two classes, and the target has {values.size} values: {shown}.',
                'For classes use loss="multinomial"; for numbers give a column of 0 and 1, or use loss="squared".',
            )
        return self.with_classes(values, y, w)

    def endless_constant(self, y: Floats, w: Floats) -> bool:
        """Return whether all rows with weight are in one class."""
        return np.unique(y[w > 0.0]).size < 2

    def encode(self, y: Floats) -> Floats:
        """Return 0 and 1 for the two classes."""
        return np.asarray(y == self.classes[1], np.float64)

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (log(1 + exp(eta)) - y eta)."""
        return np.asarray(2.0 * (np.logaddexp(0.0, eta) - y * eta))

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (p - y) with the probability p."""
        return np.asarray(2.0 * (scipy.special.expit(eta) - y))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 p (1 - p)."""
        return np.asarray(2.0 * scipy.special.expit(eta) * scipy.special.expit(-eta))

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return twice the negative entropy of the probability y + a / 2, which must be from 0 to 1."""
        p = y + a / 2.0
        inside = (p >= 0.0) & (p <= 1.0)
        p = np.clip(p, 0.0, 1.0)
        return np.where(inside, 2.0 * (scipy.special.xlogy(p, p) + scipy.special.xlogy(1.0 - p, 1.0 - p)), np.inf)

    def mean(self, eta: Floats) -> Floats:
        """Return the probability of the second class."""
        return np.asarray(scipy.special.expit(eta))

    def notes(self) -> tuple[str, ...]:
        """Return which class counts as 1, where the targets are not 0 and 1."""
        low, high = self.classes
        if (low, high) == (0.0, 1.0):
            return ()
        return (f"the target has the classes {low:g} and {high:g}: {high:g} counts as 1",)

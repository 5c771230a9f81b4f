"""The multinomial loss: three or more classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy

from dsel._lib.types import Floats
from dsel.errors import DataError
from dsel.objective.losses.class_loss import ClassLoss

#: A target with more values holds numbers, not classes.
MOST_CLASSES = 100


@dataclass(frozen=True)
class Multinomial(ClassLoss):
    """The deviance of multinomial logistic regression, -2 log likelihood: one linear predictor for each class.

    Scores of classes that differ by a constant have the same probabilities. So a fit has one output less than classes:
    coordinates in an orthonormal basis of the scores that add up to 0. The sum of squared coefficients is the same.

    classes: the values of the targets in the data, or the places of the columns of 0 and 1 that are given instead.
    """

    classes: tuple[float, ...] = (0.0, 1.0, 2.0)

    name = "multinomial"
    link = "softmax"
    summary = "three or more classes: the deviance of multinomial logistic regression"
    curvature_limit = 1.0

    @property
    def outputs(self) -> int:
        """The number of linear predictors of a row: one less than classes."""
        return len(self.classes) - 1

    @property
    def contrasts(self) -> Floats:
        """The orthonormal basis (q, q - 1): the scores of classes are ``eta @ contrasts.T``."""
        return _contrasts(len(self.classes))

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Multinomial:
        """Return the loss with the classes of the targets: values (m,), or columns of 0 and 1 (m, q)."""
        there = y if w is None else y[w > 0.0]
        if y.ndim == 2:
            wrong = np.flatnonzero(((y != 0.0) & (y != 1.0)).any(axis=1) | (y.sum(axis=1) != 1.0))
            if wrong.size:
                raise DataError(
                    f'loss="multinomial" takes one target of classes, or a column of 0 and 1 for each class: row '
                    f"{wrong[0]} is in no class or in several.",
                    "Name one target, or give the classes as text.",
                )
            values = np.flatnonzero(there.any(axis=0)).astype(np.float64)
            if values.size < y.shape[1]:
                missing = np.setdiff1d(np.arange(y.shape[1]), values)[0]
                raise DataError(f"No row with weight is in class {missing} of the target.", "Leave this class out.")
        else:
            values = np.unique(there)
            broken = values[values != np.rint(values)]
            if broken.size:
                raise DataError(
                    f'loss="multinomial" takes classes, and the target has values such as {broken[0]:g}.',
                    'For numbers use loss="squared", and give classes as text or whole numbers.',
                )
        if values.size < 3:
            what = "two classes" if values.size == 2 else f"one class only, {values[0]:g}"
            raise DataError(
                f'loss="multinomial" takes three or more classes, and the target has {what}.',
                'Use loss="logistic".' if values.size == 2 else "Give rows of all classes.",
            )
        if values.size > MOST_CLASSES:
            raise DataError(
                f'loss="multinomial" takes up to {MOST_CLASSES} classes, and the target has {values.size} values.',
                'For numbers use loss="squared".',
            )
        return self.with_classes(values, y, w)

    def encode(self, y: Floats) -> Floats:
        """Return the number of the class of each row, from 0."""
        if y.ndim == 2:
            return np.asarray(y.argmax(axis=1), np.float64)
        return np.minimum(np.searchsorted(self.classes, y), self.outputs).astype(np.float64)

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return -2 log p of the class of each row."""
        scores = eta @ self.contrasts.T
        return np.asarray(
            2.0 * (scipy.special.logsumexp(scores, axis=1) - scores[np.arange(len(y)), y.astype(np.int64)])
        )

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (p - e_y) in the basis, (r, q - 1)."""
        return np.asarray(
            2.0 * (scipy.special.softmax(eta @ self.contrasts.T, axis=1) - self._indicators(y)) @ self.contrasts
        )

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 2 (diag(p) - p p') in the basis, (r, q - 1, q - 1)."""
        p = scipy.special.softmax(eta @ self.contrasts.T, axis=1)
        mean = p @ self.contrasts
        square = (self.contrasts[:, :, None] * self.contrasts[:, None, :]).reshape(p.shape[1], -1)
        spread = (p @ square).reshape(len(p), self.outputs, self.outputs) - mean[:, :, None] * mean[:, None]
        return np.asarray(2.0 * spread)

    def working_curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return the mean eigenvalue of the curvature of each row, (r,)."""
        p = scipy.special.softmax(eta @ self.contrasts.T, axis=1)
        return np.asarray(2.0 * (1.0 - np.square(p).sum(axis=1)) / self.outputs)

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return twice the negative entropy of the probabilities e_y + a / 2, which must be from 0 to 1."""
        p = self._indicators(y) + a @ self.contrasts.T / 2.0
        inside = (p >= -1e-12).all(axis=1)
        p = np.maximum(p, 0.0)
        return np.where(inside, 2.0 * scipy.special.xlogy(p, p).sum(axis=1), np.inf)

    def mean(self, eta: Floats) -> Floats:
        """Return the probability of each class (r, q) for scores of the classes (r, q)."""
        return np.asarray(scipy.special.softmax(eta, axis=1))

    def _indicators(self, y: Floats) -> Floats:
        """Return a column of 0 and 1 for each class."""
        return np.asarray(np.eye(len(self.classes))[y.astype(np.int64)])


def class_name(value: float) -> str:
    """Return a class that is a number as text."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@cache
def _contrasts(q: int) -> Floats:
    found: Floats = scipy.linalg.helmert(q).T
    found.setflags(write=False)
    return found

"""What a loss is: the deviance of one row as a convex function of its linear predictor.

Notation: y the target of a row, eta = x'b + b0 its linear predictor, d(y, eta) >= 0 the deviance, 0 at a perfect fit,
and

    F(S) = min over b on S and b0 of  sum_i w_i d(y_i, eta_i) + lam |b|^2.

With d = (y - eta)^2 this is the squared error f(S).

To add a loss, write a subclass in this folder and list it in `dsel.objective.losses.registry`, or under the entry-point
group ``dsel.losses`` of a separate package. `dsel.testing.check_loss` checks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dsel._lib.types import Floats

#: Linear predictors are limited to this size where a loss takes their exponential: exp(2 * 300) is finite.
LARGEST = 300.0


class Loss(ABC):
    """A convex and differentiable loss of a row, as a function of its linear predictor.

    All functions work elementwise on arrays of one shape. The targets are those that `encode` returns. A loss with
    several outputs t, such as that of many classes, has linear predictors and slopes (r, t), and curvatures (r, t, t).

    Attributes
    ----------
    name : str
        The name that ``dsel.select(loss=...)`` uses.
    link : str
        The link function, by its usual name.
    summary : str
        One sentence that says what the loss is for.
    classifies : bool
        Whether the targets are classes.
    curvature_limit : float
        The largest second derivative, or infinity.
    """

    name: ClassVar[str]
    link: ClassVar[str] = "identity"
    summary: ClassVar[str] = ""
    classifies: ClassVar[bool] = False
    curvature_limit: ClassVar[float] = np.inf

    @property
    def outputs(self) -> int:
        """The number of linear predictors of a row."""
        return 1

    @property
    def contrasts(self) -> Floats | None:
        """The columns (q, t) of what is reported by what is fitted, orthonormal: scores are ``eta @ contrasts.T``.

        None for one output, which is reported as it is.
        """
        return None

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Self:
        """Return the loss for these targets, whose scale or classes it may keep.

        Parameters
        ----------
        y : (m,) array
            The targets as they are in the data.
        w : (m,) array, optional
            The weights of the rows.

        Raises
        ------
        DataError
            If the loss cannot be used for these targets. The message says which rows, and what to do.
        """
        return self

    def encode(self, y: Floats) -> Floats:
        """Return the targets as the other functions take them."""
        return y

    @abstractmethod
    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return d(y, eta) >= 0, which is 0 for a perfect fit."""

    @abstractmethod
    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return the derivative of the deviance in eta."""

    @abstractmethod
    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return the second derivative of the deviance in eta, >= 0."""

    def working_curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return the curvature of the quadratic models that a fit minimizes; by default the second derivative.

        For several outputs one number for each row: the models that are searched have one Gram matrix.
        """
        return self.curvature(y, eta)

    @abstractmethod
    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return sup over eta of a eta - d(y, eta), which is infinite where no eta has a bound."""

    def mean(self, eta: Floats) -> Floats:
        """Return the expected target at a linear predictor, or at scores: the inverse of the link."""
        return eta

    def row_weights(self, y: Floats, w: Floats | None) -> Floats | None:
        """Return the weights of rows with these targets, by default those given; None if all are 1."""
        return w

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a loss that is a dataclass, as JSON types."""
        found: dict[str, Any] = asdict(self) if is_dataclass(self) else {}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def restored(self, parameters: Mapping[str, Any]) -> Self:
        """Return the loss with parameters that were saved."""
        if not parameters:
            return self
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
        return replace(self, **values)  # type: ignore[type-var]

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know about how the targets were taken."""
        return ()


def clipped_exp(eta: Floats) -> Floats:
    """Return exp(eta), finite for every eta."""
    return np.exp(np.minimum(eta, LARGEST))

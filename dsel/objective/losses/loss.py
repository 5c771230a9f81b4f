"""What a loss is: the deviance of one row as a convex function of its linear predictor, or of all rows together.

Notation: y the target of a row, eta = x'b + b0 its linear predictor, d(y, eta) >= 0 the deviance, 0 at a perfect fit,
and

    F(S) = min over b on S and b0 of  sum_i w_i d(y_i, eta_i) + lam |b|^2.

With d = (y - eta)^2 this is the squared error f(S). A loss that is not a sum over rows has a subclass of `LossOfRows`
for their linear predictors together.

To add a loss, write a subclass in this folder and list it in `dsel.objective.losses.registry`, or under the entry-point
group ``dsel.losses`` of a separate package. `dsel.testing.check_loss` checks it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from dsel._lib.text import suggest
from dsel._lib.types import Floats
from dsel.errors import OptionError

#: Linear predictors are limited to this size where a loss takes their exponential: exp(2 * 300) is finite.
LARGEST = 300.0
#: No step of the working response is longer than this, in units of the linear predictor.
LONGEST = 20.0
#: Where the squared distance of two linear predictors is less, the curvature between them is that at one of them.
_NEAR = 1e-6
#: Where the curvature at a fit is less than this share of that between the fit and no columns, it says too little.
VANISHES = 0.3


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
    by_rows : bool
        Whether the deviance of a row depends on no other row. If not, `of_rows` has all that passes and proofs take.
    has_intercept : bool
        Whether fits may have an intercept. Without one, a constant that is added to all linear predictors changes
        nothing.
    target_columns : int
        How many columns the target of a row has, and `target_words` what they are.
    ratio : str, optional
        What the exponential of a coefficient is.
    endless : str
        What columns do whose fit is infinite; empty where that is not looked for.
    predicts : str
        What predictions are called where there are more targets than linear predictors.
    options : tuple of str
        The parameters that a user may set: numbers that are fields of the loss.
    scale_parameters : int
        How many parameters of the spread of the targets information criteria count.
    notes_fits : bool
        Whether `notes_of_fit` says something, for which the rows of the chosen columns are read.
    """

    name: ClassVar[str]
    link: ClassVar[str] = "identity"
    summary: ClassVar[str] = ""
    classifies: ClassVar[bool] = False
    curvature_limit: ClassVar[float] = np.inf
    by_rows: ClassVar[bool] = True
    has_intercept: ClassVar[bool] = True
    target_columns: ClassVar[int] = 1
    target_words: ClassVar[str] = "one target"
    ratio: ClassVar[str | None] = None
    endless: ClassVar[str] = ""
    predicts: ClassVar[str] = ""
    options: ClassVar[tuple[str, ...]] = ()
    scale_parameters: ClassVar[int] = 0
    notes_fits: ClassVar[bool] = False

    def with_options(self, values: Mapping[str, Any]) -> Self:
        """Return the loss with other values of some of its `options`. Errors: OptionError for what is none."""
        for name, value in values.items():
            if name not in self.options:
                known = suggest(str(name), self.options) if self.options else "It has none."
                raise OptionError(f"The loss {self.name} has no parameter {name!r}.", known)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise OptionError(f"loss: {name} is {value!r}, and it is a number.", "Leave it out for its default.")
        return replace(self, **{name: float(value) for name, value in values.items()})  # type: ignore[type-var]

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

    def endless_constant(self, y: Floats, w: Floats) -> bool:
        """Return whether the best constant for encoded targets is infinite, which makes their deviance 0."""
        return False

    def first_constant(self, y: Floats, offset: Floats, w: Floats) -> float:
        """Return the constant where fits to encoded targets begin; by default 0, from where the usual scales are near.

        offset: what is added to the linear predictors.
        """
        return 0.0

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

    def without_class_weights(self) -> Self:
        """Return the loss that scores predictions, where the rows of all classes count alike."""
        return self

    def of_rows(self, y: Floats, w: Floats) -> LossOfRows:
        """Return the loss of rows with these targets and weights, both (m,), as a function of linear predictors."""
        return LossOfRows(self, y, w)

    def count(self, rows: float) -> float:
        """Return the number of observations for information criteria, from the number of rows or sum of weights."""
        return rows

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log likelihood, at the most likely spread of the targets, for information criteria.

        deviance: summed over the rows. count: what `count` returned. By default the deviance, as for classes.
        """
        return deviance

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

    def notes_of_fit(self, y: Floats, eta: Floats, w: Floats, parameters: int) -> tuple[str, ...]:
        """Return what a user should know about a fit on the rows. w: their weights. parameters: those of the fit."""
        return ()


@dataclass(frozen=True)
class LossOfRows:
    """A loss on given rows, as a function of all linear predictors eta, (m,) or (m, t) for t outputs.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : (m,) array
        The targets, as `Loss.encode` returns them.
    w : (m,) array
        The weights, at least 0.
    """

    loss: Loss
    y: Floats
    w: Floats

    def value(self, eta: Floats) -> float:
        """Return the weighted sum of the deviances."""
        return float(self.w @ self.loss.deviance(self.y, eta))

    def slope(self, eta: Floats) -> Floats:
        """Return the gradient of the value."""
        return np.asarray((self.w * self.loss.slope(self.y, eta).T).T)

    def curvature(self, eta: Floats) -> Floats:
        """Return a curvature (m,) for each row, whose diagonal matrix is the Hessian of the value, or near it."""
        one = self.loss.outputs == 1
        return np.asarray(self.w * (self.loss.curvature if one else self.loss.working_curvature)(self.y, eta))

    def hessian(self, eta: Floats, Z: Floats, safe: float = 0.0) -> Floats:
        """Return the Hessian of the value as a function of the coefficients of the columns Z (m, s).

        safe: the share of the working curvature in place of the second derivative. With t outputs the coefficients are
        ordered by column, and the Hessian is (s t, s t).
        """
        if self.loss.outputs == 1:
            c = self.w * (self.loss.working_curvature if safe > 0.0 else self.loss.curvature)(self.y, eta)
            if 0.0 < safe < 1.0:
                c = safe * c + (1.0 - safe) * self.w * self.loss.curvature(self.y, eta)
            return np.asarray(Z.T @ (Z * c[:, None]))
        t, curvature = self.loss.outputs, self.loss.curvature(self.y, eta) * self.w[:, None, None]
        H = np.empty((Z.shape[1], t, Z.shape[1], t))
        for i in range(t):
            for j in range(i, t):
                H[:, i, :, j] = Z.T @ (Z * curvature[:, i, j, None])
                H[:, j, :, i] = H[:, i, :, j]
        return H.reshape(Z.shape[1] * t, Z.shape[1] * t)

    def working_response(self, eta: Floats) -> tuple[Floats, Floats]:
        """Return the weights (m,) of a least-squares model about eta, and how far its targets are below eta."""
        slope = self.loss.slope(self.y, eta)
        size = np.abs(slope) if slope.ndim == 1 else np.abs(slope).max(axis=1)
        curvature = self._limited(self.loss.working_curvature(self.y, eta), size)
        return np.asarray(self.w * (curvature / 2.0)), np.asarray((slope.T / curvature).T)

    def model_to_null(self, eta: Floats, null: Floats) -> tuple[Floats, Floats]:
        """Return a least-squares model as `working_response` does, whose curvature stays where a fit has no end.

        The curvature of a row at eta is nearly 0 there, though the row loses much without the columns of the fit. So
        a row whose curvature is small has the one with which the model has the value of the row at `null`, too.

        Parameters
        ----------
        eta, null : (m,) or (m, t) array
            The linear predictors of a fit, and those without columns.
        """
        slope, gap = self.loss.slope(self.y, eta), null - eta
        towards, squares, size = slope * gap, gap * gap, np.abs(slope)
        if gap.ndim > 1:
            towards, squares, size = towards.sum(axis=1), squares.sum(axis=1), size.max(axis=1)
        more = self.loss.deviance(self.y, null) - self.loss.deviance(self.y, eta) - towards
        at_fit, far = self.loss.working_curvature(self.y, eta), squares > _NEAR
        chord = np.where(far, 2.0 * more / np.where(far, squares, 1.0), at_fit)
        curvature = np.where(at_fit < VANISHES * chord, chord, at_fit)
        curvature = self._limited(curvature, size)
        return np.asarray(self.w * (curvature / 2.0)), np.asarray((slope.T / curvature).T)

    def _limited(self, curvature: Floats, size: Floats) -> Floats:
        """Return curvatures with which no step is too long, for slopes of this size."""
        if self.loss.link == "identity":  # the linear predictor has the units of the target, so no length is too long
            return np.asarray(np.maximum(curvature, 1e-12 * curvature.max(initial=0.0)))
        return np.asarray(np.maximum(curvature, np.maximum(size / LONGEST, 1e-12)))

    def dual(self, eta: Floats, offset: Floats) -> tuple[Floats, float, float, float]:
        """Return the gradient at linear predictors and what it proves: see `dsel.objective.losses.cox.RiskSets.dual`.

        Sums over rows have a conjugate for each row, and do without it.
        """
        raise NotImplementedError

    def figures(self, eta: Floats) -> dict[str, float]:
        """Return further figures by name, of how well linear predictors fit the targets."""
        return {}


def log_ratio(a: float, b: float) -> float:
    """Return log(a / b), or 0 where one of them is 0."""
    return math.log(a) - math.log(b) if a > 0.0 and b > 0.0 else 0.0


def clipped_exp(eta: Floats) -> Floats:
    """Return exp(eta), finite for every eta."""
    return np.exp(np.minimum(eta, LARGEST))

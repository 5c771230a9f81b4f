"""The quantile loss: the share of targets below the prediction, smoothed near 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.losses.huber import robust_spread
from dsel.objective.losses.loss import Loss

#: The default width, in robust standard deviations of the target.
_WIDTH = 0.1
#: A share of rows that is this far from the level at least gets a remedy, which is a width of this share.
_FAR, _NARROW = 0.01, 0.1
#: What the note on the share of rows says.
BELOW = "below the predicted quantile"


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss of a quantile, tau r for a residual r > 0 and (tau - 1) r below, with a parabola around 0.

    The parabola reaches from -(1 - tau) width to tau width. There and beyond, the loss is below the pinball loss, by at
    most max(tau, 1 - tau)^2 width / 2 for each row. So a lower bound on the loss is one on the pinball loss.

    level: tau, between 0 and 1. width: in the units of the target. None: a tenth of the robust standard deviation of
    the target.
    """

    level: float = 0.5
    width: float | None = None

    name = "quantile"
    link = "identity"
    summary = "a quantile of numbers, such as the median: the pinball loss, smoothed near 0"
    options = ("level", "width")
    notes_fits = True

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise OptionError(f"level is {self.level}; it is between 0 and 1, such as 0.9.")
        if self.width is not None and not (np.isfinite(self.width) and self.width > 0.0):
            raise OptionError(f"width is {self.width}; it is a finite number > 0 in the units of the target.")

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Quantile:
        """Return the loss with its width."""
        if self.width is not None:
            return self
        instead = f'a width, such as loss={{"quantile": {{"level": {self.level:g}, "width": 0.1}}}}'
        return replace(self, width=_WIDTH * robust_spread(y, w, instead))

    @property
    def _h(self) -> float:
        assert self.width is not None, "fitted_to sets the width"
        return self.width

    @property
    def curvature_limit(self) -> float:  # type: ignore[override]
        """One over the width."""
        return 1.0 / self._h

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return u r - u^2 width / 2, where u is the slope in the residual r."""
        u = -self.slope(y, eta)
        return np.asarray(u * (y - eta) - 0.5 * self._h * u * u)

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return -r / width, limited to -tau and 1 - tau."""
        return np.asarray(-np.clip((y - eta) / self._h, self.level - 1.0, self.level))

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return 1 / width within the parabola, and 0 beyond."""
        r = (y - eta) / self._h
        return np.where((r >= self.level - 1.0) & (r <= self.level), 1.0 / self._h, 0.0)

    def working_curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return the slope over the residual: these quadratic models lie above the loss, so that a fit descends."""
        r = y - eta
        limit = np.where(r > 0.0, self.level, 1.0 - self.level)
        return np.asarray(limit / np.maximum(np.abs(r), limit * self._h))

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return a y + width a^2 / 2 for -tau <= a <= 1 - tau."""
        inside = (a >= -self.level) & (a <= 1.0 - self.level)
        return np.where(inside, a * y + 0.5 * self._h * a * a, np.inf)

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log likelihood of the asymmetric Laplace distribution with the scale deviance / count.

        That is 2 count (log(deviance / count) + 1 - log(tau (1 - tau))), as quantreg in R has it.
        """
        scale = max(deviance / count, np.finfo(float).tiny)
        return 2.0 * count * (math.log(scale) + 1.0 - math.log(self.level * (1.0 - self.level)))

    def notes(self) -> tuple[str, ...]:
        """Return the quantile, and what smoothing may be worth."""
        error = 0.5 * self._h * max(self.level, 1.0 - self.level) ** 2
        return (
            f"the deviance is the pinball loss of the quantile {self.level:g}, smoothed: it is lower by at most "
            f"{error:.3g} for each row",
        )

    def notes_of_fit(self, y: Floats, eta: Floats, w: Floats, parameters: int) -> tuple[str, ...]:
        """Return the share of rows below the prediction, and what helps where it is far from the level.

        Without smoothing, a fit passes through as many rows as it has parameters, and the level is among their shares.
        """
        near = 1e-6 * min(self._h, float(np.ptp(y)))
        far = max(_FAR, parameters * float(w.max() / w.sum()) + 1e-9)
        below, most = (float(w @ (y < eta + margin) / w.sum()) for margin in (-near, near))
        of = "rows are" if w.min() == w.max() else "weight of the rows is"
        note = f"{below:.1%} of the {of} {BELOW} {self.level:g}"
        if below - far < self.level < most + far:
            return (note,)
        values = f'{{"level": {self.level:g}, "width": {_NARROW * self._h:.3g}}}'
        return (
            f"{note}, because of the smoothing: a smaller width brings the share near {self.level:g}, such as "
            f'loss={{"quantile": {values}}}, and proofs take longer',
        )

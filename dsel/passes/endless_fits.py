"""Fits without an end: columns separate the classes or order the events, so that the best coefficients are infinite."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Bools, Floats

#: A coefficient of a column with standard deviation 1 beyond this says that the fit may be infinite. Outliers need such
#: coefficients, too. Infinite ones grow by the same in each step, by more than the second number as a share.
_INFINITE, _GROWING = 30.0, 1e-4
#: The fit is infinite after as many steps beyond, or if this share of the deviance at the start is left.
_STEPS_BEYOND, _SEPARATED = 25, 1e-6
#: The decrement of a fit with an end falls faster at each of the last steps. Where the best coefficient is infinite, it
#: falls by e at each step, until rounding hides the direction from the last step. The number of steps that count, and
#: the share of the one before that is left. The last decrement is at most the third number times the deviance at first.
_LAST_STEPS, _SLOW, _NEAR = 5, 0.1, 1e-9
#: Such a coefficient still grows by this share, and by this share of the one that grows most.
_STILL_GROWING, _LEAST_GROWTH = 1e-5, 0.01


class EndOfFit:
    """Whether the Newton steps of a fit without a penalty come to an end, judged from the steps.

    Parameters
    ----------
    deviations : (s,) array
        The standard deviations of the scaled columns.
    """

    def __init__(self, deviations: Floats) -> None:
        self._deviations = deviations
        self._first, self._steps_beyond, self._growth = np.inf, 0, 0.0
        self._last: list[tuple[float, Floats]] = []
        self._beyond: tuple[Floats, float, float] | None = None

    def add(self, at: tuple[Floats, float, float], step: Floats, decrement: float) -> None:
        """Take a point with its F and deviance, the Newton step from there, and the decrement of the step."""
        s = self._deviations.size
        self._last = [*self._last[-_LAST_STEPS:], (decrement, step)]
        self._first = at[2] if np.isinf(self._first) else self._first
        sizes = np.abs(at[0][:s].T * self._deviations)
        large = sizes > _INFINITE
        if decrement > 0.0:  # else rounding made the step
            grown = np.abs(step[:s].T * self._deviations)[large] / sizes[large]
            self._growth = float(grown.max(initial=0.0))
        self._steps_beyond += int(large.any())
        self._beyond = self._beyond or (at if large.any() else None)

    def infinite_at(
        self, best: tuple[Floats, float, float], *, converged: bool
    ) -> tuple[Floats, float, float] | None:  # fmt: skip
        """Return where an infinite fit stops, with its F and deviance; None if it may have an end.

        That is where its coefficients became large if all rows are separated. If only some are, the others have a
        deviance of their own, and the fit stops at the best point.

        best: the best point so far. converged: whether the steps are over.
        """
        separated = best[2] <= _SEPARATED * self._first
        if self._growth <= _GROWING or not (converged or separated or self._steps_beyond >= _STEPS_BEYOND):
            return None
        return self._beyond if separated else best

    def endless(self, best: Floats) -> Bools:
        """Return whether each coefficient would grow without an end, while the deviance stays nearly the same."""
        s, last = self._deviations.size, self._last
        if len(last) > _LAST_STEPS and last[-1][0] < _SLOW * last[-2][0]:  # the direction is lost in rounding
            last = last[:-1]
        fall = np.array([decrement for decrement, _ in last[-_LAST_STEPS:]])
        near = fall.size == _LAST_STEPS and (fall > 0.0).all() and fall[-1] <= _NEAR * self._first
        if not near or (fall[1:] < _SLOW * fall[:-1]).any():
            return np.zeros(s, bool)
        b, step = (part[:s].reshape(s, -1) for part in (best, last[-1][1]))
        grown = np.linalg.norm(step, axis=1) * self._deviations
        same = (b * step).sum(axis=1) > _STILL_GROWING * np.square(b).sum(axis=1)
        return np.asarray(same & (grown > _LEAST_GROWTH * grown.max(initial=0.0)))

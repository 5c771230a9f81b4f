"""Check a loss: its derivatives, its conjugate, and how it takes targets."""

from __future__ import annotations

import pickle

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import DataError
from dsel.objective.losses.loss import Loss
from dsel.testing.problems import require

#: Linear predictors at which a loss is checked. None of them is at a corner of a piecewise one by accident.
_ETA = np.linspace(-4.03, 4.07, 37)
#: The step of the differences, and how well they agree with the derivatives, relative to their size.
_STEP, _AGREES = 1e-5, 1e-4
#: What rounding may be worth, relative to the size of the figures.
_ROUNDING = 1e-8
#: Lines along which a loss with several outputs is checked.
_LINES = 20
#: Targets that are tried, in this order, where none are given: each loss can be used for one of these at least.
_TARGETS = (
    np.array([0.2, 3.0, 1.0, 0.7, 12.5, 2.2]),
    np.array([0.0, 3.0, 1.0, 0.0, 12.0, 2.0]),
    np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0]),
    np.array([0.0, 1.0, 2.0, 0.0, 3.0, 0.0]),
    np.array([[2.0, 1.0], [0.5, 0.0], [3.0, 0.0], [2.0, 1.0], [1.0, 1.0], [4.0, 1.0], [2.0, 0.0], [5.0, 0.0]]),
)


def check_loss(loss: Loss, targets: Floats | None = None) -> None:
    """Check that a loss keeps the contract of `dsel.objective.losses.loss.Loss`.

    Parameters
    ----------
    loss : Loss
        The loss. It need not be installed.
    targets : (m,) or (m, q) array, optional
        Targets that it can be used for. By default amounts, counts, classes, or times with events, whichever it takes
        first.

    Raises
    ------
    AssertionError
        The loss breaks the contract. The message says how.

    Notes
    -----
    These statements are checked for each target, at linear predictors from -4 to 4:

    - the deviance is finite, at least 0, and near 0 at its least;
    - the slope is its derivative, and the curvature the derivative of the slope;
    - the deviance is convex, and the curvature is from 0 to `curvature_limit`;
    - the conjugate of the slope is ``slope * eta - deviance``, and nowhere less than ``a * eta - deviance``;
    - the mean increases with the linear predictor, unless there are several;
    - of a loss that is not a sum over rows, the same is true of all rows together, and a weight of 2 is a row twice;
    - the loss that is fitted to targets is of the same name, can be pickled, and is the same after it was saved.

    Examples
    --------
    >>> from dsel.objective.losses.poisson import Poisson
    >>> check_loss(Poisson())
    """
    require(bool(loss.name) and bool(loss.summary), f"{type(loss).__name__} needs a name and a summary.")
    raw = _targets(loss) if targets is None else np.asarray(targets, np.float64)
    fitted = loss.fitted_to(raw)
    require(fitted.name == loss.name, f"{loss.name}: fitted_to returns the loss {fitted.name!r}.")
    again = pickle.loads(pickle.dumps(fitted)).restored(fitted.parameters())
    y = fitted.encode(raw)
    require(y.shape == raw.shape[:1], f"{loss.name}: encode returns the shape {y.shape} for {raw.shape}.")
    zeros = np.zeros_like(y) if fitted.outputs == 1 else np.zeros((y.size, fitted.outputs))
    same = np.array_equal(again.deviance(y, zeros), fitted.deviance(y, zeros))
    kept = np.array_equal(again.encode(raw), y) and same
    require(kept, f"{loss.name}: it is another loss after it was saved and opened.")
    if fitted.outputs > 1:
        _check_outputs(fitted, y)
        return
    if not fitted.by_rows:
        _check_together(fitted, y)
        return
    eta = np.tile(_ETA, y.size)
    _Check(fitted, np.repeat(y, _ETA.size), eta).all()


def _check_outputs(loss: Loss, y: Floats) -> None:
    """Check a loss with several outputs along random lines of its linear predictors."""
    rng, t = np.random.default_rng(0), loss.outputs
    contrasts = loss.contrasts
    problem = f"{loss.name}: "
    orthonormal = contrasts is not None and np.allclose(contrasts.T @ contrasts, np.eye(t))
    require(orthonormal, f"{problem}the contrasts are no orthonormal columns for {t} outputs.")
    for _ in range(_LINES):
        eta, u = 2.0 * rng.normal(size=(y.size, t)), rng.normal(size=(y.size, t))
        d, slope, curvature = loss.deviance(y, eta), loss.slope(y, eta), loss.curvature(y, eta)
        require(bool((d >= 0.0).all() and np.isfinite(d).all()), f"{problem}a deviance is negative or not finite.")
        up, down = (loss.deviance(y, eta + h * u) for h in (_STEP, -_STEP))
        stated = (slope * u).sum(axis=1)
        require(np.allclose((up - down) / (2.0 * _STEP), stated, atol=_AGREES), f"{problem}the slope is wrong.")
        change = (loss.slope(y, eta + _STEP * u) - loss.slope(y, eta - _STEP * u)) / (2.0 * _STEP)
        stated = np.einsum("rij,rj->ri", curvature, u)
        require(np.allclose(change, stated, atol=_AGREES), f"{problem}the curvature is wrong.")
        values = np.linalg.eigvalsh(curvature)
        inside = values.min() >= -_ROUNDING and values.max() <= loss.curvature_limit * (1.0 + _ROUNDING)
        require(inside, f"{problem}a curvature is negative, or above the limit.")
        require(bool((loss.working_curvature(y, eta) > 0.0).all()), f"{problem}a working curvature is not above 0.")
        stated = loss.conjugate(y, slope)
        equal = (slope * eta).sum(axis=1) - d
        require(np.allclose(stated, equal, atol=1e-6), f"{problem}the conjugate of a slope is wrong.")
        other = rng.normal(size=(y.size, t))
        least = (slope * other).sum(axis=1) - loss.deviance(y, other)
        require(bool((stated >= least - 1e-6).all()), f"{problem}the conjugate is less than a'eta - deviance.")


def _check_together(loss: Loss, y: Floats) -> None:
    """Check a loss that is not a sum over rows along random lines of the linear predictors of all rows."""
    rng, m, problem = np.random.default_rng(0), y.size, f"{loss.name}: "
    for _ in range(_LINES):
        w = np.asarray(rng.integers(1, 4, m), np.float64)
        rows, eta, u = loss.of_rows(y, w), 2.0 * rng.normal(size=m), rng.normal(size=m)
        value, slope = rows.value(eta), rows.slope(eta)
        require(np.isfinite(value) and value >= 0.0, f"{problem}the value is negative or not finite.")
        up, down = eta + _STEP * u, eta - _STEP * u
        found = (rows.value(up) - rows.value(down)) / (2.0 * _STEP)
        require(bool(np.isclose(slope @ u, found, rtol=_AGREES, atol=_AGREES)), f"{problem}the slope is wrong.")
        H = rows.hessian(eta, np.eye(m))
        change = (rows.slope(up) - rows.slope(down)) / (2.0 * _STEP)
        require(np.allclose(H @ u, change, rtol=_AGREES, atol=_AGREES), f"{problem}the Hessian is wrong.")
        over = np.diag(rows.curvature(eta)) - H
        convex = min(np.linalg.eigvalsh(H).min(), np.linalg.eigvalsh(over).min()) >= -_ROUNDING
        require(bool(convex), f"{problem}the Hessian has a negative eigenvalue, or is not below the curvature.")
        weight, step = rows.working_response(eta)
        agrees = np.allclose(2.0 * weight * step, slope) and bool((weight > 0.0).all())
        require(agrees, f"{problem}the working response has another slope, or weights that are not above 0.")
        if not loss.has_intercept:
            same = np.isclose(rows.value(eta + 3.0), value) and abs(slope.sum()) <= _ROUNDING
            require(bool(same), f"{problem}a constant changes the value, and the loss has no intercept.")
        twice = np.repeat(np.arange(m), w.astype(int))
        repeated = loss.of_rows(y[twice], np.ones(twice.size)).value(eta[twice])
        require(bool(np.isclose(repeated, value)), f"{problem}a weight of 2 is not a row twice.")
        a, constant, rounding, _ = rows.dual(eta, np.zeros(m))
        require(np.allclose(a, slope), f"{problem}the dual vector is not the slope.")
        exact = bool(np.isclose(constant + rounding, value - slope @ eta)) and rounding <= 1e-9 * (1.0 + value)
        require(exact, f"{problem}the dual constant at a slope is wrong.")
        other = rng.normal(size=m)
        require(rows.value(other) >= constant + a @ other, f"{problem}a dual vector proves too much.")
    one = loss.of_rows(y, np.ones(m))
    slope, value = one.slope(eta), one.value(eta)
    require(bool(np.isclose(loss.deviance(y, eta).sum(), value)), f"{problem}the deviances do not add up to the value.")
    require(np.allclose(loss.slope(y, eta), slope), f"{problem}the slope of rows is another one.")
    diagonal = np.diag(one.hessian(eta, np.eye(m)))
    require(np.allclose(loss.curvature(y, eta), diagonal), f"{problem}the curvature is not the diagonal.")
    stated = loss.conjugate(y, slope).sum()
    require(bool(np.isclose(stated, slope @ eta - value)), f"{problem}the conjugate of a slope is wrong.")


def _targets(loss: Loss) -> Floats:
    """Return the first targets that a loss takes."""
    for targets in _TARGETS:
        try:
            loss.fitted_to(targets)
        except DataError:
            continue
        return targets
    raise AssertionError(f"{loss.name} takes none of the usual targets. Give targets that it takes.")


class _Check:
    """A loss at targets and linear predictors."""

    def __init__(self, loss: Loss, y: Floats, eta: Floats) -> None:
        self.loss, self.y, self.eta = loss, y, eta
        self.deviance = loss.deviance(y, eta)
        self.slope, self.curvature = loss.slope(y, eta), loss.curvature(y, eta)
        self.size = 1.0 + np.abs(self.deviance) + np.abs(self.slope) + np.abs(eta)

    def all(self) -> None:
        """Check everything."""
        self.values()
        self.derivatives()
        self.conjugate()
        mean = self.loss.mean(_ETA)
        self._require(bool((np.diff(mean) > 0.0).all()), "the mean does not increase with the linear predictor")

    def values(self) -> None:
        """Check the deviance, its least value, and the curvature."""
        loss, d = self.loss, self.deviance
        self._require(bool(np.isfinite(d).all()), "a deviance is not finite")
        self._require(bool((d >= 0.0).all()), f"a deviance is negative: {d.min():.3g}")
        perfect = np.array([self._least(target) for target in np.unique(self.y)])
        self._require(bool((perfect <= 1e-6).all()), f"no fit is perfect: the least deviance is {perfect.max():.3g}")
        for name, c in (("curvature", self.curvature), ("working curvature", loss.working_curvature(self.y, self.eta))):
            self._require(bool((c >= 0.0).all()), f"a {name} is negative: {c.min():.3g}")
        most = float(self.curvature.max())
        self._require(most <= loss.curvature_limit * (1.0 + _ROUNDING), f"a curvature of {most:.6g} is above the limit")

    def _least(self, target: float) -> float:
        """Return the least deviance for a target, by ternary search over the linear predictor."""
        low, high = -60.0, 60.0
        y = np.array([target])
        for _ in range(200):
            third = (high - low) / 3.0
            a, b = (float(self.loss.deviance(y, np.array([at]))[0]) for at in (low + third, high - third))
            low, high = (low, high - third) if a <= b else (low + third, high)
        return float(self.loss.deviance(y, np.array([(low + high) / 2.0]))[0])

    def derivatives(self) -> None:
        """Check slope and curvature by differences, and convexity by midpoints."""
        loss, y, eta = self.loss, self.y, self.eta
        up, down = eta + _STEP, eta - _STEP
        slope = (loss.deviance(y, up) - loss.deviance(y, down)) / (2.0 * _STEP)
        self._agree("slope", self.slope, slope)
        curvature = (loss.slope(y, up) - loss.slope(y, down)) / (2.0 * _STEP)
        smooth = np.abs(loss.curvature(y, up) - loss.curvature(y, down)) <= 1e-2 * (1.0 + self.curvature)
        self._agree("curvature", self.curvature[smooth], curvature[smooth])
        middle = loss.deviance(y, (eta + 1.0) / 2.0)
        chord = (self.deviance + loss.deviance(y, np.ones_like(eta))) / 2.0
        self._require(bool((middle <= chord + _ROUNDING * self.size).all()), "the deviance is not convex")

    def _agree(self, name: str, stated: Floats, found: Floats) -> None:
        off = np.abs(stated - found) > _AGREES * (1.0 + np.abs(found))
        if off.any():
            i = int(np.argmax(off))
            self._require(False, f"the {name} is {stated[i]:.6g}, and differences give {found[i]:.6g}")

    def conjugate(self) -> None:
        """Check the equality of Fenchel at each slope, and his inequality at slopes of other predictors."""
        equal = self.slope * self.eta - self.deviance
        stated = self.loss.conjugate(self.y, self.slope)
        off = np.abs(stated - equal) > 1e-6 * self.size**2
        if off.any():
            i = int(np.argmax(off))
            self._require(
                False, f"the conjugate at the slope {self.slope[i]:.6g} is {stated[i]:.6g}, not {equal[i]:.6g}"
            )
        for other in _ETA[::4]:
            at = np.full_like(self.eta, other)
            least = self.slope * at - self.loss.deviance(self.y, at)
            low = stated < least - 1e-6 * self.size**2
            self._require(not low.any(), "the conjugate is less than a * eta - deviance for some eta")

    def _require(self, condition: bool, problem: str) -> None:
        require(condition, f"{self.loss.name}: {problem}.")

"""The perspective relaxation of a node for any loss, by Newton steps on the loss itself.

Each step minimizes a quadratic model of the loss, with the price of the free columns, by coordinate descent among
the columns that have coefficients or that the last dual vector shows to need one. The dual vector a = w d'(eta) of every
step gives a bound, so that a step that ends early costs nothing but tightness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.coordinate_descent import relax_model
from dsel.search.exact.losses.problem import Dual, LossProblem
from dsel.search.exact.perspective.coordinate_descent import level, penalty

#: Most Newton steps of a relaxation, and most halvings of a step.
_STEPS, _HALVINGS = 60, 30
#: The change of coefficients at which coordinate descent ends, as a share of the largest.
_TOLERANCE = 1e-9
#: Rows have at least this share of the mean curvature, so that rows without curvature (Huber) stop no step.
_LEAST_CURVATURE = 1e-3
#: A step ends the relaxation if it lowers the objective by less than this share.
_SETTLED = 1e-14


@dataclass(frozen=True)
class Point:
    """Coefficients b (p,) of the columns S (p,), the intercept b0, and the price s of a column."""

    S: Ints
    b: Floats
    b0: float
    s: float = 0.0


@dataclass(frozen=True)
class Relaxed:
    """What a relaxation found: the best bound with its dual vector, the last point and its objective."""

    bound: float
    dual: Dual
    point: Point
    value: float


#: No column, and no intercept.
START = Point(np.zeros(0, np.int64), np.zeros(0), 0.0)


def relax(
    problem: LossProblem, fixed: Bools, free: Bools, q: int, start: Point = START, enough: float = np.inf,
    close: float = 0.0,
) -> Relaxed:  # fmt: skip
    """Return the relaxation of the subsets with the columns `fixed` and at most q of the columns `free`, both (n,).

    start: where to begin. enough: a bound that ends the relaxation. close: it also ends when the bound is as close to
    its own objective, as a share of what is missing to `enough`.
    """
    Zt, w, loss, y = problem.columns, problem.w, problem.loss, problem.y
    kept = (fixed | free)[start.S]
    S, b, b0, s = start.S[kept], start.b[kept], start.b0, start.s
    eta = problem.offset + b @ Zt[S] + b0
    value = problem.loss_at(eta) + _penalty(problem, fixed[S], b, q)
    if not np.isfinite(value):
        S, b, b0, eta = START.S, START.b, 0.0, problem.offset.copy()
        value = problem.loss_at(eta)
    best: tuple[float, Dual] | None = None
    for step in range(_STEPS):
        a = w * loss.slope(y, eta)
        dual = problem.dual(a)
        bound = dual.bound(fixed, free, q)
        if best is None or bound > best[0]:
            best = bound, dual
        missing = enough - best[0]
        if missing <= 0.0 or (step and value - best[0] <= max(close * min(missing, abs(value)), _SETTLED * abs(value))):
            break
        S, b = _with_needed(problem, dual.gains, fixed, free, q, S, b, s)
        curvature = w * loss.curvature(y, eta)
        curvature = np.maximum(curvature, _LEAST_CURVATURE * float(curvature.mean()) * (w > 0.0))
        columns = Zt[S]
        H, r, shift, slope = _model(problem, columns, a, curvature)
        inside, new, limited = fixed[S], b.copy(), min(problem.largest, 1e150)
        gradient = r.copy()
        s = relax_model(H, new, r, inside, problem.lam, limited, min(q, b.size), s, _TOLERANCE)
        change = new - b
        before = _penalty(problem, inside, b, q)
        after = _penalty(problem, inside, new, q)
        d0 = -(slope + float(shift @ change)) if problem.intercept else 0.0
        expected = before - after - 0.5 * float(change @ (gradient + r))
        if problem.intercept:
            expected += 0.5 * slope * slope * float(curvature.sum())
        if not expected > _SETTLED * abs(value):
            break
        moved = _line_search(problem, (S, b, b0, eta, value), (change, d0, change @ columns + d0), inside, q, expected)
        if moved is None:
            break
        b, b0, eta, value = moved
    assert best is not None
    return Relaxed(*best, Point(S[b != 0.0], b[b != 0.0], b0, s), value)


def _penalty(problem: LossProblem, inside: Bools, b: Floats, q: int) -> float:
    """Return the penalty on coefficients with the best weights."""
    if problem.lam == 0.0:
        return 0.0
    own, others = b[inside], np.abs(b[~inside])
    return problem.lam * (float(own @ own) + (penalty(others, q) if q > 0 else 0.0))


def _with_needed(
    problem: LossProblem, gains: Floats, fixed: Bools, free: Bools, q: int, S: Ints, b: Floats, s: float
) -> tuple[Ints, Floats]:  # fmt: skip
    """Return the columns with coefficients, the fixed ones and those whose gain is above the price."""
    needed = fixed.copy()
    needed[S[b != 0.0]] = True
    others = np.flatnonzero(free & ~needed) if q > 0 else START.S
    most = max(3 * q, 20)
    price = float(problem.gains(np.array([s]))[0])
    wanted = others[gains[others] > price]
    if wanted.size < q:
        wanted = others
    if wanted.size > most:
        wanted = wanted[np.argpartition(-gains[wanted], most)[:most]]
    needed[wanted] = True
    at = np.flatnonzero(needed)
    found = np.zeros(needed.size)
    found[S] = b
    return at, found[at]


def _model(
    problem: LossProblem, columns: Floats, a: Floats, curvature: Floats
) -> tuple[Floats, Floats, Floats, float]:
    """Return the Hessian and the gradient of the loss, with the best intercept, and how that depends on both.

    The intercept changes by -(slope + shift'change).
    """
    H, r = (columns * curvature) @ columns.T, columns @ a
    if not problem.intercept:
        return H, r, r, 0.0
    total = float(curvature.sum())
    cross = columns @ curvature
    slope = float(a.sum()) / total
    H -= np.outer(cross, cross) / total
    return H, r - cross * slope, cross / total, slope


def _line_search(
    problem: LossProblem, at: tuple[Ints, Floats, float, Floats, float], step: tuple[Floats, float, Floats],
    inside: Bools, q: int, expected: float,
) -> tuple[Floats, float, Floats, float] | None:  # fmt: skip
    """Return coefficients, intercept, linear predictors and objective after the first half of half ... that is lower."""
    _, b, b0, eta, value = at
    change, d0, moved = step
    share = 1.0
    for _ in range(_HALVINGS):
        new_eta, new = eta + share * moved, b + share * change
        found = problem.loss_at(new_eta) + _penalty(problem, inside, new, q)
        if found <= value - 1e-4 * share * expected:
            return new, b0 + share * d0, new_eta, found
        share *= 0.5
    return None


def weights(point: Point, fixed: Bools, q: int) -> tuple[Ints, Floats]:
    """Return the free columns that have coefficients, and their weights from 0 to 1."""
    others = ~fixed[point.S]
    S, size = point.S[others], np.abs(point.b[others])
    t = level(size, q)
    return S, np.minimum(1.0, size / t) if t > 0.0 else np.ones(S.size)

"""The perspective relaxation of a node for any loss, by Newton steps on the loss itself.

Each step minimizes a quadratic model of the loss, with the price of the free columns, by coordinate descent among
the columns that have coefficients or that the last dual vector shows to need one. The dual vector a = w d'(eta) of
every step gives a bound, so that a step that ends early costs nothing but tightness.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.coefficients import feasible, penalty_of, priced, solved, with_needed
from dsel.search.exact.losses.coordinate_descent import relax_model
from dsel.search.exact.losses.outputs import dual_of_outputs, line_search, relax_outputs
from dsel.search.exact.losses.problem import LARGEST, START, Dual, LossProblem, Point, Relaxed, lengths
from dsel.search.exact.perspective.coordinate_descent import level

#: Most Newton steps of a relaxation.
_STEPS = 60
#: The tolerance of coordinate descent, for a relaxation that is to be exact and for others.
_EXACT, _ROUGH = 1e-8, 1e-4
#: Columns among which a node is relaxed at most, at first; the share of the q-th largest gain that leads there; rounds
#: with more of them; and the share of what is missing that the others may lower the bound by.
_FEW, _LEADS, _ROUNDS, _LOWERED = 300, 0.4, 4, 0.1
#: Rows have at least this curvature, so that a model has a minimum where the loss is linear (Huber).
_LEAST_CURVATURE = 1e-10
#: The shares of the curvature of parabolas through the loss and 0 that are tried where a Newton step is too long.
_SHARES = (0.01, 0.1, 1.0)
#: The objective is as low as rounding lets it be if a step lowers it by less than this share. A few more such steps
#: make the dual vector better.
_SETTLED = 1e-14
_POLISHING = 3
#: By how much such a step may raise it, as a share.
_ROUNDING = 1e-13
#: Without a penalty or a limit: the largest coefficients that bounds are about, as a multiple of those of the fit on
#: all columns.
_FREE_LIMIT = 1000.0
#: The same for a separable fit, whose coefficients are infinite: the largest part of a column in a linear predictor.
_LARGEST_PART = 1e4


def relax(
    problem: LossProblem, fixed: Bools, free: Bools, q: int, start: Point = START, enough: float = np.inf,
    close: float = 0.0,
) -> Relaxed:  # fmt: skip
    """Return the relaxation of the subsets with the items `fixed` and at most q of the items `free`, both (n,).

    start: where to begin. enough: a bound that ends the relaxation. close: it also ends when the bound is as close to
    its own objective, as a share of what is missing to `enough`. 0: as close as rounding lets it be.
    """
    if problem.loss.outputs > 1:
        return relax_outputs(problem, fixed, free, q, start, enough, close)
    Zt = problem.columns
    start = start.within(fixed | free)
    S, b0, s = start.S, start.b0, start.s
    b = feasible(problem, S, problem.coefficients(start), fixed, q)
    eta = problem.offset + b @ Zt[problem.members(S)] + b0
    value, without = problem.loss_at(eta) + penalty_of(problem, S, b, fixed, q), problem.loss_at(problem.offset + b0)
    if not value <= without:
        S, b, eta, value = START.S, START.b, problem.offset + b0, without
    best: tuple[float, Dual] | None = None
    polished, tolerance = 0, _EXACT if close == 0.0 else _ROUGH
    for step in range(_STEPS):
        a = problem.rows.slope(eta)
        dual = problem.dual_at(eta, a)
        bound = dual.bound(fixed, free, q)
        if best is None or bound > best[0]:
            best = bound, dual
        missing = enough - best[0]
        if missing <= 0.0 or (step and value - best[0] <= max(close * min(missing, abs(value)), _SETTLED * abs(value))):
            break
        S, b = with_needed(problem, dual.gains, fixed, free, q, S, b, s)
        moved = None
        for curvature in _curvatures(problem, eta, a):
            s, direction, expected = _newton_step(problem, S, b, eta, a, curvature, fixed, q, s, tolerance)
            last = not expected > _SETTLED * abs(value)
            moved = line_search(problem, S, (b, b0, eta, value), direction, fixed, q,
                                -_ROUNDING * abs(value) if last else expected)  # fmt: skip
            if moved is not None or last:
                break
        if close == 0.0 and (last or moved is None):  # the step for the dual vector itself has no rounding of eta
            dual = problem.dual_at(eta + direction[2], a + curvature * direction[2])
            best = max(best, (dual.bound(fixed, free, q), dual), key=lambda pair: pair[0])
        polished += last
        if moved is None or polished > (_POLISHING if close == 0.0 else 0):
            break
        b, b0, eta, value = moved
    assert best is not None
    return Relaxed(*best, problem.point(S, b, b0, s), value)


def limit_of_bounds(problem: LossProblem, allowed: Bools) -> float:
    """Return the limit of coefficients for bounds where the problem has neither a penalty nor a limit."""
    b = problem.coefficients(relax(problem, allowed, np.zeros_like(allowed), 0).point)
    spread = problem.norms[problem.members(np.flatnonzero(allowed))] / problem.y.size**0.5
    unit = max(1.0, float(np.abs(problem.y).max())) if problem.loss.link == "identity" else 1.0
    most = _LARGEST_PART * unit / float(spread[spread > 0.0].min(initial=np.inf))
    return min(_FREE_LIMIT * float(lengths(b).max(initial=0.0)), most) or 1.0


def relaxed_at(problem: LossProblem, fixed: Bools, free: Bools, q: int, point: Point) -> Relaxed:
    """Return what the dual vector at a point proves, without a step. Arguments: those of `relax`."""
    eta = problem.predictors(point)
    one = problem.loss.outputs == 1
    dual = problem.dual_at(eta, problem.rows.slope(eta)) if one else dual_of_outputs(problem, eta)
    return Relaxed(dual.bound(fixed, free, q), dual, point, np.inf)


def relax_near(
    problem: LossProblem, fixed: Bools, free: Bools, q: int, near: Relaxed, enough: float, close: float
) -> Relaxed:  # fmt: skip
    """Return a relaxation as `relax` does, among the columns that matter; its bound is for all columns.

    near: the relaxation of the node above, which shows what matters.
    """
    if q <= 0 or free.size <= _FEW:
        return relax(problem, fixed, free, q, near.point, enough, close)
    inside, point, best = fixed.copy(), near.point, None
    inside[point.S] = True
    inside |= _leading(near.dual.gains, free, q)
    for _ in range(_ROUNDS):
        at = np.flatnonzero(inside)
        found = relax(problem.of_items(at), fixed[at], free[at], q, point.among(at), enough, close)
        dual, point = problem.of_all_columns(found.dual), found.point.of(at)
        bound = dual.bound(fixed, free, q)
        if best is None or bound > best.bound:
            best = Relaxed(bound, dual, point, found.value)
        more = _leading(dual.gains, free, q) & ~inside
        missing = min(enough - best.bound, abs(found.value))
        if missing <= 0.0 or found.bound - bound <= _LOWERED * missing or not more.any():
            break
        inside |= more
    assert best is not None
    return best


def _leading(gains: Floats, free: Bools, q: int) -> Bools:
    """Return which columns (n,) are free and have a gain near the q largest ones, some hundreds at most."""
    gains = np.where(free, gains, -np.inf)
    most = min(max(20 * q, _FEW), gains.size)
    order = np.argpartition(-gains, most - 1)[:most]
    least = np.sort(gains[order])[-min(q, most)]
    found = np.zeros(free.size, np.bool_)
    found[order[gains[order] >= max(_LEADS * least, 0.0)]] = True
    return found & free


def _curvatures(problem: LossProblem, eta: Floats, a: Floats) -> Iterator[Floats]:
    """Yield the curvature of each row (m,), then more and more of what the parabola through the loss and 0 has.

    The others are for rows that are far from a fit, where a Newton step is too long. For a loss that is not a sum
    over rows, the first one is NaN: the Hessian of all rows counts. The second one is above it.
    """
    w = problem.w
    curvature = np.maximum(problem.rows.curvature(eta), _LEAST_CURVATURE * w)
    if not problem.loss.by_rows:
        yield np.full(w.size, np.nan)
        yield curvature
        return
    yield curvature
    deviance = 2.0 * w * problem.loss.deviance(problem.y, eta)
    parabola = np.divide(a * a, deviance, out=np.zeros_like(a), where=deviance > 0.0)
    for share in _SHARES:
        yield np.maximum(curvature, share * parabola)


def _newton_step(
    problem: LossProblem, S: Ints, b: Floats, eta: Floats, a: Floats, curvature: Floats, fixed: Bools, q: int,
    s: float, tolerance: float,
) -> tuple[float, tuple[Floats, float, Floats], float]:  # fmt: skip
    """Return the price, the step of b, of the intercept and of linear predictors, and by how much the model falls."""
    columns = problem.columns[problem.members(S)]
    if np.isnan(curvature).any():
        H, r, shift, slope = problem.rows.hessian(eta, columns.T), columns @ a, np.zeros(b.size), 0.0
        curvature = np.zeros(1)
    else:
        H, r, shift, slope = _model(problem, columns, a, curvature)
    new, s = _minimized(problem, S, H, r, b, fixed, q, s, tolerance)
    change = new - b
    d0 = -(slope + float(shift @ change)) if problem.intercept else 0.0
    expected = penalty_of(problem, S, b, fixed, q) - penalty_of(problem, S, new, fixed, q)
    expected -= float(change @ (r + 0.5 * (H @ change)))
    if problem.intercept:
        expected += 0.5 * slope * slope * float(curvature.sum())
    return s, (change, d0, change @ columns + d0), expected


def _minimized(
    problem: LossProblem, S: Ints, H: Floats, r: Floats, b: Floats, fixed: Bools, q: int, s: float, tolerance: float
) -> tuple[Floats, float]:  # fmt: skip
    """Return the coefficients (p,) that minimize the model with the gradient r (p,) at b (p,), and the price."""
    inside = fixed[S]
    if inside.all():
        return _within_limit(H, r, b, problem.lam, problem.largest), s
    if problem.groups is not None:
        return priced(problem, S, H, b, r, fixed, q, s, tolerance)
    new, left = b.copy(), r.copy()
    s = relax_model(H, new, left, inside, problem.lam, min(problem.largest, LARGEST), min(q, b.size), s, tolerance)
    return new, s


def _within_limit(H: Floats, r: Floats, b: Floats, lam: float, limit: float) -> Floats:
    """Return the least point (s,) of the model with the gradient r at b, within the limit, by an active set."""
    x = b + solved(H, r + 2.0 * lam * b, lam)
    if limit == np.inf or float(np.abs(x).max(initial=0.0)) <= limit:
        return x
    x, at = np.clip(b, -limit, limit), np.zeros(b.size, np.bool_)
    for _ in range(5 * b.size):
        gradient = r + H @ (x - b) + 2.0 * lam * x
        loose = ~at
        step = np.zeros(b.size)
        step[loose] = solved(H[np.ix_(loose, loose)], gradient[loose], lam)
        room = np.where(step > 0.0, limit - x, limit + x)
        shares = np.divide(room, np.abs(step), out=np.full(b.size, np.inf), where=step != 0.0)
        first = int(shares.argmin())
        if shares[first] < 1.0:
            x = x + shares[first] * step
            x[first], at[first] = np.copysign(limit, step[first]), True
            continue
        x = x + step
        push = np.where(at, np.sign(x) * (gradient + H @ step), -np.inf)
        worst = int(push.argmax())
        if push[worst] <= 1e-12 * float(np.abs(r).max()):
            break
        at[worst] = False
    return np.clip(x, -limit, limit)


def _model(problem: LossProblem, columns: Floats, a: Floats, curvature: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Return the Hessian and the gradient of the loss, with the best intercept, and how that depends on both.

    The intercept changes by -(slope + shift'change).
    """
    root = np.sqrt(curvature)
    if not problem.intercept:
        scaled = columns * root
        return scaled @ scaled.T, columns @ a, np.zeros(columns.shape[0]), 0.0
    total = float(curvature.sum())
    shift = columns @ curvature / total
    centered = columns - shift[:, None]
    scaled = centered * root
    return scaled @ scaled.T, centered @ a, shift, float(a.sum()) / total


def weights(point: Point, fixed: Bools, q: int) -> tuple[Ints, Floats]:
    """Return the free items that have coefficients, and their weights from 0 to 1."""
    others = ~fixed[point.S]
    S, size = point.S[others], lengths(point.b[others])
    t = level(size, q)
    return S, np.minimum(1.0, size / t) if t > 0.0 else np.ones(S.size)

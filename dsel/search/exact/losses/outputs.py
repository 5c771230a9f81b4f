"""Relaxations and bounds for a loss with several outputs, such as that of three or more classes.

A column has a vector of coefficients, and all that a relaxation says of a coefficient holds for its length. The
quadratic models have one curvature for each row, so that coordinate descent moves the vector of a column at once. Fits
of given columns take Newton steps with all curvatures.

For probabilities p with the sums that the targets have in each class, F(S) is at least

    - 2 sum_i w_i sum_c p_ic log p_ic - sum over S of h(|z_j'a|),    a = 2 w (p - e_y),

where h is that of one output: the conjugate of the multinomial deviance is twice the negative entropy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.coefficients import feasible, penalty_of, priced, with_needed
from dsel.search.exact.losses.coordinate_descent import balance_sums
from dsel.search.exact.losses.problem import START, Dual, LossProblem, Point, Relaxed, lengths

_EPS = float(np.finfo(np.float64).eps)
#: Most steps of a relaxation and of a fit, and most halvings of a step.
_STEPS, _HALVINGS = 100, 12
#: Coefficients that a Newton step changes at most where columns are free.
_MOST_AT_ONCE = 200
#: Steps after which a relaxation ends whose objective shows that its node stays open.
_STEPS_OPEN = 30
#: A step that lowers the objective by less than this share is the last one.
_SETTLED = 1e-14
#: The tolerance of a model, as a share of the largest coefficient.
_TOLERANCE = 1e-5


def dual_of_outputs(problem: LossProblem, eta: Floats) -> Dual:
    """Return what the probabilities at linear predictors (m, t) prove, after they have got the sums of the targets."""
    contrasts = problem.loss.contrasts
    assert contrasts is not None
    y, w, m = problem.y.astype(np.int64), problem.w, problem.y.size
    p = problem.loss.mean(eta @ contrasts.T)
    moved = p * (w * (1.0 - 8.0 * _EPS))[:, None]  # what each row gives to other classes than its own
    moved[np.arange(m), y] = 0.0
    with np.errstate(over="ignore"):  # a class that gets nearly nothing
        moved = _balanced(moved, y) if problem.intercept else moved
    q = np.divide(moved, w[:, None], out=np.zeros_like(moved), where=w[:, None] > 0.0)
    own = np.maximum(1.0 - q.sum(axis=1), 0.0)
    terms = 2.0 * w * (scipy.special.xlogy(q, q).sum(axis=1) + scipy.special.xlogy(own, own))
    moved[np.arange(m), y] = -moved.sum(axis=1)
    a = 2.0 * moved
    size = float(np.abs(terms).sum())
    rounding = float(_EPS * ((64.0 + np.log2(m)) * size + 1300.0 * (2.0 + p.shape[1]) * float(w.sum())))
    products = lengths(problem.columns @ a) + (m + 8.0) * _EPS * float(np.sqrt(np.vdot(a, a))) * problem.norms
    return Dual(a, -float(terms.sum()) - rounding, problem.of_each(problem.gains(products)), rounding)


def _balanced(moved: Floats, y: Ints) -> Floats:
    """Return values between 0 and `moved` (m, q) with which each class gets exactly as much as it gives.

    moved: what each row gives to the classes that are not its own. Values are multiples of one power of two, so that
    float64 has their sums exactly. A class that exchanges too little with the others gives and gets nothing.
    """
    q = moved.shape[1]
    of_class = np.eye(q)[y]
    give, get = np.ones(q), np.ones(q)  # all rows of a class have the same factors
    balance_sums(np.ascontiguousarray(of_class.T @ moved), give, get)
    moved = moved * get * give[y][:, None]
    top = float(moved.max(initial=0.0)) * moved.size
    if not 1e-280 < top < 1e280:
        return np.zeros_like(moved)
    quantum = 2.0 ** (np.ceil(np.log2(top)) - 51.0)
    units = np.trunc(moved / quantum)
    for _ in range(q):
        for _ in range(q * q):
            flows = of_class.T @ units
            rest = flows.sum(axis=0) - flows.sum(axis=1)  # more than 0: the class gets too much
            if not rest.any():
                return np.asarray(units * quantum)
            for source in np.flatnonzero(rest < 0.0):
                for target in np.flatnonzero(rest > 0.0):
                    between = np.flatnonzero(np.minimum(flows[source], flows[:, target]))
                    for way in [((source, target),), *(((source, c), (c, target)) for c in between)]:
                        surplus = min(rest[target], -rest[source], *(flows[step] for step in way))
                        if surplus > 0.0:
                            for giving, getting in way:
                                _take(units[:, getting], y == giving, surplus)
                                flows[giving, getting] -= surplus
                            rest[target] -= surplus
                            rest[source] += surplus
        exchanged = np.where(rest, flows.sum(axis=0) + flows.sum(axis=1), np.inf)
        apart = int(exchanged.argmin())
        units[y == apart] = 0.0
        units[:, apart] = 0.0
    return np.zeros_like(moved)


def _take(units: Floats, rows: Bools, amount: float) -> None:
    """Lower whole numbers of some rows in place by an amount in total, the largest first."""
    there = np.flatnonzero(rows)
    for i in there[np.argsort(-units[there], kind="stable")]:
        taken = min(amount, units[i])
        units[i] -= taken
        amount -= taken
        if amount <= 0.0:
            break


def relax_outputs(
    problem: LossProblem, fixed: Bools, free: Bools, q: int, start: Point = START, enough: float = np.inf,
    close: float = 0.0,
) -> Relaxed:  # fmt: skip
    """Return the relaxation of a loss with several outputs. Arguments: those of `relax`."""
    t, Zt = problem.loss.outputs, problem.columns
    start = start.within(fixed | free)
    S, s, b0 = start.S, start.s, np.zeros(t) + start.b0
    b = feasible(problem, S, problem.coefficients(start), fixed, q)
    eta = Zt[problem.members(S)].T @ b + b0
    value = problem.loss_at(eta) + penalty_of(problem, S, b, fixed, q)
    nothing = np.zeros_like(eta)
    if not value <= (without := problem.loss_at(nothing)):  # Newton steps from far away may never come back
        S, b, b0, eta, value = START.S, np.zeros((0, t)), np.zeros(t), nothing, without
    best: tuple[float, Dual] | None = None
    tried = eta
    for step in range(_STEPS):
        dual = dual_of_outputs(problem, eta)
        bound = dual.bound(fixed, free, q)
        if best is None or bound > best[0]:
            best = bound, dual
        missing = enough - best[0]
        if missing <= 0.0 or (step and value - best[0] <= max(close * min(missing, abs(value)), 1e-12 * abs(value))):
            break
        if close and (value <= close * enough or step >= _STEPS_OPEN) and value < enough < np.inf:  # no bound closes it
            break
        S, b = with_needed(problem, dual.gains, fixed, free, q, S, b, s)
        columns = Zt[problem.members(S)]
        moved = None
        for attempt in range(3):
            if attempt == 0:
                new, d0 = _newton(problem, columns, b, eta) if _has_no_price(problem, fixed[S], b.size) else (b, None)
                if d0 is None or lengths(new).max(initial=0.0) > problem.largest:
                    continue
                if q > 0 and problem.lengths(new, S)[~fixed[S]].sum() > q * problem.largest:
                    continue
            else:
                new, d0, s = _by_model(problem, S, columns, b, eta, fixed, q, s, safe=attempt == 2)
            step_of_eta = columns.T @ (new - b) + d0
            tried = eta + step_of_eta if attempt == 0 else tried
            below = float(np.nextafter(value, -np.inf))
            moved = line_search(problem, S, (b, b0, eta, below), (new - b, d0, step_of_eta), fixed, q, 0.0)
            if moved is not None:
                break
        if moved is None:
            break
        lowered = value - moved[3]
        b, b0, eta, value = moved
        if lowered <= _SETTLED * abs(value):
            break
    assert best is not None
    for at in (eta, tried):  # a last step that rounding hides in the objective makes the bound better
        dual = dual_of_outputs(problem, at)
        best = max(best, (dual.bound(fixed, free, q), dual), key=lambda pair: pair[0])
    return Relaxed(*best, problem.point(S, b, b0, s), value)


def _has_no_price(problem: LossProblem, fixed: Bools, size: int) -> bool:
    """Return whether items cost nothing within their limit, and a step of all coefficients is not too large."""
    return bool(fixed.all()) or (problem.lam == 0.0 and size <= _MOST_AT_ONCE)


def _newton(problem: LossProblem, columns: Floats, b: Floats, eta: Floats) -> tuple[Floats, Floats]:
    """Return coefficients (p, t) of columns (p, m) after a full Newton step, and the change of the intercepts (t,)."""
    t, p = problem.loss.outputs, len(columns)
    Z1 = np.hstack([columns.T, np.ones((eta.shape[0], int(problem.intercept)))])
    g, flat = Z1.T @ problem.rows.slope(eta), problem.rows.hessian(eta, Z1)
    g[:p] += 2.0 * problem.lam * b
    flat[np.diag_indices(p * t)] += 2.0 * problem.lam
    step = -scipy.linalg.lstsq(flat, g.ravel(), cond=1e-14)[0].reshape(g.shape)
    d0 = step[p] if problem.intercept else np.zeros(t)
    return b + step[:p], d0


def _by_model(
    problem: LossProblem, S: Ints, columns: Floats, b: Floats, eta: Floats, fixed: Bools, q: int, s: float, safe: bool
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """Return the same by a model with one curvature for each row, and the price of a column.

    safe: whether the curvature is an upper limit, and not the mean of that of all outputs.
    """
    w, loss = problem.w, problem.loss
    slope = loss.slope(problem.y, eta) * w[:, None]
    c = w * (loss.curvature_limit if safe else np.maximum(loss.working_curvature(problem.y, eta), 1e-10))
    total = float(c.sum())
    shift = columns @ c / total if problem.intercept else np.zeros(len(columns))
    at_mean = slope.sum(axis=0) / total if problem.intercept else np.zeros(slope.shape[1])
    centered = columns - shift[:, None]
    H, r = (centered * c) @ centered.T, centered @ slope
    new, s = priced(problem, S, H, b, r, fixed, q, s, _TOLERANCE)
    change = new - b
    d0 = -(at_mean + shift @ change) if problem.intercept else np.zeros(slope.shape[1])
    return new, d0, s


def line_search(
    problem: LossProblem, S: Ints, at: tuple[Floats, Any, Floats, float], step: tuple[Floats, Any, Floats],
    fixed: Bools, q: int, expected: float,
) -> tuple[Floats, Any, Floats, float] | None:  # fmt: skip
    """Return coefficients, intercepts, linear predictors and objective after a step that is halved until it helps.

    expected: by how much the whole step should lower the objective; below 0, it may rise by as much.
    """
    b, b0, eta, value = at
    change, d0, moved = step
    allowed = max(-expected, 0.0)
    share = 1.0
    for _ in range(_HALVINGS):
        new, new_eta = b + share * change, eta + share * moved
        found = problem.loss_at(new_eta) + penalty_of(problem, S, new, fixed, q)
        if found <= value + allowed - 1e-4 * share * max(expected, 0.0):
            return new, b0 + share * d0, new_eta, found
        share *= 0.5
    return None

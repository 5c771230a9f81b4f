"""Relaxations and bounds for a loss with several outputs, such as that of three or more classes.

A column has a vector of coefficients, and all that a relaxation says of a coefficient holds for its length. The
quadratic models have one curvature for each row, so that coordinate descent moves the vector of a column at once. Fits
of given columns take Newton steps with all curvatures.

For probabilities p with the sums that the targets have in each class, F(S) is at least

    - 2 sum_i w_i sum_c p_ic log p_ic - sum over S of h(|z_j'a|),    a = 2 w (p - e_y),

where h is that of one output: the conjugate of the multinomial deviance is twice the negative entropy.
"""

from __future__ import annotations

import numpy as np
import scipy

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.coordinate_descent import weight_of_outputs
from dsel.search.exact.losses.problem import LARGEST, START, Dual, LossProblem, Point, Relaxed
from dsel.search.exact.perspective.coordinate_descent import penalty

_EPS = float(np.finfo(np.float64).eps)
#: Most steps of a relaxation and of a fit, most halvings of a step, and most prices of a step.
_STEPS, _HALVINGS, _PRICES = 100, 12, 40
#: A step that lowers the objective by less than this share is the last one.
_SETTLED = 1e-14
#: Sweeps that bring the sums of probabilities near those of the targets; the rest is exact.
_SWEEPS = 60
#: The tolerance of a model, as a share of the largest coefficient.
_TOLERANCE = 1e-5


def lengths(b: Floats) -> Floats:
    """Return the size of each coefficient (p,), or the length of each vector of coefficients (p, t)."""
    return np.abs(b) if b.ndim == 1 else np.asarray(np.sqrt(np.square(b).sum(axis=1)))


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
    return Dual(a, -float(terms.sum()) - rounding, problem.gains(products), rounding)


def _balanced(moved: Floats, y: Ints) -> Floats:
    """Return values between 0 and `moved` (m, q) with which each class gets exactly as much as it gives.

    moved: what each row gives to the classes that are not its own. Values are multiples of one power of two, so that
    float64 has their sums exactly. If nothing else does it, all are 0.
    """
    q = moved.shape[1]
    of_class = np.eye(q)[y]
    for _ in range(_SWEEPS):
        flows = of_class.T @ moved
        gives, gets = flows.sum(axis=1), flows.sum(axis=0)
        if np.abs(gives - gets).max() <= 1e-14 * gives.sum():
            break
        to = np.minimum(1.0, np.divide(gives, gets, out=np.ones(q), where=gets > 0.0))
        moved = moved * to
        gives, gets = (of_class.T @ moved).sum(axis=1), moved.sum(axis=0)
        share = np.minimum(1.0, np.divide(gets, gives, out=np.ones(q), where=gives > 0.0))
        moved = moved * share[y][:, None]
    top = float(moved.max(initial=0.0)) * moved.size
    if not 1e-280 < top < 1e280:
        return np.zeros_like(moved)
    quantum = 2.0 ** (np.ceil(np.log2(top)) - 51.0)
    units = np.trunc(moved / quantum)
    for _ in range(q * q):
        flows = of_class.T @ units
        rest = flows.sum(axis=0) - flows.sum(axis=1)  # more than 0: the class gets too much
        if not rest.any():
            return np.asarray(units * quantum)
        for source in np.flatnonzero(rest < 0.0):
            for target in np.flatnonzero(rest > 0.0):
                surplus = min(rest[target], -rest[source], flows[source, target])
                if surplus > 0.0:
                    _take(units[:, target], y == source, surplus)
                    rest[target] -= surplus
                    rest[source] += surplus
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
    kept = (fixed | free)[start.S]
    S, s = start.S[kept], start.s
    b = start.b[kept] if start.b.ndim == 2 else np.zeros((S.size, t))
    b0 = np.zeros(t) + start.b0
    b = _feasible(b, fixed[S], q, problem.largest)
    eta = Zt[S].T @ b + b0
    value = problem.loss_at(eta) + _penalty(problem, fixed[S], b, q)
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
        S, b = _with_needed(problem, dual.gains, fixed, free, q, S, b, s)
        moved = None
        for attempt in range(3):
            if attempt == 0:
                new, d0 = _newton(problem, S, b, eta) if fixed[S].all() else (b, None)
                if d0 is None or lengths(new).max(initial=0.0) > problem.largest:
                    continue
            else:
                new, d0, s = _by_model(problem, S, b, eta, fixed[S], q, s, safe=attempt == 2)
            step_of_eta = Zt[S].T @ (new - b) + d0
            tried = eta + step_of_eta if attempt == 0 else tried
            moved = _line_search(problem, (b, b0, eta, value), (new - b, d0, step_of_eta), fixed[S], q)
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
    used = b.any(axis=1)
    return Relaxed(*best, Point(S[used], b[used], b0, s), value)


def _feasible(b: Floats, inside: Bools, q: int, limit: float) -> Floats:
    """Return vectors (p, t) of a length within the limit, those of free columns with at most q limits together."""
    if limit == np.inf or not b.size:
        return b
    size = np.maximum(lengths(b), 1e-300)
    b = b * np.minimum(1.0, limit / size)[:, None]
    total = float(lengths(b)[~inside].sum())
    shrunk = min(1.0, max(q, 0) * limit / total) if total > 0.0 else 1.0
    return np.where(inside[:, None], b, b * shrunk)


def _penalty(problem: LossProblem, inside: Bools, b: Floats, q: int) -> float:
    if problem.lam == 0.0:
        return 0.0
    own, others = b[inside], lengths(b[~inside])
    return problem.lam * (float(np.vdot(own, own)) + (penalty(others, q) if q > 0 else 0.0))


def _with_needed(
    problem: LossProblem, gains: Floats, fixed: Bools, free: Bools, q: int, S: Ints, b: Floats, s: float
) -> tuple[Ints, Floats]:  # fmt: skip
    """Return the columns with coefficients, the fixed ones and those whose gain is above the price."""
    needed = fixed.copy()
    needed[S[b.any(axis=1)]] = True
    others = np.flatnonzero(free & ~needed) if q > 0 else START.S
    price = float(problem.gains(np.array([s]))[0])
    wanted = others[gains[others] > price]
    wanted = others if wanted.size < q else wanted
    most = max(3 * q, 20)
    if wanted.size > most:
        wanted = wanted[np.argpartition(-gains[wanted], most)[:most]]
    needed[wanted] = True
    at = np.flatnonzero(needed)
    found = np.zeros((needed.size, b.shape[1]))
    found[S] = b
    return at, found[at]


def _newton(problem: LossProblem, S: Ints, b: Floats, eta: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients (p, t) after a full Newton step, and the change of the intercepts (t,)."""
    t = problem.loss.outputs
    Z1 = np.hstack([problem.columns[S].T, np.ones((eta.shape[0], int(problem.intercept)))])
    g, flat = Z1.T @ problem.rows.slope(eta), problem.rows.hessian(eta, Z1)
    g[: S.size] += 2.0 * problem.lam * b
    flat[np.diag_indices(S.size * t)] += 2.0 * problem.lam
    step = -scipy.linalg.lstsq(flat, g.ravel(), cond=1e-14)[0].reshape(g.shape)
    d0 = step[S.size] if problem.intercept else np.zeros(t)
    return b + step[: S.size], d0


def _by_model(
    problem: LossProblem, S: Ints, b: Floats, eta: Floats, inside: Bools, q: int, s: float, safe: bool
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """Return the same by a model with one curvature for each row, and the price of a column.

    safe: whether the curvature is an upper limit, and not the mean of that of all outputs.
    """
    w, loss = problem.w, problem.loss
    slope = loss.slope(problem.y, eta) * w[:, None]
    c = w * (loss.curvature_limit if safe else np.maximum(loss.working_curvature(problem.y, eta), 1e-10))
    columns, total = problem.columns[S], float(c.sum())
    shift = columns @ c / total if problem.intercept else np.zeros(S.size)
    at_mean = slope.sum(axis=0) / total if problem.intercept else np.zeros(slope.shape[1])
    centered = columns - shift[:, None]
    H, r = (centered * c) @ centered.T, centered @ slope
    new, s = _priced(problem, H, b, r, inside, q, s)
    change = new - b
    d0 = -(at_mean + shift @ change) if problem.intercept else np.zeros(slope.shape[1])
    return new, d0, s


def _priced(
    problem: LossProblem, H: Floats, b: Floats, r: Floats, inside: Bools, q: int, s: float
) -> tuple[Floats, float]:  # fmt: skip
    """Return the vectors (p, t) that minimize a model where the weights sum to at most q, and the price for that."""
    new, left = np.ascontiguousarray(b).copy(), np.ascontiguousarray(r).copy()
    limit = min(problem.largest, LARGEST)

    def over(price: float) -> float:
        return float(weight_of_outputs(H, new, left, inside, problem.lam, limit, price, _TOLERANCE)) - max(q, 0)

    free = int((~inside).sum())
    if free <= q or q <= 0:
        over(0.0 if q > 0 or free == 0 else np.inf)
        return new, 0.0
    top = float(lengths(np.diag(H)[:, None] * b - r)[~inside].max(initial=0.0))
    low, high = 0.0, np.inf
    s = s if 0.0 < s < np.inf else 0.5 * top
    for _ in range(_PRICES):
        found = over(s)
        if abs(found) <= 1e-4 * q or (found < 0.0 and s == 0.0) or (high < np.inf and high - low <= 1e-12 * high):
            break
        if found > 0.0:
            low = s
        else:
            high = s
        s = 2.0 * s if high == np.inf else 0.5 * (low + high) if low > 0.0 else s / 4.0 if s > 1e-12 * top else 0.0
    return new, s


def _line_search(
    problem: LossProblem, at: tuple[Floats, Floats, Floats, float], step: tuple[Floats, Floats, Floats],
    inside: Bools, q: int,
) -> tuple[Floats, Floats, Floats, float] | None:  # fmt: skip
    """Return coefficients, intercepts, linear predictors and objective after a step that is halved until it helps."""
    b, b0, eta, value = at
    change, d0, moved = step
    share = 1.0
    for _ in range(_HALVINGS):
        new, new_eta = b + share * change, eta + share * moved
        found = problem.loss_at(new_eta) + _penalty(problem, inside, new, q)
        if found < value:
            return new, b0 + share * d0, new_eta, found
        share *= 0.5
    return None

"""Coordinate descent for the quadratic model of a relaxation, and the price of a column that goes with q columns.

A free column with coefficient b pays, for the price s,

    s |b| up to |b| = knee,  then  lam (b^2 + knee^2),    knee = min(s / (2 lam), limit),

and |b| is at most the limit. That is its share of the relaxation with the best weight z = min(1, |b| / knee). A column
that is fixed in pays lam b^2.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Bool, Bools, Floats, Ints

#: Rounds of coordinate descent for a price, and prices that are tried.
_ROUNDS, _PRICES = 60, 40
#: Sweeps that bring the sums of two sides near each other.
_SWEEPS = 60


@compiled(inner=True)
def _least(x: float, h: float, is_fixed: Bool, lam: float, limit: float, knee: float, s: float) -> float:
    """Return the absolute value of the coefficient that is best for a column, where the slope at 0 is x."""
    if is_fixed:
        return 0.0 if h + lam == 0.0 else min(x / (h + 2.0 * lam), limit)
    if x <= s:
        return 0.0
    if x - s <= h * knee:
        return (x - s) / h
    return min(max(x / (h + 2.0 * lam), knee), limit) if lam > 0.0 else limit


@compiled("f8(f8[:,::1], f8[::1], f8[::1], b1[::1], f8, f8, f8, f8)", nogil=True)
def weight_at(
    H: Floats, b: Floats, r: Floats, fixed: Bools, lam: float, limit: float, s: float, tolerance: float
) -> float:  # fmt: skip
    """Improve b (p,) in place for the price s, and return the sum of the weights of the free columns.

    H (p, p): the Hessian of the loss. r (p,): its gradient at b, which is kept up to date. tolerance: the largest
    change of the last round, as a share of the largest coefficient.
    """
    knee = limit if lam == 0.0 else min(s / (2.0 * lam), limit)
    for _ in range(_ROUNDS):
        change, size = 0.0, 0.0
        for j in range(b.size):
            h = H[j, j]
            u = h * b[j] - r[j]
            x = _least(abs(u), h, fixed[j], lam, limit, knee, s)
            if u < 0.0:
                x = -x
            step = x - b[j]
            size = max(size, abs(x))
            if step != 0.0:
                change = max(change, abs(step))
                b[j] = x
                row = H[j]
                for i in range(b.size):
                    r[i] += step * row[i]
        if change <= tolerance * size:
            break
    total = 0.0
    for j in range(b.size):
        if not fixed[j] and b[j] != 0.0:
            total += 1.0 if abs(b[j]) >= knee else abs(b[j]) / knee
    return total


@compiled("f8(f8[:,::1], f8[::1], f8[::1], b1[::1], f8, f8, i8, f8, f8)", nogil=True)
def relax_model(
    H: Floats, b: Floats, r: Floats, fixed: Bools, lam: float, limit: float, q: int, s: float, tolerance: float
) -> float:  # fmt: skip
    """Minimize a quadratic model over b (p,) in place, where the weights sum to at most q, and return the price.

    s: a guess of the price. r (p,): the gradient of the loss at b, which is kept up to date. tolerance: the share of
    the largest coefficient by which the last round may change one, and of q by which the weights may miss it.
    """
    free, top = 0, 0.0
    for j in range(b.size):
        if not fixed[j]:
            free += 1
            top = max(top, abs(H[j, j] * b[j] - r[j]))
    if free <= q or q <= 0:
        weight_at(H, b, r, fixed, lam, limit, 0.0 if q > 0 or free == 0 else np.inf, tolerance)
        return 0.0
    if s <= 0.0:
        s = 0.5 * top
    low, high, at_low, at_high, factor = 0.0, np.inf, np.inf, -np.inf, 1.2
    for _ in range(_PRICES):
        over = weight_at(H, b, r, fixed, lam, limit, s, tolerance) - q
        if abs(over) <= tolerance * q or (over < 0.0 and s == 0.0):
            return s
        if over > 0.0:
            low, at_low = s, over
        else:
            high, at_high = s, over
        if high == np.inf:
            s *= factor
            factor *= factor
        elif at_low == np.inf:
            s = s / factor if s > 1e-12 * top else 0.0
            factor *= factor
        elif high - low <= 1e-12 * high:
            return s
        else:
            share = at_low / (at_low - at_high)
            s = low + min(max(share, 0.1), 0.9) * (high - low)
    return s


@compiled("f8(f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], f8[::1], b1[::1], f8[::1], f8, f8, f8, f8)", nogil=True)
def weight_of_groups(
    H: Floats, b: Floats, r: Floats, starts: Ints, steps: Floats, fixed: Bools, moves: Floats, lam: float, limit: float,
    s: float, tolerance: float,
) -> float:  # fmt: skip
    """Do what `weight_at` does for blocks of coefficients b (p, t), whose lengths are priced and limited.

    H (p, p): the Hessian of each output. r (p, t): the gradient at b, which is kept up to date. starts (g + 1,): where
    the rows of each block begin. steps (g,): the largest eigenvalue of H in each block: its model has this curvature.
    moves (p,): is overwritten.
    """
    knee = limit if lam == 0.0 else min(s / (2.0 * lam), limit)
    outputs = b.shape[1]
    for _ in range(_ROUNDS):
        change, size = 0.0, 0.0
        for g in range(steps.size):
            h = steps[g]
            x = 0.0
            for j in range(starts[g], starts[g + 1]):
                for o in range(outputs):
                    u = h * b[j, o] - r[j, o]
                    x += u * u
            long = np.sqrt(x)
            x = _least(long, h, fixed[g], lam, limit, knee, s)
            size = max(size, x)
            share = x / long if long > 0.0 else 0.0
            for o in range(outputs):
                for j in range(starts[g], starts[g + 1]):  # all of the block by the same gradient
                    moves[j] = share * (h * b[j, o] - r[j, o]) - b[j, o]
                for j in range(starts[g], starts[g + 1]):
                    if moves[j] != 0.0:
                        change = max(change, abs(moves[j]))
                        b[j, o] += moves[j]
                        for i in range(b.shape[0]):
                            r[i, o] += moves[j] * H[j, i]
        if change <= tolerance * size:
            break
    total = 0.0
    for g in range(steps.size):
        if not fixed[g]:
            x = 0.0
            for j in range(starts[g], starts[g + 1]):
                for o in range(outputs):
                    x += b[j, o] * b[j, o]
            x = np.sqrt(x)
            if x > 0.0:
                total += 1.0 if x >= knee else x / knee
    return total


@compiled("void(f8[:,::1], f8[::1], f8[::1])", nogil=True)
def balance_sums(whole: Floats, give: Floats, get: Floats) -> None:
    """Lower factors of rows and of columns (q,) in place until each class gives nearly as much as it gets.

    whole (q, q): what a class gives to another one, which is multiplied by the factors `give` of its row and `get` of
    its column.
    """
    for _ in range(_SWEEPS):
        total, apart = 0.0, 0.0
        for c in range(give.size):
            gives, gets = 0.0, 0.0
            for d in range(give.size):
                gives += give[c] * whole[c, d] * get[d]
                gets += give[d] * whole[d, c] * get[c]
            total += gives
            apart = max(apart, abs(gives - gets))
            if gets > gives:
                get[c] *= gives / gets
            elif gives > gets:
                give[c] *= gets / gives
        if apart <= 1e-14 * total:
            break


#: What `dsel.search.exact.losses.relaxation` and `dsel.search.exact.losses.outputs` call.
LOSS_RELAXATION_KERNELS = (weight_at, relax_model, weight_of_groups, balance_sums)

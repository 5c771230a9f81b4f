"""What relaxations for one and for several outputs have in common: coefficients of items, their penalty and price.

S are items in order: columns, or groups of columns. b are the coefficients of all of their columns: (p,), or (p, t) for
t outputs. fixed, free (n,): which items are in all subsets, and which may be. q: how many of the free ones at most.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.linalg.lapack import dposv

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.coordinate_descent import weight_of_groups
from dsel.search.exact.losses.problem import LARGEST, START, LossProblem, lengths
from dsel.search.exact.perspective.coordinate_descent import penalty

#: Most prices of a model.
_PRICES = 40


def feasible(problem: LossProblem, S: Ints, b: Floats, fixed: Bools, q: int) -> Floats:
    """Return coefficients within the limit, those of free items with a sum of lengths of at most q limits."""
    limit = problem.largest
    if limit == np.inf or not b.size:
        return b
    b = (
        np.clip(b, -limit, limit)
        if b.ndim == 1
        else b * np.minimum(1.0, limit / np.maximum(lengths(b), 1e-300))[:, None]
    )
    total = float(problem.lengths(b, S)[~fixed[S]].sum())
    share = min(1.0, max(q, 0) * limit / total) if total > 0.0 else 1.0
    return np.asarray((b.T * np.where(problem.per_column(fixed[S], S), 1.0, share)).T)


def penalty_of(problem: LossProblem, S: Ints, b: Floats, fixed: Bools, q: int) -> float:
    """Return the penalty on coefficients, with the best weights of the free items."""
    if problem.lam == 0.0:
        return 0.0
    own, others = b[problem.per_column(fixed[S], S)], problem.lengths(b, S)[~fixed[S]]
    return problem.lam * (float(np.vdot(own, own)) + (penalty(others, q) if q > 0 else 0.0))


def with_needed(
    problem: LossProblem, gains: Floats, fixed: Bools, free: Bools, q: int, S: Ints, b: Floats, s: float
) -> tuple[Ints, Floats]:  # fmt: skip
    """Return the items with coefficients, the fixed ones and those whose gain is above the price, and coefficients."""
    needed = fixed.copy()
    needed[S[problem.lengths(b, S) != 0.0]] = True
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
    found = np.zeros((problem.Z.shape[1], *b.shape[1:]))
    found[problem.members(S)] = b
    return at, found[problem.members(at)]


def priced(
    problem: LossProblem, S: Ints, H: Floats, b: Floats, r: Floats, fixed: Bools, q: int, s: float, tolerance: float
) -> tuple[Floats, float]:  # fmt: skip
    """Return the coefficients that minimize a model where the weights sum to at most q, and the price for that.

    H (p, p): the Hessian of each output. r: the gradient at b. s: a guess of the price.
    """
    starts, inside = _blocks(problem, S, fixed)
    steps = np.array([_largest_eigenvalue(H[i:j, i:j]) for i, j in pairwise(starts)])
    shape = (b.shape[0], problem.loss.outputs)
    new, left = (np.array(x, np.float64).reshape(shape) for x in (b, r))
    limit, moves = min(problem.largest, LARGEST), np.empty(shape[0])

    def over(price: float) -> float:
        found = weight_of_groups(H, new, left, starts, steps, inside, moves, problem.lam, limit, price, tolerance)
        return float(found) - max(q, 0)

    free = int((~inside).sum())
    if free <= q or q <= 0:
        over(0.0 if q > 0 or free == 0 else np.inf)
        return new.reshape(b.shape), 0.0
    sizes = lengths(np.repeat(steps, np.diff(starts))[:, None] * new - left)
    top = float(np.sqrt(np.add.reduceat(np.square(sizes), starts[:-1]))[~inside].max(initial=0.0))
    low, high = 0.0, np.inf
    s = s if 0.0 < s < np.inf else 0.5 * top
    for _ in range(_PRICES):
        found = over(s)
        if abs(found) <= 10.0 * tolerance * q or (found < 0.0 and s == 0.0):
            break
        if high < np.inf and high - low <= 1e-12 * high:
            break
        if found > 0.0:
            low = s
        else:
            high = s
        s = 2.0 * s if high == np.inf else 0.5 * (low + high) if low > 0.0 else s / 4.0 if s > 1e-12 * top else 0.0
    return new.reshape(b.shape), s


def _blocks(problem: LossProblem, S: Ints, fixed: Bools) -> tuple[Ints, Bools]:
    """Return where the blocks of coefficients begin that move together, and which of them are fixed.

    These are the columns of fixed items, and free items.
    """
    inside = fixed[S]
    if problem.groups is None:
        return np.arange(S.size + 1), np.ascontiguousarray(inside)
    sizes = problem.groups.sizes[S]
    counts = np.where(inside, sizes, 1)
    every = np.repeat(np.where(inside, 1, sizes), counts)
    return np.concatenate([[0], np.cumsum(every)]).astype(np.int64), np.repeat(inside, counts)


def _largest_eigenvalue(H: Floats) -> float:
    if H.shape[0] == 1:
        return float(H[0, 0])
    return (1.0 + 1e-9) * max(float(np.linalg.eigvalsh(H)[-1]), 0.0)


def solved(H: Floats, r: Floats, lam: float) -> Floats:
    """Return -(H + 2 lam I)^-1 r, or the shortest such vector of columns of norm 1."""
    if not r.size:
        return np.zeros(0)
    diagonal = np.diag(H) + 2.0 * lam
    scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-300))
    A = (H + np.diag(np.full(r.size, 2.0 * lam))) * np.outer(scale, scale)
    _, x, failed = dposv(A, r * scale)
    if failed or not np.isfinite(x).all():
        x = np.linalg.lstsq(np.nan_to_num(A), np.nan_to_num(r * scale), rcond=1e-14)[0]
    return np.asarray(-scale * x, np.float64)

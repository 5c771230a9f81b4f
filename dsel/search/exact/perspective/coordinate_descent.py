"""Coordinate descent for the perspective relaxation, and products with few columns of K.

For a level t, each free column pays h(a) with a = sqrt(d_j) |b_j|: 2 t a up to a = t, then a^2 + t^2 (the reverse Huber
penalty). That is its penalty with the best weight z_j = min(1, a / t), where weights cost t^2. A column that is fixed
in pays a^2. The best b_j for the others is known in closed form.

If coefficients are limited, |b_j| <= M_j z_j, a weight is at least |b_j| / M_j. Then a column pays 2 p |b_j| up to
|b_j| = min(t / sqrt(d_j), M_j), with p = sqrt(d_j) t, or (d_j M_j + t^2 / M_j) / 2 if M_j is the smaller one. For
the slope 2 r_j of the rest, a column gains

    g_j = max over |b_j| <= M_j of 2 r_j b_j - d_j b_j^2,

which is r_j^2 / d_j up to |r_j| = d_j M_j, and linear beyond. d_j may be 0 then.

Rows of coefficients or products: numbers (n,) for one target, vectors (n, N) for several.

The weights z of the perspective relaxation follow from given coefficients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsel._lib.jit import compiled
from dsel._lib.types import Bools, Floats, Ints


@compiled("i8(f8[:,::1], f8[::1], f8[::1], f8[::1], b1[::1], f8, i8, f8, f8[::1], f8[::1])", nogil=True)
def descend(
    K: Floats, d: Floats, root: Floats, limit: Floats, fixed: Bools, t: float, most: int, tolerance: float, b: Floats,
    r: Floats,
) -> int:  # fmt: skip
    """Improve the coefficients b (s,) of s columns in place, and return after how many rounds they settled.

    K (s, s), d (s,), root = sqrt(d), limit (s,), fixed (s,): those of the columns. t: the level. most: most rounds.
    tolerance: the largest change in the last round. r (s,): c - (K - D) b, which is kept up to date.
    """
    s = b.size
    for done in range(most):
        largest = 0.0
        for j in range(s):
            g = r[j] + (K[j, j] - d[j]) * b[j]
            size = abs(g)
            within = t <= root[j] * limit[j]  # the limit is no less than the knee
            price = t * root[j] if within else 0.5 * (d[j] * limit[j] + t * t / limit[j])
            if fixed[j] or (within and root[j] * size > t * K[j, j]):
                new = min(size / K[j, j], limit[j])
            elif size <= price:
                new = 0.0
            else:
                new = min((size - price) / (K[j, j] - d[j]), limit[j])
            if g < 0.0:
                new = -new
            change = new - b[j]
            if change != 0.0:
                row = K[j]
                for i in range(s):
                    r[i] -= change * row[i]
                r[j] += change * d[j]
                b[j] = new
                largest = max(largest, abs(change))
        if largest <= tolerance:
            return done + 1
    return most


@compiled("void(f8[:,::1], i8[::1], f8[::1], f8[::1])", nogil=True)
def add_rows(K: Floats, S: Ints, b: Floats, found: Floats) -> None:
    """Add the rows S (s,) of K, each times its factor in b (s,), to `found` (n,)."""
    for i in range(S.size):
        row = K[S[i]]
        for j in range(found.size):
            found[j] += b[i] * row[j]


#: What `dsel.search.exact.perspective.relaxation.relax` calls.
RELAXATION_KERNELS = (descend, add_rows)


def combination(K: Floats, S: Ints, b: Floats) -> Floats:
    """Return K_S' b (n,) for the rows S (s,) of the symmetric K, without a copy of them."""
    found = np.zeros(K.shape[0])
    add_rows(K, S, np.ascontiguousarray(b), found)
    return found


def squares(b: Floats) -> Floats:
    """Return the squared norm (n,) of each row."""
    return np.square(b) if b.ndim == 1 else np.asarray(np.einsum("ij,ij->i", b, b))


def sizes(b: Floats) -> Floats:
    """Return the norm (n,) of each row."""
    return np.abs(b) if b.ndim == 1 else np.sqrt(squares(b))


def nonzero(b: Floats) -> NDArray[np.bool_]:
    """Return which rows (n,) are not zero."""
    return np.asarray(b != 0.0 if b.ndim == 1 else (b != 0.0).any(axis=1))


def products(b: Floats) -> Floats:
    """Return the inner products (n, n) of the rows."""
    return np.outer(b, b) if b.ndim == 1 else b @ b.T


def inner(a: Floats, b: Floats) -> float:
    """Return the sum of the products of the elements."""
    return float(a @ b) if a.ndim == 1 else float(np.vdot(a, b))


def scaled(d: Floats, b: Floats) -> Floats:
    """Return each row times its factor in d (n,)."""
    return d * b if b.ndim == 1 else d[:, None] * b


def gains(r: Floats, d: Floats, limit: Floats | None) -> Floats:
    """Return g (n,) for the rows r, see above. limit (n,): of the coefficients of one target."""
    if limit is None:
        return squares(r) / d
    size = np.abs(r)
    with np.errstate(divide="ignore", invalid="ignore"):
        b = np.where(size > d * limit, limit, size / d)
    b = np.where(size > 0.0, b, 0.0)
    return np.asarray(b * (2.0 * size - d * b))


def level(a: Floats, q: int, least: Floats | None = None) -> float:
    """Return t with sum over j of min(1, a_j / t) = q for a >= 0, or 0 if at most q elements are positive.

    least (n,): weights are no less. If these suffice for the sum, t is infinity.
    """
    if least is not None:
        return _level_with_least(a, q, least)
    positive = np.sort(a[a > 0.0])[::-1]
    if positive.size <= q:
        return 0.0
    if q == 0:
        return float("inf")
    rest = np.cumsum(positive[::-1])[::-1][:q]  # the sum without the i largest, which have weight 1
    t = rest / (q - np.arange(q))
    first = np.flatnonzero(positive[:q] <= t)
    return float(t[first[0]] if first.size else positive[q - 1])


def _level_with_least(a: Floats, q: int, least: Floats) -> float:
    """Return the same where weights have least values: their sum is piecewise linear in 1 / t."""
    used = (a > 0.0) & (least < 1.0)
    a, low = a[used], least[used]
    needed = q - float(np.minimum(least[~used], 1.0).sum()) - float(low.sum())
    if needed <= 0.0:
        return float("inf")
    if a.size - low.sum() <= needed:
        return 0.0
    at = np.concatenate([low / a, 1.0 / a])
    order = np.argsort(at, kind="stable")
    at, slope = at[order], np.cumsum(np.concatenate([a, -a])[order])
    above = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(at))])
    i = max(int(np.searchsorted(above, needed, side="left")), 1)
    return 1.0 / float(at[i - 1] + (needed - above[i - 1]) / slope[i - 1])


def weights(a: Floats, q: int, least: Floats | None = None) -> Floats:
    """Return z in [0, 1] with sum z <= q that minimizes the sum of a_j^2 / z_j. least (n,): z is no less.

    If the least weights sum to more than q, they are z.
    """
    t = level(a, q, least)
    z = np.minimum(1.0, a / t) if t > 0.0 else (a > 0.0).astype(np.float64)
    return z if least is None else np.maximum(z, np.minimum(least, 1.0))


def penalty(a: Floats, q: int, least: Floats | None = None) -> float:
    """Return the least sum of a_j^2 / z_j over z in [0, 1] with sum z <= q. least (n,): z is no less."""
    z = weights(a, q, least)
    used = a > 0.0
    return float((np.square(a[used]) / z[used]).sum()) if used.any() else 0.0


def largest(g: Floats, q: int) -> float:
    """Return the sum of the q largest elements."""
    if q <= 0:
        return 0.0
    return float(g.sum() if q >= g.size else np.partition(g, g.size - q)[g.size - q :].sum())

"""The weights z of the perspective relaxation that go with given coefficients."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats


def level(a: Floats, q: int) -> float:
    """Return t with sum over j of min(1, a_j / t) = q for a >= 0, or 0 if at most q elements are positive."""
    positive = np.sort(a[a > 0.0])[::-1]
    if positive.size <= q:
        return 0.0
    if q == 0:
        return float("inf")
    rest = np.cumsum(positive[::-1])[::-1][:q]  # the sum without the i largest, which have weight 1
    t = rest / (q - np.arange(q))
    first = np.flatnonzero(positive[:q] <= t)
    return float(t[first[0]] if first.size else positive[q - 1])


def weights(a: Floats, q: int) -> Floats:
    """Return z in [0, 1] with sum z <= q that minimizes the sum of a_j^2 / z_j."""
    t = level(a, q)
    return np.minimum(1.0, a / t) if t > 0.0 else (a > 0.0).astype(np.float64)


def penalty(a: Floats, q: int) -> float:
    """Return the least sum of a_j^2 / z_j over z in [0, 1] with sum z <= q."""
    used = a[a > 0.0]
    return float((np.square(used) / weights(used, q)).sum()) if used.size else 0.0


def largest(g: Floats, q: int) -> float:
    """Return the sum of the q largest elements."""
    if q <= 0:
        return 0.0
    return float(g.sum() if q >= g.size else np.partition(g, g.size - q)[g.size - q :].sum())

"""Eigenvalues of a diagonal matrix after a rank-one downdate, for many downdates at once.

The eigenvalues mu_1 >= mu_2 >= ... of diag(d_1 >= ... >= d_r) - z z' interlace, d_{i+1} <= mu_i <= d_i, and are the
roots of the secular equation 1 = sum_j z_j^2 / (d_j - mu) (Bunch, Nielsen, Sorensen, "Rank-one modification of the
symmetric eigenproblem", 1978). Each step replaces the poles above mu by one pole at d_i, and those below by one pole at
d_{i+1}, with the same values and slopes, and takes the root of that. A bracket guards the step.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats

_STEPS = 80


def downdated(d: Floats, Z: Floats, q: int) -> Floats:
    """Return the q largest eigenvalues (q, t) of diag(d) - z z' for each column z of Z (r, t); d (r,) descends, q <= r.

    They are accurate to rounding times d_1. About six steps of O(q t r) each; compiled.
    """
    r, t = Z.shape
    assert d.shape == (r,)
    assert 0 <= q <= r
    found = np.empty((q, t))
    _all_roots(np.ascontiguousarray(d), np.ascontiguousarray(np.square(Z.T)), found)
    return found


@compiled(allocates=True)
def _all_roots(d: Floats, squares: Floats, found: Floats) -> None:
    """Write the first eigenvalues for each row of squares (t, r) into found (q, t)."""
    r = d.size
    totals = np.empty(squares.shape[0])
    scale = 0.0
    for j in range(r):
        scale = max(scale, abs(d[j]))
    for c in range(squares.shape[0]):
        total = 0.0
        for j in range(r):
            total += squares[c, j]
        totals[c] = total
        scale = max(scale, total)
    tolerance = 4.0 * np.finfo(np.float64).eps * scale
    for c in range(squares.shape[0]):
        for i in range(found.shape[0]):
            low = d[i + 1] if i + 1 < r else d[i] - totals[c]
            found[i, c] = _root(d, squares[c], i, low, d[i], tolerance)


@compiled()
def _root(d: Floats, squares: Floats, i: int, low: float, high: float, tolerance: float) -> float:
    """Return the root between low and high, or the nearest end if there is none inside."""
    a = low
    b = high
    x = 0.5 * (a + b)
    for _ in range(_STEPS):
        if b - a <= tolerance:
            break
        above = 0.0
        below = 0.0
        slope_above = 0.0
        slope_below = 0.0
        for j in range(d.size):
            gap = d[j] - x
            if gap == 0.0:
                gap = np.finfo(np.float64).tiny
            term = squares[j] / gap
            if j <= i:
                above += term
                slope_above += term / gap
            else:
                below += term
                slope_below += term / gap
        # g falls from +inf to -inf between the poles: the root is to the right of x where g > 0.
        if 1.0 - above - below > 0.0:
            a = x
        else:
            b = x
        x_next = _two_poles(x, above, below, slope_above, slope_below, d[i], d[i + 1] if i + 1 < d.size else -np.inf)
        if abs(x_next - x) <= tolerance:
            x = x_next
            break
        x = x_next if a < x_next < b else 0.5 * (a + b)
    return min(max(x, low), high)


@compiled()
def _two_poles(
    x: float, above: float, below: float, slope_above: float, slope_below: float, p: float, q: float
) -> float:
    """Return the root of 1 - (A + B / (p - x)) - (C + D / (q - x)), or NaN if rounding leaves none.

    The value and slope of both parts match at x.
    """
    gap_p = p - x
    B = slope_above * gap_p**2
    constant = 1.0 - (above - slope_above * gap_p)
    if np.isinf(q):
        return p - B / (constant - below) if constant != below else np.nan
    gap_q = q - x
    D = slope_below * gap_q**2
    constant = constant - (below - slope_below * gap_q)
    # constant (p - y)(q - y) - B (q - y) - D (p - y) = 0, in u = p - y > 0 with w = p - q >= 0, q - y = u - w.
    w = p - q
    linear = -constant * w - B - D
    discriminant: float = np.sqrt(max(linear**2 - 4.0 * constant * B * w, 0.0))
    # The root with 0 < u < w, written without cancellation.
    if linear < 0.0:
        return p - 2.0 * B * w / (discriminant - linear)
    return p - (-linear - discriminant) / (2.0 * constant) if constant != 0.0 else np.nan

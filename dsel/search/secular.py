"""Eigenvalues of a diagonal matrix after a rank-one downdate, for many downdates at once.

The eigenvalues mu_1 >= mu_2 >= ... of diag(d_1 >= ... >= d_r) - z z' interlace, d_{i+1} <= mu_i <= d_i, and are the
roots of the secular equation 1 = sum_j z_j^2 / (d_j - mu) (Bunch, Nielsen, Sorensen, "Rank-one modification of the
symmetric eigenproblem", 1978). Each step replaces the poles above and those below mu by one pole at d_i and one at
d_{i+1} with the same value and slope, and takes the root of that; a bracket guards it.
"""

from __future__ import annotations

import numpy as np

from dsel.objective.memory import Floats

_STEPS = 80


def downdated(d: Floats, Z: Floats, q: int) -> Floats:
    """(q, t) the q largest eigenvalues of diag(d) - z z' for every column z of Z (r, t); d (r,) descends, q <= r.

    Accurate to rounding times d_1. O(q t r) a step, about six steps.
    """
    r, t = Z.shape
    assert d.shape == (r,)
    assert 0 <= q <= r
    squares = np.square(Z)
    found = np.empty((q, t))
    scale = max(float(np.abs(d).max(initial=0.0)), float(squares.sum(axis=0).max(initial=0.0)))
    for i in range(q):
        high = np.full(t, d[i])
        low = np.full(t, d[i + 1]) if i + 1 < r else d[i] - squares.sum(axis=0)
        found[i] = _root(d, squares, i, low, high, scale)
    return found


def _root(d: Floats, squares: Floats, i: int, low: Floats, high: Floats, scale: float) -> Floats:
    """The root between low and high, (t,). Where there is none inside, it is the end it lies nearest to."""
    tolerance = 4.0 * np.finfo(float).eps * scale
    a, b = low.copy(), high.copy()
    pole_above, pole_below = d[i], d[i + 1] if i + 1 < d.size else -np.inf
    x = 0.5 * (a + b)
    waiting = b - a > tolerance
    for _ in range(_STEPS):
        if not waiting.any():
            break
        gaps = d[:, None] - x
        gaps[gaps == 0.0] = np.finfo(float).tiny
        terms = squares / gaps
        slopes = terms / gaps
        above, below = terms[: i + 1].sum(axis=0), terms[i + 1 :].sum(axis=0)
        value = 1.0 - above - below
        # g falls from +inf to -inf between the poles: the root is to the right of x where g > 0.
        right = value > 0.0
        a, b = np.where(right, x, a), np.where(right, b, x)
        x_next = _two_poles(
            x, above, below, slopes[: i + 1].sum(axis=0), slopes[i + 1 :].sum(axis=0), pole_above, pole_below
        )
        close = np.abs(x_next - x) <= tolerance
        inside = (x_next > a) & (x_next < b)
        x_next = np.where(inside | close, x_next, 0.5 * (a + b))
        x = np.where(waiting, x_next, x)
        waiting &= ~close & (b - a > tolerance)
    return np.clip(x, low, high)


def _two_poles(
    x: Floats, above: Floats, below: Floats, slope_above: Floats, slope_below: Floats, p: float, q: float
) -> Floats:
    """Root of 1 - (A + B / (p - x)) - (C + D / (q - x)), with value and slope of both parts matched at x."""
    with np.errstate(all="ignore"):
        gap_p = p - x
        B = slope_above * gap_p**2
        constant = 1.0 - (above - slope_above * gap_p)
        if np.isinf(q):
            return np.asarray(p - B / (constant - below))
        gap_q = q - x
        D = slope_below * gap_q**2
        constant = constant - (below - slope_below * gap_q)
        # constant (p - y)(q - y) - B (q - y) - D (p - y) = 0, in u = p - y > 0 with w = p - q >= 0, q - y = u - w.
        w = p - q
        linear = -constant * w - B - D
        discriminant = np.sqrt(np.maximum(linear**2 - 4.0 * constant * B * w, 0.0))
        # The root with 0 < u < w, written without cancellation.
        u = np.where(linear < 0.0, 2.0 * B * w / (discriminant - linear), (-linear - discriminant) / (2.0 * constant))
        return np.asarray(p - u)

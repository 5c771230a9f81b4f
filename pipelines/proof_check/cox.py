"""The Cox loss in extended precision, by its definition: a sum over the events, each with all rows at risk."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.objective.losses.cox import Cox

Long = NDArray[np.longdouble]


def random_times(signal: Floats, rng: Generator) -> tuple[Cox, Floats]:
    """Return the loss and encoded targets that follow a signal (m,): often with ties, and with times of 0."""
    m = signal.size
    time = rng.exponential(np.exp(-np.clip(signal, -20.0, 20.0)))
    cut = rng.exponential(size=m) * rng.choice([0.5, 3.0, 1e9])
    y = np.column_stack([np.minimum(time, cut), time <= cut])
    if rng.random() < 0.5:
        y[:, 0] = np.floor(y[:, 0] * rng.choice([1.0, 5.0]))
    y[int(rng.integers(m)), 1] = 1.0
    return Cox(), Cox().encode(y)


def cox_sums(y: Long, w: Long, eta: Long, A: Long) -> tuple[Long, Long, Long]:
    """Return the deviance (B,) at linear predictors (B, m), and its derivatives by the coefficients of A (B, m, s)."""
    time, event = np.abs(np.asarray(y, np.float64)), ~np.signbit(np.asarray(y, np.float64)) & (w > 0)
    at_risk = np.asarray(time[None] >= time[event][:, None], np.longdouble)
    own = np.asarray([w[event & (time == t)].sum() for t in time[event]], np.longdouble)
    inside = np.where((at_risk[None] > 0) & (w > 0), eta[:, None], -np.inf)
    high = inside.max(axis=2, keepdims=True)  # each risk set has its own largest predictor
    p = w * np.exp(np.maximum(inside - high, -11000)) * at_risk
    total = p.sum(axis=2, keepdims=True)
    p = p / total
    weight = w[event]
    value = 2 * (weight * (high[..., 0] - eta[:, event] + (np.log(total[..., 0]) - np.log(own)))).sum(axis=1)
    means = np.einsum("bkm,bmi->bki", p, A)
    g = 2 * np.einsum("k,bki->bi", weight, means - A[:, event])
    spread = np.einsum("k,bkm->bm", weight, p) + 1e-9 * w  # the least curvature, with which Newton steps are finite
    H = 2 * (np.einsum("bmi,bm,bmj->bij", A, spread, A) - np.einsum("bki,k,bkj->bij", means, weight, means))
    return np.maximum(value, 0), g, H

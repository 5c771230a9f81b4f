"""Random numbers that belong to a step of a search, not to the process that makes the step.

The stream of step (seed, iteration, slot) starts at a hash of the three and continues by SplitMix64
(`dsel._lib.splitmix`). Any process that makes the step, in any order, draws the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from dsel._lib.jit import compiled
from dsel._lib.splitmix import GOLDEN, MIX_1, MIX_2, mix, to_unit
from dsel._lib.types import Floats, Ints

_mix = compiled(inline=True)(mix)


@compiled()
def stream(seed: Any, iteration: Any, slot: Any) -> Any:
    """Return the state at which the stream of this step starts (uint64)."""
    x = _mix(uint64(seed) + GOLDEN)
    x = _mix(x ^ (uint64(iteration) * MIX_2 + GOLDEN))
    return _mix(x ^ (uint64(slot) * MIX_1 + GOLDEN))


@compiled(inner=True)
def uniform(state: Any, draw: Any) -> Any:
    """Return draw number `draw` (0, 1, ...) of a stream, uniform on [0, 1) in steps of 2^-53."""
    x = _mix(state + uint64(draw) * GOLDEN)
    return np.float64(x >> uint64(11)) * (1.0 / 9007199254740992.0)


def uniforms(seed: int, iteration: int, slot: int, count: int) -> Floats:
    """Return the first `count` uniform numbers on [0, 1) of the stream of this step."""
    parts = np.array([[seed], [iteration], [slot]], np.int64).astype(np.uint64)
    x = mix(parts[0] + GOLDEN)
    x = mix(x ^ (parts[1] * MIX_2 + GOLDEN))
    x = mix(x ^ (parts[2] * MIX_1 + GOLDEN))
    return to_unit(mix(x + np.arange(count, dtype=np.uint64) * GOLDEN))


def permutation(seed: int, iteration: int, slot: int, n: int) -> Ints:
    """Return the numbers 0 to n - 1 in random order."""
    return np.argsort(uniforms(seed, iteration, slot, n), kind="stable")


def weighted_sample(seed: int, iteration: int, slot: int, weights: Floats, count: int) -> Ints:
    """Draw `count` distinct indices one after another, in proportion to the weights of those left; ascending.

    These are the indices with the smallest -log(u) / weight (Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", 2006). An index of weight 0 is never drawn, so there may be fewer.
    """
    u = 1.0 - np.asarray(uniforms(seed, iteration, slot, weights.size))
    positive = np.flatnonzero(weights > 0.0)
    keys = -np.log(u[positive]) / weights[positive]
    return np.sort(positive[np.argsort(keys, kind="stable")[:count]])


def binomial_cdf(n: int, p: float) -> Floats:
    """Return P(flips <= 0), P(flips <= 1), ... under Binomial(n, p), up to where float64 cannot tell it from 1."""
    probability = (1.0 - p) ** n
    cdf = [probability]
    for x in range(n):
        if cdf[-1] >= 1.0 - 2.0**-53 or p >= 1.0:
            break
        probability *= (n - x) / (x + 1) * p / (1.0 - p)
        if probability < 2.0**-60 and x > n * p:
            break
        cdf.append(cdf[-1] + probability)
    if p >= 1.0:
        cdf = [0.0] * n
    return np.asarray(cdf)


@compiled(inner=True)
def draw_flips(state: Any, draw: Any, n: Any, cdf: Any, flips: Any) -> Any:
    """Fill `flips` with a uniform set of Binomial(n, p) distinct columns, p as in `cdf`, and return their number.

    Uses the draws from number `draw` on. Every column is flipped with probability p, independently of the others: the
    count is drawn by inversion, then the columns; a column that is drawn twice is drawn again.
    """
    u = uniform(state, draw)
    draw += 1
    count = 0
    while count < cdf.shape[0] and u >= cdf[count]:
        count += 1
    count = min(count, n)
    filled = 0
    while filled < count:
        j = np.int32(uniform(state, draw) * n)
        draw += 1
        again = False
        for x in range(filled):
            if flips[x] == j:
                again = True
                break
        if not again:
            flips[filled] = j
            filled += 1
    return count

"""Random numbers that belong to a step of a search, not to the process that makes them.

The stream of step (seed, iteration, slot) starts at a hash of the three and goes on by SplitMix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", 2014). Whoever makes the step, in whatever order, draws the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from dsel._lib.jit import compiled
from dsel.objective.kernels.layout import Floats

_GOLDEN = uint64(0x9E3779B97F4A7C15)
_MIX_1 = uint64(0xBF58476D1CE4E5B9)
_MIX_2 = uint64(0x94D049BB133111EB)


@compiled(inline=True)
def _mix(x: Any) -> Any:
    x = (x ^ (x >> uint64(30))) * _MIX_1
    x = (x ^ (x >> uint64(27))) * _MIX_2
    return x ^ (x >> uint64(31))


@compiled()
def stream(seed: Any, iteration: Any, slot: Any) -> Any:
    """The state at which the stream of this step starts (uint64)."""
    x = _mix(uint64(seed) + _GOLDEN)
    x = _mix(x ^ (uint64(iteration) * _MIX_2 + _GOLDEN))
    return _mix(x ^ (uint64(slot) * _MIX_1 + _GOLDEN))


@compiled()
def uniform(state: Any, draw: Any) -> Any:
    """Draw number `draw` (0, 1, ...) of a stream: uniform on [0, 1) in steps of 2^-53."""
    x = _mix(state + uint64(draw) * _GOLDEN)
    return np.float64(x >> uint64(11)) * (1.0 / 9007199254740992.0)


def binomial_cdf(n: int, p: float) -> Floats:
    """P(flips <= 0), P(flips <= 1), ... under Binomial(n, p), up to where float64 cannot tell it from 1."""
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


@compiled()
def draw_flips(state: Any, draw: Any, n: Any, cdf: Any, flips: Any) -> Any:
    """Fill `flips` with a uniform set of Binomial(n, p) distinct columns, p as in `cdf`; returns how many.

    Uses the draws from number `draw` on. Every column is flipped with probability p independently of the others: the
    count is drawn by inversion, then the places, a place met twice being drawn again.
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

"""SplitMix64 on NumPy arrays: random numbers that are a function of their place, in any order and any chunks.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. Number i = 1, 2, ... after a state
is mix(state + i GOLDEN). `dsel._lib.rng` has the same streams for compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats

Words = NDArray[np.uint64]

#: The step between the states of two numbers of a stream.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


def mix(x: Any) -> Any:
    """Return the mixed bits of uint64 numbers (an array or one; numba compiles this function, too).

    Call it within `np.errstate(over="ignore")` on NumPy scalars: products overflow on purpose.
    """
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


def to_unit(words: Words) -> Floats:
    """Return uniform numbers on [0, 1) in steps of 2^-53, one from each word."""
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)

"""Arrays of the keyed random numbers of `dsel._lib.rng`, for methods that draw few of them."""

from __future__ import annotations

import numpy as np
from numba import njit

from dsel._lib.rng import stream, uniform
from dsel.objective.kernels.layout import Floats, Ints


@njit(cache=True)
def draws(seed, iteration, slot, count):  # type: ignore[no-untyped-def]
    """The first `count` uniform numbers on [0, 1) of the stream of this step."""
    state = stream(seed, iteration, slot)
    numbers = np.empty(count)
    for x in range(count):
        numbers[x] = uniform(state, x)
    return numbers


def permutation(seed: int, iteration: int, slot: int, n: int) -> Ints:
    """(n,) the numbers 0..n-1 in random order."""
    return np.argsort(draws(seed, iteration, slot, n), kind="stable")


def weighted_sample(seed: int, iteration: int, slot: int, weights: Floats, count: int) -> Ints:
    """`count` distinct places, drawn one after another in proportion to the weights of those left; ascending.

    The places with the least -log(u) / weight (Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", 2006). Places of weight 0 are never drawn, so there may be fewer.
    """
    u = 1.0 - np.asarray(draws(seed, iteration, slot, weights.size))
    places = np.flatnonzero(weights > 0.0)
    waiting = -np.log(u[places]) / weights[places]
    return np.sort(places[np.argsort(waiting, kind="stable")[:count]])

"""The draws of a Pareto search on the client: the same as in the compiled search, and swaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.rng import draw_flips, stream, uniform
from dsel._lib.types import Floats, Ints


def swapped(members: tuple[int, ...], n: int, leaving: float, entering: float) -> tuple[int, ...]:
    """Return the members with one of them replaced by one of the other columns. leaving, entering: uniform on [0, 1).

    Source: Neumann and Wegener, "Randomized local search, evolutionary algorithms, and the minimum spanning tree
    problem", Theoretical Computer Science 378, 2007, where half of the mutations flip two bits in place of one.
    """
    out = members[int(leaving * len(members))]
    j = int(entering * (n - len(members)))  # its place among the others
    for member in members:
        j += member <= j
    return tuple(sorted([*(i for i in members if i != out), j]))


@compiled()
def draw_parent(seed: int, iteration: int, members: int) -> Any:
    """Return the place of the parent in the archive: draw 0 of slot 0, as in the compiled search."""
    return np.int64(uniform(stream(seed, iteration, np.int64(0)), np.int64(0)) * members)


@compiled()
def draw_columns(seed: int, iteration: int, slot: int, cdf: Floats, flips: Ints) -> Any:
    """Return the number of columns of `flips` to flip: draws from 1 on of a slot, as in the compiled search."""
    return draw_flips(stream(seed, iteration, slot), np.int64(1), flips.shape[0], cdf, flips)

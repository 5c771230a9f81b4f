"""How many slices of iterations may be out at the same time, and how long they are.

Both follow from the problem and the options. They never depend on the workers or on a measurement, so that the same
request gives the same slices everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds of a slice on the reference core. A task takes about 5 ms to send and merge.
SLICE_SECONDS = 0.2
#: A search that takes less on the reference core is not divided.
LEAST_SECONDS = 5.0
#: A search has at least this many generations: slices that follow each other because each needs the one before.
GENERATIONS = 32
#: Slices that may be out at the same time, at most: enough for 32 workers with two tasks each.
MOST_SLICES = 64
#: The same for single iterations that evaluate a custom criterion, and iterations of the search for each of them.
MOST_EVALUATIONS, ITERATIONS_PER_EVALUATION = 128, 100


@dataclass(frozen=True)
class SliceSize:
    """The division of a search into slices.

    Parameters
    ----------
    slices : int
        How many slices may be out at the same time. Slice q starts from the archive after slice q - `slices`.
    iterations : int
        The iterations of a slice.
    """

    slices: int
    iterations: int


def iteration_seconds(n: int, k: int, few_targets: int, exchange_every: int) -> float:
    """Return the seconds of an iteration of POSS on the reference core, late in the search.

    Parameters
    ----------
    n, k : int
        The columns to choose from, and the columns to choose.
    few_targets : int
        N where targets are kept one by one, 0 where M is kept.
    exchange_every : int
        Iterations between two exchange searches, 0 for none.

    Returns
    -------
    float
        Seconds.

    Notes
    -----
    The figures were fitted to runs with n = 60 to 2500 and k = 8 to 50 on one core of 2.0 GHz. They are within a factor
    of two of them. An iteration costs O(k^2), and an exchange search O(n k^2).
    """
    moments = few_targets == 0
    single = 5e-8 + 2.2e-10 * k * k * (1.6 if moments else 1.0 + 0.2 * (few_targets - 1))
    exchange = 9e-10 * n * k * k * (2.8 if moments else 1.0 + 0.12 * (few_targets - 1))
    return single + (exchange / exchange_every if exchange_every else 0.0)


def automatic_size(iterations: int, each: float, seconds: float | None = None) -> SliceSize:
    """Return the division of a search of this number of iterations.

    Parameters
    ----------
    iterations : int
        The iterations of the search.
    each : float
        The seconds of an iteration on the reference core.
    seconds : float, optional
        The time limit of the search.

    Returns
    -------
    SliceSize
        One slice at a time where the search takes less than `LEAST_SECONDS` or cannot have `GENERATIONS` of slices.
    """
    total = iterations * each if seconds is None else min(iterations * each, seconds)
    length = slice_iterations(iterations, each)
    if total < LEAST_SECONDS:
        return SliceSize(1, length)
    slices = 1
    while 2 * slices <= MOST_SLICES and 2 * slices * GENERATIONS * SLICE_SECONDS <= total:
        slices *= 2
    return SliceSize(slices, length)


def slice_iterations(iterations: int, each: float) -> int:
    """Return the iterations of a slice, of two significant digits so that it is easy to read."""
    length = max(1.0, min(SLICE_SECONDS / each, float(iterations)))
    unit = int(10 ** max(len(str(int(length))) - 2, 0))
    return int(length) // unit * unit


def least_size(iterations: int, each: float, slices: int) -> SliceSize:
    """Return a division into at least this many slices at a time, which are shorter where the search is short."""
    length = min(slice_iterations(iterations, each), max(1, iterations // (slices * GENERATIONS)))
    return SliceSize(slices, length)


def evaluations_at_a_time(iterations: int) -> int:
    """Return how many iterations that evaluate a custom criterion may be out at the same time."""
    return max(1, min(MOST_EVALUATIONS, iterations // ITERATIONS_PER_EVALUATION))

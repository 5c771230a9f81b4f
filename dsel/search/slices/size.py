"""How many slices of iterations may be out at the same time, and how long they are.

Both follow from the problem and the options. They never depend on the workers or on a measurement, so that the same
request gives the same slices everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Seconds of a slice on the reference core: of most searches, and of long ones. Sending and merging takes about 5 ms.
SLICE_SECONDS, LONGEST_SECONDS = 0.2, 1.0
#: A slice takes at least this many times as long as its start: the tables of the subsets that other slices have found,
#: about one for each column to choose, take this many seconds, over n k^2.
_STARTS, _START_SECONDS = 8, 1.8e-9
#: A search that takes less on the reference core is not divided.
LEAST_SECONDS = 5.0
#: A search has at least this many generations: slices that follow each other because each needs the one before.
#: Without exchange searches, fewer generations found worse subsets in as many iterations.
GENERATIONS, WITH_EXCHANGE = 128, 32
#: The borders between the sizes of slices move by this share of their distance.
_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
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

    @property
    def _stride(self) -> int:
        """Return a step that visits all places once, near the golden section of them."""
        wanted = round(self.slices * _GOLDEN_RATIO)
        return next(step for step in range(wanted, wanted + self.slices) if math.gcd(step, self.slices) == 1)

    def parents(self, q: int, k: int, draws: int) -> tuple[int, int] | None:
        """Return the sizes of the subsets from which a slice draws its parents, or None for all.

        Parameters
        ----------
        q : int
            The slice.
        k : int
            The size limit. Subsets have fewer than 2k columns.
        draws : int
            How often a slice draws a parent. With fewer draws than sizes, it draws from all.

        Returns
        -------
        tuple of int
            The first size, and how many sizes there are from it on, modulo 2k.

        Notes
        -----
        Slices that run at the same time do not know what the others find. With parents of different sizes they rarely
        find the same. `slices` slices in a row have each size once, so that each subset is a parent as often as in
        POSS. The borders move from one generation to the next.
        """
        if self.slices == 1 or draws < 2 * k:
            return None
        generation, place = divmod(q, self.slices)
        place = place * self._stride % self.slices  # large subsets take longer: spread them evenly
        first, end = (int((x + generation * _GOLDEN_RATIO) * 2 * k / self.slices) for x in (place, place + 1))
        return first % (2 * k), max(end - first, 1)


def least_generations(exchange_every: int) -> int:
    """Return how many generations of slices a search has at least."""
    return WITH_EXCHANGE if exchange_every else GENERATIONS


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


def least_slice_seconds(n: int, k: int) -> float:
    """Return the seconds of the shortest slice on the reference core, for n columns of which k are chosen."""
    return max(SLICE_SECONDS, _STARTS * _START_SECONDS * n * k * k)


def automatic_size(
    iterations: int, each: float, generations: int, seconds: float | None = None, least: float = SLICE_SECONDS
) -> SliceSize:  # fmt: skip
    """Return the division of a search of this number of iterations.

    Parameters
    ----------
    iterations : int
        The iterations of the search.
    each : float
        The seconds of an iteration on the reference core.
    generations : int
        The least number of generations.
    seconds : float, optional
        The time limit of the search.
    least : float
        The seconds of the shortest slice.

    Returns
    -------
    SliceSize
        One slice at a time where the search takes less than `LEAST_SECONDS` or cannot have this many generations.
    """
    total = iterations * each if seconds is None else min(iterations * each, seconds)
    length = slice_iterations(iterations, each, generations, seconds, least)
    if total < LEAST_SECONDS:
        return SliceSize(1, length)
    slices = 1
    while 2 * slices <= MOST_SLICES and 2 * slices * generations * least <= total:
        slices *= 2
    return SliceSize(slices, length)


def slice_iterations(
    iterations: int, each: float, generations: int, seconds: float | None = None, least: float = SLICE_SECONDS
) -> int:  # fmt: skip
    """Return the iterations of a slice, of two significant digits so that it is easy to read.

    A search that is long enough for this many generations of the most slices has longer ones.
    """
    total = iterations * each if seconds is None else min(iterations * each, seconds)
    slice_seconds = max(least, min(total / (generations * MOST_SLICES), LONGEST_SECONDS))
    length = max(1.0, min(slice_seconds / each, float(iterations)))
    unit = int(10 ** max(len(str(int(length))) - 2, 0))
    return int(length) // unit * unit


def least_size(
    iterations: int, each: float, generations: int, slices: int, least: float = SLICE_SECONDS
) -> SliceSize:  # fmt: skip
    """Return a division into at least this many slices at a time, which are shorter where the search is short."""
    whole = slice_iterations(iterations, each, generations, least=least)
    return SliceSize(slices, min(whole, max(1, iterations // (slices * generations))))


def evaluations_at_a_time(iterations: int) -> int:
    """Return how many iterations that evaluate a custom criterion may be out at the same time."""
    return max(1, min(MOST_EVALUATIONS, iterations // ITERATIONS_PER_EVALUATION))

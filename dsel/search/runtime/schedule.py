"""How a search is divided into tasks: how many are out at the same time, how long they are, and how they merge.

The division follows from the problem and the options. It never depends on the workers or on a measurement, so that the
same request gives the same tasks everywhere: one after the other in one process, or at the same time on a cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: Seconds of a slice on the reference core: of most searches, and of long ones. Sending and merging takes about 5 ms.
SLICE_SECONDS, LONGEST_SECONDS = 0.2, 1.0
#: A search has at least this many slices, or some more if they take this many seconds each. In a short search they are
#: shorter than the others, and cost 0.3 s in all on a cluster, and a few percent of the search in one process.
LEAST_SLICES, USUAL_SLICES, _SHORT_SECONDS = 8, 32, 0.03
#: A slice takes at least this many times as long as its start: the tables of the subsets that other slices have found,
#: about one for each column to choose, take this many seconds, over n k^2.
_STARTS, _START_SECONDS = 8, 1.8e-9
#: A search has at least this many generations: slices that follow each other because each needs the one before.
#: Without exchange searches, fewer generations found worse subsets in as many iterations. With them, up to eight slices
#: at the same time need fewer than more of them.
GENERATIONS, WITH_EXCHANGE, UP_TO_EIGHT = 128, 32, 12
#: Slices of a search with exchange searches that may be out at the same time, also if it has fewer generations.
LEAST_IN_FLIGHT = 4
#: Generations where the number of slices at a time is asked for.
LEAST_GENERATIONS = 8
#: The borders between the sizes of slices move by this share of their distance.
_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
#: Seconds on the reference core after which a search without the whole Gram matrix ends, by default.
LONGEST_WIDE_SECONDS = 20.0
#: Entries of a large Gram matrix are not in the caches: seconds that they add to an iteration for each column, up to a
#: number of columns, and each column to choose.
_OUTSIDE_CACHES, _MOST_OUTSIDE = 5e-12, 4000
#: Slices that may be out at the same time, at most: enough for 32 workers with two tasks each.
MOST_IN_FLIGHT = 64
#: The same for single iterations that evaluate a custom criterion, and iterations of the search for each of them.
MOST_EVALUATIONS, ITERATIONS_PER_EVALUATION = 128, 100


@dataclass(frozen=True)
class Schedule:
    """The division of a search into tasks.

    Parameters
    ----------
    in_flight : int
        How many tasks of order "index" may be out at the same time. Task q starts from the archive that the tasks up to
        q - `in_flight` have left. With 1 the search is the published one.
    length : int
        The iterations of a task.
    processors : int
        The offspring of each round of PPOSS; 0 for POSS.
    order : {"index", "arrival"}
        Whether results are merged in the order of the tasks, which gives the same bits on any workers; or as they
        arrive, each task starting from the newest archive, as in PPOSS-asy.
    """

    in_flight: int = 1
    length: int = 1
    processors: int = 0
    order: Literal["index", "arrival"] = "index"

    @property
    def form(self) -> str:
        """Which form of the search this is, in words."""
        if self.order == "arrival":
            return "PPOSS-asy: each task starts from the newest archive"
        rounds = f"rounds of {self.processors} offspring" if self.processors else "one offspring after the other"
        if self.in_flight == 1:
            return f"{'PPOSS' if self.processors else 'POSS'}: {rounds}"
        return f"{self.in_flight} tasks at a time, in each {rounds}"

    @property
    def _stride(self) -> int:
        """Return a step that visits all places once, near the golden section of them."""
        wanted = round(self.in_flight * _GOLDEN_RATIO)
        return next(step for step in range(wanted, wanted + self.in_flight) if math.gcd(step, self.in_flight) == 1)

    def parents(self, q: int, k: int) -> tuple[int, ...] | None:
        """Return the sizes of the subsets from which a slice draws its parents, or None for all.

        Parameters
        ----------
        q : int
            The slice. With fewer draws than sizes, it draws from all.
        k : int
            The size limit. Subsets have fewer than 2k columns.

        Returns
        -------
        tuple of int or None
            The sizes.

        Notes
        -----
        Slices that run at the same time do not know what the others find. With parents of different sizes they rarely
        find the same. `in_flight` slices in a row have each size once, so that each subset is a parent as often as in
        POSS. The borders move from one generation to the next.

        An iteration takes a time that grows about linearly with the size of the parent. So each of more than four
        slices at a time has as many large sizes as small ones, and takes about as long as the others.
        """
        draws = self.length // max(self.processors, 1)
        if self.in_flight == 1 or self.order == "arrival" or draws < 2 * k:
            return None
        generation, place = divmod(q, self.in_flight)
        place = place * self._stride % self.in_flight  # large subsets take longer: spread them evenly
        first, end = (int((x + generation * _GOLDEN_RATIO) * 2 * k / self.in_flight) for x in (place, place + 1))
        places = (x % (2 * k) for x in range(first, max(end, first + 1)))
        if self.in_flight <= LEAST_IN_FLIGHT:
            return tuple(places)
        return tuple(x // 2 if x % 2 == 0 else 2 * k - 1 - x // 2 for x in places)


def iteration_seconds(n: int, k: int, few_targets: int, exchange_every: int, has_gram: bool = True) -> float:
    """Return the seconds of an iteration of POSS on the reference core, late in the search.

    Parameters
    ----------
    n, k : int
        The columns to choose from, and the columns to choose.
    few_targets : int
        N where targets are kept one by one, 0 where M is kept.
    exchange_every : int
        Iterations between two exchange searches, 0 for none.
    has_gram : bool
        Whether the whole Gram matrix is in memory. Elsewhere entries of it are bounded, or fetched.

    Returns
    -------
    float
        Seconds, without the passes over the data that fetch rows of the Gram matrix.

    Notes
    -----
    The figures were fitted to runs with n = 60 to 2500 and k = 8 to 50 on one core of 2.0 GHz. They are within a factor
    of two of them. An iteration costs O(k^2), and an exchange search O(n k^2). Where entries are fetched, the figures
    were fitted to runs with n = 3000 to 40 000 and k = 5 to 20, and are within a factor of two of them, too.
    """
    moments = few_targets == 0
    single = 5e-8 + 2.2e-10 * k * k * (1.6 if moments else 1.0 + 0.2 * (few_targets - 1))
    if not has_gram:
        single += (6e-7 + 3e-8 * k) * (2.0 if moments else 1.0)
    exchange = 9e-10 * n * k * k * (2.8 if moments else 1.0 + 0.12 * (few_targets - 1))
    return single + (exchange / exchange_every if exchange_every else 0.0)


@dataclass(frozen=True)
class Division:
    """Divides a search of compiled iterations into slices.

    Parameters
    ----------
    n, k : int
        The columns to choose from, and the columns to choose.
    few_targets : int
        N where targets are kept one by one, 0 where M is kept.
    exchange_every : int
        Iterations between two exchange searches, 0 for none.
    iterations : int
        The iterations of the search.
    seconds : float, optional
        The time limit of the search.
    processors : int
        The offspring of each round, which is not divided.
    has_gram : bool
        Whether the whole Gram matrix is in memory.
    """

    n: int
    k: int
    few_targets: int
    exchange_every: int
    iterations: int
    seconds: float | None = None
    processors: int = 0
    has_gram: bool = True

    @property
    def each(self) -> float:
        """The seconds of an iteration on the reference core."""
        return iteration_seconds(self.n, self.k, self.few_targets, self.exchange_every, self.has_gram)

    @property
    def total(self) -> float:
        """The seconds of the search on the reference core."""
        total = self.iterations * self.each
        return total if self.seconds is None else min(total, self.seconds)

    @property
    def estimate(self) -> float:
        """The same with what large Gram matrices add, for a plan. The division into slices leaves it out."""
        added = _OUTSIDE_CACHES * min(self.n, _MOST_OUTSIDE) * self.k if self.has_gram else 0.0
        total = self.total + self.iterations * added
        return total if self.seconds is None else min(total, self.seconds)

    def generations(self, in_flight: int) -> int:
        """Return how many generations a search with this many slices at the same time has at least."""
        with_exchange = UP_TO_EIGHT if in_flight <= 8 else WITH_EXCHANGE
        return with_exchange if self.exchange_every else GENERATIONS

    def schedule(self, in_flight: int | None = None, length: int | None = None) -> Schedule:
        """Return the schedule.

        Parameters
        ----------
        in_flight, length : int, optional
            What is asked for. By default as many slices at a time as leave enough generations, and slices that take
            long compared with sending and starting them.
        """
        total, start = self.total, _START_SECONDS * self.n * self.k**2
        usual = total / max(SLICE_SECONDS, _STARTS * start)
        number = max(LEAST_SLICES, min(USUAL_SLICES, total / _SHORT_SECONDS), usual)
        if in_flight is None:
            in_flight = LEAST_IN_FLIGHT if self.exchange_every else 1
            while 2 * in_flight <= MOST_IN_FLIGHT and 2 * in_flight * self.generations(2 * in_flight) <= number:
                in_flight *= 2
        else:
            number = max(number, LEAST_GENERATIONS * in_flight)
        number = max(min(number, self.generations(MOST_IN_FLIGHT) * MOST_IN_FLIGHT), total / LONGEST_SECONDS)
        if length is None:
            length = _two_digits(total / number / self.each)
        whole = max(self.processors, 1)
        return Schedule(in_flight, math.ceil(min(length, self.iterations) / whole) * whole, self.processors)


def wide_iterations(k: int, few_targets: int) -> int:
    """Return how many iterations take about 20 seconds where there is no Gram matrix.

    It follows from the problem only, never from a clock, so that the same request makes the same iterations everywhere.
    """
    return _two_digits(LONGEST_WIDE_SECONDS / iteration_seconds(0, k, few_targets, 0, has_gram=False))


def _two_digits(number: float) -> int:
    """Return a whole number of two significant digits, rounded up, so that it is easy to read."""
    whole = max(math.ceil(number), 1)
    unit = int(10 ** max(len(str(whole)) - 2, 0))
    return -(-whole // unit) * unit


def evaluations_at_a_time(iterations: int) -> int:
    """Return how many iterations that evaluate a custom criterion may be out at the same time."""
    return max(1, min(MOST_EVALUATIONS, iterations // ITERATIONS_PER_EVALUATION))

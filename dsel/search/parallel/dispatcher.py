"""The loop between a search that asks and workers that answer: packages sized by the clock, lost ones sent again.

Nothing here knows who the workers are. The search stands whole between any two lines of this loop, so it can be saved
at each of them; what is out then is asked again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dsel.errors import ClusterError, DselError
from dsel.search.anytime import AnytimeSearch, ReadableSearch, Stop
from dsel.search.parallel.executor import Answer, Executor, Lost, Package, Slice
from dsel.search.parallel.journal import Journal, valued
from dsel.search.pareto.archive import ParetoArchive, Subset
from dsel.search.progress import Progress

#: A package is to take about so long: what it costs to send and merge (5 to 10 ms) is then below 2 % of it.
PACKAGE_SECONDS = 0.5
#: So often a subset or slice is given to another worker after those that it broke.
_MOST_ATTEMPTS = 3
#: Between two looks at signals and clocks while nothing comes back.
_LOOK_SECONDS = 0.2


class AskingSearch(ReadableSearch, Protocol):
    """A search by ask and tell whose packages can be out side by side."""

    archive: ParetoArchive
    iteration: int
    first_units: int

    @property
    def evaluations(self) -> int:
        """Values that came in (of slices: iterations)."""

    @property
    def settled(self) -> int:
        """Iterations whose outcome is in."""

    def finished(self, limit: int) -> bool:
        """Whether `limit` iterations are made and nothing is out."""

    def ask(self, most: int, workers: int, limit: int) -> Package | None:
        """The next package, of at most `most` units, for so many workers; None where there is none for now."""

    def tell(self, package: Package, found: Sequence[Any]) -> None:
        """What a package came to: see `Answer.found`."""

    def news(self) -> list[tuple[Subset, float]]:
        """What was put before the archive since the last call, in that order."""

    def give_back(self, package: Package, suspect: bool) -> None:
        """The package was lost: its units are asked again; suspect: each alone."""


@dataclass
class Tally:
    """What the packages of a run came to. busy: seconds of work on workers; there: seconds that workers were there."""

    packages: int = 0
    evaluations: int = 0
    lost_packages: int = 0
    lost_evaluations: int = 0
    busy: float = 0.0
    there: float = 0.0

    @property
    def utilisation(self) -> float:
        """The share of the workers' time that was spent on the packages."""
        return min(self.busy / self.there, 1.0) if self.there > 0.0 else 0.0

    def counts(self) -> dict[str, Any]:
        """For the result."""
        return {
            "packages": self.packages, "lost_packages": self.lost_packages, "lost_evaluations": self.lost_evaluations,
            "utilisation": round(self.utilisation, 3),
        }  # fmt: skip


class Dispatch:
    """Runs a search on an executor until `stop` says so.

    journal: where events are written, if anywhere. named: a subset's columns as the user knows them.
    """

    def __init__(
        self, search: AskingSearch, executor: Executor, stop: Stop, journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic, named: Callable[[Subset], Sequence[int]] = list,
    ) -> None:  # fmt: skip
        assert stop.iterations is not None
        self.search = search
        self.executor = executor
        self.stop = stop
        self.limit = stop.iterations
        self.tally = Tally()
        self._journal = journal
        self._clock = clock
        self._named = named
        self._attempts: Counter[Any] = Counter()
        self._unit_seconds: float | None = None
        self._out: set[str] = set()
        self._workers = 0
        self._began = self._looked = clock()
        self._before = search.iteration, search.evaluations

    def run(self, on_slice: Callable[[AnytimeSearch], None] | None = None) -> str:
        """Until the end; returns which rule ended it. `on_slice` sees the search between packages, and may raise.

        Errors: CriterionError with the subset and the traceback, ClusterError when workers break under the same
        package again and again, or are gone. The search holds all that came back before.
        """
        try:
            while (ended := self._ended()) is None:
                self._look(on_slice)
                self._send()
                if self._out and self._ended() is None:
                    self._collect(_LOOK_SECONDS)
            self._look(on_slice)
            self._write("ended", why=ended, iterations=self.search.iteration)
            return ended
        finally:
            self.executor.close()

    def _ended(self) -> str | None:
        met = self.stop.met(self.search, self.search.settled, self._clock() - self._began)
        return met or ("iterations" if self.search.finished(self.limit) else None)

    def _send(self) -> None:
        """Packages for all who have room, as long as the search has any to give."""
        while self.executor.room > 0 and self._ended() is None:
            if self._unit_seconds is None and len(self._out) >= self.executor.spread:
                return  # of unknown length: no more than one for each
            before = self.search.iteration
            package = self.search.ask(self._most(), self.executor.spread, self.limit)
            if again := self.search.news():
                self._write("merged", key=None, found=valued(again))
            if package is None:
                if self.search.iteration == before or self._clock() - self._looked > _LOOK_SECONDS:
                    return
                continue
            self._write("sent", key=package.key, units=package.units)
            self._out.add(package.key)
            self.executor.send(package)

    def _most(self) -> int:
        """Units for a package of the target's length."""
        if self._unit_seconds is None:
            return self.search.first_units
        return max(1, math.floor(PACKAGE_SECONDS / max(self._unit_seconds, 1e-9)))

    def _collect(self, seconds: float) -> None:
        failed: DselError | None = None
        for package, outcome in self.executor.back(seconds):
            self._out.discard(package.key)
            if isinstance(outcome, Lost):
                self._send_again(package, outcome)
            else:
                self._take_in(package, outcome)
                failed = failed or outcome.error
        if failed is not None:
            self._write("failed", error=str(failed))
            raise failed

    def _take_in(self, package: Package, answer: Answer) -> None:
        self.search.tell(package, answer.found)
        self._write("merged", key=package.key, seconds=round(answer.seconds, 6), found=valued(self.search.news()))
        self.tally.packages += 1
        self.tally.busy += answer.seconds
        done = package.units if isinstance(package.load, Slice) else len(answer.found)
        self.tally.evaluations += done
        if done:
            each = answer.seconds / done
            self._unit_seconds = each if self._unit_seconds is None else 0.5 * (self._unit_seconds + each)

    def _send_again(self, package: Package, lost: Lost) -> None:
        self._write("lost", key=package.key, units=package.units, why=lost.why)
        self.tally.lost_packages += 1
        self.tally.lost_evaluations += package.units
        self.search.give_back(package, lost.suspect)
        if not lost.suspect:
            return
        for item in (package.load.start,) if isinstance(package.load, Slice) else package.load:
            self._attempts[item] += 1
            if self._attempts[item] > _MOST_ATTEMPTS:
                what = f"The columns {list(self._named(item))}" if isinstance(item, tuple) else "A slice of the search"
                raise ClusterError(
                    f"{what} broke {self._attempts[item]} workers one after another: {lost.why}.",
                    "See the workers' logs. Started again, the job goes on with all that came back.",
                )

    def _look(self, on_slice: Callable[[AnytimeSearch], None] | None) -> None:
        now, workers = self._clock(), self.executor.workers
        self.tally.there += workers * (now - self._looked)
        self._looked = now
        if workers != self._workers:
            self._write("workers", number=workers)
            self._workers = workers
        self.search.progress = self._progress(now - self._began)  # type: ignore[attr-defined]
        if on_slice is not None:
            on_slice(self.search)  # type: ignore[arg-type]

    def _progress(self, elapsed: float) -> Progress:
        search = self.search
        iterations, evaluations = search.iteration - self._before[0], search.evaluations - self._before[1]
        left = elapsed * (self.limit - search.iteration) / iterations if iterations > 0 else None
        return Progress(
            search.iteration, self.limit, search.evaluations, search.best_value, len(search.archive),
            evaluations / elapsed if elapsed > 0.0 else 0.0, self._workers, self.tally.utilisation, left,
        )  # fmt: skip

    def _write(self, event: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.write(event, **values)

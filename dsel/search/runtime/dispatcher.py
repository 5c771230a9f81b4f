"""The loop between an ask-and-tell search and an executor.

The loop chooses the size of tasks by their duration, and requeues lost ones. It does not know who the workers are. The
search is consistent between any two lines of the loop, so it can be saved at each of them; tasks that are out at that
moment are asked again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsel._lib.text import counted, noun
from dsel.errors import ClusterError, DselError, Interrupted
from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.ask_tell import AskTell, Executor, LostTask, Task, TaskResult
from dsel.search.journal import Journal, valued

#: The limit of iterations of a search that has none.
NO_LIMIT = 1 << 62
#: Target duration of a task: its overhead (5 to 10 ms to send and merge it) is then below 2 %.
TASK_SECONDS = 0.5
#: How often a subset or slice is requeued after its workers failed.
_MOST_ATTEMPTS = 3
#: The share of the iterations after which the time that is left can be estimated.
_LEAST_DONE = 0.01
#: How long an interrupted run waits for the tasks that are out. A worker has two of them at a time.
_LAST_SECONDS = 2 * TASK_SECONDS
#: Interval between two looks at signals and clocks while no result arrives.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class SearchProgress:
    """Progress of a search on workers, for people who watch it.

    Parameters
    ----------
    iterations : int
        Iterations so far.
    limit : int or None
        Their limit, if they have one.
    evaluations : int
        Evaluations so far.
    best : float
        Smallest f so far.
    archive : int
        Solutions in the archive.
    per_second : float
        Evaluations per second since the first result of this run; 0 until there are others.
    workers : int
        Workers at this moment.
    utilisation : float
        Fraction of the workers' time spent on evaluations.
    seconds_left : float or None
        Time to the last iteration at the speed since the first result. None: not known.
    """

    iterations: int
    limit: int | None
    evaluations: int
    best: float
    archive: int
    per_second: float
    workers: int
    utilisation: float
    seconds_left: float | None

    def __str__(self) -> str:
        parts = [f"{self.evaluations:,} {noun(self.evaluations, 'evaluation')}"] if self.evaluations else []
        parts += [f"best {self.best:.6g}"] if math.isfinite(self.best) else []
        parts += [f"archive {self.archive}"] if self.archive else []
        parts += [f"{self.per_second:,.3g} per second"] if self.per_second else []
        return ", ".join([*parts, f"{counted(self.workers, 'worker')} {self.utilisation:.0%} busy"])


@dataclass
class DispatchStats:
    """Statistics of the tasks of a run.

    busy: seconds that workers spent on tasks. available: seconds that workers were available.
    """

    tasks: int = 0
    evaluations: int = 0
    lost_tasks: int = 0
    lost_evaluations: int = 0
    busy: float = 0.0
    available: float = 0.0

    @property
    def utilisation(self) -> float:
        """Fraction of the workers' time that was spent on tasks."""
        return min(self.busy / self.available, 1.0) if self.available > 0.0 else 0.0

    def counts(self) -> dict[str, Any]:
        """Return the entries for the result."""
        return {
            "tasks": self.tasks, "lost_tasks": self.lost_tasks, "lost_evaluations": self.lost_evaluations,
            "utilisation": round(self.utilisation, 3),
        }  # fmt: skip


class Dispatcher:
    """Runs a search on an executor until a stopping rule applies.

    Parameters
    ----------
    search : AskTell
        The search, which the dispatcher advances.
    executor : Executor
        Where its tasks run. The dispatcher closes it.
    stop : Stop
        Stopping rules; `iterations` is required.
    journal : Journal, optional
        Where events are written.
    clock : callable
        Returns the time in seconds.
    in_data : callable
        Maps a subset to the columns that the user knows, for error messages.
    """

    def __init__(
        self, search: AskTell, executor: Executor, stop: Stop, journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic, in_data: Callable[[tuple[int, ...]], Sequence[int]] = list,
    ) -> None:  # fmt: skip
        assert stop.iterations is not None
        self.search = search
        self.executor = executor
        self.stop = stop
        self.limit = stop.iterations
        self.stats = DispatchStats()
        self._journal = journal
        self._clock = clock
        self._in_data = in_data
        self._attempts: Counter[Any] = Counter()
        self._unit_seconds: float | None = None
        self._out: dict[str, Task] = {}
        self._workers = 0
        self._began = self._looked = clock()
        # When the first result came: workers start and compile until then, which tells nothing of the speed.
        self._first: tuple[float, int, int] | None = None

    def run(self, on_slice: Callable[[AnytimeSearch], None] | None = None) -> str:
        """Run the search to its end, and return which rule ended it.

        Parameters
        ----------
        on_slice : callable, optional
            Called with the search between tasks. What it raises ends the run. After Interrupted, the run merges what
            the tasks that are out return within a second, and calls it again, so that it can save that, too.

        Returns
        -------
        str
            "iterations", or the name of another field of `Stop`.

        Raises
        ------
        CriterionError
            If the criterion fails, with the subset and the traceback. The search holds all earlier results.
        ClusterError
            If workers fail repeatedly under the same task, or are gone.
        """
        try:
            while (ended := self._ended()) is None:
                self._look_or_collect_the_rest(on_slice)
                self._submit()
                if self._out and self._ended() is None:
                    self._collect(_LOOK_SECONDS)
            self._look(on_slice)
            self._write("ended", why=ended, iterations=self.search.iteration)
            return ended
        finally:
            for task in self._out.values():
                self.search.requeue(task, suspect=False)
            self.executor.close()

    def _ended(self) -> str | None:
        met = self.stop.met(self.search, self.search.completed, self._clock() - self._began)
        return met or self.search.finished()

    def _submit(self) -> None:
        """Submit tasks as long as there are free slots and the search has some."""
        while self.executor.free_slots > 0 and self._ended() is None:
            if self._unit_seconds is None and len(self._out) >= self.executor.target_parallelism:
                return  # durations are unknown: one task per worker
            before = self.search.iteration
            task = self.search.ask(self._most_units(), self.executor.target_parallelism)
            if events := self.search.drain_events():
                self._write("merged", key=None, found=valued(events))
            if task is None:
                if self.search.iteration == before or self._clock() - self._looked > _LOOK_SECONDS:
                    return
                continue
            self._write("sent", key=task.key, units=task.units)
            if (work := self.search.changed_work) is not None:
                self.executor.use(work)
            self._out[task.key] = task
            self.executor.submit(task)

    def _most_units(self) -> int:
        """Return the number of units in a task of the target duration."""
        if self._unit_seconds is None:
            return self.search.first_units
        return max(1, math.floor(TASK_SECONDS / max(self._unit_seconds, 1e-9)))

    def _collect(self, seconds: float) -> None:
        failed: DselError | None = None
        for task, outcome in self.executor.poll(seconds):
            self._out.pop(task.key, None)
            if isinstance(outcome, LostTask):
                self._requeue(task, outcome)
            else:
                self._merge(task, outcome)
                failed = failed or outcome.error
        if failed is not None:
            self._write("failed", error=str(failed))
            raise failed

    def _merge(self, task: Task, result: TaskResult) -> None:
        self.search.tell(task, result)
        events = valued(self.search.drain_events())
        self._write("merged", key=task.key, seconds=round(result.seconds, 6), found=events)
        done = task.units if result.units is None else result.units
        self.stats.tasks += 1
        self.stats.busy += result.seconds
        self.stats.evaluations += done
        self._first = self._first or (self._clock(), self.search.iteration, self.search.evaluations)
        for item in task.items:
            self._attempts.pop(item, None)
        if done:
            each = result.seconds / done
            self._unit_seconds = each if self._unit_seconds is None else 0.5 * (self._unit_seconds + each)

    def _requeue(self, task: Task, lost: LostTask) -> None:
        self._write("lost", key=task.key, units=task.units, why=lost.why)
        self.stats.lost_tasks += 1
        self.stats.lost_evaluations += task.units
        self.search.requeue(task, lost.suspect)
        for item in task.items if lost.suspect else ():
            self._attempts[item] += 1
            if self._attempts[item] > _MOST_ATTEMPTS:
                what = f"The columns {list(self._in_data(item))}" if isinstance(item, tuple) else "A part of the search"
                why = lost.why.partition(". ")[0].rstrip(".")  # Dask adds links to its pages
                raise ClusterError(
                    f"{what} made {self._attempts[item]} workers fail one after another: {why}.",
                    "A criterion that ends its process or needs more memory than a worker has does so: correct it for "
                    "these columns. Started again, the job continues with all earlier results.",
                )

    def _look(self, on_slice: Callable[[AnytimeSearch], None] | None) -> None:
        now, workers = self._clock(), self.executor.workers
        self.stats.available += workers * (now - self._looked)
        self._looked = now
        if workers != self._workers:
            self._write("workers", number=workers)
            self._workers = workers
        self.search.progress = self._progress(now)  # type: ignore[attr-defined]
        if on_slice is not None:
            on_slice(self.search)

    def _look_or_collect_the_rest(self, on_slice: Callable[[AnytimeSearch], None] | None) -> None:
        try:
            self._look(on_slice)
        except Interrupted:
            until = self._clock() + _LAST_SECONDS
            while self._out and (left := until - self._clock()) > 0.0:
                self._collect(left)
            if on_slice is not None:
                on_slice(self.search)
            raise

    def _progress(self, now: float) -> SearchProgress:
        search = self.search
        since, iteration, evaluations = self._first or (now, search.iteration, search.evaluations)
        elapsed, done = now - since, search.iteration - iteration
        limit = None if self.limit >= NO_LIMIT else self.limit
        known = limit is not None and done > 0 and done >= _LEAST_DONE * (limit - iteration)
        left = elapsed * (limit - search.iteration) / done if limit is not None and known else None
        speed = (search.evaluations - evaluations) / elapsed if elapsed > 0.0 else 0.0
        return SearchProgress(
            search.iteration, limit, search.evaluations, search.best_value, search.solutions, speed, self._workers,
            self.stats.utilisation, left,
        )  # fmt: skip

    def _write(self, event: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.write(event, **values)

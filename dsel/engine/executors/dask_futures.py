"""Packages as Dask futures: the search stays on the client, and nothing is lost with a worker but its last half second.

The work itself (a criterion with its data, or where an objective stands) is a future that can be computed again, which
every worker fetches once; a package's own arguments and answer are small.
"""

from __future__ import annotations

import logging
import queue
import time
from contextlib import suppress
from pickle import PicklingError
from typing import Any

from dsel.engine.dask import NO_WORKER_LIMIT, check_workers
from dsel.engine.executors.arrivals import arrivals
from dsel.errors import ClusterError, CriterionError, DselError
from dsel.search.parallel import worker_tasks as on_worker
from dsel.search.parallel.executor import Answer, Carriage, LetGo, Lost, Package, Work
from dsel.search.pareto.evaluation_memo import cannot_travel

log = logging.getLogger("dsel")

#: Packages for each worker at a time, so that none waits for the client.
_AHEAD = 2
#: Between two looks at which workers there are, and at what they are doing.
_LOOK_SECONDS = 1.0
#: So long, at the end, workers are waited for that are to let go of what they keep.
_LET_GO_SECONDS = 5
#: An answer that has not arrived after so long went with its worker.
_GATHER_SECONDS = 30


def _itself(work: Work) -> Work:
    return work


def _call(functions: tuple[LetGo, ...]) -> None:
    for function in functions:
        function()


def _do(work: Work, package: Package) -> Answer:
    return work(package)


class DaskFutures:
    """Carries packages to the workers of a client, however many there are at the moment.

    A package whose worker dies is given to another one by the scheduler; after a few deaths it comes back as lost. So
    does one with an evaluation that takes longer than `evaluation_limit`: its worker is started anew where it has a
    nanny, and else left to itself. An adaptive cluster sees two packages of half a second a worker: give it a
    target_duration of less than a second, or it does not grow. As long as it may, work is cut for twice the workers.

    Errors: ClusterError when there are no workers for some minutes, all are paused, or the scheduler is lost.
    """

    def __init__(self, client: Any, work: Work, carriage: Carriage, no_worker_limit: float = NO_WORKER_LIMIT) -> None:
        self.client = client
        self._no_worker_limit = no_worker_limit
        self._plain_work = work
        self._limit = carriage.evaluation_limit
        self._work: Any = None
        self._out: dict[str, tuple[Package, Any, float]] = {}
        self._came: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lost: list[tuple[Package, Lost]] = []
        self._workers, self._spread, self._looked = 1, 1, float("-inf")
        self._stalled_since: float | None = None

    @property
    def workers(self) -> int:
        """Threads of the workers that are there, as of a second ago."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._require_connection()
            found = self.client.scheduler_info(n_workers=-1)["workers"]
            threads = max(sum(int(worker["nthreads"]) for worker in found.values()), 1)
            self._workers, self._spread = threads, 2 * threads if self._may_grow(len(found)) else threads
            self._stalled_since = check_workers(self.client, self._stalled_since, self._no_worker_limit)
            self._stop_what_hangs()
            self._looked = time.monotonic()
        return self._workers

    @property
    def spread(self) -> int:
        """Workers to cut the work for: more than there are, where an adaptive cluster may grow."""
        return max(self.workers, self._spread)

    def _may_grow(self, workers: int) -> bool:
        """Whether the client's cluster starts workers by itself where packages wait. Where it does not see more of them
        than it has workers, it never does."""
        adaptive = getattr(self.client.cluster, "_adaptive", None)
        return adaptive is not None and workers < adaptive.maximum

    @property
    def room(self) -> int:
        """Some ahead of what is being worked on."""
        return _AHEAD * self.spread - len(self._out)

    def _require_connection(self) -> None:
        if self.client.status != "running":
            raise ClusterError("The scheduler was lost.", "Start the job again: it goes on where it was.")

    def send(self, package: Package) -> None:
        self._require_connection()
        if self._work is None or self._work.status in ("cancelled", "lost", "error"):
            try:
                self._work = self.client.submit(_itself, self._plain_work, pure=False)
            except (TypeError, AttributeError, PicklingError) as error:
                raise cannot_travel(error.__cause__ if isinstance(error.__cause__, Exception) else error) from error
        future = self.client.submit(_do, self._work, package, key=f"dsel-{package.key}-{time.monotonic_ns()}")
        self._out[package.key] = package, future, time.monotonic()
        future.add_done_callback(lambda _: self._came.put(package.key))

    def back(self, seconds: float) -> list[tuple[Package, Answer | Lost]]:
        ended = [self._out.pop(key) for key in arrivals(self._came, seconds) if key in self._out]
        lost, self._lost = self._lost, []
        return [*lost, *self._outcomes([(package, future) for package, future, _ in ended])]

    def _outcomes(self, ended: list[tuple[Package, Any]]) -> list[tuple[Package, Answer | Lost]]:
        finished = [future for _, future in ended if future.status == "finished"]
        answers = self._gathered(finished)
        return [(package, answers.get(future.key) or self._why(future)) for package, future in ended]

    def _gathered(self, finished: list[Any]) -> dict[str, Answer]:
        """The answers by key; none where a worker took its answer with it."""
        from distributed import TimeoutError as WaitTimeout

        if not finished:
            return {}
        try:
            answers = self.client.sync(self.client._gather, finished, errors="skip", callback_timeout=_GATHER_SECONDS)
        except (WaitTimeout, TimeoutError):
            return {}
        whole = len(answers) == len(finished)
        return dict(zip((future.key for future in finished), answers, strict=True)) if whole else {}

    def _why(self, future: Any) -> Lost:
        from distributed import KilledWorker

        if future.status != "error":
            self._require_connection()
            return Lost(f"its future is {future.status}", suspect=False)
        error = future.exception()
        if isinstance(error, KilledWorker):
            return Lost(str(error), suspect=True)
        if isinstance(error, DselError):
            raise error
        raise CriterionError(
            f"The work could not be begun on a worker: {type(error).__name__}: {error}.",
            "What it is made of (the criterion's module, the data) must be there on the workers too.",
        ) from error

    def _stop_what_hangs(self) -> None:
        """Ask what runs on the workers, once something is out for longer than an evaluation may take."""
        now = time.monotonic()
        if self._limit is None or all(now - sent <= self._limit for _, _, sent in self._out.values()):
            return
        busy = self.client.run(on_worker.running, on_error="ignore")
        for address, evaluations in busy.items():
            late = [key for key, (_, seconds) in evaluations.items() if seconds > self._limit and key in self._out]
            for key in late:
                package, future, _ = self._out.pop(key)
                S, seconds = evaluations[key]
                log.warning("the columns %s have taken %.0f s on %s: given up there", list(S), seconds, address)
                future.cancel()
                why = f"the evaluation of the columns {list(S)} took longer than {self._limit:g} s"
                self._lost.append((package, Lost(why, suspect=True)))
            if late:
                self._start_anew(address)

    def _start_anew(self, address: str) -> None:
        try:
            self.client.restart_workers([address], timeout=30, raise_for_error=False)
        except ValueError:  # it has no nanny: nobody can stop it
            log.warning("worker %s is left to its evaluation, which cannot be stopped", address)

    def close(self) -> None:
        """Cancel what is out, and have the workers let go of what they keep; a scheduler that is lost has forgotten
        both already."""
        if self.client.status == "running":
            with suppress(OSError, TimeoutError):
                self.client.cancel([future for _, future, _ in self._out.values()])
                self._let_go()
        self._out.clear()
        self._work = None

    def _let_go(self) -> None:
        """On every worker that answers in time."""
        functions = self._plain_work.let_go()
        if functions:
            self.client.sync(self.client._run, _call, functions, on_error="ignore", callback_timeout=_LET_GO_SECONDS)

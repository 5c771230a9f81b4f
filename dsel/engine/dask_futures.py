"""Tasks of a search as Dask futures.

The search stays on the client. If a worker is lost, at most its current tasks are lost. The work itself (a criterion
with its data, or the place of an objective) is one future that every worker fetches once. A task and its result are
small.

Without a Dask cluster, tasks run in this process, or on local worker processes.
"""

from __future__ import annotations

import logging
import queue
import time
from contextlib import ExitStack, suppress
from typing import Any

from dsel.engine.clusters.local import local_cluster
from dsel.engine.parcel import Parcel, Shipment
from dsel.engine.scheduler_watch import NO_WORKER_LIMIT, check_workers, scheduler_lost
from dsel.errors import CriterionError
from dsel.search.ask_tell import ExecutorOptions, LostTask, Task, TaskResult, Work, call_all
from dsel.search.pareto import evaluations as on_worker

log = logging.getLogger("dsel")

#: Tasks per worker at a time, so that no worker waits for the client.
_QUEUED_PER_WORKER = 2
#: Interval between two looks at the workers and their evaluations.
_LOOK_SECONDS = 1.0
#: How long to wait at the end for workers to release their memory.
_CLEANUP_SECONDS = 5
#: A result that has not arrived after this time was lost with its worker.
_GATHER_SECONDS = 30


def _run_task(parcel: Parcel, task: Task) -> TaskResult:
    work: Work = parcel.open()
    return work(task)


class DaskExecutor:
    """Executor that runs tasks on the workers of a Dask client, however many there are at the moment.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client of the cluster. The executor does not close it.
    work : Work
        What to do with each task.
    options : ExecutorOptions
        `evaluation_limit` is obeyed. `processes` is not used.
    no_worker_limit : float
        Seconds without any worker after which the run fails.

    Raises
    ------
    ClusterError
        If there is no worker for too long, all are paused, or the scheduler is lost.

    Notes
    -----
    The scheduler gives the task of a dead worker to another worker. After a few deaths the task is lost. A task with an
    evaluation longer than `evaluation_limit` is lost, too; its worker is restarted if it has a nanny.

    An adaptive cluster sees two tasks of half a second per worker. It grows only if its target_duration is below one
    second. While it may grow, work is divided for twice as many workers.
    """

    def __init__(
        self, client: Any, work: Work, options: ExecutorOptions, no_worker_limit: float = NO_WORKER_LIMIT
    ) -> None:
        self.client = client
        self._no_worker_limit = no_worker_limit
        self._work = Shipment(client, work)
        self._limit = options.evaluation_limit
        self._out: dict[str, tuple[Task, Any, float]] = {}
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lost: list[tuple[Task, LostTask]] = []
        self._workers, self._parallelism, self._looked = 1, 1, float("-inf")
        self._stalled_since: float | None = None

    @property
    def workers(self) -> int:
        """Threads of all workers, as of at most a second ago."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._require_connection()
            found = self.client.scheduler_info(n_workers=-1)["workers"]
            threads = max(sum(int(worker["nthreads"]) for worker in found.values()), 1)
            self._workers, self._parallelism = threads, 2 * threads if self._may_grow(len(found)) else threads
            self._stalled_since = check_workers(self.client, self._stalled_since, self._no_worker_limit)
            self._stop_late_evaluations()
            self._looked = time.monotonic()
        return self._workers

    @property
    def target_parallelism(self) -> int:
        """Workers to divide the work for: more than there are if an adaptive cluster may grow."""
        return max(self.workers, self._parallelism)

    def _may_grow(self, workers: int) -> bool:
        """Return whether the cluster starts workers by itself when tasks wait.

        Such a cluster grows only if it sees more tasks than it has workers.
        """
        adaptive = getattr(self.client.cluster, "_adaptive", None)
        return adaptive is not None and workers < adaptive.maximum

    @property
    def free_slots(self) -> int:
        """Number of tasks to submit now: some more than can run."""
        return _QUEUED_PER_WORKER * self.target_parallelism - len(self._out)

    def _require_connection(self) -> None:
        if self.client.status != "running":
            raise scheduler_lost()

    def use(self, work: Work) -> None:
        """Run the tasks that are submitted from now on by other work."""
        if work is not self._work.value:
            self._work = Shipment(self.client, work)

    def submit(self, task: Task) -> None:
        """Submit a task."""
        self._require_connection()
        key = f"dsel-{task.key}-{time.monotonic_ns()}"
        future = self.client.submit(_run_task, self._work.future, task, key=key)
        self._out[task.key] = task, future, time.monotonic()
        future.add_done_callback(lambda _: self._ended.put(task.key))

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        """Return the tasks that have ended, after waiting at most this many seconds for the first one."""
        ended = [self._out.pop(key) for key in self._ended_keys(seconds) if key in self._out]
        lost, self._lost = self._lost, []
        return [*lost, *self._outcomes([(task, future) for task, future, _ in ended])]

    def _ended_keys(self, seconds: float) -> list[str]:
        keys = []
        with suppress(queue.Empty):
            keys.append(self._ended.get(timeout=seconds))
            while True:
                keys.append(self._ended.get_nowait())
        return keys

    def _outcomes(self, ended: list[tuple[Task, Any]]) -> list[tuple[Task, TaskResult | LostTask]]:
        results = self._gather([future for _, future in ended if future.status == "finished"])
        return [(task, results.get(future.key) or self._why_lost(future)) for task, future in ended]

    def _gather(self, finished: list[Any]) -> dict[str, TaskResult]:
        """Return the results by key, or none if one was lost with its worker."""
        from distributed import TimeoutError as WaitTimeout

        if not finished:
            return {}
        try:
            results = self.client.sync(self.client._gather, finished, errors="skip", callback_timeout=_GATHER_SECONDS)
        except (WaitTimeout, TimeoutError):
            return {}
        complete = len(results) == len(finished)
        return dict(zip((future.key for future in finished), results, strict=True)) if complete else {}

    def _why_lost(self, future: Any) -> LostTask:
        from distributed import KilledWorker

        if future.status != "error":
            self._require_connection()
            return LostTask(f"its future is {future.status}", suspect=False)
        error = future.exception()
        if isinstance(error, KilledWorker):
            return LostTask(str(error), suspect=True)
        self._work.require_readable(error)
        raise CriterionError(
            f"The work could not start on a worker: {type(error).__name__}: {error}.",
            "Workers need everything that it uses (the criterion's module, the data).",
        ) from error

    def _stop_late_evaluations(self) -> None:
        """Stop evaluations that exceed the limit. Workers are asked only if a task is out for longer than that."""
        now = time.monotonic()
        if self._limit is None or all(now - submitted <= self._limit for _, _, submitted in self._out.values()):
            return
        busy = self.client.run(on_worker.running, on_error="ignore")
        for address, evaluations in busy.items():
            late = [key for key, (_, seconds) in evaluations.items() if seconds > self._limit and key in self._out]
            for key in late:
                task, future, _ = self._out.pop(key)
                S, seconds = evaluations[key]
                log.warning("the columns %s have taken %.0f s on %s: their evaluation ends", list(S), seconds, address)
                future.cancel()
                why = f"the evaluation of the columns {list(S)} took longer than {self._limit:g} s"
                self._lost.append((task, LostTask(why, suspect=True)))
            if late:
                self._restart_worker(address)

    def _restart_worker(self, address: str) -> None:
        try:
            self.client.restart_workers([address], timeout=30, raise_for_error=False)
        except ValueError:  # it has no nanny
            log.warning("worker %s has no nanny: its evaluation cannot be stopped", address)

    def close(self) -> None:
        """Cancel all tasks and release the workers' memory; a scheduler that is lost holds neither."""
        if self.client.status == "running":
            with suppress(OSError, TimeoutError):
                self.client.cancel([future for _, future, _ in self._out.values()])
                self._clean_up()
        self._out.clear()
        self._work.release()

    def _clean_up(self) -> None:
        """Release memory on every worker that answers in time."""
        functions = self._work.value.cleanup()
        if functions:
            self.client.sync(
                self.client._run, call_all, functions, on_error="ignore", callback_timeout=_CLEANUP_SECONDS
            )


class LocalProcessExecutor(DaskExecutor):
    """Executor on worker processes of this machine, which start with it and end with `close`.

    Parameters
    ----------
    work : Work
        What to do with each task.
    options : ExecutorOptions
        Number of processes, and time limit per evaluation.

    Raises
    ------
    ClusterError
        If the processes do not start.
    """

    def __init__(self, work: Work, options: ExecutorOptions) -> None:
        with ExitStack() as stack:
            client = stack.enter_context(local_cluster(options.processes))
            super().__init__(client, work, options)
            self._cluster = stack.pop_all()

    def close(self) -> None:
        """Cancel all tasks and stop the processes."""
        with self._cluster:
            super().close()

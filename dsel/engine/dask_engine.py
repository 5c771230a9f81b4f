"""Work on the workers of a Dask cluster, with progress, retries and a check that workers make progress.

`WorkersOnDemand` starts them when the first large pass, or a search, needs them. Small passes run in this process. A
job that is repeated on data that grow reads little most of the time. Starting workers would take longer than its
passes, and on a site they would wait in a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from dsel.engine.engine_protocol import THREADS, Engine
from dsel.engine.parcel import is_unreadable, require_code, send_in_pieces
from dsel.engine.scheduler_watch import (
    NO_WORKER_LIMIT,
    check_workers,
    cluster_errors,
    on_scheduler_lost,
    run_here,
    scheduler_lost,
    workers_of,
)
from dsel.errors import CapacityError, ClusterError, DselError
from dsel.search.ask_tell import Executor, ExecutorOptions, Work

log = logging.getLogger("dsel")

#: Number of retries of a failed task (its worker was lost, or a read failed for a moment).
RETRIES = 2

#: Interval between two looks at the workers.
_LOOK_SECONDS = 0.5

Progress = Callable[[int, int], None]  # tasks done, tasks in all


@dataclass(frozen=True)
class DaskEngine:
    """Engine that runs work on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client of the cluster. The engine does not close it.
    progress : callable, optional
        Called with (tasks done, tasks in all) while a graph runs. What it raises ends the run.
    no_worker_limit : float, default 120
        Seconds without any worker after which work fails.
    """

    client: Any
    progress: Progress | None = None
    no_worker_limit: float = NO_WORKER_LIMIT
    in_process = False

    @property
    def workers(self) -> int:
        """Number of workers at this moment, at least 1."""
        return workers_of(self.client)[0]

    @property
    def worker_memory(self) -> int | None:
        """Smallest memory limit among the workers in bytes. None: no worker has a limit."""
        return workers_of(self.client)[1]

    @property
    def on_this_host(self) -> bool:
        """Whether all workers of this moment run on this machine."""
        return run_here(self.client)

    def run(self, graph: Any, *, before: int = 0, after: int = 0) -> Any:
        """Compute a delayed object or a list of them, and release each on the workers once its value is here.

        Tasks that fail are tried again, except for errors of dsel: the data do not change.

        Raises
        ------
        CapacityError
            If a task runs out of memory.
        ClusterError
            If workers die repeatedly, are all paused for lack of memory, or are gone.
        """
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        wanted = graph if isinstance(graph, list) else [graph]
        keys = _named_as(wanted)
        if self.progress is not None:
            from dsel.engine.scheduler_plugins import begin_counting

            begin_counting(self.client)
        futures = self.client.compute(wanted, retries=0)
        try:
            values = [self._wait(wanted, keys, future, before, after) for future in _released_in_turn(futures)]
        except KilledWorker as error:
            raise ClusterError(
                f"Workers died repeatedly while computing: {error}.",
                "The usual cause is too little memory: allow them more, or use smaller chunks.",
            ) from error
        except MemoryError as error:
            raise CapacityError(
                f"A task ran out of memory: {error or 'no more was available'}.",
                "Allow each worker more memory, start fewer workers, or store the data in smaller chunks.",
            ) from error
        except FutureCancelledError as error:
            if self.client.status == "running":
                require_code(self.client, wanted, scheduler=True)
            raise scheduler_lost() from error
        finally:
            for future in futures:
                future.release()
        if self.progress is not None:
            self.progress(before + len(keys), before + len(keys) + after)
        return values if isinstance(graph, list) else values[0]

    def for_pass(self, bytes_read: int, flops: int, partial_bytes: int) -> DaskEngine:
        """Return this engine: the workers are there."""
        return self

    def keep(self, values: list[Any]) -> list[Any]:
        """Compute delayed objects and keep them on the workers, consecutive ones on the same worker.

        A value that is lost with its worker is computed again.
        """
        from dsel.engine.scheduler_plugins import forget_lost_workers

        forget_lost_workers(self.client)
        addresses = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
        if not addresses:  # for the moment: the next worker takes them
            return list(self.client.persist(values))
        share = -(-len(values) // len(addresses))
        kept: list[Any] = []
        for i, address in enumerate(addresses):
            part = values[i * share : (i + 1) * share]
            kept += self.client.persist(part, workers=[address], allow_other_workers=True) if part else []
        return kept

    def peak_memory(self) -> dict[str, tuple[int, int]]:
        """Return, for the address of each worker, its peak resident memory so far and its limit, in bytes.

        A worker that does not answer is left out; so are all if the scheduler is lost.
        """
        try:
            with cluster_errors(self.client):
                workers = self.client.scheduler_info(n_workers=-1)["workers"]
                peaks = self.client.run(_peak_resident, on_error="ignore")
        except ClusterError as error:
            log.warning("the workers' memory is not known: %s", error.what)
            return {}
        limits = {address: worker["memory_limit"] for address, worker in workers.items()}
        return {address: (peak, limits.get(address, 0)) for address, peak in peaks.items()}

    def share(self, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
        """Return a delayed object with this value. A large one is sent in pieces; a lost piece is made again."""
        return send_in_pieces(self.client, value, name, kept, of)

    def require(self, function: Any) -> None:
        """Raise CriterionError unless all workers can import what a function needs."""
        require_code(self.client, function)

    def executor(self, work: Work, options: ExecutorOptions) -> Executor:
        """Return an executor that sends a search's tasks to the workers."""
        from dsel.engine.dask_futures import DaskExecutor

        return DaskExecutor(self.client, work, options, self.no_worker_limit)

    def errors(self, notify: Callable[[ClusterError], None]) -> AbstractContextManager[None]:
        """Return a context in which a lost scheduler is a ClusterError; `notify` gets it at once, in another thread."""
        on_scheduler_lost(self.client, notify)
        return cluster_errors(self.client)

    def _wait(self, graph: list[Any], keys: list[str], future: Any, before: int, after: int) -> Any:
        """Wait for the value of a future, and retry a failed task."""
        attempts = 0
        stalled_since: float | None = None
        while True:
            if _finished(future):
                if future.status != "error":
                    return future.result()
                error = future.exception()
                attempts += 1
                if is_unreadable(error):
                    require_code(self.client, graph, scheduler=True)
                if isinstance(error, DselError) or attempts > RETRIES or type(error).__name__ == "KilledWorker":
                    raise error
                log.warning("a task failed (%s), trying again: %d of %d", error, attempts, RETRIES)
                future.retry()
            stalled_since = check_workers(self.client, stalled_since, self.no_worker_limit)
            if self.progress is not None:
                from dsel.engine.scheduler_plugins import count_finished

                self.progress(before + count_finished(self.client, keys), before + len(keys) + after)


def _named_as(wanted: list[Any]) -> list[str]:
    """Return the keys of the tasks that have the names of those wanted: plans count them.

    Others compute the arrays that these read, such as lazy arrays of xarray.
    """
    names = tuple({f"{one.key.rpartition('-')[0].removesuffix('-merge')}-" for one in wanted})
    return list(
        {key for one in wanted for key in one.__dask_graph__() if isinstance(key, str) and key.startswith(names)}
    )


def _released_in_turn(futures: list[Any]) -> Iterator[Any]:
    """Yield each future, and release it before the next one."""
    for future in futures:
        yield future
        future.release()


def _finished(future: Any) -> bool:
    """Wait a moment, and return whether the future has a result or an error."""
    from distributed import TimeoutError as WaitTimeout

    try:
        future.exception(timeout=_LOOK_SECONDS)
    except (WaitTimeout, TimeoutError):
        return bool(future.done())
    return True


def _peak_resident() -> int:
    # Not getrusage: there a child starts with its parent's peak.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return int(psutil.Process().memory_info().rss)


#: A pass is small up to this size: it takes about as long as the start of local workers.
SMALL_BYTES, SMALL_FLOPS = 256 << 20, 10**11
#: A pass in this process takes at most this share of the available memory.
_MEMORY_SHARE = 0.25


class WorkersOnDemand:
    """Engine whose workers start with the first work that needs them.

    Parameters
    ----------
    start : callable
        Starts the workers and returns their engine. It is called at most once.
    workers : int
        The number of workers that there will be.
    worker_memory : int or None
        The memory limit of each, in bytes.
    """

    in_process = False

    def __init__(self, start: Callable[[], DaskEngine], workers: int, worker_memory: int | None) -> None:
        self._start, self._promised = start, (max(1, workers), worker_memory)
        self._engine: DaskEngine | None = None
        self._notify: Callable[[ClusterError], None] | None = None
        self._function: Any = None

    @property
    def started(self) -> DaskEngine:
        """Return the engine of the workers. The first call starts them."""
        if self._engine is None:
            self._engine = self._start()
            if self._notify is not None:
                self._engine.errors(self._notify)
            if self._function is not None:
                self._engine.require(self._function)
        return self._engine

    @property
    def workers(self) -> int:
        """Number of workers: those that there will be, or are."""
        return self._promised[0] if self._engine is None else self._engine.workers

    @property
    def worker_memory(self) -> int | None:
        """Smallest memory limit among the workers in bytes. None: no limit is known."""
        return self._promised[1] if self._engine is None else self._engine.worker_memory

    @property
    def on_this_host(self) -> bool:
        """Whether the workers have started, and all run on this machine."""
        return self._engine is not None and self._engine.on_this_host

    def run(self, graph: Any, *, before: int = 0, after: int = 0) -> Any:
        """Compute a delayed object or a list of them on the workers."""
        return self.started.run(graph, before=before, after=after)

    def for_pass(self, bytes_read: int, flops: int, partial_bytes: int) -> Engine:
        """Return the engine of the workers for a large pass, or if they run already; else that of this process."""
        if self._engine is not None or not _is_small(bytes_read, flops, partial_bytes):
            return self.started
        return THREADS

    def keep(self, values: list[Any]) -> list[Any]:
        """Compute delayed objects and keep them on the workers."""
        return self.started.keep(values)

    def peak_memory(self) -> dict[str, tuple[int, int]]:
        """Return the peak memory of each worker and its limit, in bytes; nothing if no worker has started."""
        return {} if self._engine is None else self._engine.peak_memory()

    def share(self, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
        """Return a delayed object with this value, for tasks on the workers."""
        return self.started.share(value, name, kept, of)

    def require(self, function: Any) -> None:
        """Raise CriterionError unless all workers can import what a function needs, as soon as they run."""
        self._function = function
        if self._engine is not None:
            self._engine.require(function)

    def executor(self, work: Work, options: ExecutorOptions) -> Executor:
        """Return an executor that sends a search's tasks to the workers."""
        return self.started.executor(work, options)

    @contextmanager
    def errors(self, notify: Callable[[ClusterError], None]) -> Iterator[None]:
        """Turn a lost scheduler into a ClusterError in the block, as `DaskEngine.errors` does."""
        self._notify = notify
        if self._engine is not None:
            self._engine.errors(notify)
        try:
            yield
        except BaseException:
            if self._engine is None:
                raise
            with self._engine.errors(notify):
                raise


def _is_small(bytes_read: int, flops: int, partial_bytes: int) -> bool:
    """Return whether a pass takes about as long as the start of workers, and fits into this process."""
    if bytes_read > SMALL_BYTES or flops > SMALL_FLOPS:
        return False
    # Each thread holds a block, its rows as float64, and some partial results.
    need = 4 * bytes_read + 8 * (psutil.cpu_count() or 1) * partial_bytes
    return bool(need <= _MEMORY_SHARE * psutil.virtual_memory().available)

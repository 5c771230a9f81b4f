"""Workers that start when the first large pass, or a search, needs them. Small passes run in this process.

A job that is repeated on data that grow reads little most of the time. Starting workers would take longer than its
passes, and on a site they would wait in a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from dsel.engine.dask_engine import DaskEngine
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import ClusterError
from dsel.search.ask_tell import Executor, ExecutorOptions, Work

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

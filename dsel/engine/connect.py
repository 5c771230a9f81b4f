"""Which engine to use: the workers of the active Dask client, or the threads of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import OptionError

if TYPE_CHECKING:
    from dsel.engine.dask_engine import Progress


@contextmanager
def engine_of(client: Any | None, progress: Progress | None = None) -> Iterator[Engine]:
    """Provide the engine of a client, or that of this process if there is none. A lost scheduler is a ClusterError."""
    if client is None:
        yield THREADS
        return
    from dsel.engine.dask_engine import DaskEngine  # here: data in memory need no cluster
    from dsel.engine.scheduler_watch import cluster_errors

    with cluster_errors(client):
        yield DaskEngine(client, progress)


def engine_for(dataset: Dataset) -> AbstractContextManager[Engine]:
    """Provide the engine of the active client; that of this process without one, and for data in memory."""
    return engine_of(None if dataset.in_memory else active_client())


def active_client() -> Any | None:
    """Return the Dask client that the caller has opened, or None.

    Inside a task there is none: its client would wait for tasks that wait for the task's own worker.

    Raises
    ------
    OptionError
        If the client is asynchronous.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client, get_worker

    try:
        get_worker()
    except ValueError:
        pass
    else:
        return None
    try:
        client = get_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise OptionError(
            "The active Dask client is asynchronous, but dsel waits for its results.",
            "Open it with asynchronous=False, or call dsel from another thread: await asyncio.to_thread(...).",
        )
    return client

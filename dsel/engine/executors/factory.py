"""Which executor carries the work of a search on workers."""

from __future__ import annotations

from typing import Any

from dsel.engine.dask import NO_WORKER_LIMIT
from dsel.engine.executors.process_pool import local_executor
from dsel.search.parallel.journal import Journal
from dsel.search.run import Backend
from dsel.storage.paths import Place


def backend(
    client: Any | None, journal: Journal | None = None, folder: Place | None = None,
    no_worker_limit: float = NO_WORKER_LIMIT,
) -> Backend:  # fmt: skip
    """The workers of a client where there is one, otherwise this process or others beside it."""
    if client is None:
        return Backend(local_executor, journal)
    from dsel.engine.executors.dask_futures import dask_executor

    return Backend(dask_executor(client, no_worker_limit), journal, folder)

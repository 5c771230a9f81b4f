"""Which executor carries the work of a search on workers."""

from __future__ import annotations

from typing import Any

from dsel.cluster.compute import NO_WORKER_LIMIT
from dsel.cluster.process_pool import local_executor
from dsel.places import Place
from dsel.search.journal import Journal
from dsel.search.run import Backend


def backend(
    client: Any | None, journal: Journal | None = None, folder: Place | None = None,
    no_worker_limit: float = NO_WORKER_LIMIT,
) -> Backend:  # fmt: skip
    """The workers of a client where there is one, otherwise this process or others beside it."""
    if client is None:
        return Backend(local_executor, journal)
    from dsel.cluster.futures import dask_executor

    return Backend(dask_executor(client, no_worker_limit), journal, folder)

"""Dask settings for clusters that dsel starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask

#: Workers spill before the limit, and pause late.
WORKER = {
    "distributed.worker.memory.target": 0.7,
    "distributed.worker.memory.spill": 0.8,
    "distributed.worker.memory.pause": 0.9,
}
#: Scheduler and client.
SCHEDULER = {
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.admin.large-graph-warning-threshold": "100MB",
}
#: The nanny of a local worker starts it again when it dies. By default the cluster closes the nanny if that takes more
#: than 15 seconds. On a busy machine the cluster would then have one worker fewer.
LOCAL = {"distributed.deploy.lost-worker-timeout": "1 day"}


@contextmanager
def applied(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings in a context.

    distributed is imported before: an import in the context would lose the defaults of distributed at its end.
    """
    import distributed  # noqa: F401

    with dask.config.set(settings):
        yield


def worker_environment() -> dict[str, str]:
    """Return the workers' settings as environment variables, for workers that this process does not start."""
    return {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value) for name, value in WORKER.items()}

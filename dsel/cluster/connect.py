"""Workers for the passes over the data: those of the active client, or a LocalCluster sized to this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
import psutil
from dask.utils import format_bytes, parse_bytes

from dsel.errors import ClusterError, OptionError

log = logging.getLogger("dsel")


@dataclass(frozen=True)
class LocalSpec:
    """Processes on this machine: how many (default: one a core), and the memory limit of each (default: a share of 80 %
    of the memory there is, containers' limits included)."""

    workers: int | None = None
    memory: str | int | None = None


def active_client() -> Any | None:
    """The client that the caller has opened, if any."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory() -> int:
    """Bytes that workers may take together."""
    from distributed.system import MEMORY_LIMIT

    return int(0.8 * min(MEMORY_LIMIT or psutil.virtual_memory().total, psutil.virtual_memory().total))


def worker_memory(spec: LocalSpec) -> int:
    """Bytes for each worker."""
    if spec.memory is None:
        return usable_memory() // (spec.workers or usable_cores())
    try:
        return int(parse_bytes(spec.memory))
    except ValueError as error:
        raise OptionError(f"memory is {spec.memory!r}.", "Write it as 1GiB or 800MB.") from error


@contextmanager
def local_cluster(spec: LocalSpec) -> Iterator[Any]:
    """A client of a LocalCluster, closed (no process left behind) however the block ends.

    One thread a worker, BLAS too; the dashboard listens on loopback, where its packages are installed.
    """
    from distributed import Client, LocalCluster

    workers = spec.workers or usable_cores()
    memory = worker_memory(spec)
    settings = {
        "distributed.worker.memory.target": 0.7,
        "distributed.worker.memory.spill": 0.8,
        "distributed.worker.memory.pause": 0.9,
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.admin.large-graph-warning-threshold": "100MB",
        # A task's error comes back to the caller; the worker need not print it as well.
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
    }
    with dask.config.set(settings):
        try:
            cluster = LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=workers, threads_per_worker=1, memory_limit=memory, processes=True,
                dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR,
            )  # fmt: skip
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"Local workers did not start: {error}.") from error
        try:
            with Client(cluster, set_as_default=False) as client:  # type: ignore[no-untyped-call]
                log.info("%d local workers, %s each", workers, format_bytes(memory))
                yield client
        finally:
            cluster.close()

"""Worker processes on this machine: a LocalCluster sized to it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import dask
import psutil
from dask.utils import format_bytes, parse_bytes

from dsel.engine.clusters import dask_config as dask_settings
from dsel.errors import ClusterError, OptionError

log = logging.getLogger("dsel")


@dataclass(frozen=True)
class LocalSpec:
    """Processes on this machine: how many (default: one a core), the memory limit of each (default: a share of 80 % of
    the memory there is, containers' limits included), and threads of each."""

    workers: int | None = None
    memory: str | int | None = None
    threads: int = 1


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory() -> int:
    """Bytes that workers may take together."""
    return int(0.8 * _machine_memory())


def _machine_memory() -> int:
    from distributed.system import MEMORY_LIMIT

    return int(min(MEMORY_LIMIT or psutil.virtual_memory().total, psutil.virtual_memory().total))


def worker_count(spec: LocalSpec) -> int:
    """How many workers there will be."""
    return spec.workers or usable_cores()


def worker_memory(spec: LocalSpec) -> int:
    """Bytes for each worker."""
    if spec.memory is None:
        return usable_memory() // worker_count(spec)
    try:
        found = int(parse_bytes(spec.memory))
    except ValueError:
        found = 0
    if found <= 0:
        raise OptionError(f"memory is {spec.memory!r}.", "Write it as 1GiB or 800MB.")
    return found


@contextmanager
def local_cluster(spec: LocalSpec) -> Iterator[Any]:
    """A client of a LocalCluster, closed (no process left behind) however the block ends.

    BLAS has one thread; the dashboard listens on loopback, where its packages are installed. Errors: OptionError
    for workers that this machine cannot hold.
    """
    from distributed import Client, LocalCluster

    workers = worker_count(spec)
    memory = worker_memory(spec)
    if memory > _machine_memory():  # Dask would take less and say nothing, and the plan would be for more
        raise OptionError(
            f"A worker is to have {format_bytes(memory)}; this machine has {format_bytes(_machine_memory())}.",
            "Give each worker less memory.",
        )
    tls = dask_settings.security()
    settings = {
        **dask_settings.WORKER,
        **dask_settings.SCHEDULER,
        # A task's error comes back to the caller; the worker need not print it as well.
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
    }
    cluster: Any = None
    with dask.config.set(settings):
        try:
            try:
                with _without_sigint():
                    cluster = LocalCluster(  # type: ignore[no-untyped-call]
                        n_workers=workers, threads_per_worker=spec.threads, memory_limit=memory, processes=True,
                        dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR, security=tls,
                        protocol=None if tls is None else "tls://",
                    )  # fmt: skip
            except (OSError, TimeoutError, RuntimeError) as error:
                raise ClusterError(
                    f"Local workers did not start: {error}.",
                    'Ask for fewer. A script that starts workers needs `if __name__ == "__main__":` around its code.',
                ) from error
            with Client(cluster, set_as_default=False) as client:  # type: ignore[no-untyped-call]
                log.info("%d local workers, %s each", workers, format_bytes(memory))
                yield client
        finally:
            if cluster is not None:
                cluster.close()


@contextmanager
def _without_sigint() -> Iterator[None]:
    """Threads started in the block, and the processes that these start at any time, never receive SIGINT: a terminal
    sends Ctrl-C to all, and this process stops the others itself. Here it waits for the block's end."""
    ensure_running()  # started later, it would let SIGINT through to the first worker
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

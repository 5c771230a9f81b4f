"""Worker processes on this machine: a Dask LocalCluster."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import Any

from dsel._lib.blas import usable_cores
from dsel._lib.byte_sizes import format_bytes
from dsel._lib.disk import has_room, is_disk_full
from dsel._lib.text import counted
from dsel.config.cluster import LocalSection
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.cluster import Cluster, close
from dsel.engine.clusters.tls import SecurityOption, run_security
from dsel.engine.scheduler_watch import watched
from dsel.engine.this_machine import machine_memory, worker_memory
from dsel.errors import CapacityError, ClusterError, DselError, OptionError

log = logging.getLogger("dsel")

#: Threads of workers per core, at most: more is a slip of the keyboard, and would fill the machine with processes.
_MOST_PER_CORE = 16


class LocalWorkers(Cluster[LocalSection]):
    """Worker processes on this machine."""

    section_type = LocalSection
    shares_files = True
    own_hosts = False

    def open(self, name: str, logs: Path | None = None) -> AbstractContextManager[Any]:
        """Return a context manager that provides a client of new workers."""
        section = self.section
        return local_cluster(section.workers, section.memory, section.threads, section.security)

    def promised(self) -> tuple[int, int | None]:
        """Return the number of workers, and the memory of each."""
        return fitting_workers(self.section.workers, self.section.memory, self.section.threads)


def fitting_workers(workers: int | None, memory: str | int | None, threads: int) -> tuple[int, int]:
    """Return the number of workers, by default one per core, and the memory of each.

    Errors: OptionError for workers that this machine cannot hold.
    """
    cores, limit = usable_cores(), worker_memory(workers, memory)
    count = workers or cores
    if limit > machine_memory():  # Dask would silently use less than the plan assumes
        raise OptionError(
            f"A worker asks for {format_bytes(limit)}; this machine has {format_bytes(machine_memory())}.",
            "Give each worker less memory.",
        )
    if count * threads > _MOST_PER_CORE * cores:
        raise OptionError(
            f"{count} workers of {threads} threads are asked for, and this machine has {cores} cores.",
            f"Ask for at most {_MOST_PER_CORE} threads per core.",
        )
    return count, limit


@contextmanager
def local_cluster(
    workers: int | None = None, memory: str | int | None = None, threads: int = 1, security: SecurityOption = "tls"
) -> Iterator[Any]:
    """Provide a client of worker processes on this machine. No process is left at the end.

    Parameters
    ----------
    workers : int, optional
        Number of processes. Default: one per core.
    memory : str or int, optional
        Memory limit of each, such as "1GiB" or a number of bytes. Default: an equal share of 80 % of the memory.
    threads : int, default 1
        Threads of each worker.
    security : {"tls", "none"}
        Whether the processes use TLS. Dask's own TLS settings come first.

    Yields
    ------
    distributed.Client
        Connected to all workers.

    Raises
    ------
    OptionError
        If this machine has less memory than one worker needs.
    CapacityError
        If the workers do not start because the disk for temporary files is full.
    ClusterError
        If the workers do not start for another reason.

    Notes
    -----
    The dashboard listens on loopback, if its packages are installed.
    """
    from distributed import Client, LocalCluster

    count, limit = fitting_workers(workers, memory, threads)
    tls = run_security(security)
    settings = {
        **dask_settings.WORKER,
        **dask_settings.SCHEDULER,
        **dask_settings.LOCAL,
        # The caller receives a task's error; the worker need not print it, too.
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
    }
    cluster: Any = None
    with dask_settings.applied(settings):
        try:
            try:
                with _without_sigint():
                    cluster = LocalCluster(  # type: ignore[no-untyped-call]
                        n_workers=count, threads_per_worker=threads, memory_limit=limit, processes=True,
                        dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR, security=tls,
                        protocol=None if tls is None else "tls://",
                    )  # fmt: skip
                client = Client(cluster, set_as_default=False)  # type: ignore[no-untyped-call]
            except Exception as error:  # of many kinds, such as when a worker dies while it starts
                raise _not_started(error) from error
            with client:
                log.info("%s, %s each", counted(count, "local worker"), format_bytes(limit))
                with watched(client):
                    yield client
        finally:
            if cluster is not None:
                close(cluster)


def _not_started(error: Exception) -> DselError:
    """Return the error of workers that do not start. A worker does not always say that its disk is full."""
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:  # Python finds no folder that it can write to
        usual = os.environ.get("TMPDIR", os.sep)
    import dask

    places = sorted({usual, dask.config.get("temporary-directory", None) or usual})
    full = [place for place in places if not has_room(place)] or (places if is_disk_full(error) else [])
    if full:
        return CapacityError(
            f"Local workers did not start, because the disk of {' and '.join(full)} is full: {error}.",
            "Free some space there, or set TMPDIR to a folder with more; the same call continues.",
        )
    return ClusterError(
        f"Local workers did not start: {error}.",
        'Ask for fewer. A script that starts workers needs `if __name__ == "__main__":` around its code.',
    )


@contextmanager
def _without_sigint() -> Iterator[None]:
    """Block SIGINT for threads that start in this context, and for the processes that they start.

    A terminal sends Ctrl-C to all processes; this process stops the workers itself. Here SIGINT waits until the end.
    """
    ensure_running()  # started later, it would unblock SIGINT for the first worker
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Workers for the passes over the data: those of the active client, or those that a job's cluster section names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsel.config.cluster import (
    AddressSection,
    ClusterSection,
    GatewaySection,
    KubernetesSection,
    LocalSection,
    SchedulerFileSection,
    SlurmSection,
)  # fmt: skip
from dsel.engine.clusters.external import running_cluster, workers_of_running
from dsel.engine.clusters.gateway import gateway_cluster
from dsel.engine.clusters.kubernetes import kubernetes_cluster
from dsel.engine.clusters.local import LocalSpec, local_cluster, worker_count, worker_memory
from dsel.engine.clusters.slurm import slurm_cluster
from dsel.engine.dask import NO_WORKER_LIMIT
from dsel.errors import OptionError


def active_client() -> Any | None:
    """The client that the caller has opened, if any.

    None inside a task: it would wait for tasks that wait for its own place. Errors: OptionError where the client is
    asynchronous.
    """
    import sys

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
            "The active Dask client is asynchronous, and dsel waits for its results.",
            "Open it with asynchronous=False, or call dsel from a thread of its own: await asyncio.to_thread(...).",
        )
    return client


@contextmanager
def connect(cluster: ClusterSection, *, name: str, logs: Path | None = None) -> Iterator[Any]:
    """A client of the cluster that the section asks for, once its workers have come; closed however the block ends, and
    the cluster with it where it was made here.

    name: of what is made, as an operator sees it. logs: folder for the workers' own logs, where the site writes such.
    Errors: ClusterError, MissingExtraError.
    """
    section = cluster.chosen
    match section:
        case LocalSection():
            opened = local_cluster(_local(section))
        case AddressSection() | SchedulerFileSection():
            opened = running_cluster(section)
        case SlurmSection():
            opened = slurm_cluster(section, name, logs)
        case KubernetesSection():
            opened = kubernetes_cluster(section, name)
        case GatewaySection():
            opened = gateway_cluster(section)
    with opened as client:
        yield client


def _local(section: LocalSection) -> LocalSpec:
    return LocalSpec(section.workers, section.memory, section.threads)


def promised_memory(cluster: ClusterSection) -> int | None:
    """Bytes that each worker will have, or None where only the cluster itself can tell."""
    section = cluster.chosen
    return worker_memory(_local(section)) if isinstance(section, LocalSection) else section.worker_bytes


def workers_promised(cluster: ClusterSection) -> tuple[int, int | None]:
    """How many workers the job will wait for, and the memory of each, as far as the section tells."""
    section = cluster.chosen
    count = worker_count(_local(section)) if isinstance(section, LocalSection) else section.asked
    return count, promised_memory(cluster)


def workers_now(cluster: ClusterSection) -> tuple[int, int | None]:
    """The same, and of a scheduler that runs already what it has now, if it answers."""
    section = cluster.chosen
    found = workers_of_running(section) if isinstance(section, AddressSection | SchedulerFileSection) else None
    return found or workers_promised(cluster)


def patience(cluster: ClusterSection) -> float:
    """Seconds without any worker that a pass may last: a site that was slow to give them is slow to replace them."""
    section = cluster.chosen
    return NO_WORKER_LIMIT if isinstance(section, LocalSection) else max(NO_WORKER_LIMIT, section.wait_seconds)

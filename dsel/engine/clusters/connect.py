"""Which workers to use: those of the active Dask client, or those of a job's cluster section."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from dsel.config.cluster import ClusterSection
from dsel.engine.clusters.cluster import Cluster
from dsel.engine.clusters.external import AddressCluster, SchedulerFileCluster
from dsel.engine.clusters.gateway import GatewayCluster
from dsel.engine.clusters.kubernetes import KubernetesCluster
from dsel.engine.clusters.local import LocalWorkers
from dsel.engine.clusters.slurm import SlurmCluster
from dsel.engine.dask_engine import DaskEngine, Progress
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.engine.scheduler_watch import cluster_errors
from dsel.errors import OptionError

#: The kind of cluster for each type of section.
CLUSTERS: dict[type, type[Cluster[Any]]] = {
    kind.section_type: kind
    for kind in (LocalWorkers, AddressCluster, SchedulerFileCluster, SlurmCluster, KubernetesCluster, GatewayCluster)
}


def cluster_of(section: ClusterSection) -> Cluster[Any]:
    """Return the cluster that a job's section describes. Nothing starts."""
    return CLUSTERS[type(section.chosen)](section.chosen)


@contextmanager
def engine_of(client: Any | None, progress: Progress | None = None) -> Iterator[Engine]:
    """Provide the engine of a client, or that of this process if there is none. A lost scheduler is a ClusterError."""
    with nullcontext() if client is None else cluster_errors(client):
        yield THREADS if client is None else DaskEngine(client, progress)


def active_client() -> Any | None:
    """Return the Dask client that the caller has opened, or None.

    Inside a task there is none: its client would wait for tasks that wait for the task's own worker.

    Raises
    ------
    OptionError
        If the client is asynchronous.
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
            "The active Dask client is asynchronous, but dsel waits for its results.",
            "Open it with asynchronous=False, or call dsel from another thread: await asyncio.to_thread(...).",
        )
    return client

"""The engine of a job or a command: threads of this process, or the workers of a cluster section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dsel.config.cluster import ClusterSection
from dsel.engine.base import Engine
from dsel.engine.clusters.base import Cluster
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.dask_config import dask_logging
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.thread_engine import THREADS
from dsel.engine.workers_on_demand import WorkersOnDemand
from dsel.jobs.reporting import Reporter


@contextmanager
def engine_on(section: ClusterSection | None, reporter: Reporter, stage: str) -> Iterator[Engine]:
    """Start the workers of a section, show the progress of one stage on them, and yield their engine.

    Without a section the engine is that of this process. The workers end with the block.
    """
    with reporter.showing():
        if section is None:
            reporter.stage(stage)
            yield THREADS
            return
        cluster = cluster_of(section)
        with dask_logging(), cluster.open(f"dsel-{reporter.run}") as client:
            reporter.stage(stage)
            yield DaskEngine(client, reporter.tasks, cluster.no_worker_limit)


@contextmanager
def engine_of_job(
    cluster: Cluster[Any], reporter: Reporter, logs: Path | None, on_tasks: Callable[[int, int], None], *,
    on_demand: bool,
) -> Iterator[DaskEngine | WorkersOnDemand]:  # fmt: skip
    """Provide the engine of a job's cluster, whose workers end with the block.

    on_demand: start workers only when they are needed, if their memory is known before.
    """
    from dsel.engine.metrics import progress_metrics

    with ExitStack() as stack:

        def start() -> DaskEngine:
            client = stack.enter_context(cluster.open(f"dsel-{reporter.run}", logs))
            reporter.publish = stack.enter_context(progress_metrics(client, reporter.run))
            return DaskEngine(client, on_tasks, cluster.no_worker_limit)

        workers, memory = cluster.promised()
        if on_demand and cluster.starts_workers and memory is not None:
            yield WorkersOnDemand(start, workers, memory)
        else:
            yield start()

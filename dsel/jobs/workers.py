"""The engine of a command that is no job: threads of this process, or the workers of a cluster section."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dsel.config.cluster import ClusterSection
from dsel.engine.base import Engine
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.dask_logging import dask_logging
from dsel.engine.thread_engine import THREADS
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

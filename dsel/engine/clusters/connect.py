"""Which cluster the section of a job describes."""

from __future__ import annotations

from typing import Any

from dsel.config.cluster import ClusterSection
from dsel.engine.clusters.cluster import Cluster
from dsel.engine.clusters.external import AddressCluster, SchedulerFileCluster
from dsel.engine.clusters.gateway import GatewayCluster
from dsel.engine.clusters.kubernetes import KubernetesCluster
from dsel.engine.clusters.local import LocalWorkers
from dsel.engine.clusters.slurm import SlurmCluster

#: The kind of cluster for each type of section.
CLUSTERS: dict[type, type[Cluster[Any]]] = {
    kind.section_type: kind
    for kind in (LocalWorkers, AddressCluster, SchedulerFileCluster, SlurmCluster, KubernetesCluster, GatewayCluster)
}


def cluster_of(section: ClusterSection) -> Cluster[Any]:
    """Return the cluster that a job's section describes. Nothing starts."""
    return CLUSTERS[type(section.chosen)](section.chosen)

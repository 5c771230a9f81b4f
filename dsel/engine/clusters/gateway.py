"""A cluster of a Dask Gateway. The site defines its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsel.config.cluster import GatewaySection
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.cluster import RemoteCluster, check_same_software, import_extra, wait_for_workers
from dsel.engine.scheduler_watch import watched
from dsel.errors import ClusterError


class GatewayCluster(RemoteCluster[GatewaySection]):
    """A new cluster of a Dask Gateway. Dask's own configuration (gateway.auth) says who may create one."""

    section_type = GatewaySection
    shares_files = False
    own_hosts = True

    @contextmanager
    def open(self, name: str, logs: Path | None = None) -> Iterator[Any]:
        """Provide a client. The cluster is shut down at the end."""
        section = self.section
        gateway = import_extra("dask_gateway", "dask-gateway", "gateway")
        low, high = section.bounds
        with dask_settings.applied(dask_settings.SCHEDULER):
            try:
                cluster = gateway.GatewayCluster(address=section.address, shutdown_on_close=True, **section.options)
            except Exception as error:  # the gateway's own errors, HTTP's and those of the options it refuses
                raise ClusterError(
                    f"The gateway {section.address or 'of the configuration'} created no cluster: {error}.",
                    "Check its address, its options and Dask's gateway.auth settings.",
                ) from error
            with cluster:
                if low == high:
                    cluster.scale(high)
                else:
                    cluster.adapt(minimum=low, maximum=high)
                with cluster.get_client(set_as_default=False) as client, watched(client):
                    wait_for_workers(client, section.asked, section.wait_seconds, f"gateway cluster {cluster.name}")
                    check_same_software(client)
                    yield client

"""Workers as pods, through the dask-kubernetes operator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dsel._lib.byte_sizes import parse_bytes
from dsel.config.cluster import KubernetesSection
from dsel.config.types import parse_duration
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.cluster import RemoteCluster, check_same_software, import_extra, wait_for_workers
from dsel.engine.clusters.tls import site_security
from dsel.engine.scheduler_watch import watched
from dsel.errors import ClusterError, OptionError

#: Memory of a pod beyond the limit of its worker: for the nanny process.
NANNY_BYTES = 256 << 20

_LABEL = "app.kubernetes.io/name"
_PORTS = (("tcp-comm", 8786), ("http-dashboard", 8787))


class KubernetesCluster(RemoteCluster[KubernetesSection]):
    """A new DaskCluster with one pod per worker. The operator replaces lost pods."""

    section_type = KubernetesSection
    shares_files = False
    own_hosts = True

    @contextmanager
    def open(self, name: str, logs: Path | None = None) -> Iterator[Any]:
        """Provide a client. The DaskCluster is deleted at the end.

        Raises
        ------
        OptionError
            If Dask is configured for TLS: the operator does not use it.
        """
        operator = import_extra("dask_kubernetes.operator", "dask-kubernetes", "kubernetes")
        if site_security() is not None:
            raise OptionError(
                "The Dask operator does not start clusters with TLS.",
                "Start a cluster yourself and use cluster: address: tls://, or restrict access by a NetworkPolicy.",
            )
        from distributed import Client

        section = self.section
        low, high = section.bounds
        name = section.job_name or name
        with dask_settings.applied(dask_settings.SCHEDULER):
            try:
                cluster = operator.KubeCluster(
                    custom_cluster_spec=cluster_manifest(section, name), namespace=section.namespace, quiet=True,
                    resource_timeout=int(section.wait_seconds), shutdown_on_close=True,
                )  # fmt: skip
            except Exception as error:  # of the client library, of HTTP, and time-outs
                _give_up(operator.KubeCluster, name)
                raise ClusterError(
                    f"The DaskCluster {name} did not start: {type(error).__name__}: {error}.",
                    "Check that the operator runs, and what kubectl describe reports.",
                ) from error
            with cluster, Client(cluster, set_as_default=False) as client, watched(client):  # type: ignore[no-untyped-call]
                if low != high:
                    cluster.adapt(minimum=low, maximum=high)
                wait_for_workers(client, section.asked, section.wait_seconds, f"kubernetes, cluster {name}")
                check_same_software(client)
                yield client


def _give_up(kind: Any, name: str) -> None:
    """Remove a cluster that did not start. At its end the process would try to, and print a traceback."""
    for begun in [cluster for cluster in getattr(kind, "_instances", ()) if cluster.name == name]:
        with suppress(Exception):
            begun.close(timeout=10)
        begun.shutdown_on_close = False


def cluster_manifest(section: KubernetesSection, name: str) -> dict[str, Any]:
    """Return the manifest of the DaskCluster. No pod runs as root or can write to its image."""
    low, _ = section.bounds
    metadata: dict[str, Any] = {"name": name, "labels": {_LABEL: "dsel"}}
    if section.job_name is not None and section.job_uid is not None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": section.job_name, "uid": section.job_uid}
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": metadata,
        "spec": {
            "idleTimeout": math.ceil(parse_duration(section.idle_timeout)),
            "worker": {"replicas": low, "spec": _pod(section, _worker(section))},
            "scheduler": {"spec": _pod(section, _scheduler(section)), "service": _service(name)},
        },
    }


def _mebibytes(size: str | int) -> str:
    return f"{math.ceil(parse_bytes(size) / 2**20)}Mi"


def _worker(section: KubernetesSection) -> dict[str, Any]:
    arguments = ["--name", "$(DASK_WORKER_NAME)", "--nthreads", str(section.threads), "--no-dashboard"]
    memory = _mebibytes(section.worker_bytes + NANNY_BYTES)
    needs = {"cpu": str(section.threads), "memory": memory}
    return {
        "name": "worker",
        "args": ["dask", "worker", *arguments, "--memory-limit", f"{section.worker_bytes}B"],
        "resources": {
            "requests": {**needs, **section.resources.get("requests", {})},
            "limits": {**needs, **section.resources.get("limits", {})},
        },
    }


def _scheduler(section: KubernetesSection) -> dict[str, Any]:
    memory = _mebibytes(section.scheduler_memory)
    health = {"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 5}
    return {
        "name": "scheduler",
        "args": ["dask", "scheduler", "--host", "0.0.0.0"],
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in _PORTS],
        "readinessProbe": health,
        "livenessProbe": {**health, "initialDelaySeconds": 15, "periodSeconds": 20},
        "resources": {"requests": {"cpu": "500m", "memory": memory}, "limits": {"cpu": "2", "memory": memory}},
    }


def _service(name: str) -> dict[str, Any]:
    return {
        "type": "ClusterIP",
        "selector": {"dask.org/cluster-name": name, "dask.org/component": "scheduler"},
        "ports": [{"name": port, "protocol": "TCP", "port": number, "targetPort": port} for port, number in _PORTS],
    }


def _pod(section: KubernetesSection, container: dict[str, Any]) -> dict[str, Any]:
    variables = {**dask_settings.worker_environment(), **section.environment}
    mounts = [{"name": claim, "mountPath": path, "readOnly": True} for claim, path in section.claims.items()]
    container = {
        **container,
        "image": section.image,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in section.secrets],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
    }  # fmt: skip
    claims = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}} for claim in section.claims
    ]
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": _mebibytes(section.scratch)}}, *claims],
    }
    optional = {
        "serviceAccountName": section.service_account, "nodeSelector": section.node_selector,
        "tolerations": section.tolerations, "imagePullSecrets": [{"name": s} for s in section.image_pull_secrets],
    }  # fmt: skip
    return pod | {name: value for name, value in optional.items() if value}

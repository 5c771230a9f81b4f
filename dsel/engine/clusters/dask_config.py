"""Dask's settings that dsel relies on, for clusters that it starts itself; TLS where Dask is configured for it."""

from __future__ import annotations

from typing import Any

import dask

#: Of a worker: spill before the limit, and pause late.
WORKER = {
    "distributed.worker.memory.target": 0.7,
    "distributed.worker.memory.spill": 0.8,
    "distributed.worker.memory.pause": 0.9,
}
#: Of the scheduler and the client.
SCHEDULER = {
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.admin.large-graph-warning-threshold": "100MB",
}


def worker_environment() -> dict[str, str]:
    """The workers' settings as variables, for workers that do not start from this process."""
    return {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value) for name, value in WORKER.items()}


def security() -> Any | None:
    """TLS between client, scheduler and workers where Dask's configuration names a certificate authority
    (distributed.comm.tls.ca-file, or DASK_DISTRIBUTED__COMM__TLS__CA_FILE), and nothing where it does not."""
    if not dask.config.get("distributed.comm.tls.ca-file", None):
        return None
    from distributed import Security

    return Security(require_encryption=True)  # type: ignore[no-untyped-call]

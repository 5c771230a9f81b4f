"""A scheduler with workers in one process, which a test can kill or stop: a cluster that is lost as a whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SCRIPT = """
from distributed import LocalCluster
from time import sleep
with LocalCluster(n_workers={workers}, threads_per_worker=1, processes=False, protocol="tcp://",
                  dashboard_address=None) as cluster:
    print(cluster.scheduler_address, flush=True)
    sleep(3600)
"""


@contextmanager
def remote_cluster(workers: int = 1) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Provide the address of the scheduler, and the process."""
    script = _SCRIPT.format(workers=workers)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()

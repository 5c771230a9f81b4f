"""A scheduler with workers in another process, which a test can kill or stop: a cluster that is lost as a whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SCRIPT = """
from distributed import LocalCluster
from time import sleep
if __name__ == "__main__":
    with LocalCluster(n_workers={workers}, threads_per_worker=1, processes={processes}, protocol="tcp://",
                      dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sleep(3600)
"""


@contextmanager
def remote_cluster(workers: int = 1, processes: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Provide the address of the scheduler, and the process. processes: whether each worker has its own."""
    script = _SCRIPT.format(workers=workers, processes=processes)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()

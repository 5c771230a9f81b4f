"""Tasks of a search without a Dask cluster: in this process, or on local worker processes."""

from __future__ import annotations

from contextlib import ExitStack

from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_futures import DaskExecutor
from dsel.search.ask_tell import Executor, ExecutorOptions, SerialExecutor, Work


class LocalProcessExecutor(DaskExecutor):
    """Executor on worker processes of this machine, which start with it and end with `close`.

    Parameters
    ----------
    work : Work
        What to do with each task.
    options : ExecutorOptions
        Number of processes, and time limit per evaluation.

    Raises
    ------
    ClusterError
        If the processes do not start.
    """

    def __init__(self, work: Work, options: ExecutorOptions) -> None:
        with ExitStack() as stack:
            client = stack.enter_context(local_cluster(options.processes))
            super().__init__(client, work, options)
            self._cluster = stack.pop_all()

    def close(self) -> None:
        """Cancel all tasks and stop the processes."""
        with self._cluster:
            super().close()


def local_executor(work: Work, options: ExecutorOptions) -> Executor:
    """Return an executor on local processes if the options need them, else in this process."""
    if options.processes > 1 or options.evaluation_limit is not None:
        return LocalProcessExecutor(work, options)
    return SerialExecutor(work, options)

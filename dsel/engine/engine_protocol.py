"""The `Engine` protocol: where work runs. `ThreadEngine` runs it on threads of this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from dsel._lib.blas import one_blas_thread
from dsel.search.ask_tell import Executor, ExecutorOptions, SerialExecutor, Work


class Engine(Protocol):
    """Where work runs: threads of this process, or the workers of a Dask cluster.

    Passes over the data hand their Dask graphs to `run`. Searches on workers get an executor from `executor`.

    Notes
    -----
    `dsel.engine.engine_protocol.ThreadEngine` is this process, `dsel.engine.dask_engine.DaskEngine` a cluster, and
    `dsel.engine.dask_engine.WorkersOnDemand` a cluster that starts when it is needed. All give the same result to
    the last bit.
    """

    @property
    def workers(self) -> int:
        """Number of workers, at least 1."""

    @property
    def worker_memory(self) -> int | None:
        """Memory limit of each worker in bytes. None: no limit is known."""

    @property
    def in_process(self) -> bool:
        """Whether tasks run on threads of this process. Then `keep` keeps nothing."""

    @property
    def on_this_host(self) -> bool:
        """Whether all tasks run on this machine, so that they see its folders."""

    def run(self, graph: Any, *, before: int = 0, after: int = 0) -> Any:
        """Compute a Dask delayed object, or a list of them.

        Parameters
        ----------
        graph : Delayed or list of Delayed
            What to compute.
        before, after : int
            Tasks of the same pass that were computed before, and that come after, for the progress.

        Returns
        -------
        Any
            The value, or the list of values in the same order.

        Raises
        ------
        ClusterError
            If workers die repeatedly, are all paused for lack of memory, or are gone.
        CapacityError
            If a task runs out of memory.
        """

    def for_pass(self, bytes_read: int, flops: int, partial_bytes: int) -> Engine:
        """Return the engine that runs a pass of this size: this one, or threads of this process for a small pass.

        Parameters
        ----------
        bytes_read, flops, partial_bytes : int
            As in `PassCost`.
        """

    def keep(self, values: list[Any]) -> list[Any]:
        """Return delayed objects whose values the workers keep.

        Parameters
        ----------
        values : list of Delayed
            What to compute and keep. Consecutive values go to the same worker.

        Returns
        -------
        list of Delayed
            The values stay with the workers as long as these objects exist.
        """

    def share(self, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
        """Return a delayed object with this value, for many tasks. A large one is not sent with their graph.

        Parameters
        ----------
        value : Any
            What the tasks take.
        name : str
            A name that no other object has.
        kept : list
            It gets what must exist as long as the value is needed.
        of : int
            How many values of about this size one graph takes.
        """

    def require(self, function: Any) -> None:
        """Raise an error unless all workers can import what a function needs.

        Parameters
        ----------
        function : Any
            A user's function, which tasks will call.

        Raises
        ------
        CriterionError
            With the module that cannot be imported, and the worker.
        """

    def executor(self, work: Work, options: ExecutorOptions) -> Executor:
        """Return an executor that runs a search's tasks.

        Parameters
        ----------
        work : Work
            Function that a worker calls with each task. It must be picklable.
        options : ExecutorOptions
            Time limit per evaluation, and the number of local processes.

        Returns
        -------
        Executor
            Close it after the search.
        """


@dataclass(frozen=True)
class ThreadEngine:
    """Engine that runs passes on threads of this process.

    Searches on workers run in this process, too, or in local processes if they ask for some.

    Parameters
    ----------
    workers : int, default 1
        Number of workers to plan for.
    worker_memory : int, optional
        Memory limit per worker to plan for, in bytes. None: no limit.

    Examples
    --------
    >>> from dask import delayed
    >>> ThreadEngine().run([delayed(sum)([1, 2]), delayed(max)([3, 4])])
    [3, 4]
    """

    workers: int = 1
    worker_memory: int | None = None
    in_process = True
    on_this_host = True

    def run(self, graph: Any, *, before: int = 0, after: int = 0) -> Any:
        """Compute a delayed object or a list of them, with one BLAS thread per task.

        If a task fails, those that run at that moment end before this call: nothing writes files any more.
        """
        import dask
        from dask.system import CPU_COUNT

        wanted = graph if isinstance(graph, list) else [graph]
        threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            found = list(dask.compute(*wanted, scheduler="threads", pool=pool))  # type: ignore[attr-defined, no-untyped-call]
        return found if isinstance(graph, list) else found[0]

    def for_pass(self, bytes_read: int, flops: int, partial_bytes: int) -> ThreadEngine:
        """Return this engine."""
        return self

    def keep(self, values: list[Any]) -> list[Any]:
        """Return the values as they are: nothing is kept."""
        return values

    def share(self, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
        """Return a delayed object with the value itself."""
        from dask.delayed import delayed

        return delayed(value, name=name, traverse=False)

    def require(self, function: Any) -> None:
        """Return: this process has imported the function."""

    def executor(self, work: Work, options: ExecutorOptions) -> Executor:
        """Return an executor in this process, or on local processes if the options need them."""
        if options.processes <= 1 and options.evaluation_limit is None:
            return SerialExecutor(work, options)
        from dsel.engine.dask_futures import LocalProcessExecutor

        return LocalProcessExecutor(work, options)


#: The default engine.
THREADS = ThreadEngine()

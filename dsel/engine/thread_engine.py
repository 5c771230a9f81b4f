"""Work on threads of this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dsel._lib.blas import one_blas_thread
from dsel.search.ask_tell import Executor, ExecutorOptions, Work


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
    keeps_values = False
    in_process = True

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
        from dsel.engine.dask_futures import local_executor

        return local_executor(work, options)


#: The default engine.
THREADS = ThreadEngine()

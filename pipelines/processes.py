"""Run independent tasks on the cores of one machine, with one BLAS thread each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from threadpoolctl import threadpool_limits

Task = TypeVar("Task")
Result = TypeVar("Result")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def map_processes(work: Callable[[Task], Result], tasks: Iterable[Task], processes: int) -> list[Result]:
    """Return the results of the tasks in order. With `processes` = 1 they run in this process."""
    if processes == 1:
        with threadpool_limits(1):
            return [work(task) for task in tasks]
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, tasks))

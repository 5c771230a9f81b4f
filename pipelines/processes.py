"""Run independent tasks on the cores of one machine, with one BLAS thread each."""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from threadpoolctl import threadpool_limits

Task = TypeVar("Task")
Result = TypeVar("Result")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class OutOfTimeError(Exception):
    """Some tasks are left for the next call."""


def map_processes(
    work: Callable[[Task], Result], tasks: Iterable[Task], processes: int, until: float = math.inf,
    file: Path | None = None,
) -> list[Result]:  # fmt: skip
    """Return the results of the tasks in order. With `processes` = 1 they run in this process.

    until: of `time.monotonic`; later no task begins. file: where results are kept for the next call.

    Raises
    ------
    OutOfTimeError
        Some tasks did not begin in time.
    """
    wanted = {str(i) if file is None else f"{i} {task!r}": task for i, task in enumerate(tasks)}
    found: dict[str, Result] = {} if file is None else _kept(file)
    left = (name for name in wanted if name not in found and time.monotonic() < until)
    for name, result in _results(work, wanted, left, processes):
        found[name] = result
        if file is not None:
            with file.open("ab") as out:
                pickle.dump((name, result), out)
    if not wanted.keys() <= found.keys():
        raise OutOfTimeError
    return [found[name] for name in wanted]


def _results(
    work: Callable[[Task], Result], tasks: dict[str, Task], names: Iterator[str], processes: int
) -> Iterator[tuple[str, Result]]:  # fmt: skip
    """Yield the names of tasks with their results as soon as they are done; `processes` tasks run at a time."""
    if processes == 1:
        with threadpool_limits(1):
            yield from ((name, work(tasks[name])) for name in names)
        return
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Result], str] = {}
        while True:
            running |= {pool.submit(work, tasks[name]): name for name in islice(names, processes - len(running))}
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()


def _kept(file: Path) -> dict[str, Result]:
    """Return the results in a file that this program has written; the last one may be cut off."""
    found: dict[str, Result] = {}
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        with file.open("rb") as kept:
            while True:
                try:
                    name, result = pickle.load(kept)
                except (EOFError, pickle.UnpicklingError):
                    break
                found[name] = result
    return found

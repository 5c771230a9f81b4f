"""Packages on processes of this machine, without a cluster (concurrent.futures)."""

from __future__ import annotations

import os
import queue
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

import cloudpickle

from dsel.engine.executors.arrivals import arrivals
from dsel.errors import ClusterError
from dsel.search.parallel.executor import Answer, Carriage, Executor, Lost, Package, Serial, Work
from dsel.search.pareto.evaluation_memo import cannot_travel

#: So many pools may break one after another before a process has begun anything.
_MOST_STILLBORN = 3

# In each process of a pool: the work, and where it says what it has begun.
_work: Work | None = None
_log: Any = None


def _begin(pickled: bytes, log: Any) -> None:
    """Once in each process: take the work, and leave the terminal's Ctrl-C to the parent."""
    global _work, _log
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work, _log = cloudpickle.loads(pickled), log


def _do(package: Package) -> Answer:
    assert _work is not None
    _log.put((os.getpid(), package.key))
    return _work(package)


class ProcessPool:
    """One package a process at a time. A process that dies takes the pool with it: a new one is made, and what was out
    comes back as lost. So does a package that takes longer than `evaluation_limit` for each of its evaluations."""

    def __init__(self, work: Work, carriage: Carriage) -> None:
        try:
            self._pickled = cloudpickle.dumps(work)
        except Exception as error:
            raise cannot_travel(error) from error
        self.workers = self.spread = carriage.processes
        self._limit = carriage.evaluation_limit
        self._out: dict[Future[Answer], Package] = {}
        self._came: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()
        self._hung: set[str] = set()
        self._stillborn = 0
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would inherit locks that other threads hold
        self._begun: dict[str, float] = {}
        self._pids: dict[str, int] = {}
        self._log: Any = context.SimpleQueue()
        self._pool = ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_begin, initargs=(self._pickled, self._log)
        )

    @property
    def room(self) -> int:
        """One a process: pipes are quick."""
        return self.workers - len(self._out)

    def send(self, package: Package) -> None:
        try:
            future = self._pool.submit(_do, package)
        except BrokenProcessPool:
            self._require_beginnings()
            self._start()
            future = self._pool.submit(_do, package)
        self._out[future] = package
        future.add_done_callback(self._came.put)

    def _require_beginnings(self) -> None:
        self._read_log()
        self._stillborn = 0 if self._begun else self._stillborn + 1
        if self._stillborn >= _MOST_STILLBORN:
            raise ClusterError(
                f"{self._stillborn} times the processes died before they began.",
                'A script that asks for processes needs `if __name__ == "__main__":` around what it does.',
            )

    def back(self, seconds: float) -> list[tuple[Package, Answer | Lost]]:
        came = arrivals(self._came, seconds)
        self._stop_what_hangs()
        return [(package, self._outcome(future, package)) for future in came if (package := self._out.pop(future))]

    def _outcome(self, future: Future[Answer], package: Package) -> Answer | Lost:
        error = future.exception()
        if error is None:
            return future.result()
        if not isinstance(error, BrokenProcessPool):
            raise error
        if package.key in self._hung:
            return Lost(f"an evaluation took longer than {self._limit:g} s", suspect=True)
        self._read_log()
        return Lost("a process died", suspect=not self._hung and package.key in self._begun)

    def _read_log(self) -> None:
        while not self._log.empty():
            pid, key = self._log.get()
            self._pids[key] = pid
            self._begun[key] = time.monotonic()

    def _stop_what_hangs(self) -> None:
        """Kill the process where an evaluation takes too long: the pool then breaks, and a new one is made."""
        self._read_log()
        if self._limit is None:
            return
        now = time.monotonic()
        for future, package in self._out.items():
            begun = self._begun.get(package.key, now)
            if not future.done() and package.key not in self._hung and now - begun > self._limit * package.units:
                self._hung.add(package.key)
                self._kill(package.key)

    def _kill(self, key: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pids[key], signal.SIGKILL)

    def close(self) -> None:
        """Processes end, at once where they still work."""
        self._read_log()
        for future, package in self._out.items():
            if not future.done() and package.key in self._pids:
                self._kill(package.key)
        self._pool.shutdown(wait=True, cancel_futures=True)


def local_executor(work: Work, carriage: Carriage) -> Executor:
    """In this process; in others where several are asked for, or where evaluations may have to be stopped."""
    if carriage.processes > 1 or carriage.evaluation_limit is not None:
        return ProcessPool(work, carriage)
    return Serial(work, carriage)

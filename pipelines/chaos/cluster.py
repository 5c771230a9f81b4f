"""A scheduler and its workers, as forked processes that can be killed one by one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

from pipelines.chaos.forks import Child, fork

WORKERS = 2


class Cluster:
    """A scheduler and its workers.

    Parameters
    ----------
    folder : Path
        For the scheduler's address and the logs.
    count : int
        The number of workers.
    """

    def __init__(self, folder: Path, count: int = WORKERS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._count = folder, count
        self._log = folder / "cluster.log"
        self._scheduler: Child | None = None
        self._workers: list[Child] = []
        self._hung: list[Child] = []

    @property
    def file(self) -> Path:
        """The scheduler file."""
        return self._folder / "scheduler.json"

    @property
    def scheduler(self) -> Child:
        """The scheduler's process."""
        assert self._scheduler is not None
        return self._scheduler

    @property
    def workers(self) -> list[Child]:
        """The processes of the workers that live."""
        return [worker for worker in self._workers if worker.poll() is None]

    def heal(self) -> None:
        """Start what does not run, also what failed while it started. Workers of a lost scheduler are replaced."""
        if self._scheduler is None or self._scheduler.poll() is not None:
            self._end_members()
            self.file.unlink(missing_ok=True)
            self._scheduler = self._fork(partial(_run_scheduler, str(self.file)))
        self._workers = self.workers
        while len(self._workers) < self._count:
            self._workers.append(self._fork(partial(_run_worker, str(self.file))))

    def hang(self) -> None:
        """Suspend the scheduler: it keeps its connections and answers nothing. `heal` starts another one."""
        self.scheduler.send(signal.SIGSTOP)
        self._hung.append(self.scheduler)
        self._scheduler = None

    def end(self) -> None:
        """Kill all of it."""
        self._end_members()
        while self._hung:
            self._hung.pop().end()

    def _end_members(self) -> None:
        for child in (*self._workers, *([] if self._scheduler is None else [self._scheduler])):
            child.end()
        self._scheduler, self._workers = None, []

    def _fork(self, target: partial[None]) -> Child:
        return fork(target, self._log, {"TMPDIR": str(self._folder / "worker-tmp")}, folder=self._folder)


def _run_scheduler(file: str) -> None:
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address=None) as scheduler:
            with open(f"{file}.new", "w") as out:
                json.dump({"address": scheduler.address}, out)
            os.replace(f"{file}.new", file)
            await scheduler.finished()

    asyncio.run(serve())


def _run_worker(file: str) -> None:
    from distributed import Worker

    async def serve() -> None:
        for _ in range(2000):
            if os.path.exists(file):
                break
            await asyncio.sleep(0.01)
        with open(file) as found:
            address = json.load(found)["address"]
        async with Worker(address, nthreads=1, memory_limit="1GiB", host="127.0.0.1") as worker:
            await worker.finished()

    os.makedirs(os.environ["TMPDIR"], exist_ok=True)
    asyncio.run(serve())

"""Notice within seconds that a scheduler is lost, and log the workers that come and go.

A lost scheduler shows in many ways: futures are cancelled, connections close, information is missing, or a call never
returns. So one coroutine per client watches the connection. It closes the client when the scheduler is gone, which ends
all calls that wait. Any error of a client without a scheduler becomes one ClusterError.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import psutil

from dsel._lib.byte_sizes import format_bytes
from dsel.errors import ClusterError, DselError

log = logging.getLogger("dsel")

#: Seconds with all workers paused for lack of memory after which work fails.
PAUSED_LIMIT = 20.0
#: Seconds without any worker after which work fails.
NO_WORKER_LIMIT = 120.0

#: Seconds in which a client may connect again, and after which a scheduler that does not answer is lost.
RECONNECT_SECONDS, SILENCE_SECONDS = 10.0, 20.0
#: Seconds between two looks at the connection, and at the workers.
_LOOK_SECONDS, _WORKERS_SECONDS = 0.5, 2.0
#: An error of the connection may come before the client knows that its scheduler is lost.
_NOTICE_SECONDS = 2.0

#: The largest number of workers that a line names.
_MOST_NAMES = 5
#: CommClosedError is an OSError.
_CONNECTION_ERRORS = (OSError, TimeoutError, CancelledError, asyncio.CancelledError)

_watches: WeakKeyDictionary[Any, SchedulerWatch] = WeakKeyDictionary()


def scheduler_lost() -> ClusterError:
    """Return the error of a run whose scheduler is lost."""
    return ClusterError("The scheduler was lost.", "Start the job again: it continues where it stopped.")


@contextmanager
def cluster_errors(client: Any) -> Iterator[None]:
    """Turn every error that a lost scheduler causes in the block into a ClusterError."""
    try:
        yield
    except DselError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if _is_lost(client, error):
            raise scheduler_lost() from error
        raise


@contextmanager
def watched(client: Any) -> Iterator[None]:
    """Watch the scheduler and the workers of a client during the block; errors as for `cluster_errors`."""
    watch = SchedulerWatch(client)
    _watches[client] = watch
    client.loop.add_callback(watch.start)
    try:
        with cluster_errors(client):
            yield
    finally:
        watch.stop()


def on_scheduler_lost(client: Any, notify: Callable[[ClusterError], None]) -> None:
    """Have `notify` called with the error, from another thread, if the scheduler of a watched client is lost."""
    if (watch := _watches.get(client)) is not None:
        watch.notify = notify


def _is_lost(client: Any, error: BaseException) -> bool:
    """Return whether the client has no scheduler any more; wait a moment if the error may be the first sign of that."""
    from distributed.client import ClosedClientError

    from_connection = isinstance(error, (*_CONNECTION_ERRORS, ClosedClientError))
    deadline = time.monotonic() + (_NOTICE_SECONDS if from_connection else 0.0)
    while client.status == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(client.status != "running")


class SchedulerWatch:
    """Watch one client from its own event loop.

    Parameters
    ----------
    client : distributed.Client
        The client.

    Attributes
    ----------
    notify : callable, optional
        Called with a ClusterError when the scheduler is lost.
    """

    def __init__(self, client: Any) -> None:
        self.notify: Callable[[ClusterError], None] | None = None
        self._client = client
        self._stopped = False
        self._is_here = _is_here(client)
        self._silent = 0.0
        self._asked = 0.0
        self._reply: asyncio.Future[Any] | None = None
        self._workers: dict[str, str] | None = None

    def stop(self) -> None:
        """Stop watching. Workers that leave later are not logged."""
        self._stopped = True

    async def start(self) -> None:
        """Watch until `stop` is called, or until the scheduler is lost."""
        disconnected = 0.0
        while not self._stopped:
            before = time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
            # A process that was suspended must not take its own silence for the scheduler's.
            passed = min(time.monotonic() - before, 2 * _LOOK_SECONDS)
            if self._client.status == "running":
                disconnected = 0.0
                self._look_at_workers(passed)
            else:
                disconnected += passed
            closed = self._client.status in ("closing", "closed")
            if not self._stopped and (closed or disconnected > RECONNECT_SECONDS or self._silent > SILENCE_SECONDS):
                await self._give_up()
                return
        if self._reply is not None:
            self._reply.cancel()

    def _look_at_workers(self, passed: float) -> None:
        """Ask the scheduler for its workers from time to time, and measure how long it is silent."""
        if self._reply is None:
            if time.monotonic() - self._asked >= _WORKERS_SECONDS:
                self._asked = time.monotonic()
                self._reply = asyncio.ensure_future(self._client.scheduler.identity(n_workers=-1))
                self._reply.add_done_callback(_retrieve)
            return
        if not self._reply.done():
            self._silent += 0.0 if self._is_here else passed
            return
        reply, self._reply = self._reply, None
        if reply.cancelled() or reply.exception() is not None:
            return
        self._silent = 0.0
        self._compare({address: str(worker["name"]) for address, worker in reply.result()["workers"].items()})

    def _compare(self, now: dict[str, str]) -> None:
        """Log which workers are lost, and which have joined, since the last look."""
        before, self._workers = self._workers, now
        if before is None or self._stopped:
            return
        lost, joined = before.keys() - now.keys(), now.keys() - before.keys()
        if lost:
            log.warning(
                "%s lost: %d of %d are left", _called(before, lost, "is", "are"), len(before) - len(lost), len(before)
            )
        if joined:
            log.info("%s joined: there are %d now", _called(now, joined, "has", "have"), len(now))

    async def _give_up(self) -> None:
        if self._silent > SILENCE_SECONDS:
            log.warning("the scheduler has not answered for %.0f s", self._silent)
        if self.notify is not None:
            self.notify(scheduler_lost())
        with suppress(Exception):
            for state in list(self._client.futures.values()):
                state.cancel(reason="scheduler-connection-lost", msg="The scheduler was lost.")
            self._client.futures.clear()
            await self._client._close(fast=True)


def _is_here(client: Any) -> bool:
    """Return whether the scheduler runs in this process. Then it is silent only while this process is."""
    from distributed import Scheduler

    return isinstance(getattr(client.cluster, "scheduler", None), Scheduler)


def _retrieve(reply: asyncio.Future[Any]) -> None:
    """Take the error of a request that nobody waits for any more, so that asyncio does not report it."""
    if not reply.cancelled():
        reply.exception()


def _called(names: dict[str, str], addresses: set[str], one: str, several: str) -> str:
    """Return how workers are called in the log: their names, with an address if that is something else, and a verb."""
    called = [names[a] if names[a] == a else f"{names[a]} ({a})" for a in sorted(addresses)]
    if len(called) == 1:
        return f"worker {called[0]} {one}"
    more = f" and {len(called) - _MOST_NAMES} more" if len(called) > _MOST_NAMES else ""
    return f"{len(called)} workers ({', '.join(called[:_MOST_NAMES])}{more}) {several}"


def workers_of(client: Any) -> tuple[int, int | None]:
    """Return the number of workers and the smallest memory limit among them (None: no limit)."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] for w in workers if w["memory_limit"]]
    return max(1, len(workers)), min(limits, default=None)


def run_here(client: Any) -> bool:
    """Return whether all workers have addresses of this machine."""
    here = {address.address for found in psutil.net_if_addrs().values() for address in found}
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return all(worker["host"] in here for worker in workers)


def check_workers(client: Any, stalled_since: float | None, no_worker_limit: float) -> float | None:
    """Return since when no worker can work (None: one can), and raise ClusterError after too long a time."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    working = [w for w in workers.values() if w.get("status") != "paused"]
    if working:
        return None
    now = time.monotonic()
    since = stalled_since or now
    if workers and now - since > PAUSED_LIMIT:
        used = ", ".join(
            f"{format_bytes(w['metrics']['memory'])} of {format_bytes(w['memory_limit'])}" for w in workers.values()
        )
        raise ClusterError(
            f"All {len(workers)} workers have been paused for {PAUSED_LIMIT:.0f} s for lack of memory ({used}).",
            "Allow them more memory, or store the data in smaller chunks.",
        )
    if not workers and now - since > no_worker_limit:
        raise ClusterError(f"There has been no worker for {no_worker_limit:.0f} s.", "See the cluster's own logs.")
    return since

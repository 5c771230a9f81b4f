"""Running a Dask graph to its one result, with progress, retries, and an eye on the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from dask.utils import format_bytes

from dsel.errors import CapacityError, ClusterError, DselError

log = logging.getLogger("dsel")

#: A failed task (a lost worker, a read that failed for a moment) is tried again so often.
RETRIES = 2
#: With every worker out of memory nothing moves: after so many seconds that is an error, not a wait.
PAUSED_LIMIT = 20.0
#: Without any worker, likewise.
NO_WORKER_LIMIT = 120.0

#: Between two looks at the workers.
_LOOK_SECONDS = 0.5

Progress = Callable[[int, int], None]  # tasks done, tasks in all


def make_compute(
    client: Any, progress: Progress | None = None, no_worker_limit: float = NO_WORKER_LIMIT
) -> Callable[[Any], Any]:
    """A function that computes a Dask delayed object on `client`, or a list of them to the list of their values, each
    brought here as soon as its turn comes and let go of on the workers.

    Errors raised by tasks arrive as they are (those of dsel are not retried: the data do not change). CapacityError
    where a task could not have the memory it asked for. ClusterError when workers die under a task again and again, are
    all paused for want of memory, or are gone.
    """

    def compute(lazy: Any) -> Any:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        wanted = lazy if isinstance(lazy, list) else [lazy]
        keys = list({str(key) for one in wanted for key in one.__dask_graph__()})
        futures = client.compute(wanted, retries=0)
        try:
            found = [_wait(client, keys, future, progress, no_worker_limit) for future in _let_go_of(futures)]
        except KilledWorker as error:
            raise ClusterError(
                f"Workers died again and again while computing: {error}.",
                "Most often they ran out of memory: allow them more, or use smaller chunks.",
            ) from error
        except MemoryError as error:
            raise CapacityError(
                f"A task ran out of memory: {error or 'no more could be had'}.",
                "Allow each worker more memory, start fewer workers, or store the data in smaller chunks.",
            ) from error
        except FutureCancelledError as error:
            raise ClusterError("The scheduler was lost.", "Start the job again: it goes on where it was.") from error
        finally:
            for future in futures:
                future.release()
        if progress is not None:
            progress(len(keys), len(keys))
        return found if isinstance(lazy, list) else found[0]

    return compute


def _let_go_of(futures: list[Any]) -> Iterator[Any]:
    """Each in turn, released when the next one is asked for."""
    for future in futures:
        yield future
        future.release()


def make_persist(client: Any) -> Callable[[list[Any]], list[Any]]:
    """A function that has Dask delayed objects computed on `client`, consecutive ones on one worker, and kept there as
    long as what it returns is. What is lost with a worker is computed again."""

    def persist(lazy: list[Any]) -> list[Any]:
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if not addresses:  # lost for the moment: whoever comes next
            return list(client.persist(lazy))
        share = -(-len(lazy) // max(len(addresses), 1))
        kept: list[Any] = []
        for i, address in enumerate(addresses):
            part = lazy[i * share : (i + 1) * share]
            kept += client.persist(part, workers=[address], allow_other_workers=True) if part else []
        return kept

    return persist


def workers_of(client: Any) -> tuple[int, int | None]:
    """How many workers there are, and the least memory limit among them (None: no limit)."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] for w in workers if w["memory_limit"]]
    return max(1, len(workers)), min(limits, default=None)


def _wait(client: Any, keys: list[str], future: Any, progress: Progress | None, no_worker_limit: float) -> Any:
    attempts = 0
    stalled_since: float | None = None
    while True:
        if _finished(future):
            if future.status != "error":
                return future.result()
            error = future.exception()
            attempts += 1
            if isinstance(error, DselError) or attempts > RETRIES or type(error).__name__ == "KilledWorker":
                raise error
            log.warning("a task failed (%s), trying again: %d of %d", error, attempts, RETRIES)
            future.retry()
        stalled_since = check_workers(client, stalled_since, no_worker_limit)
        if progress is not None:
            progress(_done(client, keys), len(keys))


def _finished(future: Any) -> bool:
    """Wait a little; whether it has ended, well or not."""
    from distributed import TimeoutError as WaitTimeout

    try:
        future.exception(timeout=_LOOK_SECONDS)
    except (WaitTimeout, TimeoutError):
        return bool(future.done())
    return True


def _done(client: Any, keys: list[str]) -> int:
    """Tasks of the graph that are finished, by the scheduler's account."""
    return int(client.run_on_scheduler(_count_finished, keys=keys))


def _count_finished(keys: list[str], dask_scheduler: Any = None) -> int:
    states = (dask_scheduler.tasks.get(key) for key in keys)
    return sum(1 for task in states if task is None or task.state in ("memory", "released", "forgotten"))


def check_workers(client: Any, stalled_since: float | None, no_worker_limit: float) -> float | None:
    """Since when no worker works; raises once that is too long."""
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
            f"All {len(workers)} workers have been paused for {PAUSED_LIMIT:.0f} s for want of memory ({used}).",
            "Allow them more memory, or store the data in smaller chunks.",
        )
    if not workers and now - since > no_worker_limit:
        raise ClusterError(f"There has been no worker for {no_worker_limit:.0f} s.", "See the cluster's own logs.")
    return since


def peak_memory(client: Any) -> dict[str, tuple[int, int]]:
    """Of each worker: the most memory it has held resident so far, and its limit, in bytes."""
    limits = {a: w["memory_limit"] for a, w in client.scheduler_info(n_workers=-1)["workers"].items()}
    return {
        address: (peak, limits.get(address, 0))
        for address, peak in client.run(_peak_resident, on_error="ignore").items()
    }


def _peak_resident() -> int:
    # Not getrusage: a child starts with its parent's peak there.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import psutil

        return int(psutil.Process().memory_info().rss)

"""Trees of proofs on the workers of a Dask cluster.

A task explores a few open nodes of least bound for a fraction of a second, given the best value so far. It returns what
it found and which nodes it left open. The client holds the open nodes and the incumbent. Nothing is lost with a worker:
its nodes stay open until their task is done, and another worker gets them. The proof can be saved at any moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsel.engine.parcel import Parcel, Shipment
from dsel.errors import ClusterError
from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.exact.tree import BestFirstTree, Explored, SubtreeWork

log = logging.getLogger("dsel")

#: A task takes FIRST_SECONDS at first, so that workers share the incumbent often, and MAX_SECONDS at most, so that a
#: lost task costs little. In between it takes a share of the time so far, so that the last tasks end almost together.
FIRST_SECONDS, MAX_SECONDS, SHARE_OF_TIME = 0.3, 3.0, 0.01
#: Tasks per worker at a time, so that no worker waits for the client.
_TASKS_PER_WORKER = 2
#: Seconds between two polls.
_POLL_SECONDS = 0.2
#: After this many failures in a row, the subtrees are assumed to break the workers.
_MAX_FAILURES = 5
#: Seconds without any worker after which the proof fails.
_NO_WORKER_SECONDS = 60

_explorers: dict[str, Any] = {}


def explore_task(
    parcel: Parcel, name: str, nodes: Sequence[Any], incumbent: float, budget: int
) -> tuple[Explored, float]:  # fmt: skip
    """Explore nodes on a worker, and return the result and the seconds it took.

    The explorer of the proof `name` keeps its arrays for the next task.
    """
    work: SubtreeWork = parcel.open()
    explorer = _explorers.pop(name, None)  # removed meanwhile: another thread makes its own
    if explorer is None:
        _explorers.clear()
        explorer = work.explorer()
    start = time.perf_counter()
    explored = work.explore(explorer, nodes, incumbent, budget)
    _explorers[name] = explorer
    return explored, time.perf_counter() - start


@dataclass
class SubtreeEstimate:
    """Estimates the nodes in a subtree from the results so far.

    ratio: visited nodes over the size of the subtree, as the tree states it. speed: nodes per second. least: the fewest
    nodes of a task. seconds: total time of all tasks.
    """

    ratio: float = 1.0
    speed: float = 10_000.0
    least: int = 100
    seconds: float = 0.0

    def learn(self, size: float, explored: Explored, seconds: float) -> None:
        """Update the estimate with the result of a task."""
        self.seconds += seconds
        if explored.nodes and seconds > 0.0:
            self.speed = 0.7 * self.speed + 0.3 * explored.nodes / seconds
            if not explored.left:
                self.ratio = 0.7 * self.ratio + 0.3 * explored.nodes / max(size, 1.0)

    def budget(self, workers: int) -> int:
        """Return the number of nodes for one task."""
        seconds = min(max(FIRST_SECONDS, SHARE_OF_TIME * self.seconds / workers), MAX_SECONDS)
        return max(int(seconds * self.speed), self.least)


@dataclass(frozen=True)
class _Lease:
    """The nodes of one task."""

    lease_id: int
    nodes: list[Any]


@dataclass
class DaskProofRunner:
    """Runs a tree on the workers of a Dask client; a `Runner` for `dsel.search.exact.proof.Proof`.

    tasks, lost: number of tasks sent and lost so far.
    """

    client: Any
    tasks: int = 0
    lost: int = 0
    _estimate: SubtreeEstimate = field(default_factory=SubtreeEstimate)

    def __call__(
        self, search: BestFirstTree[Any], stop: Stop, on_slice: Callable[[AnytimeSearch], None] | None = None
    ) -> str:  # fmt: skip
        """Run until the proof is done or `stop` (`iterations`: nodes, `seconds`) is met, and return which.

        Raises ClusterError if workers fail repeatedly on the same subtrees, or if there are none.
        """
        assert stop.iterations is not None
        start = time.monotonic()
        waiting: dict[Any, _Lease] = {}
        sent: Shipment | None = None
        failures = 0
        try:
            while not search.done:
                if search.iteration >= stop.iterations:
                    return "iterations"
                if stop.seconds is not None and time.monotonic() - start >= stop.seconds:
                    return "seconds"
                if search.memory_full:
                    return "memory"
                workers = self._workers()
                if not search.advance_alone(workers, stop.iterations):
                    if sent is None or sent.value is not search.work():
                        sent = Shipment(self.client, search.work())
                        self._estimate = SubtreeEstimate(speed=search.nodes_per_second, least=search.least_nodes)
                    self._submit(search, sent, waiting, _TASKS_PER_WORKER * workers)
                    failures = self._collect(search, sent, waiting, failures)
                if on_slice is not None:
                    on_slice(search)
            return "proven" if search.proven else "contradiction"
        finally:
            for future, lease in waiting.items():
                future.cancel()
                search.requeue(lease.lease_id)

    def _workers(self) -> int:
        workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
        if workers:
            return workers
        try:
            self.client.wait_for_workers(1, timeout=_NO_WORKER_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"There has been no worker for {_NO_WORKER_SECONDS} s.", "See the cluster's own logs."
            ) from error
        return 1

    def _submit(self, search: BestFirstTree[Any], sent: Shipment, waiting: dict[Any, _Lease], most: int) -> None:
        """Send tasks until `most` are waiting."""
        estimate = self._estimate
        budget = estimate.budget(max(most // _TASKS_PER_WORKER, 1))
        if search.open_nodes < most:  # near the end: smaller tasks split what is left
            budget = max(budget // 4, 1)
        while len(waiting) < most and search.open_nodes:
            share = max(search.open_nodes // most, 1)  # leaves nodes for the other tasks
            lease = _Lease(*search.checkout(share, budget / estimate.ratio, search.subtree_size))
            if not lease.nodes:
                return
            future = self.client.submit(
                explore_task, sent.future, sent.name, lease.nodes, search.best_value, budget, pure=False
            )  # fmt: skip
            waiting[future] = lease
            self.tasks += 1

    def _collect(self, search: BestFirstTree[Any], sent: Shipment, waiting: dict[Any, _Lease], failures: int) -> int:
        """Merge the results of finished tasks, and return how many tasks in a row have failed."""
        for future in self._finished(waiting):
            lease = waiting.pop(future)
            if future.status == "finished":
                explored, seconds = future.result()
                search.complete(lease.lease_id, explored)
                size = sum(search.subtree_size(node) for node in lease.nodes)
                self._estimate.learn(size, explored, seconds)
                failures = 0
                continue
            search.requeue(lease.lease_id)
            sent.require_readable(future.exception() if future.status == "error" else None)
            failures += 1
            self.lost += 1
            if failures > _MAX_FAILURES:
                raise ClusterError(
                    f"{failures} tasks of the proof failed in a row: {_reason(future)}.",
                    "See the workers' logs. The proof continues from its last state when it is started again.",
                )
            log.warning("a task of the proof was lost (%s) and is repeated", _reason(future))
        return failures

    def _finished(self, waiting: dict[Any, _Lease]) -> list[Any]:
        """Wait a moment for a task to finish, and return those that have."""
        from distributed import TimeoutError as WaitTimeout
        from distributed import wait

        if not waiting:
            return []
        try:
            with self.client.as_current():
                done = wait(list(waiting), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED").done  # type: ignore[no-untyped-call]
        except (WaitTimeout, TimeoutError):
            return []
        return list(done)


def _reason(future: Any) -> str:
    return str(future.exception()) if future.status == "error" else str(future.status)

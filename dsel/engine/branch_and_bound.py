"""Branch and bound on workers: a future explores a few subtrees, the client keeps the open nodes and the incumbent.

A future gets open nodes of least bound, as many as are estimated to take a fraction of a second, and the best value
so far; it returns what it found and what it left open. Nothing else is shared, and nothing is lost with a worker: its
nodes are open until their future is done, and are given to another one. So the proof can be saved at any moment, too.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsel.errors import ClusterError
from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.exact.bounds import BoundName, BoundProblem
from dsel.search.exact.branch_and_bound import BranchAndBound, Explored, Explorer, Subproblem, explore_all

log = logging.getLogger("dsel")

#: A future is to take about so long: in the beginning, so that the incumbent is shared often, and at most, so that a
#: lost one costs little; in between a share of the time so far, so that the last ones end nearly together.
FIRST_SECONDS, MOST_SECONDS, SHARE_OF_TIME = 0.3, 3.0, 0.01
#: Futures for each worker at a time, so that none waits for the client.
_AHEAD = 2
#: Between two looks at what has come back.
_LOOK_SECONDS = 0.2
#: Nodes looked at here, one by one, before there is enough to hand out; and open nodes for each worker that are enough.
_FIRST_NODES, _FIRST_OPEN = 2000, 20
#: A subtree whose future failed so often is taken to be what breaks the workers.
_MOST_FAILURES = 5

_explorers: dict[str, Explorer] = {}


def explore_task(
    problem: BoundProblem, name: str, k: int, bound: BoundName, pairs: bool, subs: Sequence[Subproblem],
    incumbent: float, budget: int,
) -> tuple[Explored, float]:  # fmt: skip
    """On a worker: explore, with arrays that stay there for the next future; and the seconds it took."""
    explorer = _explorers.pop(name, None)  # taken out: another thread makes its own
    if explorer is None:
        _explorers.clear()
        explorer = Explorer(problem, k, bound, pairs=pairs)
    start = time.perf_counter()
    explored = explore_all(explorer, subs, incumbent, budget)
    _explorers[name] = explorer
    return explored, time.perf_counter() - start


def _itself(problem: BoundProblem) -> BoundProblem:
    return problem


@dataclass
class Estimate:
    """Nodes in a subtree, and nodes a second, from what has come back so far; seconds: that all futures took."""

    ratio: float = 1.0
    speed: float = 10_000.0
    seconds: float = 0.0

    @staticmethod
    def size(sub: Subproblem, k: int) -> float:
        """Pairs nodes below it, were nothing pruned."""
        return float(math.comb(len(sub.allowed), max(k - len(sub.chosen) - 2, 0)))

    def learn(self, size: float, explored: Explored, seconds: float) -> None:
        """A future has come back."""
        self.seconds += seconds
        if explored.nodes and seconds > 0.0:
            self.speed = 0.7 * self.speed + 0.3 * explored.nodes / seconds
            if not explored.left:
                self.ratio = 0.7 * self.ratio + 0.3 * explored.nodes / max(size, 1.0)

    def budget(self, workers: int) -> int:
        """Nodes for one future."""
        seconds = min(max(FIRST_SECONDS, SHARE_OF_TIME * self.seconds / workers), MOST_SECONDS)
        return max(int(seconds * self.speed), 100)


@dataclass
class Workers:
    """Goes on with a branch and bound on the workers of a client: a `Runner` for dsel.search.exact.certificate.Proof.

    Errors: ClusterError when workers die under the same subtrees again and again, or there are none.
    """

    client: Any
    estimate: Estimate = field(default_factory=Estimate)
    futures: int = 0
    lost: int = 0

    def __call__(
        self, search: BranchAndBound, stop: Stop, on_slice: Callable[[AnytimeSearch], None] | None = None
    ) -> str:
        """Until the proof is done or `stop` (iterations: nodes, seconds) says so; returns which."""
        assert stop.iterations is not None
        start = time.monotonic()
        waiting: dict[Any, tuple[int, list[Subproblem]]] = {}
        problem = self.client.submit(_itself, search.problem, pure=False)
        failures = 0
        try:
            while not search.done:
                if search.iteration >= stop.iterations:
                    return "iterations"
                if stop.seconds is not None and time.monotonic() - start >= stop.seconds:
                    return "seconds"
                workers = self._workers()
                if not waiting and search.iteration < _FIRST_NODES and search.open_nodes < _FIRST_OPEN * workers:
                    search.advance(min(search.iteration + 50, stop.iterations))
                    continue
                self._hand_out(search, problem, waiting, _AHEAD * workers)
                failures = self._collect(search, waiting, failures)
                if on_slice is not None:
                    on_slice(search)
            return "proven" if search.proven else "contradiction"
        finally:
            for future, (lease_id, _) in waiting.items():
                future.cancel()
                search.requeue(lease_id)

    def _workers(self) -> int:
        workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
        if workers:
            return workers
        try:
            self.client.wait_for_workers(1, timeout=60)
        except TimeoutError as error:
            raise ClusterError("There has been no worker for 60 s.", "See the cluster's own logs.") from error
        return 1

    def _hand_out(self, search: BranchAndBound, problem: Any, waiting: dict[Any, Any], most: int) -> None:
        budget, k = self.estimate.budget(max(most // _AHEAD, 1)), search.k
        if search.open_nodes < most:  # near the end: what is left is split sooner
            budget = budget // 4
        while len(waiting) < most and search.open_nodes:
            share = max(search.open_nodes // most, 1)  # leave some for the others
            enough = budget / self.estimate.ratio
            lease_id, subs = search.checkout(share, enough, lambda sub: self.estimate.size(sub, k))
            if not subs:
                return
            name = f"{search.bound_name}-{k}-{search.pairs}-{problem.key}"
            future = self.client.submit(
                explore_task, problem, name, k, search.bound_name, search.pairs, subs, search.best_value, budget,
                pure=False,
            )  # fmt: skip
            waiting[future] = (lease_id, subs)
            self.futures += 1

    def _collect(self, search: BranchAndBound, waiting: dict[Any, Any], failures: int) -> int:
        """Take in what has come back; returns how many futures in a row have failed."""
        from distributed import TimeoutError as WaitTimeout
        from distributed import wait

        if not waiting:
            return failures
        try:
            with self.client.as_current():
                finished = wait(list(waiting), timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done  # type: ignore[no-untyped-call]
        except (WaitTimeout, TimeoutError):
            return failures
        for future in finished:
            lease_id, subs = waiting.pop(future)
            if future.status == "finished":
                explored, seconds = future.result()
                search.report(lease_id, explored)
                size = sum(self.estimate.size(sub, search.k) for sub in subs)
                self.estimate.learn(size, explored, seconds)
                failures = 0
                continue
            search.requeue(lease_id)
            failures += 1
            self.lost += 1
            if failures > _MOST_FAILURES:
                raise ClusterError(
                    f"{failures} parts of the proof failed one after another: {_why(future)}.",
                    "See the workers' logs; the proof goes on from its last state.",
                )
            log.warning("a part of the proof was lost (%s): it is done again", _why(future))
        return failures


def _why(future: Any) -> str:
    return str(future.exception()) if future.status == "error" else str(future.status)

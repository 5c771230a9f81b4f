"""Trees of proofs on workers: a tree as a search by ask and tell.

A task explores a few open nodes of least bound for a fraction of a second, given the best value so far. It returns what
it found and which nodes it left open. The client holds the open nodes and the incumbent. Nothing is lost with a worker:
its nodes stay open until their task is done, and another worker gets them. The proof can be saved at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.ask_tell import AskTell, Cleanup, ExecutorFactory, ExecutorOptions, Task, TaskResult
from dsel.search.exact.tree import BestFirstTree, Explored, SubtreeWork
from dsel.search.runtime import kept_on_worker
from dsel.search.runtime.dispatcher import Dispatcher

#: A task takes FIRST_SECONDS at first, so that workers share the incumbent often, and MAX_SECONDS at most, so that a
#: lost task costs little. In between it takes a share of the time so far, so that the last tasks end almost together.
FIRST_SECONDS, MAX_SECONDS, SHARE_OF_TIME = 0.3, 3.0, 0.01
#: Tasks per worker at a time.
_TASKS_PER_WORKER = 2


@dataclass(frozen=True)
class ExploreSubtrees:
    """Work that explores nodes. A worker keeps the arrays of the explorer for the next task."""

    tree: SubtreeWork
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, task: Task) -> TaskResult:
        nodes, incumbent = task.payload
        explorer = kept_on_worker.take(self.run)
        if explorer is None:
            explorer = self.tree.explorer()
        start = time.perf_counter()
        explored = self.tree.explore(explorer, nodes, incumbent, task.units)
        seconds = time.perf_counter() - start
        kept_on_worker.keep(self.run, explorer)
        return TaskResult(explored, seconds, units=explored.nodes)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return the function that releases the explorers."""
        return (kept_on_worker.releasing(self.run),)


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


class ExactOnWorkers(AskTell):
    """An exact search whose tasks run on workers, by ask and tell.

    Parameters
    ----------
    search : BestFirstTree or AStar
        The search.
    limit : int
        The most nodes to visit.
    """

    def __init__(self, search: Any, limit: int) -> None:
        self.search, self.limit = search, limit

    @property
    def iteration(self) -> int:  # type: ignore[override]
        """The number of visited nodes."""
        return int(self.search.iteration)

    @property
    def last_gain(self) -> int:  # type: ignore[override]
        """The number of nodes before `best_value` last decreased."""
        return int(self.search.last_gain)

    @property
    def best_value(self) -> float:
        """The least f of a subset so far."""
        return float(self.search.best_value)

    @property
    def total(self) -> float:
        """||Y||^2."""
        return float(self.search.total)

    def state(self) -> dict[str, Any]:
        """Return the state of the search."""
        found: dict[str, Any] = self.search.state()
        return found

    def finished(self) -> str | None:
        """Return why the search has ended, or None before."""
        if self.search.done:
            return str(self.search.end)
        if self.iteration >= self.limit:
            return "iterations"
        return "memory" if self.search.memory_full else None


class TreeSearch(ExactOnWorkers):
    """A tree of a proof, by ask and tell: workers explore subtrees."""

    def __init__(self, tree: BestFirstTree[Any], limit: int) -> None:
        super().__init__(tree, limit)
        self.tree = tree
        self._leases: dict[str, tuple[int, float]] = {}
        self._promised = 0  # the nodes that tasks may still visit
        self._work: SubtreeWork | None = None
        self._estimate = SubtreeEstimate()

    def ask(self, most: int, workers: int) -> Task | None:
        """Return some open nodes of least bound, or None where it is too early for tasks or all nodes are leased."""
        tree = self.tree
        if tree.advance_alone(workers, self.limit):
            return None
        if self._work is not tree.work():
            self._work = tree.work()
            self.changed_work = ExploreSubtrees(self._work)
            self._estimate = SubtreeEstimate(speed=tree.nodes_per_second, least=tree.least_nodes)
        tasks = _TASKS_PER_WORKER * workers
        room = self.limit - tree.iteration - self._promised
        if room <= 0:
            return None
        budget = self._estimate.budget(workers)
        if tree.open_nodes < tasks:  # near the end: smaller tasks split what is left
            budget = max(budget // 4, 1)
        budget = min(budget, room)
        share = max(tree.open_nodes // tasks, 1)  # leaves nodes for the other tasks
        lease, nodes = tree.checkout(share, budget / self._estimate.ratio, tree.subtree_size)
        if not nodes:
            return None
        task = Task(uuid4().hex, (nodes, tree.sent_cutoff), budget, ("subtrees",))
        self._promised += budget
        self._leases[task.key] = lease, sum(tree.subtree_size(node) for node in nodes)
        return task

    def tell(self, task: Task, result: TaskResult) -> None:
        """Merge what a task found."""
        lease, size = self._leases.pop(task.key)
        self._promised -= task.units
        self.tree.complete(lease, result.found)
        self._estimate.learn(size, result.found, result.seconds)

    def requeue(self, task: Task, suspect: bool) -> None:
        """Take the nodes of a lost task back."""
        self._promised -= task.units
        self.tree.requeue(self._leases.pop(task.key)[0])


def on_workers(executor: ExecutorFactory) -> Callable[..., str]:
    """Return what runs a tree on an executor until `stop` (`iterations`: nodes, `seconds`), and returns why it ended.

    Parameters
    ----------
    executor : callable
        Makes the executor.

    Returns
    -------
    callable
        ``runner(tree, stop, on_slice)``, a `Runner` of `dsel.search.exact.proof`. It raises ClusterError if workers
        fail repeatedly, or if there are none.
    """

    def run(tree: BestFirstTree[Any], stop: Stop, on_slice: Callable[[AnytimeSearch], None] | None = None) -> str:
        assert stop.iterations is not None
        search = TreeSearch(tree, stop.iterations)
        dispatcher = Dispatcher(search, executor(ExploreSubtrees(tree.work()), ExecutorOptions()), stop)
        return dispatcher.run(None if on_slice is None else lambda _: on_slice(tree))

    return run

"""Best-first search on workers: they expand the first nodes of the fringe ahead of the search.

An expansion is a function of its node alone. So the search takes its nodes in the same order and with the same bounds
as in one process, and only reads most expansions instead of computing them. The fringe and the closed list stay on the
client. An expansion that is never needed is lost work: there are few, because a search without a weight expands every
node whose l is below the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from dsel._lib.blas import one_blas_thread
from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.ask_tell import Cleanup, ExecutorFactory, ExecutorOptions, Task, TaskResult
from dsel.search.exact.astar.search import AStar, Expand
from dsel.search.exact.trees_on_workers import ExactOnWorkers
from dsel.search.runtime.dispatcher import Dispatcher

#: Nodes that the search expands alone, before their expansions are divided into tasks.
_ALONE = 2000
#: A task has at most this share of the nodes of a task of the usual duration: the search waits for its first node.
_SHARE = 0.25
#: Tasks per worker whose expansions may wait for the search, or be under way.
_TASKS_PER_WORKER = 4
#: Seconds that the search may take between two looks at the workers.
_STEP_SECONDS = 0.05


@dataclass(frozen=True)
class ExpandNodes:
    """Work that expands nodes."""

    expand: Expand

    def __call__(self, task: Task) -> TaskResult:
        start = time.perf_counter()
        with one_blas_thread():
            found = [self.expand(node, q) for node, q in task.payload]
        return TaskResult(found, time.perf_counter() - start)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return nothing: workers keep nothing but the work itself."""
        return ()


class AheadOfSearch(ExactOnWorkers):
    """A best-first search whose next expansions are tasks, by ask and tell."""

    first_units = 100

    def __init__(self, search: AStar, limit: int) -> None:
        super().__init__(search, limit)
        self._units = self.first_units

    def ask(self, most: int, workers: int) -> Task | None:
        """Continue the search as far as expansions are there, and return the next nodes to expand ahead of it."""
        search = self.search
        if search.ahead is None:
            if search.iteration < _ALONE:
                search.advance(min(search.iteration + 100, _ALONE, self.limit))
                return None
            search.look_ahead()
        assert search.ahead is not None
        until = time.monotonic() + _STEP_SECONDS
        while self.finished() is None and not search.waiting:
            search.advance(min(search.iteration + 20, self.limit))
            if time.monotonic() >= until:
                break
        self._units = max(int(_SHARE * most), 1)
        room = _TASKS_PER_WORKER * workers * self._units - len(search.ahead)
        share = -(-len(search.unsent) // (2 * workers))  # a short fringe is divided among the workers
        nodes = search.next_nodes(min(self._units, room, share))
        if not nodes or self.finished() is not None:
            search.take_back(nodes)
            return None
        payload = [(node, search.k - len(node.members)) for node in nodes]
        return Task(uuid4().hex, payload, len(nodes), ("expansions",))

    def tell(self, task: Task, result: TaskResult) -> None:
        """Keep expansions for the search."""
        for (node, _), found in zip(task.payload, result.found, strict=True):
            self.search.expect(node, found)

    def requeue(self, task: Task, suspect: bool) -> None:
        """Let the nodes of a lost task be expanded again."""
        self.search.take_back([node for node, _ in task.payload])


def drive_on_workers(
    search: AStar, executor: ExecutorFactory, stop: Stop, on_slice: Callable[[AnytimeSearch], None] | None = None
) -> tuple[str, dict[str, Any]]:
    """Run a search with workers that expand nodes ahead of it, and return why it ended and counts of its tasks."""
    assert stop.iterations is not None
    ahead = AheadOfSearch(search, stop.iterations)
    dispatcher = Dispatcher(ahead, executor(ExpandNodes(search.expand), ExecutorOptions()), stop)
    ended = dispatcher.run(None if on_slice is None else lambda _: on_slice(search))
    return ended, {**dispatcher.stats.counts(), "futures": dispatcher.stats.tasks}

"""Count the finished tasks of a graph on the scheduler.

A scheduler logs a line for every function that a client runs on it. The progress of a pass is requested twice a second,
so the count is a separate request, which a plugin adds to the scheduler.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from distributed.diagnostics.plugin import SchedulerPlugin

_REQUEST = "dsel_count_finished"

#: Clients whose scheduler has the plugin.
_prepared: WeakSet[Any] = WeakSet()


class TaskCounter(SchedulerPlugin):
    """Scheduler plugin that answers how many of some tasks are finished."""

    name = "dsel-task-counter"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Add the request to those that the scheduler answers."""
        self._tasks = scheduler.tasks
        scheduler.handlers[_REQUEST] = self.count

    async def count(self, keys: list[str]) -> int:
        """Return the number of these tasks that are finished."""
        states = (self._tasks.get(key) for key in keys)
        return sum(1 for task in states if task is None or task.state in ("memory", "released", "forgotten"))


def count_finished(client: Any, keys: list[str]) -> int:
    """Return the number of finished tasks among those with these keys."""
    if client not in _prepared:
        client.register_plugin(TaskCounter())
        _prepared.add(client)
    return int(client.sync(getattr(client.scheduler, _REQUEST), keys=keys))

"""What dsel adds to the scheduler of a cluster, once for each client.

`ForgetLostWorkers` lets values that a lost worker kept be computed again by the next worker, whichever that is. Values
are kept with a preference for one worker. If the last worker is lost, the scheduler holds their tasks until a worker
joins, and then offers them to the preferred worker alone, which never comes back under its address.

`TaskCounter` counts the finished tasks of a graph. A scheduler logs a line for every function that a client runs on it,
and the progress of a pass is requested twice a second. So the count is a separate request.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from distributed.diagnostics.plugin import SchedulerPlugin

_REQUEST = "dsel_count_finished"

#: The plugins that the scheduler of a client has, by their names.
_added: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


class ForgetLostWorkers(SchedulerPlugin):
    """Scheduler plugin that drops the preference of waiting tasks for workers that are lost."""

    name = "dsel-forget-lost-workers"
    idempotent = True

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Let the new worker take the tasks that no worker could take. The scheduler assigns them next."""
        _forget(scheduler)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Let any worker take the tasks that the last worker left, as soon as one can work."""
        _forget(scheduler)


def _forget(scheduler: Any) -> None:
    for task in scheduler.unrunnable:
        if task.loose_restrictions and scheduler.workers.keys().isdisjoint(task.worker_restrictions or ()):
            task.worker_restrictions = None


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


def _add(client: Any, plugin: ForgetLostWorkers | TaskCounter) -> None:
    added = _added.setdefault(client, set())
    if plugin.name not in added:
        added.add(plugin.name)
        client.register_plugin(plugin)


def forget_lost_workers(client: Any) -> None:
    """Add the plugin to the scheduler of a client. A scheduler where dsel is not installed does without it."""
    with suppress(ImportError):
        _add(client, ForgetLostWorkers())


def count_finished(client: Any, keys: list[str]) -> int:
    """Return the number of finished tasks among those with these keys."""
    _add(client, TaskCounter())
    return int(client.sync(getattr(client.scheduler, _REQUEST), keys=keys))

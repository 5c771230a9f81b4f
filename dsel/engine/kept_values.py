"""Let values that a lost worker kept be computed again by the next worker, whichever that is.

Values are kept with a preference for one worker. If the last worker is lost, the scheduler holds their tasks until a
worker joins, and then offers them to the preferred worker alone, which never comes back under its address.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakSet

from distributed.diagnostics.plugin import SchedulerPlugin

#: Clients whose scheduler has the plugin.
_prepared: WeakSet[Any] = WeakSet()


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


def forget_lost_workers(client: Any) -> None:
    """Add the plugin to the scheduler of a client, once. A scheduler where dsel is not installed does without it."""
    if client not in _prepared:
        with suppress(ImportError):
            client.register_plugin(ForgetLostWorkers())
        _prepared.add(client)

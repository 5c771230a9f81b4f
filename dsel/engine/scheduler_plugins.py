"""What dsel adds to the scheduler of a cluster, once for each client.

`ForgetLostWorkers` lets values that a lost worker kept be computed again by the next worker, whichever that is. Values
are kept with a preference for one worker. If the last worker is lost, the scheduler holds their tasks until a worker
joins, and then offers them to the preferred worker alone, which never comes back under its address.

`TaskCounter` counts the finished tasks of a graph. A scheduler logs a line for every function that a client runs on it,
and the progress of a pass is requested twice a second. So the count is a separate request.

`ProgressMetrics` exports the progress of a run on the scheduler's Prometheus endpoint (/metrics on the port of its
dashboard). The driver logs its progress as events of the scheduler (topic "dsel"), and the plugin keeps the last one.
The scheduler needs the package prometheus-client; without it nothing is reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from distributed.diagnostics.plugin import SchedulerPlugin

log = logging.getLogger("dsel")

_REQUEST = "dsel_count_finished"
#: Finished tasks that the scheduler remembers: more than one graph has.
_REMEMBERED = 1_000_000

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
    """Scheduler plugin that answers how many of some tasks are finished.

    The state of a task does not say it. A task that is finished and no longer needed is released or forgotten. So is a
    task that the scheduler has not received, or that is computed again.
    """

    name = "dsel-task-counter"
    idempotent = True

    def __init__(self) -> None:
        self._finished: dict[Any, None] = {}

    async def start(self, scheduler: Any) -> None:
        """Add the request to those that the scheduler answers."""
        scheduler.handlers[_REQUEST] = self.count

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Remember a finished task. The oldest are dropped, because passes do not come back to them."""
        if finish == "memory":
            self._finished[key] = None
            if len(self._finished) > _REMEMBERED:
                del self._finished[next(iter(self._finished))]

    async def count(self, keys: list[str]) -> int:
        """Return the number of these tasks that are finished."""
        return sum(key in self._finished for key in keys)


def _add(client: Any, plugin: ForgetLostWorkers | TaskCounter) -> None:
    added = _added.setdefault(client, set())
    if plugin.name not in added:
        client.register_plugin(plugin)
        added.add(plugin.name)


def forget_lost_workers(client: Any) -> None:
    """Add the plugin to the scheduler of a client. A scheduler where dsel is not installed does without it."""
    with suppress(ImportError):
        _add(client, ForgetLostWorkers())


def begin_counting(client: Any) -> None:
    """Add the counter of tasks to the scheduler of a client: it counts tasks that finish from now on.

    Where dsel is not installed on the scheduler, the error of the tasks says so better.
    """
    with suppress(ImportError):
        _add(client, TaskCounter())


def count_finished(client: Any, keys: list[str]) -> int:
    """Return the number of finished tasks among those with these keys, since `begin_counting`."""
    _add(client, TaskCounter())
    return int(client.sync(getattr(client.scheduler, _REQUEST), keys=keys))


TOPIC = "dsel"
#: Interval between two reports, and time limit of one.
REPORT_SECONDS, TIMEOUT_SECONDS = 1.0, 5.0

_GAUGES = {
    "done": ("dsel_stage_done", "Tasks of the stage that are finished, or iterations of its search"),
    "total": ("dsel_stage_total", "Tasks of the stage in all"),
    "best": ("dsel_best_value", "Value of the best subset found so far"),
    "checkpoint": ("dsel_last_checkpoint_timestamp_seconds", "When the search was last saved"),
    "since": ("dsel_stage_start_timestamp_seconds", "When the stage began"),
}


class ProgressMetrics(SchedulerPlugin):
    """Scheduler plugin that exports the last report of one run."""

    def __init__(self, run: str) -> None:
        self.name = f"dsel-metrics-{run}"
        self._run = run
        self._last: dict[str, Any] = {}

    async def start(self, scheduler: Any) -> None:
        """Register as a collector in the scheduler's process."""
        with suppress(ImportError):
            from prometheus_client import REGISTRY

            REGISTRY.register(self)

    async def before_close(self) -> None:
        """Unregister when the scheduler closes."""
        self.unregister()

    def unregister(self) -> None:
        """Unregister as a collector."""
        with suppress(ImportError, KeyError):
            from prometheus_client import REGISTRY

            REGISTRY.unregister(self)

    def log_event(self, topic: str, msg: Any) -> None:
        """Store a report of this run."""
        if topic == TOPIC and msg.get("run") == self._run:
            self._last = msg

    def collect(self) -> Iterator[Any]:
        """Yield the metrics that Prometheus reads."""
        from prometheus_client.core import GaugeMetricFamily

        if not self._last:
            return
        for key, (name, meaning) in _GAUGES.items():
            value = self._last.get(key)
            if value is not None:
                family = GaugeMetricFamily(name, meaning, labels=["run", "stage"])
                family.add_metric([self._run, str(self._last["stage"])], float(value))
                yield family


@contextmanager
def progress_metrics(client: Any, run: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Provide a function that reports progress (stage, done, total, best, checkpoint), at most once per second.

    Metrics are optional. If they fail, one warning is logged and the run continues.
    """
    plugin = ProgressMetrics(run)
    state: dict[str, Any] = {"next": 0.0, "stage": None, "since": 0.0, "works": True}

    def publish(progress: dict[str, Any]) -> None:
        new_stage = progress["stage"] != state["stage"]
        if new_stage:
            state.update(stage=progress["stage"], since=time.time())
        now = time.monotonic()
        if not state["works"] or (now < state["next"] and not new_stage):
            return
        state["next"] = now + REPORT_SECONDS
        try:
            message = {**progress, "since": state["since"], "run": run}
            client.sync(client.scheduler.log_event, topic=TOPIC, msg=message, callback_timeout=TIMEOUT_SECONDS)
        except Exception as error:
            state["works"] = False
            log.warning("no more metrics: %s", error)

    try:
        client.register_plugin(plugin)
    except Exception as error:
        state["works"] = False
        log.warning("no metrics: %s", error)
    try:
        yield publish
    finally:
        with suppress(Exception):
            client.run_on_scheduler(_remove, plugin.name)


def _remove(name: str, dask_scheduler: Any = None) -> None:
    plugin = dask_scheduler.plugins.get(name)
    if plugin is not None:
        plugin.unregister()
        dask_scheduler.remove_plugin(name)

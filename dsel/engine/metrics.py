"""Progress of a run on the scheduler's own Prometheus endpoint (/metrics on its dashboard's port).

The driver reports as events of the scheduler ("dsel"), and a plugin there keeps the last of them. Without the package
prometheus-client on the scheduler its endpoint says that there are no metrics, and nothing is reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

log = logging.getLogger("dsel")

TOPIC = "dsel"
#: Between two reports; and how long one may hold up the run.
REPORT_SECONDS, TIMEOUT_SECONDS = 1.0, 5.0

_GAUGES = {
    "done": ("dsel_stage_done", "Tasks of the stage that are finished, or iterations of its search"),
    "total": ("dsel_stage_total", "Tasks of the stage in all"),
    "best": ("dsel_best_value", "Value of the best subset found so far"),
    "checkpoint": ("dsel_last_checkpoint_timestamp_seconds", "When the search was last saved"),
    "since": ("dsel_stage_start_timestamp_seconds", "When the stage began"),
}


class ProgressMetrics(SchedulerPlugin):
    """On the scheduler: what the run with this id has reported last, for whoever collects metrics."""

    def __init__(self, run: str) -> None:
        self.name = f"dsel-metrics-{run}"
        self._run = run
        self._last: dict[str, Any] = {}

    async def start(self, scheduler: Any) -> None:
        """Register with the collectors of the scheduler's process."""
        with suppress(ImportError):
            from prometheus_client import REGISTRY

            REGISTRY.register(self)

    async def before_close(self) -> None:
        """The scheduler ends."""
        self.unregister()

    def unregister(self) -> None:
        """Leave the collectors."""
        with suppress(ImportError, KeyError):
            from prometheus_client import REGISTRY

            REGISTRY.unregister(self)

    def log_event(self, topic: str, msg: Any) -> None:
        """An event of the scheduler."""
        if topic == TOPIC and msg.get("run") == self._run:
            self._last = msg

    def collect(self) -> Iterator[Any]:
        """What Prometheus reads."""
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
    """A function that takes the progress (stage, done, total, best, checkpoint) and reports it, once a second at most.

    Metrics are an extra: where they fail, the run says so once and goes on.
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

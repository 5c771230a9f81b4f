"""Progress of a run on the scheduler's Prometheus endpoint (/metrics on the port of its dashboard).

The driver logs its progress as events of the scheduler (topic "dsel"), and a scheduler plugin keeps the last one. The
scheduler needs the package prometheus-client; without it nothing is reported.
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

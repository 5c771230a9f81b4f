"""Progress on the scheduler's Prometheus endpoint."""

from __future__ import annotations

import logging
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dsel.engine import scheduler_plugins
from dsel.engine.scheduler_plugins import progress_metrics
from tests.cli_runner import LIMIT


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


class TestMetrics:
    @pytest.fixture(autouse=True)
    def _on_a_busy_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scheduler_plugins, "REPORT_SECONDS", LIMIT)
        monkeypatch.setattr(scheduler_plugins, "TIMEOUT_SECONDS", LIMIT)

    def page(self, running: Any) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{running.scheduler.http_server.port}/metrics", timeout=LIMIT
        ) as reply:
            return str(reply.read().decode())

    def test_progress_is_on_the_schedulers_endpoint_while_the_run_lasts(self, running: Any) -> None:
        pytest.importorskip("prometheus_client")
        with Client(running, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            with progress_metrics(client, "run-7") as publish:
                publish({"stage": "statistics", "done": 3, "total": 8, "best": None, "checkpoint": None})
                publish({"stage": "statistics", "done": 4, "total": 8, "best": None, "checkpoint": None})  # too soon
                page = self.page(running)
                assert 'dsel_stage_done{run="run-7",stage="statistics"} 3.0' in page
                assert 'dsel_stage_total{run="run-7",stage="statistics"} 8.0' in page
                assert "dsel_best_value" not in page
                assert "dask_scheduler_workers" in page
                publish({"stage": "search", "done": 100, "total": None, "best": 0.5, "checkpoint": time.time()})
                page = self.page(running)
                assert 'dsel_best_value{run="run-7",stage="search"} 0.5' in page
                assert "dsel_last_checkpoint_timestamp_seconds" in page
            assert "run-7" not in self.page(running)

    def test_without_them_the_run_continues(self, running: Any, caplog: pytest.LogCaptureFixture) -> None:
        with Client(running, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            pass
        with caplog.at_level(logging.WARNING, "dsel"), progress_metrics(client, "run-8") as publish:
            for done in (1, 2):
                publish({"stage": "search", "done": done, "total": 9, "best": None, "checkpoint": None})
        assert caplog.text.count("no metrics") == 1

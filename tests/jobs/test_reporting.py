"""Progress in the log: how often, with how much is left, and that Dask's lines are at debug level."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dsel.engine.clusters.dask_config import dask_logging
from dsel.jobs import reporting as module
from dsel.jobs.reporting import Reporter
from dsel.jobs.status import StatusFile
from dsel.objective.dense import DenseObjective
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from tests.cli_runner import wait_for


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_stage_that_reports_nothing_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.02)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    reporter, log = Reporter(log_format="json"), tmp_path / "run.log"
    with reporter.showing(), reporter.logging_to(log):
        reporter.stage("statistics")
        wait_for(lambda: "statistics: working" in log.read_text())
        reporter.tasks(10, 80)
        reporter.tasks(20, 80)
        wait_for(lambda: re.search(r"20 of 80 tasks, about \d+ s left", log.read_text()))
    found = lines(log)[-1]
    assert (found["stage"], found["done"], found["total"]) == ("statistics", 20, 80)
    assert isinstance(found["seconds_left"], float)


@pytest.mark.parametrize("debug", [False, True])
def test_lines_of_dask_are_at_debug_level_and_in_our_format(
    debug: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if debug:
        monkeypatch.setenv(module.LEVEL_VARIABLE, "debug")
    reporter, log = Reporter(log_format="json"), tmp_path / "run.log"
    with reporter.showing(), reporter.logging_to(log), dask_logging(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as of files that other tests left open
        warnings.filterwarnings("always", "a port is taken")
        try:
            raise OSError("Stream is closed")
        except OSError:
            logging.getLogger("distributed.client").exception("lost")
        logging.getLogger("tornado.application").error("a callback failed")
        logging.getLogger("distributed.worker.memory").warning("Worker is at 90% memory usage")
        warnings.warn("a port is taken:\n use another", stacklevel=1)
    found = lines(log)
    assert found == [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in found] == (["DEBUG"] * 2 if debug else []) + ["WARNING"] * 2
    assert ("traceback" in found[0]) is debug
    assert "90% memory" in str(found[-2]["message"])
    assert "a port is taken: use another" in str(found[-1]["message"])


def test_a_line_about_a_proof_names_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    problem = DenseObjective(np.eye(6), np.ones((6, 1)), 9.0)
    reporter, log = Reporter(), tmp_path / "run.log"
    with reporter.showing(), reporter.logging_to(log):
        reporter.stage("certificate")
        reporter.search(BranchAndBound(problem, 4, incumbent=(0, 1, 2, 3)))
    assert re.search(r"certificate: size 4, 0 iterations, best 5\n", log.read_text())


def test_the_speed_of_a_resumed_search_does_not_count_what_an_earlier_run_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    reporter, log = Reporter(), tmp_path / "run.log"
    with caplog.at_level(logging.INFO, logger="dsel"), reporter.logging_to(log):
        reporter.stage("search")
        for iteration in (5_000_000, 5_000_100):
            now[0] += 2.0
            reporter.search(SimpleNamespace(iteration=iteration, best_value=1.0))
    assert "5,000,000 iterations, best 1\n" in log.read_text()
    assert "5,000,100 iterations, best 1, 50 per second" in log.read_text()


def test_no_value_yet_is_null_in_the_status_and_left_out_of_the_log(tmp_path: Path) -> None:
    reporter, log = Reporter(log_format="json"), tmp_path / "run.log"
    none = SimpleNamespace(iteration=3, best_value=math.inf)
    with StatusFile(tmp_path, "run") as reporter.status, reporter.showing(), reporter.logging_to(log):
        reporter.stage("search")
        reporter.search(none)
        reporter._log_progress()
    for text in ((tmp_path / "status.json").read_text(), *log.read_text().splitlines()):
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert json.loads((tmp_path / "status.json").read_text())["best"] is None
    assert "best" not in lines(log)[-1]


def test_a_log_that_cannot_be_written_any_more_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    with reporter.showing(), reporter.logging_to(Path("/dev/full")):
        for stage in ("statistics", "search"):
            reporter.stage(stage)
    said = capsys.readouterr().err
    assert said.count("the log is not saved: [Errno 28] No space left on device") == 1
    assert "INFO search" in said
    assert "Traceback" not in said

"""Benchmarks run in parts with limits of time, continue after an interruption, and say where others are ahead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.benchmarks import everything, history, page, peers, protocol
from pipelines.benchmarks.protocol import Benchmark


class Recorder:
    """Stands for the process of a part: notes what is asked for, and writes figures."""

    def __init__(self, figures: dict[str, Any], status: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.figures, self.status, self.pid = figures, status, 0

    def __call__(self, command: list[str], **_: Any) -> Recorder:
        self.commands.append(command[4:])
        if not self.status:
            Path(command[6]).write_text(json.dumps(self.figures))
        return self

    def wait(self) -> int:
        return self.status

    poll = wait


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "commit", lambda: "abc")


def nothing(quick: bool) -> dict[str, Any]:
    return {}


TWO = Benchmark("two", "Has two parts.", {"a": nothing, "b": nothing})


def test_each_part_is_run_once_and_an_interrupted_call_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol.subprocess, "Popen", made := Recorder({"speed": 2.0}))
    first = protocol.run([TWO], True, tmp_path, ["a"])
    assert first["two a"]["speed"] == 2.0
    both = protocol.run([TWO], True, tmp_path)
    assert [command[:2] for command in made.commands] == [["two", "a"], ["two", "b"]]
    assert both.keys() == {"two a", "two b"}
    assert "[2 of 2] two b" in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["quick-two-a.json", "quick-two-b.json"]


def test_a_part_that_fails_is_tried_again_in_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.subprocess, "Popen", Recorder({}, status=1))
    assert protocol.run([TWO], False, tmp_path)["two a"]["failed"] == "exit status 1"
    assert not list(tmp_path.iterdir())


def test_parts_for_which_no_time_is_left_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.subprocess, "Popen", made := Recorder({}))
    found = protocol.run([TWO], True, tmp_path, seconds=0.5)
    assert not made.commands
    assert all("left" in figures for figures in found.values())


def test_a_part_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def sleeping(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", "import time; time.sleep(60)"], **options)

    monkeypatch.setattr(protocol.subprocess, "Popen", sleeping)
    one = Benchmark("one", "Sleeps.", {"all": nothing})
    assert protocol.run([one], True, tmp_path, seconds=1.2)["one"]["stopped"] == "after 1 s"


def test_every_benchmark_has_a_command_that_names_its_parts() -> None:
    from typer.testing import CliRunner

    from pipelines.benchmarks.__main__ import app

    found = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "500"}).output
    assert all(name in found for name in everything.BENCHMARKS)
    wrong = CliRunner().invoke(app, ["scaling", "--only", "nothing"])
    assert wrong.exit_code == 2


def row(tool: str, explained: float, seconds: float) -> dict[str, Any]:
    return {"problem": "p", "size": 1, "tool": tool, "explained": explained, "seconds": seconds, "peak": 0}


def test_a_tool_is_ahead_where_no_method_of_dsel_explains_as_much_in_its_time() -> None:
    rows = [row("dsel", 0.5, 1.0), row("dsel forward", 0.4, 0.1)]
    rows += [row("slower", 0.4, 0.2), row("faster", 0.4, 0.05), row("better", 0.6, 9.0), row("equal", 0.5, 1.0)]
    found = {r["peer"]: r for r in peers.Comparison(rows).behind()}
    assert found.keys() == {"faster", "better"}
    assert found["faster"]["factor"] == pytest.approx(2.0)
    assert found["better"]["factor"] is None
    assert "dsel explains 0.5000, better 0.6000" in found["better"]["reason"]


def test_times_below_the_resolution_count_as_equal() -> None:
    assert not peers.Comparison([row("dsel", 0.5, 0.004), row("fast", 0.5, 0.001)]).behind()


def test_the_share_that_columns_explain_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
    rest = y - X[:, [1, 3]] @ np.linalg.lstsq(X[:, [1, 3]], y)[0]
    assert peers.Problem("", X, y, 2).explained([1, 3]) == pytest.approx(1.0 - rest @ rest / (y @ y))
    assert peers.Problem("", X, None, 5).explained(range(5)) == pytest.approx(1.0)


def test_all_names_the_factor_of_proofs_and_of_problems_that_are_not_proved() -> None:
    rows = [{"problem": "a", "dsel": 3.0, "peer": "el0ps", "seconds": 2.0}]
    rows += [{"problem": "b", "dsel": None, "peer": "el0ps", "seconds": 2.0}]
    found = everything.behind({"proofs": {"behind": rows}, "sums": {}, "alternatives": {"lmsubsets_ratio": 1.5}})
    assert [r["factor"] for r in found] == [1.5, None, 1.5]
    assert [r["in"] for r in found] == ["proofs", "proofs", "alternatives"]
    assert found[1]["reason"] == "dsel does not prove it in the time"


def test_a_figure_that_became_slower_by_a_tenth_is_named(tmp_path: Path) -> None:
    def with_ratios(a: float, b: float) -> dict[str, Any]:
        return {"limits": {"ratios": {"a": a, "b": b}}}

    file = tmp_path / "history.jsonl"
    assert history.compared(with_ratios(1.0, 1.0), False, True, file) == []
    assert [r["figure"] for r in history.compared(with_ratios(1.05, 1.2), False, False, file)] == ["b"]
    assert len(file.read_text().splitlines()) == 1
    assert history.compared({}, False, True, file) == []


def test_the_page_has_what_was_compared_and_what_was_not() -> None:
    slower = [{"figure": "Gram pass", "factor": 1.3, "since": "2026-01-01"}]
    behind = [
        {"in": "peers", "problem": "p", "peer": "abess", "seconds": 0.1, "dsel": 0.2, "factor": 2.0, "reason": "r"}
    ]
    report = {
        "quick": False, "cores": 2, "versions": {"dsel": "1"}, "behind": behind, "slower": slower,
        "absent": {"leaps": "R is not installed"}, "unfinished": [], "left_out": [], "parts": {},
    }  # fmt: skip
    text = page.text(report, [], "pictures")
    assert "| peers | p | abess | 0.1 | 0.2 | 2 | r |" in text
    assert "- leaps: R is not installed" in text
    assert "Gram pass: 1.30 times since 2026-01-01" in text

"""The papers' tables run, and their last line is JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipelines.benchmarks import __main__ as benchmarks
from pipelines.papers.__main__ import app
from pipelines.papers.poss import table_2 as poss_table_2

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_in_poss_table_2_poss_leads_the_greedy_methods_on_sonar(capsys: pytest.CaptureFixture[str]) -> None:
    poss_table_2.run(2, ["sonar"], processes=1, seed=0)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    means = {row["method"]: row["mean"] for row in last["rows"] if row.get("mean") is not None}
    assert means["POSS"] > max(means[name] for name in ("FR", "OMP", "FoBa", "RFE"))
    assert 0.45 < means["POSS"] < 0.62  # the paper's mean and standard deviation over 100 splits: .5365, .0410


def test_pocss_table_1_reaches_the_papers_error_ratio_on_sonar(capsys: pytest.CaptureFixture[str]) -> None:
    found = CliRunner().invoke(app, ["pocss-table-1", "--runs", "1", "--only", "sonar"])
    assert found.exit_code == 0
    best = {row["method"]: row.get("best") for row in json.loads(found.stdout.splitlines()[-1])["rows"]}
    assert best["POCSS"] == pytest.approx(2.524, abs=1e-3)
    assert best["Greedy"] == pytest.approx(2.852, abs=1e-3)


@pytest.mark.parametrize("commands", [app, benchmarks.app])
def test_help_lists_the_commands(commands: typer.Typer) -> None:
    found = CliRunner().invoke(commands, ["--help"])
    assert found.exit_code == 0
    assert "Commands" in found.stdout

"""The examples for workflow tools, run where the tool is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dsel
from tests.deploy.programs import ROOT

WORKFLOWS = ROOT / "deploy" / "workflows"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table whose target depends on a and c."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(120, 5)).round(4)
    values[:, 4] = values[:, 0] - 2 * values[:, 2] + 0.1 * values[:, 4]
    rows = [",".join(map(str, row)) for row in values.tolist()]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c,d,y", *rows]))
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with `dsel` of this environment on the path."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "dsel").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m dsel "$@"\n')
    (programs / "dsel").chmod(0o755)
    home = {"HOME": str(folder), "PREFECT_HOME": str(folder / "prefect"), "XDG_CACHE_HOME": str(folder / "cache")}
    home["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "200"  # however busy the machine is
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **home, "PATH": path, "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "")}
    environment = {name: value for name, value in environment.items() if value and name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("snakemake") is None, reason="Snakemake is not installed")
def test_snakemake_makes_the_report_and_runs_nothing_twice(folder: Path) -> None:
    options = ["--config", "table=table.csv", "target=y", "columns=2"]
    command = ["snakemake", "--snakefile", str(WORKFLOWS / "Snakefile"), "--cores", "1", *options]
    run(command, folder)
    assert {*dsel.open_selection(folder / "result").labels} == {"a", "c"}
    assert "<html" in (folder / "result" / "report.html").read_text()
    assert (folder / "result" / "events.jsonl").is_file()
    shutil.rmtree(folder / "programs")
    assert "Nothing to be done" in (done := run(command, folder)).stderr + done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prefect") is None, reason="Prefect is not installed")
def test_a_prefect_flow_returns_the_columns(folder: Path) -> None:
    python = Path(shutil.which("prefect") or "").with_name("python")
    done = run([str(python), str(WORKFLOWS / "prefect_flow.py"), "table.csv", "y", "2"], folder)
    assert {*done.stdout.split()[-2:]} == {"a", "c"}
    assert "<html" in (folder / "result" / "report.html").read_text()

"""A newcomer's path: the README's commands, then a file with the usual problems, to a report and a prediction.

It runs in this environment, or with `DSEL_TEST_INSTALL=1` in a new one, in which dsel is installed as the README says.
What the commands print is compared with files in `golden/`. `DSEL_UPDATE_GOLDEN=1` writes them again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.cli_runner import call

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden")
NEW = bool(os.environ.get("DSEL_TEST_INSTALL"))


def program(tmp_path: Path) -> Path:
    """Return the folder of the programs of an environment that has dsel."""
    here = Path(sys.executable).parent
    if not NEW and (here / "dsel").is_file():
        return here
    environment = tmp_path / "environment"
    install = f"{sys.executable} -m venv {environment} && {environment}/bin/pip install -q {ROOT}"
    subprocess.run(install, shell=True, check=True, cwd=tmp_path)
    return environment / "bin"


def normalised(text: str, folder: Path) -> str:
    """Return text without what differs between two runs: times, sizes in memory, paths, ids and colors."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\b[\d,.]+ (ms|s)\b", "TIME", text)
    text = re.sub(r"\b[\d,]+ nodes", "N nodes", text)
    text = re.sub(r"\b[\d.]+ [KMGk]iB", "SIZE", text)
    text = re.sub(r"(\w+): \S+, process \d+ on \S+, started .*", r"\1: RUN", text)
    return text.strip() + "\n"


class Shell:
    """Runs commands of dsel in the current folder, and keeps what they print.

    The first command is a program. The others are, too, in a new environment, and else run in this process.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.record: list[str] = []
        self.call = self.start

    def start(self, name: str, *words: str) -> tuple[int, str, str]:
        found = subprocess.run([self.programs / name, *words], capture_output=True, text=True, timeout=600)
        if not NEW:
            self.call = lambda _, *words: call(*words)
        return found.returncode, found.stdout, found.stderr

    def run(self, command: str, code: int = 0) -> str:
        ended, out, err = self.call(*command.split())
        errors = [line for line in err.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]
        said = normalised("\n".join([out.rstrip(), *errors]), self.folder)
        self.record.append(f"$ {command}\n{said}")
        assert ended == code, f"{command}\n{out}\n{err}"
        return said

    def compare(self, name: str) -> None:
        """Compare what was printed since the last comparison with a golden file."""
        said, self.record = "\n".join(self.record), []
        path = GOLDEN / name
        if os.environ.get("DSEL_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(said)
        assert said == path.read_text()


def write_field_data(path: Path) -> None:
    """Write a table with a text cell, a missing value, a categorical column and a constant one."""
    rng = np.random.default_rng(11)
    m = 120
    table = pd.DataFrame({f"sensor_{j}": rng.normal(size=m).round(3) for j in range(6)})
    table["site"] = np.array(["north", "south", "west"])[rng.integers(0, 3, m)]
    table["firmware"] = 2
    signal = 2 * table["sensor_1"] - 1.5 * table["sensor_4"] + 2 * (table["site"] == "south")
    table["yield"] = (signal + 0.3 * rng.normal(size=m)).round(3)
    table = table.astype(object)
    table.loc[17, "sensor_2"] = "broken"
    table.loc[40, "sensor_3"] = ""
    table.to_csv(path, index=False)


@pytest.mark.slow
def test_the_commands_and_messages_lead_a_newcomer_to_a_report_and_a_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(program(tmp_path), tmp_path)

    readme = (ROOT / "README.md").read_text()
    assert ".venv/bin/pip install . && .venv/bin/dsel demo\n" in readme
    shell.run("dsel demo")
    shell.compare("demo.txt")

    rng = np.random.default_rng(7)
    table = pd.DataFrame(rng.normal(size=(120, 12)).round(4), columns=[f"sensor_{j:02}" for j in range(12)])
    table["yield"] = (3 * table["sensor_02"] - 2 * table["sensor_07"] + rng.normal(size=120)).round(4)
    table.to_csv(tmp_path / "measurements.csv", index=False)
    batch = (
        (ROOT / "README.md").read_text().split("## Run it as a batch job")[1].split("```console\n")[1].split("```")[0]
    )
    for line in batch.splitlines():
        command = line.removeprefix("$ ").split("#")[0].strip()
        if command.startswith("dsel plan"):
            shell.run(command)
            shell.record.pop()  # it states the memory of this machine
        else:
            shell.run(command)
    shell.compare("batch.txt")
    for name in ("job.yaml",):
        (tmp_path / name).unlink()

    write_field_data(tmp_path / "field.csv")
    said = shell.run("dsel ingest field.csv field.zarr --target yield", code=65)
    assert "'broken' is not a number" in said
    assert "categorical" in said
    said = shell.run("dsel ingest field.csv field.zarr --target yield --na broken --categorical site")
    assert "missing values in 2 columns" in said
    assert "constant: firmware" in said
    shell.run("dsel init field.zarr --k 3 --out field.yaml")
    job = tmp_path / "field.yaml"
    filled = job.read_text()
    job.write_text(filled.replace("missing: mean", "missing: refuse"))
    said = shell.run("dsel run field.yaml", code=65)
    assert "missing" in said
    job.write_text(filled)
    said = shell.run("dsel run field.yaml")
    assert "sensor_1, sensor_4" in said
    assert "south" in said
    shell.run("dsel certify field.result --time 60s")
    shell.run("dsel status field.result")
    shell.run("dsel export field.result")
    shell.run("dsel predict field.result field.zarr predictions.zarr")
    shell.compare("field.txt")

    if NEW:  # what the message of dsel report says where matplotlib is missing
        assert "dsel[plots]" in shell.run("dsel report field.result --out report.html", code=69)
        subprocess.run([shell.programs / "pip", "install", "-q", f"{ROOT}[plots]"], check=True)
    shell.run("dsel report field.result --out report.html")
    assert "sensor_4" in (tmp_path / "report.html").read_text()
    predictions = xr.open_zarr(tmp_path / "predictions.zarr", consolidated=False)["prediction"]
    error = predictions[:, 0] - pd.read_csv(tmp_path / "field.csv")["yield"].to_numpy()
    assert float((error**2).mean()) < 1.0  # the variance of the target is about 7


@pytest.mark.parametrize("text", ["in 1.3 s", "read in 250 ms", "11.5 MiB"])
def test_what_differs_between_two_runs_is_not_compared(text: str, tmp_path: Path) -> None:
    assert not re.search(r"\d", normalised(text, tmp_path))

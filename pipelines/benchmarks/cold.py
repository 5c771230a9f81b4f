"""Measure the first selection and the first proof on a machine: all that is compiled, imports included.

Each is a fresh process with an empty cache of kernels. Times are processor seconds of the process and of those that it
starts, so that the load of the machine matters less. A second process with the same cache shows what compilation adds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np

from dsel._lib.types import Floats
from pipelines.table import json_line, text_table

#: What is measured, and whether a selection is made before.
STEPS = {"select": False, "certify": True, "certify, 300 columns": True}


def run(quick: bool) -> dict[str, float]:
    """Print a table and, as the last line, the processor seconds as JSON. quick: without the second process."""
    found: dict[str, float] = {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for step, selects in STEPS.items():
            selection = Path(folder, f"{step}.dsel")
            if selects:
                _seconds("save", step, selection, Path(folder, "before"))
            cold = _seconds("run", step, selection, Path(folder, step))
            warm = float("nan") if quick else _seconds("run", step, selection, Path(folder, step))
            rows.append([step, f"{cold:.1f}", f"{warm:.1f}"])
            found[step] = cold
            print(f"{step}: {cold:.1f} s", flush=True)
    print(text_table(["CPU seconds", "empty cache", "compiled"], rows))
    report = {
        "cold_select_cpu_s": found["select"],
        "cold_certify_cpu_s": found["certify"],
        "cold_certify_relaxation_cpu_s": found["certify, 300 columns"],
    }
    print(json_line(report))
    return report


def _seconds(what: str, step: str, selection: Path, cache: Path) -> float:
    """Return the processor seconds of a process that runs a step with this cache."""
    command = [sys.executable, "-m", "pipelines.benchmarks.cold", what, step, str(selection)]
    before = _spent()
    subprocess.run(command, check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"})
    return _spent() - before


def _spent() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _data(step: str) -> tuple[Floats, Floats]:
    """Return sonar, or data whose proof is by relaxations."""
    if "300" not in step:
        with resources.as_file(resources.files("dsel.examples").joinpath("sonar.csv")) as file:
            table = np.loadtxt(file, delimiter=",", skiprows=1)
        return table[:, :60], table[:, 60]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 300))
    return X, np.asarray(X[:, ::30].sum(axis=1) + rng.normal(size=500))


def _step(what: str, step: str, selection: Path) -> None:
    """Run a step in this process: select, save a selection, or prove a saved one."""
    import dsel

    X, y = _data(step)
    if what == "save" or step == "select":
        found = dsel.select(X, y, k=8)
        if what == "save":
            found.save(selection)
    else:
        dsel.certify(dsel.open_selection(selection), X, y, seconds=10)


if __name__ == "__main__":
    _step(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

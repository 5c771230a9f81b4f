"""Measure the first selection and the first proof on a machine: all that is compiled, imports included.

Each is a fresh process with an empty cache of kernels. The Python files are compiled before, as pip does when it
installs a package. Times are processor seconds of the process and of those that it starts. A second process with the
same cache shows what compilation adds. `certify` is a proof of sonar, and `relaxation` of 300 columns, with a limit of
ten seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import import_module, resources
from pathlib import Path

import numpy as np

from dsel._lib.types import Floats
from pipelines.benchmarks.protocol import Benchmark, Figures, Work

_RELAXATION = "relaxation"


def _part(step: str) -> Work:
    """Return the work that measures a step. Its quick form leaves out the process with a full cache."""

    def run(quick: bool) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            selection = Path(folder, "selection.dsel")
            _seconds("import", step, selection, Path(folder, "before"))
            if step != "select":
                _seconds("save", step, selection, Path(folder, "before"))
            name = "certify_relaxation" if step == _RELAXATION else step
            found = {f"cold_{name}_cpu_s": _seconds("run", step, selection, Path(folder, "cache"))}
            if not quick:
                found[f"compiled_{name}_cpu_s"] = _seconds("run", step, selection, Path(folder, "cache"))
            return found

    return run


def _seconds(what: str, step: str, selection: Path, cache: Path) -> float:
    """Return the processor seconds of a process that runs a step with this cache."""
    command = [sys.executable, "-m", "pipelines.benchmarks.cold", what, step, str(selection)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(selection.with_name("bytecode"))}
    before = _spent()
    subprocess.run(command, check=True, env=environment)
    return _spent() - before


def _spent() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _data(step: str) -> tuple[Floats, Floats]:
    """Return sonar, or data whose proof is by relaxations."""
    if step != _RELAXATION:
        with resources.as_file(resources.files("dsel.examples").joinpath("sonar.csv")) as file:
            table = np.loadtxt(file, delimiter=",", skiprows=1)
        return table[:, :60], table[:, 60]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 300))
    return X, np.asarray(X[:, ::30].sum(axis=1) + rng.normal(size=500))


def _step(what: str, step: str, selection: Path) -> None:
    """Run a step in this process: import, select, save a selection, or prove a saved one."""
    import dsel

    if what == "import":
        for name in ("api.run_proofs", "search.portfolio.method"):
            import_module(f"dsel.{name}")
        return
    X, y = _data(step)
    if what == "save" or step == "select":
        found = dsel.select(X, y, k=8)
        if what == "save":
            found.save(selection)
    else:
        dsel.certify(dsel.open_selection(selection), X, y, seconds=10)


BENCHMARK = Benchmark(
    "cold", "Measure the first selection and the first proofs on a machine, compilation included.",
    {step: _part(step) for step in ("select", "certify", _RELAXATION)},
)  # fmt: skip

if __name__ == "__main__":
    _step(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

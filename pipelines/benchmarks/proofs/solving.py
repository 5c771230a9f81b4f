"""Run one solver on problems, in separate processes with limits of processor time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from pipelines.benchmarks.proofs.environments import Unavailable, python_of, rscript

ADAPTERS = Path(__file__).with_name("adapters.py")
R_SCRIPT = Path(__file__).with_name("solve.R")
#: Solvers of R: the packages.
R_PACKAGES = {"leaps": "leaps", "lmsubsets": "lmSubsets"}
#: Solvers with "+M" are given a bound on the coefficients, so that they prove less.
SOLVERS = ("dsel", "dsel+M", "el0ps", "el0ps+M", "l0bnb", "l0bnb+M", "okridge", "leaps", "lmsubsets")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: Leaps and bounds takes days from about this many columns on.
_LEAPS_COLUMNS = 100
TOO_MANY = "too many columns"
#: A proof counts up to this many times the limit of time.
_LATE = 1.2
#: The wall time of a solve, as a multiple of its processor time, before it is taken for hung; and that of the start.
_WALL, _START = 20, 900


@dataclass(frozen=True)
class Answer:
    """What one solver says about one problem.

    state: "proved", "open", "skipped" or "failed". value: f of its columns. bound: on f of all sets of k columns.
    """

    state: str
    seconds: float = 0.0
    preparation: float = 0.0
    value: float = float("inf")
    bound: float = 0.0
    note: str = ""

    @property
    def gap(self) -> float:
        """The share of the value that the bound leaves."""
        return max(self.value - self.bound, 0.0) / self.value if 0.0 < self.value < float("inf") else 1.0


def squared_error(X: Floats, y: Floats, lam: float, S: Sequence[int]) -> tuple[float, Floats]:
    """Return f(S) and the coefficients."""
    A = X[:, list(S)]
    b: Floats = np.asarray(np.linalg.lstsq(A.T @ A + lam * np.eye(len(S)), A.T @ y, rcond=None)[0], np.float64)
    return float(np.sum((y - A @ b) ** 2) + lam * np.sum(b**2)), b


def penalty_for(values: Mapping[int, float], k: int) -> float | None:
    """Return a price of a column for which k columns are the best of the sizes in `values`, or None."""
    least = max([(values[k] - f) / (size - k) for size, f in values.items() if size > k], default=0.0)
    most = min([(f - values[k]) / (k - size) for size, f in values.items() if size < k], default=0.0)
    least = max(least, 1e-3 * most)
    return None if least >= most else float(np.sqrt(least * most))


def obstacle(solver: str, options: Mapping[str, Any], n: int) -> str:
    """Return why a solver cannot state a problem, or an empty string."""
    if solver.startswith(("el0ps", "l0bnb")):
        if options["penalty"] is None:
            return "no penalty gives k columns"
        if not (options["lam"] or solver.endswith("+M")):
            return "needs a ridge penalty or +M"
    if solver in R_PACKAGES and n > _LEAPS_COLUMNS:
        return TOO_MANY
    return ""


def call(name: str, problems: Sequence[Path], seconds: float) -> dict[Path, dict[str, Any]]:
    """Return what a solver says about each problem, as JSON."""
    if name in R_PACKAGES:
        return {problem: _by_r(name, problem, seconds) for problem in problems}
    try:
        python = python_of("dsel" if name == "front" else name.removesuffix("+M"))
    except Unavailable as error:
        return {problem: {"skipped": str(error)} for problem in problems}
    message = _run([str(python), str(ADAPTERS), name, *map(str, problems)], len(problems) * _WALL * seconds + _START)
    return {problem: _read(Path(f"{problem}.{name}.json"), message, seconds) for problem in problems}


def _by_r(name: str, problem: Path, seconds: float) -> dict[str, Any]:
    options = json.loads(problem.read_text())
    X, y, answer = np.load(options["X"]), np.load(options["y"]), Path(f"{problem}.{name}.json")
    try:
        program = rscript(R_PACKAGES[name])
    except Unavailable as error:
        return {"skipped": str(error)}
    files = [problem.with_suffix(suffix) for suffix in (".X", ".y")]
    for file, values in zip(files, (X, y), strict=True):
        file.write_bytes(np.asfortranarray(values).tobytes(order="F"))
    sizes = [str(value) for value in (*X.shape, options["k"], options["lam"])]
    limited = f'ulimit -t {int(_LATE * seconds) + 5}; exec "$@"'
    command = [
        "bash",
        "-c",
        limited,
        "-",
        program,
        str(R_SCRIPT),
        R_PACKAGES[name],
        *map(str, files),
        *sizes,
        str(answer),
    ]
    return _read(answer, _run(command, _WALL * seconds + _START), seconds)


def _run(command: Sequence[str], wall: float) -> str:
    """Run a command with one thread, and return what it said last if it failed."""
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            status = process.wait(wall)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that it made
            process.wait()
            return "it did not end"
        said.seek(0)
        lines = said.read().strip().splitlines()
    return "" if status == 0 else (lines[-1][:200] if lines else f"exit status {status}")


def _read(answer: Path, message: str, seconds: float) -> dict[str, Any]:
    if answer.exists():
        found: dict[str, Any] = json.loads(answer.read_text())
        answer.unlink()
        return found
    return {"stopped": message or f"no answer after {_LATE * seconds:.0f} s", "seconds": _LATE * seconds}


def answer_of(found: Mapping[str, Any], X: Floats, y: Floats, options: Mapping[str, Any]) -> Answer:
    """Return the answer, with f computed from the data."""
    if "skipped" in found:
        return Answer("skipped", note=found["skipped"])
    if "failed" in found:
        return Answer("failed", note=found["failed"])
    if "stopped" in found:
        return Answer("open", found["seconds"], note=found["stopped"])
    S, k = found["indices"], options["k"]
    right = 0 < len(S) <= k
    value = squared_error(X, y, options["lam"], S)[0] if right else float("inf")
    bound = value if found["bound"] is None else found["bound"]
    note = "" if right else f"found {len(S)} columns"
    proved = found["proved"] and right
    if proved and found["seconds"] > _LATE * options["seconds"]:
        proved, note = False, "proved after the limit of time"
    return Answer("proved" if proved else "open", found["seconds"], found["preparation"], value, bound, note)

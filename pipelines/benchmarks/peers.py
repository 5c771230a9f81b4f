"""Compare selections by dsel with those of other packages: quality, time and memory, on the same data in the same run.

Each tool has a process with one thread in the environment of its package. Rounds go through the tools in turn, so that
other load affects all of them; the medians of processor seconds count. Compilation is not counted. Quality is the
share of the squared norm of the target, or of X itself, that k columns explain.

A tool is ahead where no method of dsel explains as much in its time. Times below 5 ms count as 5 ms.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from dsel._lib.types import Floats
from pipelines.benchmarks import peers_worker
from pipelines.benchmarks.proofs.environments import Unavailable, python_of
from pipelines.benchmarks.protocol import Benchmark, Figures
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.papers.datasets import load
from pipelines.papers.preprocess import standardized, unit_columns
from pipelines.table import text_table

#: Seconds of wall time after which a tool is stopped; it is left out on larger data of the same part.
_LIMIT, _QUICK_LIMIT = 20.0, 4.0
#: Seconds for the start, and for what a tool compiles.
_START = 90.0
#: Rounds, of which the median counts.
_ROUNDS = 3
#: Shorter times make no difference, and shares are equal up to rounding.
RESOLUTION, _EQUAL = 0.005, 1e-9
#: Why a selection in a few milliseconds takes longer than the search of another package.
_STEPS = (
    "; select also sums all inner products, looks for near-copies and substitutes, and checks the answer on the data"
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Problem:
    """Choose k columns of X for y, or for X itself. size: what is drawn on the axis of a picture."""

    name: str
    X: Floats
    y: Floats | None
    k: int
    size: int = 0

    def explained(self, S: Sequence[int]) -> float:
        """Return the share of the squared norm that some columns explain."""
        Y = self.X if self.y is None else self.y[:, None]
        A = self.X[:, list(S)]
        return 1.0 - float(np.square(Y - A @ np.linalg.lstsq(A, Y, rcond=None)[0]).sum() / np.square(Y).sum())


class Process:
    """A process that selects by one tool, or for rough figures by all tools of an environment."""

    def __init__(self, package: str) -> None:
        self._asked: set[str] = set()
        python = sys.executable if package == "dsel" else str(python_of("abess"))
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
        self._process = subprocess.Popen(
            [python, peers_worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment,
        )  # fmt: skip

    def ask(self, request: Figures, limit: float) -> Figures:
        """Return the answer, or that there was none in the time. The first answer of a tool may take longer."""
        wait = limit if request["tool"] in self._asked else limit + _START
        self._asked.add(request["tool"])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], wait)[0]:
            return {"failed": f"more than {limit:.0f} s"}
        line = self._process.stdout.readline()
        answer: Figures = json.loads(line) if line else {"failed": "the process ended"}
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


@dataclass
class Comparison:
    """What the tools did on some problems: rows of `problem`, `size`, `tool`, `explained`, `seconds`, `peak`."""

    rows: list[Figures] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def behind(self) -> list[Figures]:
        """Return the rows in which another tool is ahead."""
        found = []
        for row in (r for r in self.rows if not r["tool"].startswith("dsel")):
            own = [r for r in self.rows if r["problem"] == row["problem"] and r["tool"].startswith("dsel")]
            good = [r for r in own if r["explained"] >= row["explained"] - _EQUAL]
            best = min(good, key=lambda r: r["seconds"], default=None)
            factor = None if best is None else max(best["seconds"], RESOLUTION) / max(row["seconds"], RESOLUTION)
            if factor is not None and factor <= 1.0:
                continue
            most = max(own, key=lambda r: r["explained"], default={"tool": "dsel", "explained": 0.0})
            other = best or most
            both = f"{other['tool']} explains {other['explained']:.4f}, {row['tool']} {row['explained']:.4f}"
            found.append({
                "problem": row["problem"], "peer": row["tool"], "seconds": row["seconds"], "factor": factor,
                "dsel": None if best is None else best["seconds"], "reason": both + ("" if best is None else _STEPS),
            })  # fmt: skip
        return found

    def figures(self, name: str) -> Figures:
        """Print the tables, and return the figures with the rows under a name."""
        for problem in dict.fromkeys(row["problem"] for row in self.rows):
            rows = sorted((r for r in self.rows if r["problem"] == problem), key=lambda r: -r["explained"])
            cells = [
                [r["tool"], f"{r['explained']:.6f}", f"{r['seconds']:.4f}", f"{r['peak'] / 2**20:.0f}"] for r in rows
            ]
            print(text_table((problem, "explained", "CPU s", "MiB more"), cells) + "\n", flush=True)
        for tool, why in {**self.failed, **self.absent}.items():
            print(f"{tool}: {why}")
        return {
            name: self.rows, "behind": self.behind(), "tools_failed": self.failed, "absent": self.absent,
            "tool_versions": self.versions,
        }  # fmt: skip


def compare(problems: Iterable[Problem], quick: bool, leave_out: Sequence[str] = ()) -> Comparison:
    """Run all tools on problems of growing size."""
    found, tools = Comparison(), dict[str, Process]()
    with tempfile.TemporaryDirectory() as place:
        try:
            for problem in problems:
                print(f"{problem.name} ...", flush=True)
                _solve(problem, Path(place), quick, leave_out, tools, found)
        finally:
            for tool in tools.values():
                tool.close()
    return found


def _solve(
    problem: Problem, folder: Path, quick: bool, leave_out: Sequence[str], tools: dict[str, Process], found: Comparison
) -> None:  # fmt: skip
    listed = peers_worker.ITSELF if problem.y is None else peers_worker.TARGET
    request: Figures = {"X": str(folder / "X.npy"), "y": "", "k": problem.k}
    np.save(folder / "X.npy", problem.X)
    if problem.y is not None:
        np.save(folder / "y.npy", problem.y)
        request["y"] = str(folder / "y.npy")
    answers: dict[str, list[Figures]] = {}
    for _ in range(1 if quick else _ROUNDS):
        for name, (package, _) in listed.items():
            if name in (*leave_out, *found.failed, *found.absent, *(_SLOW if quick else ())):
                continue
            where = str(package == "dsel") if quick else name
            try:
                tool = tools[where] = tools.get(where) or Process(package)
            except Unavailable as error:
                found.absent[name] = str(error)
                continue
            answer = tool.ask({"tool": name, **request}, _QUICK_LIMIT if quick else _LIMIT)
            if "absent" in answer:
                found.absent[name] = answer["absent"]
            elif "failed" in answer:
                found.failed[name] = f"{problem.name}: {answer['failed']}"
                tools.pop(where).close()
            else:
                answers.setdefault(name, []).append(answer)
                found.versions[package] = answer["version"]
    for name, given in answers.items():
        found.rows.append({
            "problem": problem.name, "size": problem.size, "tool": name,
            "explained": problem.explained(given[0]["indices"]), "seconds": median(a["seconds"] for a in given),
            "peak": max(a["peak"] for a in given),
        })  # fmt: skip


def _drawn(m: int, n: int, k: int, size: int) -> Problem:
    X, y = regression_data(m, n)
    return Problem(f"{m} x {n}, k = {k}", X, y[:, 0], k, size)


def quality(quick: bool) -> Figures:
    """Compare quality and time on data with a target."""
    problems = [_drawn(2000, 500, 8, 500)]
    for name, k in (("sonar", 8),) if quick else (("sonar", 8), ("clean1", 8), ("madelon", 10), ("colon-cancer", 5)):
        arrays = load(name)
        if arrays is not None:
            y = standardized(arrays["Y"][:, :1])[:, 0]
            problems.append(Problem(f"{name}, k = {k}", standardized(arrays["X"]), y, k))
    return compare(problems, quick).figures("quality_and_time")


def rows(quick: bool) -> Figures:
    """Compare the time as the number of rows grows."""
    heights = (2000,) if quick else (1000, 10_000, 100_000)
    problems = (_drawn(m, 200, 10, m) for m in heights)
    return compare(problems, quick, _SLOW).figures("time_by_rows")


def columns(quick: bool) -> Figures:
    """Compare the time as the number of columns grows."""
    widths = (1000,) if quick else (300, 1000, 3000, 10_000, 30_000)
    problems = (_drawn(500, n, 10, n) for n in widths)
    return compare(problems, quick, _SLOW).figures("time_by_columns")


def itself(quick: bool) -> Figures:
    """Compare selections of columns for X itself."""
    problems = [Problem("low rank, 500 x 300, k = 20", low_rank_data(500, 300, 60), None, 20, 300)]
    for name, k in () if quick else (("sonar", 10), ("madelon", 20), ("communities-crime", 20)):
        arrays = load(name)
        if arrays is not None:
            X = np.where(np.isnan(arrays["X"]), np.nan_to_num(np.nanmean(arrays["X"], axis=0)), arrays["X"])
            problems.append(Problem(f"{name} as Y = X, k = {k}", unit_columns(X), None, k))
    return compare(problems, quick).figures("columns_of_x")


#: Tools that take minutes on the larger data.
_SLOW = ("SFS", "ZOOpt POSS", "skglm MCP", "dsel portfolio 1 s")

BENCHMARK = Benchmark(
    "peers",
    "Compare selections with those of other packages: quality, time and memory.",
    {"quality": quality, "rows": rows, "columns": columns, "x-itself": itself},
)

"""How every benchmark runs: in parts, each in a new process with a limit of time, with one result file each.

A part is a function of `quick` that prints its progress and returns figures. A part whose result of the same commit is
in the folder is not run again by `all`, so that an interrupted call continues with the next part.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.table import json_line

Figures = dict[str, Any]
Work = Callable[[bool], Figures]

#: Seconds of each benchmark by default, and of all of them with --quick.
SECONDS, QUICK_SECONDS = 600.0, 285.0
#: A part may take this many times its equal share of the time that is left.
_SHARES = 4.0
#: The name of the part of a benchmark without parts; that of the benchmark will do, too.
WHOLE = "all"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: what the command line calls it, what it measures, and its parts by name."""

    name: str
    summary: str
    parts: Mapping[str, Work]


def run(
    benchmarks: Sequence[Benchmark], quick: bool, out: Path, only: Sequence[str] = (), seconds: float | None = None
) -> dict[str, Figures]:  # fmt: skip
    """Return the figures of all parts, by "benchmark" or "benchmark part".

    seconds: of each benchmark; with `quick`, of all together. only: names of parts, which run again.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Figures] = {}
    left = [(b, part) for b in benchmarks for part in b.parts if not only or part in only]
    end = time.monotonic() + (seconds or QUICK_SECONDS)
    for i, (benchmark, part) in enumerate(left):
        if not quick and (i == 0 or left[i - 1][0] is not benchmark):
            end = time.monotonic() + (seconds or SECONDS)
        others = sum(quick or b is benchmark for b, _ in left[i:])
        remaining = end - time.monotonic()
        name = benchmark.name if part in (WHOLE, benchmark.name) else f"{benchmark.name} {part}"
        file = out / f"{'quick-' if quick else ''}{name.replace(' ', '-')}.json"
        limit = min(remaining, _SHARES * remaining / others)
        kept = None if only else _kept(file, name)
        found[name] = kept or _made(benchmark, part, quick, file, limit)
        print(f"[{i + 1} of {len(left)}] {name}: {_summary(found[name])}", flush=True)
    return found


def _kept(file: Path, name: str) -> Figures | None:
    """Return the saved figures of the same commit, or None."""
    if not file.exists():
        return None
    figures: Figures = json.loads(file.read_text())
    if figures["commit"] != commit():
        return None
    print(f"{name}: kept from {file}", flush=True)
    return figures


@cache
def commit() -> str:
    """Return the commit of this checkout, or an empty string outside of one."""
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip()


def _made(benchmark: Benchmark, part: str, quick: bool, file: Path, limit: float) -> Figures:
    """Run a part in a new process, and return its figures. They are saved unless it failed or was not begun."""
    if limit < 1.0:
        return {"left": "no time was left; the next call continues here"}
    new, started, before = file.with_suffix(".new"), time.monotonic(), _children_seconds()
    command = [sys.executable, "-m", "pipelines.benchmarks", "part", benchmark.name, part, str(new)]
    process = subprocess.Popen([*command, *(["--quick"] if quick else [])], start_new_session=True)
    timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))  # also the processes that it made
    timer.start()
    try:
        status = process.wait()
    finally:
        stopped = timer.finished.is_set()
        timer.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    took = time.monotonic() - started
    if stopped and not new.exists():
        figures: Figures = {"stopped": f"after {limit:.0f} s"}
    elif status or not new.exists():
        return {"failed": f"exit status {status}", "seconds": took}
    else:
        used = _children_seconds() - before
        figures = {**json.loads(new.read_text()), "seconds": took, "cpu_seconds": used}
        new.unlink()
    file.write_text(json_line({**figures, "commit": commit()}))
    return figures


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_part(benchmark: Benchmark, part: str, quick: bool, file: Path) -> None:
    """Run a part in this process and save its figures."""
    figures = benchmark.parts[part](quick)
    file.write_text(json.dumps(figures, default=float))


def _summary(figures: Figures) -> str:
    if (why := next((key for key in ("left", "failed", "stopped") if key in figures), None)) is not None:
        return f"{why}: {figures[why]}"
    return f"{figures['seconds']:.1f} s, {figures['cpu_seconds']:.1f} CPU s"

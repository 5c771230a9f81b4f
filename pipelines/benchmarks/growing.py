"""Nightly runs on a store that grows by 1 % each night, compared with a run from the beginning on the same rows.

Every run is a `dsel run` in a new process, and its time includes the start of the interpreter and of the workers. A
nightly run reads the new segment, once for the statistics, once for the final check and once for the comparison with
the run before. The first night also reads the chosen columns of the rows before, since the check of a store that has
never grown is not kept.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

import dsel
from dsel.data.generate import generate_regression
from pipelines.benchmarks import growing_proofs
from pipelines.benchmarks.protocol import Benchmark
from pipelines.table import text_table

WORKERS, MEMORY = 2, "1GiB"
#: The nights after the first one; the ratios are those of their medians.
NIGHTS = 3


@dataclass(frozen=True)
class Run:
    """One `dsel run`: wall and processor seconds with its workers, the bytes read, and the answer.

    check_bytes: of the final check, as planned if the same columns are chosen.
    """

    seconds: float
    cpu: float
    bytes_read: int
    check_bytes: int
    answer: tuple[object, ...]


def run(quick: bool) -> dict[str, float]:
    """Print a table, and return the ratios."""
    m, n = (200_000, 400) if quick else (1_000_000, 1000)
    with tempfile.TemporaryDirectory() as temporary:
        folder, night = Path(temporary), m // 100
        store = folder / "data.zarr"
        generate_regression(store, samples=m - (NIGHTS + 1) * night, features=n, worker_memory=1 << 30)
        source, runs = _night(store, folder, night), []
        nightly = _job(folder, "nightly")
        _run(nightly)
        for _ in range(NIGHTS + 1):
            dsel.append(source / "x.npy", store, y=source / "y.npy", again=True)
            runs.append(_run(nightly))
        full, unchanged = _run(_job(folder, "full")), _run(nightly)
        kept = [file.stat().st_size for file in (folder / "nightly-sums").iterdir() if file.name.count("-") == 2]
    first, later = runs[0], runs[1:]
    assert later[-1].answer == full.answer == unchanged.answer
    named = {"from the beginning": full, "first night": first}
    named |= {f"night {i + 2}": one for i, one in enumerate(later)} | {"unchanged": unchanged}
    rows = [
        [name, f"{one.seconds:.2f}", f"{one.cpu:.2f}", f"{one.bytes_read / 1e6:.1f}", f"{one.check_bytes / 1e6:.1f}"]
        for name, one in named.items()
    ]
    print(f"{m} x {n} float32, {4e-9 * m * n:.2f} GB, {WORKERS} workers of {MEMORY}; a night adds {night} rows")
    print(text_table(["", "seconds", "CPU s", "MB read", "by the check"], rows))
    found = {
        "bytes_ratio": median(one.bytes_read for one in later) / full.bytes_read,
        "check_share": median(one.check_bytes for one in later) / full.bytes_read,
        "time_ratio": median(one.seconds for one in later) / full.seconds,
        "cpu_ratio": median(one.cpu for one in later) / full.cpu,
        "first_night_time_ratio": first.seconds / full.seconds,
        "unchanged_bytes": float(unchanged.bytes_read),
        "unchanged_seconds": unchanged.seconds,
        "unchanged_cpu_seconds": unchanged.cpu,
        "bytes_kept_per_segment": float(max(kept)),
    }
    return found


def _night(store: Path, folder: Path, rows: int) -> Path:
    """Write the rows of a night, taken from the first ones of the store, as files to append."""
    opened, source = dsel.open_store(store), folder / "night"
    source.mkdir()
    np.save(source / "x.npy", opened.x.read(0, rows))
    assert opened.y is not None
    np.save(source / "y.npy", opened.y.read(0, rows))
    return source


def _job(folder: Path, name: str) -> Path:
    """Write a job with a folder of runs and its own saved sums."""
    values = {
        "store": "data.zarr", "k": 20, "method": "forward", "out": {"folder": name, "keep": 30},
        "statistics_folder": f"{name}-sums", "cluster": {"local": {"workers": WORKERS, "memory": MEMORY}},
    }  # fmt: skip
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _run(job: Path) -> Run:
    """Run a job as a command, and measure it."""
    planned = json.loads(_dsel("plan", job, "--json").stdout)
    check = sum(stage["bytes_read"] for stage in planned["stages"] if stage["name"] == "check")
    latest = job.parent / job.stem / "latest"
    before = os.readlink(latest) if latest.is_symlink() else None
    began, spent = time.perf_counter(), _child_seconds()
    _dsel("run", job)
    seconds, cpu = time.perf_counter() - began, _child_seconds() - spent
    found = dsel.open_selection(latest)
    if os.readlink(latest) == before:  # nothing was new
        return Run(seconds, cpu, 0, 0, (found.indices, found.error, found.front))
    return Run(seconds, cpu, found.bytes_read, check, (found.indices, found.error, found.front))


def _dsel(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dsel", *map(str, words)]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _child_seconds() -> float:
    """Return the processor seconds of the processes that have ended, with those that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


BENCHMARK = Benchmark(
    "growing",
    "Compare nightly runs, and proofs, on a store that has grown by 1 % with those from the beginning.",
    {"runs": run, "proofs": growing_proofs.run},
)

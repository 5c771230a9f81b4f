"""A nightly run on a store that has grown by 1 %, compared with a run from the beginning on the same store.

The store was appended to twice, and selected from after each append. The last of these runs is the nightly one. A
nightly run reads the new segment, and for the final check the rows of the chosen columns that it has not read before.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dsel
from dsel.api import select_from
from dsel.config.request import SelectionRequest
from dsel.data.dataset import as_dataset
from dsel.data.generate import generate_regression
from dsel.engine.clusters.local import local_cluster
from dsel.passes.accounting import log_passes
from dsel.passes.statistics_cache import StatisticsCache
from pipelines.table import json_line, text_table

WORKERS, MEMORY = 2, "1GiB"


@dataclass(frozen=True)
class Run:
    """One selection: its duration, the bytes that it read, those of the final check, and the answer."""

    seconds: float
    bytes_read: int
    check_bytes: int
    answer: tuple[object, ...]


def run(quick: bool) -> dict[str, float]:
    """Print a table and, as the last line, the ratios as JSON."""
    m, n = (50_000, 200) if quick else (1_000_000, 1000)
    with tempfile.TemporaryDirectory() as temporary, local_cluster(WORKERS, MEMORY):
        folder = Path(temporary)
        store, night = folder / "data.zarr", m // 100
        generate_regression(store, samples=m - 2 * night, features=n, worker_memory=1 << 30)
        source = _night(store, folder, night)
        cache = StatisticsCache(folder / "artefacts")
        _select(store, cache)
        for _ in range(2):
            dsel.append(source / "x.npy", store, y=source / "y.npy", again=True)
            nightly = _select(store, cache)
        full = _select(store, StatisticsCache(folder / "other"))
        again = _select(store, cache)
        kept = [file.stat().st_size for file in (folder / "artefacts").iterdir() if file.name.count("-") == 2]
    assert nightly.answer == full.answer == again.answer
    runs = {"from the beginning": full, "nightly": nightly, "unchanged": again}
    rows = [[name, f"{one.seconds:.2f}", f"{one.bytes_read / 1e6:.1f}", f"{one.check_bytes / 1e6:.1f}"]
            for name, one in runs.items()]  # fmt: skip
    print(f"{m} x {n} float32, {4e-9 * m * n:.2f} GB, {WORKERS} workers of {MEMORY}; a night adds {night} rows")
    print(text_table(["", "seconds", "MB read", "by the check"], rows))
    found = {
        "bytes_ratio": nightly.bytes_read / full.bytes_read,
        "check_share": nightly.check_bytes / full.bytes_read,
        "time_ratio": nightly.seconds / full.seconds,
        "unchanged_bytes": float(again.bytes_read),
        "bytes_kept_per_segment": float(max(kept)),
    }
    print(json_line(found))
    return found


def _night(store: Path, folder: Path, rows: int) -> Path:
    """Write the rows of a night, taken from the first ones of the store, as files to append."""
    opened, source = dsel.open_store(store), folder / "night"
    source.mkdir()
    np.save(source / "x.npy", opened.x.read(0, rows))
    assert opened.y is not None
    np.save(source / "y.npy", opened.y.read(0, rows))
    return source


def _select(store: Path, cache: StatisticsCache) -> Run:
    request = SelectionRequest(k=20, method="forward")
    began = time.perf_counter()
    with log_passes() as made:
        found = select_from(as_dataset(str(store)), request, cache)
    seconds = time.perf_counter() - began
    check = sum(one.bytes_read for one in made.records if one.name == "check")
    return Run(seconds, made.bytes_read, check, (found.indices, found.error, found.front))

"""Ten sites write the sums of their rows: the answer compared with that of all rows, and the bytes that travel."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dsel
from pipelines.benchmarks.protocol import Benchmark

SITES, COLUMNS, CHOSEN = 10, 500, 10

Rows = tuple[NDArray[np.float32], NDArray[np.float32]]


def run(quick: bool) -> dict[str, float]:
    """Print and return the figures."""
    rows = 10_000 if quick else 100_000
    sites = [_site(number, rows) for number in range(SITES)]
    with tempfile.TemporaryDirectory() as temporary:
        files = [Path(temporary) / f"{number}.sums" for number in range(SITES)]
        began = time.perf_counter()
        for file, (X, y) in zip(files, sites, strict=True):
            dsel.sums(X, y).save(file)
        summed = time.perf_counter()
        found = dsel.select(dsel.open_sums(*files), k=CHOSEN, method="exchange")
        selected = time.perf_counter()
        travelled = sum(file.stat().st_size for file in files)
    X, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
    whole = dsel.select(X, y, k=CHOSEN, method="exchange")
    print(f"{SITES} sites of {rows:,} x {COLUMNS} float32, k = {CHOSEN}: {sorted(found.indices)}")
    figures = {
        "same_columns": float(sorted(found.indices) == sorted(whole.indices)),
        "relative_difference_of_f": abs(found.error - whole.error) / whole.error,
        "bytes_that_travel": float(travelled), "bytes_of_rows": float(X.nbytes + y.nbytes),
        "seconds_of_a_site": (summed - began) / SITES, "seconds_of_the_selection": selected - summed,
    }  # fmt: skip
    return figures


def _site(number: int, rows: int) -> Rows:
    """Return the rows of a site, whose means and scales are its own."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((rows, COLUMNS), np.float32)
    X += 0.5 * np.roll(X, 1, axis=1)
    X = X * np.float32(1.0 + 0.1 * number) + np.float32(number)
    y = X[:, :: COLUMNS // CHOSEN][:, :CHOSEN].sum(axis=1) + 3.0 * rng.standard_normal(rows, np.float32)
    return X, y


BENCHMARK = Benchmark("sums", "Select from the sums of ten sites, and compare with all rows.", {"sums": run})

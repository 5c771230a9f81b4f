"""What rounds of leave-one-out cost with and without a cache on disk, and how often to write it anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Speeds:
    """Bytes read and written and multiplications and additions done in a second, by one worker.

    The defaults are those of one of two shared cores on warm files: uncompressed chunks read and written with their
    checksums, float64 products of tall blocks with OpenBLAS. Only their ratios matter, and the choice is flat about
    its best: taken as half or twice that, they make a run at most a third longer (a test says so).
    """

    read: float = 1.4e9
    write: float = 0.8e9
    flops: float = 2.5e10


def seconds_of_rounds(
    every: int | None, start: int, k: int, m: int, n: int, x_bytes: float, speeds: Speeds | None = None
) -> float:
    """Seconds of one worker for the passes of rounds with start, ..., k - 1 columns chosen, of m x n data.

    A round reads X (x_bytes) and recomputes what is in the cache: 2 s flops an element with s columns. With a cache
    rewritten every `every` rounds it reads that (8 bytes an element), recomputes for the columns since; a rewrite
    reads the last cache (the first one X), works it forward, and writes it. What every round costs anyway (the errors
    themselves) is left out. None: no cache.
    """
    speeds = speeds or Speeds()
    elements = float(m) * n
    s = np.arange(start, k)
    if every is None:
        return float((x_bytes / speeds.read + 2.0 * s * elements / speeds.flops).sum())
    since = (s - start) % every
    cached = s - start >= every
    rewrite = cached & (since == 0)
    first = s - start == every
    read = np.where(cached & ~first, 8.0 * elements, x_bytes)
    recomputed = np.where(cached, since, s) + np.where(rewrite, np.where(first, s, every), 0)
    written = np.where(rewrite, 8.0 * elements, 0.0)
    return float((read / speeds.read + written / speeds.write + 2.0 * recomputed * elements / speeds.flops).sum())


def best_every(start: int, k: int, m: int, n: int, x_bytes: float, speeds: Speeds | None = None) -> int | None:
    """Rounds between rewrites that cost the least; None where no cache does. O(k) evaluations at most, of O(k)."""
    rounds = k - start
    plain = seconds_of_rounds(None, start, k, m, n, x_bytes, speeds)
    if rounds < 2:
        return None
    choices = _choices(rounds)
    costs = [seconds_of_rounds(int(p), start, k, m, n, x_bytes, speeds) for p in choices]
    best = int(np.argmin(costs))
    return int(choices[best]) if costs[best] < plain else None


def _choices(rounds: int) -> NDArray[np.int64]:
    """1, 2, ... up to rounds - 1; of many, some hundreds in a geometric row."""
    return np.unique(np.round(np.geomspace(1, rounds - 1, 200))).astype(np.int64)

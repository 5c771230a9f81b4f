"""The cost of rounds of leave-one-out with and without a cache on disk, and how often to rewrite it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Speeds:
    """Bytes read and written, and multiplications and additions, per second of one worker.

    The defaults are those of one of two shared cores on warm files: uncompressed chunks read and written with their
    checksums, float64 products of tall blocks with OpenBLAS. Only their ratios matter, and the optimum is flat: with
    half or twice these values, a run takes at most a third longer (tests/passes/test_loo_cost_model.py).
    """

    read: float = 1.4e9
    write: float = 0.8e9
    flops: float = 2.5e10


def seconds_of_rounds(
    every: int | None, start: int, k: int, m: int, n: int, x_bytes: float, speeds: Speeds | None = None
) -> float:
    """Return the seconds of one worker for the passes of rounds with start, ..., k - 1 columns chosen (m x n data).

    A round reads X (x_bytes) and computes what the cache would hold: 2 s flops per element with s columns. With a cache
    that is rewritten every `every` rounds it reads the cache (8 bytes per element) and computes for the columns since.
    A rewrite reads the last cache (the first one X), updates it, and writes it. What every round costs in any case (the
    errors themselves) is left out. every None: no cache.
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
    """Return the rounds between rewrites that cost least; None if no cache costs less. O(k) evaluations of O(k)."""
    rounds = k - start
    plain = seconds_of_rounds(None, start, k, m, n, x_bytes, speeds)
    if rounds < 2:
        return None
    choices = _choices(rounds)
    costs = [seconds_of_rounds(int(p), start, k, m, n, x_bytes, speeds) for p in choices]
    best = int(np.argmin(costs))
    return int(choices[best]) if costs[best] < plain else None


def _choices(rounds: int) -> NDArray[np.int64]:
    """Return 1, 2, ..., rounds - 1, or at most 200 of them in geometric steps."""
    return np.unique(np.round(np.geomspace(1, rounds - 1, 200))).astype(np.int64)

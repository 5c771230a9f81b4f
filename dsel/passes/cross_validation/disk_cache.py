"""Rounds of leave-one-out on rows out of core, with the paper's cache on disk, rewritten every few rounds.

The cost of rounds of leave-one-out with and without a cache on disk, and how often to rewrite it.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.data.dataset import Dataset
from dsel.errors import CapacityError, DataError, OutputError
from dsel.objective.cross_validation.leave_one_out import LooRound, n_errors
from dsel.objective.cross_validation.losses import Loss
from dsel.passes.cross_validation.cache_file import CacheFile, Target, cache_file_bytes, require_room


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


log = logging.getLogger("dsel")

#: After this many updates the cache is computed again from the data, so that rounding errors cannot add up.
REBUILD_AFTER = 64

#: A cache that is lost is computed again at most this often.
LOSSES = 3

FoldEvery = int | Literal["auto", "never"]


class Sweep(Protocol):
    """One pass of a round.

    It reads the rows of a cache for the first `start` columns of the round, or X without a cache. Where there is a
    target, it writes the rows of the cache for the first `stop` columns.
    """

    def __call__(
        self, round: LooRound, source: Dataset | None = None, start: int = 0, stop: int = 0,
        target: Target | None = None,
    ) -> Floats:  # fmt: skip
        """Return the errors of the round."""
        ...


class DiskCache:
    """The cache of a search, for rounds of insertions only.

    The cache is rewritten every p = `every` rounds: with s columns chosen it is that of the first
    first + p floor((s - first) / p), also after an interruption. A round that rewrites it reads the last cache, or X if
    there is none, and writes the new one in the same pass. A cache that cannot be read is computed again from X. A
    cache that cannot be written is an error, unless it is `optional`: then it is a warning, and the rounds continue
    without a cache.

    Parameters
    ----------
    dataset : Dataset
        The data.
    every : int
        Rounds between two rewrites.
    first : int
        The columns that are chosen before the first round.
    width : int
        Columns of the cache besides R.
    key : dict
        What the cache depends on besides the data, lam and the chosen columns.
    folder : Path, optional
        Where it is written, and kept for a later run; by default a temporary folder.
    optional : bool
        Whether the rounds continue where it cannot be written.
    columns : int, optional
        Columns of a chunk of R, by default all.
    """

    def __init__(
        self, dataset: Dataset, *, every: int, first: int, width: int, key: dict[str, Any], folder: Path | None = None,
        optional: bool = False, columns: int | None = None,
    ) -> None:  # fmt: skip
        self.every, self._first, self._folder, self._optional = every, first, folder, optional
        self._dataset, self._width, self._key, self._columns = dataset, width, key, columns
        self._disk: CacheFile | None = None
        self._losses = 0
        self.rewrites = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def counts(self) -> dict[str, Any]:
        """Return what the cache cost."""
        return {
            "fold_every": self.every, "cache_rewrites": self.rewrites,
            "cache_bytes_read": self.bytes_read, "cache_bytes_written": self.bytes_written,
        }  # fmt: skip

    def close(self) -> None:
        """Remove the cache."""
        if self._disk is not None:
            self._disk.close()

    def errors(self, round: LooRound, sweep: Sweep, lam: float) -> Floats:
        """Return the errors of a round, in one pass over X or over the cache."""
        since = round.members.size - self._first
        size = round.members.size - since % self.every
        if since < self.every or self._losses > LOSSES:
            return sweep(round)
        try:
            return self._with_cache(self._open(lam), round, size, sweep)
        except (CapacityError, OutputError) as error:
            if not self._optional:
                raise
            log.warning("continuing without the cache of rows on disk: %s", error)
            self._losses = LOSSES + 1
            self.close()
            return sweep(round)

    def _open(self, lam: float) -> CacheFile:
        if self._disk is None:
            fingerprint = self._dataset.fingerprint
            key = None if fingerprint is None else {"input": fingerprint, **self._key, "lam": lam}
            self._disk = CacheFile(self._folder, self._dataset, self._width, key, self._columns)
            self._disk.reuse()
        return self._disk

    def _with_cache(self, disk: CacheFile, round: LooRound, size: int, sweep: Sweep) -> Floats:
        if disk.columns != round.members[:size].tolist():
            return self._rewritten(disk, round, size, sweep)
        try:
            return self._read(disk, round, sweep)
        except DataError as error:
            self._lost(disk, error)
            return self._rewritten(disk, round, size, sweep) if self._losses <= LOSSES else sweep(round)

    def _read(self, disk: CacheFile, round: LooRound, sweep: Sweep, **rewrite: Any) -> Floats:
        """Make a pass over the rows of the cache."""
        rows = disk.rows()
        errors = sweep(round, rows, len(disk.columns), **rewrite)
        self.bytes_read += rows.nbytes
        flat = np.zeros(n_errors(round))
        flat[: 1 + round.n] = errors[: 1 + round.n]
        return flat

    def _rewritten(self, disk: CacheFile, round: LooRound, size: int, sweep: Sweep) -> Floats:
        """Return the errors of a round, from the pass that writes the cache for its first `size` columns."""
        members = round.members.tolist()
        before = len(disk.columns)
        forward = 0 < before < size and disk.columns == members[:before] and disk.age < REBUILD_AFTER

        def fill(target: Target) -> Floats:
            if forward:
                return self._read(disk, round, sweep, stop=size, target=target)
            return sweep(round, stop=size, target=target)

        try:
            errors = disk.rewrite(members[:size], disk.age + 1 if forward else 0, fill)
        except DataError as error:
            if not forward:  # it is the data that cannot be read
                raise
            self._lost(disk, error)
            return self._rewritten(disk, round, size, sweep)
        self.rewrites += 1
        self.bytes_written += disk.nbytes
        flat = np.zeros(n_errors(round))
        flat[: 1 + round.n] = errors[: 1 + round.n]
        return flat

    def _lost(self, disk: CacheFile, error: DataError) -> None:
        self._losses += 1
        log.warning("the cache of rows on disk is lost and computed again from the data: %s", error)
        disk.drop()


def rounds_between_rewrites(
    asked: FoldEvery, dataset: Dataset, start: int, k: int, folder: Path | None, *, nbytes: int, direction: str
) -> int | None:
    """Return the rounds between rewrites of the cache: as asked, or by the cost model if there is a folder for it.

    nbytes: of the cache on disk. None: no cache. Errors: CapacityError where it is requested and does not fit the disk.
    """
    if asked == "never" or dataset.in_memory:
        return None
    if isinstance(asked, int):
        require_room(folder or Path(tempfile.gettempdir()), nbytes, exists=False if folder is None else None)
        return asked
    if folder is None or direction != "forward":
        return None
    every = best_every(start, k, dataset.m, dataset.n, dataset.nbytes)
    if every is None:
        return None
    try:
        require_room(folder, nbytes)
    except CapacityError as error:
        log.info("no cache of rows on disk, although it would save time: %s", error.what)
        return None
    return every


def bytes_on_disk(dataset: Dataset, loss: Loss, columns: int | None = None) -> int:
    """Return the bytes of one cache on disk. columns: of a chunk of R, where the rounds read blocks of columns."""
    return cache_file_bytes(dataset, row_width(dataset, loss) if columns is None else 0, columns)


def row_width(dataset: Dataset, loss: Loss) -> int:
    """Return the columns of the cache of rows besides R: e, g and, for the zero-one loss, labels."""
    return dataset.n_targets * (1 if loss == "squared" else 2) + 1

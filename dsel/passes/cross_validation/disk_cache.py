"""Rounds of leave-one-out on rows out of core, with the paper's cache on disk, rewritten every few rounds."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dsel._lib.types import Floats
from dsel.config.request import Preprocess
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.errors import CapacityError, DataError, OutputError
from dsel.objective.cross_validation.leave_one_out import (
    Intercept,
    LooProblem,
    LooRound,
    n_errors,
    prepare,
    remaining_problem,
)
from dsel.objective.cross_validation.losses import Loss, RowTransform, advance_rows, residual_row_errors, residual_rows
from dsel.passes.cross_validation.cache_file import CacheFile, Target, cache_file_bytes, require_room
from dsel.passes.cross_validation.cost_model import best_every
from dsel.passes.cross_validation.rows import DatasetRows, loo_pass
from dsel.passes.reduce_blocks import PerBlock
from dsel.passes.statistics import Statistics

log = logging.getLogger("dsel")

#: After this many updates the cache is computed again from the data, so that rounding errors cannot add up.
REBUILD_AFTER = 64

#: A cache that is lost is computed again at most this often.
LOSSES = 3

FoldEvery = int | Literal["auto", "never"]


def _from_data(
    x: Any, y: Any, block: Block, base: LooRound, round: LooRound, transform: RowTransform, target: Target, where: str
) -> Floats:
    """Write the cache of one block of X, and return the errors of a round on it."""
    flat = np.zeros(n_errors(round))
    for start, stop in target.pieces(block):
        piece = slice(start - block.start, stop - block.start)
        R, vectors = residual_rows(x[piece], y[piece], base, transform, f"{where}, rows {start} to {stop}")
        target.write(start, R, vectors)
        flat += residual_row_errors(R, vectors, round)
    return flat


def _from_cache(R: Any, vectors: Any, block: Block, base: LooRound, round: LooRound, target: Target) -> Floats:
    """Update one block of the last cache, write it, and return the errors of a round on it."""
    R, vectors = advance_rows(R, vectors, base)
    target.write(block.start, R, vectors)
    return residual_row_errors(R, vectors, round)


def _on_cache(R: Any, vectors: Any, block: Block, round: LooRound) -> Floats:
    return residual_row_errors(R, vectors, round)


class CachedRows(DatasetRows):
    """The rows of a dataset, as `DatasetRows` for insertions only, with a cache on disk.

    The cache is rewritten every p = `every` rounds: with s columns chosen it is that of the first
    start + p floor((s - start) / p), also after an interruption. A round that rewrites it reads the last cache, or X if
    there is none, and writes the new one in the same pass. A cache that cannot be read is computed again from X. A
    cache that cannot be written is an error, unless it is `optional`: then it is a warning, and the rounds continue
    without a cache.
    """

    def __init__(
        self, dataset: Dataset, statistics: Statistics, preprocess: Preprocess, *, every: int, start: int,
        folder: Path | None = None, optional: bool = False, loss: Loss = "squared",
        intercept: Intercept | None = None, fill: Floats | None = None, engine: Engine = THREADS,
    ) -> None:  # fmt: skip
        super().__init__(dataset, statistics, preprocess, loss=loss, intercept=intercept, fill=fill, engine=engine)
        self.every, self._start, self._folder, self._optional = every, start, folder, optional
        self._options = {"preprocess": preprocess, "loss": loss, "missing": "refuse" if fill is None else "mean"}
        self._problem: LooProblem | None = None
        self._disk: CacheFile | None = None
        self._left: LooProblem | None = None  # that of the cache's rows
        self._losses = 0
        self.rewrites = 0
        self.cache_bytes_read = 0
        self.cache_bytes_written = 0

    def problem(self, lam: float) -> LooProblem:
        """Return what all rounds share. Later rounds are those of this problem."""
        self._problem = super().problem(lam)
        return self._problem

    def counts(self) -> dict[str, Any]:
        """Return what the cache cost."""
        return {
            **super().counts(), "fold_every": self.every, "cache_rewrites": self.rewrites,
            "cache_bytes_read": self.cache_bytes_read, "cache_bytes_written": self.cache_bytes_written,
        }  # fmt: skip

    def close(self) -> None:
        """Remove the cache."""
        if self._disk is not None:
            self._disk.close()

    def errors(self, round: LooRound) -> Floats:
        """Return the errors of a round, in one pass over X or over the cache."""
        since = round.members.size - self._start
        size = round.members.size - since % self.every
        if since < self.every or round.remove or self._losses > LOSSES:
            return super().errors(round)
        try:
            return self._with_cache(round, size)
        except (CapacityError, OutputError) as error:
            if not self._optional:
                raise
            log.warning("continuing without the cache of rows on disk: %s", error)
            self._losses = LOSSES + 1
            self._cache_on_disk().close()
            return super().errors(round)

    def _cache_on_disk(self) -> CacheFile:
        assert self._problem is not None
        if self._disk is None:
            width = _width(self._dataset, self.transform.loss)
            key = None
            if self._dataset.fingerprint is not None:
                problem = {"lam": self._problem.lam, "intercept": self._problem.intercept}
                key = {"input": self._dataset.fingerprint, **self._options, **problem}
            self._disk = CacheFile(self._folder, self._dataset, width, key)
            self._disk.reuse()
        return self._disk

    def _with_cache(self, round: LooRound, size: int) -> Floats:
        disk, members = self._cache_on_disk(), [int(j) for j in round.members]
        if disk.columns != members[:size]:
            return self._rewritten(round, size)
        if self._left is None:
            self._left = self._problem_with(round, size)[1]
        inner = prepare(self._left, round.members[size:])
        try:
            found = self._read_cache(_on_cache, inner)
        except DataError as error:
            self._losses += 1
            log.warning("the cache of rows on disk is lost and computed again from the data: %s", error)
            disk.drop()
            return self._rewritten(round, size) if self._losses <= LOSSES else super().errors(round)
        return _padded(found, round)

    def _problem_with(self, round: LooRound, size: int) -> tuple[LooRound, LooProblem]:
        assert self._problem is not None
        base = prepare(self._problem, round.members[:size])
        return base, remaining_problem(self._problem, base)

    def _rewritten(self, round: LooRound, size: int) -> Floats:
        """Return the errors of a round, from the pass that writes the cache for its first `size` columns."""
        disk, members = self._cache_on_disk(), [int(j) for j in round.members]
        base, left = self._problem_with(round, size)
        inner = prepare(left, round.members[size:])
        before = len(disk.columns)
        forward = 0 < before < size and disk.columns == members[:before] and disk.age < REBUILD_AFTER
        old = (self._left or self._problem_with(round, before)[1]) if forward else None

        def fill(target: Target) -> Floats:
            if old is None:
                write = replace(loo_pass(self._dataset, inner.members.size), per_block=_from_data)
                return self._run(write, base=base, round=inner, target=target)
            return self._read_cache(_from_cache, inner, base=prepare(old, round.members[before:size]), target=target)

        try:
            found = disk.rewrite(members[:size], disk.age + 1 if forward else 0, fill)
        except DataError as error:
            if old is None:  # it is the data that cannot be read
                raise
            self._losses += 1
            log.warning("the cache of rows on disk is lost and computed again from the data: %s", error)
            disk.drop()
            return self._rewritten(round, size)
        self._left = left
        self.rewrites += 1
        self.cache_bytes_written += disk.nbytes
        return _padded(found, round)

    def _read_cache(self, per_block: PerBlock, inner: LooRound, **arguments: Any) -> Floats:
        """Make a pass over the rows of the cache."""
        rows = self._cache_on_disk().rows()
        one = replace(loo_pass(rows, inner.members.size), name="cached rows", per_block=per_block, whole=False)
        found: Floats = one.run(self._engine, round=inner, **arguments)
        self.cache_bytes_read += rows.nbytes
        return found


def _padded(found: Floats, round: LooRound) -> Floats:
    """Return errors in the layout of the whole round."""
    flat = np.zeros(n_errors(round))
    flat[: 1 + round.n] = found[: 1 + round.n]
    return flat


def rounds_between_rewrites(
    asked: FoldEvery, dataset: Dataset, start: int, k: int, folder: Path | None, *, loss: Loss, direction: str
) -> int | None:
    """Return the rounds between rewrites of the cache: as asked, or by the cost model if there is a folder for it.

    None: no cache. Errors: CapacityError where it is requested and does not fit the disk.
    """
    if asked == "never" or dataset.in_memory:
        return None
    nbytes = cache_file_bytes(dataset, _width(dataset, loss))
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


def bytes_on_disk(dataset: Dataset, loss: Loss) -> int:
    """Return the bytes of one cache on disk."""
    return cache_file_bytes(dataset, _width(dataset, loss))


def _width(dataset: Dataset, loss: Loss) -> int:
    """Return the columns of the cache besides R: e, g and, for the zero-one loss, labels."""
    return dataset.n_targets * (1 if loss == "squared" else 2) + 1

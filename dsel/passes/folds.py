"""Moments of every fold of the rows, from one pass."""

from __future__ import annotations

import logging
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.splitmix import GOLDEN, mix
from dsel._lib.types import Floats
from dsel.config.request import Missing
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.errors import OptionError
from dsel.passes.gram import fill_values, partial_bytes
from dsel.passes.moments import Moments, block_moments, merge
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Statistics
from dsel.passes.statistics_cache import StatisticsCache

log = logging.getLogger("dsel")

#: By (repetition, fold): moments during the pass, then statistics of the folds that have weight.
FoldMoments = dict[tuple[int, int], Moments]
FoldStatistics = dict[tuple[int, int], Statistics]


def folds_of(start: int, stop: int, folds: int, seed: int, repetition: int) -> NDArray[np.int64]:
    """Return the fold of each row in [start, stop), drawn by a hash of row, seed and repetition.

    Each of `folds` consecutive rows is in another fold. So folds differ by one row at most, whatever the chunks.
    """
    first = start - start % folds
    rows = np.arange(first, stop + (-stop) % folds, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = rows
        for word in (seed, repetition):
            z = _next(z ^ _next(np.full(1, word, np.uint64) + np.uint64(0x51ED2701)))
    places = np.argsort(z.reshape(-1, folds), axis=1, kind="stable")
    return np.asarray(np.argsort(places, axis=1).ravel()[start - first : stop - first], np.int64)


def _next(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers of SplitMix64 that follow the states z."""
    return np.asarray(mix(z + GOLDEN))


def _block_folds(
    x: Any, y: Any, block: Block, folds: int, repeats: int, seed: int, where: str, fill: Floats | None = None
) -> FoldMoments:
    found: FoldMoments = {}
    place = f"{where}, rows {block.start} to {block.stop}"
    for repetition in range(repeats):
        fold = folds_of(block.start, block.stop, folds, seed, repetition)
        for f in np.unique(fold).tolist():
            rows = np.flatnonzero(fold == f)
            w = None if block.w is None else block.w[rows]
            found[repetition, f] = block_moments(x[rows], None if y is None else y[rows], fill, place, block.start, w)
    return found


def _merge_folds(a: FoldMoments, b: FoldMoments) -> FoldMoments:
    for key, moments in b.items():
        a[key] = merge(a[key], moments) if key in a else moments
    return a


def fold_pass(dataset: Dataset, folds: int, repeats: int, seed: int) -> RowPass:
    """Return the pass that sums the moments of every fold. Argument: fill."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    per_block = partial(_block_folds, folds=folds, repeats=repeats, seed=seed, where=dataset.name)
    size = folds * repeats * partial_bytes(dataset)
    return RowPass("folds", dataset, per_block, _merge_folds, size, repeats * m * n * (n + 2 * N))


def require_rows(dataset: Dataset, folds: int) -> None:
    """Raise OptionError for more folds than rows."""
    if dataset.m < max(folds, 4):
        raise OptionError(f"{dataset.m} rows are too few for {folds} folds.", "Take fewer folds, or leave-one-out.")


def fold_statistics(
    dataset: Dataset, folds: int, repeats: int, seed: int, *, missing: Missing = "refuse",
    engine: Engine = THREADS,
) -> tuple[Statistics, FoldStatistics]:  # fmt: skip
    """Return the statistics of all rows and those of every fold, from one pass (two with `missing="mean"`).

    A worker holds folds x repeats partial sums of n (n + N) float64. Errors: OptionError for more folds than rows.
    """
    require_rows(dataset, folds)
    fill = fill_values(dataset, missing, engine)
    found: FoldMoments = fold_pass(dataset, folds, repeats, seed).run(engine, fill=fill)
    first = [deepcopy(found[key]) for key in sorted(found) if key[0] == 0]
    whole = Statistics.from_moments(reduce(merge, first))
    return whole, {key: Statistics.from_moments(found[key]) for key in sorted(found) if found[key].weight > 0.0}


def fold_keys(
    fingerprint: str, missing: Missing, folds: int, repeats: int, seed: int
) -> tuple[dict[str, Any], dict[tuple[int, int], dict[str, Any]]]:
    """Return the cache keys of the statistics of all rows, which are saved last, and of every fold."""
    key = partial(StatisticsCache.key, fingerprint, missing=missing, folds=folds, repeats=repeats, seed=seed)
    places = [(repetition, fold) for repetition in range(repeats) for fold in range(folds)]
    return key(part="all"), {place: key(part=list(place)) for place in places}


def cached_fold_statistics(
    dataset: Dataset, folds: int, repeats: int, seed: int, cache: StatisticsCache | None, *,
    missing: Missing = "refuse", engine: Engine = THREADS,
) -> tuple[Statistics, FoldStatistics]:  # fmt: skip
    """Return the same as `fold_statistics`, without a pass if the cache has all of it."""
    if cache is None or dataset.fingerprint is None:
        return fold_statistics(dataset, folds, repeats, seed, missing=missing, engine=engine)
    key, places = fold_keys(dataset.fingerprint, missing, folds, repeats, seed)
    whole = cache.load(key)
    parts = {place: cache.load(places[place]) for place in places if isinstance(whole, Statistics)}
    found = {place: part for place, part in parts.items() if isinstance(part, Statistics)}
    if isinstance(whole, Statistics) and len(found) == len(places):
        log.info("statistics of the folds of %s are saved in %s: the data are not read", dataset.name, cache.folder)
        return whole, found
    whole, found = fold_statistics(dataset, folds, repeats, seed, missing=missing, engine=engine)
    for place, part in found.items():
        cache.save(places[place], part)
    cache.save(key, whole)
    return whole, found

"""Moments of every fold of the rows from one pass, and cross-validation on them without another."""

from __future__ import annotations

import logging
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.splitmix import GOLDEN, mix
from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.errors import DataError, OptionError
from dsel.objective.leave_one_out.formulas import LooProblem, LooRound
from dsel.objective.leave_one_out.kfold import Fold, fold_errors, fold_lam_errors
from dsel.passes.cache import StatisticsCache
from dsel.passes.gram import Missing, fill_values, partial_bytes
from dsel.passes.leave_one_out.rows import DatasetRows
from dsel.passes.moments import Moments, block_moments, merge
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Preprocess, Statistics

log = logging.getLogger("dsel")

#: By (repetition, fold): moments while the pass goes on, statistics when it is done (of folds that have weight).
FoldMoments = dict[tuple[int, int], Moments]
FoldStatistics = dict[tuple[int, int], Statistics]


def folds_of(start: int, stop: int, folds: int, seed: int, repetition: int) -> NDArray[np.int64]:
    """The fold of each row in [start, stop): of every `folds` rows in succession each falls into another fold, in an
    order drawn by a hash of row, seed and repetition. Folds differ by one row at most, and chunks do not matter."""
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


class FoldRows(DatasetRows):
    """Cross-validation in place of leave-one-out: errors from the moments of the folds, averaged over repetitions."""

    def __init__(
        self, dataset: Dataset, statistics: Statistics, preprocess: Preprocess, folds: FoldStatistics, *,
        fill: Floats | None = None, engine: Engine = THREADS,
    ) -> None:  # fmt: skip
        super().__init__(dataset, statistics, preprocess, fill=fill, engine=engine)
        self._repeats = 1 + max(repetition for repetition, _ in folds)
        unusable = statistics.unusable(preprocess)
        self._folds = [
            self._fold(statistics, folds[key], preprocess in ("standardize", "center"), unusable)
            for key in sorted(folds)
        ]

    def errors(self, round: LooRound) -> Floats:
        """No pass."""
        return np.asarray(sum(fold_errors(fold, round, self._lam) for fold in self._folds)) / self._repeats

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """No pass."""
        return np.asarray(sum(fold_lam_errors(fold, lams, members) for fold in self._folds)) / self._repeats

    def problem(self, lam: float) -> LooProblem:
        """What all rounds share; from now on errors are those with this lam."""
        self._lam = lam
        return super().problem(lam)

    def _fold(self, whole: Statistics, part: Statistics, centred: bool, unusable: NDArray[np.bool_]) -> Fold:
        m, inside, K = whole.weight, part.weight, part.K
        outside = m - inside
        if not outside > 0.0:
            raise DataError("One fold holds all of the weight.", "Take other folds (folds, seed), or leave-one-out.")
        mean_x = (m * whole.mean_x - inside * part.mean_x) / outside
        mean_y = (m * whole.mean_y - inside * part.mean_y) / outside
        weight = inside * outside / m
        d_x, d_y = part.mean_x - mean_x, part.mean_y - mean_y
        K_out = whole.K - K - weight * np.outer(d_x, d_x)
        B_out = whole.B - part.B - weight * np.outer(d_x, d_y)
        at_x, at_y = (mean_x, mean_y) if centred else (np.zeros_like(mean_x), np.zeros_like(mean_y))
        K, B, yy = _about(K, part.B, part.yy, inside, part.mean_x - at_x, part.mean_y - at_y)
        K_out, B_out, _ = _about(K_out, B_out, part.yy, outside, mean_x - at_x, mean_y - at_y)
        scale_x, scale_y = self.view.scale_x, self.view.scale_y
        K_out, K = K_out / np.outer(scale_x, scale_x), K / np.outer(scale_x, scale_x)
        B_out, B = B_out / np.outer(scale_x, scale_y), B / np.outer(scale_x, scale_y)
        for array in (K_out, K, B_out, B):
            array[unusable] = 0.0
        K_out[:, unusable] = 0.0
        K[:, unusable] = 0.0
        none = np.zeros(0)
        rows = whole.m - part.m
        problem = LooProblem(K_out, B_out, none, none, rows, outside, 0.0, "center" if centred else "none")
        return Fold(problem, K, B, float((yy / scale_y**2).sum()))


def _about(K: Floats, B: Floats, yy: Floats, weight: float, d_x: Floats, d_y: Floats) -> tuple[Floats, Floats, Floats]:
    """Moments about points that lie d_x, d_y below the means."""
    return K + weight * np.outer(d_x, d_x), B + weight * np.outer(d_x, d_y), yy + weight * d_y**2

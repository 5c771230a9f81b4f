"""Errors on left-out rows for rounds of greedy RLS: one stateless pass per round, or a cache for rows in memory.

Cross-validation by folds uses the moments of the folds, and makes no pass over the data.

Errors of subsets on rows that were left out, from the moments of these rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess
from dsel.data.blocks import Block, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import DataError, OptionError
from dsel.objective.column_objective import independent_columns
from dsel.objective.cross_validation.kfold import Fold, fold_errors, fold_ridge_errors
from dsel.objective.cross_validation.leave_one_out import (
    GramRows,
    Intercept,
    LooProblem,
    LooRound,
    WholeGram,
    member_cross,
    member_gram,
    n_errors,
)
from dsel.objective.cross_validation.losses import (
    Loss,
    RowTransform,
    advance_rows,
    block_errors,
    block_ridge_errors,
    label_error,
    residual_row_errors,
    residual_rows,
    ridge_spectrum,
)
from dsel.objective.cross_validation.memory_cache import LooCache, cache_bytes
from dsel.passes.cross_validation.disk_cache import DiskCache, Target
from dsel.passes.gram import FoldStatistics
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import ColumnScales, Statistics, combined

#: Share of the available memory that the cache of rows in memory may take.
_CACHE_SHARE = 0.5


def _from_data(
    x: Any, y: Any, block: Block, base: LooRound, round: LooRound, transform: RowTransform, target: Target, where: str
) -> Floats:
    """Write the cache of one block of X, and return the errors of a round on it."""
    flat = np.zeros(n_errors(round))
    for start, stop in target.pieces(block.start, block.stop):
        piece = slice(start - block.start, stop - block.start)
        R, vectors = residual_rows(x[piece], y[piece], base, transform, f"{where}, rows {start} to {stop - 1}")
        target.write(start, R, vectors)
        flat += residual_row_errors(R, vectors, round)
    return flat


def _from_cache(R: Any, vectors: Any, block: Block, base: LooRound, round: LooRound, target: Target | None) -> Floats:
    """Update one block of the last cache and write it if there is a target; return the errors of a round on it."""
    if target is not None:
        R, vectors = advance_rows(R, vectors, base)
        target.write(block.start, R, vectors)
    return residual_row_errors(R, vectors, round)


def loo_pass(dataset: Dataset, chosen: int) -> RowPass:
    """Return the pass of one round, with `chosen` columns chosen before. Arguments: round, transform, where."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    flops = m * n * (2 * chosen + 8 * N)
    return RowPass("leave-one-out", dataset, block_errors, np.add, 8 * (1 + n + chosen), flops, share=True)


def penalty_pass(dataset: Dataset, penalties: int) -> RowPass:
    """Return the pass that compares some ridge penalties. Arguments: spectrum, transform, where."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    flops = 2 * m * n * (n + penalties * N)
    return RowPass("lam", dataset, block_ridge_errors, np.add, 8 * penalties, flops, share=True)


def check_intercept(intercept: Intercept | None, preprocess: Preprocess) -> Intercept:
    """Return the intercept for a preprocessing; by default "center" where that centers, else "none".

    Errors: OptionError for centering by the means of all rows without the intercept that makes it exact, and the
    reverse.
    """
    centered = preprocess in ("standardize", "center")
    if intercept is None:
        return "center" if centered else "none"
    if centered != (intercept == "center"):
        raise OptionError(
            f"intercept {intercept} does not go with preprocess {preprocess}: leave-one-out would not be exact.",
            "center goes with standardize and center; column and none with unit and none.",
        )
    return intercept


class DatasetRows:
    """The rows of a dataset, and the errors when each row is left out.

    loss, intercept: as the options of greedy-rls. fill: (n,) values that replace NaN. disk: a cache on disk.
    """

    def __init__(
        self, dataset: Dataset, statistics: ColumnScales, preprocess: Preprocess, *, loss: Loss = "squared",
        intercept: Intercept | None = None, fill: Floats | None = None, engine: Engine = THREADS,
        disk: DiskCache | None = None,
    ) -> None:  # fmt: skip
        if not dataset.n_targets:
            raise OptionError("Leave-one-out selection needs targets Y.", "Give Y, or choose another method.")
        self.intercept = check_intercept(intercept, preprocess)
        zero_coded = np.zeros(dataset.n_targets, bool)
        if loss == "zero-one":
            zero_coded = _zero_coded(statistics)
            statistics = _recoded(statistics, zero_coded)
        self._dataset, self._statistics, self._engine = dataset, statistics, engine
        self._preprocess = preprocess
        scaling = statistics.scaling(preprocess)
        self.transform = RowTransform(
            scaling.center_x, scaling.scale_x, scaling.center_y, scaling.scale_y, loss, zero_coded, fill
        )
        self._lam = 0.0
        self._gram: GramRows | None = None
        self._cache: LooCache | None = None
        self._disk = disk
        self.passes = 0

    @property
    def weight(self) -> float:
        """Return the sum of the rows' weights; without weights their number."""
        return self._statistics.weight

    @property
    def recoded(self) -> bool:
        """Return whether labels 0 and 1 count as -1 and +1."""
        return bool(self.transform.zero_coded.any())

    def problem(self, lam: float) -> LooProblem:
        """Return what all rounds share. Later errors are those with this lam."""
        statistics, transform = self._statistics, self.transform
        if self._gram is None:
            self._gram = self._gram_rows()
        self._lam = lam
        weight = statistics.weight
        B, _ = statistics.targets(self._preprocess, statistics.B)
        sum_x = weight * (statistics.mean_x - transform.center_x) / transform.scale_x
        sum_y = weight * (statistics.mean_y - transform.center_y) / transform.scale_y
        return LooProblem(self._gram, B, sum_x, sum_y, statistics.m, weight, lam, self.intercept)

    def _gram_rows(self) -> GramRows:
        """Return K, from the statistics."""
        assert isinstance(self._statistics, Statistics)
        return WholeGram(self._statistics.objective(self._preprocess).K)

    def in_data_units(self, fit: tuple[Ints, Floats, Floats]) -> tuple[Floats, Floats]:
        """Return coefficients (s, N) and intercept (N,) for X and Y as they are, from those in preprocessed units."""
        S, w, constant = fit
        transform = self.transform
        coefficients = w * transform.scale_y / transform.scale_x[S][:, None]
        intercept = constant * transform.scale_y + transform.center_y - transform.center_x[S] @ coefficients
        half = transform.zero_coded
        return np.where(half, coefficients / 2.0, coefficients), np.where(half, (intercept + 1.0) / 2.0, intercept)

    def r2_with_ones(self, fit: tuple[Ints, Floats, Floats]) -> float:
        """Return R2 of a fit with a column of ones, as `Selection.score` has it for these rows."""
        S, w, constant = fit
        statistics, transform = self._statistics, self.transform
        problem, v = self.problem(self._lam), np.vstack([constant, w])
        raw = (statistics.yy + statistics.weight * statistics.mean_y**2) / transform.scale_y**2
        errors = raw + np.sum(v * (member_gram(problem, S) @ v - 2.0 * member_cross(problem, S)), axis=0)
        units = np.square(transform.scale_y / np.where(transform.zero_coded, 2.0, 1.0))
        squares = statistics.yy / transform.scale_y**2
        varies = squares > 0.0
        scale = (squares if self._preprocess == "unit" else 1.0 / units)[varies]
        return float(1.0 - (errors[varies] / scale).sum() / (squares[varies] / scale).sum())

    def errors(self, round: LooRound) -> Floats:
        """Return the errors of a round, in one pass; in none if rows and cache are in memory."""
        forward = round.insert and not round.remove
        if forward and self._in_memory(round):
            assert self._cache is not None
            return self._cache.errors(round)
        if forward and self._disk is not None:
            return self._disk.errors(round, self.sweep, self._lam)
        return self.sweep(round)

    def _in_memory(self, round: LooRound) -> bool:
        """Return whether a cache in memory holds the rows; make it if it fits."""
        dataset = self._dataset
        if self._cache is None and would_cache(dataset):
            parts = [(b.x, load_block(b.y, dataset.target_columns), load_weights(b.w)) for b in dataset.blocks]
            self._cache = LooCache(parts, self.transform, round.base_leverage)
        return self._cache is not None

    def sweep(
        self, round: LooRound, source: Dataset | None = None, start: int = 0, stop: int = 0,
        target: Target | None = None,
    ) -> Floats:  # fmt: skip
        """Return the errors of a round, in one pass; see `dsel.passes.cross_validation.disk_cache.Sweep`."""
        if source is None and target is None:
            return self._run(loo_pass(self._dataset, round.members.size), round=round)
        inner = round.after(max(start, stop))
        one = loo_pass(self._dataset if source is None else source, inner.members.size)
        if source is None:
            write = replace(one, per_block=_from_data)
            return self._run(write, base=round.first(stop), round=inner, target=target)
        base = round.after(start).first(stop - start) if target is not None else inner
        read = replace(one, name="cached rows", per_block=_from_cache, whole=False)
        return np.asarray(read.run(self._engine, round=inner, base=base, target=target))

    def counts(self) -> dict[str, Any]:
        """Return what the rounds cost besides passes over X."""
        return {} if self._disk is None else self._disk.counts()

    def close(self) -> None:
        """Remove what the rounds keep on disk."""
        if self._disk is not None:
            self._disk.close()

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """Return the error of each penalty with these columns, in one pass."""
        spectrum = ridge_spectrum(self.problem(0.0), members, lams)
        return self._run(penalty_pass(self._dataset, lams.size), spectrum=spectrum)

    def _run(self, one: RowPass, **arguments: Any) -> Floats:
        self.passes += 1
        return np.asarray(one.run(self._engine, transform=self.transform, where=self._dataset.name, **arguments))


def would_cache(dataset: Dataset) -> bool:
    """Return whether rounds of insertions need no passes: the rows and their cache fit the memory."""
    room = _CACHE_SHARE * float(psutil.virtual_memory().available)
    return dataset.in_memory and cache_bytes(dataset.m, dataset.n) <= room


def _zero_coded(statistics: ColumnScales) -> NDArray[np.bool_]:
    """Return which targets have labels 0 and 1 instead of -1 and +1, by their sums: (N,).

    Each block checks its labels.
    """
    mean = statistics.mean_y
    squares = statistics.yy / statistics.weight + mean**2
    zero_coded = np.abs(squares - mean) <= 1e-9
    both = ~zero_coded & (np.abs(squares - 1.0) > 1e-9)
    if both.any():
        raise label_error(f"target {int(np.flatnonzero(both)[0])} has mean {mean[both][0]:.6g}")
    return np.asarray(zero_coded & ~statistics.constant_y)


def _recoded(statistics: ColumnScales, zero_coded: NDArray[np.bool_]) -> ColumnScales:
    """Return the statistics with 2 y - 1 in place of these targets."""
    factor = np.where(zero_coded, 2.0, 1.0)
    mean_y = np.where(zero_coded, 2.0 * statistics.mean_y - 1.0, statistics.mean_y)
    return replace(statistics, mean_y=mean_y, B=statistics.B * factor, yy=statistics.yy * factor**2)


class FoldRows(DatasetRows):
    """Cross-validation in place of leave-one-out: errors from the moments of the folds, averaged over repetitions.

    No round takes a pass over the data.
    """

    def __init__(
        self, dataset: Dataset, statistics: Statistics, preprocess: Preprocess, folds: FoldStatistics,
        partition: RowPartition, *, fill: Floats | None = None, engine: Engine = THREADS,
    ) -> None:  # fmt: skip
        super().__init__(dataset, statistics, preprocess, fill=fill, engine=engine)
        self._repeats = partition.repeats
        self._tested = 0.0
        unusable = statistics.unusable(preprocess)
        self._folds: list[Fold] = []
        for model in partition.tests():
            tests = [folds[part] for part in model.test if part in folds]
            if not tests:
                continue
            tested = tests[0] if len(tests) == 1 else combined(tests)
            known = statistics  # the rows of the fold and those that it is predicted from
            if partition.split == "forward" or partition.models:
                known = combined([*(folds[part] for part in model.train if part in folds), tested])
            self._folds.append(self._fold(known, tested, preprocess in ("standardize", "center"), unusable))
            self._tested += tested.weight / self._repeats

    @property
    def weight(self) -> float:
        """Return the sum of the weights of the rows that errors are summed over."""
        return self._tested

    def errors(self, round: LooRound) -> Floats:
        """Return the cross-validated errors of a round."""
        return np.asarray(sum(fold_errors(fold, round, self._lam) for fold in self._folds)) / self._repeats

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """Return the cross-validated error of each penalty with these columns."""
        return np.asarray(sum(fold_ridge_errors(fold, lams, members) for fold in self._folds)) / self._repeats

    def _fold(self, whole: Statistics, part: Statistics, centered: bool, unusable: NDArray[np.bool_]) -> Fold:
        """Return one fold: the preprocessed problem of the other rows, and the moments of the rows of the fold."""
        m, inside, K = whole.weight, part.weight, part.K
        outside = m - inside
        if not outside > 0.0:
            raise DataError("One fold has all of the weight.", "Choose other folds (folds, seed), or leave-one-out.")
        mean_x = (m * whole.mean_x - inside * part.mean_x) / outside
        mean_y = (m * whole.mean_y - inside * part.mean_y) / outside
        weight = inside * outside / m
        d_x, d_y = part.mean_x - mean_x, part.mean_y - mean_y
        K_out = whole.K - K - weight * np.outer(d_x, d_x)
        B_out = whole.B - part.B - weight * np.outer(d_x, d_y)
        at_x, at_y = (mean_x, mean_y) if centered else (np.zeros_like(mean_x), np.zeros_like(mean_y))
        K, B, yy = _about(K, part.B, part.yy, inside, part.mean_x - at_x, part.mean_y - at_y)
        K_out, B_out, _ = _about(K_out, B_out, part.yy, outside, mean_x - at_x, mean_y - at_y)
        scale_x, scale_y = self.transform.scale_x, self.transform.scale_y
        K_out, K = K_out / np.outer(scale_x, scale_x), K / np.outer(scale_x, scale_x)
        B_out, B = B_out / np.outer(scale_x, scale_y), B / np.outer(scale_x, scale_y)
        for array in (K_out, K, B_out, B):
            array[unusable] = 0.0
        K_out[:, unusable] = 0.0
        K[:, unusable] = 0.0
        none = np.zeros(0)
        rows = whole.m - part.m
        problem = LooProblem(WholeGram(K_out), B_out, none, none, rows, outside, 0.0, "center" if centered else "none")
        return Fold(problem, K, B, float((yy / scale_y**2).sum()))


def _about(K: Floats, B: Floats, yy: Floats, weight: float, d_x: Floats, d_y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return moments about the points that are d_x, d_y below the means."""
    return K + weight * np.outer(d_x, d_x), B + weight * np.outer(d_x, d_y), yy + weight * d_y**2


class SubsetErrors:
    """Squared errors on left-out rows of ridge regression on other rows.

    Means and scales are those of the rows that it is trained on. Errors are summed over the targets, each in units of
    its scale in all rows.

    Parameters
    ----------
    trained : Statistics
        The rows to train on.
    whole : Statistics
        All rows.
    preprocess : str
        The preprocessing.
    lam : float
        The ridge penalty on the preprocessed data.
    """

    def __init__(self, trained: Statistics, whole: Statistics, preprocess: Preprocess, lam: float) -> None:
        self._objective, self._scaling = trained.objective(preprocess, lam), trained.scaling(preprocess)
        self._unit = whole.scaling(preprocess).scale_y

    def errors(self, tested: Statistics, subsets: Sequence[Sequence[int]]) -> Floats:
        """Return (len(subsets),) the errors summed over the rows of `tested`. O(s^3 + s^2 N) for each subset."""
        return np.array([self._error(tested, independent_columns(self._objective, S)) for S in subsets])

    def _error(self, tested: Statistics, S: Ints) -> float:
        scaling, objective = self._scaling, self._objective
        d_y = (tested.mean_x if tested.unsupervised else tested.mean_y) - scaling.center_y
        yy = (tested.squares if tested.unsupervised else tested.yy) + tested.weight * d_y**2
        if not S.size:
            return float((yy / self._unit**2).sum())
        B_S = (objective.K if objective.cross is None else objective.cross)[S]
        w = scipy.linalg.solve(objective.K[S][:, S] + objective.lam * np.eye(S.size), B_S, assume_a="pos")
        A = w * scaling.scale_y / scaling.scale_x[S][:, None]  # in units of the data
        d_x = tested.mean_x[S] - scaling.center_x[S]
        K = tested.K[np.ix_(S, S)] + tested.weight * np.outer(d_x, d_x)
        B = (tested.K[S] if tested.unsupervised else tested.B[S]) + tested.weight * np.outer(d_x, d_y)
        each = yy - 2.0 * np.einsum("st,st->t", A, B) + np.einsum("st,st->t", A, K @ A)
        return float((np.maximum(each, 0.0) / self._unit**2).sum())

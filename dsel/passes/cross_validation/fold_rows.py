"""Cross-validation by folds on their moments, without a pass over the data.

Errors of subsets on rows that were left out, from the moments of these rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.errors import DataError
from dsel.objective.cross_validation.kfold import Fold, fold_errors, fold_ridge_errors
from dsel.objective.cross_validation.leave_one_out import LooProblem, LooRound, WholeGram
from dsel.objective.shared import independent_places
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.folds import FoldStatistics
from dsel.passes.statistics import Statistics, combined


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
            (tested,) = model.test
            if tested not in folds:
                continue
            train = [folds[part] for part in model.train if part in folds]
            known = statistics  # the rows of the fold and those that it is predicted from
            if partition.split == "forward":
                known = combined([*train, folds[tested]])
            self._folds.append(self._fold(known, folds[tested], preprocess in ("standardize", "center"), unusable))
            self._tested += folds[tested].weight / self._repeats

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
        """Return one fold: the preprocessed problem of the other rows, and the moments of its own rows."""
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
        self._trained, self._scaling = trained, trained.scaling(preprocess)
        self._unit = whole.scaling(preprocess).scale_y
        objective = trained.objective(preprocess, lam)
        self._K, self._lam, self._scale = objective.K, lam, objective.scale
        self._B = objective.K if objective.cross is None else objective.cross

    def errors(self, tested: Statistics, subsets: Sequence[Sequence[int]]) -> Floats:
        """Return (len(subsets),) the errors summed over the rows of `tested`. O(s^3 + s^2 N) for each subset."""
        return np.array([self._error(tested, self._independent(S)) for S in subsets])

    def _independent(self, members: Sequence[int]) -> Ints:
        """Return the members in ascending order without those that depend on the ones before them."""
        S = np.unique(np.asarray(members, np.int64))
        K = self._K[np.ix_(S, S)] + self._lam * np.eye(S.size)
        return S[independent_places(K, DEPENDENCE_TOLERANCE * self._scale[S])]

    def _error(self, tested: Statistics, S: Ints) -> float:
        scaling, K_S = self._scaling, self._K[S]
        w = scipy.linalg.solve(K_S[:, S] + self._lam * np.eye(S.size), self._B[S], assume_a="pos") if S.size else None
        d_y = (tested.mean_x if tested.unsupervised else tested.mean_y) - scaling.center_y
        yy = (tested.squares if tested.unsupervised else tested.yy) + tested.weight * d_y**2
        if w is None:
            return float((yy / self._unit**2).sum())
        A = w * scaling.scale_y / scaling.scale_x[S][:, None]  # in units of the data
        d_x = tested.mean_x[S] - scaling.center_x[S]
        K = tested.K[np.ix_(S, S)] + tested.weight * np.outer(d_x, d_x)
        B = (tested.K[S] if tested.unsupervised else tested.B[S]) + tested.weight * np.outer(d_x, d_y)
        each = yy - 2.0 * np.einsum("st,st->t", A, B) + np.einsum("st,st->t", A, K @ A)
        return float((np.maximum(each, 0.0) / self._unit**2).sum())

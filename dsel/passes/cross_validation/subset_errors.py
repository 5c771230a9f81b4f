"""Errors of subsets on rows that were left out, from the moments of these rows alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess
from dsel.objective.dependence import independent_places
from dsel.passes.statistics import Statistics


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

"""Which columns of a subset are independent, by the rule of the objective."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dsel._lib.positive_definite import inverse
from dsel._lib.types import Floats, Ints
from dsel.objective.base import Objective


def independent_columns(objective: Objective, S: Iterable[int]) -> Ints:
    """Return the ascending columns of S without those that depend on the ones before them, as in f(S). O(s^3)."""
    columns = np.unique(np.asarray(list(S), np.int64))
    if not columns.size:
        return columns
    objective.fetch_rows(columns.tolist())
    K = objective.rows(columns)[:, columns] + objective.lam * np.eye(columns.size)
    return columns[independent_places(K, objective.floor[columns])]


def independent_places(K: Floats, floor: Floats) -> Ints:
    """Return the rows of K, ascending, without those that would make the ones before them dependent. O(s^4) at most.

    Rows are dependent if the others leave at most its floor of the square of one (`dsel._lib.tolerances`).
    """
    if _clearly_independent(K, floor):
        return np.arange(K.shape[0])
    K_left, kept = K.copy(), np.zeros(0, np.int64)
    for a in range(K.shape[0]):
        if not K_left[a, a] > floor[a]:
            continue
        S = np.append(kept, a)
        inflation = np.diag(inverse(K[np.ix_(S, S)]))
        if not (inflation * floor[S] < 1.0).all():
            continue
        kept = S
        K_left[a + 1 :, a + 1 :] -= np.outer(K_left[a + 1 :, a] / K_left[a, a], K_left[a, a + 1 :])
    return kept


def _clearly_independent(K: Floats, floor: Floats) -> bool:
    """Return whether all rows together leave twice the floor of each, so that no subset is dependent. O(s^3)."""
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        return False
    return bool((2.0 * np.square(inverse).sum(axis=0) * floor < 1.0).all())

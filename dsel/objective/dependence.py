"""Which columns of a subset are independent, by the rule of the objective."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

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
    """Return the rows of K, ascending, whose pivot is above its floor after elimination of those before. O(s^3)."""
    K, kept = K.copy(), []
    for a in range(K.shape[0]):
        if K[a, a] > floor[a]:
            kept.append(a)
            K[a + 1 :, a + 1 :] -= np.outer(K[a + 1 :, a] / K[a, a], K[a, a + 1 :])
    return np.asarray(kept, np.int64)

"""The columns of an objective with norm 1, as the relaxation uses them."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.base import Objective
from dsel.objective.few_targets import column_norms, few_targets
from dsel.search.exact.bounds import penalized


def scaled_columns(objective: Objective) -> tuple[Floats, Floats, Floats]:
    """Return K + lam I, the products c with few targets, and each column's share of the penalty, for columns of norm 1.

    c has the shape (n,) for one target, else (n, N). Errors: ValueError if the relaxation is useless.
    """
    if not objective.has_gram:
        raise ValueError("the perspective relaxation needs the whole Gram matrix")
    diagonal = np.diag(objective.K) + objective.lam
    if (diagonal <= objective.floor).any():
        raise ValueError("columns are nearly dependent, so that the perspective relaxation is useless")
    norms = column_norms(diagonal)
    c = few_targets(objective) / norms[:, None]
    return scaled_gram(objective), c[:, 0] if c.shape[1] == 1 else c, objective.lam / norms**2


def scaled_gram(objective: Objective) -> Floats:
    """Return K + lam I (n, n) for columns of norm 1."""
    K = penalized(objective)
    norms = column_norms(np.diag(K))
    K = K / norms
    K /= norms[:, None]
    return K

"""What a selection is compared with: forward selection on the same objective, and the best approximation of X."""

from __future__ import annotations

import numpy as np

from dsel.objective.base import ItemObjective, Objective
from dsel.search.greedy.forward import forward
from dsel.search.outcome import FrontPoint
from dsel.selection.run_method import threads_for

#: Operations that forward selection may take: a second or two.
_OPERATIONS = 1e9
#: The largest subsets that are compared. The values of a path to k columns cost O(k^4).
_LARGEST = 500
#: The eigenvalues of K are computed for at most this many columns: about a second.
_MOST_EIGENVALUES = 2000


def forward_reference(subject: ItemObjective, k: int) -> tuple[FrontPoint, ...]:
    """Return the best subset of each size on the path of forward selection, or nothing where that is not cheap.

    It is cheap where the objective holds the Gram matrix and n k^2 is small. It reads no data.
    """
    k = min(k, subject.n)
    if not subject.has_gram or not 0 < k <= _LARGEST or subject.columns_of.n * k * k > _OPERATIONS:
        return ()
    with threads_for(subject):
        return forward(subject, k).front


def rank_error(objective: Objective, size: int) -> float | None:
    """Return the share of ||X||^2 that the best approximation of X of rank `size` leaves; None where it is not cheap.

    objective: over all columns, for Y = X. It is the share of the other eigenvalues of K. It reads no data.
    """
    if not objective.has_gram or objective.eigen_factor is not None or objective.n > _MOST_EIGENVALUES:
        return None
    values = np.maximum(np.linalg.eigvalsh(objective.K), 0.0)
    left = float(values[: max(values.size - size, 0)].sum() / values.sum())
    return left if left > 8.0 * values.size * np.finfo(float).eps else 0.0

"""Forward selection on the same objective: what a selection is compared with."""

from __future__ import annotations

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Ints
from dsel.objective.base import Objective
from dsel.search.greedy.forward import forward
from dsel.search.grouped import greedy
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.outcome import FrontPoint

#: Operations that forward selection may take: a second or two.
_OPERATIONS = 1e9
#: The largest subsets that are compared. The values of a path to k columns cost O(k^4).
_LARGEST = 500


def forward_reference(objective: Objective, k: int, groups: tuple[Ints, ...] | None = None) -> tuple[FrontPoint, ...]:
    """Return the best subset of each size on the path of forward selection, or nothing where that is not cheap.

    It is cheap where the objective holds the Gram matrix and n k^2 is small. It reads no data.
    """
    k = min(k, objective.n if groups is None else len(groups))
    if not objective.has_gram or not 0 < k <= _LARGEST or objective.n * k * k > _OPERATIONS:
        return ()
    if groups is not None:
        with one_blas_thread():  # the matrices are small: threads would wait for each other
            return greedy.forward(GroupedObjective(objective, groups), k).front
    return forward(objective, k).front

"""Forward selection on the same objective: what a selection is compared with."""

from __future__ import annotations

from dsel.objective.base import ItemObjective
from dsel.search.greedy.forward import forward
from dsel.search.outcome import FrontPoint
from dsel.selection.run_method import threads_for

#: Operations that forward selection may take: a second or two.
_OPERATIONS = 1e9
#: The largest subsets that are compared. The values of a path to k columns cost O(k^4).
_LARGEST = 500


def forward_reference(subject: ItemObjective, k: int) -> tuple[FrontPoint, ...]:
    """Return the best subset of each size on the path of forward selection, or nothing where that is not cheap.

    It is cheap where the objective holds the Gram matrix and n k^2 is small. It reads no data.
    """
    k = min(k, subject.n)
    if not subject.has_gram or not 0 < k <= _LARGEST or subject.columns_of.n * k * k > _OPERATIONS:
        return ()
    with threads_for(subject):
        return forward(subject, k).front

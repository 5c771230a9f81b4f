"""Which proof suits data whose Gram matrix does not fit into memory, or is too large for dense bounds."""

from __future__ import annotations

from collections.abc import Iterable

from dsel.objective.base import Objective
from dsel.search.exact.starting_subset import MANY_COLUMNS
from dsel.search.exact.wide.search import WideTree
from dsel.search.exact.wide.target_bound import TargetBound

#: A smaller penalty, as a share of the largest squared norm, is rounding for the relaxation.
LEAST_RIDGE = 1e-6
#: With more columns than this, dense factorizations of the Gram matrix take too long for a proof.
MOST_DENSE = 5000


def is_wide(objective: Objective, coefficients: float | None = None) -> bool:
    """Return whether a proof must do without factorizations of the whole Gram matrix.

    coefficients: a requested limit for them, see `WideTree`. Few columns need none: other proofs are quick.
    """
    if not objective.has_gram or (objective.n > MOST_DENSE and relaxable(objective)):
        return True
    return coefficients is not None and has_one_target(objective) and objective.n >= MANY_COLUMNS


def has_one_target(objective: Objective) -> bool:
    """Return whether there is one target."""
    return objective.cross is not None and objective.cross.shape[1] == 1


def relaxable(objective: Objective) -> bool:
    """Return whether there are one target and a ridge penalty, so that the relaxation in passes bounds all subsets."""
    return has_one_target(objective) and objective.lam >= LEAST_RIDGE * float(objective.scale.max())


def wide_proof(
    objective: Objective, k: int, incumbent: Iterable[int], memory_limit: int, coefficients: float | None = None
) -> WideTree | TargetBound:  # fmt: skip
    """Return the search that proves most: in passes over the data, or from the targets alone."""
    if coefficients is not None and has_one_target(objective):
        tree = WideTree(objective, k, incumbent=incumbent, memory_limit=memory_limit, coefficients=coefficients)
        if tree.limit > 0.0:  # otherwise no column explains anything
            return tree
    if relaxable(objective):
        return WideTree(objective, k, incumbent=incumbent, memory_limit=memory_limit)
    return TargetBound(objective, k, incumbent=incumbent)

"""Which proof suits data whose Gram matrix does not fit into memory, or is too large for dense bounds."""

from __future__ import annotations

from dsel.objective.base import Objective
from dsel.search.exact.starting_subset import MANY_COLUMNS

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
    return limits_coefficients(objective, coefficients) and objective.n >= MANY_COLUMNS


def limits_coefficients(objective: Objective, coefficients: float | None) -> bool:
    """Return whether a limit for coefficients is given, and the objective can use it."""
    return coefficients is not None and has_one_target(objective)


def has_one_target(objective: Objective) -> bool:
    """Return whether there is one target."""
    return objective.cross is not None and objective.cross.shape[1] == 1


def relaxable(objective: Objective) -> bool:
    """Return whether there are one target and a ridge penalty, so that the relaxation in passes bounds all subsets."""
    return has_one_target(objective) and objective.lam >= LEAST_RIDGE * float(objective.scale.max())

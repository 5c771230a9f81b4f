"""QR with column pivoting: insert the column of which the columns before it explain least.

Source: Businger, Golub, "Linear least squares solutions by Householder transformations", Numerische Mathematik 7, 1965.
On the Gram matrix it is the Cholesky decomposition with diagonal pivoting (Higham, "Accuracy and Stability of Numerical
Algorithms", section 10.3).
"""

from __future__ import annotations

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.objective.subset_state import SubsetState, load_subset_kernels
from dsel.search.greedy.path import grow
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome


def pivoted_qr(objective: Objective, k: int) -> SearchOutcome:
    """Return the first k pivots, or fewer if the rank of X is lower. O(n k^2) after the Gram matrix."""
    if objective.cross is not None:
        raise OptionError("The objective has targets.", "Select columns for X itself, without targets.")
    return grow(objective, k, _pivots)


def _pivots(solution: SubsetState) -> Floats:
    """Return (n,) the squared norm of what S leaves of each column; 0 for members and for columns that depend on S."""
    return solution.residual_norms()


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return pivoted_qr(task.objective, task.k)


METHOD = Method(
    "pivoted-qr",
    "Insert the column that the chosen ones explain least, k times (QR with column pivoting).",
    run,
    unsupervised_only=True,
    every_size=True,
)

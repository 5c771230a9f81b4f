"""QR with column pivoting: insert the column of which the columns before it explain least.

Source: Businger, Golub, "Linear least squares solutions by Householder transformations", Numerische Mathematik 7, 1965.
On the Gram matrix it is the Cholesky decomposition with diagonal pivoting (Higham, "Accuracy and Stability of Numerical
Algorithms", section 10.3).
"""

from __future__ import annotations

from dsel.errors import OptionError
from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import grow
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome


def pivoted_qr(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the first k pivots, or fewer if the rank of X is lower. O(n k^2) after the Gram matrix."""
    if objective.columns_of.cross is not None:
        raise OptionError("The objective has targets.", "Select columns for X itself, without targets.")
    return grow(objective, k, lambda solution: solution.residual_norms())


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return pivoted_qr(task.subject, task.k)


METHOD = Method(
    "pivoted-qr",
    "Insert the column that the chosen ones explain least, k times (QR with column pivoting).",
    run,
    unsupervised_only=True,
    every_size=True,
    takes_groups=True,
)

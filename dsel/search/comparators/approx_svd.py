"""Column subset selection by sparse approximation of the singular value decomposition.

Source: Civril, Magdon-Ismail, "Column subset selection via sparse approximation of SVD", Theoretical Computer
Science 421, 2012: columns are chosen greedily to approximate U_k Sigma_k, the k leading left singular vectors
with their singular values, instead of X itself.
"""

from __future__ import annotations

import numpy as np

from dsel.objective.base import Objective
from dsel.objective.dense import DenseObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.comparators.two_stage import principal_directions
from dsel.search.greedy.forward import forward
from dsel.search.greedy.path import Path
from dsel.search.method import Method, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size


def approx_svd(objective: Objective, k: int) -> SearchOutcome:
    """Return the path of k insertions, each of which lowers the error of U_k Sigma_k most. O(n^3).

    The values are f for X itself. With Y = U_k Sigma_k the cross-Gram matrix is B = X'Y = V_k Lambda_k, where Lambda_k
    has the k largest eigenvalues of K.
    """
    check_size(k, objective.n)
    values, V = principal_directions(objective, k)
    leading = DenseObjective(
        K=objective.K,
        cross=np.ascontiguousarray(V * values),
        c=float(values.sum()),
        scale=objective.scale,
        tolerance=objective.tolerance,
    )
    greedy = forward(leading, k)
    path = Path(objective)
    longest = max(greedy.front, key=lambda point: point.size).members
    for size in range(1, len(longest) + 1):
        path.steps += 1
        path.add(longest[:size])
    path.evaluated = greedy.counts["evaluated"]
    return path.outcome()


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return approx_svd(task.objective, task.k)


METHOD = Method(
    "approx-svd",
    "Choose columns that approximate the k leading singular vectors.",
    run,
    requirements=whole_gram,
    unsupervised_only=True,
    no_groups="singular vectors give scores of single columns",
)

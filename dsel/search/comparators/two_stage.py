"""Two-stage column subset selection: sample by leverage, then a rank-revealing QR on the sample.

Source: Boutsidis, Mahoney, Drineas, "An improved approximation algorithm for the column subset selection
problem", SODA 2009, with 2k sampled columns as in the POCSS paper.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel._lib.rng import weighted_sample
from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import Path
from dsel.search.method import Method, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size

#: Directions with at most this share of the largest eigenvalue count as rounding errors.
_RANK_TOLERANCE = 1e-12


def principal_directions(objective: Objective, k: int) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of K (at most k), descending, and their eigenvectors (n, r). O(n^3)."""
    if objective.cross is not None:
        raise OptionError("The objective has targets.", "Select columns for X itself, without targets.")
    n = objective.n
    values, vectors = scipy.linalg.eigh(objective.K, subset_by_index=[n - k, n - 1])
    real = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
    return values[real][::-1], vectors[:, real][:, ::-1]


def two_stage(objective: Objective, k: int, seed: int = 0) -> SearchOutcome:
    """Return one subset of k columns, or fewer if the rank of X is lower. Deterministic where n <= 2k. O(n^3).

    2k columns are sampled without replacement, in proportion to their leverage scores p_j = |(V_k)_j|^2 in the k
    leading right singular vectors. A QR with column pivoting of V_k' on the sample, scaled by 1 / sqrt(min(1, 2 p_j)),
    keeps k of them.
    """
    check_size(k, objective.n)
    _, V = principal_directions(objective, k)
    path = Path(objective)
    path.steps = path.evaluated = 1
    leverage = np.square(V).sum(axis=1)
    sample = weighted_sample(seed, 0, 0, leverage, min(2 * k, objective.n))
    if not sample.size:
        return path.outcome()
    scaled = (V[sample] / np.sqrt(np.minimum(1.0, 2.0 * leverage[sample]))[:, None]).T
    R, order = scipy.linalg.qr(scaled, mode="r", pivoting=True)
    pivots = np.abs(np.diag(R))
    kept = sample[order[: pivots.size][pivots > np.sqrt(_RANK_TOLERANCE) * pivots[0]]]
    path.add(int(j) for j in kept)
    return path.outcome()


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return two_stage(task.objective, task.k, task.seed)


METHOD = Method(
    "two-stage",
    "Sample columns by leverage, then keep k by a rank-revealing QR.",
    run,
    requirements=whole_gram,
    unsupervised_only=True,
    no_groups="singular vectors give scores of single columns",
)

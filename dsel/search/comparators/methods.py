"""Methods that the papers compare with: random columns, singular vectors, factorizations, small coefficients.

Sources. Random columns: Pahikkala, Airola, Salakoski, "Speeding up greedy forward selection for regularized
least-squares", ICMLA 2010. Sampling by leverage scores: Drineas, Mahoney, Muthukrishnan, "Relative-error CUR matrix
decompositions", SIAM Journal on Matrix Analysis and Applications 30, 2008; the largest scores: Papailiopoulos,
Kyrillidis, Boutsidis, "Provable deterministic leverage score sampling", KDD 2014. Two stages: Boutsidis, Mahoney,
Drineas, "An improved approximation algorithm for the column subset selection problem", SODA 2009, with 2k sampled
columns as in the POCSS paper. Sparse approximation of the singular value decomposition: Civril, Magdon-Ismail, "Column
subset selection via sparse approximation of SVD", Theoretical Computer Science 421, 2012: columns are chosen greedily
to approximate U_k Sigma_k, the k leading left singular vectors with their singular values, instead of X itself. QR with
column pivoting: Businger, Golub, "Linear least squares solutions by Householder transformations", Numerische Mathematik
7, 1965; on the Gram matrix it is the Cholesky decomposition with diagonal pivoting (Higham, "Accuracy and Stability of
Numerical Algorithms", section 10.3). Recursive feature elimination: Guyon et al., "Gene selection for cancer
classification using support vector machines", 2002, with linear regression in place of the support vector machine, as
in the POSS paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

import numpy as np
import scipy.linalg
from pydantic import Field

from dsel._lib.rng import permutation, uniforms, weighted_sample
from dsel._lib.types import Floats, Ints
from dsel.config.types import Int
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.greedy.path import Path, ascending, cheapest, forward, grow, path_method, rebuilt
from dsel.search.method import Options, ProblemSummary, estimated, whole_gram
from dsel.search.outcome import SearchOutcome, check_size

#: Directions with at most this share of the largest eigenvalue count as rounding errors.
_RANK_TOLERANCE = 1e-12


def require_no_targets(objective: ItemObjective) -> None:
    """Refuse an objective with targets. Errors: OptionError."""
    if objective.columns_of.cross is not None:
        raise OptionError("The objective has targets.", "Select columns for X itself, without targets.")


def best_of_orders(objective: ItemObjective, k: int, orders: Iterable[Ints]) -> SearchOutcome:
    """Return the best of the first 1 to k independent items of some orders."""
    path = Path(objective)
    for order in orders:
        path.steps += 1
        members = rebuilt(objective, k, order.tolist()).members
        for size in range(1, len(members) + 1):
            path.add(members[:size])
        path.evaluated += len(members)
    return path.outcome()


def principal_directions(objective: Objective, k: int) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of K (at most k), descending, and their eigenvectors (n, r). O(n^3)."""
    require_no_targets(objective)
    n = objective.n
    values, vectors = scipy.linalg.eigh(objective.K, subset_by_index=[n - k, n - 1])
    real = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
    return values[real][::-1], vectors[:, real][:, ::-1]


def random_subset(objective: ItemObjective, k: int, seed: int = 0, draws: int = 1) -> SearchOutcome:
    """Return the best of some random subsets of k columns, and of their first 1 to k - 1 columns. O(n k^2) each.

    A column that depends on those drawn before it is replaced by the next one.
    """
    check_size(k, objective.n)
    return best_of_orders(objective, k, (permutation(seed, draw, 0, objective.n) for draw in range(draws)))


class RandomOptions(Options):
    """Options of random columns.

    Parameters
    ----------
    draws : int
        How many random subsets there are. The best one is the answer.
    """

    draws: Int = Field(1, ge=1)


def leverage_scores(objective: Objective, k: int) -> Floats:
    """Return (n,) the squared norms of the rows of V_k, the k leading right singular vectors of X. O(n^3)."""
    return np.asarray(np.square(principal_directions(objective, k)[1]).sum(axis=1))


def leverage(
    objective: Objective, k: int, seed: int = 0, choice: Literal["sampled", "largest"] = "sampled", draws: int = 1
) -> SearchOutcome:
    """Return k columns with the largest leverage scores, or the best of some samples in proportion to the scores.

    Columns are drawn one after another, without replacement. A column that depends on those before it is left out.
    """
    check_size(k, objective.n)
    scores = leverage_scores(objective, k)
    if choice == "largest":
        return best_of_orders(objective, k, [np.argsort(-scores, kind="stable")])
    return best_of_orders(objective, k, (_drawn(scores, seed, draw) for draw in range(draws)))


def _drawn(scores: Floats, seed: int, draw: int) -> Ints:
    """Return the columns of positive score in the order in which they are drawn (Efraimidis and Spirakis, 2006)."""
    waits = -np.log(1.0 - np.asarray(uniforms(seed, draw, 0, scores.size)))
    positive = np.flatnonzero(scores > 0.0)
    return positive[np.argsort(waits[positive] / scores[positive], kind="stable")]


class DrawOptions(Options):
    """Options of methods that may draw columns several times."""

    choice: str = "sampled"
    draws: Int = Field(1, ge=1)

    def conflict(self, criterion: bool) -> str:
        drawn = self.choice == "sampled" or not self.is_changed("draws")
        return "" if drawn else "draws: only with choice=sampled"


class LeverageOptions(DrawOptions):
    """Options of selection by leverage scores.

    Parameters
    ----------
    choice : {"sampled", "largest"}
        Whether columns are sampled in proportion to their scores, or those with the largest scores are chosen.
    draws : int
        How many samples there are. The best one is the answer.
    """

    choice: Literal["sampled", "largest"] = "sampled"


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
    path.add_prefixes(max(greedy.front, key=lambda point: point.size).members)
    path.evaluated = greedy.counts["evaluated"]
    return path.outcome()


def pivoted_qr(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the first k pivots, or fewer if the rank of X is lower. O(n k^2) after the Gram matrix."""
    require_no_targets(objective)
    return grow(objective, k, lambda solution: solution.residual_norms())


#: The ridge, as a share of the mean squared norm of the columns, that approximates the minimum-norm solution of a
#: singular K.
TINY_RIDGE = 1e-10


def rfe(objective: Objective, k: int) -> SearchOutcome:
    """Return the path of deletions of the column with the smallest coefficients (norm over the targets).

    The coefficients are compared as they are, so the columns should be standardized. If K is singular they are those of
    a tiny ridge, close to the solution of minimum norm. The cost is O(n^3): the inverse is downdated, and computed
    again each time the number of columns has halved.
    """
    check_size(k, objective.n)
    path, taken = Path(objective), []
    targets = _targets(objective)
    left = list(range(objective.n))
    inverse, coefficients = _fit(objective, targets, left)
    fresh = len(left)
    while True:
        if len(left) <= k:
            taken.append(left.copy())
        if len(left) == 1:
            return ascending(path, taken)
        path.steps += 1
        path.evaluated += 1
        place = left.index(cheapest(left, np.square(coefficients).sum(axis=1)))
        left.pop(place)
        if 2 * len(left) <= fresh:
            inverse, coefficients = _fit(objective, targets, left)
            fresh = len(left)
        else:
            inverse, coefficients = _without(inverse, coefficients, place)


def _targets(objective: Objective) -> Floats:
    """Return (n, r) a matrix B with B B' = M. The norms of the coefficients depend on M only."""
    if objective.moments is None:
        return objective.K if objective.cross is None else objective.cross
    values, vectors = scipy.linalg.eigh(objective.moments)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _fit(objective: Objective, targets: Floats, S: list[int]) -> tuple[Floats, Floats]:
    """Return (s, s) the inverse of K_SS with its ridge, and (s, r) the coefficients."""
    ridge = objective.lam + TINY_RIDGE * float(np.mean(np.diag(objective.K)) or 1.0)
    factor = scipy.linalg.cho_factor(objective.K[np.ix_(S, S)] + ridge * np.eye(len(S)))
    return scipy.linalg.cho_solve(factor, np.eye(len(S))), scipy.linalg.cho_solve(factor, targets[S])


def _without(inverse: Floats, coefficients: Floats, i: int) -> tuple[Floats, Floats]:
    """Return the inverse and the coefficients after deleting the column at place i."""
    keep = np.arange(inverse.shape[0]) != i
    share = inverse[keep, i] / inverse[i, i]
    return (
        inverse[np.ix_(keep, keep)] - np.outer(share, inverse[i, keep]),
        coefficients[keep] - np.outer(share, coefficients[i]),
    )


def rfe_seconds(problem: ProblemSummary, options: Options) -> float:
    """Return the time of `rfe` on the reference core, measured with 1000 and 2000 columns."""
    return float(2e-9 * problem.to_choose[1] ** 3)


def singular_seconds(problem: ProblemSummary, options: Options) -> float:
    """Return the time of singular vectors on the reference core, measured with 1000 to 3000 columns.

    A deterministic choice also updates an n x n matrix k times.
    """
    k, n = problem.to_choose
    updates = k if getattr(options, "choice", "") == "derandomized" else 0
    return float(7.5e-11 * n**3 + 4e-8 * n**2 * updates)


#: A method that gives scores to single columns of X itself.
singular_method = partial(
    path_method, requirements=whole_gram, unsupervised_only=True, place=estimated(singular_seconds),
    no_groups="singular vectors give scores of single columns",
)  # fmt: skip

RANDOM = path_method(
    "random", "Choose columns at random, to compare other methods with.", random_subset, seeded=True,
    options=RandomOptions, every_size=True, takes_groups=True,
)  # fmt: skip
LEVERAGE = singular_method(
    "leverage", "Choose columns by their leverage scores, sampled or the largest.", leverage, seeded=True,
    options=LeverageOptions,
)  # fmt: skip
TWO_STAGE = singular_method(
    "two-stage", "Sample columns by leverage, then keep k by a rank-revealing QR.", two_stage, seeded=True
)
APPROX_SVD = singular_method(
    "approx-svd", "Choose columns that approximate the k leading singular vectors.", approx_svd
)
PIVOTED_QR = path_method(
    "pivoted-qr", "Insert the column that the chosen ones explain least, k times (QR with column pivoting).",
    pivoted_qr, unsupervised_only=True, every_size=True, takes_groups=True,
)  # fmt: skip
RFE = path_method(
    "rfe", "Start from all columns and delete the one with the smallest coefficients.", rfe, requirements=whole_gram,
    place=estimated(rfe_seconds), every_size=True, no_groups="it compares the coefficients of single columns",
)  # fmt: skip

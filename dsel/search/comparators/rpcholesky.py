"""Randomly pivoted Cholesky (RPCholesky) for Y = X, with rejection sampling: it reads k rows of the Gram matrix.

Sources: Chen, Epperly, Tropp, Webber, "Randomly pivoted Cholesky", Communications on Pure and Applied Mathematics 78,
2025; Epperly, Tropp, Webber, "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky",
arXiv 2410.03969, 2024.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.rng import uniforms
from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.comparators.methods import require_no_targets
from dsel.search.greedy.path import Path, path_method
from dsel.search.method import ProblemSummary, Requirements
from dsel.search.outcome import SearchOutcome, check_size

#: Columns that are proposed at a time: this many times those that are still wanted, and at least the second number.
_PROPOSED, _FEWEST = 2, 16
#: The norms are updated, which reads the data again, once a block accepts a smaller share.
_ACCEPTED = 0.1


def rpcholesky(objective: Objective, k: int, seed: int = 0) -> SearchOutcome:
    """Return k columns, or fewer if the rank of X is lower, and the first 1 to k - 1 of them. O(n k^2).

    A column is drawn in proportion to the squared norm of what the chosen ones leave of it. Columns are proposed by
    norms that may be out of date, and a proposal is accepted with the probability that corrects this.
    """
    check_size(k, objective.n)
    require_no_targets(objective)
    left, rows = np.array(objective.diagonal), np.empty((0, objective.n))
    S, rounds, proposed = list[int](), 0, 0
    while len(S) < k and (left > objective.floor).any():
        weights = np.where(left > objective.floor, left, 0.0)
        new, tried = _accepted(objective, weights, rows, k - len(S), seed, rounds)
        objective.fetch_rows(new)
        residual = objective.rows(new) - rows[:, new].T @ rows
        more = scipy.linalg.solve_triangular(np.linalg.cholesky(residual[:, new]), residual, lower=True)
        rows, S = np.vstack([rows, more]), S + new
        left = left - np.square(more).sum(axis=0)
        left[S] = 0.0
        rounds, proposed = rounds + 1, proposed + tried
    path = Path(objective)
    path.evaluated = proposed
    path.add_prefixes(S)
    return path.outcome()


def _accepted(
    objective: Objective, weights: Floats, rows: Floats, wanted: int, seed: int, round: int
) -> tuple[list[int], int]:  # fmt: skip
    """Return at least one accepted column, and how many were proposed.

    weights: (n,) by which columns are proposed, exact for the first one. rows: (s, n) the Cholesky factor so far.
    """
    chosen, total, tried = list[int](), np.cumsum(weights), 0
    block = max(_PROPOSED * wanted, _FEWEST)
    while True:
        u = uniforms(seed, round, tried, 2 * block)
        places = np.searchsorted(total, u[:block] * total[-1], side="right")
        P = np.minimum(places, np.flatnonzero(weights)[-1])
        T = np.concatenate([np.array(chosen, np.int64), P])
        H, before = _gram_of(objective, T) - rows[:, T].T @ rows[:, T], len(chosen)
        for i in range(before):
            _eliminate(H, i)
        for i, j in enumerate(P.tolist(), before):
            tried += 1
            if H[i, i] > objective.floor[j] and u[block + i - before] * weights[j] < H[i, i]:
                chosen.append(j)
                _eliminate(H, i)
                if len(chosen) == wanted:
                    return chosen, tried
        if chosen and len(chosen) - before < _ACCEPTED * block:
            return chosen, tried


def _gram_of(objective: Objective, T: Ints) -> Floats:
    """Return (t, t) K_TT. Only these columns are read."""
    if not isinstance(objective, OnDemandObjective):
        return objective.rows(T)[:, T]
    columns = objective.data_columns(T)
    return objective.gram_block(T, T, columns, columns)


def _eliminate(H: Floats, i: int) -> None:
    H -= np.outer(H[:, i], H[i] / H[i, i])


def _rows_alone(problem: ProblemSummary, options: Any) -> Requirements:
    """Return that rows of K are enough, if no columns are always or never chosen."""
    return Requirements(few_columns=True, gram_rows_alone=not (problem.included or problem.excluded or problem.lam))


RPCHOLESKY = path_method(
    "rpcholesky", "Draw columns by what the chosen ones leave of them (randomly pivoted Cholesky).", rpcholesky,
    seeded=True, requirements=_rows_alone, unsupervised_only=True, every_size=True,
)  # fmt: skip

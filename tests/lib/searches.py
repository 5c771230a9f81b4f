"""A few searches, whose results are printed: kernels with and without checks are compared by them."""

from __future__ import annotations

import numpy as np

from dsel.objective.dense import DenseObjective
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 12))
    for N in (1, 12):
        Y = X[:, :N] @ np.ones((N, N)) + rng.standard_normal((30, N))
        dense = DenseObjective(X.T @ X, X.T @ Y, float((Y**2).sum()))
        demand = OnDemandObjective(InMemoryFactor(X), np.square(X).sum(axis=0), X.T @ Y, dense.c, leading_rows=4)
        print([point.members for point in forward(dense, 4).front])
        for search in (
            Poss(dense, 3), Poss(dense, 3, exchange_every=50), Poss(demand, 3), Poss(dense, 3, processors=4),
        ):  # fmt: skip
            search.advance(400)
            print(search.archived)
        exact = BranchAndBound(dense, 4)
        exact.advance(500)
        print(exact.best)

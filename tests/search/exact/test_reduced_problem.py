"""The children of a node have the bounds of Theorem 4, computed from the data."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.search.exact.astar.reduced_problem import ReducedProblem
from tests.search.exact.cases import data, regression, self_expression


@pytest.mark.parametrize("N", [1, 3, 0])
def test_children_have_the_values_of_theorem_4(N):
    X, Y = data(5, "plain", max(N, 1))
    objective = regression(X, Y) if N else self_expression(X)
    targets = Y if N else X
    reduced = ReducedProblem.of(objective, targets.T @ targets)
    S, q = (1,), 2
    found = reduced.children(S, q)
    assert found.columns.tolist() == [j for j in range(X.shape[1]) if j != 1]
    for j, l, u in zip(found.columns, found.l, found.u, strict=True):
        A = X[:, [1, j]]
        residual = targets - A @ np.linalg.lstsq(A, targets, rcond=None)[0]
        values = np.linalg.svd(residual, compute_uv=False) ** 2
        assert u == pytest.approx(values.sum())
        assert l == pytest.approx(values[q - 1 :].sum(), abs=1e-9 * u)

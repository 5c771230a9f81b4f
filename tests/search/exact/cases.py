"""Problems small enough to enumerate, awkward on purpose, and the papers' data for the golden cases."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from dsel.objective.dense import DenseObjective

KINDS = ("plain", "whole numbers", "duplicates", "dependent", "more columns than rows", "exact fit")


def regression(X, Y, lam=0.0):
    return DenseObjective(X.T @ X, X.T @ Y, float(np.square(Y).sum()), lam)


def self_expression(X, lam=0.0):
    return DenseObjective(X.T @ X, None, float(np.square(X).sum()), lam)


def data(seed, kind, N):
    """X with at most 8 columns, Y with N."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n = int(rng.integers(3, 9))
    m = int(rng.integers(2, n)) if kind == "more columns than rows" else int(rng.integers(n, 20))
    X = rng.standard_normal((m, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 2.0)
    if kind == "whole numbers":  # ties
        X = rng.integers(-1, 2, (m, n)).astype(float)
    if kind == "duplicates":
        X[:, -1] = X[:, 0]
        X[:, 1] = -2.0 * X[:, 0]
    if kind == "dependent":
        X[:, 0] = X[:, 1] + X[:, 2]
        X[:, -1] = 0.0
    Y = X[:, :2] @ rng.standard_normal((2, N))
    if kind != "exact fit":
        Y = Y + rng.standard_normal((m, N))
    if kind == "whole numbers":
        Y = rng.integers(-1, 2, (m, N)).astype(float)
    return X, Y


@st.composite
def problems(draw, targets=(1, 2, 3, 0)):
    """An objective (N = 0: Y = X) and k."""
    seed, kind = draw(st.integers(0, 10_000)), draw(st.sampled_from(KINDS))
    N = draw(st.sampled_from(targets))
    lam = draw(st.sampled_from((0.0, 0.0, 0.5)))
    X, Y = data(seed, kind, max(N, 1))
    objective = regression(X, Y, lam) if N else self_expression(X, lam)
    return objective, draw(st.integers(1, min(5, objective.n)))


@st.composite
def nearly_dependent(draw, targets=(1, 2, 3, 0)):
    """Columns that others determine but for a share of 1e-6 to 1e-12 of their squares, perhaps given included columns;
    an objective, k, and an incumbent or none. What the share hides is what the targets are made of."""
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    n, m, N = int(rng.integers(4, 8)), int(rng.integers(8, 16)), draw(st.sampled_from(targets))
    X = rng.standard_normal((m, n))
    hidden = rng.standard_normal((m, n))
    for j in range(int(rng.integers(1, n))):
        others = rng.choice(n, int(rng.integers(1, 3)), replace=False)
        if j not in others:
            X[:, j] = X[:, others] @ rng.standard_normal(others.size) + 10.0 ** rng.uniform(-6, -3) * hidden[:, j]
    X = X[:, rng.permutation(n)]
    Y = hidden[:, :2] @ rng.standard_normal((2, max(N, 1))) + 0.1 * rng.standard_normal((m, max(N, 1)))
    objective = regression(X, Y) if N else self_expression(X)
    include = [int(j) for j in rng.choice(n, draw(st.integers(0, 2)), replace=False)]
    if include and objective.rank(include) == len(include):
        objective = objective.condition(include)
    k = draw(st.integers(1, min(4, objective.n)))
    return objective, k, tuple(range(k)) if draw(st.booleans()) else ()


def exhaustive(objective, k, S=(), R=None):
    """Least f over S and at most k - |S| columns of R."""
    R = [j for j in range(objective.n) if j not in S] if R is None else R
    return min(objective.value((*S, *Q)) for q in range(k - len(S) + 1) for Q in combinations(R, q))


def hard_case(N=1, n=30):
    """Correlated columns and targets that are mostly noise: thousands of nodes for a few columns."""
    rng = np.random.default_rng([4, N])
    X = rng.standard_normal((60, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 2)
    return regression(X, X[:, :8] @ rng.standard_normal((8, N)) + 30 * rng.standard_normal((60, N)))


def paper_data(name):
    """X and Y of a data set of the papers."""
    here = Path(__file__).resolve().parents[3]
    folders = [Path(os.environ.get("DSEL_PAPERS_DATA", here)), here.parent / "shared" / "data"]
    for folder in folders:
        if (folder / f"{name}.npz").exists():
            with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
                return arrays["X"].astype(float), arrays["Y"].astype(float)
    pytest.skip(f"{name}.npz is in none of {', '.join(map(str, folders))}: set DSEL_PAPERS_DATA to its folder")


def standardized(X):
    X = X[:, np.ptp(X, axis=0) > 0.0]
    return (X - X.mean(0)) / X.std(0)


def halves(name, columns):
    """The first columns for the others and the target, as the AAAI 2021 paper splits libras and spectf."""
    X, Y = paper_data(name)
    return X[:, :columns], np.hstack([X[:, columns:], Y])

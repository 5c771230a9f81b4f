"""Algorithms 1, 2 and 3 of "Linear time feature selection for regularized least-squares" as they are printed.

The paper's X is n x m; here X is m x n and transposed on entry. In line 10 of Algorithm 3 the print drops a transpose:
u = C_:i / (1 + v' C_:i). Each function returns S and, for every round, the errors (n,) of S + i, inf for i in S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Loss = Callable[[Any, Any], Any]


def squared(y: Any, p: Any) -> Any:
    """Squared error."""
    return (y - p) ** 2


def zero_one(y: Any, p: Any) -> Any:
    """Wrong sign; a prediction of 0 is wrong."""
    return np.asarray(y * p <= 0.0, float)


Answer = tuple[list[int], list[Any]]


def algorithm_1(X: Any, Y: Any, k: int, lam: float, loss: Loss, fit: Any = None) -> Answer:
    """The wrapper: trained again for every candidate and every row left out."""
    train = fit or ridge
    m, n = X.shape
    S: list[int] = []
    rounds = []
    while len(S) < k:
        errors = np.full(n, np.inf)
        for i in range(n):
            if i in S:
                continue
            R = [*S, i]
            errors[i] = 0.0
            for j in range(m):
                L = np.delete(np.arange(m), j)
                p = train(X[np.ix_(L, R)], Y[L], X[j, R], lam)
                errors[i] += loss(Y[j], p).sum()
        rounds.append(errors)
        S.append(int(np.argmin(errors)))
    return S, rounds


def ridge(X: Any, Y: Any, x: Any, lam: float) -> Any:
    """Ridge regression without an intercept: its prediction for x."""
    return x @ np.linalg.solve(X.T @ X + lam * np.eye(X.shape[1]), X.T @ Y)


def ridge_with_intercept(X: Any, Y: Any, x: Any, lam: float) -> Any:
    """Ridge regression with an intercept that is not penalized."""
    a, b = X.mean(axis=0), Y.mean(axis=0)
    return b + ridge(X - a, Y - b, x - a, lam)


def ridge_with_ones(X: Any, Y: Any, x: Any, lam: float) -> Any:
    """Ridge regression with a column of ones, penalized."""
    return ridge(np.column_stack([np.ones(len(X)), X]), Y, np.append(1.0, x), lam)


def algorithm_2(X: Any, Y: Any, k: int, lam: float, loss: Loss) -> Answer:
    """Low-rank updated LS-SVM: O(k n m^2)."""
    m, n = X.shape
    S: list[int] = []
    rounds = []
    G = np.eye(m) / lam
    while len(S) < k:
        errors = np.full(n, np.inf)
        for i in range(n):
            if i in S:
                continue
            new = _updated(G, X[:, i])
            p = Y - (new @ Y) / np.diag(new)[:, None]
            errors[i] = loss(Y, p).sum()
        rounds.append(errors)
        S.append(int(np.argmin(errors)))
        G = _updated(G, X[:, S[-1]])
    return S, rounds


def _updated(G: Any, v: Any) -> Any:
    Gv = G @ v
    return G - np.outer(Gv, Gv) / (1.0 + v @ Gv)


def algorithm_3(X: Any, Y: Any, k: int, lam: float, loss: Loss) -> Answer:
    """Greedy RLS: O(k m n)."""
    m, n = X.shape
    a, d, C = Y / lam, np.ones(m) / lam, X / lam
    S: list[int] = []
    rounds = []
    while len(S) < k:
        errors = np.full(n, np.inf)
        for i in range(n):
            if i in S:
                continue
            v = X[:, i]
            u = C[:, i] / (1.0 + v @ C[:, i])
            a_new = a - np.outer(u, v @ a)
            d_new = d - u * C[:, i]
            errors[i] = loss(Y, Y - a_new / d_new[:, None]).sum()
        rounds.append(errors)
        b = int(np.argmin(errors))
        v = X[:, b]
        u = C[:, b] / (1.0 + v @ C[:, b])
        a = a - np.outer(u, v @ a)
        d = d - u * C[:, b]
        C = C - np.outer(u, v @ C)
        S.append(b)
    return S, rounds

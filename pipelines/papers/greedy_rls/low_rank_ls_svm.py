"""Algorithm 2 of the greedy RLS paper, the low-rank updated LS-SVM of Ojeda et al. (2008), in plain NumPy."""

from __future__ import annotations

import time

import numpy as np

from dsel._lib.types import Floats


def select(X: Floats, y: Floats, k: int, lam: float) -> list[int]:
    """Return the k columns that the algorithm chooses by squared leave-one-out error. O(k n m^2)."""
    G, S = np.eye(y.size) / lam, list[int]()
    while len(S) < k:
        errors = [np.inf if i in S else candidate_error(G, X[:, i], y) for i in range(X.shape[1])]
        S.append(int(np.argmin(errors)))
        G = updated(G, X[:, S[-1]])
    return S


def updated(G: Floats, v: Floats) -> Floats:
    """Return G with one more column v, by the formula of Sherman, Morrison and Woodbury (10)."""
    c = G @ v
    return np.asarray(G - np.outer(c / (1.0 + v @ c), c))


def candidate_error(G: Floats, v: Floats, y: Floats) -> float:
    """Return the squared leave-one-out error with one more column v (lines 8 to 15)."""
    new = updated(G, v)
    return float(np.square((new @ y) / np.diag(new)).sum())


def projected_seconds(X: Floats, y: Floats, k: int, candidates: int) -> float:
    """Return the processor seconds of choosing k columns, from the least time of some candidates of the first round."""
    G = np.eye(y.size)
    candidate_error(G, X[:, 0], y)
    least = np.inf
    for i in range(candidates):
        start = time.process_time()
        candidate_error(G, X[:, i], y)
        least = min(least, time.process_time() - start)
    return float(least * k * X.shape[1])

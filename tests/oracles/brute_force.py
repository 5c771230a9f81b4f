"""The best subset of every size, by trying all of them on the data. Independent of dsel."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def best_subsets(
    X: NDArray[np.float64], Y: NDArray[np.float64], k: int, lam: float = 0.0
) -> list[tuple[float, tuple[int, ...]]]:
    """(f, columns) of a subset of least ||Y - X_S A||^2 + lam ||A||^2 for every size from 0 to k."""
    n = X.shape[1]
    design = np.vstack([X, np.sqrt(lam) * np.eye(n)])
    target = np.vstack([Y, np.zeros((n, Y.shape[1]))])

    def f(S: tuple[int, ...]) -> float:
        if not S:
            return float(np.sum(target**2))
        A = np.linalg.lstsq(design[:, S], target, rcond=None)[0]
        return float(np.sum((target - design[:, S] @ A) ** 2))

    return [min((f(S), S) for S in combinations(range(n), size)) for size in range(k + 1)]

"""POCSS (Feng, Qian, Tang, AAAI 2019): Algorithm 1 with the evaluation of Algorithm 2 (Lemmas 1 to 4), line by line.

Independent of dsel. For matrices whose columns are independent of each other, as the lemmas ask. As in the paper's
experiments, submatrices of 2k columns and more are left out, unless `any_size`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
#: The columns of a submatrix S in order of insertion (the rows of S+ are in the same), f(S), S+.
Solution = tuple[tuple[int, ...], float, Matrix]


def without_column(A: Matrix, S: tuple[int, ...], f: float, S_plus: Matrix, j: int) -> Solution:
    """Lemmas 1 and 3: delete column j of A from S, at position i."""
    i = S.index(j)
    rho = S_plus[i]
    beta = A.T @ rho
    f = f + float(beta @ beta) / float(rho @ rho)
    S_plus = S_plus - np.outer(S_plus @ rho, rho) / float(rho @ rho)
    return S[:i] + S[i + 1 :], f, np.delete(S_plus, i, axis=0)


def with_column(A: Matrix, S: tuple[int, ...], f: float, S_plus: Matrix, j: int) -> Solution:
    """Lemmas 2 and 4: insert column j of A into S, at the end."""
    v = A[:, j]
    E_j = v - A[:, list(S)] @ (S_plus @ v)
    delta = A.T @ E_j
    f = f - float(delta @ delta) / delta[j]
    row = E_j / float(E_j @ E_j)
    return (*S, j), f, np.vstack([S_plus - np.outer(S_plus @ v, row), row])


def evaluate(A: Matrix, old: Solution, flips: Iterable[int]) -> Solution:
    """Algorithm 2: from (S, f(S), S+) to the same of Y, all deletions before all insertions."""
    new = old
    for j in [j for j in flips if j in old[0]]:
        new = without_column(A, *new, j)
    for j in [j for j in flips if j not in old[0]]:
        new = with_column(A, *new, j)
    return new


class LiteralPocss:
    """The archive P with f(P) and P+, and lines 5 to 13 of Algorithm 1 as `step`."""

    def __init__(self, A: Matrix, k: int, any_size: bool = False) -> None:
        self.A, self.most = A, A.shape[1] if any_size else 2 * k - 1
        self.P: list[Solution] = [((), float(np.sum(A**2)), np.zeros((0, A.shape[0])))]

    def index(self, s: Iterable[int]) -> int:
        """Where the archive holds s."""
        return [frozenset(S) for S, _, _ in self.P].index(frozenset(s))

    def step(self, parent: int, flips: Iterable[int]) -> None:
        """One iteration: the parent's place in P and the bits that flip."""
        y, f, y_plus = evaluate(self.A, self.P[parent], list(flips))
        if len(y) > self.most:
            return
        if any((z_f < f and len(z) <= len(y)) or (z_f <= f and len(z) < len(y)) for z, z_f, _ in self.P):
            return
        self.P = [z for z in self.P if not (f <= z[1] and len(y) <= len(z[0]))] + [(y, f, y_plus)]

"""Literal implementations of the papers' algorithms in plain NumPy, the baseline of the speed benchmark.

Algorithm 2 of the POSS paper evaluates an offspring in one of three ways: by least squares on the columns of the data
(as the authors' program does), by least squares on the Gram matrix, or, for Y = X, by the recursions of the POCSS
paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dsel._lib.types import Floats, Ints

#: Evaluates an offspring: (parent, flipped columns, offspring) -> f.
Value = Callable[[Ints, Ints, Ints], float]


class LiteralPoss:
    """Algorithm 2 of POSS: each offspring is compared with the whole archive of (f, size, columns)."""

    def __init__(self, value: Value, n: int, k: int, start: Sequence[Sequence[int]], seed: int = 0) -> None:
        self.value, self.n, self.k = value, n, k
        self.rng = np.random.default_rng(seed)
        none = np.empty(0, np.int64)
        self.archive: list[tuple[float, int, Ints]] = [(np.inf, 0, none)]
        for S in start:
            if len(S):
                members = np.asarray(S, np.int64)
                self.archive.append((value(none, members, members), len(S), members))

    def step(self) -> None:
        """One iteration: choose, mutate, evaluate, compare."""
        parent = self.archive[self.rng.integers(len(self.archive))][2]
        s = np.zeros(self.n, bool)
        s[parent] = True
        flips = self.rng.random(self.n) < 1.0 / self.n
        offspring = np.flatnonzero(s ^ flips)
        size = offspring.size
        f = self.value(parent, np.flatnonzero(flips), offspring) if 0 < size < 2 * self.k else np.inf
        if any((g < f and z <= size) or (g <= f and z < size) for g, z, _ in self.archive):
            return
        self.archive = [(g, z, S) for g, z, S in self.archive if not (f <= g and size <= z)]
        self.archive.append((f, size, offspring))


def by_data(X: Floats, y: Floats) -> Value:
    """Return an evaluation by least squares of y (m, 1) on the columns, O(m s^2)."""

    def value(parent: Ints, flips: Ints, S: Ints) -> float:
        columns = X[:, S]
        residual = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
        return float((residual * residual).sum())

    return value


def by_gram(X: Floats, y: Floats) -> Value:
    """Return an evaluation by least squares from K = X'X and b = X'y, O(s^3)."""
    K, b, c = X.T @ X, (X.T @ y).ravel(), float(np.square(y).sum())

    def value(parent: Ints, flips: Ints, S: Ints) -> float:
        b_S = b[S]
        return c - float(b_S @ np.linalg.solve(K[S[:, None], S], b_S))

    return value


def by_recursion(A: Floats, keep: int = 128) -> Value:
    """Return an evaluation of f = ||A - S S^+ A||^2 by Lemmas 1 to 4 of POCSS, O(mn) per flipped column.

    Each solution has its pseudo-inverse, as in the paper. Those of the last `keep` offspring stay in memory.
    """
    held: dict[bytes, tuple[float, Floats]] = {b"": (float(np.square(A).sum()), np.empty((0, A.shape[0])))}

    def value(parent: Ints, flips: Ints, S: Ints) -> float:
        if parent.tobytes() not in held:
            fresh: Floats = np.asarray(np.linalg.pinv(A[:, parent]), np.float64)
            held[parent.tobytes()] = float(np.square(A - A[:, parent] @ (fresh @ A)).sum()), fresh
        f, inverse = held[parent.tobytes()]
        members = parent.tolist()
        for j in flips.tolist():
            recursion = _delete if j in members else _insert
            f, inverse = recursion(A, members, j, f, inverse)
        held[S.tobytes()] = f, inverse[np.argsort(members)]
        if len(held) > keep:
            del held[next(key for key in held if key)]
        return f

    return value


def _delete(A: Floats, members: list[int], j: int, f: float, inverse: Floats) -> tuple[float, Floats]:
    """Delete column j by Lemmas 1 and 3."""
    i = members.index(j)
    rho = inverse[i]
    beta = rho @ A
    length = float(rho @ rho)
    members.pop(i)
    rest: Floats = np.delete(inverse - np.outer(inverse @ rho, rho) / length, i, axis=0)
    return f + float(beta @ beta) / length, rest


def _insert(A: Floats, members: list[int], j: int, f: float, inverse: Floats) -> tuple[float, Floats]:
    """Insert column j by Lemmas 2 and 4."""
    weights = inverse @ A[:, j]
    residual = A[:, j] - A[:, members] @ weights
    delta = residual @ A
    length = float(residual @ residual)
    members.append(j)
    more: Floats = np.vstack([inverse - np.outer(weights, residual / length), residual / length])
    return f - float(delta @ delta) / length, more

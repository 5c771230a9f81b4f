"""Algorithm 2 of POSS (Qian, Yu, Zhou, NIPS 2015), line by line. Independent of dsel.

A solution is the frozenset of the columns whose bit is 1. Where the paper is silent this does what the authors'
program does: o1 is +inf, unevaluated, for no column and, unless `any_size`, for 2k and more; an offspring that is not
strictly dominated goes to the end of the archive, even where it equals its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from dsel._lib.types import Floats

Bits = frozenset[int]
Criterion = Callable[[Bits], float]


def least_squares(X: Floats, Y: Floats, lam: float = 0.0) -> Criterion:
    """min_A ||Y - X_S A||^2 + lam ||A||^2, solved again on the data columns at every call."""

    def value(s: Bits) -> float:
        S = sorted(s)
        if not S:
            return float(np.sum(Y**2))
        design = np.vstack([X[:, S], np.sqrt(lam) * np.eye(len(S))]) if lam else X[:, S]
        target = np.vstack([Y, np.zeros((len(S), Y.shape[1]))]) if lam else Y
        A = np.linalg.lstsq(design, target, rcond=None)[0]
        return float(np.sum((target - design @ A) ** 2))

    return value


def normal_equations(X: Floats, y: Floats) -> Criterion:
    """The same for one target, by C_S^-1 b_S as the authors' program has it: quick enough for many runs."""
    C, b, c = X.T @ X, X.T @ y, float(y @ y)

    def value(s: Bits) -> float:
        S = np.fromiter(s, np.int64)
        return c - float(b[S] @ np.linalg.solve(C[np.ix_(S, S)], b[S]))

    return value


class LiteralPoss:
    """The archive P, a list of (s, o1), and line 4 to 9 as `step`."""

    def __init__(
        self, f: Criterion, n: int, k: int, I: Callable[[Bits], Hashable] = lambda s: 0, any_size: bool = False
    ) -> None:
        self.f, self.n, self.k, self.I, self.most = f, n, k, I, n if any_size else 2 * k - 1
        self.P: list[tuple[Bits, float]] = [(frozenset(), np.inf)]

    def index(self, s: Iterable[int]) -> int:
        """Where the archive holds s."""
        return [z for z, _ in self.P].index(frozenset(s))

    def step(self, parent: int, flips: Iterable[int]) -> None:
        """One iteration: the parent's place in P and the bits that flip."""
        s = self.P[parent][0] ^ frozenset(flips)
        o1 = np.inf if len(s) == 0 or len(s) > self.most else self.f(s)
        rivals = [(z, z1) for z, z1 in self.P if self.I(z) == self.I(s)]
        if any((z1 < o1 and len(z) <= len(s)) or (z1 <= o1 and len(z) < len(s)) for z, z1 in rivals):
            return
        Q = {z for z, z1 in rivals if o1 <= z1 and len(s) <= len(z)}
        self.P = [(z, z1) for z, z1 in self.P if z not in Q] + [(s, o1)]

    def run(self, T: int, rng: np.random.Generator) -> None:
        """T iterations, every bit flipped with probability 1/n."""
        for _ in range(T):
            self.step(int(rng.integers(len(self.P))), np.flatnonzero(rng.random(self.n) < 1.0 / self.n).tolist())

    def best(self) -> tuple[Bits, float]:
        """Line 12: the least f among at most k columns."""
        return min(((z, z1) for z, z1 in self.P if len(z) <= self.k), key=lambda solution: solution[1])

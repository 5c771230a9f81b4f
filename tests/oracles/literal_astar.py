"""Figure 2 of Wan and Schweitzer (AAAI 2021) word for word, from the data."""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats


def literal_astar(X: Floats, Y: Floats, k: int, gamma: float) -> tuple[int, ...]:
    """Return the columns of the first goal in the order of f = l + gamma u."""

    def node(S: frozenset[int]) -> tuple[float, frozenset[int]]:
        Q = np.linalg.qr(X[:, sorted(S)])[0]
        values = np.linalg.svd(Y - Q @ (Q.T @ Y), compute_uv=False) ** 2
        left = k - len(S)
        return float(values[left:].sum() + gamma * values.sum()), S

    fringe, closed = [node(frozenset())], set()
    while True:
        fringe.sort(key=lambda entry: (entry[0], -len(entry[1])))
        S = fringe.pop(0)[1]
        if len(S) == k:
            return tuple(sorted(S))
        for j in set(range(X.shape[1])) - S:
            if S | {j} not in closed:
                closed.add(S | {j})
                fringe.append(node(S | {j}))

"""Adaptive randomized pivoting (ARP) for Y = X, and its deterministic form.

Source: Cortinovis, Kressner, "Adaptive randomized pivoting for column subset selection, DEIM, and low-rank
approximation", arXiv 2412.13992, 2024. The deterministic form is that of Osinsky, "Close to optimal column
approximations with a single SVD", Linear Algebra and its Applications 725, 2025.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dsel._lib.rng import uniforms
from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective
from dsel.search.comparators.methods import DrawOptions, best_of_orders, principal_directions, singular_method
from dsel.search.outcome import SearchOutcome, check_size

Choice = Literal["sampled", "derandomized"]
#: A row of V of at most this squared norm lies in the span of the chosen ones.
_SPANNED = 1e-20


def arp(objective: Objective, k: int, seed: int = 0, choice: Choice = "sampled", draws: int = 1) -> SearchOutcome:
    """Return the best of some draws of k columns, or the deterministic choice, and its first 1 to k - 1. O(n^3).

    V_k (n, k) has the leading right singular vectors of X. A column is drawn in proportion to the squared norm of its
    row, and the direction of that row is removed from all rows. The expected error is at most k + 1 times that of the
    best approximation of rank k. The deterministic choice never exceeds it.
    """
    check_size(k, objective.n)
    values, V = principal_directions(objective, k)
    if choice == "derandomized":
        return best_of_orders(objective, k, [derandomized_order(objective.K - (V * values) @ V.T, V)])
    return best_of_orders(objective, k, (_sampled_order(V, seed, draw) for draw in range(draws)))


def _sampled_order(V: Floats, seed: int, draw: int) -> Ints:
    V, chosen = V.copy(), list[int]()
    for u in uniforms(seed, draw, 0, V.shape[1]):
        squares = _squares(V, chosen)
        j = int(np.searchsorted(np.cumsum(squares), u * squares.sum(), side="right"))
        chosen.append(min(j, int(np.flatnonzero(squares)[-1])))  # the sum is rounded
        _remove_direction(V, chosen[-1])
    return np.array(chosen, np.int64)


def derandomized_order(left: Floats, V: Floats) -> Ints:
    """Return the columns that keep the conditional expectation of the error smallest, one after another.

    left: (n, n) E'E for the residual E = X - X V V'. A column adds |E_j|^2 / |V_j|^2 to the squared norm of E.
    """
    left, V, chosen = left.copy(), V.copy(), list[int]()
    for _ in range(V.shape[1]):
        squares = _squares(V, chosen)
        added = np.full(squares.size, np.inf)
        np.divide(np.diag(left), squares, out=added, where=squares > _SPANNED)
        chosen.append(int(np.argmin(added)))
        g, u = left[:, chosen[-1]].copy(), _remove_direction(V, chosen[-1])
        left += g[chosen[-1]] * np.outer(u, u) - np.outer(g, u) - np.outer(u, g)
    return np.array(chosen, np.int64)


def _squares(V: Floats, chosen: list[int]) -> Floats:
    squares = np.square(V).sum(axis=1)
    squares[chosen] = 0.0
    return np.asarray(squares)


def _remove_direction(V: Floats, j: int) -> Floats:
    """Remove the direction of row j from all rows of V; return how much of row j was in each row."""
    row = V[j].copy()
    shares: Floats = V @ row / (row @ row)
    V -= np.outer(shares, row)
    return shares


class ArpOptions(DrawOptions):
    """Options of adaptive randomized pivoting.

    Parameters
    ----------
    choice : {"sampled", "derandomized"}
        Whether columns are drawn, or those that keep the expected error smallest are chosen.
    draws : int
        How many draws there are. The best one is the answer.
    """

    choice: Choice = "sampled"


ARP = singular_method(
    "arp", "Draw columns by the singular vectors that are left (adaptive randomized pivoting).", arp, seeded=True,
    options=ArpOptions,
)  # fmt: skip

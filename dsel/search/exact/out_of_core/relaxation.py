"""The relaxation of nodes over wide data: among columns in memory, and its bounds by passes over all columns.

For any coefficients b, with v = y - X b and r = X'v, no subset S of a node explains more than

    |X b|^2 + sum over F of r_j^2 / lam + the q largest other r_j^2 / lam

where the columns F are fixed in and q may be added. This is the perspective relaxation with D = lam I
(dsel.search.exact.perspective.relaxation) in its dual form: it holds for every v, and needs the products of v with
all columns, one pass over the data. Products of many nodes share a pass. The best b is found among columns in memory,
the pool. Each pass shows which other columns belong there.

Reduced costs leave columns out of a node: those that cannot be in a better subset.

A node of the tree over wide data, and how it is saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from dsel._lib.types import Floats, Ints
from dsel.search.exact.out_of_core.pool import ColumnPool
from dsel.search.exact.perspective.coordinate_descent import gains, largest, level, weights
from dsel.search.exact.perspective.relaxation import Box, Mask, Problem, relax


@dataclass(frozen=True, slots=True)
class Node:
    """Columns that are in and out, the coefficients b of the columns `support`.

    estimate: what its subsets of the pool explain at most. tries: how often it was relaxed.
    """

    fixed: tuple[int, ...]
    out: tuple[int, ...]
    support: tuple[int, ...]
    b: tuple[float, ...]
    estimate: float
    tries: int = 1

    def as_list(self) -> list[Any]:
        """Return the node as JSON holds it."""
        return [list(self.fixed), list(self.out), list(self.support), list(self.b), self.estimate, self.tries]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Node:
        """Return the node that `as_list` wrote."""
        fixed, out, support, b, estimate, tries = values
        return cls(tuple(fixed), tuple(out), tuple(support), tuple(b), estimate, tries)


#: A relaxation ends when the bound is this close to it, as a share of the gap.
CLOSE = 0.02
#: A relaxation continues until its bound is below what is enough by this share of the gap.
_FURTHER = 0.2
#: Weights within this of 0 and 1 are whole.
_WHOLE = 1e-6
#: Least penalty on coefficients beyond lam, for columns of norm 1.
_LEAST_EXTRA = 1e-6


class PoolRelaxation:
    """The relaxation of nodes, for subsets of at most k columns.

    alive: (n,) columns that may be in a better subset. limit: the largest sum of squared coefficients, for columns of
    norm 1, that bounds are about; 0: any. extra: the penalty p on coefficients beyond lam, for columns of norm 1.
    largest: the largest coefficient that bounds are about, for columns of norm 1; 0: any. There is no p then.

    Notes
    -----
    Without a penalty, nearly equal columns may explain anything with large coefficients, and no bound for all subsets
    follows from a few products. For subsets whose coefficients have a sum of squares of at most R^2,

        f(S) >= min over b of |y - X_S b|^2 + lam |b|^2 + p (|b|^2 - R^2)    for every p >= 0,

    so that the relaxation with the penalty lam + p gives a bound. The root finds the best p. Where each coefficient is
    limited, its gain is limited, too, and no p is needed.
    """

    def __init__(self, pool: ColumnPool, k: int, lam: float, total: float) -> None:
        self._pool, self._k, self._total = pool, k, total
        self._usable: Mask = np.isfinite(pool.norms)
        self._ridge: Floats = np.where(self._usable, lam / np.square(pool.norms), 1.0)
        self._of_pool: Problem | None = None
        self.alive: Mask = self._usable.copy()
        self.limit = self.extra = self.largest = 0.0

    @property
    def screened(self) -> int:
        """The number of columns that are not alive."""
        return int(self.alive.size - self.alive.sum())

    @property
    def d(self) -> Floats:
        """D (n,) for columns of norm 1."""
        return self._ridge + self.extra

    @property
    def _problem(self) -> Problem:
        """The relaxation's problem for the columns of the pool."""
        d = self.d[self._pool.columns]
        if self._of_pool is None or not np.array_equal(self._of_pool.d, d):
            box = None
            if self.largest:  # the pass counts rounding
                box = Box(np.full(d.size, self.largest), self._k * self.largest, 0.0)
            self._of_pool = Problem(self._pool.gram + np.diag(d), self._pool.cross, d, box)
        return self._of_pool

    @property
    def _allowance(self) -> float:
        """What the penalty on coefficients beyond lam may be worth, for subsets within the limit."""
        return self.extra * self.limit

    def fit(self, S: Ints) -> Floats:
        """Return the coefficients of columns S of the pool, for columns of norm 1."""
        at = self._pool.place[S]
        gram = self._pool.gram[np.ix_(at, at)] + np.diag(self._ridge[S])
        return np.asarray(np.linalg.lstsq(gram, self._pool.cross[at], rcond=None)[0])

    def sharpen_extra(self, squares: Floats) -> None:
        """Find the best penalty for the squared products (n,) of the residuals with all columns."""
        ridge = float(np.median(self._ridge[self._usable])) if self._usable.any() else 0.0
        self.extra = max((largest(squares, self._k) / self.limit) ** 0.5 - ridge, 0.0 if ridge else _LEAST_EXTRA)

    def relaxed(self, node: Node, bound: float, enough: float) -> Node:
        """Return the node with the best coefficients among the columns of the pool.

        bound: its present one. enough: what the best known subset explains. The subsets of the node may be found to
        explain less than that: the other columns count, too.
        """
        pool, problem, q = self._pool, self._problem, self._k - len(node.fixed)
        fixed, free = np.zeros(problem.n, np.bool_), self.free(node)[pool.columns]
        fixed[pool.place[list(node.fixed)]] = True
        ended = enough - _FURTHER * (bound - enough) - self._allowance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)  # copies of a column: the bound holds for any coefficients
            found = relax(problem, fixed, free, q, self._coefficients(node), ended, CLOSE)
        S = np.flatnonzero(found.b)
        support = tuple(pool.columns[S].tolist())
        return Node(node.fixed, node.out, support, tuple(found.b[S].tolist()), found.bound + self._allowance,
                    node.tries + 1)  # fmt: skip

    def bounds(self, nodes: list[Node], sharpen: bool = False) -> list[tuple[float, Floats]]:
        """Return what the subsets of each node explain at most, and its g (n,), by one pass.

        sharpen: find the best penalty on coefficients for the first node.
        """
        pool, usable, found = self._pool, self._usable, []
        b = np.stack([self._coefficients(node) for node in nodes], axis=1)
        for node, own, products in zip(nodes, b.T, pool.combinations(b), strict=True):
            size = float(np.abs(own).sum())
            rounding = pool.rounding * (self._total**0.5 + size)
            squares = np.where(usable, np.square(np.abs(pool.all_cross - products) + rounding), 0.0)
            if sharpen:
                self.sharpen_extra(squares)
            g = (
                gains(np.sqrt(squares), self.d, np.full(squares.size, self.largest))
                if self.largest
                else squares / self.d
            )
            S = np.flatnonzero(own)
            fitted = float(own[S] @ pool.gram[np.ix_(S, S)] @ own[S]) + pool.rounding * size**2 + self._allowance
            best = largest(g[self.free(node)], self._k - len(node.fixed))
            found.append((fitted + float(g[list(node.fixed)].sum()) + best, g))
        return found

    def candidates(self, node: Node, explained: float, g: Floats, enough: float) -> Mask:
        """Return which free columns (n,) may be in a subset of a node that explains more than `enough`.

        explained: what g (n,) proves that its subsets explain at most.
        """
        free, q = self.free(node), self._k - len(node.fixed)
        values = g[free]
        if q < values.size:
            last = np.partition(values, values.size - q)[values.size - q]
            free[free] = explained - last + np.maximum(values, last) > enough
        return free

    def wanted(self, node: Node, g: Floats, most: int) -> Ints:
        """Return the columns that a node needs and that are not in the pool, the first ones by g (n,)."""
        q, free = self._k - len(node.fixed), self.free(node)
        price = level(self._weights(node)[1], q) ** 2
        if self.largest:  # columns with fractional weights have this g
            price = _rank(g[free & (self._pool.place >= 0)], q)
        columns = np.flatnonzero(free & (self._pool.place < 0) & (g > price))
        return columns[np.argsort(-g[columns], kind="stable")[:most]]

    def free(self, node: Node) -> Mask:
        """Return which columns (n,) may be added to those that are fixed."""
        free = self.alive.copy()
        free[[*node.fixed, *node.out]] = False
        return free

    def branching_column(self, node: Node) -> int:
        """Return the column with the most fractional weight."""
        columns, a = self._weights(node)
        q = self._k - len(node.fixed)
        z = weights(a, q)
        if self.largest:
            z = self._problem.weights(self._coefficients(node), self._pool.place[columns], q)
        if not z.size:
            return int(np.flatnonzero(self.free(node))[0])
        fraction = np.minimum(z, 1.0 - z)
        return int(columns[fraction.argmax() if fraction.max() > _WHOLE else z.argmax()])

    def rounded(self, node: Node) -> list[int]:
        """Return the subset of the largest weights of a node."""
        columns, a = self._weights(node)
        q = self._k - len(node.fixed)
        if self.largest:
            a = np.abs(self._coefficients(node)[self._pool.place[columns]])
        return [*node.fixed, *columns[np.argsort(-a, kind="stable")[:q]].tolist()]

    def _coefficients(self, node: Node) -> Floats:
        """Return the coefficients (p,) of a node for the columns of the pool."""
        b = np.zeros(self._pool.columns.size)
        b[self._pool.place[list(node.support)]] = node.b
        return b

    def _weights(self, node: Node) -> tuple[Ints, Floats]:
        """Return the columns of a node that have coefficients and are not fixed, and sqrt(d_j) |b_j| of each."""
        support = np.asarray(node.support, np.int64)
        free = ~np.isin(support, node.fixed)
        columns = support[free]
        return columns, np.abs(np.asarray(node.b))[free] * np.sqrt(self.d[columns])


def _rank(g: Floats, q: int) -> float:
    """Return the q-th largest element; 0 if there are fewer."""
    return float(np.partition(g, g.size - q)[g.size - q]) if 0 < q <= g.size else 0.0

"""The best subsets of all sizes, from one traversal that the sizes share.

A node is a set V of columns, of which F are fixed and D may be dropped. The root is all columns. With A = (K_VV)^-1 and
beta = A B_V, without the columns of T in D

    f(V - T) - f(V) = tr(beta_T' (A_TT)^-1 beta_T)

This is at least |beta_j|^2 / A_jj for each j in T. It is also at least the sum over T of d_j |beta_j|^2, for a diagonal
d with K - diag(d) positive semidefinite, because (A_TT)^-1 is a Schur complement of K_VV. So the least f of a subset of
each size below a node is bounded by sums of the smallest terms. A node is visited if a subset of some size may be
better than that size's threshold. To drop a column from A and beta is one step of elimination.

Sources: Furnival and Wilson, "Regressions by leaps and bounds", Technometrics 1974; Hofmann, Gatu, Kontoghiorghes,
Colubi and Zeileis, "lmSubsets", J. Stat. Software 2020. The second bound is that of the perspective relaxation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN
from dsel._lib.types import Floats, Int, Ints
from dsel.objective.few_targets import few_targets
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.perspective.relaxation import diagonal_outside, scaled_gram

Members = tuple[int, ...]

#: Rounding in A and beta is at most this many times n eps, the condition number of K and ||Y||^2.
_ROUNDING = 50.0
#: The traversal is not used if rounding is worth more than this share of ||Y||^2.
_MOST_ROUNDING = 1e-7
#: Targets that are kept one by one, at most.
_MOST_TARGETS = 8
#: Nodes between two looks at the clock.
_BUDGET = 20_000
#: Of each depth: how many columns are fixed, how many may be dropped, the next one to drop, the largest size that
#: matters, and whether the node was looked at.
_FIXED, _LEFT, _NEXT, _HIGHEST, _OPENED = range(5)
#: Why the kernel returns.
_DONE, _PAUSED, _BETTER = range(3)


@compiled(
    "i8(f8[:,:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8[::1], i8[:,:,::1], i8[:,::1], i8[::1], i8[::1], f8[::1],"
    "i8)",
    nogil=True,
)  # fmt: skip
def _traverse(
    A: Floats, B: Floats, d: Floats, terms: Floats, f: Floats, columns: Ints, frame: Ints, fixed: Ints, state: Ints,
    thresholds: Floats, until: Int,
) -> int:  # fmt: skip
    """Continue the traversal until a subset is below the threshold of its size, or `until` nodes are visited.

    A (n + 1, n, n), B (n + 1, n, N): of each depth, for the columns that may be dropped. terms (n + 1, 3, n):
    |beta_j|^2 / A_jj and d_j |beta_j|^2 of each place, and scratch. f (n + 1,). columns (n + 1, 2, n): the column of
    each place, and the places by their first term, the largest first. fixed (n,): the fixed columns. state: the depth
    and the nodes so far.
    """
    N, keys = B.shape[2], terms[0, 2]
    while state[0] >= 0:
        e = state[0]
        own, order, D, F = columns[e, 0], columns[e, 1], frame[e, _LEFT], frame[e, _FIXED]
        size = F + D
        if frame[e, _OPENED] == 0:
            if state[1] >= until:
                return _PAUSED
            frame[e, _OPENED] = 1
            frame[e, _NEXT] = 0
            frame[e, _HIGHEST] = -1
            state[1] += 1
            for a in range(D):
                square = 0.0
                for x in range(N):
                    square += B[e, a, x] * B[e, a, x]
                terms[e, 0, a] = square / A[e, a, a]
                terms[e, 1, a] = square * d[own[a]]
                b = a
                while b > 0 and terms[e, 0, order[b - 1]] < terms[e, 0, a]:
                    order[b] = order[b - 1]
                    b -= 1
                order[b] = a
            _smallest_first(terms, order, e, np.int64(0), D, keys)
            total = 0.0
            for t in range(1, D + 1):
                total += keys[t - 1]
                if size - t < 1:
                    break
                if f[e] + max(terms[e, 0, order[D - t]], total) < thresholds[size - t]:
                    frame[e, _HIGHEST] = size - t
                    break
            if size > 0 and f[e] < thresholds[size]:
                return _BETTER
        i = frame[e, _NEXT]
        if i >= D or frame[e, _HIGHEST] < 0 or D - i < size - frame[e, _HIGHEST]:
            state[0] -= 1
            continue
        frame[e, _NEXT] += 1
        p = order[i]
        value = f[e] + terms[e, 0, p]
        if not value < thresholds[max(F + i, 1)]:  # thresholds are smaller for larger sizes
            continue
        left = D - i - 1
        _smallest_first(terms, order, e, i + 1, D, keys)
        total = terms[e, 1, p]
        matters = False
        for t in range(1, left + 2):
            if size - t < 1 or matters:
                break
            if t > 1:
                total += keys[t - 2]
            if size - t <= frame[e, _HIGHEST]:
                matters = f[e] + max(terms[e, 0, p], total) < thresholds[size - t]
        if not matters:
            continue
        for x in range(i):
            fixed[F + x] = own[order[x]]
        for x in range(left):
            row = order[i + 1 + x]
            u = A[e, row, p] / A[e, p, p]
            columns[e + 1, 0, x] = own[row]
            for y in range(left):
                A[e + 1, x, y] = A[e, row, order[i + 1 + y]] - u * A[e, p, order[i + 1 + y]]
            for y in range(N):
                B[e + 1, x, y] = B[e, row, y] - u * B[e, p, y]
        f[e + 1] = value
        frame[e + 1, _FIXED], frame[e + 1, _LEFT], frame[e + 1, _OPENED] = F + i, left, 0
        state[0] = e + 1
    return _DONE


@compiled("void(f8[:,:,::1], i8[::1], i8, i8, i8, f8[::1])", inner=True)
def _smallest_first(terms: Floats, order: Ints, e: Int, first: Int, end: Int, keys: Floats) -> None:
    """Write the second terms of the places order[first:end] to `keys`, the smallest first."""
    for count in range(end - first):
        value = terms[e, 1, order[end - 1 - count]]  # nearly in this order
        b = count
        while b > 0 and keys[b - 1] > value:
            keys[b] = keys[b - 1]
            b -= 1
        keys[b] = value


#: What the traversal calls.
ALL_SIZES_KERNELS = (_traverse,)


class AllSizes:
    """A traversal of the subsets of all columns that are better than the threshold of their size.

    Parameters
    ----------
    objective : Objective
        f over n columns, with the whole Gram matrix.
    thresholds : (n + 1,) array
        Of each size, f below which subsets are looked for. They must not increase with the size; -infinity for sizes
        that do not matter. It may be lowered during the traversal.

    Raises
    ------
    ValueError
        If rounding may decide: columns are nearly dependent, or there are too many targets.

    Notes
    -----
    A node costs O(D^2). `error` is what rounding is worth at most, as a share of ||Y||^2.
    """

    def __init__(self, objective: Objective, thresholds: Floats) -> None:
        n, K = objective.n, scaled_gram(objective)
        B = few_targets(objective) / np.sqrt(np.diag(objective.K) + objective.lam)[:, None]
        values = np.linalg.eigvalsh(K)
        self.error = _ROUNDING * n * float(np.finfo(np.float64).eps) * float(values[-1] / max(values[0], 1e-300))
        d = diagonal_outside(K)
        if B.shape[1] > _MOST_TARGETS or d is None or values[0] <= 10.0 * DEPENDENCE_TOLERANCE:
            raise ValueError("columns are nearly dependent, or there are many targets")
        if self.error > _MOST_ROUNDING:
            raise ValueError("rounding may decide which subset is better")
        self.thresholds, self._d = thresholds, d
        self._A, self._B = np.zeros((n + 1, n, n)), np.zeros((n + 1, n, B.shape[1]))
        self._A[0] = np.linalg.inv(K)
        self._B[0] = self._A[0] @ B
        self._terms, self._f = np.zeros((n + 1, 3, n)), np.zeros(n + 1)
        self._f[0] = objective.c - float(np.vdot(B, self._B[0]))
        self._columns, self._frame = np.zeros((n + 1, 2, n), np.int64), np.zeros((n + 1, 5), np.int64)
        self._columns[0, 0], self._frame[0, _LEFT] = np.arange(n), n
        self._fixed, self._state = np.zeros(n, np.int64), np.zeros(2, np.int64)

    @property
    def nodes(self) -> int:
        """The number of visited nodes."""
        return int(self._state[1])

    def run(self, better: Callable[[Members], None], deadline: Deadline) -> bool:
        """Traverse, and return whether all was traversed before the deadline.

        better: called with each subset that is below its threshold; it may lower thresholds.
        """
        with deadline.paused():
            load_kernels(*ALL_SIZES_KERNELS)
        while not deadline.passed:
            status = _traverse(
                self._A, self._B, self._d, self._terms, self._f, self._columns, self._frame, self._fixed, self._state,
                self.thresholds, np.int64(self.nodes + _BUDGET),
            )  # fmt: skip
            if status == _DONE:
                return True
            if status == _BETTER:
                e = self._state[0]
                fixed, left = self._fixed[: self._frame[e, _FIXED]], self._columns[e, 0, : self._frame[e, _LEFT]]
                better(tuple(sorted((*fixed.tolist(), *left.tolist()))))
        return False


@dataclass(frozen=True)
class BestOfSizes:
    """The best known subset of each size, and whether they are proved to be the best.

    error: what rounding is worth in the proof, as a share of ||Y||^2.
    """

    subsets: dict[int, Members]
    proven: bool
    nodes: int
    error: float


def best_of_sizes(
    objective: Objective, k: int, known: Sequence[Sequence[int]], deadline: Deadline
) -> BestOfSizes:  # fmt: skip
    """Return the best subset of each size from 1 to k, from known subsets. Errors: ValueError as in `AllSizes`."""
    best: dict[int, tuple[float, Members]] = {}
    thresholds = np.full(objective.n + 1, -np.inf)
    thresholds[: k + 1] = objective.c + MARGIN * objective.total
    traversal = AllSizes(objective, thresholds)

    def better(members: Members) -> None:
        size, value = len(members), objective.value(members)
        if size in best and not value < best[size][0]:
            thresholds[size] = min(thresholds[size], value - 2.0 * MARGIN * objective.total)  # rounding in its f
            return
        best[size] = value, members
        thresholds[size:][: k + 1 - size] = np.minimum(
            thresholds[size:][: k + 1 - size], value - MARGIN * objective.total
        )  # fmt: skip

    for S in known:
        if S and len(S) <= k:
            better(tuple(sorted(S)))
    done = traversal.run(better, deadline)
    return BestOfSizes({size: S for size, (_, S) in best.items()}, done, traversal.nodes, traversal.error)

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

import bisect
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN
from dsel._lib.types import Floats
from dsel.objective.few_targets import few_targets
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.anytime import AnytimeSearch, Deadline
from dsel.search.exact.all_sizes_kernel import BETTER, DONE, FIXED, LEFT, traverse
from dsel.search.exact.certificate import ALL_SIZES, Certificate
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.perspective.diagonals import diagonal_outside, scaled_gram

Members = tuple[int, ...]

#: With more columns the traversal takes too long to be tried.
MOST_COLUMNS = 100

#: Most of the time of all proofs that the traversal takes: the share, and seconds. With less than half of the columns
#: it visits many subsets that are not asked for.
_LIMITS, _LIMITS_OF_FEW = (0.5, 300.0), (0.1, 6.0)

#: Rounding in A and beta is at most this many times n eps, the condition number of K and ||Y||^2.
_ROUNDING = 50.0
#: The traversal is not used if rounding is worth more than this share of ||Y||^2.
_MOST_ROUNDING = 1e-7
#: Targets that are kept one by one, at most.
_MOST_TARGETS = 8
#: A subset that is better by less than this share of ||Y||^2 may be left out.
_NEAR = 1.5 * MARGIN
#: Nodes between two looks at the clock.
_BUDGET = 20_000


class NearlyDependentError(ValueError):
    """Columns are nearly dependent; without `column`, fewer are."""

    def __init__(self, why: str, direction: Floats) -> None:
        """Take the reason, and a direction in which the columns (n,) hardly vary."""
        super().__init__(why)
        sizes = np.abs(direction)
        self.column = int(np.flatnonzero(sizes >= 0.5 * sizes.max())[-1])  # a sum mostly comes after its parts


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
        values, directions = np.linalg.eigh(K)
        self.error = _ROUNDING * n * float(np.finfo(np.float64).eps) * float(values[-1] / max(values[0], 1e-300))
        d = diagonal_outside(K)
        if B.shape[1] > _MOST_TARGETS:
            raise ValueError(f"there are more than {_MOST_TARGETS} independent targets")
        if d is None or values[0] <= 10.0 * DEPENDENCE_TOLERANCE:
            raise NearlyDependentError("columns are nearly dependent", directions[:, 0])
        if self.error > _MOST_ROUNDING:
            raise NearlyDependentError("rounding may decide which subset is better", directions[:, 0])
        self.thresholds, self._d = thresholds, d
        self.total, self.best_value, self.last_gain = objective.total, objective.c, 0
        self._A, self._B = np.zeros((n + 1, n, n)), np.zeros((n + 1, n, B.shape[1]))
        self._A[0] = np.linalg.inv(K)
        self._B[0] = self._A[0] @ B
        self._terms, self._f = np.zeros((n + 1, 3, n)), np.zeros(n + 1)
        self._f[0] = objective.c - float(np.vdot(B, self._B[0]))
        self._columns, self._frame = np.zeros((n + 1, 2, n), np.int64), np.zeros((n + 1, 5), np.int64)
        self._columns[0, 0], self._frame[0, LEFT] = np.arange(n), n
        self._fixed, self._state = np.zeros(n, np.int64), np.zeros(2, np.int64)

    def elimination_path(self, most: int) -> Iterator[tuple[Members, float]]:
        """Yield the subsets that are left when the column of least effect is dropped again and again, with their f.

        Before each step, `most` subsets without another column of little effect are yielded, too. O(n^3).
        """
        A, beta, f, members = self._A[0].copy(), self._B[0].copy(), float(self._f[0]), list(range(self._A.shape[1]))
        yield tuple(members), f
        while len(members) > 1:
            increases = np.square(beta).sum(axis=1) / np.diag(A)
            for i in np.argsort(increases)[:most]:
                yield (*members[:i], *members[i + 1 :]), f + float(increases[i])
            p = int(increases.argmin())
            f += float(increases[p])
            kept = np.arange(len(members)) != p
            beta = (beta - np.outer(A[p] / A[p, p], beta[p]))[kept]
            A = (A - np.outer(A[p], A[p] / A[p, p]))[np.ix_(kept, kept)]
            del members[p]

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        return int(self._state[1])

    def state(self) -> dict[str, Any]:
        """Return nothing: the traversal is not saved."""
        return {}

    def run(
        self, better: Callable[[Members], None], deadline: Deadline,
        on_slice: Callable[[AnytimeSearch], None] | None = None,
    ) -> bool:  # fmt: skip
        """Traverse, and return whether all was traversed before the deadline.

        better: called with each subset that is below its threshold; it may lower thresholds. on_slice: called between
        slices of nodes; it may raise to interrupt the traversal.
        """
        with deadline.paused():
            load_kernels(traverse)
        while not deadline.passed:
            status = traverse(
                self._A, self._B, self._d, self._terms, self._f, self._columns, self._frame, self._fixed, self._state,
                self.thresholds, np.int64(self.iteration + _BUDGET),
            )  # fmt: skip
            if status == DONE:
                return True
            if on_slice is not None:
                on_slice(self)
            if status == BETTER:
                e = self._state[0]
                fixed, left = self._fixed[: self._frame[e, FIXED]], self._columns[e, 0, : self._frame[e, LEFT]]
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

    def certificate(self, setup: CommonSetup, size: int, known: Sequence[int], seconds: float) -> Certificate:
        """Return what is proved about subsets of at most `size` columns. known: the subset to certify, or none."""
        objective, guarantee = setup.objective, setup.guarantee(size)
        members = self.subsets[size]
        value, before = objective.value(members), objective.value(known) if known else float("inf")
        return replace(guarantee, error=guarantee.error + self.error).certificate(
            objective, size, members, value, value - _NEAR * objective.total, nodes=self.nodes, seconds=seconds,
            method=ALL_SIZES, better=value < before - MARGIN * objective.total < float("inf"),
        )  # fmt: skip


@dataclass(frozen=True)
class BestByCriterion:
    """The best subsets by a criterion of f and the size, with f, and whether it is proved that there are no others."""

    subsets: list[tuple[Members, float]]
    proven: bool
    nodes: int


def best_by_criterion(
    objective: Objective, nbest: int, value: Callable[[float, int], float], limit: Callable[[float, int], float],
    known: Iterable[Sequence[int]], deadline: Deadline, on_slice: Callable[[AnytimeSearch], None] | None = None,
) -> BestByCriterion:  # fmt: skip
    """Return the `nbest` subsets of least value, of any size. Errors: ValueError as in `AllSizes`.

    value: the criterion of an f and a size, which increases with f. limit: the f of a value and a size.
    """
    n = objective.n
    best: list[tuple[float, Members, float]] = []
    seen: set[Members] = set()
    thresholds = np.full(n + 1, objective.c + MARGIN * objective.total)
    with one_blas_thread():
        traversal = AllSizes(objective, thresholds)

    def better(members: Members) -> None:
        if members in seen:
            return
        f = objective.value(members)
        seen.add(members)
        before = best[-1][0] if len(best) == nbest else float("inf")
        bisect.insort(best, (value(f, len(members)), members, f))
        del best[nbest:]
        if len(best) == nbest and best[-1][0] < before:
            worst = [limit(best[-1][0], size) + traversal.error * objective.total for size in range(n + 1)]
            thresholds[:] = np.minimum(thresholds, np.maximum.accumulate(worst[::-1])[::-1])
        traversal.best_value = best[0][2]

    for S in ((), *known):
        better(tuple(sorted(S)))
    with one_blas_thread():
        path = heapq.nsmallest(2 * nbest, traversal.elimination_path(nbest), lambda pair: value(pair[1], len(pair[0])))
    for members, _ in path:
        better(members)
    done = traversal.run(better, deadline, on_slice)
    return BestByCriterion([(S, f) for _, S, f in best], done, traversal.iteration)


def traversal_seconds(objective: ItemObjective, k: int, seconds: float | None) -> float:
    """Return how long a traversal of all sizes up to k may take before each size gets its own proof; 0 for none.

    seconds: those of all proofs, None without a limit.
    """
    if objective.groups is not None or not objective.has_gram or objective.n > MOST_COLUMNS:
        return 0.0
    share, most = _LIMITS if 2 * k >= objective.n else _LIMITS_OF_FEW
    return most if seconds is None else min(share * seconds, most)


def best_of_sizes(
    objective: Objective, k: int, known: Iterable[Sequence[int]], deadline: Deadline,
    on_slice: Callable[[AnytimeSearch], None] | None = None,
) -> BestOfSizes:  # fmt: skip
    """Return the best subset of each size from 1 to k, from known subsets. Errors: ValueError as in `AllSizes`."""
    best: dict[int, tuple[float, Members]] = {}
    thresholds = np.full(objective.n + 1, -np.inf)
    thresholds[: k + 1] = objective.c + MARGIN * objective.total
    with one_blas_thread():
        traversal = AllSizes(objective, thresholds)

    def better(members: Members) -> None:
        size, value = len(members), objective.value(members)
        if size in best and not value < best[size][0]:
            thresholds[size] = min(thresholds[size], value - _NEAR * objective.total)  # rounding in its f
            return
        best[size] = value, members
        if value < traversal.best_value:
            traversal.best_value, traversal.last_gain = value, traversal.iteration
        thresholds[size:][: k + 1 - size] = np.minimum(
            thresholds[size:][: k + 1 - size], value - MARGIN * objective.total
        )  # fmt: skip

    for S in known:
        if S and len(S) <= k:
            better(tuple(sorted(S)))
    done = traversal.run(better, deadline, on_slice)
    return BestOfSizes({size: S for size, (_, S) in best.items()}, done, traversal.iteration, traversal.error)

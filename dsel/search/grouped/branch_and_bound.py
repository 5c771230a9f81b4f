"""The best k groups of columns, with a proof, by best-first branch and bound.

A node has groups S that are chosen and groups R that may follow. Let f(S + R) be the error with all of them, and l_g
its increase without group g. A completion by at most q groups leaves out at least |R| - q groups, and its f is at least
f(S + R - g) for each g that it leaves out. So it is at least f(S + R) plus the (|R| - q)-th smallest l_g (Hocking and
Leslie, "Selection of the best subset in regression analysis", Technometrics 9, 1967). A group that cannot be left out
without exceeding the best known value is chosen at once. With several targets the combined bound of
`dsel.search.exact.bounds` joins in, for as many columns as q groups have.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN, ridge
from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.search.exact.base import CONTRADICTION, consistent_bound
from dsel.search.exact.bounds import BoundProblem
from dsel.search.grouped.greedy import exchange
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.outcome import FrontPoint, Improvement
from dsel.search.validation import check_size

#: If others leave less than this share of a column's square, increases l_g are lost to rounding and are not used.
_WELL_CONDITIONED = 1e-5
#: A node: its bound, its number, the chosen groups, and the groups that may follow.
_Node = tuple[float, int, tuple[int, ...], tuple[int, ...]]


class GroupBranchAndBound:
    """Branch and bound over the subsets of at most k groups. `advance` visits nodes.

    Parameters
    ----------
    grouped : GroupedObjective
        The objective over groups.
    k : int
        The most groups.
    incumbent : iterable of int
        Groups that are known to be good.
    """

    kind = "groups"
    bound_name = "leave-one-out"

    def __init__(self, grouped: GroupedObjective, k: int, incumbent: Iterable[int] = ()) -> None:
        check_size(k, grouped.n)
        self.grouped, self.k = grouped, k
        self.best: tuple[int, ...] = ()
        self.best_value, self.last_gain, self.iteration = grouped.c, 0, 0
        self.contradicted = False
        self._trace: list[Improvement] = []
        self._problem = BoundProblem(
            grouped.K, grouped.B, grouped.c, np.ascontiguousarray(grouped.columns_of.floor, np.float64)
        )
        self._ranks = np.array([columns.size for columns in grouped.independent])
        self._open: list[_Node] = []
        self._created = 0
        self.offer(incumbent)
        self._push(-np.inf, (), tuple(int(g) for g in np.flatnonzero(self._ranks)))

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.grouped.total

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """All improvements of the best subset."""
        return tuple(self._trace)

    @property
    def done(self) -> bool:
        """Whether no node is left."""
        return not self._open

    @property
    def proven(self) -> bool:
        """Whether the best subset is proved."""
        return self.done and not self.contradicted

    @property
    def open_nodes(self) -> int:
        """The number of nodes to visit."""
        return len(self._open)

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k groups."""
        if self.contradicted:
            return 0.0
        bound = min((self._open[0][0], self.best_value)) if self._open else self.best_value
        return consistent_bound(max(bound, 0.0), self.best_value, self.grouped.c)

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset of groups, and return whether it is better than the best."""
        members = tuple(sorted({int(g) for g in S}))
        if len(members) > self.k or not (value := self.grouped.value(members)) < self.best_value:
            return False
        self.best, self.best_value, self.last_gain = members, value, self.iteration
        self._trace.append(Improvement(self.iteration, len(members), value))
        return True

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the empty set and the answer."""
        empty = FrontPoint(0, self.grouped.c, ())
        return (empty, self.grouped.point(self.best)) if self.best else (empty,)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Visit nodes until `until` have been visited; return True as soon as f <= target, or no node is left."""
        while self._open and self.iteration < until:
            bound, _, S, R = heapq.heappop(self._open)
            self.iteration += 1
            if bound < self._limit:
                self._visit(bound, S, R)
            if target is not None and self.best_value <= target:
                return True
        return not self._open

    @property
    def _limit(self) -> float:
        """A subset below this is better."""
        return self.best_value - MARGIN * self.total

    def _push(self, bound: float, S: tuple[int, ...], R: tuple[int, ...]) -> None:
        if bound < self._limit:
            heapq.heappush(self._open, (bound, self._created, S, R))
            self._created += 1

    def _visit(self, bound: float, S: tuple[int, ...], R: tuple[int, ...]) -> None:
        """Bound a node, choose what must be chosen, and branch on the group whose absence costs most."""
        q = self.k - len(S)
        if len(R) <= q:
            self._complete(bound, (*S, *R))
            if R and self._is_dependent((*S, *R)):  # the columns that are left out may be worth more than a group
                for i in range(len(R)):
                    self._push(bound, (*S, *R[:i]), R[i + 1 :])
            return
        if q == 0:
            self._complete(bound, S)
            return
        f_all, losses = self._losses(S, R)
        bound = max(bound, f_all)
        if losses is not None:
            needed = [g for g, loss in zip(R, losses, strict=True) if f_all + loss >= self._limit]
            if len(needed) > q:
                return
            bound = max(bound, f_all + float(np.sort(losses)[len(R) - q - 1]))
            if needed and bound < self._limit:
                self._push(bound, (*S, *needed), tuple(g for g in R if g not in needed))
                return
        bound = max(bound, self._combined(S, R, q))
        if not bound < self._limit:
            return
        gains = self.grouped.gains(S)[list(R)] if losses is None else losses
        g = R[int(np.argmax(gains))]
        rest = tuple(h for h in R if h != g)
        without = bound if losses is None else max(bound, f_all + float(losses[R.index(g)]))
        self.offer((*S, g))
        self._push(bound, (*S, g), rest)
        self._push(without, S, rest)

    def _complete(self, bound: float, S: Sequence[int]) -> None:
        """Evaluate the only completion of a node."""
        self.offer(S)
        if self.grouped.value(S) < bound - CONTRADICTION * self.grouped.c:
            self.contradicted = True

    def _is_dependent(self, S: Sequence[int]) -> bool:
        """Return whether columns of some groups depend on those of others."""
        return bool(self.grouped.basis(S).size < self._ranks[list(S)].sum())

    def _columns(self, groups: Sequence[int]) -> Ints:
        return np.concatenate([self.grouped.independent[g] for g in groups])

    def _losses(self, S: Sequence[int], R: Sequence[int]) -> tuple[float, Floats | None]:
        """Return f(S + R), and its increase without each group of R; None if the columns are nearly dependent."""
        groups = (*S, *R)
        columns = self._columns(groups)
        K = self.grouped.K[np.ix_(columns, columns)]
        floor = self._problem.floor[columns]
        try:
            L = np.linalg.cholesky(K + np.diag(ridge(columns.size) / DEPENDENCE_TOLERANCE * floor))
        except np.linalg.LinAlgError:
            return max(self._problem.bound((), columns.tolist(), columns.size, "leaps"), 0.0), None
        W = scipy.linalg.solve_triangular(L, self.grouped.B[columns], lower=True)
        f_all = max(self.grouped.c - float(np.square(W).sum()), 0.0)
        if (np.square(np.diag(L)) < _WELL_CONDITIONED * np.diag(K)).any():
            return f_all, None
        inverse = scipy.linalg.lapack.dpotri(L, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        w = scipy.linalg.solve_triangular(L, W, lower=True, trans="T")
        ends = np.cumsum([self._ranks[g] for g in groups])
        losses = np.empty(len(R))
        for i in range(len(R)):
            stop = int(ends[len(S) + i])
            own = slice(stop - int(self._ranks[R[i]]), stop)
            losses[i] = float(np.vdot(w[own], np.linalg.solve(inverse[own, own], w[own])))
        return f_all, losses

    def _combined(self, S: Sequence[int], R: Sequence[int], q: int) -> float:
        """Return the combined bound for as many columns as q groups of R have, where it can be above f(S + R)."""
        most = int(np.sort(self._ranks[list(R)])[::-1][:q].sum())
        if most >= self._problem.N:
            return -np.inf
        return self._problem.bound(self.grouped.basis(S).tolist(), self._columns(R).tolist(), most, "combined")

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        nodes = [[bound if np.isfinite(bound) else None, list(S), list(R)] for bound, _, S, R in sorted(self._open)]
        return {
            "kind": self.kind, "n": self.grouped.n, "k": self.k, "best": list(self.best), "nodes": nodes,
            "iteration": self.iteration, "last_gain": self.last_gain, "contradicted": self.contradicted,
            "trace": [[t.iteration, t.size, t.value] for t in self._trace],
        }  # fmt: skip

    @classmethod
    def restore(cls, grouped: GroupedObjective, state: dict[str, Any]) -> GroupBranchAndBound:
        """Return the search as it was when `state` was saved."""
        if state["n"] != grouped.n:
            raise OptionError(
                f"The saved search is over {state['n']} groups, the objective over {grouped.n}.",
                "Resume with the data and options it was started with, or start again.",
            )
        search = cls(grouped, state["k"], state["best"])
        search.iteration, search.last_gain = state["iteration"], state["last_gain"]
        search.contradicted = state["contradicted"]
        search._trace = [Improvement(int(i), int(s), float(f)) for i, s, f in state["trace"]]
        search._open, search._created = [], 0
        for bound, S, R in state["nodes"]:
            search._push(-np.inf if bound is None else bound, tuple(S), tuple(R))
        return search


def good_groups(grouped: GroupedObjective, k: int, seed: int = 0) -> list[int]:
    """Return good groups quickly: the best of some exchange searches."""
    points = [exchange(grouped, k, start="forward"), exchange(grouped, k, seed, restarts=4)]
    best = min((outcome.best(k) for outcome in points), key=lambda point: (point.value, point.size))
    members = set(best.members)
    return [g for g, columns in enumerate(grouped.groups) if columns.size and int(columns[0]) in members]

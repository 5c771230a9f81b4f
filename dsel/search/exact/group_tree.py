"""The best k groups of columns, with a proof, by best-first branch and bound.

A node has groups S that are chosen and groups R that may follow. Let f(S + R) be the error with all of them, and l_g
its increase without group g. A completion by at most q groups leaves out at least |R| - q groups, and its f is at least
f(S + R - g) for each g that it leaves out. So it is at least f(S + R) plus the (|R| - q)-th smallest l_g (Hocking and
Leslie, "Selection of the best subset in regression analysis", Technometrics 9, 1967). A group that cannot be left out
without exceeding the best known value is chosen at once. With several targets the combined bound of
`dsel.search.exact.bounds` joins in, for as many columns as q groups have.

A tree that looks for near-best sets of groups compares its bounds with the largest error of a near-best one, and tries
every set of k groups below it (`dsel.search.exact.near_best`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN, ridge
from dsel._lib.types import Floats, Ints
from dsel.objective.groups import GroupedObjective
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.branch_and_bound.log_records import COMPARED, PRUNED
from dsel.search.exact.certificate import CONTRADICTION, GROUPS, consistent_bound
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import NearBest, OpenBounds, saved_near_best
from dsel.search.exact.proof_log import SPLIT, OpenNode, ProofLog, SegmentLog
from dsel.search.exact.tree import BestFirstTree

#: If others leave less than this share of a column's square, increases l_g are lost to rounding and are not used.
_WELL_CONDITIONED = 1e-5
#: Numbers of the records that are given to the log together.
_SEGMENT_NUMBERS = 1 << 14
#: A node: the chosen groups, and the groups that may follow.
_Node = tuple[tuple[int, ...], tuple[int, ...]]


class GroupTree(BestFirstTree[_Node]):
    """Branch and bound over the subsets of at most k groups.

    Parameters
    ----------
    grouped : GroupedObjective
        The objective over groups.
    k : int
        The most groups.
    incumbent : iterable of int
        Groups that are known to be good.
    log : ProofLog, optional
        Where to write the tree, so that it can be checked.
    near_best : NearBest, optional
        Find all near-best sets of k groups.
    setup : CommonSetup, optional
        What proofs for other sizes share.
    """

    kind = "groups"
    bound_name = "leave-one-out"
    can_log = True

    objective: GroupedObjective  # type: ignore[assignment]

    def __init__(
        self, grouped: GroupedObjective, k: int, incumbent: Iterable[int] = (), log: ProofLog | None = None,
        near_best: NearBest | None = None, setup: CommonSetup | None = None,
    ) -> None:  # fmt: skip
        super().__init__(grouped, k, "leave-one-out", setup=setup, near_best=near_best)  # type: ignore[arg-type]
        self._columns_problem = BoundProblem(
            grouped.K, grouped.B, grouped.c, np.ascontiguousarray(grouped.columns_of.floor, np.float64)
        )
        self._ranks = np.array([columns.size for columns in grouped.independent])
        self.log, self._segments = log, SegmentLog(grouped.c)
        self.offer(incumbent)
        self._push(-np.inf, ((), tuple(range(grouped.n))))

    @property
    def method(self) -> str:
        """What proves the bound, in words."""
        return GROUPS

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k groups."""
        if self.contradicted:
            return 0.0
        bound = min(self._heap[0][0], self.best_value) if self._heap else self.best_value
        return consistent_bound(max(bound, 0.0), self.best_value, self.objective.c)

    @property
    def _limit(self) -> float:
        """A subset below this is better, or near-best if those are looked for."""
        return self._better if self.near_best is None else self.near_best.cutoff

    @property
    def _better(self) -> float:
        """A subset below this is better than the best one."""
        return self.best_value - MARGIN * self.total

    def _prunes(self, key: float) -> bool:
        return not key < self._limit

    def _push(self, key: float, node: _Node) -> None:
        if self._prunes(key):
            self._close(key, node)
        else:
            super()._push(key, node)

    def _close(self, key: float, node: _Node) -> None:
        """Write to the log that the bound `key` excludes a node."""
        if self.log is not None:
            self._segments.close(_open_node(key, node))

    def _divide(self, key: float, node: _Node, groups: Sequence[int], without: Sequence[float] = ()) -> None:
        """Write to the log that a node is divided at some groups, and bounds that exclude what is left without each."""
        if self.log is None:
            return
        numbers = [number for g in groups for number in ((SPLIT, g, PRUNED) if len(without) else (SPLIT, g))]
        self._segments.write(_open_node(key, node), numbers, without)

    def _collect_log(self) -> None:
        """Give the log what was written since the last call."""
        if self.log is not None:
            self.log.add(self._segments.take())

    def _prune_all(self, key: float, node: _Node) -> None:
        self._close(key, node)
        for other, _, open_node in self._heap:
            self._close(other, open_node)
        super()._prune_all(key, node)

    def _visit(self, until: int) -> None:
        """Visit the node of least bound, unless none can hold better groups."""
        bound, node = self._pop()
        if self._prunes(bound):
            self._prune_all(bound, node)
        elif self._matters(bound, node):
            self._visited += 1
            self._split(bound, *node)
        if self._segments.size > _SEGMENT_NUMBERS:
            self._collect_log()

    def _matters(self, bound: float, node: _Node) -> bool:
        """Return whether a node may hold groups that matter. A log has no reason to skip it."""
        near = self.near_best
        return near is None or self.log is not None or near.matters(bound, *_sides(node), min(bound, self.lower))

    def _split(self, bound: float, S: tuple[int, ...], R: tuple[int, ...]) -> None:
        """Bound a node, choose what must be chosen, and branch on the group whose absence costs most."""
        q = self.k - len(S)
        if len(R) <= q or q == 0:
            if q and R and self._is_dependent((*S, *R)):  # the columns that are left out may be worth more than a group
                for i, g in enumerate(R):
                    self._divide(bound, ((*S, *R[:i]), R[i:]), [g])
                    self._push(bound, ((*S, *R[:i]), R[i + 1 :]))
                S, R = (*S, *R), ()
            self._complete(bound, (S, R), (*S, *R) if q else S)
            return
        f_all, losses = self._losses(S, R)
        bound = max(bound, f_all)
        if losses is not None:
            needed = np.array(R)[f_all + losses >= self._limit].tolist()
            excluded = [f_all + float(losses[R.index(g)]) for g in needed]
            rest = tuple(g for g in R if g not in needed[:q])
            if len(needed) > q:
                self._divide(bound, (S, R), needed[:q], excluded[:q])
                self._close(excluded[q], ((*S, *needed[:q]), rest))
                return
            bound = max(bound, f_all + float(np.sort(losses)[len(R) - q - 1]))
            if needed and bound < self._limit:
                self._divide(bound, (S, R), needed, excluded)
                self._push(bound, ((*S, *needed), rest))
                return
        bound = max(bound, self._combined(S, R, q))
        if not bound < self._limit:
            self._close(bound, (S, R))
            return
        gains = self.objective.gains(S)[list(R)] if losses is None else losses
        g = R[int(np.argmax(gains))]
        rest = tuple(h for h in R if h != g)
        without = bound if losses is None else max(bound, f_all + float(losses[R.index(g)]))
        self.offer((*S, g))
        self._divide(bound, (S, R), [g])
        self._push(bound, ((*S, g), rest))
        self._push(without, (S, rest))

    def _complete(self, bound: float, node: _Node, S: Sequence[int]) -> None:
        """Evaluate S, which no other completion of a node is better than."""
        self.offer(S)
        if self.log is not None:
            self._segments.write(_open_node(bound, node), [COMPARED])
        if self.objective.value(S) < bound - CONTRADICTION * self.objective.c:
            self.contradicted = True

    def _is_dependent(self, S: Sequence[int]) -> bool:
        """Return whether columns of some groups depend on those of others."""
        return bool(self.objective.basis(S).size < self._ranks[list(S)].sum())

    def _columns(self, groups: Sequence[int]) -> Ints:
        return np.concatenate([self.objective.independent[g] for g in groups])

    def _losses(self, S: Sequence[int], R: Sequence[int]) -> tuple[float, Floats | None]:
        """Return f(S + R), and its increase without each group of R; None if the columns are nearly dependent."""
        groups = (*S, *R)
        columns = self._columns(groups)
        if not columns.size:  # LAPACK refuses matrices without rows
            return self.objective.c, np.zeros(len(R))
        K = self.objective.K[np.ix_(columns, columns)]
        floor = self._columns_problem.floor[columns]
        try:
            L = np.linalg.cholesky(K + np.diag(ridge(columns.size) / DEPENDENCE_TOLERANCE * floor))
        except np.linalg.LinAlgError:
            return max(self._columns_problem.bound((), columns.tolist(), columns.size, "leaps"), 0.0), None
        W = scipy.linalg.solve_triangular(L, self.objective.B[columns], lower=True)
        f_all = max(self.objective.c - float(np.square(W).sum()), 0.0)
        if (np.square(np.diag(L)) < _WELL_CONDITIONED * np.diag(K)).any():
            return f_all, None
        inverse = scipy.linalg.lapack.dpotri(L, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        w = scipy.linalg.solve_triangular(L, W, lower=True, trans="T")
        ranks, losses = self._ranks[list(R)], np.zeros(len(R))
        starts = columns.size - np.cumsum(ranks[::-1])[::-1]  # the columns of R are the last ones
        for rank in np.unique(ranks[ranks > 0]).tolist():
            own = starts[ranks == rank][:, None] + np.arange(rank)
            solved = np.linalg.solve(inverse[own[:, :, None], own[:, None, :]], w[own])
            losses[ranks == rank] = (w[own] * solved).sum(axis=(1, 2))
        return f_all, losses

    def _combined(self, S: Sequence[int], R: Sequence[int], q: int) -> float:
        """Return the combined bound for as many columns as q groups of R have, where it can be above f(S + R)."""
        most = int(np.sort(self._ranks[list(R)])[::-1][:q].sum())
        if most >= self._columns_problem.N:
            return -np.inf
        chosen, allowed = self.objective.basis(S).tolist(), self._columns(R).tolist()
        return self._columns_problem.bound(chosen, allowed, most, "combined")

    def open_bounds(self) -> OpenBounds:
        """Return bounds on f of the subsets of open nodes that have each group, and that lack it."""
        bounds = OpenBounds.none(self.objective.n)
        for key, _, node in self._entries():
            bounds.include(max(key, 0.0), *_sides(node))
        return bounds

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        self._collect_log()
        nodes = [[key if np.isfinite(key) else None, list(S), list(R)] for key, _, (S, R) in sorted(self._entries())]
        return {**self._shared_state(), "nodes": nodes}

    def logged_nodes(self) -> list[OpenNode]:
        """Return the open nodes as the proof log holds them."""
        self._collect_log()
        return [_open_node(key, node) for key, _, node in sorted(self._entries())]

    @classmethod
    def _restored(cls, objective: GroupedObjective, state: dict[str, Any], **given: Any) -> GroupTree:  # type: ignore[override]
        near_best = saved_near_best(objective, state)
        search = cls(objective, state["k"], state["best"], given["log"], near_best, given["setup"])
        search._restore_shared(state)
        search._visited = state["visited" if "visited" in state else "iteration"]  # older versions: iteration
        search._clear()
        for bound, S, R in state["nodes"]:
            search._push(-np.inf if bound is None else bound, (tuple(S), tuple(R)))
        return search


def _sides(node: _Node) -> tuple[Ints, Ints]:
    """Return the groups of all subsets of a node, and those of any of them."""
    S, R = node
    return np.array(S, np.int64), np.array((*S, *R), np.int64)


def _open_node(key: float, node: _Node) -> OpenNode:
    """Return a node as the proof log holds it, with its bound."""
    return OpenNode(*node, max(key, 0.0))

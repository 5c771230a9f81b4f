"""Best-first branch and bound by the perspective relaxation, for many columns.

A node fixes some columns in and some out. Its bound is the relaxation over the other columns, see
`dsel.search.exact.perspective.relaxation`; `dsel.search.exact.perspective.branching` splits it.

The first diagonal is that of the ridge penalty, which costs nothing. If the proof takes longer than it takes to find a
better one, it is found, and the tree begins again with it if its bound is better. It is first in proportion to each
column's part outside the others, then the best one of the root (`dsel.search.exact.perspective.semidefinite`). The
first branchings then decide whether each node gets its own diagonal: that takes longer, and gives better bounds.

Open nodes may be leased to workers, which explore their subtrees outside of the tree (`SubtreeWork`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import perturbation
from dsel._lib.types import Bools, Floats, Ints
from dsel.objective.few_targets import column_norms
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.guarantee import Guarantee
from dsel.search.exact.near_best import NearBest, OpenBounds, saved_near_best
from dsel.search.exact.perspective.branching import Bounded, Branching, either_choice, relaxed
from dsel.search.exact.perspective.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.perspective.diagonals import (
    MOST_OUTSIDE,
    box_of,
    diagonal_outside,
    diagonals,
    ridge_diagonal,
    scaled_columns,
    seconds_outside,
)
from dsel.search.exact.perspective.kept_tree import KeptTree, as_arrays, nodes_of
from dsel.search.exact.perspective.node import CachedRelaxation, Node, WarmStart
from dsel.search.exact.perspective.relaxation import Problem
from dsel.search.exact.perspective.semidefinite import Solved, seconds_of, solve
from dsel.search.exact.perspective.subtree_work import SubtreeWork, solver_of
from dsel.search.exact.tree import Explored, RelaxationTree

#: The best diagonal is not computed for more columns.
_SEMIDEFINITE_MOST = 1000
#: How many columns are branched on to compare the two ways to bound children.
_TRIALS = 2
#: A tree that took longer than this share of the last one from the beginning leaves nothing to follow.
_STALE = 0.5
#: Workers get nodes after about these seconds: a whole proof may take less than sending K.
_ALONE_SECONDS = 0.5


class PerspectiveTree(RelaxationTree[Node]):
    """Best-first search over nodes of fixed columns, which can be read, saved and continued.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns, with all of K in memory.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset.
    memory_limit : int
        Bytes that open nodes may take.
    diagonal_after : float, optional
        After about this many seconds the best diagonal is computed; by default as many as that takes.
    setup : CommonSetup, optional
        What proofs for other sizes share. If the tree for a smaller size left a warm start, this one begins with its
        diagonal, and follows it.
    hands_over : bool
        Whether branch and bound visits nodes below which there is little to do.
    deadline : Deadline, optional
        Does not count compilation.
    saved : dict, optional
        The state from which the tree continues.
    near_best : NearBest, optional
        Find all near-best subsets.
    kept : dict, optional
        What the tree for the same columns on other data has left, see `kept`.
    largest : float, optional
        The bounds are about subsets whose coefficients, for columns of norm 1, are at most this. It is for one target.

    Raises
    ------
    ValueError
        If the relaxation is useless: the columns are nearly dependent without a penalty.
    """

    kind = "perspective-tree"
    distributable = needs_relaxation = relaxes_nodes = can_be_followed = True

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), memory_limit: int = 8 << 30,
        diagonal_after: float | None = None, setup: CommonSetup | None = None, hands_over: bool = False,
        deadline: Deadline | None = None, saved: dict[str, Any] | None = None, near_best: NearBest | None = None,
        kept: Mapping[str, Any] | None = None, largest: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, "perspective", setup=setup, memory_limit=memory_limit, near_best=near_best)
        listing = near_best is not None
        self._K, self._c, self._ridge = self.setup.once(scaled_columns, objective)
        self._solver = solver_of(objective, k, self._K, self._c, deadline, listing) if hands_over else None
        self._largest = largest if saved is None else saved.get("largest")
        self._box = None if self._largest is None else box_of(objective, k, self._largest)
        self._branching = Branching(self._problem_with(self._ridge), k, objective, False)
        self._work: SubtreeWork | None = None
        self._other_seconds = 0.0
        self._followed: KeptTree | None = None
        n = objective.n
        self._diagonal_after = seconds_of(n) if diagonal_after is None else diagonal_after
        self._stages = [stage for stage, most in (("outside", MOST_OUTSIDE), ("best", _SEMIDEFINITE_MOST)) if n <= most]
        if saved is not None:
            self._restore(saved)
            return
        self.offer(incumbent)
        with one_blas_thread():
            if kept and not self.limited:
                self._follow(kept)
            elif not self._use_first_diagonal():
                raise ValueError("columns are nearly dependent, so that the perspective relaxation is useless")

    def _follow(self, kept: Mapping[str, Any]) -> None:
        """Begin with the nodes of the tree that was kept which must be searched."""
        norms = column_norms(np.diag(self.objective.K) + self.objective.lam)
        tree = self._followed = KeptTree.of(kept, self.k, self._K, self._c, norms)
        self._stages.clear()
        if self._solver is not None and tree.learned:
            self._solver.restore(tree.learned)
        self._begin(tree.d, warm_start=None)
        if not tree.known_root:
            bound, root = self._relaxed_root(tree.d)
            self._push_root(bound, root)
        elif self._branching.record is not None:
            for bound, node in tree.open_nodes(self._branching.problem, self.cutoff, self._branching.record):
                self._push(-bound, node)

    def _use_first_diagonal(self) -> bool:
        """Bound the root by the first diagonal, and return whether there is one."""
        warm_start = self.setup.warm_start
        if warm_start is not None and warm_start.k <= self.k:
            self._stages = list(warm_start.stages)
            known = warm_start.coefficients(())
            self._begin_with(warm_start.d, *self._relaxed_root(warm_start.d, known), warm_start=warm_start)
            return True
        d = ridge_diagonal(self._ridge)
        if d is None and self._stages:
            self._stages.pop(0)
            d = self.setup.once(diagonal_outside, self._K)
        if d is None and self.limited:  # the limits alone bound what columns explain
            d = np.zeros(self.objective.n)
        if d is None:
            return False
        self._begin_with(d, *self._relaxed_root(d))
        return True

    def _problem_with(self, d: Floats) -> Problem:
        return Problem(self._K, self._c, d, self._box)

    @property
    def limited(self) -> bool:
        """Whether the bounds are about limited coefficients only."""
        return self._box is not None

    @cached_property
    def guarantee(self) -> Guarantee:
        """What rounding and the dependence tolerance may hide."""
        if self._box is None:
            return super().guarantee
        squares = self.k * (self._largest or 0.0) ** 2
        return self.setup.guarantee_within(self.k, squares, perturbation(self.objective.n))

    def _relaxed_root(self, d: Floats, known: CachedRelaxation | None = None) -> tuple[float, Node]:
        """Return the root and its bound by a diagonal. known: coefficients of the root for a smaller size."""
        n = self.objective.n
        nothing, everything = np.zeros(n, np.bool_), np.ones(n, np.bool_)
        problem, b = self._problem_with(d), np.zeros_like(self._c)
        if known is not None:
            b[known.support] = known.b
        elif self.best:
            S = np.asarray(self.best, np.int64)
            b[S] = np.linalg.lstsq(self._K[np.ix_(S, S)], self._c[S], rcond=None)[0]
        found = relaxed(problem, nothing, everything, min(self.k, n), b, self.cutoff)
        self._other_seconds += found.seconds
        return found.bound, self._root(found.b)

    def _root(self, b: Floats) -> Node:
        """Return the root with the coefficients of its relaxation."""
        nothing = np.zeros(self.objective.n, np.bool_)
        return Node.of(nothing, nothing, b, path=() if self.setup.guided else None)

    def _begin_with(
        self, d: Floats, bound: float, root: Node, own_diagonals: bool = False, warm_start: WarmStart | None = None
    ) -> None:  # fmt: skip
        """Begin with a diagonal, with the root as the only node. warm_start: advice for this diagonal."""
        self._begin(d, own_diagonals, warm_start)
        self._push_root(bound, root)

    def _push_root(self, bound: float, root: Node) -> None:
        if self._branching.record is not None:
            self._branching.record.keep(root.path, CachedRelaxation(self.k, root.support, root.b))
        self._push(-bound, root)

    def _begin(self, d: Floats, own_diagonals: bool = False, warm_start: WarmStart | None = None) -> None:
        """Begin with a diagonal, without any node."""
        self._other_seconds += self._branching.seconds
        record = None
        if self.setup.guided:
            stages = ("best",) if own_diagonals else tuple(self._stages)  # nodes with their own leave nothing to follow
            record = self.setup.warm_start = WarmStart(self.k, d, stages)
        if not d.any():  # columns may be dependent, so that a node is not handed over
            self._solver = None
        problem = self._problem_with(d)
        self._branching = Branching(
            problem, self.k, self.objective, own_diagonals, warm_start, record, self._solver, self._followed
        )  # fmt: skip
        self._work = None
        self._clear()

    def kept(self, most_bytes: int) -> dict[str, Any]:
        """Return what a tree on data that grew continues from, as arrays; empty if there is nothing."""
        advice, before = self.setup.warm_start, self._followed
        if self.limited or not (self.setup.guided and advice is not None and advice.k == self.k) or self.contradicted:
            return {}
        seconds = self.seconds
        if before is not None and not before.finished:  # both are parts of one proof
            seconds += before.seconds
        elif before is not None and self.proven:
            if seconds > _STALE * before.seconds:  # another tree is found sooner from the beginning
                return {}
            seconds = before.seconds
        learned = [] if self._solver is None else self._solver.learned()
        norms = column_norms(np.diag(self.objective.K) + self.objective.lam)
        return as_arrays(advice, norms, most_bytes, seconds, learned, finished=self.proven)

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Take what this tree had kept before it was saved and restored, so that a later one can follow all of it."""
        branching = self._branching
        if self.setup.guided and not branching.own_diagonals and np.array_equal(kept["d"], branching.problem.d):
            record = WarmStart(self.k, branching.problem.d, tuple(self._stages))
            for path, column, found in nodes_of(kept, self._c.ndim):
                record.keep(path, found)
                if column >= 0:
                    record.branched(path, column)
            self.setup.warm_start = branching.record = record

    @property
    def follows(self) -> bool:
        """Whether it follows what another tree has kept."""
        return self._followed is not None

    def open_columns(self) -> Ints:
        """Return the columns of open nodes: no better subset has another one."""
        found = np.zeros(self.objective.n, np.bool_)
        for _, _, node in self._heap:
            found |= ~node.masks(found.size)[1]
        return np.flatnonzero(found)

    @property
    def saved_numbers(self) -> int:
        """How many numbers `state` holds, about."""
        return sum(node.support.size + node.b.size for _, _, node in self._heap)

    @property
    def gap(self) -> float:
        """By how much the best subset, or the f of near-best ones, is above the bound."""
        return self.objective.c - self.cutoff - self.lower if self.near_best else self.best_value - self.lower

    @property
    def seconds(self) -> float:
        """About how long the relaxations took so far, which does not depend on the machine."""
        return self._other_seconds + self._branching.seconds

    def warm_up(self) -> None:
        """Compile the relaxation and the value of a subset, the first time on a machine."""
        load_kernels(*RELAXATION_KERNELS)
        self.objective.value((0,))

    def _visit(self, until: int) -> None:
        if self._diagonal_is_due:
            self._try_diagonal(self._stages.pop(0))
            return
        key, node = self._pop()
        if self.near_best is not None:
            lower, sides = self.objective.c + key, self._sides(node)
            if not self.near_best.matters(lower, *sides, min(lower, self.lower)):
                return
        self._visited += 1
        for bound, child in self._branching.visit(-key, node, self):
            self._push(-bound, child)

    @property
    def _diagonal_is_due(self) -> bool:
        """Whether the tree took about as long as it takes to find a better diagonal."""
        if not self._stages:
            return False
        outside = float("inf") if self._stages[0] == "best" else seconds_outside(self.objective.n)
        return self.seconds > min(self._diagonal_after, outside)

    def _try_diagonal(self, stage: str) -> None:
        """Find another diagonal, and begin again with it if its bound of the root is better than that of the tree."""
        if stage == "best":
            self._try_best_diagonal()
            return
        d = self.setup.once(diagonal_outside, self._K)
        self._other_seconds += seconds_outside(self.objective.n)
        if d is not None:
            bound, root = self._relaxed_root(d)
            if bound < self.upper_bound:
                self._begin_with(d, bound, root)

    def _try_best_diagonal(self) -> None:
        n, k, nothing = self.objective.n, self.k, np.zeros(self.objective.n, np.bool_)
        if not k < n:
            return
        found = solve(self._K, self._c, nothing, k, self.objective.c, self.cutoff, self._time)
        if self._time.passed:  # a run that continues tries again
            self._stages.insert(0, "best")
        if found is None:
            return
        self._other_seconds += found.seconds
        if not found.bound < self.upper_bound:
            return
        own = not self._time.passed and self._own_diagonals_pay(found)
        j = int(np.minimum(found.z, 1.0 - found.z).argmax())
        root = Node.of(nothing, nothing, None, j) if own else self._root(found.b)
        self._begin_with(found.d, found.bound, root, own)

    def _own_diagonals_pay(self, root: Solved) -> bool:
        """Return whether a tree whose nodes have their own diagonals promises to take less time.

        A tree with gap G and children that are better by D has about 2^(G / D) nodes.
        """
        n, gap = self.objective.n, root.bound - self.cutoff
        branching = Branching(self._problem_with(root.d), self.k, self.objective, True)
        if gap <= 0.0:
            return False
        better, seconds = np.zeros(2), np.zeros(2)
        columns = np.argsort(-np.minimum(root.z, 1.0 - root.z), kind="stable")[:_TRIALS]
        for j in columns:
            for inside in (True, False):
                fixed, out = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
                (fixed if inside else out)[j] = True
                q = self.k - int(inside)
                if q <= 0 or n - 1 <= q:
                    continue
                own = branching.solve(fixed, out, q, self.cutoff)
                shared = relaxed(branching.problem, fixed, ~(fixed | out), q, root.b, self.cutoff)
                for i, found in enumerate((own, shared)):
                    if found is not None:
                        better[i] += min(max(root.bound - found.bound, 0.0), gap)
                        seconds[i] += found.seconds
        self._other_seconds += float(seconds.sum())
        better = np.maximum(better / (2.0 * columns.size), 1e-9 * gap)
        expected = np.log(np.maximum(seconds, 1e-9)) + math.log(2.0) * gap / better
        return bool(expected[0] < expected[1])

    def take(self, S: Ints, bound: float) -> None:
        """Take a subset of a node whose subsets explain at most `bound`."""
        self._accept(S.tolist(), self.objective.c - bound)

    def _sides(self, node: Node) -> tuple[Bools, Bools]:
        """Return which columns are in all subsets of a node, and which are in any of them, (n,) each."""
        fixed, out = node.masks(self.objective.n)
        return fixed, ~out

    def open_bounds(self) -> OpenBounds:
        """Return bounds on f of the subsets of open nodes that have each column, and that lack it."""
        c, bounds, problem = self.objective.c, OpenBounds.none(self.objective.n), self._branching.problem
        for key, _, node in self._entries():
            fixed, out = node.masks(self.objective.n)
            if node.branch >= 0:
                bounds.include(c + key, np.flatnonzero(fixed), np.flatnonzero(~out))
                continue
            having, lacking = either_choice(problem, fixed, out, node.coefficients(problem.c.shape), self.k, -key)
            bounds.include_each(c - having, c - lacking)
        return bounds

    def certificate_fields(self) -> dict[str, Any]:
        """Return how many leaves of the tree that it followed were bounded again, and how many were searched."""
        if self._largest is not None:
            return {"largest_coefficient": self._largest}
        if self._followed is None:
            return {}
        return {"leaves_checked": self._followed.checked, "leaves_searched": self._followed.searched}

    def _node_bytes(self, node: Node) -> int:
        return node.nbytes

    # Its nodes on workers.

    def work(self) -> SubtreeWork:
        """Return what explores subtrees of this tree elsewhere: another object after a better diagonal is found."""
        if self._work is None:
            branching = self._branching
            learned = None if self._solver is None else self._solver.learned()
            self._work = SubtreeWork(
                self.objective, self.k, self._c, branching.problem.d, branching.own_diagonals, learned, self._box,
                self.near_best is not None, self.setup.guided and not branching.own_diagonals,
            )  # fmt: skip
        return self._work

    def advance_alone(self, workers: int, until: int) -> bool:
        """Take a step if it is too early for workers, or find a better diagonal, and return whether it was so."""
        early = self._diagonal_is_due or self.seconds < _ALONE_SECONDS
        if self._leased or not early:
            return False
        self.advance(min(self.iteration + 1, until))
        return True

    @property
    def nodes_per_second(self) -> float:  # type: ignore[override]
        """About how many nodes are visited in a second."""
        return max(self._visited, 1) / max(self.seconds, 1e-3)

    def _can_lease(self) -> bool:
        return not self._diagonal_is_due

    def _sent(self, key: float, node: Node) -> Bounded:
        return -key, node

    def _received(self, sent: Bounded) -> tuple[float, Node]:
        return -sent[0], sent[1]

    def _merge(self, explored: Explored) -> None:
        self._other_seconds += explored.seconds
        if explored.advice is not None and self._branching.record is not None:
            self._branching.record.add(explored.advice)

    # Its state.

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        nodes = [[-key, made, *node.as_list()] for key, made, node in self._entries()]
        return {
            **self._shared_state(), "nodes": nodes, "seconds": self.seconds,
            "stages": self._stages, "semidefinite": self._branching.own_diagonals,
            "d": self._branching.problem.d.tolist(), "diagonal_after": self._diagonal_after,
            "largest": self._largest,
            "handover": None if self._solver is None else self._solver.learned(),
        }  # fmt: skip

    def _restore(self, state: dict[str, Any]) -> None:
        if self._solver is not None:
            self._solver.restore(state["handover"])
        self._restore_shared(state)
        d = state["d"]
        if "stages" in state:
            self._stages = list(state["stages"])
        else:  # an older version, which found the first two diagonals at once
            self._stages = [stage for stage in self._stages if stage == "best" and not state["tried"]]
            d = diagonals(self._K, self._ridge)[state["diagonal"]] if d is None else d
        problem = self._problem_with(np.array(d, np.float64))
        own = state["semidefinite"]
        self._branching = Branching(problem, self.k, self.objective, own, subtree_solver=self._solver)
        self._other_seconds = state["seconds"]
        self._restore_heap((-bound, made, Node.from_list(values)) for bound, made, *values in state["nodes"])

    @classmethod
    def _restored(cls, objective: Objective, state: dict[str, Any], **given: Any) -> PerspectiveTree:
        return cls(
            objective, state["k"], memory_limit=given["memory_limit"], diagonal_after=state["diagonal_after"],
            setup=given["setup"], hands_over=state.get("handover") is not None, saved=state,
            near_best=saved_near_best(objective, state),
        )  # fmt: skip

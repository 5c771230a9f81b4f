"""Branch and bound: find the best subset of at most k columns and prove it, or give the best bound in the time.

An open node is a pair (S, R): the chosen columns S, and the columns R that may still be added. Open nodes wait in a
heap, least bound first. The first one is explored depth first for one slice, and its open nodes go back to the heap. At
first a slice is one node, so that the bound rises as fast as it can; later slices are longer. Memory is bounded: if
there are many open nodes, a slice ends only when its subtree is finished.

A task on a worker explores open nodes outside the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import TIMEOUT_MAX, Event, Thread
from typing import Any

import numpy as np

from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Ints
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundName, BoundProblem
from dsel.search.exact.branch_and_bound.explorer import Explorer, Subproblem
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import NearBest, OpenBounds, saved_near_best
from dsel.search.exact.proof_log import OpenNode, ProofLog, SegmentLog
from dsel.search.exact.tree import BestFirstTree, Explored


@dataclass(frozen=True, eq=False)
class SubtreeWork:
    """What tasks need to know of the search; see `BranchAndBound` for its parameters.

    log: whether there is one. listing: whether near-best subsets are listed.
    """

    problem: BoundProblem
    k: int
    bound: BoundName
    pairs: bool
    log: bool
    listing: bool

    def explorer(self) -> Explorer:
        """Return an explorer, whose arrays are allocated once."""
        return Explorer(self.problem, self.k, self.bound, pairs=self.pairs, log=self.log, listing=self.listing)

    def explore(self, explorer: Explorer, nodes: Sequence[Subproblem], incumbent: float, budget: int) -> Explored:
        """Explore open nodes one after another, up to `budget` nodes in all."""
        if self.listing:
            explorer.list_below(incumbent, 0, 0)
        return explorer.explore_all(nodes, incumbent, budget)


#: With this many open nodes, a subtree is finished before the next one begins.
MAX_OPEN = 20_000
#: Elements of a Gram matrix of at least this many columns that an elimination changes in a second.
_ELEMENTS_PER_SECOND, _MANY = 2e9, 1000
#: Most nodes in a slice.
_MAX_SLICE = 20_000
#: Workers get nodes when _ALONE are visited, or if _OPEN_PER_WORKER are open. Before that, a step visits _ALONE_STEP.
_ALONE, _OPEN_PER_WORKER, _ALONE_STEP = 2000, 20, 50


class BranchAndBound(BestFirstTree[Subproblem]):
    """Depth-first branch and bound, which can be read, saved and continued between two calls of `advance`.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns.
    k : int
        The most columns to choose.
    incumbent : iterable of int
        A known subset (local indices). The better it is, the fewer nodes are visited.
    bound : {"combined", "eigenvalue", "leaps"}
        The lower bound, see `dsel.search.exact.bounds`.
    problem : BoundProblem, optional
        K and the targets as the bounds use them; by default those of the objective.
    memory_limit : int
        Bytes that the arrays may take. CapacityError is raised if they need more.
    most_open : int
        With this many open nodes, a subtree is finished before the next one begins.
    pairs : bool
        Find the last two columns by a search over all pairs, which is faster than nodes with their own bounds.
    log : ProofLog, optional
        Where to write the tree, so that it can be checked.
    deadline : Deadline, optional
        When the first bound must be known. OutOfTime is raised if it would take longer.
    setup : CommonSetup, optional
        What proofs for other sizes share.
    near_best : NearBest, optional
        Find all near-best subsets.

    Notes
    -----
    `iteration` counts visited nodes. A node is visited when the columns that may be added to it are evaluated.
    """

    kind = "branch-and-bound"
    can_log = distributable = needs_relaxation = relaxation_first = True
    least_nodes, nodes_per_second = 100, 10_000.0

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), bound: BoundName = "combined",
        problem: BoundProblem | None = None, memory_limit: int = 8 << 30, most_open: int = MAX_OPEN,
        pairs: bool = True, log: ProofLog | None = None, deadline: Deadline | None = None,
        setup: CommonSetup | None = None, near_best: NearBest | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, bound, deadline, setup, near_best=near_best)
        self._problem = problem or self.setup.problem(deadline)
        self._explorer = Explorer(self.problem, k, bound, memory_limit, pairs, log is not None, near_best is not None)
        self.log = log
        self._most_open = most_open
        # What is not counted by this explorer: the work of others, and of the run before. `_visited` is, too.
        self._other_pruned = np.inf
        self._other_not_finite = 0
        everything = np.arange(objective.n, dtype=np.int32)
        self._root = self.problem.bound((), range(objective.n), k, bound)
        self._claim = self._root  # the bound of the subtree that is explored now
        self._push(self._root, Subproblem(self._root, (), everything))
        self.offer(incumbent)
        self._know_guarantee()

    @property
    def problem(self) -> BoundProblem:
        """K and the targets as the bounds use them."""
        return self._problem

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset that was found elsewhere, and return whether it is better than the best."""
        return self._accept(S, self.best_value if self.done else self._root)

    def narrow(self, lower: float, columns: Ints) -> None:
        """Begin with a bound on all subsets from elsewhere, and with these columns: no better subset has another one.

        Nothing must have been visited.
        """
        self._root = max(self._root, lower)
        self._clear()
        self._push(self._root, Subproblem(self._root, (), columns.astype(np.int32)))
        if columns.size < self.objective.n:  # others may be better by the margin
            self._other_pruned = min(self._other_pruned, max(self.best_value - MARGIN * self.total, 0.0))

    @contextmanager
    def time_limit(self, seconds: float | None) -> Iterator[None]:
        """Make `advance` return within a node when these seconds of the block are over. The node stays open."""
        if seconds is None:
            yield
            return
        over, deadline = Event(), Deadline(min(seconds, TIMEOUT_MAX))

        def watch() -> None:
            while not over.wait(deadline.left):
                if deadline.passed:
                    self._explorer.interrupt()
                    return

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self._explorer.resume()

    def warm_up(self, others: Sequence[Any] = ()) -> None:
        """Compile what `advance` needs, and other kernels at the same time, the first time on a machine."""
        self._explorer.warm_up(others)

    @property
    def iteration(self) -> int:
        """The number of visited nodes."""
        return self._visited + self._explorer.nodes

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return super().done and self._explorer.idle

    @property
    def not_finite(self) -> int:  # type: ignore[override]
        """The number of bounds that were not finite. Such bounds prune nothing."""
        return self._other_not_finite + self._explorer.not_finite

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        if self.contradicted:
            return 0.0
        open_ = [sub.lower for sub in self._explorer.open_nodes()] + [entry[0] for entry in self._heap[:1]]
        open_ += [lower for lower, _ in self._leased_nodes()]
        return min(self.best_value, self._other_pruned, self._explorer.pruned, *open_)

    def node_seconds(self) -> float:
        """Return about how long the next node takes; 0 if that is no concern."""
        if not (self._heap and self._explorer.idle):
            return 0.0
        sub = self._heap[0][2]
        t, q = len(sub.allowed), self.k - len(sub.chosen)
        if t < _MANY or (q <= 2 and self.pairs):
            return 0.0
        eliminations = 1.0 + (0.5 * q if self._explorer.finds_cores(q) else 0.0)  # about half of the q cores exist
        return eliminations * t**3 / 3.0 / _ELEMENTS_PER_SECOND

    @property
    def pairs(self) -> bool:
        """Whether the last two columns are found by a search over all pairs."""
        return self._explorer.pairs

    @property
    def _interrupted(self) -> bool:
        return self._explorer.interrupted

    @property
    def active(self) -> bool:
        return bool(self._heap) or not self._explorer.idle

    def _visit(self, until: int) -> None:
        """Explore the open node of least bound, or the one that is not finished, for one slice."""
        if self._explorer.idle and not self._next():
            return
        full = len(self._heap) >= self._most_open
        slice_ = min(max(self.iteration // 200, 1), _MAX_SLICE)
        budget = until - self.iteration if full else min(slice_, until - self.iteration)
        if self.near_best is not None:
            if self.log is None:
                self._explorer.list_below(self.near_best.list_cutoff, *self.near_best.unsure(self.lower))
            else:  # a log has no reason to skip a node
                self._explorer.list_below(self._kernel_cutoff, 0, 0)
        found = self._explorer.explore(budget, self._kernel_cutoff, careful=not full and slice_ == 1)
        if found is not None:
            self._accept(found, self._claim)
        if self.near_best is not None:
            self._take_listed(self._explorer.take_listed(), self._claim)
        if not full and not self._explorer.idle:
            self._put_back()
        self._collect_log()

    def _next(self) -> bool:
        """Begin with the open node of least bound; return False if none can hold a better subset."""
        lower, sub = self._pop()
        if self._prunes(lower):
            self._prune_all(lower, sub)
            return False
        if self._is_useless(sub):
            return False
        self._explorer.start(sub)
        self._claim = max(self._root, lower)
        return True

    def _prunes(self, key: float) -> bool:
        return key >= self._kernel_cutoff - MARGIN * self.problem.c

    @property
    def _kernel_cutoff(self) -> float:
        """The incumbent of the kernel, which prunes what is at most MARGIN better."""
        return self.cutoff_value + (0.0 if self.near_best is None else 2.0 * MARGIN * self.problem.c)

    def _is_useless(self, sub: Subproblem) -> bool:
        """Return whether a node that is not pruned holds no subset that matters."""
        if self.near_best is None or self.log is not None:
            return False
        inside = np.array(sub.chosen, np.int64)
        possible = np.concatenate([inside, np.asarray(sub.allowed, np.int64)])
        return not self.near_best.matters(sub.lower, inside, possible, min(sub.lower, self.lower))

    def _prune_all(self, key: float, node: Subproblem) -> None:
        self._other_pruned = min(self._other_pruned, key)
        if self.log is not None:
            segments = SegmentLog(self.problem.c)
            for sub in (node, *(sub for _, _, sub in self._heap)):
                segments.close(sub.logged)
            self.log.add(segments.take())
        super()._prune_all(key, node)

    def _collect_log(self) -> None:
        """Write what this process has logged since the last call."""
        part = self._explorer.take_log()
        if self.log is not None and part is not None:
            self.log.add(part)

    def _put_back(self) -> None:
        for sub in self._explorer.open_nodes():
            self._push(sub.lower, sub)
        self._explorer.stop()

    def work(self) -> SubtreeWork:
        """Return what explores subtrees of this tree elsewhere."""
        return self._work

    @cached_property
    def _work(self) -> SubtreeWork:
        log, listing = self.log is not None, self.near_best is not None
        return SubtreeWork(self.problem, self.k, self._explorer.bound, self.pairs, log, listing)

    def advance_alone(self, workers: int, until: int) -> bool:
        """Visit some nodes if there are too few for this many workers, and return whether it was so."""
        if self._leased or self.iteration >= _ALONE or self.open_nodes >= _OPEN_PER_WORKER * workers:
            return False
        self.advance(min(self.iteration + _ALONE_STEP, until))
        return True

    @property
    def sent_cutoff(self) -> float:
        """What workers get as the incumbent's f, with the nodes."""
        return self._kernel_cutoff

    def subtree_size(self, sub: Subproblem) -> float:
        """Return the nodes of a subtree without pruning, where the last two columns need no node."""
        return float(math.comb(len(sub.allowed), max(self.k - len(sub.chosen) - 2, 0)))

    def _can_lease(self) -> bool:
        if not self._explorer.idle:
            self._put_back()
        return True

    def _received(self, sent: Subproblem) -> tuple[float, Subproblem]:
        return sent.lower, sent

    def _lease_claim(self, nodes: Sequence[tuple[float, Subproblem]]) -> float:
        return max(self._root, min((lower for lower, _ in nodes), default=0.0))

    def _merge(self, explored: Explored) -> None:
        self._other_not_finite += explored.not_finite
        self._other_pruned = min(self._other_pruned, explored.pruned)
        if self.log is not None and explored.log is not None:
            self.log.add(explored.log)

    def open_bounds(self) -> OpenBounds:
        """Return bounds on f of the subsets of open nodes that have each column, and that lack it."""
        bounds = OpenBounds.none(self.objective.n)
        for sub in self.open_subproblems():
            bounds.include(sub.lower, np.asarray(sub.chosen, np.int64), sub.allowed.astype(np.int64))
        return bounds

    def logged_nodes(self) -> list[OpenNode]:
        """Return all open nodes as the proof log holds them."""
        return [sub.logged for sub in self.open_subproblems()]

    def open_subproblems(self) -> list[Subproblem]:
        """Return all open nodes: the leased ones, then the others, least bound first."""
        if not self._explorer.idle:
            self._put_back()
        self._collect_log()
        leased = [sub for _, sub in self._leased_nodes()]
        return leased + [sub for _, _, sub in sorted(self._heap, key=lambda entry: entry[:2])]

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        open_ = [sub.as_list() for sub in self.open_subproblems()]
        pruned = min(self._other_pruned, self._explorer.pruned)
        return {
            **self._shared_state(), "visited": self.iteration, "open": open_,
            "pruned": None if np.isinf(pruned) else pruned, "pairs": self.pairs, "most_open": self._most_open,
            "not_finite": self.not_finite,
        }  # fmt: skip

    @classmethod
    def _restored(cls, objective: Objective, state: dict[str, Any], **given: Any) -> BranchAndBound:
        search = cls(
            objective, state["k"], bound=state["bound"], most_open=state.get("most_open", MAX_OPEN),
            pairs=state.get("pairs", True), near_best=saved_near_best(objective, state), **given,
        )  # fmt: skip
        search._restore_shared(state)
        search._clear()
        for values in state["open"]:
            sub = Subproblem.from_list(values)
            search._push(sub.lower, sub)
        search._visited = state["visited" if "visited" in state else "nodes"]  # older versions: nodes
        search._other_not_finite = state.get("not_finite", 0)
        search._other_pruned = np.inf if state["pruned"] is None else state["pruned"]
        return search

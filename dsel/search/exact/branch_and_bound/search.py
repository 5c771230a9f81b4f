"""Branch and bound: find the best subset of at most k columns and prove it, or give the best bound in the time.

An open node is a pair (S, R): the chosen columns S, and the columns R that may still be added. Open nodes wait in a
heap, least bound first. The first one is explored depth first for one slice, and its open nodes go back to the heap. At
first a slice is one node, so that the bound rises as fast as it can; later slices are longer. Memory is bounded: if
there are many open nodes, a slice ends only when its subtree is finished.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import TIMEOUT_MAX, Event, Thread
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Ints
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.anytime import Deadline
from dsel.search.exact.base import ExactSearch, check_saved
from dsel.search.exact.bounds import BOUNDS, BoundName, BoundProblem
from dsel.search.exact.branch_and_bound.explorer import Explored, Explorer, Subproblem
from dsel.search.exact.branch_and_bound.subtrees import SubtreeWork
from dsel.search.exact.common_setup import CommonSetup
from dsel.search.exact.proof_log import ProofLog, SegmentLog

#: With this many open nodes, a subtree is finished before the next one begins.
MAX_OPEN = 20_000
#: Elements of a Gram matrix of at least this many columns that an elimination changes in a second.
_ELEMENTS_PER_SECOND, _MANY = 2e8, 1000
#: Most nodes in a slice.
_MAX_SLICE = 20_000
#: Workers get nodes when _ALONE are visited, or if _OPEN_PER_WORKER are open. Before that, a step visits _ALONE_STEP.
_ALONE, _OPEN_PER_WORKER, _ALONE_STEP = 2000, 20, 50


class BranchAndBound(ExactSearch):
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

    Notes
    -----
    `iteration` counts visited nodes. A node is visited when the columns that may be added to it are evaluated.
    """

    kind = "branch-and-bound"
    #: The fewest nodes that are worth a task, and about how many are visited in a second.
    least_nodes, nodes_per_second = 100, 10_000.0
    #: Open nodes never take too much memory: there is a limit for them.
    memory_full = False

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), bound: BoundName = "combined",
        problem: BoundProblem | None = None, memory_limit: int = 8 << 30, most_open: int = MAX_OPEN,
        pairs: bool = True, log: ProofLog | None = None, deadline: Deadline | None = None,
        setup: CommonSetup | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, bound, deadline, setup)
        if bound not in BOUNDS:
            raise OptionError(f"There is no bound {bound!r}.", f"One of {', '.join(BOUNDS)}.")
        self.problem = problem or self.setup.problem(deadline)
        self._explorer = Explorer(self.problem, k, bound, memory_limit, pairs, log is not None)
        self.log = log
        self._most_open = most_open
        self._heap: list[tuple[float, int, Subproblem]] = []
        self._pushed = 0
        self._leased: dict[int, list[Subproblem]] = {}
        self._leases = 0
        # What is not counted by this explorer: the work of others, and of the run before.
        self._other_nodes = 0
        self._other_pruned = np.inf
        self._other_not_finite = 0
        everything = np.arange(objective.n, dtype=np.int32)
        self._root = self.problem.bound((), range(objective.n), k, bound)
        self._claim = self._root  # the bound of the subtree that is explored now
        self._push(Subproblem(self._root, (), everything))
        self.offer(incumbent)
        self._know_guarantee()

    def _push(self, sub: Subproblem) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (sub.lower, self._pushed, sub))

    def offer(self, S: Iterable[int]) -> bool:
        """Take a subset that was found elsewhere, and return whether it is better than the best."""
        return self._accept(S, self.best_value if self.done else self._root)

    def narrow(self, lower: float, columns: Ints) -> None:
        """Begin with a bound on all subsets from elsewhere, and with these columns: no better subset has another one.

        Nothing must have been visited.
        """
        self._root = max(self._root, lower)
        self._heap.clear()
        self._push(Subproblem(self._root, (), columns.astype(np.int32)))
        if columns.size < self.objective.n:  # others may be better by the margin
            self._other_pruned = min(self._other_pruned, max(self.best_value - MARGIN * self.total, 0.0))

    def _accept(self, S: Iterable[int], claim: float) -> bool:
        """Take a subset from a subtree with the bound `claim`."""
        better = super().offer(S)
        if better:
            self._check_claim(claim)
        return better

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
        return self._other_nodes + self._explorer.nodes

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return not self._heap and self._explorer.idle and not self._leased

    @property
    def proven(self) -> bool:
        """Whether `best` is the best subset, to MARGIN: no node is open, and nothing contradicts the bounds."""
        return self.done and not self.contradicted

    @property
    def not_finite(self) -> int:
        """The number of bounds that were not finite. Such bounds prune nothing."""
        return self._other_not_finite + self._explorer.not_finite

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns."""
        if self.contradicted:
            return 0.0
        open_ = [sub.lower for sub in self._explorer.open_nodes()] + [entry[0] for entry in self._heap[:1]]
        open_ += [sub.lower for subs in self._leased.values() for sub in subs]
        return min(self.best_value, self._other_pruned, self._explorer.pruned, *open_)

    def node_seconds(self) -> float:
        """Return about how long the first node takes; 0 if that is no concern."""
        if self.objective.n < _MANY or (self.k <= 2 and self.pairs):
            return 0.0
        eliminations = 1 + self.k  # the bounds, and the cores
        return eliminations * self.problem.elimination_elements() / _ELEMENTS_PER_SECOND

    @property
    def pairs(self) -> bool:
        """Whether the last two columns are found by a search over all pairs."""
        return self._explorer.pairs

    @property
    def open_nodes(self) -> int:
        """The number of open nodes in the heap."""
        return len(self._heap)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue until `until` nodes are visited; return True if the search is done or f <= target."""
        with one_blas_thread():
            return self._advance(until, target)

    def _advance(self, until: int, target: float | None) -> bool:
        while self._heap or not self._explorer.idle:
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until or self._explorer.interrupted:
                return False
            if self._explorer.idle and not self._next():
                break
            full = len(self._heap) >= self._most_open
            slice_ = min(max(self.iteration // 200, 1), _MAX_SLICE)
            budget = until - self.iteration if full else min(slice_, until - self.iteration)
            found = self._explorer.explore(budget, self.best_value, careful=not full and slice_ == 1)
            if found is not None:
                self._accept(found, self._claim)
            if not full and not self._explorer.idle:
                self._put_back()
            self._collect_log()
        return self.done

    def _next(self) -> bool:
        """Begin with the open node of least bound; return False if none can hold a better subset."""
        lower, _, sub = heapq.heappop(self._heap)
        if self._prunes_all(sub):
            return False
        self._explorer.start(sub)
        self._claim = max(self._root, lower)
        return True

    def _prunes_all(self, first: Subproblem) -> bool:
        """Prune all nodes of the heap if the one of least bound, just taken from it, allows no better subset."""
        if first.lower >= self.best_value - MARGIN * self.problem.c:
            self._other_pruned = min(self._other_pruned, first.lower)
            if self.log is not None:
                self._log_pruned([first, *(sub for _, _, sub in self._heap)], self.log)
            self._heap.clear()
            return True
        return False

    def _log_pruned(self, subs: list[Subproblem], log: ProofLog) -> None:
        segments = SegmentLog(self.problem.c)
        for sub in subs:
            segments.close(sub.logged)
        log.add(segments.take())

    def _collect_log(self) -> None:
        """Write what this process has logged since the last call."""
        part = self._explorer.take_log()
        if self.log is not None and part is not None:
            self.log.add(part)

    def _put_back(self) -> None:
        for sub in self._explorer.open_nodes():
            self._push(sub)
        self._explorer.stop()

    def work(self) -> SubtreeWork:
        """Return what explores subtrees of this tree elsewhere."""
        return self._work

    @cached_property
    def _work(self) -> SubtreeWork:
        return SubtreeWork(self.problem, self.k, self._explorer.bound, self.pairs, self.log is not None)

    def advance_alone(self, workers: int, until: int) -> bool:
        """Visit some nodes if there are too few for this many workers, and return whether it was so."""
        if self._leased or self.iteration >= _ALONE or self.open_nodes >= _OPEN_PER_WORKER * workers:
            return False
        self.advance(min(self.iteration + _ALONE_STEP, until))
        return True

    def subtree_size(self, sub: Subproblem) -> float:
        """Return the nodes of a subtree without pruning, where the last two columns need no node."""
        return float(math.comb(len(sub.allowed), max(self.k - len(sub.chosen) - 2, 0)))

    def checkout(self, most: int, enough: float, size: Callable[[Subproblem], float]) -> tuple[int, list[Subproblem]]:
        """Lease open nodes to a worker, least bound first, and return the id of the lease and the nodes.

        A lease has at most `most` nodes, and ends with the node at which their sizes reach `enough`. The nodes stay
        open, in `lower` and `state`, until `complete` or `requeue` gets the id.
        """
        if not self._explorer.idle:
            self._put_back()
        subs: list[Subproblem] = []
        total = 0.0
        while self._heap and len(subs) < most and total < enough:
            _, _, sub = heapq.heappop(self._heap)
            if self._prunes_all(sub):
                break
            subs.append(sub)
            total += size(sub)
        self._leases += 1
        if subs:
            self._leased[self._leases] = subs
        return self._leases, subs

    def requeue(self, lease_id: int) -> None:
        """Put the nodes of a lease back into the heap, because their worker failed."""
        for sub in self._leased.pop(lease_id):
            self._push(sub)

    def complete(self, lease_id: int, explored: Explored) -> None:
        """Merge the result of a lease."""
        claim = max(self._root, min((sub.lower for sub in self._leased.pop(lease_id)), default=0.0))
        self._other_nodes += explored.nodes
        self._other_not_finite += explored.not_finite
        self._other_pruned = min(self._other_pruned, explored.pruned)
        if self.log is not None and explored.log is not None:
            self.log.add(explored.log)
        if explored.best is not None:
            self._accept(explored.best, claim)
        for sub in explored.left:
            self._push(sub)

    def open_subproblems(self) -> list[Subproblem]:
        """Return all open nodes: the leased ones, then the others, least bound first."""
        if not self._explorer.idle:
            self._put_back()
        self._collect_log()
        leased = [sub for subs in self._leased.values() for sub in subs]
        return leased + [sub for _, _, sub in sorted(self._heap, key=lambda entry: entry[:2])]

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        open_ = [sub.as_list() for sub in self.open_subproblems()]
        pruned = min(self._other_pruned, self._explorer.pruned)
        return {
            **self._shared_state(), "nodes": self.iteration, "open": open_,
            "pruned": None if np.isinf(pruned) else pruned, "pairs": self.pairs, "most_open": self._most_open,
            "not_finite": self.not_finite,
        }  # fmt: skip

    @classmethod
    def restore(
        cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30,
        problem: BoundProblem | None = None, log: ProofLog | None = None, setup: CommonSetup | None = None,
    ) -> BranchAndBound:  # fmt: skip
        """Return the search as it was when `state` was taken."""
        check_saved(objective, state)
        search = cls(
            objective, state["k"], bound=state["bound"], problem=problem, memory_limit=memory_limit,
            most_open=state.get("most_open", MAX_OPEN), pairs=state.get("pairs", True), log=log,
            setup=setup,
        )  # fmt: skip
        search._restore_shared(state)
        search._heap = []
        for values in state["open"]:
            search._push(Subproblem.from_list(values))
        search._other_nodes = state["nodes"]
        search._other_not_finite = state.get("not_finite", 0)
        search._other_pruned = np.inf if state["pruned"] is None else state["pruned"]
        return search

"""Depth-first branch and bound: the best subset of at most k columns, proved, or the best bound in the time there is.

Open nodes are (S, R): S chosen, R the columns that may still be added. They wait in a heap, the least bound first; the
first is explored depth first for a while, and what it leaves open goes back. A slice is one node at the beginning, so
that the bound rises as fast as it can, and longer and longer later. Memory is bounded: with many open nodes a slice
ends only when its subtree is done.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel._lib.jit import log_compilation
from dsel._lib.types import Ints
from dsel.errors import CapacityError, OptionError
from dsel.objective.base import Objective
from dsel.objective.kernels.layout import Memory
from dsel.search.exact import bb_layout as at
from dsel.search.exact.base import CONTRADICTION, ExactSearch, check_saved
from dsel.search.exact.bb_kernel import begin, explore
from dsel.search.exact.bounds import BOUNDS, BoundName, BoundProblem

log = logging.getLogger("dsel")

#: Subsets whose f differs by at most this share of ||Y||^2 are not told apart.
MARGIN = 1e-10
#: With so many open nodes a subtree is finished before the next one is begun.
MOST_OPEN = 20_000
_LONGEST_SLICE = 20_000
#: Bounds are looked at in so many targets before all (the first hold most of it): few are not told by these.
_LEADING = 10
#: Least number of columns to choose at which looking for cores costs less than it saves: with one target, with more.
_CORES_FROM = (4, 3)


Columns = NDArray[np.int32]


@dataclass(frozen=True)
class Subproblem:
    """An open node: lower bound on f below it, columns chosen, columns that may be added (local indices, ordered)."""

    lower: float
    chosen: tuple[int, ...]
    allowed: Columns

    def __reduce__(self) -> tuple[Any, ...]:
        # Bytes travel with the message; an array each would be a frame of its own, of which a part of a proof has many.
        return _unpacked, (self.lower, self.chosen, self.allowed.tobytes())

    def as_list(self) -> list[Any]:
        """As JSON holds it."""
        return [self.lower, list(self.chosen), self.allowed.tolist()]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Subproblem:
        """From `as_list`."""
        return cls(float(values[0]), tuple(values[1]), np.asarray(values[2], np.int32))


def _unpacked(lower: float, chosen: tuple[int, ...], allowed: bytes) -> Subproblem:
    return Subproblem(lower, chosen, np.frombuffer(allowed, np.int32))


class Explorer:
    """Explores one subproblem at a time; its arrays are made once."""

    def __init__(
        self,
        problem: BoundProblem,
        k: int,
        bound: BoundName = "combined",
        memory_limit: int = 8 << 30,
        pairs: bool = True,
    ) -> None:
        n, N, depths = problem.n, problem.N, max(k - 1, 1) if pairs else k
        need = 8 * (depths * (n * n + 2 * n * N) + N * N * (2 + (depths if bound == "eigenvalue" else 0)) + n * n)
        if need > memory_limit:
            raise CapacityError(
                f"Branch and bound over {n} columns and {N} targets needs {need / 2**30:.1f} GiB; "
                f"{memory_limit / 2**30:.1f} GiB are allowed.",
                "Allow more memory, or exclude columns.",
            )
        self.problem, self.k, self.bound, self.pairs = problem, k, bound, pairs
        self._memory = memory = Memory()
        leading = min(N, _LEADING)
        target_depths, target_width = (depths, N) if bound == "eigenvalue" else (1, 1)
        floats = {
            at.GRAM: (depths, n, n), at.CROSS: (depths, n, N), at.TARGETS: (target_depths, target_width, target_width),
            at.WORK: (max(n, 3), max(n, 3)), at.WORK_CROSS: (n, N), at.WHOLE: (2, N, N), at.LOWER: (depths, n),
            at.ERROR: (4, depths), at.NUMBERS: (4,), at.MOMENTS: (2, n), at.CHECK: (k + 2, k + 2 + N),
            at.LEADING: (2, leading, leading),
        }  # fmt: skip
        for place, shape in floats.items():
            memory.put(place, np.zeros(shape))
        targets = problem.T if bound == "eigenvalue" else np.zeros((1, 1))
        given = {
            at.FLOOR: problem.floor, at.ROOT_GRAM: problem.K, at.ROOT_CROSS: problem.B, at.ROOT_TARGETS: targets,
        }  # fmt: skip
        for place, array in given.items():
            memory.put(place, np.ascontiguousarray(array, np.float64))
        integers = {
            at.ALLOWED: (depths, n), at.CHILDREN: (depths, n), at.FRAME: (depths, 3), at.COUNT: (at.COUNTERS,),
            at.BEST: (k,), at.START: (n + k,), at.BASE: (k,), at.MEMBERS: (k + 2,), at.CORE: (n,),
        }  # fmt: skip
        for place, shape in integers.items():
            memory.put(place, np.zeros(shape, np.int64))
        self._count[at.DEPTH] = -1
        self._count[at.BOUND] = BOUNDS.index(bound)
        self._count[at.PAIRS] = pairs
        self._count[at.CORES] = _CORES_FROM[min(N, 2) - 1] if pairs else 2
        self._numbers[at.MARGIN] = MARGIN * problem.c
        self._numbers[at.PRUNED] = np.inf
        self._numbers[at.TOTAL] = problem.c
        self._chosen: tuple[int, ...] = ()

    @property
    def _count(self) -> Ints:
        return self._memory[at.COUNT]

    @property
    def _numbers(self) -> Any:
        return self._memory[at.NUMBERS]

    @property
    def nodes(self) -> int:
        """Nodes looked at so far, by this explorer."""
        return int(self._count[at.NODES])

    @property
    def idle(self) -> bool:
        """Whether nothing is left of the subproblem."""
        return int(self._count[at.DEPTH]) < 0

    @property
    def pruned(self) -> float:
        """Least bound of what was pruned although it lies below the incumbent (by less than MARGIN)."""
        return float(self._numbers[at.PRUNED])

    @property
    def incumbent(self) -> float:
        """f of the best subset known, as the inner loop computed it."""
        return float(self._numbers[at.INCUMBENT])

    @property
    def not_finite(self) -> int:
        """Bounds so far that were not finite."""
        return int(self._count[at.NOT_FINITE])

    def forget_pruned(self) -> None:
        """Begin anew with `pruned`."""
        self._numbers[at.PRUNED] = np.inf

    def stop(self) -> None:
        """Leave the subproblem."""
        self._count[at.DEPTH] = -1

    def start(self, sub: Subproblem) -> None:
        """Stand at a subproblem."""
        memory, chosen, t = self._memory, sorted(sub.chosen), len(sub.allowed)
        memory[at.START][: len(chosen)] = chosen
        memory[at.START][len(chosen) : len(chosen) + t] = sub.allowed
        begin(memory.P, len(chosen), t)
        memory[at.ERROR][at.BELOW, 0] = sub.lower
        self._count[at.Q] = self.k - len(chosen)
        self._chosen = sub.chosen

    def explore(self, budget: int, incumbent: float, careful: bool = False) -> tuple[int, ...] | None:
        """Go on for so many nodes; a subset better than the incumbent, if one was found."""
        self._numbers[at.INCUMBENT] = incumbent
        self._count[at.CAREFUL] = careful
        self._count[at.BEST_SIZE] = -1
        explore(self._memory.P, budget)
        size = int(self._count[at.BEST_SIZE])
        if size < 0:
            return None
        return tuple(sorted((*self._chosen, *(int(j) for j in self._memory[at.BEST][:size]))))

    def left(self) -> list[Subproblem]:
        """What is still open of the subproblem."""
        depth = int(self._count[at.DEPTH])
        if depth < 0:
            return []
        frame, allowed = self._memory[at.FRAME], self._memory[at.ALLOWED]
        if not self._count[at.OPENED]:
            lower = float(self._memory[at.ERROR][at.BELOW, 0])
            return [Subproblem(lower, self._chosen, allowed[0, : frame[0, at.T]].astype(np.int32))]
        found = []
        way = self._chosen
        for d in range(depth + 1):
            if d:
                way = (*way, int(frame[d, at.CHOSEN]))
            for place in range(int(frame[d, at.LEFT])):
                i = int(self._memory[at.CHILDREN][d, place])
                rest = allowed[d, i + 1 : frame[d, at.T]].astype(np.int32)
                lower = float(self._memory[at.LOWER][d, place])
                found.append(Subproblem(lower, (*way, int(allowed[d, i])), rest))
        return found


@dataclass(frozen=True)
class Explored:
    """What came of exploring some open nodes: nodes looked at, a better subset if there is one, what is still open."""

    nodes: int
    best: tuple[int, ...] | None
    pruned: float
    left: tuple[Subproblem, ...]
    not_finite: int = 0


def explore_all(explorer: Explorer, subs: Sequence[Subproblem], incumbent: float, budget: int) -> Explored:
    """Explore open nodes one after another, `budget` nodes in all; pure: the same answer wherever it is run."""
    before, not_finite_before = explorer.nodes, explorer.not_finite
    explorer.forget_pruned()
    best: tuple[int, ...] | None = None
    left: list[Subproblem] = []
    for sub in subs:
        rest = budget - (explorer.nodes - before)
        if rest <= 0:
            left.append(sub)
            continue
        explorer.start(sub)
        found = explorer.explore(rest, incumbent)
        if found is not None:
            best, incumbent = found, explorer.incumbent
        left += explorer.left()
        explorer.stop()
    not_finite = explorer.not_finite - not_finite_before
    return Explored(explorer.nodes - before, best, explorer.pruned, tuple(left), not_finite)


class BranchAndBound(ExactSearch):
    """The best subset of at most k columns of an objective; `advance` goes on, everything can be read between calls.

    incumbent: a subset to begin with (local indices), the better the fewer nodes. bound: see
    dsel.search.exact.bounds. Nodes
    are counted where the columns that may be added to a subset are looked at. pairs: find the last two columns by
    looking at all pairs, which is faster than nodes with bounds of their own.

    contradicted: a subset was found that is better than a bound said one could be. The bounds are wrong then, by more
    than rounding: the search goes on, but it proves nothing.
    """

    kind = "branch-and-bound"

    def __init__(
        self, objective: Objective, k: int, *, incumbent: Iterable[int] = (), bound: BoundName = "combined",
        problem: BoundProblem | None = None, memory_limit: int = 8 << 30, most_open: int = MOST_OPEN,
        pairs: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, bound)
        if bound not in BOUNDS:
            raise OptionError(f"There is no bound {bound!r}.", f"One of {', '.join(BOUNDS)}.")
        self.problem = problem or BoundProblem.of(objective)
        self._explorer = Explorer(self.problem, k, bound, memory_limit, pairs)
        self._most_open = most_open
        self._heap: list[tuple[float, int, Subproblem]] = []
        self._pushed = 0
        self._away: dict[int, list[Subproblem]] = {}
        self._taken = 0
        self._nodes_before = 0
        self._pruned_before = np.inf
        self._not_finite_before = 0
        self.contradicted = False
        everything = np.arange(objective.n, dtype=np.int32)
        self._root = self.problem.bound((), range(objective.n), k, bound)
        self._claim = self._root  # no subset of what is explored now is said to be better
        self._push(Subproblem(self._root, (), everything))
        self.offer(incumbent)

    def _push(self, sub: Subproblem) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (sub.lower, self._pushed, sub))

    def offer(self, S: Iterable[int]) -> bool:
        """A subset from elsewhere; True where it is better than the best."""
        return self._found(S, self.best_value if self.done else self._root)

    def _found(self, S: Iterable[int], claim: float) -> bool:
        """A subset of which it was said that none like it is better than `claim`."""
        better = super().offer(S)
        if better and self.best_value < claim - CONTRADICTION * self.problem.c and not self.contradicted:
            self.contradicted = True
            log.warning("a subset is better than the bound allows (%g, not %g): no proof", self.best_value, claim)
        return better

    def warm_up(self) -> None:
        """Compile what `advance` needs, the first time on a machine."""
        log_compilation(explore, "branch and bound")
        explore(self._explorer._memory.P, 0)
        if self._explorer.idle:
            begin(self._explorer._memory.P, 0, 0)
            self._explorer.stop()

    @property
    def iteration(self) -> int:
        """Nodes looked at."""
        return self._nodes_before + self._explorer.nodes

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return not self._heap and self._explorer.idle and not self._away

    @property
    def proven(self) -> bool:
        """Whether `best` is the best subset, to MARGIN: no node is open, and nothing contradicts the bounds."""
        return self.done and not self.contradicted

    @property
    def not_finite(self) -> int:
        """Bounds of nodes that were not finite, and pruned nothing."""
        return self._not_finite_before + self._explorer.not_finite

    @property
    def lower(self) -> float:
        """No subset of at most k columns has an f below this."""
        if self.contradicted:
            return 0.0
        open_ = [sub.lower for sub in self._explorer.left()] + [entry[0] for entry in self._heap[:1]]
        open_ += [sub.lower for subs in self._away.values() for sub in subs]
        return min(self.best_value, self._pruned_before, self._explorer.pruned, *open_)

    @property
    def pairs(self) -> bool:
        """Whether the last two columns are found by looking at all pairs."""
        return self._explorer.pairs

    @property
    def open_nodes(self) -> int:
        """Nodes in the heap."""
        return len(self._heap)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Go on until so many nodes were looked at; True when done, or f <= target."""
        with one_blas_thread():
            return self._advance(until, target)

    def _advance(self, until: int, target: float | None) -> bool:
        while self._heap or not self._explorer.idle:
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until:
                return False
            if self._explorer.idle and not self._next():
                break
            full = len(self._heap) >= self._most_open
            slice_ = min(max(self.iteration // 200, 1), _LONGEST_SLICE)
            budget = until - self.iteration if full else min(slice_, until - self.iteration)
            found = self._explorer.explore(budget, self.best_value, careful=not full and slice_ == 1)
            if found is not None:
                self._found(found, self._claim)
            if not full and not self._explorer.idle:
                self._put_back()
        return self.done

    def checkout(self, most: int, enough: float, size: Callable[[Subproblem], float]) -> tuple[int, list[Subproblem]]:
        """Open nodes for someone else to explore, the least bound first, until they are so many or their sizes add up
        to enough; and their lease_id.

        They stay open, in `lower` and `state`, until `report` or `requeue` is called with the lease_id.
        """
        if not self._explorer.idle:
            self._put_back()
        taken: list[Subproblem] = []
        together = 0.0
        while self._heap and len(taken) < most and together < enough:
            lower, _, sub = heapq.heappop(self._heap)
            if lower >= self.best_value - MARGIN * self.problem.c:
                self._pruned_before = min(self._pruned_before, lower)
                self._heap.clear()
                break
            taken.append(sub)
            together += size(sub)
        self._taken += 1
        if taken:
            self._away[self._taken] = taken
        return self._taken, taken

    def requeue(self, lease_id: int) -> None:
        """What was taken is to be explored here after all."""
        for sub in self._away.pop(lease_id):
            self._push(sub)

    def report(self, lease_id: int, explored: Explored) -> None:
        """What came of it: it is no longer open, but for what is left."""
        claim = max(self._root, min((sub.lower for sub in self._away.pop(lease_id)), default=0.0))
        self._nodes_before += explored.nodes
        self._not_finite_before += explored.not_finite
        self._pruned_before = min(self._pruned_before, explored.pruned)
        if explored.best is not None:
            self._found(explored.best, claim)
        for sub in explored.left:
            self._push(sub)

    def _next(self) -> bool:
        """Take up the open node of the least bound; False where none can hold a better subset."""
        lower, _, sub = heapq.heappop(self._heap)
        if lower >= self.best_value - MARGIN * self.problem.c:
            self._pruned_before = min(self._pruned_before, lower)
            self._heap.clear()
            return False
        self._explorer.start(sub)
        self._claim = max(self._root, lower)
        return True

    def _put_back(self) -> None:
        for sub in self._explorer.left():
            self._push(sub)
        self._explorer.stop()

    def open_subproblems(self) -> list[Subproblem]:
        """All open nodes: those away, then the others, the least bound first."""
        if not self._explorer.idle:
            self._put_back()
        away = [sub for subs in self._away.values() for sub in subs]
        return away + [sub for _, _, sub in sorted(self._heap, key=lambda entry: entry[:2])]

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON would hold it."""
        open_ = [sub.as_list() for sub in self.open_subproblems()]
        pruned = min(self._pruned_before, self._explorer.pruned)
        return {
            **self._shared_state(), "nodes": self.iteration, "open": open_,
            "pruned": None if np.isinf(pruned) else pruned, "pairs": self.pairs, "most_open": self._most_open,
            "not_finite": self.not_finite, "contradicted": self.contradicted,
        }  # fmt: skip

    @classmethod
    def restore(
        cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30,
        problem: BoundProblem | None = None,
    ) -> BranchAndBound:  # fmt: skip
        """The search as it was when `state` was taken."""
        check_saved(objective, state)
        search = cls(
            objective, state["k"], bound=state["bound"], problem=problem, memory_limit=memory_limit,
            most_open=state.get("most_open", MOST_OPEN), pairs=state.get("pairs", True),
        )  # fmt: skip
        search._take_shared(state)
        search._heap = []
        for values in state["open"]:
            search._push(Subproblem.from_list(values))
        search._nodes_before = state["nodes"]
        search._not_finite_before = state.get("not_finite", 0)
        search.contradicted = search.contradicted or state.get("contradicted", False)
        search._pruned_before = np.inf if state["pruned"] is None else state["pruned"]
        return search


def starting_subset(objective: Objective, k: int, seed: int = 0) -> tuple[int, ...]:
    """A good subset quickly: the best of exchange search from forward selection and a short POSS."""
    from dsel.search.greedy.exchange import exchange
    from dsel.search.pareto.kernel import run
    from dsel.search.pareto.search import Poss, paper_iterations

    log_compilation(run)
    points = [exchange(objective, k, start="forward").best(k), exchange(objective, k, seed=seed, restarts=4).best(k)]
    search = Poss(objective, k, seed=seed, exchange_every=5000)
    for point in points:
        if point.size:
            search.offer(point.members)
    search.advance(min(paper_iterations(k, objective.n), 100_000))
    points += search.front()
    return min((p for p in points if p.size <= k), key=lambda p: (p.value, p.size)).members

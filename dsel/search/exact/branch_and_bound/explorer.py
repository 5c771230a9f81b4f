"""Explore subtrees of branch and bound depth first, in memory that is allocated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.kernel_arrays import KernelArrays
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, MARGIN, ridge
from dsel.errors import CapacityError
from dsel.objective.kernels.elimination import RARE
from dsel.search.exact.bounds import BOUNDS, BoundName, BoundProblem
from dsel.search.exact.branch_and_bound import disjoint_cores, kernel, log_records, rule, suffix_bounds
from dsel.search.exact.branch_and_bound import layout as at
from dsel.search.exact.branch_and_bound.kernel import begin, explore
from dsel.search.exact.branch_and_bound.log_records import DEPENDENT
from dsel.search.exact.branch_and_bound.suffix_bounds import block_upper_bound, sum_of_largest, sum_of_largest_diagonal
from dsel.search.exact.proof_log import LogPart, OpenNode, SegmentLog
from dsel.search.exact.tree import Explored

#: Bounds use this many leading targets first and all targets only if these do not decide.
_LEADING = 10
#: Least number of columns to choose at which disjoint cores save more than they cost: one target, several targets.
_CORES_FROM = (4, 3)
#: Numbers that the kernel may log before Python takes them, and numbers of the longest segment.
_LOG_ROOM, _SEGMENT_NUMBERS = 1 << 15, 1 << 16
#: Subsets that the kernel may list before Python takes them, at first.
_LIST_ROOM = 1 << 12

Columns = NDArray[np.int32]


@dataclass(frozen=True)
class Subproblem:
    """An open node: a lower bound on f below it, the chosen columns, and the columns that may still be added.

    Columns are local indices. `allowed` is ordered: a child may only add the columns after its own.
    """

    lower: float
    chosen: tuple[int, ...]
    allowed: Columns

    def __reduce__(self) -> tuple[Any, ...]:
        # A message with bytes is one frame. With arrays it would have a frame for each of its many nodes.
        return _unpickle, (self.lower, self.chosen, self.allowed.tobytes())

    @property
    def logged(self) -> OpenNode:
        """The node as the proof log holds it."""
        return OpenNode(self.chosen, self.allowed, self.lower)

    def as_list(self) -> list[Any]:
        """Return the node as JSON holds it."""
        return [self.lower, list(self.chosen), self.allowed.tolist()]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Subproblem:
        """Return the node that `as_list` wrote."""
        return cls(float(values[0]), tuple(values[1]), np.asarray(values[2], np.int32))


def _unpickle(lower: float, chosen: tuple[int, ...], allowed: bytes) -> Subproblem:
    return Subproblem(lower, chosen, np.frombuffer(allowed, np.int32))


class Explorer:
    """Explores one subproblem at a time; its arrays are allocated once.

    pairs: find the last two columns by a search over all pairs, which is faster than nodes with their own bounds. log:
    keep a log of the tree, which `take_log` returns. listing: list all subsets of k columns below the incumbent's f;
    `take_listed` returns them.
    Raises CapacityError if the arrays need more than `memory_limit` bytes.
    """

    def __init__(
        self, problem: BoundProblem, k: int, bound: BoundName = "combined", memory_limit: int = 8 << 30,
        pairs: bool = True, log: bool = False, listing: bool = False,
    ) -> None:  # fmt: skip
        self.problem, self.k, self.bound, self.pairs = problem, k, bound, pairs
        self._chosen: tuple[int, ...] = ()
        self._memory = KernelArrays(at.BRANCH)
        depths = max(k - 1, 1) if pairs else k
        self._check_memory(depths, memory_limit)
        room = _LOG_ROOM + 8 * (problem.n + k) if log else 1
        self._allocate(depths, room)
        self._count, self._numbers = self._memory[at.COUNT], self._memory[at.NUMBERS]
        self._listed: list[tuple[tuple[int, ...], float]] = []
        self._make_room_for_list(_LIST_ROOM if listing else 1)
        self._count[at.LISTING] = listing
        self._log = SegmentLog(problem.c) if log else None
        self._count[at.LOGGING] = log
        self._count[at.LOG_LIMIT] = _LOG_ROOM if log else 0
        self._count[at.DEPTH] = -1
        self._count[at.WORK_LIMIT] = np.iinfo(np.int64).max
        self._count[at.BOUND] = BOUNDS.index(bound)
        self._count[at.PAIRS] = pairs
        self._count[at.CORES] = _CORES_FROM[min(problem.N, 2) - 1] if pairs else 2
        self._numbers[at.MARGIN] = MARGIN * problem.c
        self._numbers[at.PRUNED] = np.inf
        self._numbers[at.TOTAL] = problem.c
        self._numbers[at.RIDGE] = ridge(problem.n) / DEPENDENCE_TOLERANCE

    def _check_memory(self, depths: int, memory_limit: int) -> None:
        n, N = self.problem.n, self.problem.N
        targets = 2 + (depths if self.bound == "eigenvalue" else 0)
        need = 8 * (depths * (n * n + 2 * n * N) + N * N * targets + n * n)
        if need > memory_limit:
            raise CapacityError(
                f"Branch and bound over {n} columns and {N} targets needs {format_bytes(need)}; "
                f"{format_bytes(memory_limit)} are allowed.",
                "Allow more memory, or exclude columns.",
            )

    def _allocate(self, depths: int, log_room: int) -> None:
        problem, k, memory = self.problem, self.k, self._memory
        n, N = problem.n, problem.N
        leading = min(N, _LEADING)
        own_targets = self.bound == "eigenvalue"
        target_depths, target_width = (depths, N) if own_targets else (1, 1)
        floats = {
            at.GRAM: (depths, n, n), at.CROSS: (depths, n, N), at.TARGETS: (target_depths, target_width, target_width),
            at.WORK: (max(n, 3), max(n, 3)), at.WORK_CROSS: (n, N), at.WHOLE: (2, N, N), at.LOWER: (depths, n),
            at.ERROR: (4, depths), at.NUMBERS: (7,), at.MOMENTS: (2, n), at.CHECK: (k + 2, k + 2 + N),
            at.LEADING: (2, leading, leading), at.LOG_BOUNDS: (log_room,), at.CHILD_BOUND: (n,),
            at.CORE_BOUND: (k + 2,), at.TRANSPOSED: (N, n), at.GIVEN: (n + k, k + 2), at.GIVEN_CROSS: (k + 2, N),
            at.DIRECTION: (N,),
        }  # fmt: skip
        for slot, shape in floats.items():
            memory.put(slot, np.zeros(shape))
        given = {
            at.FLOOR: problem.floor, at.ROOT_GRAM: problem.K, at.ROOT_CROSS: problem.B,
            at.ROOT_TARGETS: problem.T if own_targets else np.zeros((1, 1)),
        }  # fmt: skip
        for slot, array in given.items():
            memory.put(slot, np.ascontiguousarray(array, np.float64))
        integers = {
            at.ALLOWED: (depths, n), at.CHILDREN: (depths, n), at.FRAME: (depths, 3), at.COUNT: (at.COUNTERS,),
            at.BEST: (k,), at.START: (n + k,), at.BASE: (k,), at.MEMBERS: (k + 2,), at.CORE: (n,), at.LOG: (log_room,),
            at.WANTED: (n,), at.LACKED: (n,), at.ORDER: (n,), at.PLACES: (n + k,),
        }  # fmt: skip
        for int_slot, shape in integers.items():
            memory.put(int_slot, np.zeros(shape, np.int64))

    def _make_room_for_list(self, rows: int) -> None:
        self._memory.put(at.LIST, np.zeros((rows, self.k), np.int64))
        self._memory.put(at.LIST_VALUES, np.zeros(rows))

    @property
    def nodes(self) -> int:
        """Nodes visited so far, in all subproblems."""
        return int(self._count[at.NODES])

    @property
    def work(self) -> int:
        """Elements of matrices that were copied or updated so far. The time is about proportional."""
        return int(self._count[at.WORK_DONE])

    def limit_work(self, most: int) -> None:
        """Visit no further node once `work` is at least `most`."""
        self._count[at.WORK_LIMIT] = most

    def finds_cores(self, q: int) -> bool:
        """Return whether a node with q columns to choose looks for disjoint cores."""
        return self.bound == "combined" and q >= int(self._count[at.CORES])

    @property
    def idle(self) -> bool:
        """Whether no node of the subproblem is open."""
        return int(self._count[at.DEPTH]) < 0

    @property
    def pruned(self) -> float:
        """The least bound of a node that was pruned although it lies below the incumbent, by less than MARGIN."""
        return float(self._numbers[at.PRUNED])

    @property
    def not_finite(self) -> int:
        """The number of bounds so far that were not finite."""
        return int(self._count[at.NOT_FINITE])

    def warm_up(self, others: Sequence[Any] = ()) -> None:
        """Compile the kernel, and other kernels at the same time, the first time on a machine."""
        load_kernels(explore, begin, *others, what="branch and bound", without=self._unused_kernels())
        explore(self._memory.P, 0)
        if self.idle:
            begin(self._memory.P, 0, 0)
            self.stop()

    def _unused_kernels(self) -> list[Any]:
        logs = [log_records.log_branching, log_records.log_dropped, log_records.log_number, log_records.log_bound]
        lists = [rule.decides, rule.list_members]
        unused: list[Any] = [*RARE, *([] if self._count[at.LOGGING] else logs)]
        unused += [] if self._count[at.LISTING] else lists
        if self.bound != "eigenvalue":
            unused.append(kernel.residual_targets)
        if self.bound != "combined":
            unused += [disjoint_cores.find_cores, disjoint_cores.branch_on_smallest_core]
        if self.bound == "leaps" or (self.bound == "combined" and self.problem.N == 1):  # a trace is the bound
            unused += [sum_of_largest, sum_of_largest_diagonal, block_upper_bound, suffix_bounds.without_column]
            unused += [suffix_bounds.explained_gram, suffix_bounds.explained_gram_of_columns]
        return unused

    @property
    def interrupted(self) -> bool:
        """Whether no node is visited until `resume` is called."""
        return bool(self._count[at.STOP])

    def interrupt(self) -> None:
        """Stop `explore`, which another thread runs, within a node. The node stays open."""
        self._count[at.STOP] = 1

    def resume(self) -> None:
        """Let `explore` visit nodes again."""
        self._count[at.STOP] = 0

    def start(self, sub: Subproblem) -> None:
        """Set the subproblem to explore."""
        memory, chosen, t = self._memory, sorted(sub.chosen), len(sub.allowed)
        memory[at.START][: len(chosen)] = chosen
        memory[at.START][len(chosen) : len(chosen) + t] = sub.allowed
        begin(memory.P, len(chosen), t)
        memory[at.ERROR][at.BELOW, 0] = sub.lower
        self._count[at.Q] = self.k - len(chosen)
        self._chosen = sub.chosen
        if self._log is not None:
            self._log.begin([sub.logged])
            if self.idle:
                self._log.add(np.array([DEPENDENT]), np.empty(0))

    def stop(self) -> None:
        """Drop the subproblem."""
        self._count[at.DEPTH] = -1
        if self._log is not None:
            self._log.end()

    def list_below(self, value: float, wanted: Any, lacked: Any) -> None:
        """List all subsets up to this f, and up to the incumbent's those that decide about a column.

        wanted, lacked (n,): of which columns it is not known whether a listed subset has them, and lacks them.
        """
        self._numbers[at.LISTED_BELOW] = value
        self._memory[at.WANTED][:] = wanted
        self._memory[at.LACKED][:] = lacked
        self._count[at.LACKING] = int(np.count_nonzero(lacked))

    def take_listed(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the subsets that were listed since the last call, with their f."""
        found, self._listed = self._listed, []
        return found

    def _drain_list(self) -> None:
        count, rows = self._count, int(self._count[at.LISTED])
        size = int(count[at.BASE_SIZE] + count[at.Q])
        members, values = self._memory[at.LIST][:rows, :size].tolist(), self._memory[at.LIST_VALUES][:rows].tolist()
        self._listed += [(tuple(S), f) for S, f in zip(members, values, strict=True)]
        count[at.LISTED] = 0
        if count[at.OVERFLOW]:
            count[at.OVERFLOW] = 0
            if rows == 0:  # one node has more
                self._make_room_for_list(2 * self._memory[at.LIST].shape[0])

    def explore(self, budget: int, incumbent: float, careful: bool = False) -> tuple[int, ...] | None:
        """Visit up to `budget` nodes and return a subset better than the incumbent, or None.

        careful: bound every child as sharply as possible, not only sharply enough to prune it.
        """
        self._numbers[at.INCUMBENT] = incumbent
        if not self._count[at.LISTING]:
            self._numbers[at.LISTED_BELOW] = incumbent
        self._count[at.CAREFUL] = careful
        self._count[at.BEST_SIZE] = -1
        if self._log is None:
            explore(self._memory.P, budget)
        else:
            self._explore_and_log(self.nodes + budget, self._log)
        self._drain_list()
        size = int(self._count[at.BEST_SIZE])
        if size < 0:
            return None
        return tuple(sorted((*self._chosen, *(int(j) for j in self._memory[at.BEST][:size]))))

    def _explore_and_log(self, until: int, log: SegmentLog) -> None:
        """Visit nodes, and take what the kernel logs before there is no more room for it."""
        while not self.idle and self.nodes < until and not self.interrupted:
            if log.size > _SEGMENT_NUMBERS:
                self._divide_segment(log)
            explore(self._memory.P, until - self.nodes)
            count = self._count
            log.add(self._memory[at.LOG][: count[at.LOGGED]], self._memory[at.LOG_BOUNDS][: count[at.LOGGED_BOUNDS]])
            count[at.LOGGED] = count[at.LOGGED_BOUNDS] = 0
            if count[at.OVERFLOW]:
                self._drain_list()

    def _divide_segment(self, log: SegmentLog) -> None:
        """End the segment, and begin another one with what is open."""
        if not self.idle:
            log.begin([sub.logged for sub in self.open_nodes()])

    def take_log(self) -> LogPart | None:
        """Return the log of what was explored since the last call, None if no log is kept."""
        if self._log is None:
            return None
        self._log.end()
        part = self._log.take()
        self._divide_segment(self._log)
        return part

    def open_nodes(self) -> list[Subproblem]:
        """Return the nodes of the subproblem that are still open."""
        depth = int(self._count[at.DEPTH])
        if depth < 0:
            return []
        frame, allowed = self._memory[at.FRAME], self._memory[at.ALLOWED]
        if not self._count[at.OPENED]:
            lower = float(self._memory[at.ERROR][at.BELOW, 0])
            return [Subproblem(lower, self._chosen, allowed[0, : frame[0, at.T]].astype(np.int32))]
        found = []
        path = self._chosen
        for d in range(depth + 1):
            if d:
                path = (*path, int(frame[d, at.CHOSEN]))
            for place in range(int(frame[d, at.LEFT])):
                i = int(self._memory[at.CHILDREN][d, place])
                rest = allowed[d, i + 1 : frame[d, at.T]].astype(np.int32)
                lower = float(self._memory[at.LOWER][d, place])
                found.append(Subproblem(lower, (*path, int(allowed[d, i])), rest))
        return found

    def explore_all(self, subs: Sequence[Subproblem], incumbent: float, budget: int) -> Explored:
        """Explore open nodes one after another, up to `budget` nodes in all.

        The result depends only on the arguments, so that any worker may do it.
        """
        before, not_finite_before = self.nodes, self.not_finite
        self._numbers[at.PRUNED] = np.inf
        best: tuple[int, ...] | None = None
        left: list[Subproblem] = []
        for sub in subs:
            rest = budget - (self.nodes - before)
            if rest <= 0:
                left.append(sub)
                continue
            self.start(sub)
            better = self.explore(rest, incumbent)
            if better is not None:
                best, incumbent = better, float(self._numbers[at.INCUMBENT])
            while self._count[at.LISTING] and not (self.idle or self.interrupted or self.nodes - before >= budget):
                self.explore(budget - (self.nodes - before), incumbent)  # the list was full
            left += self.open_nodes()
            self.stop()
        nodes, not_finite = self.nodes - before, self.not_finite - not_finite_before
        log, listed = self.take_log(), self.take_listed()
        return Explored(
            nodes, best, tuple(left), pruned=self.pruned, not_finite=not_finite, log=log, listed=listed
        )  # fmt: skip

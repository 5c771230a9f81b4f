"""POSS, POCSS and PPOSS in compiled code: Pareto optimization of (f(S), |S|) over a quadratic objective.

Sources: Qian, Yu, Zhou, "Subset selection by Pareto optimization", NIPS 2015, Algorithm 2; Feng, Qian, Tang,
"Unsupervised feature selection by Pareto optimization", AAAI 2019, Algorithm 1 (the same loop on Y = X); Qian, Shi, Yu,
Tang, Zhou, "Parallel Pareto optimization for subset selection", IJCAI 2016, Algorithm 2 (rounds of offspring).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.jit import is_compiled
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.rng import binomial_cdf
from dsel.errors import OptionError
from dsel.objective.kernels import elimination, layout, multi_flip
from dsel.objective.kernels.elimination import evaluate
from dsel.objective.kernels.multi_flip import bound_after_insertions, value_after_flips
from dsel.objective.kernels.neighbour_table import clear, fill_outcome, rebuild
from dsel.objective.objective_interface import Objective
from dsel.search.outcome import FrontPoint, Improvement, check_seed, check_size, improving
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto import kernel as engine
from dsel.search.pareto.archive import Isolation
from dsel.search.pareto.look_ahead import look_ahead

_TRACE_ROWS = 8192
#: The smallest and the largest number of iterations to look ahead for entries of K.
_MIN_AHEAD, _MAX_AHEAD = 1 << 10, 1 << 22
#: How many numbers of the data can be read in the time that looking ahead by one iteration takes.
_NUMBERS_PER_ITERATION = 500
#: The largest number of entries of K that are kept.
_MAX_KNOWN = 1 << 21
_NOT_WANTED = np.empty(0, np.int64)
#: The share of offspring of more than one flip, and what it takes to compile the kernel that values them.
_SEVERAL_FLIPS, _COMPILATION_SECONDS = 0.26, 1.5


def paper_iterations(k: int, n: int) -> int:
    """Return T = floor(2 e k^2 n), the number of iterations in Theorem 1 of the POSS paper."""
    return math.floor(2.0 * math.e * k * k * n)


def any_size_iterations(k: int, n: int) -> int:
    """Return T = floor(e k n (n + 1)): as in Theorem 1, with an archive of up to n + 1 sizes in place of 2k."""
    return math.floor(math.e * k * n * (n + 1))


def isolated_iterations(k: int, n: int) -> int:
    """Return T = floor(k^2 (n - k) n log n) of Theorem 2 of the POSS paper, and at least that of Theorem 1.

    It is for the isolation function min-index, which keeps up to 2 k (n - k) subsets in the archive instead of 2 k.
    """
    return max(math.floor(k * k * (n - k) * n * math.log(n)), paper_iterations(k, n))


def pareto_kernels(
    *, few_targets: bool = True, has_gram: bool = True, exchange_every: int = 0
) -> tuple[list[Any], list[Any]]:
    """Return the kernels that a Pareto search calls, and those that they call only for other objectives or options."""
    unused: list[Any] = [] if exchange_every else [engine.exchange_search]
    if few_targets or not has_gram:
        unused.append(bound_after_insertions)
    if has_gram:
        unused += [*elimination.RARE, engine.missing_inputs, multi_flip.guess, multi_flip.bound_block]
    return [engine.run, clear, fill_outcome, *([] if has_gram else [look_ahead])], unused


def load_pareto_kernels(
    objective: Objective, exchange_every: int = 0, others: Sequence[Any] = (), *, values: bool = True
) -> bool:
    """Compile what a Pareto search on this objective needs, and return whether this machine compiles some of it now.

    others: more kernels to compile at the same time. values: whether offspring get values from tables.
    """
    entries, unused = pareto_kernels(
        few_targets=objective.few_targets > 0, has_gram=objective.has_gram, exchange_every=exchange_every
    )
    if not values:
        unused += [bound_after_insertions, value_after_flips]
    return load_kernels(*entries, *others, without=unused)


def values_pay(objective: Objective, k: int, iterations: int) -> bool:
    """Return whether a kernel that only saves evaluations saves more than it takes to compile it.

    It values the offspring of several flips from the table of their parent. Without it they are evaluated.
    """
    if not objective.has_gram or is_compiled(value_after_flips):
        return True
    targets = objective.few_targets
    steps = 500 + k**3 * (1 if targets else 3) + k * k * targets
    return 1e-9 * _SEVERAL_FLIPS * iterations * steps > _COMPILATION_SECONDS


class Poss:
    """The search of POSS or PPOSS. `advance` continues it; between two calls everything can be read.

    Parameters
    ----------
    objective : Objective
        f(S) over n candidate columns.
    k : int
        The size limit, 1 <= k <= n. Subsets of 2k columns and more are not archived.
    seed : int
        The seed.
    isolation : {"none", "min-index"}
        Compare all subsets, or only those with the same least index (the paper's Theorem 2).
    exchange_every : int
        Iterations between two exchange searches from a perturbed archived subset; 0 for never.
    memory_limit : int
        Bytes that the tables may take.
    processors : int
        Offspring in each round of PPOSS; 0 for POSS, which has the same archives as rounds of one. `iteration` counts
        offspring. With `exchange_every`, an exchange search follows each round that has an offspring whose number is a
        multiple of it.
    any_size : bool
        Archive subsets of any size.

    Notes
    -----
    An iteration costs a look-up for one flip and O(k^2) for more. An archived solution costs O(n k).

    The search differs from the papers in two points. A subset with a column that depends on the others is never
    archived: without that column f is the same and the subset smaller, and the literal algorithm keeps it until it
    finds that out. With isolation a subset of 2k columns or more is not archived, even if its class is empty.
    """

    def __init__(
        self,
        objective: Objective,
        k: int,
        *,
        seed: int = 0,
        isolation: Isolation = "none",
        exchange_every: int = 0,
        memory_limit: int = 8 << 30,
        processors: int = 0,
        any_size: bool = False,
    ) -> None:
        n = objective.n
        check_size(k, n)
        check_seed(seed)
        self.objective = objective
        self.k, self._limit = k, archive.size_limit(k, n, any_size)
        self.isolation = isolation
        self.processors, self._exchange_every = processors, exchange_every
        self.memory_limit = memory_limit
        self._s_max = archive.most_members(n, self._limit)
        self._trace: list[Improvement] = []
        self._pairs_fetched_at = 0
        self._offspring = max(processors, 1)
        if not objective.has_gram and exchange_every:
            raise OptionError(
                "exchange_every needs the whole Gram matrix, which does not fit in memory.", "Leave it out."
            )
        slots, sizes = archive.first_slots(self._limit), 2 * self._limit
        self._check_memory(slots)
        self._memory = memory = objective.subset_tables(self._s_max, slots).extended(archive.ARCHIVE)
        classes = n + 1 if isolation == "min-index" else 1
        memory.put(archive.ORDER, np.zeros(slots, np.int64))
        memory.put(archive.PARENTS, np.zeros(slots, np.int64))
        memory.put(archive.FREE, np.arange(slots, dtype=np.int64))
        memory[layout.STATUS][:, layout.CLASS] = archive.NO_SUBSET
        memory.put(archive.SLOT, np.full((classes, sizes), -1, np.int64))
        memory.put(archive.BEST, np.full((classes, sizes), np.inf))
        rows = max(_TRACE_ROWS, 2 * processors)  # each offspring and each exchange search may be an improvement
        memory.put(archive.TRACE, np.zeros((rows, 3)))
        memory.put(archive.COUNT, np.zeros(archive.COUNTERS, np.int64))
        memory.put(archive.CDF, binomial_cdf(n, 1.0 / n))
        memory.put(archive.FLIPS, np.zeros(max(n, 2 * sizes), np.int64))
        memory.put(archive.CANDIDATE, np.zeros(2 * sizes + 1, np.int64))
        memory.put(archive.RULES, np.array([k, isolation == "min-index", seed, exchange_every, 1], np.int64))
        memory.put(archive.PARENT_SIZES, np.ones(sizes, np.int64))
        memory.put(archive.STOP_AT, np.array([-np.inf]))
        self._survivors = np.zeros((self._offspring, 2 + sizes + memory[archive.CDF].size), np.int64)
        self._start()

    def _check_memory(self, slots: int) -> None:
        archive.check_tables(self.objective.n, self.objective.few_targets, self._limit, slots, self.memory_limit)

    def _start(self) -> None:
        """Start with an archive of only the empty set (line 1 of Algorithm 2)."""
        memory = self._memory
        slot = self._take(0)
        clear(memory.P, slot)
        fill_outcome(memory.P, slot)
        cls = self._class_of([])
        memory[layout.STATUS][slot, layout.CLASS] = cls
        memory[archive.SLOT][cls, 0] = slot
        memory[archive.ORDER][0] = slot
        self._count[archive.MEMBERS] = 1

    def _class_of(self, members: Sequence[int]) -> int:
        if self.isolation == "none":
            return 0
        return int(min(members, default=self.objective.n))

    @property
    def _count(self) -> NDArray[np.int64]:
        return self._memory[archive.COUNT]

    @property
    def iteration(self) -> int:
        """The number of offspring so far."""
        return int(self._count[archive.ITERATION]) * self._offspring

    @property
    def total(self) -> float:
        """||Y||^2, to which differences of f are compared."""
        return self.objective.total

    @property
    def best_value(self) -> float:
        """The least f of an archived subset of at most k columns; of the empty set if there is none."""
        return min(float(self._memory[archive.BEST][:, self.k].min()), self.objective.c)

    @property
    def last_gain(self) -> int:
        """The iteration at which `best_value` last decreased; of PPOSS, the first one of its round."""
        return int(self._count[archive.LAST_GAIN]) * self._offspring

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """The improvements of `best_value`."""
        self._flush_trace()
        return tuple(self._trace)

    def _flush_trace(self) -> None:
        rows = int(self._count[archive.TRACED])
        found = self._memory[archive.TRACE][:rows]
        self._trace += [Improvement(int(i) * self._offspring, int(s), float(f)) for i, s, f in found]
        self._count[archive.TRACED] = 0

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue to iteration `until`; return True as soon as f <= target for a subset of at most k columns.

        PPOSS makes complete rounds, at least one, as long as they do not exceed `until`.
        """
        if target is not None and self.best_value <= target:
            return True
        self._memory[archive.STOP_AT][0] = -np.inf if target is None else target
        least = int(self._count[archive.ITERATION]) + (self.iteration < until)
        return self._run(max(until // self._offspring, least))

    def warm_up(self, iterations: int | None = None) -> None:
        """Compile what `advance` needs, the first time on a machine, before the clock of a stop rule starts.

        iterations: how many there will be. If they are few, a kernel that only saves evaluations is not compiled.
        """
        values = iterations is None or values_pay(self.objective, self._limit, iterations)
        self._memory[archive.RULES][archive.VALUES] = values
        load_pareto_kernels(self.objective, self._exchange_every, (engine.merge_external,), values=values)
        self.advance(self.iteration)

    def _run(self, until: int) -> bool:
        memory = self._memory
        while True:
            status = engine.run(memory.P, until, self._offspring, self._survivors)
            self._flush_trace()
            if status in (archive.ROWS_NEEDED, archive.PAIRS_NEEDED):
                self._fetch(status)
            elif status != archive.FULL:
                return bool(status == archive.TARGET_REACHED)
            elif self.isolation != "none":  # each offspring may have its own class
                self._make_room(int(self._count[archive.MEMBERS]) + 2 * self._offspring)

    def _fetch(self, status: int) -> None:
        """Fetch what the kernel stopped for, and what it would stop for next."""
        if status == archive.PAIRS_NEEDED:
            self._fetch_pairs()
            return
        candidate = self._memory[archive.CANDIDATE]
        self.objective.fetch_rows(candidate[: candidate[-1]].tolist(), self._coming_columns)

    def _coming_columns(self) -> NDArray[np.int64]:
        """Return the columns that would enter in the coming iterations, also beyond this slice.

        It looks ahead for no longer than the pass over the data that fetches their rows.
        """
        ahead = min(max(self.objective.fetch_cost // _NUMBERS_PER_ITERATION, _MIN_AHEAD), _MAX_AHEAD)
        wanted = np.zeros(8 * layout.MOST_FLIPS, np.int64)
        _, columns = self._look_ahead(ahead, _NOT_WANTED, wanted)
        return wanted[:columns]

    def _look_ahead(self, ahead: int, pairs: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[int, int]:
        until = int(self._count[archive.ITERATION]) + -(-ahead // self._offspring)
        found: tuple[int, int] = look_ahead(self._memory.P, until, self._offspring, pairs, wanted)
        return found

    def _fetch_pairs(self) -> None:
        """Fetch the entries of K between outside columns that this iteration and the coming ones need.

        It looks twice as far ahead as it came since the last fetch. An accepted subset makes the rest of a prediction
        useless, so a search that accepts many looks ahead for no longer than it takes itself.
        """
        memory, n = self._memory, self.objective.n
        ahead = min(max(2 * (self.iteration - self._pairs_fetched_at), _MIN_AHEAD), _MAX_AHEAD)
        self._pairs_fetched_at = self.iteration
        if memory[layout.PAIRS].size > _MAX_KNOWN:
            layout.set_known_pairs(memory, np.empty(0, np.int64), np.empty((2, 0)))
        pairs = np.zeros(max(self.objective.max_entries, 2 * layout.MOST_FLIPS**2), np.int64)
        found, _ = self._look_ahead(ahead, pairs, _NOT_WANTED)
        new = np.unique(pairs[:found])
        pairs = np.concatenate([memory[layout.PAIRS], new])
        values = np.hstack([memory[layout.PAIR_VALUES], self.objective.entries(new // n, new % n)])
        order = np.argsort(pairs)
        layout.set_known_pairs(memory, pairs[order], np.ascontiguousarray(values[:, order]))

    def _make_room(self, solutions: int | None = None) -> None:
        """Make room for one more iteration, next to the archived or given number of solutions."""
        memory = self._memory
        slots = memory[layout.F].shape[0]
        need = 3 + (int(self._count[archive.MEMBERS]) if solutions is None else solutions)
        if need <= slots:
            return
        twice = archive.table_bytes(self.objective.n, self.objective.few_targets, self._limit, 2 * slots)
        self._enlarge(max(2 * slots, need) if twice <= self.memory_limit else need)

    def _enlarge(self, slots: int) -> None:
        """Have this number of slots, more than now. New ones are used first."""
        self._check_memory(slots)
        memory, free = self._memory, self._free
        before = memory[layout.F].shape[0]
        layout.resize(memory, self._s_max, slots)
        memory[layout.STATUS][before:, layout.CLASS] = archive.NO_SUBSET
        for name, values in (
            (archive.ORDER, memory[archive.ORDER]),
            (archive.PARENTS, []),
            (archive.FREE, [*range(before, slots), *free]),
        ):
            whole = np.zeros(slots, np.int64)
            whole[: len(values)] = values
            memory.put(name, whole)

    @property
    def _free(self) -> list[int]:
        """The slots that are not in use. The one that left the archive first is the first."""
        unused = self._memory[archive.FREE].size - int(self._count[archive.MEMBERS])
        free: list[int] = self._memory[archive.FREE][:unused].tolist()
        return free

    def _take(self, place: int) -> int:
        """Remove the slot at this place from those that are not in use, before COUNT[MEMBERS] changes; return it."""
        free = self._memory[archive.FREE]
        slot = int(free[place])
        free[place:-1] = free[place + 1 :].copy()
        return slot

    def offer(self, S: Iterable[int]) -> bool:
        """Offer the archive a subset from elsewhere, and return whether it was archived."""
        members = np.unique(np.asarray(list(S), np.int64))
        if not 1 <= members.size <= self._s_max:
            raise OptionError(f"A subset of {members.size} columns cannot be archived: 1 to {self._s_max}.")
        if not 0 <= members[0] <= members[-1] < self.objective.n:
            raise OptionError(f"The columns {members.tolist()} are not all among 0 to {self.objective.n - 1}.")
        self._make_room()
        self.objective.fetch_rows(members.tolist())
        self._memory[archive.FLIPS][: members.size] = members
        empty = int(self._memory[archive.SLOT][-1, 0])
        archived = bool(engine.try_insert(self._memory.P, empty, members.size))
        self._flush_trace()
        return archived

    def restart(self, iteration: int, solutions: Sequence[Sequence[int]], parents: Sequence[int] | None = None) -> None:
        """Make the archive hold exactly these subsets, oldest first, and continue from an iteration.

        parents: the sizes of the subsets that may be drawn as parents; by default all.

        Subsets are of ascending columns, and none dominates another. The empty set is not among them. Tables that still
        exist are used again: those of subsets that are archived, and of those that left the archive lately. Others are
        computed from that of the nearest subset.
        """
        memory, count, wanted = self._memory, self._count, {tuple(members) for members in solutions}
        self._keep_only(wanted)
        self._make_room(len(solutions))
        self._keep_more_tables()
        self._use_again(wanted)
        self.objective.fetch_rows(sorted({int(j) for members in solutions for j in members}))
        for members in solutions:
            if self._slot_of(members) < 0 and not engine.merge_external(
                memory.P, np.asarray(members, np.int64), len(members)
            ):
                self._put(members)
        slots = [int(memory[archive.ORDER][0]), *(self._slot_of(members) for members in solutions)]
        memory[archive.ORDER][: len(slots)] = slots
        count[archive.TRACED] = 0
        self._trace = []
        count[archive.ITERATION] = count[archive.LAST_GAIN] = iteration // self._offspring
        self._pairs_fetched_at = iteration
        memory[archive.PARENT_SIZES][:] = parents is None
        memory[archive.PARENT_SIZES][list(parents or ())] = 1

    def _slot_of(self, members: Sequence[int]) -> int:
        """Return the slot of an archived subset, or -1."""
        slot = int(self._memory[archive.SLOT][self._class_of(members), len(members)])
        return slot if slot >= 0 and self._members(slot) == tuple(members) else -1

    def _members(self, slot: int) -> tuple[int, ...]:
        """Return the columns of the subset of a slot."""
        memory = self._memory
        return tuple(memory[layout.SORTED][slot, : memory[layout.STATUS][slot, layout.SIZE]].tolist())

    def _keep_only(self, solutions: set[tuple[int, ...]]) -> None:
        """Remove all archived subsets except these and the empty set."""
        memory, count = self._memory, self._count
        order, free = memory[archive.ORDER], memory[archive.FREE]
        kept, changed = [int(order[0])], set()
        members = int(count[archive.MEMBERS])
        for slot in order[1:members].tolist():
            columns = self._members(slot)
            if columns in solutions:
                kept.append(slot)
                continue
            cls = self._class_of(columns)
            memory[archive.SLOT][cls, len(columns)] = -1
            free[free.size - members] = slot
            members -= 1
            changed.add(cls)
        order[: len(kept)] = kept
        count[archive.MEMBERS] = members
        for cls in changed:
            engine.refresh_best(memory.P, cls)

    def _keep_more_tables(self) -> None:
        """Have room for tables of subsets that left the archive, if they are small."""
        n, few = self.objective.n, self.objective.few_targets
        slots = archive.restart_slots(n, few, self._limit)
        if (
            self._memory[layout.F].shape[0] < slots
            and archive.table_bytes(n, few, self._limit, slots) <= self.memory_limit
        ):
            self._enlarge(slots)

    def _use_again(self, solutions: set[tuple[int, ...]]) -> None:
        """Archive those of the subsets that left the archive, but whose tables still exist."""
        memory, count, changed = self._memory, self._count, set()
        slots, classes = memory[archive.SLOT], memory[layout.STATUS][:, layout.CLASS].tolist()
        for slot in self._free:
            cls = classes[slot]
            if cls == archive.NO_SUBSET or (columns := self._members(slot)) not in solutions:
                continue
            if slots[cls, len(columns)] >= 0:
                continue
            self._take(self._free.index(slot))
            slots[cls, len(columns)] = memory[archive.ORDER][count[archive.MEMBERS]] = slot
            count[archive.MEMBERS] += 1
            changed.add(cls)
        for cls in changed:
            engine.refresh_best(memory.P, cls)

    @property
    def archived(self) -> list[FrontPoint]:
        """The archive, oldest solution first, the empty set included."""
        order = self._memory[archive.ORDER][: self._count[archive.MEMBERS]]
        return [self._point(int(slot)) for slot in order]

    def _point(self, slot: int) -> FrontPoint:
        members = self._members(slot)
        return FrontPoint(len(members), float(self._memory[layout.F][slot]), members)

    def front(self) -> tuple[FrontPoint, ...]:
        """Return the best subset of every size up to 2k - 1 that beats all smaller ones, the empty set first."""
        return improving(self.archived)

    def counts(self) -> dict[str, int]:
        """Return counts: look-ups (one flip), O(s^2) values (several flips), evaluations, acceptances, rebuilds."""
        c = self._count
        return {
            "looked_up": int(c[archive.LOOKED_UP]),
            "valued": int(c[archive.VALUED]),
            "evaluated": int(c[archive.EVALUATED]),
            "accepted": int(c[archive.ACCEPTED]),
            "rebuilt": int(c[archive.REBUILT]),
            "archive": int(c[archive.MEMBERS]),
        }

    def _put(self, members: Sequence[int]) -> None:
        """Put a subset that no archived table leads to into a slot, as the newest solution."""
        memory, size, cls = self._memory, len(members), self._class_of(members)
        slot, chosen = self._take(0), np.asarray(members, np.int64)
        rebuild(memory.P, slot, chosen, size)
        memory[layout.F][slot] = evaluate(memory.P, chosen, size)[0]
        fill_outcome(memory.P, slot)
        memory[layout.SORTED][slot, :size] = chosen
        memory[layout.STATUS][slot, layout.CLASS] = cls
        memory[archive.SLOT][cls, size] = memory[archive.ORDER][self._count[archive.MEMBERS]] = slot
        self._count[archive.MEMBERS] += 1
        engine.refresh_best(memory.P, cls)

"""Tabu search by swaps, started again from changed copies of its best subset when it stalls.

Sources: Glover, "Tabu search, part I", ORSA Journal on Computing 1, 1989; Lourenco, Martin, Stutzle, "Iterated local
search", Handbook of Metaheuristics, 2003, for the restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dsel._lib.kernel_loading import load_kernels
from dsel._lib.rng import uniforms
from dsel.objective.kernels import layout
from dsel.objective.kernels.elimination import RARE
from dsel.objective.objective_interface import Objective
from dsel.objective.subset_state import DELETION_KERNELS, SubsetState
from dsel.search.greedy.path import NO_GAIN, largest
from dsel.search.tabu import kernel as swaps

#: Moves until the tables are computed again, so that rounding errors do not accumulate.
REFRESH_AFTER = 100
#: The columns that a restart changes: at least this many, and at most this share of all more.
_LEAST_CHANGED, _MORE_CHANGED = 2, 0.25
#: The slot of the random numbers of a restart; moves have slot 0.
_RESTART = 1


def load_swap_kernels() -> None:
    """Compile what a search by swaps needs, the first time on a machine."""
    load_kernels(swaps.run_moves, *DELETION_KERNELS, without=RARE)


class TabuSearch:
    """Tabu search over the subsets of k columns, or of fewer where fewer are independent.

    Parameters
    ----------
    objective : Objective
        f(S) over n columns, with the whole Gram matrix in memory.
    k : int
        The size.
    start : sequence of int
        The first subset. It is filled up to k columns.
    seed : int
        The seed.
    first : int
        The number of the first move, which decides the random numbers.

    Notes
    -----
    A move makes the best of the k (n - k) swaps that are allowed, in O(n k). To start or to refresh the tables takes
    O(n k^2).
    """

    def __init__(self, objective: Objective, k: int, start: Sequence[int], *, seed: int = 0, first: int = 0) -> None:
        n = objective.n
        self.objective, self.k, self.seed = objective, k, seed
        self._state = SubsetState(objective, k)
        self._tables = self._state.tables.extended(swaps.SWAPS)
        for slot, shape in ((swaps.COEFFICIENTS, (k, n)), (swaps.REMOVED, (2, n)), (swaps.ALONG_MEMBERS, (2, k))):
            self._tables.put(slot, np.zeros(shape))
        self._tables.put(swaps.PRODUCTS, np.zeros((1 if objective.few_targets else k, n)))
        for integers, length in ((swaps.NO_ENTRY, n), (swaps.NO_EXIT, n), (swaps.BEST, k)):
            self._tables.put(integers, np.zeros(length, np.int64))
        self._tables.put(swaps.VALUES, np.full(2, np.inf))
        self._tables.put(swaps.COUNT, np.array([first, first, seed, first], np.int64))
        self.best: tuple[int, ...] = ()
        self.best_value = objective.c
        self._go_to(start)

    @property
    def iteration(self) -> int:
        """The number of the next move."""
        return int(self._tables[swaps.COUNT][swaps.MOVE])

    @property
    def last_gain(self) -> int:
        """The last move that found a better subset."""
        return int(self._tables[swaps.COUNT][swaps.IMPROVED])

    @property
    def total(self) -> float:
        """||Y||^2."""
        return self.objective.total

    def offer(self, S: Iterable[int]) -> None:
        """Continue from a subset of k columns if it is better than the best one so far."""
        members = sorted(int(j) for j in S)
        if self.objective.value(members) < self.best_value:
            self._go_to(members)

    def renumber(self, first: int) -> None:
        """Let the next move have this number, which decides the random numbers, and forget what is forbidden."""
        if self.iteration != first:
            self._forget()
            self._tables[swaps.COUNT][:] = first, first, self.seed, first

    def _forget(self) -> None:
        """Forget what is forbidden."""
        for name in (swaps.NO_ENTRY, swaps.NO_EXIT):
            self._tables[name][:] = 0

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue to move `until`; return True as soon as f <= target."""
        while self.iteration < until:
            if target is not None and self.best_value <= target:
                return True
            ended = swaps.run_moves(self._tables.P, min(until, self.iteration + REFRESH_AFTER))
            self._note_best()
            if ended == swaps.STALLED:
                self._restart()
            else:
                self._refresh()
        return target is not None and self.best_value <= target

    def _note_best(self) -> None:
        """Take the best subset of the kernel if its exact value is the best, and tell the kernel the exact value."""
        values = self._tables[swaps.VALUES]
        if values[swaps.LEAST] < self.best_value:
            members = tuple(sorted(int(j) for j in self._tables[swaps.BEST][: self._state.size]))
            value = self.objective.value(members)
            if value < self.best_value and self.objective.rank(members) == len(members):
                self.best, self.best_value = members, value
        values[swaps.LEAST] = self.best_value

    def _restart(self) -> None:
        """Start from the best subset with some columns replaced by random ones, and forget what is forbidden."""
        size, n, move = len(self.best), self.objective.n, self.iteration
        draws = uniforms(self.seed, move, _RESTART, 1 + size + n)
        changed = _LEAST_CHANGED + int(draws[0] * _MORE_CHANGED * size)
        kept = [self.best[i] for i in np.argsort(draws[1 : 1 + size], kind="stable")[changed:]]
        others = [int(j) for j in np.argsort(draws[1 + size :], kind="stable") if j not in self.best]
        self._forget()
        self._go_to([*kept, *others[: 2 * changed]])
        # A restart counts as a move, so that a search without any swap ends.
        self._tables[swaps.COUNT][:] = move + 1, move + 1, self.seed, self.last_gain

    def _go_to(self, members: Sequence[int]) -> None:
        """Make the first k independent ones of these columns the subset, filled up by the largest gains."""
        state = self._state
        state.clear()
        for j in members:
            if state.size < state.limit:
                state.insert(int(j))
        while state.size < state.limit and (gains := state.gains()).max() > NO_GAIN * self.total:
            if not state.insert(largest(gains)):
                break
        self._tables[swaps.BEST][: state.size] = state.members
        self._tables[swaps.VALUES][swaps.LEAST] = state.value
        self._refresh()
        self._tables[swaps.VALUES][swaps.LEAST_SINCE_KICK] = state.value
        self._note_best()

    def _refresh(self) -> None:
        """Compute the tables of the subset and of its swaps from the objective. O(n k^2)."""
        state, tables, s = self._state, self._tables, self._state.size
        if s == 0:
            return
        state.refresh()
        S = state.members
        A, K_S = tables[layout.A][0, :s, :s], self.objective.rows(S)
        tables[swaps.COEFFICIENTS][:s] = A @ K_S
        if not self.objective.few_targets:
            M_S = self.objective.moment_rows(S)
            tables[swaps.PRODUCTS][:s] = A @ M_S - tables[layout.G][0, :s, :s] @ K_S

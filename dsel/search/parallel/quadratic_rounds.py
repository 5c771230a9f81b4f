"""PPOSS on a quadratic objective, in this process: the archive of POSS with the rounds of Algorithm 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.outcome import Improvement
from dsel.search.parallel.synchronous_kernel import run_rounds
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto.archive import Isolation
from dsel.search.pareto.search import Poss


class PpossRounds(Poss):
    """PPOSS with N = `processors` offspring per round, in this process.

    Draws are those of `dsel.search.parallel.synchronous.Pposs`. With N = 1 the search is `Poss` step by step.
    `iteration` counts offspring: N times the rounds. With `exchange_every`, an exchange search follows each round that
    has an offspring whose number is a multiple of it.
    """

    _loop: Any = run_rounds

    def __init__(
        self, objective: Objective, k: int, *, processors: int, seed: int = 0, isolation: Isolation = "none",
        exchange_every: int = 0, memory_limit: int = 8 << 30,
    ) -> None:  # fmt: skip
        if processors < 1:
            raise OptionError(f"processors is {processors}.", "A round has at least one offspring.")
        super().__init__(
            objective, k, seed=seed, isolation=isolation, exchange_every=exchange_every, memory_limit=memory_limit
        )
        self.processors = self._offspring = processors
        if 2 * processors > self._memory[archive.TRACE].shape[0]:  # each offspring and exchange may be an improvement
            self._memory.put(archive.TRACE, np.zeros((2 * processors, 3)))
        flips = self._memory[archive.CDF].size
        self._survivors = np.zeros((processors, 2 + 2 * k + flips), np.int64)

    @property
    def iteration(self) -> int:
        """Number of offspring so far."""
        return int(self._count[archive.ITERATION]) * self.processors

    @property
    def last_gain(self) -> int:
        """Number of offspring before the round in which `best_value` last improved."""
        return int(self._count[archive.LAST_GAIN]) * self.processors

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of `best_value`, with the number of offspring before its round."""
        return tuple(Improvement(t.iteration * self.processors, t.size, t.value) for t in super().trace)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Run complete rounds, at least one, until another would exceed `until` offspring.

        Return True as soon as f <= target for some subset of at most k columns, else False.
        """
        if target is not None and self.best_value <= target:
            return True
        self._memory[archive.STOP_AT][0] = -np.inf if target is None else target
        rounds = max(until // self.processors, int(self._count[archive.ITERATION]) + (self.iteration < until))
        while True:
            status = run_rounds(self._memory.P, rounds, self.processors, self._survivors)
            self._flush_trace()
            if status in (archive.ROWS_NEEDED, archive.PAIRS_NEEDED):
                self._fetch(status)
            elif status != archive.FULL:
                return bool(status == archive.TARGET_REACHED)
            if self.isolation != "none":  # each offspring may have its own class
                self._make_room(int(self._count[archive.MEMBERS]) + 2 * self.processors)

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs."""
        return {
            **super().state(),
            "trace": [[t.iteration, t.size, t.value] for t in super().trace],
            "processors": self.processors,
        }

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30) -> PpossRounds:
        """Return the search of a saved state."""
        search = cls(
            objective, state["k"], processors=state["processors"], seed=state["seed"],
            isolation=state.get("isolation", "none"), exchange_every=state["exchange_every"], memory_limit=memory_limit,
        )  # fmt: skip
        search._resume(state)
        return search

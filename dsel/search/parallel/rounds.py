"""PPOSS in rounds on a quadratic objective: the archive of `dsel.search.pareto.poss` with the rounds of Algorithm 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.base import Improvement
from dsel.search.parallel.synchronous_kernel import run_rounds
from dsel.search.pareto import kernel as engine
from dsel.search.pareto.archive import Isolation
from dsel.search.pareto.search import Poss


class PpossRounds(Poss):
    """PPOSS with N = `processors` offspring a round, in this process. `iteration` counts offspring: N times the rounds.

    Draws are those of dsel.search.parallel.synchronous.Pposs; with N = 1 it is Poss step by step.
    """

    def __init__(
        self, objective: Objective, k: int, *, processors: int, seed: int = 0, isolation: Isolation = "none",
        memory_limit: int = 8 << 30,
    ) -> None:  # fmt: skip
        if processors < 1:
            raise OptionError(f"processors is {processors}.", "At least one offspring is made in a round.")
        super().__init__(objective, k, seed=seed, isolation=isolation, memory_limit=memory_limit)
        self.processors = self._offspring = processors
        if processors > self._memory[engine.TRACE].shape[0]:  # each may be an improvement
            self._memory.put(engine.TRACE, np.zeros((processors, 3)))
        flips = self._memory[engine.CDF].size
        self._survivors = np.zeros((processors, 2 + 2 * k + flips), np.int64)

    @property
    def iteration(self) -> int:
        """Offspring made so far."""
        return int(self._count[engine.ITERATION]) * self.processors

    @property
    def last_gain(self) -> int:
        """Offspring made before the round in which `best_value` last fell."""
        return int(self._count[engine.LAST_GAIN]) * self.processors

    @property
    def trace(self) -> tuple[Improvement, ...]:
        """Every improvement of `best_value`, by offspring made before its round."""
        return tuple(Improvement(t.iteration * self.processors, t.size, t.value) for t in super().trace)

    def advance(self, until: int, target: float | None = None) -> bool:
        """Whole rounds, until another one would go beyond `until` offspring (one is always made); True as soon as
        f <= target for some subset of at most k columns."""
        if target is not None and self.best_value <= target:
            return True
        self._memory[engine.RATES][engine.TARGET] = -np.inf if target is None else target
        rounds = max(until // self.processors, int(self._count[engine.ITERATION]) + (self.iteration < until))
        while True:
            status = run_rounds(self._memory.P, rounds, self.processors, self._survivors)
            self._flush_trace()
            if status in (engine.ROWS_NEEDED, engine.PAIRS_NEEDED):
                self._fetch(status)
            elif status != engine.FULL:
                return bool(status == engine.TARGET_REACHED)
            if self.isolation != "none":  # each offspring may be in a class of its own
                self._make_room(int(self._count[engine.MEMBERS]) + self.processors)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs."""
        return {
            **super().state(),
            "trace": [[t.iteration, t.size, t.value] for t in super().trace],
            "processors": self.processors,
        }

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], memory_limit: int = 8 << 30) -> PpossRounds:
        """The search as it was when `state` was taken."""
        search = cls(
            objective, state["k"], processors=state["processors"], seed=state["seed"],
            isolation=state.get("isolation", "none"), memory_limit=memory_limit,
        )  # fmt: skip
        search._resume(state)
        return search

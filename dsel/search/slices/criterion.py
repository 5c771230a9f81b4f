"""POSS with a custom criterion whose iterations overlap: workers evaluate them, with the same bits on any workers.

Iteration t draws its parent from the archive that iterations 0 to t - W have left (W iterations may be out at the same
time), and values are offered to the archive in the order of the iterations. With W = 1 the search is POSS.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from dsel.search.anytime import Stop
from dsel.search.parallel.executor import Task
from dsel.search.parallel.synchronous import AskTellMemo
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset

#: Iterations that one call merges at most while none of them needs an evaluation.
_MOST_MERGES = 10_000


class OverlappingPoss(AskTellMemo):
    """POSS on any criterion with up to `slices` iterations out at the same time, by ask and tell.

    Parameters
    ----------
    n : int
        Number of columns to choose from.
    k : int
        Largest subset size.
    slices : int
        W, the iterations that may be out at the same time.
    stop : Stop
        Stopping rules; `iterations` is required. `target`, `patience` and `bound` are checked after each iteration, in
        their order, so that they end every run at the same one.
    seed : int
        Iteration t draws its parent and its flips from (seed, t), as in POSS.
    isolation : {"none", "min-index"} or callable
        Subsets compete only with subsets of the same isolation value.
    """

    def __init__(
        self, n: int, k: int, *, slices: int, stop: Stop, seed: int = 0,
        isolation: Isolation | IsolationFunction = "none",
    ) -> None:  # fmt: skip
        super().__init__(n, k, seed=seed, isolation=isolation)
        assert stop.iterations is not None
        self.slices, self.stop, self.limit = slices, stop, stop.iterations
        self._window: deque[Subset | None] = deque()
        self._ended = False

    @property
    def completed(self) -> int:
        """Number of iterations whose offspring were offered to the archive."""
        return self.iteration

    def finished(self, limit: int) -> bool:
        """Return whether all iterations are over, or a stopping rule has ended the search."""
        return self._ended or self.iteration >= self.limit

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Return subsets that need a value: at most `most`, and at most a worker's share of two tasks for each."""
        self._draw()
        self._merge()
        self._open = [S for S in self._open if S not in self._values]
        return None if self._ended else self._next_task(min(most, math.ceil(len(self._open) / (2 * workers))))

    def tell(self, task: Task, values: Sequence[Any]) -> None:
        """Store f of the task's subsets, or of the first ones, and merge the iterations that waited for them."""
        self._receive(task, values)
        self._merge()

    def _draw(self) -> None:
        """Draw the offspring of the iterations that may be out now."""
        while len(self._window) < self.slices and self.iteration + len(self._window) < self.limit:
            t = self.iteration + len(self._window)
            S = self._offspring_of(self._parent(t), t)
            self._window.append(S)
            if S is not None and S not in self._values and S not in self._out and S not in self._open:
                self._open.append(S)

    def _merge(self) -> None:
        """Offer offspring to the archive in the order of the iterations, up to the first whose value is not known."""
        for _ in range(_MOST_MERGES):
            if self._ended or not self._window:
                return
            S = self._window[0]
            if S is not None and S not in self._values:
                return
            self._window.popleft()
            if S is not None:
                self._recalled += 1
                self._put(S, self._values[S])
            self.iteration += 1
            self._draw()
            self._ended = self.stop.met(self, self.iteration, 0.0) is not None

    def counts(self) -> dict[str, int]:
        """Return the counts of the result. Interruptions do not change them."""
        counts = super().counts()
        return {**counts, "recalled": max(self._recalled - counts["evaluated"], 0)}

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs. Subsets that are out are asked again."""
        window = [None if S is None else list(S) for S in self._window]
        return {**super().state(), "slices": self.slices, "window": window}

    @classmethod
    def restore(cls, state: dict[str, Any], stop: Stop, isolation: IsolationFunction | None = None) -> OverlappingPoss:
        """Return the search of a saved state. isolation: the custom isolation function, if the search had one."""
        search = cls(
            state["n"], state["k"], slices=state["slices"], stop=stop, seed=state["seed"],
            isolation=cls.isolation_of(state, isolation),
        )._load(state)  # fmt: skip
        search._window = deque(None if S is None else tuple(S) for S in state["window"])
        search._open = list(dict.fromkeys(S for S in search._window if S is not None and S not in search._values))
        return search

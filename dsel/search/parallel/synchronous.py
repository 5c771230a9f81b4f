"""PPOSS, the parallel POSS: N offspring of one parent per round (Qian et al., IJCAI 2016, Algorithm 2).

N is the number of logical processors. The number of workers and the order of their results do not change the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from dsel.errors import OptionError
from dsel.search.parallel.executor import Task
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset
from dsel.search.pareto.evaluation_memo import EvaluationMemo, number

#: A task has at least 1 / _LEAST of the most units: a shorter one costs more to send than to run.
_LEAST = 50


class AskTellMemo(EvaluationMemo):
    """Base of searches that ask for the values of subsets, and for none twice."""

    #: Evaluations in the first tasks, before their duration is known.
    first_units = 1

    def __init__(self, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none") -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        self._open: list[Subset] = []
        self._submitted: dict[str, tuple[Subset, ...]] = {}
        self._out: set[Subset] = set()
        self._suspects: set[Subset] = set()
        self._events: list[tuple[Subset, float]] = []
        self._name, self._sent = uuid4().hex[:8], 0

    def _next_task(self, size: int) -> Task | None:
        """Return a task of at most `size` open subsets. A suspect subset gets its own task."""
        if not self._open:
            return None
        size = next((max(i, 1) for i, S in enumerate(self._open[:size]) if S in self._suspects), size)
        subsets, self._open = tuple(self._open[:size]), self._open[size:]
        self._sent += 1
        task = Task(f"{self._name}-{self._sent}", subsets)
        self._submitted[task.key] = subsets
        self._out.update(subsets)
        return task

    def _receive(self, task: Task, values: Sequence[Any]) -> list[Subset]:
        """Store the values and return their subsets. Subsets without a value are open again."""
        subsets = self._submitted.pop(task.key)
        self._out.difference_update(subsets)
        for members, value in zip(subsets, values, strict=False):
            self._values[members] = number(value, members)
            self._events.append((members, self._values[members]))
        self._open = [*subsets[len(values) :], *self._open]
        return list(subsets[: len(values)])

    def requeue(self, task: Task, suspect: bool) -> None:
        """Request the subsets of a lost task again; if they are suspect, for each alone."""
        if suspect:
            self._suspects.update(self._submitted[task.key])
        self._receive(task, ())

    def drain_events(self) -> list[tuple[Subset, float]]:
        """Return the subsets with f that were told or offered to the archive since the last call, for a journal."""
        events, self._events = self._events, []
        return events

    @property
    def waiting(self) -> bool:
        """Whether subsets are out, or open."""
        return bool(self._submitted or self._open)


class Pposs(AskTellMemo):
    """PPOSS on any criterion, by ask and tell.

    The empty set and subsets of 2k or more columns have f = +inf; they are not evaluated. `iteration` counts offspring:
    N times the rounds.

    Parameters
    ----------
    n : int
        Number of columns to choose from.
    k : int
        Largest subset size.
    processors : int
        N, the number of offspring per round.
    seed : int
        Round t draws its parent from (seed, t, slot 0), and offspring i its flips from (seed, t, slot i). With N = 1
        the search is POSS step by step.
    isolation : {"none", "min-index"} or callable
        Subsets compete only with subsets of the same isolation value.
    """

    def __init__(
        self, n: int, k: int, *, processors: int, seed: int = 0, isolation: Isolation | IsolationFunction = "none"
    ) -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        if processors < 1:
            raise OptionError(f"processors is {processors}.", "A round has at least one offspring.")
        self.processors = processors
        self._round: list[Subset] | None = None
        self._share = 1

    @property
    def completed(self) -> int:
        """Number of offspring in merged rounds."""
        return self.iteration

    def finished(self, limit: int) -> bool:
        """Return whether another round would exceed `limit` offspring. There is always one round."""
        return self.iteration > 0 and self.iteration + self.processors > limit

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Return subsets of the current round that need a value: at most `most`, and at most a worker's equal share.

        If no subset is open or out, merge the round (`iteration` advances) and return None.
        """
        if self._round is None:
            t = self.iteration // self.processors
            parent = self._parent(t)
            drawn = (self._offspring_of(parent, t, slot) for slot in range(self.processors))
            self._round = [S for S in drawn if S is not None]
            self._open = [S for S in dict.fromkeys(self._round) if S not in self._values]
            self._share = max(1, math.ceil(len(self._open) / workers))
        if not self.waiting:
            self._merge(self._round)
            self._round = None
            return None
        return self._next_task(min(most, max(self._share, most // _LEAST)))

    def tell(self, task: Task, values: Sequence[Any]) -> None:
        """Store f of the task's subsets, or of the first ones. The archive changes when the round is complete."""
        self._receive(task, values)

    def _merge(self, offspring: list[Subset]) -> None:
        """Merge a round (section 3.4): compare offspring with the old archive, then the survivors R with each other.

        The archive is the same as after lines 9 to 14, which process the offspring one after another.
        """
        R = [S for S in offspring if self.archive.admits(S, self._values[S])]
        for S in R:
            self._put(S, self._values[S])
        self._recalled += len(offspring)
        self.iteration += self.processors

    def counts(self) -> dict[str, int]:
        """Return the counts of the result. Interruptions do not change them."""
        counts = super().counts()
        return {**counts, "recalled": max(self._recalled - counts["evaluated"], 0)}

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs. An incomplete round starts again, with the values that have arrived."""
        return {**super().state(), "processors": self.processors}

    @classmethod
    def restore(cls, state: dict[str, Any], isolation: IsolationFunction | None = None) -> Pposs:
        """Return the search of a saved state. isolation: the custom isolation function, if the search had one."""
        chosen = cls.isolation_of(state, isolation)
        search = cls(state["n"], state["k"], processors=state["processors"], seed=state["seed"], isolation=chosen)
        return search._load(state)

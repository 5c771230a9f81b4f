"""PPOSS, the parallel POSS: N offspring of one parent a round (Qian, Shi, Yu, Tang, Zhou, IJCAI 2016, Algorithm 2).

N is a number of logical processors: how many workers value the offspring, and in which order, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from dsel.errors import OptionError
from dsel.search.parallel.executor import Task
from dsel.search.pareto.archive import Isolation, IsolationFunction, Subset
from dsel.search.pareto.evaluation_memo import Remembered, number

#: A task is no shorter than this part of what it is to be at most: a shorter one costs more to send than it takes.
_LEAST = 50


class Asking(Remembered):
    """A search that gives out subsets to be valued, keeps account of those that are out, and gives none out twice."""

    #: Evaluations in a first task, before their time is known.
    first_units = 1

    def __init__(self, n: int, k: int, *, seed: int = 0, isolation: Isolation | IsolationFunction = "none") -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        self._open: list[Subset] = []
        self._away: dict[str, tuple[Subset, ...]] = {}
        self._out: set[Subset] = set()
        self._alone: set[Subset] = set()
        self._events: list[tuple[Subset, float]] = []
        self._name, self._sent = uuid4().hex[:8], 0

    def _next_task(self, size: int) -> Task | None:
        """At most `size` of the open subsets; one that was lost before goes alone."""
        if not self._open:
            return None
        size = next((max(i, 1) for i, S in enumerate(self._open[:size]) if S in self._alone), size)
        subsets, self._open = tuple(self._open[:size]), self._open[size:]
        self._sent += 1
        task = Task(f"{self._name}-{self._sent}", subsets)
        self._away[task.key] = subsets
        self._out.update(subsets)
        return task

    def _come_back(self, task: Task, values: Sequence[Any]) -> list[Subset]:
        """Remember the values; the subsets that have none are open again. Returns those that have."""
        subsets = self._away.pop(task.key)
        self._out.difference_update(subsets)
        for members, value in zip(subsets, values, strict=False):
            self._values[members] = number(value, members)
            self._events.append((members, self._values[members]))
        self._open = [*subsets[len(values) :], *self._open]
        return list(subsets[: len(values)])

    def requeue(self, task: Task, suspect: bool) -> None:
        """The task was lost: its subsets are open again, and where they are suspect each goes alone."""
        if suspect:
            self._alone.update(self._away[task.key])
        self._come_back(task, ())

    def drain_events(self) -> list[tuple[Subset, float]]:
        """What a journal is to hold: subsets with f, told or put before the archive again since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def waiting(self) -> bool:
        """Whether something is out, or open."""
        return bool(self._away or self._open)


class Pposs(Asking):
    """PPOSS on any criterion, by ask and tell. The empty set and those of 2k columns and more have f1 = +inf unseen.

    processors: N, the offspring of a round. Round t draws its parent from (seed, t, slot 0) and offspring i its flips
    from (seed, t, slot i), so that N = 1 is POSS step by step. `iteration` counts offspring: N times the rounds.
    """

    def __init__(
        self, n: int, k: int, *, processors: int, seed: int = 0, isolation: Isolation | IsolationFunction = "none"
    ) -> None:
        super().__init__(n, k, seed=seed, isolation=isolation)
        if processors < 1:
            raise OptionError(f"processors is {processors}.", "At least one offspring is made in a round.")
        self.processors = processors
        self._round: list[Subset] | None = None
        self._share = 1

    @property
    def completed(self) -> int:
        """Offspring of the rounds that are merged."""
        return self.iteration

    def finished(self, limit: int) -> bool:
        """Whether another round would go beyond `limit` offspring; one round is always made."""
        return self.iteration > 0 and self.iteration + self.processors > limit

    def ask(self, most: int, workers: int, limit: int) -> Task | None:
        """Subsets of the present round that need a value: at most `most`, and a worker's even share of the round.

        None where it needs none any more: with nothing out, the round is then merged (`iteration` moves on).
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
        """f of the task's subsets (of the first ones, where fewer). The archive waits for the whole round."""
        self._come_back(task, values)

    def _merge(self, offspring: list[Subset]) -> None:
        """Section 3.4: offspring are first held against the old archive alone, the survivors R against each other.

        The archive is the one that lines 9 to 14 leave, which take them one after another.
        """
        R = [S for S in offspring if self.archive.admits(S, self._values[S])]
        for S in R:
            self._put(S, self._values[S])
        self._recalled += len(offspring)
        self.iteration += self.processors

    def counts(self) -> dict[str, int]:
        """What the search did, the same however often it was interrupted."""
        counts = super().counts()
        return {**counts, "recalled": max(self._recalled - counts["evaluated"], 0)}

    def state(self) -> dict[str, Any]:
        """All that `restore` needs. A round that is not whole begins again, with the values that came."""
        return {**super().state(), "processors": self.processors}

    @classmethod
    def restore(cls, state: dict[str, Any], isolation: IsolationFunction | None = None) -> Pposs:
        """The search as it was when `state` was taken; `isolation` where it had a function of its own."""
        chosen = cls.isolation_of(state, isolation)
        search = cls(state["n"], state["k"], processors=state["processors"], seed=state["seed"], isolation=chosen)
        return search._load(state)

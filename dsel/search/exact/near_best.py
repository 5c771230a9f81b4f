"""All subsets that are nearly as good as the best one, and what they say about each column.

A subset of k columns is near-best if it explains at least (1 - within) of what the best subset of k columns explains,
included columns counted:

    f(S) <= f* + within (||Y||^2 - f*)

A column is necessary if every near-best subset has it, useless if none has, and replaceable if some have it and some do
not. A tree of a proof that looks for all subsets below this f, in place of better ones than the best, finds them all,
and proves that there are no others. If there are more than can be listed, it lists the best ones. Then it visits only
the nodes that may decide about a column: whether a near-best subset has it, and whether another one lacks it.

A subset of columns must be independent. In a list of groups of columns, a "column" is a group everywhere here, and
every set of k groups counts, also where a group adds nothing to the others. A smaller set explains no more than it does
with other groups, so what holds for all sets of k groups holds for those of fewer groups, too. If k reaches all groups,
the sets of all but one are those without a group.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.objective.objective_interface import ItemObjective

#: Values of f that differ by this share of ||Y||^2 are equal, where they are compared with the limit of near-best ones.
EQUAL = 1e-12

Members = tuple[int, ...]


@dataclass(frozen=True)
class ListRule:
    """Which subsets are listed.

    within : float, optional
        Those that explain at least 1 - within of what the best one explains; None for any.
    limit : int
        At most this many, the best ones.
    """

    within: float | None
    limit: int

    def threshold(self, best: float, total: float) -> float:
        """Return the largest f of a near-best subset, if the best one has the error `best`. total: ||Y||^2."""
        return total if self.within is None else best + self.within * (total - best)


@dataclass
class NearBest:
    """The near-best subsets of k of n columns that were found so far.

    rule: which are listed. c: f of the included columns alone. total: ||Y||^2. error: how far the bounds of the proof
    may be above f, as a share of `total`. of_groups: whether the columns are groups, of which smaller sets are
    witnesses, too: a group with columns that nearly depend on others may make f larger.

    best: f of the best subset. witness_with, witness_without (n,): the least f of a known subset that has a column, and
    that lacks it; infinity if none is known.
    """

    rule: ListRule
    n: int
    k: int
    c: float
    total: float
    error: float = 0.0
    of_groups: bool = False
    best: float = float("inf")
    _subsets: dict[Members, float] = field(default_factory=dict)
    _order: list[tuple[float, Members]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin without any subset."""
        self.witness_with, self.witness_without = np.full(self.n, np.inf), np.full(self.n, np.inf)
        self.with_subset: dict[int, Members] = {}
        self.without_subset: dict[int, Members] = {}

    @property
    def threshold(self) -> float:
        """The largest f of a near-best subset."""
        return self.rule.threshold(min(self.best, self.c), self.total)

    @property
    def listed_below(self) -> float:
        """All subsets with an f of at most this are listed when the tree is done."""
        full = len(self._order) > self.rule.limit
        return min(self.threshold, self._order[self.rule.limit][0]) if full else self.threshold

    @property
    def _slack(self) -> float:
        return (self.error + EQUAL) * self.total

    @property
    def cutoff(self) -> float:
        """A node whose bound on f is above this holds no subset that matters."""
        limit = self.threshold if self.rule.within is not None else self.listed_below
        return limit + self._slack

    @property
    def list_cutoff(self) -> float:
        """A node whose bound on f is above this matters only if it may decide about a column."""
        return self.listed_below + self._slack

    def take(self, members: Iterable[int], value: float) -> None:
        """Take a subset of k columns or groups. Smaller ones are not listed; those of groups are witnesses, too."""
        S = tuple(sorted(int(j) for j in members))
        known = self._subsets.get(S, np.inf)
        if value >= known:
            return
        if len(S) != self.k:
            if self.of_groups and len(S) < self.k:
                self._witness(S, value)
            return
        if known < np.inf:  # a fit that ended early
            self._order.remove((self._subsets.pop(S), S))
        self.best = min(self.best, value)
        self._witness(S, value)
        if value > self.listed_below + EQUAL * self.total:
            return
        self._subsets[S] = value
        bisect.insort(self._order, (value, S))
        self._trim()

    def take_smaller(self, objective: ItemObjective) -> None:
        """Take the sets of all groups but one, where k reaches all groups: no set of k lacks a group."""
        if objective.groups is not None and self.k == self.n:
            for g in range(self.n):
                S = (*range(g), *range(g + 1, self.n))
                self._witness(S, objective.value(S))

    def _witness(self, S: Members, value: float) -> None:
        inside = np.zeros(self.n, np.bool_)
        inside[list(S)] = True
        for j in np.flatnonzero(inside & (value < self.witness_with)):
            self.with_subset[int(j)] = S
        for j in np.flatnonzero(~inside & (value < self.witness_without)):
            self.without_subset[int(j)] = S
        self.witness_with[inside] = np.minimum(self.witness_with[inside], value)
        self.witness_without[~inside] = np.minimum(self.witness_without[~inside], value)

    def _trim(self) -> None:
        """Drop what is not near-best any more, and what exceeds the limit; the first one beyond it is kept."""
        highest = self.threshold + EQUAL * self.total
        while self._order and (self._order[-1][0] > highest or len(self._order) > self.rule.limit + 1):
            del self._subsets[self._order.pop()[1]]

    @property
    def subsets(self) -> list[tuple[Members, float]]:
        """The listed subsets, best first."""
        self._trim()
        return [(S, value) for value, S in self._order[: self.rule.limit]]

    @property
    def more(self) -> bool:
        """Whether there are more near-best subsets than are listed."""
        self._trim()
        return len(self._order) > self.rule.limit

    @property
    def wanted(self) -> Bools:
        """Which columns (n,) are in no known near-best subset."""
        return np.asarray(~(self.witness_with <= self.threshold + EQUAL * self.total))

    @property
    def lacked(self) -> Bools:
        """Which columns (n,) are in every known near-best subset."""
        return np.asarray(~(self.witness_without <= self.threshold + EQUAL * self.total))

    def unsure(self, lower: float) -> tuple[Bools, Bools]:
        """Return of which columns (n,) it is not sure that a near-best subset has them, and lacks them.

        lower: a bound on f of all subsets. A better subset may be found, and a witness is then not near-best any more.
        It is sure if it is near-best even if the best subset is as good as the bound.
        """
        sure = self.rule.threshold(min(max(lower - self.error * self.total, 0.0), self.best, self.c), self.total)
        return np.asarray(~(self.witness_with <= sure)), np.asarray(~(self.witness_without <= sure))

    def matters(self, lower: float, inside: Bools | Ints, possible: Bools | Ints, least: float) -> bool:
        """Return whether a node may hold a subset to list, or one that decides about a column.

        lower: its bound on f. inside: the columns of all its subsets, as a mask or as numbers. possible: those of any
        of them. least: a bound on f of all subsets.
        """
        if lower <= self.list_cutoff:
            return True
        if self.rule.within is None:
            return False
        wanted, lacked = self.unsure(least)
        return bool(wanted[possible].any() or np.delete(lacked, inside).any())

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON holds it."""
        values = dict(self._subsets)
        values |= {S: float(self.witness_with[j]) for j, S in self.with_subset.items()}
        values |= {S: float(self.witness_without[j]) for j, S in self.without_subset.items()}
        return {
            "within": self.rule.within, "limit": self.rule.limit, "error": self.error,
            "subsets": [[list(S), value] for S, value in sorted(values.items())],
        }  # fmt: skip

    def restore(self, saved: Sequence[Sequence[Any]]) -> None:
        """Take the subsets of a saved state."""
        for S, value in saved:
            self.take(S, float(value))


@dataclass(frozen=True)
class OpenBounds:
    """Bounds on f of the subsets of open nodes that have each column, and that lack it (n,); infinity without any."""

    having: Floats
    lacking: Floats

    @classmethod
    def none(cls, n: int) -> OpenBounds:
        """Return the bounds where no node is open."""
        return cls(np.full(n, np.inf), np.full(n, np.inf))

    def include_each(self, having: Floats, lacking: Floats) -> None:
        """Count an open node by its bounds on f of the subsets that have each column, and that lack it."""
        np.minimum(self.having, having, out=self.having)
        np.minimum(self.lacking, lacking, out=self.lacking)

    def include(self, lower: float, inside: Ints, possible: Ints) -> None:
        """Count an open node: its bound, the columns of all its subsets, and those of any of them."""
        self.having[possible] = np.minimum(self.having[possible], lower)
        self.having[inside] = np.minimum(self.having[inside], lower)
        outside = np.ones(self.having.size, np.bool_)
        outside[inside] = False
        self.lacking[outside] = np.minimum(self.lacking[outside], lower)


def counts(objective: ItemObjective, S: Members) -> bool:
    """Return whether lists may have S: independent columns, or any groups."""
    return objective.groups is not None or objective.rank(S) == len(S)


def near_best_of(objective: ItemObjective, k: int, rule: ListRule, error: float) -> NearBest:
    """Return the near-best subsets of an objective: none so far. error: of the proof, as a share of ||Y||^2."""
    return NearBest(rule, objective.n, k, objective.c, objective.total, error, objective.groups is not None)


def saved_near_best(objective: ItemObjective, state: Mapping[str, Any]) -> NearBest | None:
    """Return what the tree of a saved state looks for, without its subsets; None if only for better subsets."""
    saved = state.get("near_best")
    if saved is None:
        return None
    return near_best_of(objective, state["k"], ListRule(saved["within"], saved["limit"]), saved["error"])

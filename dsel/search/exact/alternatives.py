"""What the near-best subsets say about each column: verdicts, and what it costs to have it or to do without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.objective_interface import ItemObjective
from dsel.search.anytime import Deadline
from dsel.search.exact.near_best import EQUAL, Members, NearBest, OpenBounds, counts

#: Swaps of the members of at most this many subsets are tried before the tree begins, and for prices after it.
_SWAPPED = 10
#: Near-best subsets that are taken from the swaps of one subset, at most.
_MOST_SWAPS = 1000
#: Searches for the prices of single columns take at most this many elementary steps, about.
_MOST_STEPS = 3e8

Verdict = Literal["necessary", "useless", "replaceable", "undecided"]


@dataclass(frozen=True, eq=False)
class NearBestAnswer:
    """What is known about the near-best subsets of k of n columns.

    within, threshold: a subset is near-best if its f is at most the threshold, see `ListRule`. subsets: the listed ones
    with their f, best first. more: whether there are near-best subsets beyond the list. complete_below: no other subset
    has a smaller f, which is proved. sure: a subset with this f or less is near-best even if a better one than the best
    known one is found later. verdicts: of each column. value_with, value_without (n,): the least f of a known
    subset of k columns that has the column, and that lacks it. bound_with, bound_without (n,): no such subset has a
    smaller f, which is proved. example_with, example_without: the subsets of these values.
    """

    k: int
    within: float
    threshold: float
    subsets: list[tuple[Members, float]]
    more: bool
    complete_below: float
    sure: float
    verdicts: list[Verdict]
    value_with: Floats
    value_without: Floats
    bound_with: Floats
    bound_without: Floats
    example_with: dict[int, Members]
    example_without: dict[int, Members]

    @property
    def complete(self) -> bool:
        """Whether all near-best subsets are listed."""
        return not self.more and self.complete_below >= self.threshold


def summarize(near: NearBest, opened: OpenBounds | None, lower: float, proven: bool) -> NearBestAnswer:
    """Return what is known about near-best subsets after a tree.

    opened: bounds of its open nodes, None if there are none. lower: a bound on f of all subsets. proven: whether the
    best subset is known.

    Rounding may hide by how much f of any subset is less than its bound or its value. It is subtracted from both, and a
    subset above the threshold by less may be near-best.
    """
    rule, total, slack, rounding = near.rule, near.total, EQUAL * near.total, near.error * near.total
    subsets, opened = near.subsets, opened or OpenBounds.none(near.n)
    best = min(near.best, near.c)
    open_least = max(float(min(opened.having.min(), opened.lacking.min())) - rounding, 0.0)
    threshold = near.threshold
    if rule.within is None:
        threshold = subsets[-1][1] if subsets else best
    beyond = near.listed_below
    complete_below, sure = min(beyond, open_least), threshold
    if not proven:
        least = max(lower, min(best, complete_below), 0.0)
        sure = rule.threshold(least, total) if rule.within is not None else min(threshold, complete_below)
    sure += slack
    has, lacks = near.witness_with <= sure, near.witness_without <= sure
    furthest = beyond if rule.within is None else near.threshold  # no node was pruned with a bound below this

    def bound(witness: Floats, left: Floats) -> Floats:
        pruned = np.where(witness <= near.threshold + slack, beyond, furthest)
        return np.asarray(np.maximum(np.minimum(pruned, np.minimum(witness, left) - rounding), max(lower, 0.0)))

    none_with = (np.minimum(near.witness_with - slack, opened.having) - rounding) > threshold
    none_without = (np.minimum(near.witness_without - slack, opened.lacking) - rounding) > threshold
    verdicts: list[Verdict] = []
    for j in range(near.n):
        if not subsets:
            verdicts.append("undecided")
        elif none_with[j]:
            verdicts.append("useless")
        elif none_without[j]:
            verdicts.append("necessary")
        else:
            verdicts.append("replaceable" if has[j] and lacks[j] else "undecided")
    within = rule.within
    if within is None:
        within = (threshold - best) / (total - best) if total > best else 0.0
    more = near.more and (rule.within is not None or beyond <= threshold + slack)  # the next one may be as good
    return NearBestAnswer(
        near.k, within, threshold, subsets, more, complete_below, sure, verdicts,
        near.witness_with, near.witness_without, bound(near.witness_with, opened.having),
        bound(near.witness_without, opened.lacking), near.with_subset, near.without_subset,
    )  # fmt: skip


def swap_values(objective: ItemObjective, S: Sequence[int]) -> Floats:
    """Return f (s, n) of the subsets in which another item takes the place of a member; infinity where there is none.

    It costs what s times the gains of a subset cost.
    """
    state = objective.subset(len(S))
    values = np.full((len(S), objective.n), np.inf)
    if not all([state.insert(j) for j in S]):  # dependent members share a place
        return values
    for place, i in enumerate(S):
        state.delete(i)
        allowed = objective.groups is not None or state.residual_norms() > 0.0
        values[place] = np.where(allowed, state.value - state.gains(), np.inf)
        values[place, i] = np.inf
        state.insert(i)
    values[:, list(S)] = np.inf
    return values


def _take(near: NearBest, objective: ItemObjective, S: Iterable[int]) -> None:
    members = tuple(sorted(S))
    if counts(objective, members):
        near.take(members, objective.value(members))


def take_swaps(
    near: NearBest, objective: ItemObjective, deadline: Deadline, known: Iterable[Sequence[int]] = ()
) -> None:
    """Take what swaps of the best subsets reach: near-best subsets, and the best ones with and without each column.

    known: more subsets to swap in.
    """
    done: set[Members] = set()
    for S in known:
        _take(near, objective, S)
    for _ in range(_SWAPPED):
        best = next((S for S, _ in near.subsets if S not in done), None)
        if best is None or deadline.passed:
            return
        done.add(best)
        S = list(best)
        values = swap_values(objective, S)
        swaps = {(int(values[:, j].argmin()), int(j)) for j in np.flatnonzero(values.min(axis=0) < near.witness_with)}
        swaps |= {(i, int(values[i].argmin())) for i, j in enumerate(S) if values[i].min() < near.witness_without[j]}
        if near.rule.within is not None:
            least = np.argsort(values, axis=None, kind="stable")[:_MOST_SWAPS]
            good = least[values.ravel()[least] <= near.threshold]
            swaps |= {divmod(int(place), objective.n) for place in good}
        for i, j in sorted(swaps):
            _take(near, objective, (*S[:i], *S[i + 1 :], j))


def search_prices(near: NearBest, objective: ItemObjective, deadline: Deadline) -> None:
    """Search for better subsets with each column that no near-best subset has, and without each one that all have."""
    take_swaps(near, objective, deadline)
    columns, most = objective.columns_of.n, objective.most_columns(near.k)
    steps, sides = 0.0, ((True, near.with_subset, near.wanted), (False, near.without_subset, near.lacked))
    for j in range(near.n):
        for inside, subsets, unknown in sides:
            known = subsets.get(j)
            if not known or not unknown[j]:
                continue
            while steps < _MOST_STEPS and not deadline.passed:
                steps += columns * most**2
                values = swap_values(objective, known)
                if inside:
                    values[known.index(j)] = np.inf
                else:
                    values[:, j] = np.inf
                if not values.min() < np.inf:
                    break
                i, l = np.unravel_index(int(values.argmin()), values.shape)
                trial = tuple(sorted((*known[:i], *known[i + 1 :], int(l))))
                value = objective.value(trial)
                if not value < objective.value(known) - EQUAL * near.total or not counts(objective, trial):
                    break
                near.take(trial, value)
                known = trial

"""A proof for groups of columns that can be interrupted, saved and continued."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel.search.anytime import AnytimeSearch, Stop, drive
from dsel.search.exact.certificate import GROUPS, Certificate
from dsel.search.exact.guarantee import guarantee_of
from dsel.search.grouped.branch_and_bound import GroupBranchAndBound, good_groups
from dsel.search.grouped.objective import GroupedObjective


@dataclass
class GroupProof:
    """A proof about the subsets of at most k groups: `run` continues it, `state` returns what `resume` needs.

    value: f of the groups to certify, inf if there are none. included: how many groups are always chosen. seconds: wall
    time so far.
    """

    search: GroupBranchAndBound
    value: float
    included: int = 0
    seconds: float = 0.0
    log: None = None

    def finish_log(self, about: Mapping[str, Any]) -> None:
        """Do nothing: a proof for groups keeps no log."""

    @classmethod
    def begin(
        cls, grouped: GroupedObjective, k: int, incumbent: Iterable[int] = (), *, included: int = 0, seed: int = 0
    ) -> GroupProof:
        """Begin a proof, from the incumbent or from better groups that a quick search finds."""
        known = tuple(incumbent)
        search = GroupBranchAndBound(grouped, k, known)
        value = search.best_value if known else float("inf")
        search.offer(good_groups(grouped, k, seed))
        return cls(search, value, included)

    @classmethod
    def resume(
        cls, grouped: GroupedObjective, state: Mapping[str, Any], incumbent: Iterable[int] = (), *, included: int = 0
    ) -> GroupProof:
        """Return a saved proof; it uses the incumbent if that is better."""
        search = GroupBranchAndBound.restore(grouped, dict(state["search"]))
        known = tuple(incumbent)
        value = grouped.value(known) if known else state["value"]
        search.offer(known)
        return cls(search, float("inf") if value is None else value, included, state["seconds"])

    def state(self) -> dict[str, Any]:
        """Return all that `resume` needs, as JSON holds it."""
        value = None if self.value == float("inf") else self.value
        return {"search": self.search.state(), "value": value, "seconds": self.seconds}

    def run(
        self, seconds: float | None = None, nodes: int | None = None,
        on_slice: Callable[[AnytimeSearch], None] | None = None, runner: Any = None,
    ) -> bool:  # fmt: skip
        """Continue for at most `seconds` or `nodes` in this process, and return whether the best groups are proved."""
        if not self.search.done:
            limit = 2**62 if nodes is None else self.search.iteration + nodes
            start = time.monotonic()
            try:
                with one_blas_thread():
                    drive(self.search, Stop(iterations=limit, seconds=seconds), on_slice)
            finally:
                self.seconds += time.monotonic() - start
        return self.search.proven

    def certificate(self) -> Certificate:
        """Return what is proved so far."""
        search, grouped = self.search, self.search.grouped
        limits = guarantee_of(grouped.columns_of, grouped.most_columns(search.k, dependent=True))
        return Certificate(
            size=self.included + search.k,
            value=search.best_value,
            bound=max(search.lower - limits.error * grouped.total, 0.0),
            error=limits.error,
            excluded=limits.hidden(search.best_value, grouped.columns_of),
            total=grouped.total,
            indices=tuple(grouped.columns_of.in_data(grouped.members(search.best))),
            nodes=search.iteration,
            seconds=self.seconds,
            method=GROUPS,
            better=search.best_value < self.value - MARGIN * grouped.total and self.value < float("inf"),
        )

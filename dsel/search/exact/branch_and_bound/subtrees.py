"""Explore open nodes of branch and bound outside the search, in a task on a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsel.search.exact.bounds import BoundName, BoundProblem
from dsel.search.exact.branch_and_bound.explorer import Explored, Explorer, Subproblem, explore_all


@dataclass(frozen=True, eq=False)
class SubtreeWork:
    """What tasks need to know of the search; see `BranchAndBound` for its parameters. log: whether there is one."""

    problem: BoundProblem
    k: int
    bound: BoundName
    pairs: bool
    log: bool

    def explorer(self) -> Explorer:
        """Return an explorer, whose arrays are allocated once."""
        return Explorer(self.problem, self.k, self.bound, pairs=self.pairs, log=self.log)

    def explore(self, explorer: Explorer, nodes: Sequence[Subproblem], incumbent: float, budget: int) -> Explored:
        """Explore open nodes one after another, up to `budget` nodes in all."""
        return explore_all(explorer, nodes, incumbent, budget)

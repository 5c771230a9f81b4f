"""Forward selection: insert what lowers f most.

Sources: "forward regression", Algorithm 1 of Qian, Yu, Zhou, "Subset selection by Pareto optimization", NIPS
2015; on Y = X the greedy column subset selection of Farahat, Ghodsi, Kamel, "An efficient greedy method for
unsupervised feature selection", ICDM 2011.
"""

from __future__ import annotations

from dsel.objective.base import Objective
from dsel.objective.subset_state import SubsetState
from dsel.search.base import SearchOutcome
from dsel.search.greedy.path import grow


def forward(objective: Objective, k: int) -> SearchOutcome:
    """The path of k best insertions; it ends earlier where no column brings a gain. O(n k^2) after the Gram
    matrix."""
    return grow(objective, k, SubsetState.gains)

"""Columns by their leverage scores: the share of each column in the k leading singular vectors.

Sources: Drineas, Mahoney, Muthukrishnan, "Relative-error CUR matrix decompositions", SIAM Journal on Matrix Analysis
and Applications 30, 2008, for sampling; Papailiopoulos, Kyrillidis, Boutsidis, "Provable deterministic leverage score
sampling", KDD 2014, for the largest scores.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from dsel._lib.rng import uniforms
from dsel._lib.types import Floats, Ints
from dsel.config.types import Int
from dsel.objective.base import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.comparators.two_stage import principal_directions
from dsel.search.greedy.path import Path, rebuilt
from dsel.search.method import Method, Options, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size


def leverage_scores(objective: Objective, k: int) -> Floats:
    """Return (n,) the squared norms of the rows of V_k, the k leading right singular vectors of X. O(n^3)."""
    return np.asarray(np.square(principal_directions(objective, k)[1]).sum(axis=1))


def leverage(
    objective: Objective, k: int, seed: int = 0, choice: Literal["sampled", "largest"] = "sampled", draws: int = 1
) -> SearchOutcome:
    """Return k columns with the largest leverage scores, or the best of some samples in proportion to the scores.

    Columns are drawn one after another, without replacement. A column that depends on those before it is left out.
    """
    check_size(k, objective.n)
    scores, path = leverage_scores(objective, k), Path(objective)
    for draw in range(1 if choice == "largest" else draws):
        order = np.argsort(-scores, kind="stable") if choice == "largest" else _drawn(scores, seed, draw)
        path.steps += 1
        members = rebuilt(objective, k, order.tolist()).members
        for size in range(1, len(members) + 1):
            path.add(members[:size])
            path.evaluated += 1
    return path.outcome()


def _drawn(scores: Floats, seed: int, draw: int) -> Ints:
    """Return the columns of positive score in the order in which they are drawn (Efraimidis and Spirakis, 2006)."""
    waits = -np.log(1.0 - np.asarray(uniforms(seed, draw, 0, scores.size)))
    positive = np.flatnonzero(scores > 0.0)
    return positive[np.argsort(waits[positive] / scores[positive], kind="stable")]


class LeverageOptions(Options):
    """Options of selection by leverage scores.

    Parameters
    ----------
    choice : {"sampled", "largest"}
        Whether columns are sampled in proportion to their scores, or those with the largest scores are chosen.
    draws : int
        How many samples there are. The best one is the answer.
    """

    choice: Literal["sampled", "largest"] = "sampled"
    draws: Int = Field(1, ge=1)

    def conflict(self, criterion: bool) -> str:
        if "draws" in self.model_fields_set and self.choice == "largest":
            return "draws: only with choice: sampled"
        return ""


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return leverage(task.objective, task.k, task.seed, task.options.choice, task.options.draws)


METHOD = Method(
    "leverage",
    "Choose columns by their leverage scores, sampled or the largest.",
    run,
    options=LeverageOptions,
    requirements=whole_gram,
    unsupervised_only=True,
    no_groups="singular vectors give scores of single columns",
)

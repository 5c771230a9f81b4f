"""Exchange members of a subset for other columns: exchange search, splicing, and the polish of any method's answer.

Sources. Exchange search replaces one column by the best other one, until no single replacement helps: IterFS of
Ordozgoiti, Gomez Canaval, Mozo, "A fast iterative algorithm for improved unsupervised feature selection", ICDM 2016,
there for Y = X. The polish is the same, started from the answer in place of a random subset. Splicing exchanges the
least important members for the most important other columns, several at a time: ABESS of Zhu, Wen, Zhu, Zhang, Wang,
"A polynomial algorithm for best-subset selection problem", PNAS 117(52), 2020, with the exact loss of a deletion and
the exact gain of an insertion as importance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from dsel._lib.rng import permutation
from dsel.config.types import Int
from dsel.objective.objective_interface import ItemObjective, ItemState
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import NEVER, Deadline
from dsel.search.greedy.by_criterion import exchange_steps, splicing_steps
from dsel.search.greedy.path import NO_GAIN, Path, best_replacement, forward, largest, path_method, rebuilt
from dsel.search.method import Options, ProblemSummary, estimated, few_columns
from dsel.search.outcome import Improvement, SearchOutcome, check_size, improving

Start = Literal["random", "forward"]


def exchange(
    objective: ItemObjective, k: int, seed: int = 0, restarts: int = 1, start: Start = "random",
    deadline: Deadline = NEVER,
) -> SearchOutcome:  # fmt: skip
    """Return the best of some local optima of size k, or smaller where fewer columns are independent.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The size.
    seed : int
        The seed of the random starts.
    restarts : int
        How many random starts there are.
    start : {"random", "forward"}
        Start from k random columns, or once from the columns of forward selection.
    deadline : Deadline, optional
        When the search ends with what it has.

    Returns
    -------
    SearchOutcome
        The trace counts sweeps. A sweep over all members costs O(n k^2).
    """
    check_size(k, objective.n)
    path = Path(objective)
    exchanges = 0
    for restart in range(restarts if start == "random" else 1):
        if restart and deadline.passed:
            break
        if start == "random":
            first: Sequence[int] = [int(j) for j in permutation(seed, restart, 0, objective.n)]
        else:
            first = objective.within(forward(objective, k).best(k).members)
        exchanges += local_optimum(objective, k, first, path, deadline)
    return path.outcome(exchanges=exchanges)


def local_optimum(
    objective: ItemObjective, k: int, first: Sequence[int], path: Path, deadline: Deadline = NEVER
) -> int:
    """Sweep from the first k independent columns of `first` to a local optimum, and return the number of exchanges.

    The subset after each sweep is added to the path. After the deadline no more members are exchanged.
    """
    solution = rebuilt(objective, k, first)
    made, value = 0, solution.value
    while True:
        exchanged = _sweep(solution, path, deadline)
        made += exchanged
        path.steps += 1
        path.add(sorted(solution.members))
        solution = rebuilt(objective, k, solution.members)
        improved = exchanged > 0 and solution.value < value  # near dependence a sweep may go round in circles
        if not improved or deadline.passed:
            return made
        value = solution.value


def _sweep(solution: ItemState, path: Path, deadline: Deadline) -> int:
    """Insert columns up to the limit, then exchange each member once for the best other column if that lowers f.

    After the deadline no more members are exchanged.
    """
    made, least = 0, NO_GAIN * solution.objective.total
    while solution.size < solution.limit and (gains := solution.gains()).max() > least:
        if not solution.insert(largest(gains)):
            break
        made += 1
    for i in solution.members:
        if deadline.passed:
            break
        j = best_replacement(solution, i, solution.value, path)
        if j is not None and solution.insert(j):
            made += 1
        else:
            solution.insert(i)
    return made


class ExchangeOptions(Options):
    """Options of exchange search (IterFS).

    Parameters
    ----------
    restarts : int
        How many random subsets the search starts from.
    start : {"random", "forward"}
        Whether it starts from random subsets, or once from the subset of forward selection.
    """

    restarts: Int = Field(1, ge=1)
    start: Start = "random"

    def conflict(self, criterion: bool) -> str:
        once = self.start == "forward" and self.is_changed("restarts")
        return "restarts: only with start=random" if once else ""


def _exchange_seconds(problem: ProblemSummary, options: ExchangeOptions) -> float:
    k, n = problem.to_choose
    return 3e-8 * n * k**2 * options.restarts  # measured with 1000 and 3000 columns, and k = 50 to 200


EXCHANGE = path_method(
    "exchange", "Replace one column by a better one until none helps (IterFS).", exchange, deletes=True, seeded=True,
    options=ExchangeOptions, takes_groups=True, by_criterion=exchange_steps, place=estimated(_exchange_seconds),
)  # fmt: skip


def polish(objective: ItemObjective, k: int, outcome: SearchOutcome, deadline: Deadline = NEVER) -> SearchOutcome:
    """Return an outcome with local optima under exchanges in place of its subsets. None of them gets worse.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The size limit. The best subset of at most k items is filled up to k first. The subsets of other sizes keep
        their sizes. They are polished only where the Gram matrix is in memory.
    outcome : SearchOutcome
        What a method found.
    deadline : Deadline, optional
        When the polish ends with what it has.

    Returns
    -------
    SearchOutcome
        `counts` has the number of exchanges as "polished". A sweep over a subset costs O(n k^2).
    """
    best, path, exchanges = outcome.best(k), Path(objective), 0
    asked = [(k, best)]
    if objective.has_gram:
        asked += [(point.size, point) for point in outcome.front if 0 < point.size < k and point is not best]
    load_subset_kernels(deletes=True)
    for limit, point in asked:
        if not deadline.passed:
            exchanges += local_optimum(objective, limit, objective.within(point.members), path, deadline)
    front = improving([*outcome.front, *path.points])
    result = replace(outcome, front=front, counts={**outcome.counts, "polished": exchanges})
    if not (after := result.best(k)).value < best.value:
        return result
    indices = objective.columns_of.in_data(after.members)
    proofs = tuple(
        proof.about(proof.size, after.value, indices) if after.value < proof.value else proof
        for proof in outcome.certificates
    )
    trace = (*result.trace, Improvement(result.iterations, after.size, after.value))
    return replace(result, trace=trace, certificates=proofs)


#: How many columns are exchanged at once at most, by default.
MAX_EXCHANGE = 10


def splicing(
    objective: ItemObjective, k: int, max_exchange: int = MAX_EXCHANGE, deadline: Deadline = NEVER
) -> SearchOutcome:
    """Return a subset of each size up to k that splicing does not improve.

    Each size starts from the subset of the size before and the column that lowers f most.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The largest size.
    max_exchange : int
        How many columns are exchanged at once at most.
    deadline : Deadline, optional
        When the search ends with what it has.

    Returns
    -------
    SearchOutcome
        The trace counts subsets that were visited. A visit costs O(n k) for each column that enters or leaves, and one
        least-squares problem of k columns for each number of exchanged ones. Where the Gram matrix is not in memory,
        only new columns take a pass over the data, one for a batch of them.
    """
    check_size(k, objective.n)
    path, exchanged = Path(objective), 0
    solution = objective.subset(k)
    while solution.size < k and not (solution.size and deadline.passed):
        gains = solution.gains()
        j = largest(gains)
        if gains[j] <= NO_GAIN * objective.total or not solution.insert(j):
            break
        solution, made = splice(solution, max_exchange, path, deadline)
        exchanged += made
        path.add(solution.members)
    return path.outcome(exchanges=exchanged)


def splice(solution: ItemState, max_exchange: int, path: Path, deadline: Deadline = NEVER) -> tuple[ItemState, int]:
    """Return a subset of the same size that splicing does not improve, and how many columns were exchanged.

    It is never worse than `solution`. Nor does any exchange of one column improve it. `path` counts the visited subsets
    and the evaluated ones.
    """
    made = 0
    while True:
        path.steps += 1
        if deadline.passed:
            return solution, made
        found = _several(solution, max_exchange, path) or _single(solution, path)
        if found is None:
            return solution, made
        next_one = rebuilt(solution.objective, solution.limit, found)
        if next_one.size < solution.size or not next_one.value < solution.value:  # rounding near dependence
            return solution, made
        made += len(set(found) - set(solution.members))
        solution = next_one


def _several(solution: ItemState, max_exchange: int, path: Path) -> list[int] | None:
    """Return the best subset after an exchange of the c least important members, for any c, if it lowers f."""
    objective, members = solution.objective, np.asarray(solution.members)
    gains = solution.gains()
    most = min(max_exchange, members.size, int(np.count_nonzero(gains > NO_GAIN * objective.total)))
    if most == 0:
        return None
    out = members[np.argsort(solution.losses(), kind="stable")]
    entering = np.argpartition(-gains, most - 1)[:most]
    entering = entering[np.lexsort((entering, -gains[entering]))]
    value = _values_within(objective, [*members.tolist(), *entering.tolist()])
    found = [[*out[c:].tolist(), *entering[:c].tolist()] for c in range(1, most + 1)]
    values = [value(S) for S in found]
    path.evaluated += most
    best = int(np.argmin(values))
    if not values[best] < solution.value - NO_GAIN * objective.total:
        return None
    objective.columns_of.fetch_rows(objective.members(found[best]), lambda: entering)
    return found[best]


def _single(solution: ItemState, path: Path) -> list[int] | None:
    """Return the subset after the best exchange of the first member for which there is one that lowers f."""
    trial = rebuilt(solution.objective, solution.limit, solution.members)
    for i in solution.members:
        j = best_replacement(trial, i, solution.value, path)
        if j is not None:
            return [*trial.members, j]
        if not trial.insert(i):
            return None  # rounding near dependence
    return None


def _values_within(objective: ItemObjective, columns: Sequence[int]) -> Callable[[Iterable[int]], float]:
    """Return f of subsets of some columns. Where the Gram matrix is not in memory, the columns are fetched once."""
    if objective.has_gram or objective.included_size:
        return objective.value
    small, place = objective.columns_of.restrict(columns), {j: i for i, j in enumerate(columns)}
    return lambda S: small.value(place[j] for j in S)


class SplicingOptions(Options):
    """Options of splicing.

    Parameters
    ----------
    max_exchange : int
        How many columns are exchanged at once at most.
    """

    max_exchange: Int = Field(MAX_EXCHANGE, ge=1)


SPLICING = path_method(
    "splicing", "Exchange several columns at once for better ones, for each size (ABESS).", splicing, deletes=True,
    options=SplicingOptions, requirements=few_columns, every_size=True, takes_groups=True, by_criterion=splicing_steps,
)  # fmt: skip

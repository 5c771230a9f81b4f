"""What the greedy methods share (ties, growing a subset, its path), and the methods that insert or delete one by one.

Sources. Forward selection: "forward regression", Algorithm 1 of Qian, Yu, Zhou, "Subset selection by Pareto
optimization", NIPS 2015; on Y = X the greedy column subset selection of Farahat, Ghodsi, Kamel, "An efficient greedy
method for unsupervised feature selection", ICDM 2011. Orthogonal matching pursuit: Pati, Rezaiifar, Krishnaprasad,
"Orthogonal matching pursuit", Asilomar 1993; with several targets SOMP of Tropp, Gilbert, Strauss, "Algorithms for
simultaneous sparse approximation I", 2006, with the sum of squares in place of the sum of absolute values; with groups
Swirszcz, Abe, Lozano, "Grouped orthogonal matching pursuit for variable selection and prediction", NIPS 2009. FoBa:
Zhang, "Adaptive forward-backward greedy algorithm for learning sparse representations", IEEE Transactions on
Information Theory 57(7), 2011. Backward elimination: the textbook method (Miller, "Subset selection in regression",
2002, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from dsel._lib.types import Floats
from dsel.config.types import Float, Int
from dsel.objective.objective_interface import ItemObjective, ItemState
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.by_criterion import StepsOf, forward_steps, place, run_by_criterion
from dsel.search.method import Method, Options, ProblemSummary, SearchTask, estimated, few_columns, whole_gram
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, check_size, improving

#: A gain of at most this share of ||Y||^2 counts as rounding error.
NO_GAIN = 1e-12
#: Scores that differ by at most this share are equal; the lowest index wins.
TIE = 1e-12


def largest(scores: Floats) -> int:
    """Return the place of the largest score (all >= 0), the first of equal ones."""
    return int(np.argmax(scores >= scores.max() * (1.0 - TIE)))


def cheapest(members: Iterable[int], costs: Floats) -> int:
    """Return the member of least cost (in the order of the members), the lowest index of equal ones."""
    least = costs.min()
    limit = max(least, least * (1.0 + TIE))  # rounding can make a cost negative
    return min(j for j, cost in zip(members, costs, strict=True) if cost <= limit)


def rebuilt(objective: ItemObjective, limit: int, members: Iterable[int]) -> ItemState:
    """Return a new state of a subset without accumulated rounding errors. Dependent columns are left out."""
    solution = objective.subset(limit)
    for j in members:
        if solution.size < limit:
            solution.insert(j)
    return solution


def best_replacement(solution: ItemState, member: int, value: float, path: Path) -> int | None:
    """Delete a member, and return the other item whose insertion then lowers f most below `value`; None if none does.

    `path` counts the items as evaluated. O(n k).
    """
    objective = solution.objective
    solution.delete(member)
    gains = solution.gains()
    gains[member] = 0.0
    path.evaluated += objective.n - solution.size
    j = largest(gains)
    return j if gains[j] > max(solution.value - value + NO_GAIN * objective.total, 0.0) else None


class Path:
    """The subsets on the path of a method, from the empty one on, each with its f. Their sizes count items."""

    def __init__(self, objective: ItemObjective) -> None:
        self.objective = objective
        self.points = [FrontPoint(0, objective.value(()), ())]
        self.trace: list[Improvement] = []
        self.steps = 0
        self.evaluated = 0

    def add(self, members: Iterable[int]) -> FrontPoint:
        """Add a subset, in the method's own order, and return its point."""
        chosen = tuple(members)
        point = FrontPoint(len(chosen), self.objective.value(chosen), self.objective.members(chosen))
        if point.value < min(p.value for p in self.points):
            self.trace.append(Improvement(self.steps, point.size, point.value))
        self.points.append(point)
        return point

    def add_prefixes(self, members: Sequence[int]) -> None:
        """Add the first column, the first two, and so on: each is a step."""
        for size in range(1, len(members) + 1):
            self.steps += 1
            self.add(members[:size])

    def outcome(self, **counts: Any) -> SearchOutcome:
        """Return the outcome of the path."""
        all_counts = {"evaluated": self.evaluated, **counts}
        return SearchOutcome(improving(self.points), tuple(self.trace), self.steps, counts=all_counts)


def grow(objective: ItemObjective, k: int, score: Callable[[ItemState], Floats]) -> SearchOutcome:
    """Return the path of k insertions of the item with the largest score, or fewer if no score is left. O(n k^2)."""
    check_size(k, objective.n)
    solution, path = objective.subset(k), Path(objective)
    while solution.size < k:
        scores = score(solution)
        path.evaluated += objective.n - solution.size
        j = largest(scores)
        if scores[j] <= NO_GAIN * objective.total or not solution.insert(j):
            break
        path.steps += 1
        path.add(solution.members)
    return path.outcome()


def path_method(
    name: str, summary: str, search: Callable[..., SearchOutcome], *, options: type[Options] = Options,
    deletes: bool = False, seeded: bool = False, by_criterion: StepsOf | None = None, **declared: Any,
) -> Method:  # fmt: skip
    """Return the method that runs `search`, a function of the objective over items, k, and the options by name.

    deletes: whether it deletes members of a state. seeded: whether it takes a `seed`. by_criterion: the same method for
    a custom criterion. declared: fields of `Method`.
    """

    def run(task: SearchTask) -> SearchOutcome:
        arguments = {name: getattr(task.options, name) for name in options.model_fields}
        if seeded:
            arguments["seed"] = task.seed
        if task.criterion is not None and by_criterion is not None:
            return run_by_criterion(task, by_criterion, **arguments)
        load_subset_kernels(deletes)
        return search(task.subject, task.k, **arguments)

    if by_criterion is not None:
        declared |= {"takes_criterion": True, "place": partial(place, squared=declared.get("place"))}
    return Method(name, summary, run, options=options, **declared)


def forward(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of k best insertions, or fewer if no column lowers f. O(n k^2) after the Gram matrix."""
    return grow(objective, k, lambda solution: solution.gains())


FORWARD = path_method(
    "forward", "Insert the column that lowers the error most, k times.", forward, requirements=few_columns,
    every_size=True, takes_groups=True, by_criterion=forward_steps,
)  # fmt: skip


def omp(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of k insertions, or fewer if no gain is left. All coefficients are refitted. O(n k^2)."""
    return grow(objective, k, lambda solution: solution.correlations())


OMP = path_method(
    "omp", "Insert the column that correlates most with the residuals, k times.", omp, requirements=few_columns,
    every_size=True, takes_groups=True,
)  # fmt: skip


def backward(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of deletions from all columns to one, each of which raises f least.

    Columns that depend on columns before them are left out at the start. Points of at most k columns are kept. The cost
    is O(n^3), with three n x n matrices of memory. The solution is rebuilt each time its size has halved.
    """
    check_size(k, objective.n)
    path, taken = Path(objective), []
    solution = rebuilt(objective, objective.n, range(objective.n))
    fresh = solution.size
    if solution.size <= k:
        taken.append(solution.members)
    while solution.size > 1:
        path.evaluated += solution.size
        path.steps += 1
        solution.delete(cheapest(solution.members, solution.losses()))
        if solution.size <= k:
            taken.append(solution.members)
        if 2 * solution.size <= fresh:
            solution = rebuilt(objective, solution.size, solution.members)
            fresh = solution.size
    return ascending(path, taken)


def ascending(path: Path, taken: list[list[int]]) -> SearchOutcome:
    """Return the outcome of a path of deletions, whose last subset is the smallest."""
    for members in reversed(taken):
        path.add(sorted(members))
    return path.outcome()


def _backward_seconds(problem: ProblemSummary, options: Options) -> float:
    n = problem.to_choose[1]
    return 1e-9 * n * min(n, problem.m) ** 2  # measured with 1000 to 2000 independent columns


BACKWARD = path_method(
    "backward", "Start from all columns and delete the one that raises the error least.", backward, deletes=True,
    requirements=whole_gram, every_size=True, takes_groups=True, place=estimated(_backward_seconds),
)  # fmt: skip


#: After this many deletions the solution is rebuilt, so that rounding errors do not accumulate.
_REBUILD_AFTER = 16


def foba(objective: ItemObjective, k: int, nu: float = 0.5, path_factor: int = 5) -> SearchOutcome:
    """Return the last subset of every size up to k on a path of `path_factor` times k steps, forward and backward.

    A member is deleted as soon as setting its coefficients to zero costs at most `nu` times what the insertion to the
    present size gained (0 < nu < 1). The cost is O(path_factor n k^2), and more for each deletion.
    """
    check_size(k, objective.n)
    length = path_factor * k
    solution = objective.subset(min(length, objective.n))
    gained: dict[int, float] = {}
    last: dict[int, list[int]] = {}
    steps = deleted = evaluated = 0
    while steps < length:
        size, before = solution.size, solution.value
        costs = solution.zeroing_costs() if size else np.empty(0)
        if size and costs.min() <= nu * gained[size]:
            solution.delete(cheapest(solution.members, costs))
            deleted += 1
            if deleted % _REBUILD_AFTER == 0:
                solution = rebuilt(objective, solution.limit, solution.members)
        else:
            scores = solution.correlations()
            j = largest(scores)
            if size == solution.limit or scores[j] <= NO_GAIN * objective.total:
                break
            solution.insert(j)
            gained[size + 1] = before - solution.value
        steps += 1
        evaluated += objective.n
        last[solution.size] = solution.members
    path = Path(objective)
    for size in sorted(s for s in last if 1 <= s <= k):
        path.add(last[size])
    path.steps, path.evaluated = steps, evaluated
    return path.outcome(deleted=deleted)


class FobaOptions(Options):
    """Options of FoBa.

    Parameters
    ----------
    nu : float
        A column is deleted where that costs at most `nu` times what the insertion to the present size gained.
    path_factor : int
        The search makes at most `path_factor` times k steps.
    """

    nu: Float = Field(0.5, gt=0, lt=1)
    path_factor: Int = Field(5, ge=1)


def _foba_seconds(problem: ProblemSummary, options: FobaOptions) -> float:
    k, n = problem.to_choose
    return 3e-9 * n * min(options.path_factor * k, n) ** 2  # measured with 1000 and 3000 columns, and k = 20 to 200


FOBA = path_method(
    "foba", "Insert columns as omp does, and delete those that cost little (FoBa).", foba, deletes=True,
    options=FobaOptions, requirements=few_columns, every_size=True, takes_groups=True, place=estimated(_foba_seconds),
)  # fmt: skip

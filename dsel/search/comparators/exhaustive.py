"""Exhaustive search: look at every subset of at most k columns.

Source: Garside, "The best sub-set in multiple regression analysis", Applied Statistics 14, 1965. Subsets are visited so
that each differs from one before it by one column, and the last column of all is found from one table of gains.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
from pydantic import Field

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import cube, int_matrix, vector
from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Int, Ints
from dsel.config.types import Int as WholeNumber
from dsel.errors import CapacityError
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables
from dsel.objective.kernels.neighbour_table import clear, copy, insert
from dsel.objective.objective_interface import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.exact_search import Effort
from dsel.search.exact.guarantee import Limits
from dsel.search.greedy.path import Path
from dsel.search.method import Method, Options, ProblemSummary, Requirements, SearchTask, estimated
from dsel.search.outcome import SearchOutcome, check_size


@compiled("void(i8[::1], i8, i8, f8[::1], i8[:, ::1])")
def _note_children(P: SubsetTables, z: Int, last: Int, best: Floats, members: Ints) -> None:
    """Compare the subset of slot z with each later column added to the best of that size."""
    table, floor, own = cube(P, layout.NEIGHBOURS), vector(P, layout.FLOOR), int_matrix(P, layout.S)
    size = int_matrix(P, layout.STATUS)[z, layout.SIZE]
    for j in range(last + 1, P[layout.N_COLUMNS]):
        d = table[z, layout.TOLERANCE, j]
        if d <= floor[j]:
            continue
        value = vector(P, layout.F)[z] - table[z, layout.MOMENT, j] / d
        if value < best[size + 1]:
            best[size + 1] = value
            for i in range(size):
                members[size + 1, i] = own[z, i]
            members[size + 1, size] = j


@compiled("void(i8[::1], i8, f8[::1], i8[:, ::1], i8[::1])")
def visit_subsets(P: SubsetTables, k: Int, best: Floats, members: Ints, stack: Ints) -> None:
    """Visit all independent subsets of at most k columns, depth first; slot d holds a subset of d columns.

    best: (k + 1,) the least f of each size. members: (k + 1, k) its columns. stack: (k,) scratch.
    """
    clear(P, 0)
    _note_children(P, 0, -1, best, members)
    depth = 0
    stack[0] = -1
    while depth >= 0:
        stack[depth] += 1
        j = stack[depth]
        if depth == k - 1 or j >= P[layout.N_COLUMNS]:
            depth -= 1
            continue
        copy(P, depth, depth + 1)
        if insert(P, depth + 1, j):
            depth += 1
            stack[depth] = j
            _note_children(P, depth, j, best, members)


def subsets(n: int, k: int) -> int:
    """Return the number of subsets of 1 to k of n columns."""
    return sum(comb(n, size) for size in range(1, min(k, n) + 1))


def exhaustive(objective: Objective, k: int) -> SearchOutcome:
    """Return the best subset of every size up to k.

    The cost is O(n s) for each subset of s < k columns, so about n C(n, k - 1).
    """
    check_size(k, objective.n)
    tables = objective.subset_tables(k, max(k, 2))
    best, members = np.full(k + 1, np.inf), np.zeros((k + 1, k), np.int64)
    visit_subsets(tables.P, k, best, members, np.zeros(k, np.int64))
    path = Path(objective)
    for size in range(1, k + 1):
        if np.isfinite(best[size]):
            path.steps += 1
            path.add(members[size, :size].tolist())
    path.evaluated = subsets(objective.n, k)
    return path.outcome()


def certificates(objective: Objective, k: int, outcome: SearchOutcome, effort: Effort) -> tuple[Certificate, ...]:
    """Return the proof of each size up to k: no subset that was looked at is better."""
    limits, best = Limits(objective), [outcome.best(size) for size in range(1, k + 1)]
    return tuple(
        limits.guarantee(size).certificate(
            objective, size, S.members, S.value, S.value - MARGIN * objective.total, nodes=subsets(objective.n, size),
            method="exhaustive search", **effort.fields(),
        )
        for size, S in enumerate(best, 1)
    )  # fmt: skip


class ExhaustiveOptions(Options):
    """Options of exhaustive search.

    Parameters
    ----------
    most_subsets : int
        The most subsets to look at. A search of more is refused before it begins. Ten million take some seconds.
    """

    most_subsets: WholeNumber = Field(10_000_000, ge=1)


def requirements(problem: ProblemSummary, options: ExhaustiveOptions) -> Requirements:
    """Return what exhaustive search needs.

    Raises
    ------
    CapacityError
        There are more subsets than `most_subsets`.
    """
    k, n = problem.to_choose
    number = subsets(n, k) if k > 0 else 0
    if number > options.most_subsets:
        raise CapacityError(
            f"There are {number:.3g} subsets of at most {k} of {n} columns; most_subsets is {options.most_subsets:,}.",
            "Use branch-and-bound, which proves the same, a smaller k, or raise most_subsets.",
        )
    return Requirements(whole_gram=True, table_slots=max(problem.k, 2))


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_kernels(visit_subsets, clear)
    load_subset_kernels()
    effort = Effort(Deadline(None))
    outcome = exhaustive(task.objective, task.k)
    return replace(outcome, certificates=certificates(task.objective, task.k, outcome, effort))


METHOD = Method(
    "exhaustive",
    "Look at every subset of at most k columns, for small problems.",
    run,
    options=ExhaustiveOptions,
    requirements=requirements,
    every_size=True,
    place=estimated(lambda problem, options: 5e-8 * subsets(problem.to_choose[1], problem.to_choose[0])),
    no_groups="branch-and-bound proves the best groups with fewer subsets",
)

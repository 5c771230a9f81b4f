"""Check what lists of near-best subsets say where columns represent copies and near-copies, by whole runs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

import dsel
from dsel.errors import DataError, OptionError
from dsel.selection.alternatives import Alternatives, Price
from pipelines.proof_check.families import Problem
from pipelines.proof_check.oracle import measured

#: Errors that differ by this share of ||Y||^2 are equal. Those of nearly dependent subsets are rounded to the second.
_EQUAL, _ROUNDED = 1e-9, 1e-7
#: Differences of near-copies, as shares of a standard deviation. Two columns are independent from 3e-4 on.
_APART = (1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3)

Values = dict[tuple[int, ...], float]


def random_copies(seed: int, index: int) -> Problem:
    """Return a problem of which some columns are copies, multiples or near-copies of others."""
    rng = np.random.default_rng([seed, index, 5])
    n, k = int(rng.integers(5, 11)), int(rng.integers(1, 4))
    X, N = rng.standard_normal((60, n)), int(rng.choice([1, 1, 1, 2]))
    coefficients = rng.standard_normal((n, N)) * (rng.random((n, 1)) < 0.4)
    Y = X @ coefficients + 10.0 ** rng.uniform(-1.0, 0.5) * rng.standard_normal((60, N))
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(place) for place in rng.choice(n, 2, replace=False))
        noise = Y[:, 0] / np.std(Y[:, 0]) if rng.random() < 0.3 else rng.standard_normal(60)
        apart = 0.0 if rng.random() < 0.4 else float(rng.choice(_APART))
        X[:, j] = float(rng.choice([1.0, 1.0, -2.5])) * (X[:, i] + apart * noise)
    include = tuple(sorted(int(j) for j in rng.choice(n, int(rng.choice([0, 0, 1, 2])), replace=False)))
    return Problem(
        "copies", X, Y, min(k, n - len(include)), float(rng.choice([0.0, 0.0, 0.1, 2.0, 30.0])), unsupervised=False,
        include=include, preprocess=str(rng.choice(["standardize", "center", "none", "unit"])),
    )  # fmt: skip


def faults_with_copies(problem: Problem, within: float) -> tuple[list[str], list[str], list[str]]:
    """Return wrong lists, wrong verdicts and false bounds of the near-best subsets of a problem, in words.

    Lists and verdicts are about columns that no other one represents. Bounds are about all columns.
    """
    X, Y, size = problem.X, problem.Y, problem.k + len(problem.include)
    asked: dict[str, Any] = {"lam": problem.lam, "include": problem.include, "preprocess": problem.preprocess}
    try:
        selection = dsel.select(X, Y, k=size, progress=False, **asked)
        found = dsel.alternatives(selection, X, Y, within=within, limit=100_000, progress=False)
    except (DataError, OptionError) as error:
        if any(words in str(error) for words in ("depend on each other", "no near-best subset")):
            return [], [], []
        raise
    values = _values(problem, found.size)
    represented = {j for _, *rest in selection.counts.get("copies", ()) for j in rest}
    searched = {S: f for S, f in values.items() if represented.isdisjoint(S)}
    limit = min(searched.values()) + within * (found.total - min(searched.values()))
    slack, lists = _EQUAL * found.total, []
    if abs(found.limit_error - limit) > slack:
        lists.append(f"the limit is {limit}, not {found.limit_error}")
    listed = {tuple(sorted(row.indices)) for row in found.subsets}
    clear = {S for S, f in searched.items() if f <= limit - slack}
    maybe = {S for S, f in searched.items() if f <= limit + slack}
    if not (found.complete and clear <= listed <= maybe):
        lists.append(f"{len(listed)} subsets in place of {len(clear)} to {len(maybe)}")
    verdicts = [text for price in found.columns for text in _wrong_verdict(found, price, values, represented, slack)]
    bounds = [text for price in found.columns for text in _wrong_price(price, values, found.total)]
    return lists, verdicts, bounds


def _values(problem: Problem, size: int) -> Values:
    """Return f of all independent subsets with the included columns."""
    rest = combinations(problem.others, size - len(problem.include))
    known = measured(problem, [tuple(sorted((*problem.include, *S))) for S in rest])
    sure = known.independent | (problem.lam > 0.0)
    return {S: float(f) for S, f, kept in zip(known.members, known.f, sure, strict=True) if kept}


def _wrong_verdict(
    found: Alternatives, price: Price, values: Values, represented: set[int], slack: float
) -> list[str]:  # fmt: skip
    """Return what is wrong with a verdict, but for subsets within rounding of the limit."""
    j, searched = price.index, {S: f for S, f in values.items() if represented.isdisjoint(S)}
    near = {S for S, f in searched.items() if f <= found.limit_error - slack}
    maybe = {S for S, f in values.items() if f <= found.limit_error + slack}
    having, lacking = any(j in S for S in near), any(j not in S for S in near)
    first = any(j == one for one, *_ in found.copies)
    right = {
        "necessary": not (lacking or first), "useless": not having, "undecided": first and not lacking,
        "replaceable": any(j in S for S in maybe) and any(j not in S for S in maybe),
    }  # fmt: skip
    return [] if right[price.verdict] else [f"column {j} is not {price.verdict}"]


def _wrong_price(price: Price, values: Values, total: float) -> list[str]:
    """Return which bounds a subset of any columns refutes, and which known subsets are none."""
    j, wrong = price.index, []
    for side, inside in (("with", True), ("without", False)):
        bound, error = getattr(price, f"bound_{side}"), getattr(price, f"error_{side}")
        S = tuple(sorted(getattr(price, f"{side}_column")))
        least = min((f for T, f in values.items() if (j in T) == inside), default=np.inf)
        if bound > least + _EQUAL * total:
            wrong.append(f"{least} {side} column {j}, but the bound is {bound}")
        if error is not None and ((j in S) != inside or not abs(values.get(S, np.inf) - error) <= _ROUNDED * total):
            wrong.append(f"f {side} column {j} is {error}, but that of {S} is {values.get(S)}")
    return wrong

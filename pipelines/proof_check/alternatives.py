"""Check lists of near-best subsets, their verdicts and their bounds, against all subsets of a random problem."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import Generator

from dsel._lib.types import Bools, Floats
from dsel.objective.groups import GroupedObjective
from dsel.objective.objective_interface import ItemObjective
from dsel.search.exact.alternatives import NearBestAnswer
from dsel.search.exact.choose_tree import ProofProblem, restore_tree, tree_in_memory
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from pipelines.proof_check.copies import faults_with_copies, random_copies
from pipelines.proof_check.families import Problem, random_problem
from pipelines.proof_check.oracle import measured

#: Up to this many subsets, all of them are tried.
MOST_SUBSETS = 1500
_WITHIN = (0.0, 1e-6, 1e-3, 0.01, 0.1, 0.5)
_LIMITS = (1, 2, 20, 100_000)
#: Values of f that differ by this share of ||Y||^2, and what rounding may be worth, are not told apart.
_EQUAL = 1e-9

Members = tuple[int, ...]


@dataclass
class Faults:
    """How many lists were checked, and what was wrong with them, in words.

    wrong_lists: a near-best subset is missing, or a listed one is not near-best or has another error. wrong_verdicts: a
    verdict that a subset refutes, or a column that a finished proof left undecided. false_bounds: a subset is better
    than the price of a column says, or than what the list is complete for. failures: errors.
    """

    lists: int = 0
    finished: int = 0
    wrong_lists: list[str] = field(default_factory=list)
    wrong_verdicts: list[str] = field(default_factory=list)
    false_bounds: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def any(self) -> list[str]:
        """All that was wrong."""
        return self.wrong_lists + self.wrong_verdicts + self.false_bounds + self.failures


@dataclass(frozen=True, eq=False)
class AllSubsets:
    """All subsets of k of n columns.

    f: the error of each. sure: whether it is independent beyond doubt. total: ||Y||^2. slack: differences that are
    rounding.
    """

    n: int
    members: list[Members]
    f: Floats
    sure: Bools
    total: float
    slack: float

    def having(self) -> Bools:
        """Return which subset has which column (subsets, n)."""
        inside = np.zeros((len(self.members), self.n), np.bool_)
        for row, S in enumerate(self.members):
            inside[row, list(S)] = True
        return inside


def check_answer(
    answer: NearBestAnswer, rule: ListRule, everything: AllSubsets, finished: bool, what: str, faults: Faults,
    prices: AllSubsets | None = None,
) -> None:  # fmt: skip
    """Compare what a tree says about near-best subsets with all subsets. finished: whether no node is open.

    prices: the subsets that verdicts and prices are about, for groups those of at most k; by default `everything`.
    """
    faults.lists += 1
    faults.finished += finished
    f, slack, place = everything.f, everything.slack, {S: i for i, S in enumerate(everything.members)}
    sure = np.where(everything.sure, f, np.inf)
    listed = [S for S, _ in answer.subsets]
    if len(set(listed)) < len(listed) or len(listed) > rule.limit or any(S not in place for S in listed):
        faults.wrong_lists.append(f"{what}: it lists {listed}")
        return
    values = np.array([float(f[place[S]]) for S in listed])
    if not (np.abs(values - [value for _, value in answer.subsets]) <= slack).all() or (np.diff(values) < -slack).any():
        faults.wrong_lists.append(f"{what}: wrong errors")
    missing = [
        S for i, S in enumerate(everything.members) if S not in listed and sure[i] < answer.complete_below - slack
    ]
    if missing:
        faults.wrong_lists.append(f"{what}: complete below {answer.complete_below}, but for {missing}")
    if finished and not listed:
        if np.isfinite(sure.min(initial=np.inf)):
            faults.wrong_lists.append(f"{what}: nothing is listed")
        return
    if listed and finished:
        _check_finished(answer, rule, everything, values, what, faults)
    _check_columns(answer, rule, everything, prices or everything, finished, what, faults)


def _check_finished(
    answer: NearBestAnswer, rule: ListRule, everything: AllSubsets, values: Floats, what: str, faults: Faults
) -> None:  # fmt: skip
    """Check that the list of a finished tree is complete."""
    sure, slack = np.where(everything.sure, everything.f, np.inf), everything.slack
    if sure.min(initial=np.inf) < values[0] - slack:
        faults.wrong_lists.append(f"{what}: the best subset is missing")
    limit = _threshold(answer, rule, everything, values)
    near, maybe = int((sure <= limit - slack).sum()), int((everything.f <= limit + slack).sum())
    if not min(near, rule.limit) <= values.size <= maybe or (values > limit + slack).any():
        faults.wrong_lists.append(f"{what}: {values.size} subsets in place of {near} to {maybe}")
    if answer.complete and near > values.size:
        faults.wrong_lists.append(f"{what}: {near} subsets, but it says that {values.size} are all")
    if rule.within is not None and not answer.more and not answer.complete:
        faults.wrong_lists.append(f"{what}: it is finished but not complete")


def _threshold(answer: NearBestAnswer, rule: ListRule, everything: AllSubsets, values: Floats) -> float:
    """Return the largest f of a near-best subset, if the first listed one is the best."""
    return answer.threshold if rule.within is None else rule.threshold(float(values[0]), everything.total)


def _check_columns(
    answer: NearBestAnswer, rule: ListRule, everything: AllSubsets, prices: AllSubsets, finished: bool, what: str,
    faults: Faults,
) -> None:  # fmt: skip
    """Compare verdicts and prices with all subsets that they are about."""
    slack, having = everything.slack, prices.having()
    sure, best = np.where(everything.sure, everything.f, np.inf), float(everything.f.min(initial=np.inf))
    limit = rule.threshold(best, everything.total)
    if finished:
        limit = _threshold(answer, rule, everything, np.array([value for _, value in answer.subsets]))
    elif rule.within is None:  # the best ones are those of a finished tree
        limit = float(everything.f.max(initial=-np.inf)) + 2.0 * slack
        if sure.size >= rule.limit:
            limit = float(np.partition(everything.f, rule.limit - 1)[rule.limit - 1])
    near, maybe = np.where(prices.sure, prices.f, np.inf) <= limit - slack, prices.f <= limit + slack
    for j, verdict in enumerate(answer.verdicts):
        has, lacks = having[:, j], ~having[:, j]
        refuted = {
            "useless": (near & has).any(), "necessary": (near & lacks).any(),
            "replaceable": not ((maybe & has).any() and (maybe & lacks).any()),
            "undecided": finished and all((near & side).any() or not (maybe & side).any() for side in (has, lacks)),
        }  # fmt: skip
        if refuted[verdict]:
            faults.wrong_verdicts.append(f"{what}: column {j} is not {verdict}")
        _check_price(answer, prices, j, what, faults)


def _check_price(answer: NearBestAnswer, everything: AllSubsets, j: int, what: str, faults: Faults) -> None:
    """Compare the bounds and the witnesses of a column with all subsets."""
    sure, having = np.where(everything.sure, everything.f, np.inf), everything.having()[:, j]
    for side, bound, value, example, among in (
        ("with", answer.bound_with[j], answer.value_with[j], answer.example_with.get(j), having),
        ("without", answer.bound_without[j], answer.value_without[j], answer.example_without.get(j), ~having),
    ):
        least = float(sure[among].min(initial=np.inf))
        if bound > least + everything.slack:
            faults.false_bounds.append(f"{what}: {least} {side} column {j}, but the bound is {bound}")
        if example is None:
            continue
        f = float(everything.f[everything.members.index(example)])
        if (j in example) != (side == "with") or abs(f - value) > everything.slack:
            faults.wrong_lists.append(f"{what}: f {side} column {j} is {value}, but that of {example} is {f}")


def _answers(
    objective: Any, rule: ListRule, k: int, rng: Generator
) -> Iterator[tuple[str, NearBestAnswer, bool, float]]:
    """Yield what each tree lists: its name, the answer, whether it is finished, and the error of its bounds."""
    bounds: tuple[Any, ...] = ("combined", "leaps", "eigenvalue", "perspective")
    for bound in bounds if objective.groups is None else ("auto",):
        with suppress(ValueError):  # nearly dependent columns
            tree: Any = tree_in_memory(ProofProblem(objective, k, near_best=rule), bound)
            tree.warm_up()
            tree.advance(tree.iteration + int(rng.integers(1, 20)))
            yield _of_tree(bound, tree)
            tree = restore_tree(objective, json.loads(json.dumps(tree.state(), allow_nan=False)))
            tree.advance(10**9)
            yield _of_tree(f"resumed {bound}", tree)
    proof = Proof.begin(objective, k, near_best=rule)
    proof.run()
    yield proof.search.kind, proof.near_best(), proof.search.done, proof.search.guarantee.error


def _of_tree(name: str, tree: Any) -> tuple[str, NearBestAnswer, bool, float]:
    proof = Proof(tree, tree.best_value)
    return name, proof.near_best(), tree.done, tree.guarantee.error


def _joined(parts: Sequence[AllSubsets]) -> AllSubsets:
    """Return the subsets of several sizes."""
    return replace(
        parts[-1], members=[S for part in parts for S in part.members], f=np.concatenate([part.f for part in parts]),
        sure=np.concatenate([part.sure for part in parts]), slack=max(part.slack for part in parts),
    )  # fmt: skip


def check_lists(seed: int, index: int) -> Faults:
    """Check the lists of all trees for the random problem with this number, and of a whole run with near-copies."""
    problem, faults = random_problem(seed, index), Faults()
    _check_copies(seed, index, faults)
    _check_items(problem, problem.objective, np.random.default_rng([seed, index, 3]), faults)
    rng = np.random.default_rng([seed, index, 4])
    ends = np.cumsum(rng.integers(1, 4, problem.objective.n))
    groups = np.split(rng.permutation(problem.objective.n), ends[ends < problem.objective.n])
    _check_items(problem, GroupedObjective(problem.objective, groups), rng, faults)
    return faults


def _check_items(problem: Problem, objective: ItemObjective, rng: Generator, faults: Faults) -> None:
    """Check the lists of columns or groups of a problem."""
    k, n = min(problem.k, objective.n), objective.n
    while math.comb(n, k) > MOST_SUBSETS and k > 1:
        k -= 1
    if math.comb(n, k) > MOST_SUBSETS:
        return
    limit = int(rng.choice(_LIMITS))
    within = None if rng.random() < 0.15 and limit <= 20 else float(rng.choice(_WITHIN))
    what = f"{problem.name} k={k} within={within} limit={limit}"
    try:
        everything = _all_subsets(problem, objective, k)
        sizes = (k,) if objective.groups is None else range(k + 1)
        prices = _joined([_all_subsets(problem, objective, s) for s in sizes])
        for name, answer, finished, error in _answers(objective, ListRule(within, limit), k, rng):
            rounded, priced = (_with_slack(subsets, error, objective.total) for subsets in (everything, prices))
            check_answer(answer, ListRule(within, limit), rounded, finished, f"{what} {name}", faults, priced)
    except Exception as error:  # a finding, like the others
        faults.failures.append(f"{what}: {type(error).__name__}: {error}")


def _check_copies(seed: int, index: int, faults: Faults) -> None:
    """Check the list of a whole run in which columns represent copies."""
    problem, within = random_copies(seed, index), _WITHIN[index % len(_WITHIN)]
    what = f"copies k={problem.k} lam={problem.lam} {problem.preprocess} in={problem.include} within={within}"
    faults.lists += 1
    faults.finished += 1
    try:
        found = faults_with_copies(problem, within)
    except Exception as error:  # a finding, like the others
        faults.failures.append(f"{what}: {type(error).__name__}: {error}")
        return
    for kept, texts in zip((faults.wrong_lists, faults.wrong_verdicts, faults.false_bounds), found, strict=True):
        kept += [f"{what}: {text}" for text in texts]


def _with_slack(everything: AllSubsets, error: float, total: float) -> AllSubsets:
    slack = (error + _EQUAL) * total
    return AllSubsets(everything.n, everything.members, everything.f, everything.sure, everything.total, slack)


def _all_subsets(problem: Problem, objective: ItemObjective, k: int) -> AllSubsets:
    """Return all subsets of k candidates that may be independent, with errors in extended precision.

    Those of groups whose columns may be dependent have the errors of the objective.
    """
    subsets = list(combinations(range(objective.n), k))
    in_data = [tuple(sorted(objective.in_data(S))) for S in subsets]
    known = measured(problem, in_data)
    rows = {S: i for i, S in enumerate(known.members)}
    order = np.array([rows[S] for S in in_data])
    sure, f = known.independent[order], known.f[order].astype(np.float64)
    possible = ~known.dependent[order] if objective.groups is None else np.ones(f.size, np.bool_)
    if objective.groups is not None:
        f[~sure] = [objective.value(S) for S, independent in zip(subsets, sure, strict=True) if not independent]
    members = [S for S, kept in zip(subsets, possible, strict=True) if kept]
    return AllSubsets(objective.n, members, f[possible], sure[possible], objective.total, 0.0)


def check_lists_of(batch: tuple[int, Sequence[int]]) -> list[tuple[int, Faults]]:
    """Check the problems with these numbers: (seed, numbers)."""
    seed, numbers = batch
    return [(index, check_lists(seed, index)) for index in numbers]

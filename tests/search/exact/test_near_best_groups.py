"""The near-best sets of groups that the proof lists are those of least squares on the rows for every set."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dsel.objective.groups import GroupedObjective
from dsel.search.exact.choose_tree import ProofProblem, restore_tree, tree_in_memory
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from pipelines.proof_check.alternatives import AllSubsets, Faults, check_answer
from tests.search.exact.cases import regression, self_expression
from tests.search.exact.test_near_best import answer_of, faults_of, rule

KINDS = ("plain", "categories", "nested categories", "copies", "near-copies", "ties", "several targets", "X itself")


def problem(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[list[int]], float, list[int]]:
    """Return X, Y, the columns of each group, the penalty, and columns that are in every set."""
    m, lam = int(rng.integers(25, 40)), float(rng.choice([0.0, 0.0, 3.0]))
    sizes = rng.permutation([1, 1, 2, 3, 1, 2, 4][: int(rng.integers(5, 8))]).tolist()
    ends = np.cumsum(sizes)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    X = rng.standard_normal((m, ends[-1])) + 0.7 * rng.standard_normal((m, 1))
    if "categories" in kind:
        for columns in groups[1:3]:
            X[:, columns] = np.eye(len(columns))[rng.integers(0, len(columns), m)]
    if kind == "nested categories":  # those of the first group follow from those of the last one
        X[:, groups[0]] = X[:, groups[-1]] @ rng.standard_normal((len(groups[-1]), len(groups[0])))
    if "copies" in kind:
        for i, j in ((0, 1), (2, 3)):
            X[:, groups[i][0]] = X[:, groups[j][0]] + (0.01 * rng.standard_normal(m) if kind == "near-copies" else 0.0)
    Y = X[:, :4] @ rng.standard_normal((4, 3 if kind == "several targets" else 1))
    Y += 2.0 * rng.standard_normal(Y.shape)
    if kind == "ties":
        X, Y = rng.integers(-1, 2, X.shape).astype(float), rng.integers(-1, 2, Y.shape).astype(float)
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    if kind == "X itself":
        Y = X
    included = groups.pop() if rng.random() < 0.3 and kind != "nested categories" else []
    return X, Y, groups, lam, included


def grouped(kind: str, seed: int) -> tuple[GroupedObjective, AllSubsets, AllSubsets, int]:
    """Return the objective over groups, all sets of k of them, all of at most k, and k."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    X, Y, groups, lam, included = problem(kind, rng)
    k = int(rng.integers(1, 4))
    objective = self_expression(X, lam) if Y is X else regression(X, Y, lam)
    independent = [
        j for i, j in enumerate(included) if rank(X[:, included[: i + 1]], 0.0) > rank(X[:, included[:i]], 0.0)
    ]
    if independent:
        objective = objective.condition(independent)
    place = {int(j): i for i, j in enumerate(objective.columns)}
    items = GroupedObjective(objective, [np.array([place[j] for j in columns]) for columns in groups])
    total = float(np.square(Y).sum())

    def of_sizes(*sizes: int) -> AllSubsets:
        sets = [S for size in sizes for S in combinations(range(len(groups)), size)]
        f = np.array([fitted(X, Y, [*independent, *(j for g in S for j in groups[g])], lam) for S in sets])
        return AllSubsets(len(groups), sets, f, np.ones(f.size, np.bool_), total, 1e-8 * total)

    return items, of_sizes(k), of_sizes(*range(k + 1)), k


def rank(Z: np.ndarray, lam: float) -> int:
    return Z.shape[1] if lam else int(np.linalg.matrix_rank(Z, tol=1e-6 * 40.0))


def fitted(X: np.ndarray, Y: np.ndarray, columns: list[int], lam: float) -> float:
    """f of some columns by least squares on the rows."""
    Z = np.vstack([X[:, columns], np.sqrt(lam) * np.eye(len(columns))])
    T = np.vstack([Y, np.zeros((len(columns), Y.shape[1]))])
    return (
        float(np.square(T - Z @ np.linalg.lstsq(Z, T, rcond=1e-9)[0]).sum()) if columns else float(np.square(Y).sum())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_of_groups_is_that_of_all_sets(kind: str) -> None:
    for seed in range(6):
        items, everything, prices, k = grouped(kind, seed)
        rng = np.random.default_rng(seed)
        listed = rule(rng)
        tree: Any = tree_in_memory(ProofProblem(items, k, near_best=listed))
        while not tree.done:  # whenever it is stopped, it says nothing wrong, and its state has all of it
            tree.advance(tree.iteration + int(rng.integers(1, 10)))
            assert faults_of(tree, listed, everything, prices) == []
            tree = restore_tree(items, json.loads(json.dumps(tree.state())))
        assert tree.proven
        assert faults_of(tree, listed, everything, prices) == []
        proof, faults = Proof.begin(items, k, near_best=listed), Faults()
        proof.run()
        check_answer(proof.near_best(), listed, everything, True, kind, faults, prices)
        assert faults.any == []


def test_groups_of_one_column_are_listed_as_columns_are_and_with_copies() -> None:
    rng = np.random.default_rng(8)
    X = rng.integers(-2, 3, (30, 8)).astype(float)
    X[:, 3] = X[:, 5]
    objective = regression(X, X[:, :3] @ np.ones((3, 1)) + rng.standard_normal((30, 1)))
    answers = []
    for items in (objective, GroupedObjective(objective, [np.array([j]) for j in range(8)])):
        proof = Proof.begin(items, 3, near_best=ListRule(0.6, 1000))
        proof.run()
        answers.append(proof.near_best())
    columns, groups = answers
    copied = [S for S, _ in groups.subsets if {3, 5} <= set(S)]
    assert copied
    assert [S for S, _ in groups.subsets if S not in copied] == [S for S, _ in columns.subsets]
    assert groups.verdicts == columns.verdicts


def test_a_short_list_decides_about_every_group_without_visiting_all_nodes() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 24)) + rng.standard_normal((80, 1))
    objective = regression(X, X[:, :6] @ np.ones((6, 1)) + 6.0 * rng.standard_normal((80, 1)))
    items = GroupedObjective(objective, [np.array([j, j + 1]) for j in range(0, 24, 2)])
    nodes, verdicts = [], []
    for limit in (10_000, 3):
        tree = tree_in_memory(ProofProblem(items, 4, near_best=ListRule(0.3, limit)))
        assert tree.advance(10**6)
        nodes.append(tree.iteration)
        verdicts.append(answer_of(tree).verdicts)
    assert verdicts[0] == verdicts[1]
    assert nodes[1] < nodes[0]

"""Proofs for all sizes share what is computed once, each tree follows that of the size before, and bounds hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.jobs.certify import ProofBudget, certify_selection
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.guarantee import Limits
from dsel.search.exact.perspective import branching, perspective_tree
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.selection.pipeline import run_selection
from tests.search.exact.cases import exhaustive, nearly_dependent, problems, regression, self_expression

ALL = 10**9


def correlated(seed, n=9, targets=1, lam=0.0, m=30):
    """Columns whose neighbours correlate, and targets of several of them; no targets: Y = X."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) @ (np.eye(n) + 0.4 * rng.standard_normal((n, n)))
    if not targets:
        return self_expression(X, lam)
    Y = X[:, ::2] @ rng.standard_normal((X[:, ::2].shape[1], targets)) + rng.standard_normal((m, targets))
    return regression(X, Y, lam)


@given(
    st.integers(0, 10_000), st.sampled_from((0, 1, 3)), st.sampled_from((0.0, 1e-5, 0.5, 30.0)),
    st.lists(st.sampled_from((0, 1, 3, ALL)), min_size=5, max_size=5),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_trees_that_follow_each_other_prove_what_enumeration_finds(seed, targets, lam, nodes):
    objective = correlated(seed, 8, targets, lam)
    setup = CommonSetup(objective, guided=True)
    for k, most in enumerate(nodes, 1):
        search = PerspectiveTree(objective, k, incumbent=range(k), setup=setup)
        search.advance(most)
        best = exhaustive(objective, k)
        assert search.proved <= best + 1e-9 * objective.c
        assert search.best_value >= best - 1e-9 * objective.c
        if most == ALL:
            assert search.proven
            assert search.best_value == pytest.approx(best, abs=1e-7 * objective.c)


@given(st.one_of(problems(), nearly_dependent()))
@settings(max_examples=30, deadline=None)
def test_proofs_that_share_their_setup_hold_for_ties_and_dependent_columns(case):
    objective, most, *_ = case
    setup = CommonSetup(objective, guided=True)
    for k in range(1, min(most, 4) + 1):
        with pytest.MonkeyPatch.context() as patch:  # also with the tree of relaxations, where it can be used
            patch.setattr("dsel.search.exact.choose_tree.MANY_COLUMNS", 1 + k % 2 * objective.n)
            proof = Proof.begin(objective, k, range(k) if k % 3 else (), setup=setup)
        proof.run()
        found, best = proof.certificate(), exhaustive(objective, k)
        assert found.bound <= best + 1e-9 * objective.c
        assert found.gap <= (2e-10 + found.rounding_error) * objective.total
        assert found.value <= best + (1e-7 + found.rounding_error) * objective.c
        assert found.rounding_error == Limits(objective).guarantee(k).error


def test_a_tree_that_follows_another_relaxes_fewer_nodes(monkeypatch):
    relaxed, made = branching.relaxed, [0]

    def counted(*arguments):
        made[0] += 1
        return relaxed(*arguments)

    monkeypatch.setattr(branching, "relaxed", counted)
    rng = np.random.default_rng(0)
    E = rng.standard_normal((300, 100))
    X = E + 0.5 * np.roll(E, 1, axis=1)
    y = X[:, ::12][:, :8] @ np.linspace(1.0, 2.0, 8)[:, None]
    objective = regression(X, y + 0.6 * y.std() * rng.standard_normal((300, 1)), 10.0)

    def relaxations(guided):
        setup, made[0] = CommonSetup(objective, guided=guided), 0
        for k in range(1, 7):
            search = PerspectiveTree(objective, k, incumbent=range(k), setup=setup)
            assert search.advance(1000)
            assert search.proven
            values.append(search.best_value)
        return made[0]

    values: list[float] = []
    alone, following = relaxations(False), relaxations(True)
    assert values[:6] == pytest.approx(values[6:])
    assert 0 < following < 0.7 * alone


@pytest.mark.parametrize("n", [120, 160])  # one traversal proves all sizes of fewer columns
def test_all_sizes_are_prepared_once(monkeypatch, n):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, n))
    y = X[:, :4].sum(axis=1, keepdims=True) + rng.standard_normal((200, 1))
    dataset, request = as_dataset(X, y), SelectionRequest(k=4, method="forward", lam=1.0)
    selection = run_selection(dataset, request)
    counts = {"problem": 0, "scaled": 0}
    problem, scaled = BoundProblem.of, perspective_tree.scaled_columns

    def count_problem(*arguments, **options):
        counts["problem"] += 1
        return problem(*arguments, **options)

    def count_scaled(*arguments):
        counts["scaled"] += 1
        return scaled(*arguments)

    monkeypatch.setattr(BoundProblem, "of", count_problem)
    monkeypatch.setattr(perspective_tree, "scaled_columns", count_scaled)
    whole = certify_selection(dataset, request, selection, ProofBudget(sizes="all"))
    assert [row["proven"] for row in whole.certificate] == [True] * 4
    assert counts["scaled"] == (n >= 150)
    assert counts["problem"] <= 1
    assert sum(counts.values()) >= 1

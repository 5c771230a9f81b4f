"""The checker's own bounds hold: no independent subset of a leaf is better."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.data.as_dataset import as_dataset
from dsel.engine.engine_protocol import THREADS
from dsel.verification.bounds import Checker
from dsel.verification.problem import extended_sums, memory_needed
from dsel.verification.tree import BOUND, COMPARISON, DEPENDENCE, Leaf, columns_of
from tests.search.exact.cases import KINDS, data


def problem_of(X, Y, included=(), lam=0.0, preprocess="none"):
    columns = [j for j in range(X.shape[1]) if j not in included and np.ptp(X[:, j]) > 0.0]
    return extended_sums(as_dataset(X, Y), preprocess, "refuse", THREADS).problem(columns, included, lam)


@st.composite
def leaves(draw):
    """A problem, and a leaf with up to 3 of its columns to add."""
    kind, N = draw(st.sampled_from(KINDS)), draw(st.sampled_from((0, 1, 3)))
    X, Y = data(draw(st.integers(0, 10_000)), kind, max(N, 1))
    included = (X.shape[1] - 1,) if draw(st.booleans()) and np.ptp(X[:, -1]) > 0.0 else ()
    problem = problem_of(X, Y if N else None, included, draw(st.sampled_from((0.0, 0.5))))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    order = rng.permutation(problem.n).tolist()
    s = draw(st.integers(0, min(2, problem.n)))
    size = draw(st.integers(0, problem.n - s))
    allowed = sum(1 << j for j in order[s : s + size])
    return problem, Leaf(0, BOUND, tuple(order[:s]), allowed, draw(st.integers(0, 3)), float("nan"))


def best_of(checker, leaf):
    """The least f of an independent subset of the leaf, inf if there is none, and the subset."""
    subsets = [(*leaf.chosen, *Q) for q in range(leaf.most + 1) for Q in combinations(columns_of(leaf.allowed), q)]
    found = [(float(checker.value(S)), S) for S in subsets if not checker.dependent(S)]
    return min(found, default=(float("inf"), ()))


@given(leaves())
@settings(max_examples=150, deadline=None)
def test_no_subset_of_a_leaf_is_below_its_bound(case):
    problem, leaf = case
    checker = Checker(problem, len(leaf.chosen) + leaf.most, 0.0)
    best, _ = best_of(checker, leaf)
    for ridge in (checker._ridge, 2e-14):
        (bound,) = checker.bounds([leaf], np.longdouble(ridge))
        assert bound <= best + 1e-6 * float(problem.total)


@given(leaves(), st.floats(-1.0, 1.0))
@settings(max_examples=150, deadline=None)
def test_a_comparison_finds_every_better_subset(case, share):
    problem, leaf = case
    leaf = Leaf(0, COMPARISON, leaf.chosen, leaf.allowed, min(leaf.most, 2), float("nan"))
    best, _ = best_of(Checker(problem, 5, 0.0), leaf)
    if not np.isfinite(best):
        return
    threshold = best + (share if abs(share) > 1e-3 else 1e-3) * float(problem.total)
    failures = list(Checker(problem, 5, threshold).failures([leaf]))
    assert bool(failures) == (best < threshold)


@pytest.mark.parametrize(
    ("left", "dependent"), [(1e-9, True), (0.9999e-7, True), (1.0001e-7, False), (1.0009e-7, False), (1e-5, False)]
)
def test_dependence_is_judged_by_what_the_others_leave(left, dependent):
    """Up to 1e-7 of a column's square, and not more."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 4)))[0]
    X = np.column_stack([Q[:, 0], np.sqrt(1 - left) * Q[:, 0] + np.sqrt(left) * Q[:, 1], Q[:, 2]])
    problem = problem_of(X, Q[:, 3] + Q[:, 1])
    checker = Checker(problem, 2, problem.total)
    (by_dependence, compared) = (Leaf(0, reason, (0, 1), 0, 0, float("nan")) for reason in (DEPENDENCE, COMPARISON))
    assert bool(list(checker.failures([by_dependence]))) is not dependent
    assert bool(list(checker.failures([compared]))) is not dependent  # the pair explains half of the target
    pairs = Leaf(0, COMPARISON, (), 0b111, 2, float("nan"))
    assert bool(list(Checker(problem, 2, 0.9 * float(problem.total)).failures([pairs]))) is not dependent


def test_a_leaf_whose_columns_are_hardly_independent_holds_if_a_bound_excludes_it():
    X = np.random.default_rng(0).standard_normal((30, 4))
    problem = problem_of(X, X[:, 3] + 0.1 * X[:, 2])
    leaf = Leaf(0, DEPENDENCE, (0, 1), 0b100, 1, float("nan"))
    explained_by_all = float(problem.total - Checker(problem, 3, 0.0).value((0, 1, 2)))
    for share, holds in ((1.01, True), (0.99, False)):
        threshold = float(problem.total) - share * explained_by_all
        assert bool(list(Checker(problem, 3, threshold).failures([leaf]))) is not holds


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
def test_values_equal_those_of_least_squares(preprocess):
    rng = np.random.default_rng(1)
    X, Y, w = rng.standard_normal((40, 5)) + 1e4, rng.standard_normal((40, 8)) + 3.0, rng.uniform(0.0, 2.0, 40)
    dataset = as_dataset(X, Y, sample_weight=w)
    problem = extended_sums(dataset, preprocess, "refuse", THREADS).problem([0, 1, 3, 4], [2], 0.5)

    def prepared(A):
        if preprocess in ("standardize", "center"):
            A = A - np.average(A, axis=0, weights=w)
        A = A * np.sqrt(w)[:, None]
        norm = np.linalg.norm(A, axis=0)
        return A / {"standardize": norm / np.sqrt(w.sum()), "unit": norm}.get(preprocess, 1.0)

    A, B = prepared(X)[:, [2, 1, 4]], prepared(Y)
    whole = np.vstack([A, np.sqrt(0.5) * np.eye(3)])
    targets = np.vstack([B, np.zeros((3, 8))])
    residual = targets - whole @ np.linalg.lstsq(whole, targets, rcond=None)[0]
    value = float(Checker(problem, 2, 0.0).value([1, 3]))
    assert value == pytest.approx(float(np.square(residual).sum()), rel=1e-9)


def test_missing_values_are_replaced_by_the_mean():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    holes = X.copy()
    holes[:5, 1] = np.nan
    filled = holes.copy()
    filled[:5, 1] = np.nanmean(holes[:, 1])
    found = extended_sums(as_dataset(holes, y), "standardize", "mean", THREADS).problem([0, 1, 2], [], 0.0)
    expected = extended_sums(as_dataset(filled, y), "standardize", "refuse", THREADS).problem([0, 1, 2], [], 0.0)
    np.testing.assert_allclose(np.float64(found.K), np.float64(expected.K), rtol=1e-14)


def test_leaves_of_different_sizes_have_the_same_bounds_together_and_alone():
    X, Y = data(3, KINDS[0], 2)
    problem = problem_of(X, Y, lam=0.5)
    leaves = [Leaf(0, BOUND, S, 0b11111100 >> size, 1, float("nan")) for size, S in enumerate([(), (0,), (1, 0)])]
    checker = Checker(problem, 3, 0.0)
    together = checker.bounds(leaves, checker._ridge)
    alone = [checker.bounds([leaf], checker._ridge)[0] for leaf in leaves]
    np.testing.assert_array_equal(together, alone)


def test_a_leaf_that_only_claims_an_error_of_at_least_0_takes_no_elimination(monkeypatch):
    monkeypatch.setattr("dsel.verification.bounds._eliminate", lambda *_: pytest.fail("an elimination"))
    problem = problem_of(*data(3, KINDS[0], 1))
    checker = Checker(problem, 2, 0.0)
    assert not list(checker.failures([Leaf(0, BOUND, (), (1 << problem.n) - 1, 2, 0.0)]))
    assert checker.hidden(float(checker.ridge)) == 0.0


@pytest.mark.parametrize("targets", [0, 1])
def test_a_check_takes_about_the_memory_that_it_asks_for(targets):
    rng = np.random.default_rng(1)
    m, n = 40, 300
    X, Y = rng.standard_normal((m, n)), rng.standard_normal((m, 1))
    tracemalloc.start()
    sums = extended_sums(as_dataset(X, Y if targets else None), "none", "refuse", THREADS)
    problem = sums.problem(range(n), (), 10.0)
    checker = Checker(problem, 3, 1e-9)
    assert not list(checker.failures([Leaf(0, BOUND, (), (1 << n) - 1, 3, 0.0)]))
    assert checker.hidden(float(checker.ridge)) < 1e-9
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    needed = memory_needed(m, n, targets)
    assert peak <= needed <= 1.25 * peak

"""Proofs about subsets with limited coefficients, compared with bounded least squares of all subsets."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, permutations
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

import dsel
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact import choose_tree
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.out_of_core import out_of_core_tree
from dsel.search.exact.out_of_core.out_of_core_tree import OutOfCoreTree
from dsel.search.exact.perspective.coordinate_descent import gains, penalty, weights
from dsel.search.exact.perspective.diagonals import diagonals
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.perspective.relaxation import Box, Problem, relax
from dsel.search.exact.proof import Proof
from tests.search.exact.cases import KINDS, data, regression

ALL = 10**9


def least_within(X, y, lam, limit, k):
    """f of the best subset of at most k columns, with |b_j| at most limit (n,)."""
    n = X.shape[1]
    A, target = np.vstack([X, np.sqrt(lam) * np.eye(n)]), np.concatenate([y, np.zeros(n)])
    best = float(target @ target)
    for size in range(1, k + 1):
        for S in map(list, combinations(range(n), size)):
            fit = lsq_linear(A[:, S], target, (-limit[S], limit[S]), method="bvls", tol=1e-14)
            best = min(best, 2.0 * float(fit.cost))
    return best


def nodes(draw):
    """K, c, d and the limits of a small node: more rows or fewer than columns, a diagonal that may be 0."""
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    n = int(rng.integers(3, 8))
    X = rng.standard_normal((int(rng.integers(2, 12)), n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 2.0)
    X /= np.linalg.norm(X, axis=0)
    y = X @ (rng.standard_normal(n) * (rng.random(n) < 0.6)) + 0.3 * rng.standard_normal(X.shape[0])
    lam = draw(st.sampled_from((0.0, 1e-4, 0.05, 0.5)))
    A, target = np.vstack([X, np.sqrt(lam) * np.eye(n)]), np.concatenate([y, np.zeros(n)])
    A /= np.linalg.norm(A, axis=0)
    ds = [np.zeros(n), *diagonals(A.T @ A, np.full(n, lam / (1.0 + lam)))]
    d = ds[draw(st.integers(0, len(ds) - 1))]
    limit = 10.0 ** rng.uniform(-1.5, 1.0) * np.exp(0.5 * rng.standard_normal(n))
    return rng, A, target, Problem(A.T @ A, A.T @ target, d, Box(limit, float(limit.sum()), 1e-13))


def explained_within(A, target, limit, fixed, free, q):
    """What the subsets of a node explain at most with coefficients within the limits."""
    F = np.flatnonzero(fixed)
    best = 0.0
    for T in combinations(np.flatnonzero(free), min(q, int(free.sum()))):
        S = np.concatenate([F, T]).astype(int)
        if S.size:
            cost = lsq_linear(A[:, S], target, (-limit[S], limit[S]), method="bvls", tol=1e-14).cost
            best = max(best, float(target @ target) - 2.0 * cost)
    return best


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_vector_of_coefficients_gives_a_bound(case):
    rng, A, target, problem = nodes(case.draw)
    n = problem.n
    fixed = rng.random(n) < 0.3
    free = ~fixed & (rng.random(n) < 0.8)
    q = int(rng.integers(0, free.sum() + 1))
    true = explained_within(A, target, problem.limit, fixed, free, q)
    for b in (np.zeros(n), rng.standard_normal(n), np.clip(rng.standard_normal(n), -problem.limit, problem.limit)):
        b[~(fixed | free)] = 0.0
        assert problem.bound(b, fixed, free, q) >= true - 1e-9
        assert problem.bound(b, fixed, free, q) <= Problem(problem.K, problem.c, problem.d + 1e-300).bound(
            b, fixed, free, q
        ) * (1.0 + 1e-12) + problem.rounding(b)  # it is never worse than without the limits


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_relaxation_is_a_bound_and_converges(case):
    rng, A, target, problem = nodes(case.draw)
    n, limit = problem.n, problem.limit
    fixed = (rng.random(n) < 0.2) & (np.arange(n) > 0)
    free = ~fixed
    q = int(rng.integers(1, free.sum() + 1))
    found = relax(problem, fixed, free, q, np.zeros(n), -1.0, 0.0)
    assert found.bound >= explained_within(A, target, limit, fixed, free, q) - 1e-9
    # coefficients that are scaled until they are feasible explain as much, to a tolerance
    b = np.clip(found.b, -limit, limit)
    b[free] *= min(1.0, q / max(float((np.abs(b) / limit)[free].sum()), 1e-300))
    least = (np.abs(b) / limit)[free]
    paid = float(problem.d[fixed] @ np.square(b[fixed])) + penalty(np.abs(b[free]) * np.sqrt(problem.d[free]), q, least)
    explained = 2.0 * problem.c @ b - b @ (problem.K - np.diag(problem.d)) @ b - paid
    assert explained <= found.bound + 1e-9
    assert found.bound - explained <= 0.02 * max(found.bound, 1e-6)


@given(st.integers(0, 100_000))
@settings(max_examples=100, deadline=None)
def test_a_gain_is_the_largest_value_within_the_limit(seed):
    rng = np.random.default_rng(seed)
    r, d, limit = rng.standard_normal(9), rng.random(9) * (rng.random(9) < 0.7), 10.0 ** rng.uniform(-2, 2, 9)
    b = np.linspace(-1.0, 1.0, 20_001)[:, None] * limit
    tried = (2.0 * r * b - d * b * b).max(axis=0)
    found = gains(r, d, limit)
    assert (found >= tried - 1e-12).all()
    assert found == pytest.approx(tried, rel=1e-6, abs=1e-7 * float((d * limit**2).max()))


@given(st.integers(0, 100_000))
@settings(max_examples=100, deadline=None)
def test_weights_are_the_best_ones_that_are_no_less_than_their_limits(seed):
    rng = np.random.default_rng(seed)
    n, q = 7, int(rng.integers(1, 7))
    a = np.abs(rng.standard_normal(n)) * (rng.random(n) < 0.8)
    least = rng.random(n) * (a > 0.0)
    least *= min(1.0, q / max(float(least.sum()), 1e-300)) * rng.random()
    z = weights(a, q, least)
    assert (z >= least - 1e-12).all()
    assert (z <= 1.0).all()
    assert z.sum() <= q + 1e-9
    for _ in range(50):
        other = np.clip(z + 0.1 * rng.standard_normal(n), np.maximum(least, 1e-9), 1.0)
        if other.sum() <= q:
            assert penalty(a, q, least) <= (a**2 / other).sum() + 1e-9


@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from((0.0, 1e-4, 0.5)), st.integers(1, 3),
       st.floats(1.0, 3.0), st.booleans())  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_a_tree_proves_that_no_subset_within_the_limit_is_better(seed, kind, lam, k, times, hands_over):
    X, Y = data(seed, kind, 1)
    objective, k = regression(X, Y, lam), min(k, X.shape[1])
    norms = np.linalg.norm(X, axis=0)
    start = tuple(range(k))
    coefficients = np.linalg.lstsq(X[:, :k].T @ X[:, :k] + lam * np.eye(k), X[:, :k].T @ Y[:, 0], rcond=None)[0]
    largest = times * float(np.abs(coefficients * norms[:k]).max())
    assume(largest > 1e-6)
    try:
        tree = PerspectiveTree(objective, k, incumbent=start, largest=largest, hands_over=hands_over)
    except ValueError:  # a constant column
        assume(False)
    limit = np.divide(largest, norms, out=np.zeros_like(norms), where=norms > 0.0)
    least = least_within(X, Y[:, 0], lam, np.maximum(limit, 1e-12), k)
    ended = False
    for _ in range(40):
        error = (tree.guarantee.error + tree.guarantee.by_dependent + 1e-9) * objective.total
        assert tree.lower <= least + error
        if ended:
            break
        ended = tree.advance(tree.iteration + 1)
        again = PerspectiveTree.restore(objective, json.loads(json.dumps(tree.state())))
        assert (again.lower, again.iteration, again.limited) == (tree.lower, tree.iteration, True)
    if ended:
        assert tree.proven
        assert tree.best_value <= least + error
        assert tree.certificate().largest_coefficient == largest


class TestTheChoiceOfATree:
    """200 columns and 120 rows, so that no column has anything outside the others."""

    @pytest.fixture(scope="class")
    @staticmethod
    def problem():
        rng = np.random.default_rng(0)
        X = rng.standard_normal((120, 200))
        X /= np.linalg.norm(X, axis=0)
        y = X[:, [3, 50, 100]] @ [1.0, -0.9, 0.8] + 0.03 * rng.standard_normal(120)
        return regression(X, y[:, None]), (3, 50, 100)

    def test_without_a_penalty_the_limit_alone_proves_the_best_subset(self, problem):
        objective, planted = problem
        proof = Proof.begin(objective, 3, planted, largest_coefficient=1.5)
        assert proof.run(nodes=500)
        certificate = proof.certificate()
        assert certificate.indices == planted
        assert certificate.largest_coefficient > 1.0
        assert certificate.bound == pytest.approx(certificate.value, rel=1e-6)

    @pytest.mark.parametrize("lam", [0.0, 0.05])
    def test_the_proofs_of_all_sizes_follow_each_other(self, problem, lam):
        objective = replace(problem[0], lam=lam)
        setup = CommonSetup(objective, guided=True)
        sizes = {}
        for k, start in ((1, (3,)), (2, (3, 50)), (3, (3, 50, 100)), (4, (3, 50, 100, 101))):
            proof = Proof.begin(objective, k, start, largest_coefficient=1.3, setup=setup)
            alone = Proof.begin(objective, k, start, largest_coefficient=1.3)
            for one in (proof, alone):
                one.run(nodes=300)
            assert proof.certificate().bound == pytest.approx(alone.certificate().bound, rel=1e-3)
            sizes[k] = proof.certificate()
        assert sizes[3].indices == (3, 50, 100)
        assert any(one.largest_coefficient > 0.0 for one in sizes.values())

    def test_it_continues_where_it_was_saved(self, problem):
        objective, planted = problem
        proof = Proof.begin(objective, 3, planted, largest_coefficient=3.0)
        proof.run(nodes=2)
        again = Proof.resume(objective, json.loads(json.dumps(proof.state())))
        assert proof.run(nodes=500) == again.run(nodes=500)
        assert again.certificate().bound == proof.certificate().bound
        assert again.certificate().largest_coefficient == proof.certificate().largest_coefficient

    def test_of_more_columns_each_is_limited_in_passes(self, problem, monkeypatch):
        objective, planted = problem
        monkeypatch.setattr(choose_tree, "MOST_DENSE", 100)
        proof = Proof.begin(objective, 3, planted, largest_coefficient=1.5)
        assert proof.search.kind == "wide-tree"
        proof.run(nodes=500)
        certificate = proof.certificate()
        assert certificate.bound == pytest.approx(certificate.value, rel=1e-6)
        assert certificate.largest_coefficient > 1.0


#: How the last column depends on the first ones, and the best status of a proof that searches all columns.
DEPENDENCE = {
    "no": (lambda X, hidden: hidden, "optimal"),
    "copy": (lambda X, hidden: X[:, 0], "optimal"),
    "scaled copy": (lambda X, hidden: -3.7 * X[:, 0], "optimal"),
    "sum": (lambda X, hidden: X[:, 0] + X[:, 1], "optimal"),
    "near-copy": (lambda X, hidden: X[:, 0] + 1e-4 * hidden, "optimal-except-near-copies"),
    "near-sum": (lambda X, hidden: X[:, 0] + X[:, 1] + 1e-4 * hidden, "optimal-except-near-copies"),
    "sum with a small part": (lambda X, hidden: X[:, 0] + 1e-4 * X[:, 2], "optimal-except-near-copies"),
}


@pytest.mark.parametrize("preprocess", ["center", "standardize", "none"])
@pytest.mark.parametrize("kind", DEPENDENCE)
def test_the_status_counts_columns_that_depend_on_others(monkeypatch, kind, preprocess):
    monkeypatch.setattr(choose_tree, "MANY_COLUMNS", 5)  # few columns have a limit, too
    rng = np.random.default_rng([3, *map(ord, kind)])
    depends, status = DEPENDENCE[kind]
    X, hidden = rng.standard_normal((40, 8)) + 2.0 * rng.standard_normal(8), rng.standard_normal(40)
    X = np.column_stack([X, depends(X, hidden)])
    y = X[:, 0] + 0.8 * X[:, 1] + 0.3 * hidden + rng.standard_normal(40)
    for near_copies in ("keep", "first"):
        selection = dsel.select(X, y, k=3, method="forward", preprocess=preprocess, near_copies=near_copies)
        row = dsel.certify(selection, X, y, largest_coefficient=1.2, progress=False).certificate[-1]
        left_out = near_copies == "first" and "cop" in kind
        assert row["represented"] == int(left_out or (near_copies == "first" and "small" in kind))
        assert row["status"] == ("optimal-except-near-copies" if row["represented"] else status)
        if row["represented"]:
            continue
        A, b = (X, y) if preprocess == "none" else (X - X.mean(axis=0), y - y.mean())
        least = least_with_coefficients(A / np.linalg.norm(A, axis=0), b / np.sqrt(b @ b / row["total"]), 3, row)
        assert least >= row["bound"] - (row["dependent_gap"] + 1e-10) * row["total"]
        assert status != "optimal" or least >= row["value"] - (row["rounding_error"] + 1e-9) * row["total"]


def least_with_coefficients(A, b, k, row):
    """f of the best subset of at most k columns of norm 1, dependent ones too, with a best fit within the limit."""
    best, limit = float(b @ b), row["largest_coefficient"] * (1.0 - 1e-9)
    for S in (list(S) for size in range(1, k + 1) for S in combinations(range(A.shape[1]), size)):
        f = float(np.square(b - A[:, S] @ np.linalg.lstsq(A[:, S], b, rcond=1e-13)[0]).sum())
        within = lsq_linear(A[:, S], b, (-limit, limit), method="bvls", tol=1e-14)
        if 2.0 * within.cost <= f + 1e-12 * row["total"]:
            best = min(best, f)
    return best


@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from((0.0, 1e-3, 0.5)), st.integers(1, 3),
       st.floats(1.0, 3.0))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_a_tree_in_passes_proves_that_no_subset_within_the_limit_is_better(seed, kind, lam, k, times):
    X, Y = data(seed, kind, 1)
    k = min(k, X.shape[1])
    squares = np.square(X).sum(axis=0)
    wide = OnDemandObjective(InMemoryFactor(X), squares, X.T @ Y, float(np.square(Y).sum()), lam, batch=2)
    steps = {"_FIRST": 2, "_ENTERING": 2, "_ENTERING_NODE": 1, "_CLOSED": 3, "_PASS_NODES": 3}
    with mock.patch.multiple(out_of_core_tree, **steps):
        tree = OutOfCoreTree(wide, k, incumbent=range(k), largest_coefficient=times)
        largest = tree.certificate().largest_coefficient
        assume(largest > 1e-6)
        norms = np.sqrt(squares)
        limit = np.divide(largest, norms, out=np.full_like(norms, 1e-12), where=norms > 0.0)
        least = least_within(X, Y[:, 0], lam, limit, k)
        error = (tree.guarantee.error + tree.guarantee.by_dependent + 1e-9) * wide.total
        for _ in range(40):
            assert tree.lower <= least + error
            ended = tree.advance(tree.iteration + 1)
            again = OutOfCoreTree.restore(wide, json.loads(json.dumps(tree.state())))
            assert (again.lower, again.certificate().largest_coefficient) == (tree.lower, largest)
            if ended:
                break
        assert tree.lower <= least + error
        if ended and not tree._stuck:
            assert tree.best_value <= least + error


def test_of_different_limits_the_better_bound_counts_and_the_others_are_kept():
    whole = Certificate(3, 1.0, 0.6, 10.0, (1, 2, 3), 5, 1.0, "")
    within = replace(whole, bound=0.9, largest_coefficient=2.0, nodes=7)
    wider = replace(within, bound=0.7, largest_coefficient=4.0)
    squares = replace(whole, bound=0.8, coefficients=0.5)
    for first, *others in permutations((whole, within, wider, squares)):
        found = first
        for other in others:
            found = found.merged(other)
        assert found == replace(within, beyond=((0.8, 0.5, 0.0), (0.7, 0.0, 4.0), (0.6, 0.0, 0.0)))
        assert Certificate.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    assert found.merged(replace(whole, bound=0.75)).beyond == ((0.8, 0.5, 0.0), (0.75, 0.0, 0.0))
    assert wider.merged(replace(within, bound=0.7)) == wider  # it proves as much about more
    about_all = replace(whole, bound=0.9)
    assert found.merged(about_all) == about_all == about_all.merged(within)


def test_a_bound_within_a_limit_says_nothing_about_smaller_sizes_without_it():
    within = Certificate(3, 1.0, 0.9, 10.0, (1, 2, 3), 5, 1.0, "", largest_coefficient=2.0)
    smaller = Certificate(2, 2.0, 0.5, 10.0, (1, 2), 5, 1.0, "")
    assert across_sizes({3: within, 2: smaller})[2] == smaller

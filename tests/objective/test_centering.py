"""The rounding of means: sums of centered products are as close to exact ones as promised, and proofs count it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.data.as_dataset import as_dataset
from dsel.objective.centering import CenteringError
from dsel.objective.on_demand import OnDemandObjective
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.columns.column_statistics import column_statistics
from dsel.passes.gram import gram_statistics
from dsel.search.exact.guarantee import Limits
from dsel.search.exact.out_of_core.out_of_core_tree import OutOfCoreTree
from dsel.search.exact.proof import Proof


def far_from_zero(seed, ratio, m=48, n=6):
    """Columns and a target whose means are `ratio` times as large as their deviations."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + ratio * rng.choice([-1.0, 1.0], n)
    y = X[:, :2].sum(axis=1, keepdims=True) + 0.5 * rng.standard_normal((m, 1)) + ratio
    return X, y


def exact(A):
    """The exact inner products of the columns about their exact means, which replace NaN."""
    means = [sum(map(Fraction, column[column == column].tolist())) / int((column == column).sum()) for column in A.T]
    columns = zip(A.T.tolist(), means, strict=True)
    centered = [[Fraction(value) - mean if value == value else Fraction() for value in one] for one, mean in columns]
    return [[sum(a * b for a, b in zip(one, other, strict=True)) for other in centered] for one in centered]


def dataset_in_blocks(X, y, rows):
    return as_dataset(da.from_array(X, chunks=(rows, X.shape[1])), y)


def in_passes(X, y, rows, lam=0.0):
    """The objective that a proof in passes gets, centered. Means replace NaN."""
    blocks, filled = ColumnBlocks(dataset_in_blocks(X, y, rows)), np.isnan(X).any(axis=0)
    missing = "mean" if filled.any() else "refuse"
    statistics = column_statistics(blocks, missing)
    B, c = statistics.targets("center", statistics.B)
    return OnDemandObjective(
        ColumnFactor(blocks, statistics, "center", missing), statistics.preprocessed_squares("center"), B, c, lam,
        centering=statistics.centering_error("center", blocks.of_rows, filled, merged=False),
    )  # fmt: skip


@given(st.integers(0, 10_000), st.sampled_from((0.0, 10.0, 1e4, 1e7)), st.sampled_from((5, 12, 48)))
@settings(max_examples=20, deadline=None)
def test_products_are_as_close_to_exact_ones_as_promised(seed, ratio, rows):
    X, y = far_from_zero(seed, ratio)
    products = exact(np.hstack([X, y]))
    norms = [float(products[j][j]) ** 0.5 for j in range(len(products))]
    found = in_passes(X, y, rows)
    gram = gram_statistics(dataset_in_blocks(X, y, rows))
    whole = gram.centering_error("center", -(-len(X) // rows))
    eps = 1e-13  # of sums without means
    for j in range(X.shape[1]):
        for B, error in ((found.cross, found.centering.cross), (gram.B, whole.cross)):
            assert abs(float(Fraction(B[j, 0]) - products[j][-1])) <= (error + eps) * norms[j] * norms[-1]
        for l in range(X.shape[1]):
            assert abs(float(Fraction(gram.K[j, l]) - products[j][l])) <= (whole.gram + eps) * norms[j] * norms[l]
    found.fetch_rows(range(X.shape[1]))
    K = found.rows(range(X.shape[1]))
    for j, l in combinations(range(X.shape[1]), 2):
        assert abs(float(Fraction(K[j, l]) - products[j][l])) <= (found.centering.gram + eps) * norms[j] * norms[l]
    for c, error in ((found.c, found.centering.targets), (gram.yy[0], whole.targets)):
        assert abs(float(Fraction(c) - products[-1][-1])) <= (error + eps) * norms[-1] ** 2


def test_the_error_is_small_unless_means_are_much_larger_than_deviations():
    X, y = far_from_zero(0, 1.0)
    near, far = in_passes(X, y, 12).centering, in_passes(*far_from_zero(0, 1e7), 12).centering
    assert 0.0 < near.cross < 1e-13
    assert 1e-10 < far.cross < 1e-6
    assert far.gram < 1e-12  # all rows have the same center
    assert in_passes(X, y, 48).centering.cross < 1e-24  # one block: nothing is merged
    assert CenteringError().share(10.0) == 0.0


def least_error(X, Y, k, lam, included=()):
    """The least error of k columns and the included ones about exact means, in exact arithmetic. No targets: Y = X."""
    n, products = X.shape[1], exact(X if Y is None else np.hstack([X, Y]))
    targets = range(n) if Y is None else range(n, n + Y.shape[1])
    best = None
    for T in combinations([j for j in range(n) if j not in included], k):
        S, s = (*included, *T), k + len(included)
        A = [[products[i][j] + (Fraction(lam) if i == j else 0) for j in S] for i in S]
        A = [row + [products[i][t] for t in targets] for row, i in zip(A, S, strict=True)]
        rest = [products[t][t] for t in targets]
        for p in range(s):  # eliminate the subset; what is left of Y'Y is the error
            for i in range(p + 1, s):
                factor = A[i][p] / A[p][p]
                A[i] = [a - factor * b for a, b in zip(A[i], A[p], strict=True)]
            rest = [left - A[p][s + t] ** 2 / A[p][p] for t, left in enumerate(rest)]
        best = sum(rest) if best is None else min(best, sum(rest))
    return best


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rows", [5, 12])
def test_a_proof_holds_for_columns_whose_means_are_large(rows, missing):
    above, k, lam = 0, 2, 3.0
    for seed in range(8):
        X, y = far_from_zero(seed, 1e7, m=24, n=5)
        if missing:
            X[seed::7, :3] = np.nan
        objective = in_passes(X, y, rows, lam)
        proof = Proof.begin(objective, k, (0, 1))
        assert isinstance(proof.search, OutOfCoreTree)
        proof.run()
        found, least = proof.certificate(), least_error(X, y, k, lam)
        assert found.gap <= (2e-10 + found.rounding_error) * found.total
        assert found.rounding_error > 0.0
        assert Fraction(found.bound) <= least
        above += Fraction(found.bound + found.rounding_error * found.total) > least
    assert above > 0  # without the error some bounds would be false


def in_memory(X, Y, rows, lam):
    """The objective of a proof with the Gram matrix, centered. Y None: Y = X. Means replace NaN."""
    dataset, filled = as_dataset(da.from_array(X, chunks=(rows, X.shape[1])), Y), np.isnan(X).any(axis=0)
    statistics = gram_statistics(dataset, missing="mean" if filled.any() else "refuse")
    error = statistics.centering_error("center", len(dataset.blocks), filled)
    return replace(statistics.objective("center", lam), centering=error)


@pytest.mark.parametrize(
    "kind", ["no penalty", "penalty", "relaxation", "included", "several targets", "Y = X", "missing", "missing, Y = X"]
)
def test_a_proof_in_memory_holds_for_columns_whose_means_are_large(kind):
    above, k, lam = 0, 2, 0.0 if kind in ("no penalty", "included", "missing") else 3.0
    included = (4,) if kind == "included" else ()
    for seed in range(5):
        X, Y = far_from_zero(seed, 1e7, m=24, n=5)
        if kind == "several targets":
            Y = np.hstack([Y, Y[::-1]])
        if kind.startswith("missing"):
            X[seed::7, :3] = np.nan
        Y = None if kind.endswith("Y = X") else Y
        objective = in_memory(X, Y, 3, lam).condition(included)
        with pytest.MonkeyPatch.context() as patch:
            if kind == "relaxation":
                patch.setattr("dsel.search.exact.choose_tree.MANY_COLUMNS", 1)
            proof = Proof.begin(objective, k, (0, 1))
        proof.run()
        found, least = proof.certificate(), least_error(X, Y, k, lam, included)
        assert found.gap <= (2e-10 + found.rounding_error) * found.total
        assert found.rounding_error < 1e-2
        assert Fraction(found.bound) <= least
        above += Fraction(found.bound + found.rounding_error * found.total) > least
    assert above > 0  # without the error some bounds would be false


def test_one_block_of_rows_and_means_near_zero_cost_a_proof_nothing():
    X, y = far_from_zero(0, 1.0)
    near, exactly = in_memory(X, y, 12, 0.0), in_memory(X, y, 48, 0.0)
    uncounted = Limits(replace(near, centering=CenteringError())).guarantee(3).error
    assert Limits(exactly).guarantee(3).error == pytest.approx(uncounted, rel=1e-6)
    assert uncounted < Limits(near).guarantee(3).error < 1e-11
    assert Limits(in_memory(*far_from_zero(0, 1e7), 12, 0.0)).guarantee(3).error > 1e-7


@pytest.mark.parametrize("targets", [1, 30, 0])
def test_the_coefficients_of_included_columns_are_known(targets):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 8)) @ (np.eye(8) + 0.3 * rng.standard_normal((8, 8))) + 1.0
    Y = rng.standard_normal((40, targets)) + X[:, :1] if targets else None
    once = in_memory(X, Y, 10, 0.0).condition((0, 3))
    twice = in_memory(X, Y, 10, 0.0).condition((0,)).condition((2,))
    assert once.columns.tolist() == twice.columns.tolist()
    x = (X - X.mean(axis=0)) / np.linalg.norm(X - X.mean(axis=0), axis=0)
    y = x if Y is None else (Y - Y.mean(axis=0)) / np.linalg.norm(Y - Y.mean(axis=0))
    if Y is None:  # the columns as they are, not those of norm 1
        y = (X - X.mean(axis=0)) / np.linalg.norm(X - X.mean(axis=0))
    for T in combinations([1, 2, 4, 5, 6, 7], 2):
        b = np.linalg.norm(np.linalg.lstsq(x[:, [0, 3, *T]], y, rcond=None)[0], axis=1)
        for found in (once.centering.included, twice.centering.included):
            assert found < 100.0
            assert b[:2].sum() <= found * (1.0 + b[2:].sum())

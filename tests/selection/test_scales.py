"""The scale of columns, targets and weights plays no part, or the data are refused with a clear error."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dsel
from dsel.errors import DataError

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((40, 6))
Y = Z[:, :3].sum(axis=1) + 0.3 * RNG.standard_normal(40)
SCALES = {
    "huge": np.full(6, 1e100), "largest": np.full(6, 1e150), "tiny": np.full(6, 1e-100), "least": np.full(6, 1e-150),
    "ratios": 10.0 ** np.array([-150.0, 80.0, 0.0, 40.0, -100.0, 150.0]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module="dsel")
        yield


def select(X, y, method="branch-and-bound", **options):
    return dsel.select(X, y, k=4, method=method, progress=False, **options)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("preprocess", ["none", "center"])
@pytest.mark.parametrize("method", ["branch-and-bound", "astar", "poss", "lasso"])
def test_columns_of_any_scale_give_the_answer_of_scaled_columns(method, preprocess, scale):
    usual = select(Z, Y, method, preprocess=preprocess)
    found = select(Z * SCALES[scale], Y, method, preprocess=preprocess)
    assert found.indices == usual.indices
    assert found.r2 == pytest.approx(usual.r2, abs=1e-12)
    assert found.error == pytest.approx(usual.error)
    np.testing.assert_allclose(found.coefficients * SCALES[scale][list(found.indices), None], usual.coefficients)
    assert [row["bound"] for row in found.certificate] == pytest.approx([row["bound"] for row in usual.certificate])


def test_a_certificate_does_not_depend_on_the_scale():
    usual, huge = (
        dsel.certify(select(X, Y, "forward", preprocess="none"), X, Y, sizes="all", progress=False)
        for X in (Z, Z * SCALES["ratios"])
    )
    for row, same in zip(huge.certificate, usual.certificate, strict=True):
        assert (row["indices"], row["proven"]) == (same["indices"], True)
        assert row["bound"] == pytest.approx(same["bound"])


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_targets_of_any_scale_give_the_same_columns(scale):
    assert select(Z, scale * Y).indices == select(Z, Y).indices


POSITIVE = {"poisson": np.round(np.exp(Y)), "gamma": np.exp(Y), "huber": Y, "quantile": Y}


@pytest.mark.parametrize("scale", [1e-90, 1e-12, 1e20, 1e90])
@pytest.mark.parametrize("loss", POSITIVE)
def test_targets_of_any_scale_have_the_same_fit_by_a_loss(loss, scale):
    y = POSITIVE[loss]
    usual, found = (select(Z, values, "forward", loss=loss) for values in (y, scale * y))
    assert found.indices == usual.indices
    assert found.r2 == pytest.approx(usual.r2, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_targets_of_any_scale_have_the_same_fit_by_the_huber_loss(scale):
    usual, found = (select(Z, values, "forward", loss="huber") for values in (Y, scale * Y))
    assert (found.indices, found.r2) == (usual.indices, pytest.approx(usual.r2, abs=1e-6))


@pytest.mark.parametrize(("loss", "scale"), [("poisson", 1e140), ("gamma", 1e140), ("gamma", 1e-140)])
def test_targets_out_of_range_of_the_log_link_are_refused(loss, scale):
    with pytest.raises(DataError, match=r"takes targets up to 1e.100.* Give the targets in other units"):
        select(Z, scale * POSITIVE[loss], loss=loss)


def test_a_penalty_is_in_the_units_of_the_columns_so_that_they_are_not_scaled():
    with pytest.raises(DataError, match=r"too large or too small for a penalty: x1, x5.*standardize"):
        select(Z * np.array([1.0, 1e70, 1.0, 1.0, 1.0, 1e-70]), Y, preprocess="center", lam=1.0)
    assert select(Z * 1e100, Y, lam=1.0).indices == select(Z, Y, lam=1.0).indices


def test_squares_of_squares_out_of_range_are_refused_where_y_is_x():
    with pytest.raises(DataError, match="its square, which Y = X needs"):
        select(Z * 1e100, None, preprocess="none")
    assert select(Z * 1e100, None).indices == select(Z, None).indices


def test_weights_of_twelve_orders_give_the_least_squares_of_weighted_rows():
    weights = np.r_[1e12, 10.0 ** RNG.uniform(-6.0, 6.0, 39)]
    found = select(Z, Y, preprocess="none", sample_weight=weights)
    root = np.sqrt(weights)[:, None]
    left = np.linalg.lstsq(root * Z[:, list(found.indices)], root[:, 0] * Y, rcond=None)[1]
    assert found.error == pytest.approx(float(left[0]), rel=1e-6)


def test_a_constant_column_whose_rounded_square_is_negative_does_not_warn():
    rng = np.random.default_rng(9)
    m = int(rng.integers(3, 30))
    a, b = rng.standard_normal(m), rng.standard_normal(m)
    X = np.column_stack([a, b, np.full(m, rng.standard_normal() * 10.0 ** rng.integers(-3, 4)), rng.standard_normal(m)])
    found = dsel.select(X, X[:, 0] + X[:, 1], k=2, method="forward", sample_weight=rng.random(m), progress=False)
    assert sorted(found.indices) == [0, 1]


def test_errors_are_not_negative_and_columns_without_a_part_are_not_named():
    """Lags and their differences, and a target without noise."""
    walk = np.cumsum(np.random.default_rng(3).standard_normal(60))
    lags = [walk[6 - lag : 36 - lag] for lag in range(6)]
    X = np.array([*lags, *(lags[i] - lags[i + 1] for i in range(5))]).T
    y = X[:, 0] - X[:, 2] + 2.0 * X[:, 5]
    selection = dsel.select(X, y, k=8, method="forward", progress=False)
    certified = dsel.certify(selection, X, y, sizes="all", progress=False)
    assert min(row.error for row in certified.front) >= 0.0
    for row in certified.certificate:
        assert row["value"] >= 0.0
        assert np.linalg.matrix_rank(X[:, row["indices"]] - X[:, row["indices"]].mean(axis=0)) == len(row["indices"])
    assert len(certified.certificate[-1]["indices"]) == 3


@pytest.mark.parametrize("lam", [1e-9, 1.0])
def test_a_residual_sum_is_not_negative_with_a_penalty(lam):
    y = Z[:, :2].sum(axis=1)
    found = dsel.select(Z, y, k=6, method="forward", lam=lam, progress=False)
    assert found.r2 <= 1.0
    assert all(row.error >= 0.0 for row in found.front)


def test_the_square_of_a_coefficient_may_overflow():
    scales, y = np.array([1.0, 1e-56, 1.0, 1.0, 1.0, 1.0]), 1e148 * (Y + Z[:, 1])
    found = dsel.select(Z * scales, y, k=2, preprocess="none", method="exhaustive", progress=False)
    usual = dsel.select(Z, y, k=2, preprocess="none", method="exhaustive", progress=False)
    assert found.indices == usual.indices
    assert [[one.label for one in several] for several in found.substitutes().values()] == [
        [one.label for one in several] for several in usual.substitutes().values()
    ]
    certified = dsel.certify(found, Z * scales, y, sizes="all", progress=False)
    assert all(row["proven"] for row in certified.certificate)

"""The final figure comes from the data by QR, and agrees with least squares on them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.passes.gram import gram_statistics
from dsel.passes.refit import refit


def in_blocks(dataset: Dataset, rows: int) -> Dataset:
    """The same data cut into blocks of `rows` rows."""
    from dataclasses import replace

    whole = dataset.blocks[0]
    edges = [*range(0, dataset.m, rows), dataset.m]
    blocks = tuple(Block(a, b, whole.x[a:b], None if whole.y is None else whole.y[a:b]) for a, b in pairwise(edges))
    return replace(dataset, blocks=blocks)


@pytest.mark.parametrize("rows", [2, 7, 100])
@pytest.mark.parametrize("lam", [0.0, 3.0])
@pytest.mark.parametrize("targets", [None, 1, 4])
def test_error_and_coefficients_are_those_of_least_squares(rows: int, lam: float, targets: int | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 8)) + 5
    Y = None if targets is None else X[:, :1] + rng.normal(size=(100, targets))
    dataset = in_blocks(as_dataset(X, Y), rows)
    statistics = gram_statistics(dataset)
    S = np.array([5, 0, 3])
    fit = refit(dataset, S, statistics.scaling("standardize"), lam, usable=np.ones(8, bool))
    x = (X - X.mean(0)) / X.std(0)
    y = x if Y is None else (Y - Y.mean(0)) / Y.std(0)
    ridge = np.vstack([x[:, S], np.sqrt(lam) * np.eye(3)])
    A = np.linalg.lstsq(ridge, np.vstack([y, np.zeros((3, y.shape[1]))]), rcond=None)[0]
    rss = ((y - x[:, S] @ A) ** 2).sum()
    assert fit.error == pytest.approx(rss + lam * (A**2).sum(), rel=1e-11)
    assert fit.rss == pytest.approx(rss, rel=1e-10)
    assert fit.total == pytest.approx((y**2).sum(), rel=1e-12)
    np.testing.assert_allclose(fit.coefficients, A, atol=1e-12)


def test_nearly_dependent_columns_do_not_spoil_it() -> None:
    """Normal equations lose half the digits here; the residual of the QR does not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    X = np.column_stack([X[:, 0], X[:, 0] + 1e-6 * X[:, 1]])
    y = 3 * X[:, 0] + 2e6 * (X[:, 1] - X[:, 0])
    dataset = in_blocks(as_dataset(X, y), 20)
    statistics = gram_statistics(dataset)
    fit = refit(dataset, np.array([0, 1]), statistics.scaling("center"), usable=np.ones(2, bool))
    assert fit.error < 1e-18 * fit.total


def test_no_column_leaves_everything() -> None:
    dataset = as_dataset(np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0))
    statistics = gram_statistics(dataset)
    fit = refit(dataset, np.empty(0, np.int64), statistics.scaling("center"), usable=np.ones(2, bool))
    assert fit.error == pytest.approx(fit.total)

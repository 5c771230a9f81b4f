"""`dsel.eigh` agrees with NumPy by every method, and says exactly what it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dsel
from dsel._lib.types import Floats
from dsel.errors import OptionError
from tests.stores import make_store


def decaying(m: int, n: int, power: float = 1.0) -> Floats:
    rng = np.random.default_rng(m)
    U, V = (np.linalg.qr(rng.standard_normal((side, min(m, n))))[0] for side in (m, n))
    return (U / np.arange(1, min(m, n) + 1) ** power) @ V.T * 30 + 2


def centered(X: Floats) -> Floats:
    return X - X.mean(axis=0)


@pytest.mark.parametrize(("shape", "method"), [((60, 25), "gram"), ((25, 60), "row-gram"), ((25, 60), "gram")])
def test_an_exact_decomposition_is_that_of_numpy(shape: tuple[int, int], method: Any) -> None:
    X = decaying(*shape)
    found = dsel.eigh(X, method=method, preprocess="center")
    singular = np.linalg.svd(centered(X), compute_uv=False)
    np.testing.assert_allclose(found.values, singular[: found.rank] ** 2, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(found.rank), atol=1e-6)
    np.testing.assert_allclose(found.reduced.T @ found.reduced, centered(X).T @ centered(X), atol=1e-8)
    assert found.captured == pytest.approx(1.0)
    assert found.relative_error < 1e-6
    assert (found.method, found.error_bound) == (method, 0.0)


@pytest.mark.parametrize("method", ["gram", "row-gram", "randomized"])
def test_what_is_left_out_is_stated_exactly(method: Any) -> None:
    X = decaying(40, 90)
    found = dsel.eigh(X, rank=8, method=method, preprocess="center")
    left = centered(X) - centered(X) @ found.components.T @ found.components
    assert found.rank == 8
    missed = np.linalg.norm(left) / np.linalg.norm(centered(X))  # by the components; a sketch has a few more in U
    assert missed * (1 - 1e-6) <= found.relative_error <= missed * (1.01 if method == "randomized" else 1 + 1e-6)
    assert np.linalg.norm(left, 2) <= found.error_bound * (1 + 1e-9)
    singular = np.linalg.svd(centered(X), compute_uv=False)
    np.testing.assert_allclose(found.values, singular[:8] ** 2, rtol=1e-2)


@pytest.mark.parametrize("method", ["gram", "randomized"])
def test_an_accuracy_takes_the_least_rank_that_reaches_it(method: Any) -> None:
    X = decaying(150, 120, power=0.5)
    found = dsel.eigh(X, accuracy=0.8, method=method, preprocess="center")
    squares = np.linalg.svd(centered(X), compute_uv=False) ** 2
    least = int(np.searchsorted(np.cumsum(squares), 0.8 * squares.sum())) + 1
    assert 0.8 <= found.captured < 0.82
    assert least <= found.rank <= 1.1 * least  # the last values of a sketch are a little low
    assert dsel.eigh(X, accuracy=0.8, rank=5, method=method, preprocess="center").rank == 5


def test_rows_may_have_weights_and_values_may_be_missing() -> None:
    X, w = decaying(40, 12), np.arange(40) % 3
    X[3, 2] = np.nan
    filled = np.where(np.isnan(X), np.average(np.delete(X[:, 2], 3), weights=np.delete(w, 3)), X)
    found = dsel.eigh(X, preprocess="center", missing="mean", sample_weight=w)
    Z = (filled - np.average(filled, axis=0, weights=w)) * np.sqrt(w)[:, None]
    expected = np.linalg.svd(Z, compute_uv=False)[: found.rank] ** 2
    np.testing.assert_allclose(found.values, expected, rtol=1e-8, atol=1e-8)


def test_the_random_vectors_do_not_depend_on_the_chunks(tmp_path: Path) -> None:
    X = decaying(40, 90)
    places = [X, da.from_array(X, chunks=(13, 40)), *(
        str(make_store(tmp_path / f"{rows}-{columns}.zarr", X, chunks=(rows, columns)))
        for rows, columns in ((40, 37), (15, 90))
    )]  # fmt: skip
    found = [dsel.eigh(place, rank=6, method="randomized", seed=3) for place in places]
    for one in found[1:]:
        np.testing.assert_allclose(one.values, found[0].values, rtol=1e-9)
        np.testing.assert_allclose(one.components, found[0].components, atol=1e-7)
    assert {one.passes for one in found[2:]} == {7}


def test_the_bound_of_a_flat_rest_is_close() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 300)) * 4 + rng.standard_normal((400, 300))
    found = dsel.eigh(X, rank=5, method="randomized", preprocess="center")
    true = np.linalg.svd(centered(X), compute_uv=False)[5]
    assert true * (1 - 1e-9) <= found.error_bound <= 2.0 * true
    assert found.relative_error * np.sqrt(found.total) > 4.0 * found.error_bound  # of the Frobenius norm


def test_auto_takes_what_costs_least() -> None:
    assert dsel.eigh(decaying(60, 25)).method == "gram"
    assert dsel.eigh(decaying(10, 300)).method == "row-gram"
    assert dsel.eigh(np.random.default_rng(0).standard_normal((700, 800)), rank=3).method == "randomized"


def test_the_result_has_labels_and_says_what_it_captures() -> None:
    found = dsel.eigh(decaying(30, 6), rank=2)
    table = found.to_xarray()
    assert table["components"].sel(feature="x3").shape == (2,)
    assert table.attrs["captured"] == found.captured
    assert str(found).startswith(f"rank 2 of 6 columns captures {found.captured:.4%}")
    assert repr(found) == f"<Eigendecomposition: {found}>"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, "rank"), ({"rank": 26}, "at most 25"), ({"accuracy": 1.5}, "accuracy"),
        ({"method": "randomized"}, "Give rank or accuracy"), ({"method": "lanczos"}, "no method 'lanczos'"),
        ({"rank": 3, "power_iterations": 0}, "power_iterations"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        dsel.eigh(decaying(60, 25), **arguments)


def test_selections_run_on_a_sketch_if_asked_to() -> None:
    X = decaying(60, 200, power=0.7)
    exact = dsel.select(X, k=4, method="forward", preprocess="center")
    found = dsel.select(X, k=4, method="forward", preprocess="center", sketch={"rank": 20})
    assert found.counts["representation"] == "sketch"
    assert found.counts["rank"] == 20
    Z = centered(X)
    for row in found.front[1:]:  # the errors are those of the data, not of the sketch
        S = Z[:, list(row.indices)]
        assert row.error == pytest.approx(np.square(Z - S @ np.linalg.lstsq(S, Z, rcond=None)[0]).sum(), rel=1e-9)
        assert row.r2 == pytest.approx(1 - row.error / np.square(Z).sum(), rel=1e-9)
    assert found.error == pytest.approx(found.front[-1].error)
    assert exact.error * (1 - 1e-9) <= found.error <= 1.1 * exact.error
    assert any(f"rank 20, which captures {found.counts['captured']:.2%}" in note for note in found.notes)
    assert found.plan is not None
    assert found.plan["planned"]["passes"] == found.plan["measured"]["passes"]
    ridged = dsel.select(X, k=4, method="forward", preprocess="center", sketch={"accuracy": 0.9}, lam=2.0)
    row = ridged.front[-1]
    S = Z[:, list(row.indices)]
    A = np.linalg.solve(S.T @ S + 2.0 * np.eye(4), S.T @ Z)
    assert row.r2 == pytest.approx(1 - np.square(Z - S @ A).sum() / np.square(Z).sum(), rel=1e-9)
    assert ridged.counts["captured"] >= 0.9


def test_a_reduction_is_refused_where_it_cannot_be_used() -> None:
    X = decaying(60, 25)
    with pytest.raises(OptionError, match="left out"):
        dsel.select(X, X[:, 0], k=2, method="kfold", reduce={"rank": 5})
    with pytest.raises(OptionError, match="rank 5, and k is 6"):
        dsel.select(X, k=6, method="forward", reduce={"rank": 5})
    with pytest.raises(OptionError, match="rank or the accuracy"):
        dsel.select(X, k=2, reduce={})
    with pytest.raises(OptionError, match="sketch is the earlier name of reduce: leave it out"):
        dsel.select(X, k=2, reduce={"rank": 5}, sketch={"rank": 6})

"""K-fold selection from the Gram matrices of the folds, against models trained and tested on the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.row_partition import folds_of
from dsel.errors import OptionError
from dsel.passes.statistics_cache import StatisticsCache
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.oracles import greedy_rls as oracle
from tests.search.cross_validation.test_greedy_rls import problem
from tests.stores import make_store, regression


def cross_validated(
    X: Any, Y: Any, S: list[int], lam: float, folds: int, repeats: int, seed: int, centered: bool
) -> float:
    m, total = len(X), 0.0
    train = oracle.ridge_with_intercept if centered else oracle.ridge
    for repetition in range(repeats):
        fold = folds_of(0, m, folds, seed, repetition)
        for f in range(folds):
            inside, outside = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
            for j in inside:
                p = train(X[np.ix_(outside, S)], Y[outside], X[j, S], lam)
                total += float(((Y[j] - p) ** 2).sum())
    return total / repeats / m


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(12, 40), n=st.integers(2, 6), N=st.integers(1, 2), seed=st.integers(0, 10**6),
    lam=st.sampled_from([0.1, 2.0]), folds=st.integers(2, 5), repeats=st.integers(1, 3), centered=st.booleans(),
    direction=st.sampled_from(["forward", "backward", "floating"]), chunk=st.integers(5, 40),
)  # fmt: skip
def test_every_step_is_the_best_by_models_trained_on_the_other_folds(
    m: int, n: int, N: int, seed: int, lam: float, folds: int, repeats: int, centered: bool, direction: str, chunk: int
) -> None:
    X, Y = problem(m, n, N, seed)
    preprocess = "center" if centered else "none"
    found = dsel.select(
        da.from_array(X, chunks=(min(chunk, m), n)), Y, k=min(n, 3), method="kfold", lam=lam, preprocess=preprocess,
        folds=folds, repeats=repeats, seed=seed, direction=direction,
    )  # fmt: skip

    def error(S: list[int]) -> float:
        return cross_validated(X, Y, S, lam, folds, repeats, seed, centered)

    members = list(range(n)) if direction == "backward" else []
    for row in found.path:
        if row.action == "insert":
            errors = {j: error([*members, j]) for j in range(n) if j not in members}
            members.append(row.index)
        else:
            errors = {i: error([j for j in members if j != i]) for i in members}
            members.remove(row.index)
        assert row.error == pytest.approx(min(errors.values()), rel=1e-7)
        assert errors[row.index] == pytest.approx(row.error, rel=1e-7)
    assert found.passes == 2  # the moments of the folds, and the final check


def test_folds_depend_on_the_row_and_the_seed_alone() -> None:
    whole = folds_of(0, 10_000, 7, 3, 0)
    pieces = np.concatenate([folds_of(a, min(a + 37, 10_000), 7, 3, 0) for a in range(0, 10_000, 37)])
    assert np.array_equal(whole, pieces)
    assert np.ptp(np.bincount(whole, minlength=7)) <= 1
    assert (whole != folds_of(0, 10_000, 7, 4, 0)).mean() > 0.8
    assert (whole != folds_of(0, 10_000, 7, 3, 1)).mean() > 0.8
    first = whole[: 7 * 1428].reshape(-1, 7)[:, 0]
    assert np.bincount(first, minlength=7).min() > 150


def test_lam_and_held_out_rows() -> None:
    X, Y = problem(60, 5, 1, 1)
    found = dsel.select(
        X[:40], Y[:40], k=5, method="kfold", preprocess="center", folds=4, lam_grid=(0.1, 5.0, 100.0),
        held_out=(X[40:], Y[40:]),
    )  # fmt: skip
    expected = [cross_validated(X[:40], Y[:40], list(range(5)), lam, 4, 1, 0, True) for lam in (0.1, 5.0, 100.0)]
    assert [error / 40 for _, error in found.counts["lam_grid"]] == pytest.approx(expected)
    p = found.intercept + X[40:, found.indices] @ found.coefficients
    assert found.path[-1].test_error == pytest.approx(float(((Y[40:] - p) ** 2).mean()))


def test_what_does_not_fit_is_refused() -> None:
    X, Y = problem(8, 3, 1, 0)
    with pytest.raises(OptionError, match="too few"):
        dsel.select(X[:2], Y[:2], k=1, method="kfold", lam=1.0)
    with pytest.raises(OptionError, match="folds"):
        dsel.select(X, Y, k=1, method="kfold", folds=1)
    with pytest.raises(OptionError, match="needs targets"):
        dsel.select(X, k=1, method="kfold")


def test_statistics_of_the_folds_are_saved_and_reused(tmp_path: Path) -> None:
    A, B = regression()
    dataset = as_dataset(str(make_store(tmp_path / "data.zarr", A, B, chunks=(100, 24))))
    context = RunContext(cache=StatisticsCache(tmp_path / "artefacts"))

    def run(**changed: Any) -> dsel.Selection:
        options = {"folds": 3, "repeats": 2, **changed}
        seed = options.pop("seed", 0)
        return run_selection(
            dataset, SelectionRequest(k=4, method="kfold", lam=1.0, seed=seed, options=options), context
        )

    first, again = run(), run()
    assert (first.passes, again.passes) == (2, 1)  # with the final check
    assert again.path == first.path  # bit for bit
    assert run(seed=1).passes == run(folds=4).passes == run(repeats=1).passes == 2
    assert run(seed=1).passes == 1
    next((tmp_path / "artefacts").iterdir()).unlink()
    assert sum(run(**changed).passes for changed in ({}, {"seed": 1}, {"folds": 4}, {"repeats": 1})) == 4 + 1


@pytest.mark.filterwarnings("error")
def test_a_fold_without_weight_is_as_one_of_next_to_none() -> None:
    A, B = regression(m=60)
    least, none = np.ones(60), np.ones(60)
    fold = np.arange(60) % 5
    least[fold == 2], none[fold == 2] = 1e-12, 0.0
    split = [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(5)]
    options: dict[str, Any] = {"k": 3, "method": "kfold", "split": split, "lam": 1.0}
    found, expected = (dsel.select(A, B, sample_weight=w, **options) for w in (none, least))
    assert found.indices == expected.indices
    assert [p.error for p in found.path] == pytest.approx([p.error for p in expected.path], rel=1e-9)

"""Searches of parameters: no leakage between folds, and the statistics of a fold are computed once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dsel
from dsel.passes.data_pass import log_passes
from dsel.passes.statistics_cache import MemoryStatisticsCache
from dsel.sklearn import ForwardSelector, SubsetSelector, clear_cache
from dsel.sklearn.inputs import data_digest
from tests.stores import regression

X, Y = regression(m=240, n=20)
NOISE = np.random.default_rng(3).normal(size=240) * 4
y = Y[:, 0] + NOISE
SIZES = [2, 4, 6]


@pytest.fixture(autouse=True)
def _no_statistics_of_other_tests() -> None:
    clear_cache()


def search(data: Any, target: Any, selector: Any = None, **options: Any) -> GridSearchCV:
    model = make_pipeline(StandardScaler(), selector or ForwardSelector(), LinearRegression())
    if not isinstance(data, np.ndarray):
        model = make_pipeline(selector or ForwardSelector(), LinearRegression())
    step = model.steps[-2][0]
    grid = {f"{step}__n_features_to_select": SIZES}
    return GridSearchCV(model, grid, cv=KFold(3), **options).fit(data, target)


def counted(data: Any, target: Any, selector: Any = None) -> tuple[GridSearchCV, Counter[str]]:
    with log_passes() as made:
        found = search(data, target, selector)
    return found, Counter(record.name for record in made.records)


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_the_statistics_of_a_fold_are_computed_once_for_all_sizes(kind: str) -> None:
    data = X if kind == "numpy" else da.from_array(X, chunks=(50, 20))
    target = y if kind == "numpy" else da.from_array(y, chunks=50)
    found, passes = counted(data, target)
    assert passes["Gram matrix"] == 3 + 1  # the folds, and all rows for the best size
    assert passes["check"] == 3 * len(SIZES) + 1
    _, uncached = counted(data, target, ForwardSelector(cache=None))
    assert uncached["Gram matrix"] == 3 * len(SIZES) + 1
    assert found.best_params_[next(iter(found.best_params_))] == 6


def test_scores_are_those_of_selecting_by_hand_on_the_training_rows_alone() -> None:
    found = search(X, y)
    for row, k in enumerate(SIZES):
        for i, (train, test) in enumerate(KFold(3).split(X)):
            s = dsel.select(X[train], y[train], k=k, method="forward")
            expected = LinearRegression().fit(X[train][:, s.indices], y[train]).score(X[test][:, s.indices], y[test])
            assert found.cv_results_[f"split{i}_test_score"][row] == pytest.approx(expected)


def test_dask_gives_the_scores_of_numpy() -> None:
    expected = search(X, y).cv_results_["mean_test_score"]
    lazy = search(da.from_array(X, chunks=(50, 7)), da.from_array(y, chunks=50))
    np.testing.assert_allclose(lazy.cv_results_["mean_test_score"], expected)
    assert isinstance(lazy.best_estimator_[0].transform(da.from_array(X)), da.Array)


@pytest.mark.parametrize("kind", ["pandas", "polars", "xarray"])
def test_frames_and_labelled_arrays_give_the_scores_of_numpy(kind: str) -> None:
    names = [f"gene {j}" for j in range(20)]
    data = {
        "pandas": lambda: pd.DataFrame(X, columns=names),
        "polars": lambda: pl.DataFrame(X, schema=names),
        "xarray": lambda: xr.DataArray(X, {"feature": names}, dims=("sample", "feature")).chunk({"sample": 50}),
    }[kind]()
    found = search(data, y, error_score="raise")
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], search(X, y).cv_results_["mean_test_score"])


def test_noise_does_not_leak_into_the_scores() -> None:
    """Selecting from 500 columns of noise before the division into folds would score far above 0."""
    rng = np.random.default_rng(0)
    noise, target = rng.normal(size=(60, 500)), rng.normal(size=60)
    assert cross_val_score(make_pipeline(ForwardSelector(5), LinearRegression()), noise, target, cv=5).mean() < 0.0
    leaky = noise[:, ForwardSelector(5).fit(noise, target).indices_]
    assert cross_val_score(LinearRegression(), leaky, target, cv=5).mean() > 0.3


def test_classes_reach_the_classifier_as_they_are() -> None:
    target = np.where(y > 0, "yes", "no")
    model = make_pipeline(SubsetSelector(), LogisticRegression())
    grid = {"subsetselector__n_features_to_select": [2, 6], "subsetselector__method": ["poss", "forward"]}
    found = GridSearchCV(model, grid, cv=3).fit(X, target)
    assert found.best_score_ > 0.7
    assert found.classes_.tolist() == ["no", "yes"]
    assert set(found.predict(X)) == {"no", "yes"}


def test_a_folder_keeps_the_statistics_for_other_processes(tmp_path: Path) -> None:
    with log_passes() as made:
        for k in (2, 3):
            ForwardSelector(k, cache=tmp_path / "cache").fit(X, y)
    assert [record.name for record in made.records].count("Gram matrix") == 1
    assert list((tmp_path / "cache").iterdir())


def gram_passes(*fits: Any) -> int:
    with log_passes() as made:
        for data, target, weights in fits:
            ForwardSelector(2).fit(data, target, weights)
    return [record.name for record in made.records].count("Gram matrix")


class TestWhatCountsAsTheSameData:
    def test_equal_values_do(self) -> None:
        assert gram_passes((X, y, None), (X.copy(), y.copy(), None)) == 1

    def test_other_values_targets_or_weights_do_not(self) -> None:
        other = X.copy()
        other[100, 3] += 1e-9
        w = np.ones(240)
        w[0] = 2.0
        assert gram_passes((X, y, None), (other, y, None), (X, y + 1, None), (X, y, w), (X.astype("f4"), y, None)) == 5

    def test_an_array_that_was_changed_in_place_does_not(self) -> None:
        x = X.copy()
        ForwardSelector(2).fit(x, y)
        x[:, 0] = y
        assert ForwardSelector(1).fit(x, y).indices_.tolist() == [0]

    def test_a_dask_array_that_is_made_again_does_not_since_its_source_may_have_changed(self, tmp_path: Path) -> None:
        da.to_zarr(da.from_array(X, chunks=(80, 20)), tmp_path / "x.zarr")
        assert 5 not in ForwardSelector(1).fit(da.from_zarr(tmp_path / "x.zarr"), X[:, 3]).indices_
        changed = X[:, [0, 1, 2, 5, 4, 3, *range(6, 20)]]
        da.to_zarr(da.from_array(changed, chunks=(80, 20)), tmp_path / "x.zarr", mode="w")
        assert ForwardSelector(1).fit(da.from_zarr(tmp_path / "x.zarr"), X[:, 3]).indices_.tolist() == [5]

    def test_transposed_values_do_not(self) -> None:
        square = X[:20]
        assert data_digest(square) != data_digest(np.ascontiguousarray(square.T))
        assert data_digest(square.T) != data_digest(square)
        assert data_digest(X) == data_digest(X.copy())


def test_the_memory_cache_forgets_what_was_not_used_for_longest() -> None:
    from dsel.data.as_dataset import as_dataset
    from dsel.passes.gram import gram_statistics

    statistics = gram_statistics(as_dataset(X, y))
    size = sum(getattr(statistics, name).nbytes for name in ("K", "B", "mean_x", "mean_y", "yy"))
    cache = MemoryStatisticsCache(limit=int(2.5 * size))
    keys = [MemoryStatisticsCache.key(name) for name in ("a", "b", "c")]
    for key in keys[:2]:
        cache.save(key, statistics)
    assert cache.load(keys[0]) is statistics
    cache.save(keys[2], statistics)
    assert [cache.has(key) for key in keys] == [True, False, True]
    MemoryStatisticsCache(limit=10).save(keys[0], statistics)
    cache.clear()
    assert len(cache) == 0

"""The final check of a store that grows: the fit of the data, of which only new segments are read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.passes.gram import gram_statistics
from dsel.passes.refit import Fit, _piece_factors, merge_centered, refit, with_means
from dsel.passes.statistics import PREPROCESS
from dsel.passes.statistics_cache import StatisticsCache
from tests.stores import append_rows, count_reads, make_store, regression

X, Y = regression(m=400)
X = X + np.linspace(0, 30, 24)
S = np.array([7, 2, 11])


def fit(data: Any, preprocess: Any, lam: float = 0.0, cache: StatisticsCache | None = None) -> Fit:
    statistics = gram_statistics(data)
    usable = ~statistics.unusable(preprocess)
    return refit(data, S, statistics.scaling(preprocess), lam, usable=usable, cache=cache)


def same(a: Fit, b: Fit) -> None:
    for name in ("error", "rss", "total", "coefficients", "gains", "gram"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_store(tmp_path_factory.mktemp("grown") / "s.zarr", X[:200], Y[:200], chunks=(30, 24))
    for rows in (210, 215, 333, 400):
        append_rows(path, X[:rows], Y[:rows])
    return path


@pytest.mark.parametrize("unsupervised", [False, True])
@pytest.mark.parametrize("lam", [0.0, 3.0])
@pytest.mark.parametrize("preprocess", PREPROCESS)
def test_the_fit_is_that_of_the_data(grown: Path, preprocess: Any, lam: float, unsupervised: bool) -> None:
    stored = as_dataset(str(grown), unsupervised=unsupervised)
    same(fit(stored, preprocess, lam), fit(as_dataset(X, None if unsupervised else Y), preprocess, lam))


def test_weights_count(tmp_path: Path) -> None:
    ingest_arrays(X[:200], tmp_path / "s.zarr", y=Y[:200], weight=np.ones(200), chunks=(30, 24))
    append_rows(tmp_path / "s.zarr", X, Y)
    same(fit(as_dataset(str(tmp_path / "s.zarr")), "standardize"), fit(as_dataset(X, Y), "standardize"))
    dataset = as_dataset(X, Y, sample_weight=np.arange(400) % 3)
    halves = [_piece_factors(X[a:b][:, S], Y[a:b], np.arange(a, b) % 3.0) for a, b in ((0, 150), (150, 400))]
    both = merge_centered(*halves)
    scale = gram_statistics(dataset).scaling("center")
    expected = refit(dataset, S, scale, usable=np.ones(24, bool))
    assert float(both.left.sum()) == pytest.approx(expected.rss, rel=1e-9)


def test_only_new_segments_are_read_and_the_bits_are_those_of_a_run_from_the_beginning(tmp_path: Path) -> None:
    path, cache = make_store(tmp_path / "s.zarr", X[:200], Y[:200], chunks=(20, 24)), StatisticsCache(tmp_path / "a")
    append_rows(path, X[:220], Y[:220])
    fit(as_dataset(str(path)), "standardize", cache=cache)
    for rows in (240, 300):
        append_rows(path, X[:rows], Y[:rows])
        data = as_dataset(str(path))
        statistics = gram_statistics(data)
        options: Any = {"usable": ~statistics.unusable("standardize")}
        reads = count_reads()
        found = refit(data, S, statistics.scaling("standardize"), cache=cache, **options)
        read = sorted(int(key.split("/")[2]) for key in reads if key.startswith("X/"))
        assert read == ([11] if rows == 240 else [12, 13, 14])
        expected = refit(data, S, statistics.scaling("standardize"), **options)
        for name in ("error", "rss", "total", "coefficients", "gains", "gram"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_other_columns_take_the_place_of_what_was_saved(tmp_path: Path) -> None:
    path, cache = make_store(tmp_path / "s.zarr", X[:200], Y[:200], chunks=(20, 24)), StatisticsCache(tmp_path / "a")
    append_rows(path, X[:220], Y[:220])
    for k in (2, 3, 4):
        data = as_dataset(str(path))
        statistics = gram_statistics(data)
        chosen = np.arange(k)
        refit(data, chosen, statistics.scaling("center"), usable=~statistics.unusable("center"), cache=cache)
    assert len(list(cache.folder.iterdir())) == 1


@given(seed=st.integers(0, 10**6), cuts=st.sets(st.integers(1, 59), max_size=5))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_cut_gives_the_factors_of_the_whole(seed: int, cuts: set[int]) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(60, 3)) * 10.0 ** rng.integers(-3, 4, 3) + 1000 * rng.normal(size=3)
    T, w = rng.normal(size=(60, 2)) + 5, rng.uniform(0, 2, 60) * (rng.random(60) > 0.2)
    edges = [0, *sorted(cuts), 60]
    found = None
    for a, b in pairwise(edges):
        part = _piece_factors(Z[a:b], T[a:b], w[a:b])
        found = part if found is None else merge_centered(found, part)
    assert found is not None
    root = np.sqrt(w)[:, None]
    for centered, one in ((True, found), (False, with_means(found))):
        z, t = ((M - (w @ M / w.sum() if centered else 0.0)) * root for M in (Z, T))
        np.testing.assert_allclose(one.R.T @ one.R, z.T @ z, rtol=1e-9, atol=1e-9 * np.abs(z.T @ z).max())
        rest = t - z @ np.linalg.lstsq(z, t, rcond=None)[0]
        np.testing.assert_allclose(one.left, np.square(rest).sum(axis=0), rtol=1e-7)
        np.testing.assert_allclose(one.total, np.square(t).sum(axis=0), rtol=1e-9)


def test_a_selection_of_a_grown_store_has_the_error_of_the_data(grown: Path) -> None:
    found, expected = dsel.select(grown, k=4, method="forward"), dsel.select(X, Y, k=4, method="forward")
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-11)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-9)

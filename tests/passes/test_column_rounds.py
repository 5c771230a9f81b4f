"""Rounds on left-out rows without the Gram matrix: the same errors, wherever the data are and however they are cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
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
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.planning.plan import Plan, Resources
from dsel.planning.validation import validate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection, run_selection
from tests.search.cross_validation.test_greedy_rls import problem
from tests.search.cross_validation.without_gram import select_without_gram, without_gram
from tests.stores import make_store, regression

X, Y = regression(m=50, n=40)
CHUNKS = {"columns": (50, 12), "rows": (17, 40), "cells": (17, 12)}
REQUEST = SelectionRequest(k=8, method="greedy-rls", lam=1.0)


@pytest.fixture(params=list(CHUNKS))
def store(request: Any, tmp_path: Path) -> Path:
    return make_store(tmp_path / "data.zarr", X, Y, chunks=CHUNKS[request.param])


def run(store: Path, request: SelectionRequest = REQUEST, **context: Any) -> dsel.Selection:
    with without_gram():
        return run_selection(as_dataset(str(store)), request, RunContext(**context))


def errors_of(found: dsel.Selection) -> list[float]:
    return [row.error for row in found.path]


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(8, 30), n=st.integers(3, 9), N=st.integers(1, 2), seed=st.integers(0, 10**6),
    lam=st.sampled_from([0.01, 1.0, 20.0]), direction=st.sampled_from(["forward", "floating"]),
    options=st.sampled_from([
        {"method": "greedy-rls"}, {"method": "greedy-rls", "loss": "zero-one"},
        {"method": "greedy-rls", "preprocess": "none", "intercept": "column"},
        {"method": "kfold", "folds": 3, "repeats": 2}, {"method": "kfold", "folds": 4, "preprocess": "unit"},
    ]), weighted=st.booleans(), include=st.sampled_from([(), (2,)]),
)  # fmt: skip
def test_selections_and_errors_are_those_with_the_gram_matrix(
    m: int, n: int, N: int, seed: int, lam: float, direction: str, options: dict[str, Any], weighted: bool, include: Any
) -> None:
    A, B = problem(m, n, N, seed, options.get("loss") == "zero-one")
    weights = np.random.default_rng(seed).integers(0, 4, m).astype(float) + (np.arange(m) < 6) if weighted else None
    shared = {"k": min(n, 5), "lam": lam, "direction": direction, "sample_weight": weights, "include": include}
    with_gram = dsel.select(A, B, **shared, **options)
    kinds = [A] if options["method"] == "kfold" else [A, da.from_array(A, chunks=(5, n))]
    for data in kinds:
        found = select_without_gram(data, B, **shared, **options)
        assert errors_of(found) == pytest.approx(errors_of(with_gram), rel=1e-7)
        assert found.error == pytest.approx(with_gram.error, rel=1e-7)


def test_every_cut_of_a_store_gives_what_memory_gives(store: Path) -> None:
    expected = dsel.select(X, Y, k=8, method="greedy-rls", lam=1.0)
    found = run(store)
    assert found.indices == expected.indices
    assert errors_of(found) == pytest.approx(errors_of(expected), rel=1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_the_cache_on_disk_is_updated_block_by_block_and_changes_no_error(every: int, store: Path) -> None:
    plain = run(store)
    cached = run(store, REQUEST.model_copy(update={"options": {"rewrite_every": every}}))
    assert cached.indices == plain.indices
    assert errors_of(cached) == pytest.approx(errors_of(plain), rel=1e-10)
    assert cached.counts["cache_rewrites"] == 7 // every
    assert cached.passes == plain.passes - 8 + every + 1  # errors are read from X until the first rewrite


def test_the_plan_counts_what_is_read(store: Path) -> None:
    found = run(store)
    planned, measured = found.plan["planned"], found.plan["measured"]
    assert planned["passes"] == measured["passes"] == found.passes == 1 + 8 + 7 + 1
    assert planned["tasks"] == measured["tasks"]
    assert 0 <= planned["bytes_read"] - measured["bytes_read"] <= 0.02 * planned["bytes_read"]


@pytest.fixture(scope="module")
def workers() -> Iterator[Engine]:
    with local_cluster(2, "600MB") as client:
        yield DaskEngine(client)


def test_no_bit_depends_on_the_workers(store: Path, workers: Engine) -> None:
    def path(engine: Engine) -> Any:
        return run(store, REQUEST.model_copy(update={"k": 4}), engine=engine).path

    expected, found = path(THREADS), path(workers)
    assert [row.index for row in found] == [row.index for row in expected]
    assert [row.error for row in found] == [row.error for row in expected]


@pytest.mark.parametrize("options", [{}, {"rewrite_every": 2}])
def test_an_interrupted_search_continues_with_the_same_bits(
    options: dict[str, Any], store: Path, tmp_path: Path
) -> None:
    request = REQUEST.model_copy(update={"options": options})
    expected = run(store, request, scratch=tmp_path / "cache")
    states: list[Any] = []

    class Stopped(Exception):
        pass

    def on_slice(search: Any) -> None:
        states.append(json.loads(json.dumps(search.state())))
        if len(states) == 5:
            raise Stopped

    with pytest.raises(Stopped):
        run(store, request, scratch=tmp_path / "cache", on_slice=on_slice)
    found = run(store, request, scratch=tmp_path / "cache", state=states[-1])
    assert found.path == expected.path
    assert found.passes < expected.passes
    assert not (tmp_path / "cache").exists()


def test_a_lost_chunk_of_the_cache_is_computed_again(store: Path, tmp_path: Path) -> None:
    request = REQUEST.model_copy(update={"options": {"rewrite_every": 2}})
    expected, rounds = run(store, request), 0

    def on_slice(search: Any) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 5:
            (cache,) = (tmp_path / "cache").glob("cache-*")
            shutil.rmtree(cache / "R" / "c")

    found = run(store, request, scratch=tmp_path / "cache", on_slice=on_slice)
    assert found.indices == expected.indices
    assert errors_of(found) == pytest.approx(errors_of(expected), rel=1e-10)


@pytest.mark.parametrize("method", ["greedy-rls", "kfold"])
def test_lam_is_the_same_choice_without_the_gram_matrix(method: str) -> None:
    options = {"k": 4, "method": method, "lam_grid": [0.1, 1.0, 10.0, 100.0]}
    with_gram, found = dsel.select(X, Y, **options), select_without_gram(X, Y, **options)
    assert found.lam == with_gram.lam
    assert [error for _, error in found.counts["lam_grid"]] == pytest.approx(
        [error for _, error in with_gram.counts["lam_grid"]]
    )
    assert found.indices == with_gram.indices


def test_folds_of_full_rows_need_the_gram_matrix(tmp_path: Path) -> None:
    """The rows of a fold are in many chunks, so that no task can have a column of all of them."""
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=CHUNKS["rows"])
    found = run(store, SelectionRequest(k=4, method="kfold", lam=1.0))
    assert found.plan["representation"] == "gram"


def planned(m: int, n: int, method: str, chunks: tuple[int, int], memory: int, **options: Any) -> Plan:
    data = as_dataset(da.zeros((m, n), chunks=chunks), np.zeros(m))
    request = SelectionRequest(k=10, method=method, lam=1.0, options=options)
    resources = Resources(2, memory, memory)
    return plan_selection(validate(data, request), RunContext(), available=resources)


def test_a_million_columns_fit_workers_of_a_gibibyte() -> None:
    plan = planned(60, 1_000_000, "greedy-rls", (60, 1_000_000), 4 << 30)
    assert plan.representation == "column-blocks"
    assert not plan.lacks
    assert plan.client_bytes < 2 << 30  # O(m n), where the Gram matrix takes 7451 GiB
    assert plan.passes == 1 + 1  # workers keep the blocks: they are read once, and once more for the check


def test_tall_data_keep_the_gram_matrix() -> None:
    plan = planned(100_000, 1200, "greedy-rls", (2000, 1200), 4 << 30)
    assert plan.representation == "gram"

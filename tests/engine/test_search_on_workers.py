"""Where each method runs its iterations. `tests/jobs/test_same_front.py` shows that the fronts are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

from dsel.config.request import SelectionRequest
from dsel.data.dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.shared_tree import SubtreeEstimate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection
from tests.on_workers import CountTasks, counting_tasks, hold_column_blocks
from tests.search.exact.cases import hard_case
from tests.stores import make_store, regression

X, Y = regression(m=300, n=18)


def distance(S: Any) -> float:
    """Return a criterion that is cheap and is not f."""
    return float(np.abs(Y[:, 0] - X[:, list(S)].sum(axis=1)).mean())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:  # type: ignore[no-untyped-call]
        yield client


@pytest.fixture
def counted(cluster: LocalCluster) -> Iterator[CountTasks]:
    with counting_tasks(cluster) as plugin:
        yield plugin


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "data.zarr", X, Y, chunks=(100, 6))


@pytest.fixture
def column_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have data kept in blocks of columns, as wide data are."""
    hold_column_blocks(monkeypatch.setattr)


def select(client: Client | None, data: Any, method: str, criterion: Any = None, **options: Any) -> Selection:
    request = SelectionRequest(k=4, method=method, seed=3, criterion=criterion, options=options)
    dataset = as_dataset(str(data)) if isinstance(data, Path) else as_dataset(*data)
    context = RunContext() if client is None else RunContext(DaskEngine(client))
    return run_selection(dataset, request, context)


@pytest.mark.parametrize(("method", "targets"), [("poss", True), ("pposs", False)])
@pytest.mark.usefixtures("column_blocks")
def test_wide_data_are_searched_on_workers_that_share_gram_rows(
    method: str, targets: bool, client: Client, cluster: LocalCluster, counted: CountTasks, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    wide = rng.standard_normal((40, 60)) + rng.standard_normal((40, 1))
    target = wide[:, :6] @ rng.standard_normal((6, 1)) + rng.standard_normal((40, 1))
    data = as_dataset(str(make_store(tmp_path / "wide.zarr", wide, target if targets else None, chunks=(40, 30))))
    options = {"slices": 6, "slice_iterations": 512, "iterations": 12_000}
    request = SelectionRequest(k=5, method=method, seed=3, options=options, include=(7,), exclude=(9,))
    here = run_selection(data, request)
    for workers in (1, 3):
        cluster.scale(workers)  # type: ignore[no-untyped-call]
        client.wait_for_workers(workers)
        folder = tmp_path / f"with-{workers}"
        there = run_selection(data, request, RunContext(DaskEngine(client), shared_folder=folder))
        assert counted.since_last_call() >= 24
        assert (there.indices, there.front, there.trace, there.iterations) == (
            here.indices, here.front, here.trace, here.iterations,
        )  # fmt: skip
        assert there.counts["row_passes"] <= here.counts["row_passes"] + 2
        assert there.counts["rows_fetched"] <= 60
        assert not list(folder.glob("*"))  # the rows are removed at the end
    cluster.scale(2)  # type: ignore[no-untyped-call]


def answer(selection: Selection) -> tuple[Any, ...]:
    counts = {name: n for name, n in selection.counts.items() if name in ("evaluated", "accepted", "archive", "slices")}
    return selection.indices, selection.front, selection.trace, selection.iterations, selection.ended, counts


@pytest.mark.parametrize(
    ("method", "criterion", "options", "where"),
    [
        ("poss", None, {}, "client"),  # it takes milliseconds
        ("poss", None, {"search_on": "workers"}, "workers"),
        ("poss", distance, {"iterations": 800}, "workers"),
        ("poss", distance, {"iterations": 800, "search_on": "client"}, "client"),
        ("pposs", None, {}, "client"),
        ("pposs-asy", None, {"iterations": 6000}, "workers"),
        ("pposs-asy", None, {"iterations": 6000, "search_on": "client"}, "client"),
        ("astar", None, {}, "client"),
        ("forward", None, {}, "client"),
    ],
)
def test_tasks_on_workers_are_where_the_plan_says(
    method: str, criterion: Any, options: dict[str, Any], where: str, client: Client, counted: CountTasks, store: Path
) -> None:
    found = select(client, store, method, criterion, **options)
    assert found.plan is not None
    assert found.plan["search_on"] == where
    assert (counted.since_last_call() > 0) == (where == "workers")


def test_a_rerun_of_what_the_result_records_is_the_same_without_a_cluster(client: Client, store: Path) -> None:
    there = select(client, store, "poss", distance, iterations=600)
    recorded = {name: there.request.options[name] for name in ("slices", "slice_iterations", "iterations")}
    assert recorded == {"slices": 6, "slice_iterations": 1, "iterations": 600}
    assert answer(select(None, store, "poss", distance, **recorded)) == answer(there)


def test_branch_and_bound_proves_the_same_on_workers(client: Client, counted: CountTasks) -> None:
    here = BranchAndBound(hard_case(3, n=40), 7)
    factor = np.linalg.cholesky(here.objective.K).T
    assert here.objective.cross is not None
    target = np.linalg.solve(factor.T, here.objective.cross)
    rest = np.zeros((1, target.shape[1]))
    rest[0, 0] = np.sqrt(here.objective.c - np.square(target).sum())  # what no column explains
    data = np.vstack([factor, np.zeros(40)]), np.vstack([target, rest])
    found = {}
    for where in ("client", "auto"):
        request = SelectionRequest(
            k=7, method="branch-and-bound", preprocess="none", options={"search_on": where}
        )  # fmt: skip
        found[where] = run_selection(as_dataset(*data), request, RunContext(DaskEngine(client)))
        assert found[where].counts["proven"]
        assert (counted.since_last_call() > 0) == (where == "auto")
    assert sorted(found["auto"].indices) == sorted(found["client"].indices)
    assert found["auto"].counts["bound"] == pytest.approx(found["client"].counts["bound"])


def test_subtrees_of_relaxations_are_explored_on_workers(
    client: Client, counted: CountTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsel.search.exact.perspective_tree.search._ALONE_SECONDS", 0.0)
    monkeypatch.setattr(SubtreeEstimate, "budget", lambda self, workers: 8)
    rng = np.random.default_rng(2)
    columns = rng.standard_normal((60, 20)) @ (np.eye(20) + rng.standard_normal((20, 20)) / 2)
    data = columns, columns[:, :8].sum(axis=1) + 30 * rng.standard_normal(60)
    here = select(None, data, "branch-and-bound", bound="perspective")
    there = select(client, data, "branch-and-bound", bound="perspective")
    assert counted.since_last_call() > 2
    assert (there.indices, there.ended, there.error) == (here.indices, "proven", here.error)
    assert (there.counts["bound"], there.counts["proven"]) == (here.counts["bound"], True)

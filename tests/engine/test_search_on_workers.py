"""Where each method runs its iterations, and that the answer does not depend on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dsel.objective.on_demand as on_demand
import dsel.planning.plan as planning
from dsel.config.request import SelectionRequest
from dsel.data.dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.planning.representations.base import ProblemShape, Representation, Resources
from dsel.planning.representations.choice import candidates
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection
from tests.search.exact.cases import hard_case
from tests.stores import make_store, regression

X, Y = regression(m=300, n=18)
#: Names of tasks of searches, without those of passes.
SEARCH = ("dsel", "explore_task")


def distance(S: Any) -> float:
    """Return a criterion that is cheap and is not f."""
    return float(np.abs(Y[:, 0] - X[:, list(S)].sum(axis=1)).mean())


class CountTasks(SchedulerPlugin):
    """Counts the tasks that workers have finished, by the first part of their keys."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task that a worker has finished."""
        if start == "processing" and finish == "memory":
            self.done[str(key).split("-")[0]] += 1

    @property
    def of_search(self) -> int:
        """Number of tasks of a search since the last look."""
        found = sum(self.done[name] for name in SEARCH)
        self.done.clear()
        return found


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
    plugin = CountTasks()
    cluster.scheduler.add_plugin(plugin, name="count")  # type: ignore[no-untyped-call]
    yield plugin
    cluster.scheduler.remove_plugin("count")  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "data.zarr", X, Y, chunks=(100, 6))


@pytest.fixture
def column_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have data kept in blocks of columns, as wide data are."""

    def choose(problem: ProblemShape, available: Resources) -> Representation:
        return next(one for one in candidates(problem, available) if one.name == "column-blocks")

    monkeypatch.setattr(planning, "choose", choose)
    monkeypatch.setattr(on_demand, "FEW_COLUMNS", 8)


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
        assert counted.of_search >= 24
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


SLICES = {"slices": 6, "slice_iterations": 96, "iterations": 6000}
SEARCHES = {
    "poss": ("poss", None, SLICES),
    "poss, published": ("poss", None, {**SLICES, "warm_start": "none", "exchange_every": 0}),
    "pposs": ("pposs", None, {**SLICES, "processors": 8}),
    "poss, criterion": ("poss", distance, {"slices": 20, "iterations": 800}),
    "pposs, criterion": ("pposs", distance, {"processors": 20, "iterations": 800}),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_the_answer_is_that_of_this_process_on_any_number_of_workers(
    search: str, client: Client, cluster: LocalCluster, counted: CountTasks, store: Path
) -> None:
    method, criterion, options = SEARCHES[search]
    here = select(None, store, method, criterion, search_on="client", **options)
    assert here.plan is not None
    assert here.plan["search_on"] == "client"
    for workers in (1, 2, 4):
        cluster.scale(workers)  # type: ignore[no-untyped-call]
        client.wait_for_workers(workers)
        there = select(client, store, method, criterion, **options)
        assert answer(there) == answer(here)
        assert there.plan is not None
        assert there.plan["search_on"] == "workers"
        assert counted.of_search >= (20 if criterion is None else 5)
    cluster.scale(2)  # type: ignore[no-untyped-call]


class Stopped(Exception):
    """The process of the search is gone."""


class Trouble:
    """Loses a worker after the first slice or round, and stops the search after the third one."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._slices = cluster, 0
        self.state: dict[str, Any] | None = None

    def __call__(self, search: Any) -> None:
        self._slices += 1
        if self._slices == 1:
            name, worker = self._cluster.workers.popitem()
            del self._cluster.worker_spec[name]  # so that it can be scaled again
            self._cluster.sync(worker.close)  # type: ignore[no-untyped-call]
        if self._slices == 3:
            self.state = json.loads(json.dumps(search.state()))
            raise Stopped


@pytest.mark.parametrize("representation", ["gram", "column-blocks"])
@pytest.mark.parametrize("search", ["poss", "pposs", "poss, criterion", "pposs, criterion"])
def test_a_lost_worker_and_an_interruption_do_not_show(
    search: str, representation: str, client: Client, cluster: LocalCluster, store: Path, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if representation == "column-blocks":
        request.getfixturevalue("column_blocks")
    method, criterion, options = SEARCHES[search]
    asked = SelectionRequest(
        k=4, method=method, seed=3, criterion=criterion, options={**options, "search_on": "workers"}
    )
    here = run_selection(as_dataset(str(store)), asked)
    assert here.plan is not None
    assert here.plan["representation"] == representation
    trouble = Trouble(cluster)
    cluster.scale(2)  # type: ignore[no-untyped-call]
    client.wait_for_workers(2)
    context = RunContext(DaskEngine(client), shared_folder=tmp_path / "shared", on_slice=trouble)
    with pytest.raises(Stopped):
        run_selection(as_dataset(str(store)), asked, context)
    again = replace(context, on_slice=None, state=trouble.state)
    there = run_selection(as_dataset(str(store)), asked, again)
    assert (there.indices, there.front, there.iterations) == (here.indices, here.front, here.iterations)


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
    assert (counted.of_search > 0) == (where == "workers")


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
        assert (counted.of_search > 0) == (where == "auto")
    assert sorted(found["auto"].indices) == sorted(found["client"].indices)
    assert found["auto"].counts["bound"] == pytest.approx(found["client"].counts["bound"])


def test_subtrees_of_relaxations_are_explored_on_workers(
    client: Client, counted: CountTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsel.search.exact.perspective_tree.search._ALONE_SECONDS", 0.0)
    monkeypatch.setattr("dsel.engine.parallel_proof.FIRST_SECONDS", 0.02)
    rng = np.random.default_rng(2)
    columns = rng.standard_normal((60, 20)) @ (np.eye(20) + rng.standard_normal((20, 20)) / 2)
    data = columns, columns[:, :8].sum(axis=1) + 30 * rng.standard_normal(60)
    here = select(None, data, "branch-and-bound", bound="perspective")
    there = select(client, data, "branch-and-bound", bound="perspective")
    assert counted.of_search > 2
    assert (there.indices, there.ended, there.error) == (here.indices, "proven", here.error)
    assert (there.counts["bound"], there.counts["proven"]) == (here.counts["bound"], True)

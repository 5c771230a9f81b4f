"""Where each method runs its iterations. `tests/jobs/test_same_front.py` shows that the fronts are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.search.exact.astar import on_workers as astar
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.trees_on_workers import SubtreeEstimate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection
from tests.on_workers import CountTasks, counting_tasks, hold_column_blocks
from tests.search.exact.cases import hard_case
from tests.stores import make_store, regression

X, Y = regression(m=300, n=18)
WORKERS = 3


def distance(S: Any) -> float:
    """Return a criterion that is cheap and is not f."""
    return float(np.abs(Y[:, 0] - X[:, list(S)].sum(axis=1)).mean())


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client


@pytest.fixture
def counted(client: Client) -> Iterator[CountTasks]:
    with counting_tasks(client.cluster) as plugin:
        yield plugin


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "data.zarr", X, Y, chunks=(100, 6))


def select(client: Client | None, data: Any, method: str, criterion: Any = None, **options: Any) -> Selection:
    request = SelectionRequest(k=4, method=method, seed=3, criterion=criterion, options=options)
    dataset = as_dataset(str(data)) if isinstance(data, Path) else as_dataset(*data)
    context = RunContext() if client is None else RunContext(DaskEngine(client))
    return run_selection(dataset, request, context)


#: Methods by how the Gram matrix is held, or by what takes the place of f. `test_same_front` has more of pposs.
KINDS = {
    "gram": ("poss", "pposs-asy"), "wide": ("poss", "pposs-asy"), "wide, no folder": ("poss", "pposs"),
    "criterion": ("poss", "pposs-asy"), "groups": ("poss", "pposs"),
}  # fmt: skip
rng = np.random.default_rng(5)
WIDE = rng.standard_normal((40, 60)) + rng.standard_normal((40, 1))
TARGET = WIDE[:, :6] @ rng.standard_normal((6, 1)) + rng.standard_normal((40, 1))


def run(kind: str, method: str, targets: bool, store: Path, context: RunContext, **options: Any) -> Selection:
    """Select from a small problem of one kind."""
    more: dict[str, Any] = {}
    if kind == "criterion":
        more["criterion"], options = distance, {"iterations": 300, **options}
    elif kind == "groups":
        more["groups"], options = [[0, 1, 2], [3, 4], [5, 6, 7]], {"iterations": 300, **options}
    elif kind.startswith("wide"):
        more, options = {"include": (7,), "exclude": (9,)}, {"iterations": 3_000, **options}
    request = SelectionRequest(k=4, method=method, seed=3, options=options, **more)
    return run_selection(as_dataset(str(store)), request, context)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, bool], Path]:
    """Return stores by whether they are wide and have targets."""
    folder = tmp_path_factory.mktemp("stores")
    data = {False: (X, Y, (100, 6)), True: (WIDE, TARGET, (40, 30))}
    return {
        (wide, targets): make_store(folder / f"{wide}-{targets}", columns, target if targets else None, chunks=chunks)
        for wide, (columns, target, chunks) in data.items()
        for targets in (False, True)
    }


@pytest.mark.parametrize(
    ("kind", "targets", "method"),
    [(kind, True, method) for kind, methods in KINDS.items() for method in methods]
    + [("gram", False, "pposs"), ("wide", False, "poss")],
)
def test_by_default_every_pareto_search_runs_as_futures_with_the_bits_of_one_process(
    kind: str, targets: bool, method: str, stores: dict[tuple[bool, bool], Path],
    client: Client, counted: CountTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if kind.startswith("wide"):
        hold_column_blocks(monkeypatch.setattr)
    store = stores[kind.startswith("wide"), targets]
    here = run(kind, method, targets, store, RunContext())
    assert here.plan is not None
    assert (here.plan["search_on"], here.counts["futures"]) == ("client", 0)
    folder = None if "no folder" in kind else tmp_path / "shared"
    there = run(kind, method, targets, store, RunContext(DaskEngine(client), shared_folder=folder))
    assert there.plan is not None
    assert there.plan["search_on"] == "workers"
    assert counted.since_last_call() == there.counts["futures"] >= WORKERS
    assert 0.0 < there.counts["utilisation"] <= 1.0
    assert (there.iterations, there.counts["form"]) == (here.iterations, here.counts["form"])
    if method == "pposs-asy":  # as published: what a task finds depends on the tasks that have arrived
        assert there.error <= 1.5 * here.error or kind in ("criterion", "groups")
    else:
        assert answer(there) == answer(here)
    if kind == "wide":
        assert there.counts["rows_fetched"] <= 60
        assert not list(tmp_path.glob("shared/*"))  # the rows are removed at the end


def answer(selection: Selection) -> tuple[Any, ...]:
    counts = {name: n for name, n in selection.counts.items() if name in ("evaluated", "accepted", "archive", "slices")}
    return selection.indices, selection.front, selection.trace, selection.iterations, selection.ended, counts


@pytest.mark.parametrize(
    ("method", "options", "where"),
    [
        ("poss", {"search_on": "client"}, "client"),
        ("pposs", {"search_on": "client"}, "client"),
        ("pposs-asy", {"search_on": "client"}, "client"),
        ("poss", {"max_in_flight": 1}, "workers"),
        ("pposs", {"max_in_flight": 1}, "workers"),
        ("pposs", {"max_in_flight": 1, "search_on": "workers", "iterations": 320}, "workers"),
        ("astar", {}, "workers"),
        ("astar", {"search_on": "client"}, "client"),
        ("forward", {}, "client"),
    ],
)
def test_tasks_on_workers_are_where_the_plan_says(
    method: str, options: dict[str, Any], where: str, client: Client, counted: CountTasks, store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(astar, "_ALONE", 0)
    found = select(client, store, method, **options)
    assert found.plan is not None
    assert found.plan["search_on"] == where
    assert (counted.since_last_call() > 0) == (where == "workers")


def test_the_offspring_of_each_round_are_divided_among_the_workers(client: Client, store: Path) -> None:
    """The published PPOSS: several tasks for each round, and the archive of its compiled rounds."""
    published = {"max_in_flight": 1, "iterations": 640, "processors": 64}
    there = select(client, store, "pposs", search_on="workers", **published)
    here = select(client, store, "pposs", search_on="client", warm_start="none", exchange_every=0, **published)
    assert there.counts["futures"] > 10
    assert there.counts["form"] == here.counts["form"] == "PPOSS: rounds of 64 offspring"
    assert there.indices == here.indices
    assert [point.indices for point in there.front] == [point.indices for point in here.front]


def test_a_rerun_of_what_the_result_records_is_the_same_without_a_cluster(client: Client, store: Path) -> None:
    there = select(client, store, "poss", distance, iterations=600)
    recorded = {name: there.request.options[name] for name in ("max_in_flight", "task_iterations", "iterations")}
    assert recorded == {"max_in_flight": 6, "task_iterations": 1, "iterations": 600}
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
        assert found[where].certificate[-1]["proven"]
        assert (counted.since_last_call() > 0) == (where == "auto")
    assert sorted(found["auto"].indices) == sorted(found["client"].indices)
    assert found["auto"].certificate[-1]["bound"] == pytest.approx(found["client"].certificate[-1]["bound"])


def test_subtrees_of_relaxations_are_explored_on_workers(
    client: Client, counted: CountTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsel.search.exact.perspective.perspective_tree._ALONE_SECONDS", 0.0)
    monkeypatch.setattr(SubtreeEstimate, "budget", lambda self, workers: 8)
    rng = np.random.default_rng(2)
    columns = rng.standard_normal((60, 20)) @ (np.eye(20) + rng.standard_normal((20, 20)) / 2)
    data = columns, columns[:, :8].sum(axis=1) + 30 * rng.standard_normal(60)
    here = select(None, data, "branch-and-bound", bound="perspective")
    there = select(client, data, "branch-and-bound", bound="perspective")
    assert counted.since_last_call() > 2
    assert (there.indices, there.ended, there.error) == (here.indices, "proven", here.error)
    assert (there.certificate[-1]["bound"], there.certificate[-1]["proven"]) == (here.certificate[-1]["bound"], True)

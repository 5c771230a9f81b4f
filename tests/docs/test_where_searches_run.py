"""The table of the page on clusters says where each method runs on each kind of data. Small real runs agree with it."""

from __future__ import annotations

import re
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
from dsel.search.registry import METHODS
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.on_workers import CountTasks, counting_tasks, hold_column_blocks
from tests.search.exact.cases import hard_case
from tests.stores import make_store

PAGE = Path(__file__).parents[2] / "deploy" / "docs" / "how-to" / "clusters.md"
PLACES = {"futures": True, "this process": False}
K = 3
rng = np.random.default_rng(5)
X = rng.standard_normal((40, 60)) + rng.standard_normal((40, 1))
Y = X[:, :6] @ rng.standard_normal((6, 1)) + rng.standard_normal((40, 1))


def rows() -> list[tuple[str, dict[str, Any], str, str]]:
    """Return method, options, data and place of each cell of the table."""
    found = []
    for line in PAGE.read_text().split("| the search runs in |")[1].split("\n\n")[0].splitlines()[2:]:
        names, data, place = (cell.strip() for cell in line.strip("|").split("|")[:3])
        named, _, options = names.partition(" with ")
        asked = {name: int(value) if value.isdigit() else value for name, value in re.findall(r"(\w+): (\w+)", options)}
        found += [
            (method, asked, kind, place) for method in re.findall(r"`([\w-]+)`", named) for kind in data.split(", ")
        ]
    return found


ROWS = rows()


def of_least_sum(S: tuple[int, ...]) -> float:
    return float(sum(S))


def parity(S: tuple[int, ...]) -> int:
    return S[0] % 2


def hard() -> tuple[Any, Any]:
    """Return data for which trees need thousands of nodes."""
    objective = hard_case(3, n=40)
    assert objective.cross is not None
    factor = np.linalg.cholesky(objective.K).T
    target = np.linalg.solve(factor.T, objective.cross)
    left = np.zeros((1, target.shape[1]))
    left[0, 0] = np.sqrt(objective.c - np.square(target).sum())  # what no column explains
    return np.vstack([factor, np.zeros(40)]), np.vstack([target, left])


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
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the same small data with and without targets, and data that trees need thousands of nodes for."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        name: make_store(folder / name, *data, chunks=(data[0].shape[0], 30))
        for name, data in {"Y": (X, Y), "Y = X": (X, None), "hard": hard()}.items()
    }


@pytest.mark.parametrize(("method", "options", "data", "place"), ROWS, ids=lambda value: str(value))
def test_a_search_has_futures_where_the_table_says_so(
    method: str, options: dict[str, Any], data: str, place: str, client: Client, counted: CountTasks,
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(astar, "_ALONE", 0)  # the first nodes are expanded in this process
    asked: dict[str, Any] = {"k": K, "lam": 1.0 if METHODS[method].uses_rows else 0.0}
    name, options = "Y = X" if METHODS[method].unsupervised_only else "Y", dict(options)
    if "iterations" in METHODS[method].options.model_fields:
        options["iterations"] = 200 if data in ("criterion", "isolation function", "groups") else 6_000
    if method == "branch-and-bound":
        name, asked = "hard", {"k": 7, "preprocess": "none"}
    if method == "exhaustive":
        asked["k"] = 2
    if data == "wide":
        hold_column_blocks(monkeypatch.setattr)
    elif data == "criterion":
        asked["criterion"] = of_least_sum
    elif data == "isolation function":
        options["isolation"] = parity
    elif data == "groups":
        asked["groups"] = [[2 * j, 2 * j + 1] for j in range(30)]
    request = SelectionRequest(method=method, seed=3, options=options, **asked)
    found = run_selection(as_dataset(str(stores[name])), request, RunContext(DaskEngine(client)))
    tasks = counted.since_last_call()
    assert (tasks > 0) == PLACES[place]
    assert found.counts.get("futures", tasks) == tasks
    assert found.plan is not None
    assert (found.plan["search_on"] == "workers") == PLACES[place]


def test_every_method_is_in_the_table() -> None:
    assert {method for method, *_ in ROWS} == set(METHODS)
    cells = [(method, tuple(options), data) for method, options, data, _ in ROWS]
    assert len(set(cells)) == len(cells)

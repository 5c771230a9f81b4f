"""POSS and PPOSS find the same front wherever their iterations run, and whichever process is killed."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from distributed import Client, LocalCluster, Worker

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.jobs.checkpoint import Checkpoints
from dsel.search.journal import read_journal
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection
from tests.cli_runner import LIMIT, call
from tests.on_workers import CountTasks, counting_tasks, hold_column_blocks
from tests.stores import make_store, regression

#: Processes that are killed are forked from one that has imported everything.
FORKS = multiprocessing.get_context("forkserver")


def distance(S: Any, data: Any) -> float:
    """Return a criterion that is cheap and is not f."""
    return float(np.abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())


@dataclass(frozen=True)
class Search:
    """A method with its options, and its evaluations before the first checkpoint."""

    method: str
    options: dict[str, Any]
    evaluations: int
    criterion: bool = False

    def request(self, **more: Any) -> SelectionRequest:
        criterion = distance if self.criterion else None
        return SelectionRequest(k=4, method=self.method, seed=3, criterion=criterion, options={**self.options, **more})


SLICES = {"max_in_flight": 4, "task_iterations": 48, "iterations": 768, "warm_start": "none"}
SEARCHES = {
    "poss": Search("poss", SLICES, 200),
    "pposs": Search("pposs", {**SLICES, "processors": 8}, 200),
    "poss, criterion": Search("poss", {"max_in_flight": 20, "iterations": 300}, 40, criterion=True),
    "pposs, criterion": Search("pposs", {"processors": 20, "iterations": 300}, 40, criterion=True),
}
#: Every search with the Gram matrix. A criterion of the user does not ask for the representation.
CASES = {
    f"{kind}-{name}": (search, kind)
    for kind in ("gram", "column-blocks")
    for name, search in SEARCHES.items()
    if kind == "gram" or not search.criterion
}
each_search = pytest.mark.parametrize(("search", "store"), CASES.values(), ids=CASES, indirect=["store"])


class Cluster(LocalCluster):
    """A cluster that other processes join: Dask raises KeyError where one of them leaves before it was noticed."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        with suppress(KeyError):
            super()._update_worker_status(op, msg)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with Cluster(  # type: ignore[no-untyped-call]
        n_workers=0, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:  # type: ignore[no-untyped-call]
        yield client


@pytest.fixture
def scale(cluster: LocalCluster, client: Client) -> Callable[[int], None]:
    """Return a function that sets the number of workers, and returns when they are there."""

    def scale(workers: int) -> None:
        cluster.scale(workers)  # type: ignore[no-untyped-call]
        client.sync(cluster._correct_state)  # type: ignore[no-untyped-call]
        if workers:
            client.wait_for_workers(workers)

    return scale


@pytest.fixture
def counted(cluster: LocalCluster) -> Iterator[CountTasks]:
    with counting_tasks(cluster) as plugin:
        yield plugin


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(5)
    wide = rng.standard_normal((20, 24)) + rng.standard_normal((20, 1))
    target = wide[:, :6] @ rng.standard_normal((6, 1)) + rng.standard_normal((20, 1))
    return {
        "gram": make_store(folder / "gram.zarr", *regression(m=300, n=18), chunks=(100, 6)),
        "column-blocks": make_store(folder / "wide.zarr", wide, target, chunks=(20, 12)),
    }


@pytest.fixture
def store(request: pytest.FixtureRequest, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store; while the test runs, it is searched with the representation that it is for."""
    if request.param == "column-blocks":
        hold_column_blocks(monkeypatch.setattr)
    return stores[request.param]


@cache
def in_this_process(name: str, store: Path) -> Selection:
    """Return what a search finds without a cluster."""
    found = run_selection(as_dataset(str(store)), SEARCHES[name].request(search_on="client"))
    assert found.plan is not None
    assert found.plan["search_on"] == "client"
    return found


def expected(search: Search, store: Path) -> tuple[Any, ...]:
    return answer(in_this_process(next(name for name, one in SEARCHES.items() if one is search), store))


def answer(selection: Selection) -> tuple[Any, ...]:
    counts = {name: n for name, n in selection.counts.items() if name in ("evaluated", "accepted", "archive", "slices")}
    return (
        selection.indices, selection.front, selection.trace, selection.iterations, selection.ended, selection.error,
        selection.criterion, counts,
    )  # fmt: skip


def on_workers(search: Search, store: Path, client: Client, folder: Path) -> Selection:
    """Return what a search finds on the workers of the cluster, as its plan says."""
    context = RunContext(DaskEngine(client), shared_folder=folder)
    found = run_selection(as_dataset(str(store)), search.request(search_on="workers"), context)
    assert found.plan is not None
    assert found.plan["search_on"] == "workers"
    return found


@each_search
def test_on_one_and_four_workers(
    search: Search, store: Path, client: Client, scale: Callable[[int], None], counted: CountTasks, tmp_path: Path
) -> None:
    for workers in (1, 4):
        scale(workers)
        counted.since_last_call()
        there = on_workers(search, store, client, tmp_path)
        assert answer(there) == expected(search, store)
        assert counted.since_last_call() == there.counts["tasks"] >= there.counts.get("slices", 5)


def one_worker(address: str) -> None:
    """Be a worker."""

    async def serve() -> None:
        async with Worker(address, nthreads=1, dashboard_address=None) as worker:  # type: ignore[no-untyped-call]
            await worker.finished()

    asyncio.run(serve())


@each_search
def test_with_a_worker_killed_and_another_one_in_its_place(
    search: Search, store: Path, cluster: LocalCluster, client: Client, scale: Callable[[int], None],
    counted: CountTasks, tmp_path: Path,
) -> None:  # fmt: skip
    scale(0)
    doomed = FORKS.Process(target=one_worker, args=(cluster.scheduler_address,))
    doomed.start()
    counted.then[2] = doomed.kill  # while it has more tasks
    client.wait_for_workers(1)

    def replace() -> None:
        doomed.join(LIMIT)
        cluster.scale(1)  # type: ignore[no-untyped-call]

    replacing = threading.Thread(target=replace)
    replacing.start()
    there = on_workers(search, store, client, tmp_path)
    replacing.join()
    assert doomed.exitcode == -signal.SIGKILL
    assert answer(there) == expected(search, store)
    assert len(counted.done) == 2


def job_that_dies(job: Path, wide: bool) -> None:
    """Be `dsel run`, killed after its first checkpoint."""
    plain = Checkpoints._save

    def save(self: Checkpoints, search: Any) -> None:
        plain(self, search)
        os.kill(os.getpid(), signal.SIGKILL)

    Checkpoints._save = save  # type: ignore[method-assign]
    if wide:
        hold_column_blocks(setattr)
    sys.argv = ["dsel", "run", str(job)]
    dsel.cli.main()


@pytest.mark.slow
@each_search
def test_resumed_after_the_job_was_killed(
    search: Search, store: Path, cluster: LocalCluster, scale: Callable[[int], None], counted: CountTasks,
    tmp_path: Path,
) -> None:  # fmt: skip
    scale(2)
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    description = {
        "store": str(store), "k": 4, "method": search.method, "seed": 3,
        "criterion": f"{__name__}:distance" if search.criterion else None,
        "options": {**search.options, "search_on": "workers"}, "checkpoint_evaluations": search.evaluations,
        "checkpoint_seconds": 1e6, "cluster": {"scheduler_file": str(tmp_path / "scheduler.json")},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(description))
    first = FORKS.Process(target=job_that_dies, args=(tmp_path / "job.yaml", store.name == "wide.zarr"))
    first.start()
    first.join(LIMIT)
    assert first.exitcode == -signal.SIGKILL
    assert counted.since_last_call() > 0
    folder = tmp_path / "job.result"
    saved = json.loads((folder / "checkpoint.json").read_text())["state"]["iteration"]
    assert 0 < saved < search.options["iterations"]
    code, _, err = call("resume", folder)
    assert code == 0, err
    assert counted.since_last_call() > 0
    resumed = [event["iterations"] for event in read_journal(folder / "journal.jsonl") if event["event"] == "resumed"]
    assert resumed == [saved]
    assert answer(dsel.open_selection(folder)) == expected(search, store)

"""Greedy RLS as a job: one read of X a round, nothing written, the same bits on any workers, killed or not."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.config.job import read_job
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.engine_protocol import THREADS
from dsel.errors import OptionError, OutputError
from dsel.jobs.runner import plan_job, run_job
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.gram import gram_statistics
from dsel.search.cross_validation.rounds import GreedyRls
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.cli_runner import call
from tests.jobs.test_runner import write_job
from tests.no_workers import exit_code_after
from tests.stores import count_reads, make_store, reads_so_far, regression

X, Y = regression(m=3000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "data.zarr", X, Y, chunks=(300, 24))


def files_under(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_each_round_reads_every_chunk_once_writes_nothing_and_no_bit_depends_on_the_workers(store: Path) -> None:
    dataset = as_dataset(str(store))
    statistics = gram_statistics(dataset)
    before = files_under(store.parent)
    paths = []
    for workers in (0, 2):
        if not workers:
            paths.append(rounds_of(dataset, statistics, THREADS))
            continue
        with local_cluster(workers, "600MB") as client:
            client.run(count_reads)
            paths.append(rounds_of(dataset, statistics, DaskEngine(client)))
            reads: dict[str, int] = {}
            for counted in client.run(reads_so_far).values():
                for key, times in counted.items():
                    reads[key] = reads.get(key, 0) + times
        of_x = {key: times for key, times in reads.items() if key.startswith("X/c/")}
        assert of_x == {f"X/c/{i}/0": 6 for i in range(10)}
    assert paths[0] == paths[1]  # bit for bit
    assert files_under(store.parent) == before


def rounds_of(dataset: Any, statistics: Any, engine: Any) -> Any:
    rows = DatasetRows(dataset, statistics, "standardize", engine=engine)
    search = GreedyRls(rows.problem(1.0), 6, range(24))
    while (round := search.ask()) is not None:
        search.tell(rows.errors(round))
    assert rows.passes == 6
    return search.path


def test_the_job_counts_its_passes_and_gives_what_select_gives(store: Path) -> None:
    job = write_job(store, method="greedy-rls", lam=1.0, k=6)
    code, out, err = call("run", job)
    assert code == 0, err
    found = dsel.open_selection(store.parent / "job.result")
    expected = dsel.select(X, Y, k=6, method="greedy-rls", lam=1.0)
    assert found.indices == expected.indices
    assert found.passes == 1 + 6 + 1
    assert [p.error for p in found.path] == pytest.approx([p.error for p in expected.path], rel=1e-10)
    assert "Steps, by the error on left-out rows" in out


@pytest.mark.slow
@pytest.mark.usefixtures("no_workers")
def test_killed_and_resumed_it_continues_at_the_last_finished_round(store: Path) -> None:
    held_out = make_store(store.parent / "held.zarr", X[:200], Y[:200], chunks=(100, 24))
    options = {"lam_grid": [0.1, 1.0, 10.0], "held_out": str(held_out), "direction": "floating"}
    settings = SelectionRequest(k=14, method="greedy-rls", options=options)
    expected = run_selection(as_dataset(str(store)), settings, RunContext())
    job = write_job(store, method="greedy-rls", k=14, options={**options, "held_out": "held.zarr"})
    checkpoint = store.parent / "job.result" / "checkpoint.json"

    def rounds() -> int:
        return len(json.loads(checkpoint.read_text())["state"]["path"]) if checkpoint.exists() else 0

    reached = 0
    for number, saves in ((signal.SIGKILL, 3), (signal.SIGTERM, 4)):
        assert exit_code_after(number, saves, "run", job) == (75 if number == signal.SIGTERM else -9)
        assert rounds() == reached + saves
        reached = rounds()
    code, _, err = call("resume", store.parent / "job.result")
    assert code == 0, err
    found = dsel.open_selection(store.parent / "job.result")
    assert found.path == expected.path  # bit for bit
    assert found.indices == expected.indices
    assert found.lam == expected.lam
    assert found.counts["rounds"] == expected.counts["rounds"]
    assert found.counts["rounds_of_this_run"] <= expected.counts["rounds_of_this_run"] - reached
    assert not checkpoint.exists()


@pytest.mark.usefixtures("no_workers")
def test_other_held_out_rows_are_another_job(store: Path) -> None:
    make_store(store.parent / "held.zarr", X[:200], Y[:200], chunks=(100, 24))
    job = write_job(store, method="greedy-rls", lam=1.0, k=2, options={"held_out": "held.zarr"})
    run_job(read_job(job))
    make_store(store.parent / "held.zarr", X[200:300], Y[200:300], chunks=(100, 24))
    with pytest.raises(OutputError, match="held-out store was written to since"):
        run_job(read_job(job))


@pytest.mark.usefixtures("no_workers")
def test_interrupted_it_keeps_the_cache_and_finished_it_leaves_none(store: Path) -> None:
    options = {"rewrite_every": 4, "lam_grid": [0.1, 10.0]}
    settings = SelectionRequest(k=18, method="greedy-rls", options=options)
    expected = run_selection(as_dataset(str(store)), settings, RunContext())
    job = write_job(store, method="greedy-rls", k=18, options=options)
    cache = store.parent / "job.result" / "cache"
    assert exit_code_after(signal.SIGKILL, 9, "run", job) == -signal.SIGKILL
    assert any(cache.glob("cache-8-*"))
    found = run_job(read_job(job))
    assert found.path == expected.path  # bit for bit
    assert found.counts["lam_grid"] == expected.counts["lam_grid"]
    assert found.counts["cache_rewrites"] < expected.counts["cache_rewrites"] == 4
    assert not cache.exists()


def test_a_resumed_job_needs_no_pass_for_the_rounds_before(store: Path) -> None:
    dataset = as_dataset(str(store))
    states: list[Any] = []
    settings = SelectionRequest(k=5, method="greedy-rls", lam=1.0)
    whole = run_selection(dataset, settings, RunContext(on_slice=lambda search: states.append(search.state())))
    for state in states:
        again = run_selection(dataset, settings, RunContext(state=json.loads(json.dumps(state))))
        assert again.path == whole.path
        assert np.array_equal(again.coefficients, whole.coefficients)
        assert again.counts["rounds_of_this_run"] == 5 - len(state["path"])


def test_a_cache_that_workers_elsewhere_do_not_see_is_refused_before_the_pass(store: Path) -> None:
    keys = {"workers": 2, "memory": "600MB"}
    job = write_job(
        store, method="greedy-rls", lam=1.0, options={"rewrite_every": 2},
        cluster={"kubernetes": {**keys, "image": "dsel:1"}},
    )  # fmt: skip
    for planned_or_run in (plan_job, run_job):
        with pytest.raises(OptionError, match=r"rewrite_every: the workers \(kubernetes\)"):
            planned_or_run(read_job(job))  # type: ignore[operator]
    assert not (store.parent / "job.result").exists()
    # Slurm's nodes see the folder of the result
    job = write_job(store, method="greedy-rls", lam=1.0, options={"rewrite_every": 2}, cluster={"slurm": keys})
    assert plan_job(read_job(job))[0].rewrite_every == 2

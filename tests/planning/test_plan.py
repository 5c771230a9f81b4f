"""A plan says beforehand what is counted afterwards, and refuses what cannot fit with the numbers that would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import yaml
import zarr
from typer.testing import CliRunner

import dsel
from dsel._lib.byte_sizes import parse_bytes
from dsel.cli import app
from dsel.config.job import ProofLimits, read_job
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.engine.engine_protocol import ThreadEngine
from dsel.errors import CapacityError
from dsel.jobs.runner import plan_job, run_job
from dsel.passes.data_pass import FAN_IN
from dsel.passes.statistics_cache import StatisticsCache
from dsel.planning.plan import Plan, make_plan
from dsel.planning.representations.memory import INTERPRETER, TASK_SHARE
from dsel.planning.representations.representation import Resources
from dsel.planning.validation import validate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.render import render
from dsel.selection.report.page import render_report
from tests.stores import count_reads, make_store, reads_so_far, regression

PLENTY = Resources(1, None, 8 << 30)


def agrees(selection: Any, *, exactly: bool = True) -> dict[str, Any]:
    planned, measured = selection.plan["planned"], selection.plan["measured"]
    assert selection.plan["exact"] is exactly
    assert (selection.passes, selection.bytes_read) == (measured["passes"], measured["bytes_read"])
    for name in ("passes", "bytes_read", "tasks"):
        assert measured[name] == planned[name] if exactly else measured[name] > 0, name
    return dict(measured)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same problem as tall rows, with weights, with missing values, square, and wide."""
    folder = tmp_path_factory.mktemp("plans")
    X, Y = regression(m=2000)
    w = np.random.default_rng(0).uniform(0, 2, 2000)
    holes = X.copy()
    holes[5, 3] = np.nan
    for name, x, y, weight, chunks in (
        ("tall", X, Y, None, (37, 24)), ("weighted", X, Y, w, (300, 24)), ("holes", holes, Y, None, (100, 24)),
        ("square", X[:24], Y[:24], None, (5, 24)), ("wide", X[:60].T.copy(), X[100:124, :2], None, (7, 60)),
    ):  # fmt: skip
        ingest_arrays(x, folder / f"{name}.zarr", y=y, weight=weight, chunks=chunks)
    return {path.stem: path for path in folder.iterdir()}


CASES: list[tuple[str, dict[str, Any]]] = [
    ("tall", {"method": "forward"}),
    ("tall", {"method": "forward", "unsupervised": True}),
    ("weighted", {"method": "foba", "lam": 0.5}),
    ("holes", {"method": "forward", "missing": "mean"}),
    ("square", {"method": "forward", "lam": 1.0}),
    ("wide", {"method": "forward", "lam": 1.0, "targets": ["y1"]}),
    ("tall", {"method": "kfold", "folds": 3, "repeats": 2}),
    ("holes", {"method": "kfold", "folds": 3, "missing": "mean", "lam_grid": (1.0, 2.0)}),
    ("tall", {"method": "greedy-rls", "include": [3]}),
    ("weighted", {"method": "greedy-rls", "lam_grid": (1.0, 10.0)}),
    ("wide", {"method": "greedy-rls", "lam": 1.0, "direction": "forward"}),
]


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_passes_bytes_and_tasks_are_those_planned(stores: dict[str, Path], name: str, asked: dict[str, Any]) -> None:
    k = 3
    plan = dsel.plan(stores[name], k=k, calibrate=False, **asked)
    count_reads()
    selection = dsel.select(stores[name], k=k, **asked)
    measured = agrees(selection)
    assert (plan.passes, plan.bytes_read, plan.tasks) == tuple(measured[n] for n in ("passes", "bytes_read", "tasks"))
    times = {key: n for key, n in reads_so_far().items() if key.startswith("X/")}
    assert set(times.values()) == {plan.passes}  # every chunk of X as often as there are passes
    if asked["method"] == "greedy-rls":
        assert plan.passes == 2 + k - len(asked.get("include", ())) + ("lam_grid" in asked)


@pytest.mark.parametrize("unsupervised", [True, False])
def test_a_reduced_problem_reads_what_was_planned(stores: dict[str, Path], unsupervised: bool) -> None:
    how = {"method": "forward", "reduce": {"rank": 8}, "unsupervised": unsupervised}
    plan = dsel.select(stores["tall"], k=3, **how).plan
    assert plan is not None
    for name in ("passes", "bytes_read", "tasks"):
        assert plan["measured"][name] == plan["planned"][name], name


@pytest.mark.parametrize(("name", "asked"), CASES[:6])
def test_the_block_that_a_run_reads_to_estimate_its_time_is_in_the_plan(
    stores: dict[str, Path], name: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dsel.plan(stores[name], k=3, calibrate=False, **asked)
    assert not small.has_trial
    monkeypatch.setattr("dsel.planning.plan.CALIBRATED_BYTES", small.bytes_read)
    plan = dsel.plan(stores[name], k=3, **asked)
    count_reads()
    measured = agrees(dsel.select(stores[name], k=3, **asked))
    assert (plan.passes, plan.bytes_read) == (measured["passes"], measured["bytes_read"])
    assert plan.passes == small.passes
    counts = [n for key, n in reads_so_far().items() if key.startswith("X/")]
    assert sorted(counts) == [plan.passes] * (len(counts) - 1) + [plan.passes + 1]
    X: Any = zarr.open_array(stores[name], path="X", mode="r")
    assert plan.bytes_read - small.bytes_read == X.dtype.itemsize * X.chunks[0] * X.shape[1]


def test_a_plan_of_the_estimate_is_kept_by_a_job_and_by_all_kinds_of_data(
    stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask.array as da

    monkeypatch.setattr("dsel.planning.plan.CALIBRATED_BYTES", 1)
    X, Y = regression(m=700)
    lazy = da.from_array(X, chunks=(90, 24))  # type: ignore[no-untyped-call]
    read = [
        agrees(dsel.select(x, Y, k=3, method="forward"))["bytes_read"] for x in (X, lazy, scipy.sparse.csr_matrix(X))
    ]
    assert read[1] == 2 * (X.nbytes + Y.nbytes) + 90 * 24 * 8
    job = tmp_path / "job.yaml"
    job.write_text(
        yaml.safe_dump({"store": str(stores["tall"]), "k": 3, "method": "forward", "out": str(tmp_path / "r")})
    )
    planned = json.loads(CliRunner().invoke(app, ["plan", str(job), "--json"]).stdout)
    measured = agrees(run_job(read_job(job)))
    assert [planned[n] for n in ("passes", "bytes_read")] == [measured[n] for n in ("passes", "bytes_read")]
    assert planned["stages"][0]["name"] == "trial"


def test_a_plan_from_sums_estimates_without_rows() -> None:
    X, Y = regression(m=700)
    plan = dsel.plan(dsel.sums(X, Y), k=3)
    assert (plan.passes, plan.bytes_read, plan.has_trial) == (0, 0, False)


def test_a_proof_on_workers_needs_room_for_compiled_code(stores: dict[str, Path]) -> None:
    validated, available = validate(as_dataset(stores["wide"]), SelectionRequest(k=3)), Resources(1, 2**30, 2**30)
    proofs = [(ProofLimits(), False)]
    plan = make_plan(validated, available, search_workers=1, proofs=proofs)
    assert plan.proof_bytes > plan.worker_bytes == make_plan(validated, available, search_workers=1).worker_bytes
    short = make_plan(validated, Resources(1, 2**28, 2**30), search_workers=1, proofs=proofs)
    assert "for its rounds or proofs and is limited to 256.00 MiB" in short.lacks


def test_data_in_memory_and_dask_arrays_are_planned_too() -> None:
    import dask.array as da

    X, Y = regression(m=700)
    lazy = da.from_array(X, chunks=(90, 24))  # type: ignore[no-untyped-call]
    for x in (X, lazy, scipy.sparse.csr_matrix(X)):
        for method in ("forward", "greedy-rls"):
            agrees(dsel.select(x, Y, k=3, method=method))


def test_held_out_rows_are_one_pass_more(stores: dict[str, Path]) -> None:
    keys: dict[str, Any] = {"k": 3, "method": "kfold", "folds": 3}
    alone = dsel.select(stores["tall"], **keys)
    tested = dsel.select(stores["tall"], held_out=str(stores["weighted"]), **keys)
    assert agrees(tested)["passes"] == agrees(alone)["passes"] + 1


def test_floating_rounds_are_at_least_those_planned(stores: dict[str, Path]) -> None:
    keys: dict[str, Any] = {"k": 4, "method": "greedy-rls", "direction": "floating"}
    selection = dsel.select(stores["tall"], **keys)
    measured = agrees(selection, exactly=False)
    assert measured["passes"] >= selection.plan["planned"]["passes"]  # type: ignore[index]


def test_folds_that_are_saved_need_no_pass_and_no_room(stores: dict[str, Path], tmp_path: Path) -> None:
    dataset, context = as_dataset(str(stores["tall"])), RunContext(cache=StatisticsCache(tmp_path))
    asked = SelectionRequest(k=3, method="kfold", lam=1.0, options={"folds": 3, "repeats": 2})

    def planned() -> Plan:
        return make_plan(validate(dataset, asked), PLENTY, cache=context.cache)

    assert agrees(run_selection(dataset, asked, context))["passes"] == 2
    there = sum(path.stat().st_size for path in tmp_path.rglob("*.npz"))
    assert (planned().passes, planned().disk_bytes) == (1, 0)
    assert agrees(run_selection(dataset, asked, context))["passes"] == 1
    next(tmp_path.iterdir()).unlink()
    assert planned().passes == 2
    assert there <= planned().disk_bytes <= there + 7 * 4096  # with headers


def test_with_a_cache_on_disk_the_plan_is_not_exact_and_has_its_room(stores: dict[str, Path]) -> None:
    selection = dsel.select(stores["tall"], k=6, method="greedy-rls", lam=1.0, rewrite_every=2)
    measured = agrees(selection, exactly=False)
    assert measured["passes"] == selection.plan["planned"]["passes"] == 1 + 3 + 1  # type: ignore[index]
    plan = dsel.plan(stores["tall"], k=6, method="greedy-rls", lam=1.0, rewrite_every=2, calibrate=False)
    assert plan.disk_bytes >= 2 * 8 * 2000 * (24 + 2)
    assert selection.counts["cache_bytes_read"] < measured["bytes_read"]


def test_of_column_chunks_the_last_pass_reads_at_most_what_was_planned(tmp_path: Path) -> None:
    X, Y = regression()
    selection = dsel.select(make_store(tmp_path / "s.zarr", X, Y, (100, 5)), k=3, method="forward")
    assert selection.plan is not None
    planned, measured = selection.plan["planned"], selection.plan["measured"]
    assert not selection.plan["exact"]
    assert (planned["passes"], planned["tasks"]) == (measured["passes"], measured["tasks"])
    assert measured["bytes_read"] <= planned["bytes_read"]


@pytest.mark.parametrize("columns", [24, 200])
def test_a_loss_reads_the_bytes_that_were_planned(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, columns))
    y = (X[:, :3].sum(axis=1) + rng.logistic(size=300) > 0).astype(float)
    store = make_store(tmp_path / "s.zarr", X, y[:, None], (100, columns))
    selection = dsel.select(store, k=3, method="forward", loss="logistic")
    measured = agrees(selection, exactly=False)
    reads = 5 + (2 if columns == 24 else 5)  # statistics, three models, the check, and columns for fits
    assert measured["bytes_read"] == reads * 8 * (X.size + y.size)
    assert measured["passes"] == 5
    planned = selection.plan["planned"]
    assert all(planned[name] == measured[name] for name in ("passes", "bytes_read", "tasks"))


@pytest.mark.parametrize("k", [3, 10])
def test_the_steps_of_fits_by_a_loss_count_for_data_in_memory(k: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 24))
    y = (X[:, :3].sum(axis=1) + rng.logistic(size=300) > 0).astype(float)
    selection = dsel.select(X, y, k=k, method="forward", loss="logistic")
    assert selection.plan is not None
    planned, measured = (selection.plan[name]["bytes_read"] for name in ("planned", "measured"))
    assert measured / 2 < planned < 2 * measured


@pytest.mark.usefixtures("no_pictures")
def test_a_read_for_columns_that_are_copies_is_measured_apart(tmp_path: Path) -> None:
    X, Y = regression()
    X[:, 20] = 3 * X[:, 2]
    selection = dsel.select(make_store(tmp_path / "s.zarr", X, Y, (100, 24)), k=3, method="forward")
    planned, measured = selection.plan["planned"], selection.plan["measured"]
    assert measured["of_copies"] == measured["bytes_read"] - planned["bytes_read"] > 0
    assert measured["passes"] == planned["passes"]
    assert " for columns that are copies, " in render(selection, details=True)
    assert "Bytes read for columns that are copies" in render_report(selection)


def needs(dataset: Any, n: int, N: int) -> int:
    """The limit of a worker for one pass, from the definition."""
    block = max(b.stop - b.start for b in dataset.blocks) * (8 * n + 8 * N)
    return int(((FAN_IN + 2) * 8 * n * (n + N) + 2 * block + INTERPRETER) / TASK_SHARE) + 1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, Y = regression(m=900, n=400)
    return make_store(tmp_path_factory.mktemp("big") / "s.zarr", X, Y, (100, 400))


class TestMemory:
    """400 columns: 1.28 MB a Gram matrix."""

    def plan(self, path: Path, limit: int | None, client: int = 8 << 30, **asked: Any) -> Plan:
        dataset = as_dataset(path)
        asked = {"k": 3, "method": "backward", **asked}  # which asks for the whole Gram matrix
        return make_plan(validate(dataset, SelectionRequest(**asked)), Resources(2, limit, client))

    def test_one_pass_where_the_gram_matrix_fits_a_worker_and_tiles_where_it_does_not(self, path: Path) -> None:
        least = needs(as_dataset(path), 400, 1)
        fits, tiles = self.plan(path, least), self.plan(path, least - (2 << 20))
        assert (fits.representation, fits.passes) == ("gram", 2)
        assert (tiles.representation, tiles.passes) == ("tiled-gram", 2)  # the triangle takes half of the square
        assert tiles.worker_bytes <= least - (2 << 20)
        assert "400 columns" in dict(tiles.rejected)["gram"]
        passes = [self.plan(path, least - (i << 20)).passes for i in range(2, 8)]
        assert passes == sorted(passes)
        assert passes[-1] > 3

    @pytest.mark.parametrize("by", [2, 5, 7])
    def test_a_run_by_tiles_is_as_planned_and_finds_the_same(self, path: Path, by: int) -> None:
        dataset = as_dataset(path)
        context = RunContext(ThreadEngine(2, needs(dataset, 400, 1) - (by << 20)))
        found = run_selection(dataset, SelectionRequest(k=4, method="forward"), context)
        assert found.plan is not None
        assert found.plan["representation"] == "tiled-gram"
        agrees(found)
        expected = dsel.select(path, k=4, method="forward")
        assert found.indices == expected.indices
        assert found.r2 == pytest.approx(expected.r2, rel=1e-12)

    def test_what_fits_neither_way_is_refused_with_what_would(self, path: Path) -> None:
        refused = self.plan(path, 150 << 20)
        with pytest.raises(CapacityError, match=r"limited to 150\.00 MiB") as error:
            refused.require()
        least = error.value.remedy.split("at least ")[1].split(",")[0]
        assert f"{least} are enough" in str(refused)
        assert self.plan(path, parse_bytes(least)).require().representation == "gram"
        with pytest.raises(CapacityError, match="in this process"):
            self.plan(path, None, client=1 << 20).require()

    def test_rounds_need_more_of_a_worker_than_the_gram_matrix(self, path: Path) -> None:
        assert self.plan(path, 250 << 20).require().representation == "gram"
        with pytest.raises(CapacityError, match="for its rounds or proofs and is limited to"):
            self.plan(path, 250 << 20, method="greedy-rls").require()

    def test_folds_are_not_summed_by_tiles(self, path: Path) -> None:
        refused = self.plan(path, 230 << 20, method="kfold")
        with pytest.raises(CapacityError, match="fewer folds"):
            refused.require()
        with pytest.raises(CapacityError, match='choose_k="ebic"'):
            self.plan(path, 230 << 20, method="forward", k="auto", choose_k="folds").require()


class TestAJob:
    def job(self, folder: Path, **keys: Any) -> Path:
        X, Y = regression(m=900)
        if not (folder / "s.zarr").exists():
            make_store(folder / "s.zarr", X, Y, (100, 24))
        job = {"store": "s.zarr", "k": 3, "method": "forward", "cluster": {"local": {"workers": 1, "memory": "600MB"}}}
        (folder / "job.yaml").write_text(yaml.safe_dump({**job, **keys}))
        return folder / "job.yaml"

    def test_its_plan_is_printed_and_compared_with_what_was_measured(self, tmp_path: Path) -> None:
        path = self.job(tmp_path, method="greedy-rls")
        printed = CliRunner().invoke(app, ["plan", str(path)])
        assert printed.exit_code == 0, printed.output
        assert "representation: gram: the Gram matrix (24 x 24" in printed.output
        assert re.search(r"in all: 5 passes, .* read, \d+ tasks", printed.output)
        assert "time: " in printed.output
        assert not (tmp_path / "job.result").exists()
        asked = json.loads(CliRunner().invoke(app, ["plan", str(path), "--json"]).output)
        selection = run_job(read_job(path))
        measured = agrees(selection)
        assert {name: asked[name] for name in ("passes", "bytes_read", "tasks")} == {
            name: measured[name] for name in ("passes", "bytes_read", "tasks")
        }
        assert 0 < measured["worker_memory"] <= asked["worker_bytes"]
        assert dsel.open_selection(tmp_path / "job.result").plan == selection.plan
        assert "planned and measured: 5 and 5 passes" in render(selection, details=True)
        again, _ = plan_job(read_job(path, tmp_path / "other"))
        assert (again.passes, again.disk_bytes) == (4, 0)  # the statistics are saved
        saved = sum(file.stat().st_size for file in (tmp_path / "s.zarr.artefacts").rglob("*") if file.is_file())
        assert saved == pytest.approx(asked["disk_bytes"], rel=0.5)

    def test_a_proof_to_follow_is_noted_and_reads_nothing(self, tmp_path: Path) -> None:
        path = self.job(tmp_path, certify={"nodes": 5})
        plan, _ = plan_job(read_job(path))
        assert any("proof reads no data" in note for note in plan.notes)
        assert plan.passes == 2

    def test_it_says_what_it_does_not_know_exactly(self, tmp_path: Path) -> None:
        path = self.job(tmp_path, method="poss", options={})
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "nothing compiled")}
        words = [sys.executable, "-m", "dsel", "plan", str(path)]
        printed = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600).stdout
        assert re.search(r"time: [^;]+ for the passes; .* for at most [\d,]+ iterations of the search", printed)
        assert re.search(r"note: the first search compiles before, for about \d+ s", printed)

    def test_what_does_not_fit_is_printed_and_refused_before_any_worker_starts(self, tmp_path: Path) -> None:
        path = self.job(tmp_path, cluster={"local": {"workers": 1, "memory": "100MB"}})
        printed = CliRunner().invoke(app, ["plan", str(path)])
        assert "does not fit: A worker needs" in printed.output
        assert isinstance(printed.exception, CapacityError)
        with pytest.raises(CapacityError, match=r"at least .*, smaller row blocks \(dsel ingest --memory\)"):
            run_job(read_job(path))
        assert not (tmp_path / "job.result").exists()


def test_one_is_in_the_singular(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    ingest_arrays(X, tmp_path / "s.zarr", y=X[:, 1])
    lines = str(dsel.plan(tmp_path / "s.zarr", k=2, method="forward"))
    assert re.search(r"1 pass, .* read, 1 task, ", lines)
    assert not re.search(r"\b1 (passes|tasks|workers|iterations)\b", lines)

"""Run the tests on few cores: each file in one process (--dist loadfile), all with one shared numba cache."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import dask
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# The matrices in the tests are small, and threads of BLAS would wait for each other. Processes that tests start keep
# the compiled code in the cache of the package, so that it is compiled only once.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.set_threshold(20_000)  # importing the tests makes 600 collections otherwise, of 0.7 s
# RuntimeWarnings in dsel are errors here (pyproject.toml) and, by a sitecustomize module, in processes of the tests.
_STRICT = str(Path(__file__).parent / "strict_warnings")
os.environ["PYTHONPATH"] = os.pathsep.join([_STRICT, *filter(None, [os.environ.get("PYTHONPATH")])])

# How long an example takes depends on what else runs on the machine. Each run has the same examples, as in CI.
settings.register_profile(
    "steady", settings.default, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("steady")

#: What a worker of a cluster imports before its first task, or soon after.
_WORKER_MODULES = [
    "distributed", "distributed.nanny", "zarr", "dsel.engine.dask_engine", "dsel.passes.gram", "dsel.api.run_proofs",
    "dsel.search.portfolio.method",
]  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _workers_are_forked() -> None:
    """Fork the workers of clusters in this process from one that has imported everything.

    Each then takes a quarter of the processor time. Processes of `dsel` that tests start make theirs as usual.
    """
    from distributed.utils import get_mp_context

    from dsel.engine.clusters.dask_config import LOCAL

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    dask.config.set(LOCAL)  # also for clusters that tests start themselves
    get_mp_context()  # it sets another list, once
    multiprocessing.set_forkserver_preload(_WORKER_MODULES)


@pytest.fixture(scope="session", autouse=True)
def _searches_prepare_little() -> None:
    """Let searches in this process reserve and look ahead for as much as small data need.

    For large data they reserve files of 256 MiB for rows of the Gram matrix, and look ahead by millions of iterations.
    Neither changes what a search finds.
    """
    from dsel.objective import gram_row_cache
    from dsel.search.pareto import compiled

    assert (gram_row_cache._SEGMENT_BYTES, compiled._MAX_AHEAD) == (1 << 28, 1 << 22)
    gram_row_cache._SEGMENT_BYTES, compiled._MAX_AHEAD = 1 << 20, 1 << 14


@pytest.fixture(scope="session", autouse=True)
def _commands_are_made_once() -> None:
    """Let the command line keep its commands, which are always the same. Typer takes 30 ms to make them for a call."""
    import typer.main
    import typer.testing

    typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the jobs of a test in this process, whatever cluster they name."""
    from tests.no_workers import run_here

    run_here(monkeypatch)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures out of the report, for tests of its words: matplotlib takes half a second for a page."""
    from markupsafe import Markup

    from dsel.selection.report import figures

    monkeypatch.setattr(figures, "svg", lambda *arguments: Markup(""))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each process import the test files from another file on.

    In a new checkout the processes then compile different files, where all would compile each file at the same time.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    root, asked = Path(__file__).parents[1], [Path(name.partition("::")[0]).resolve() for name in session.config.args]
    files = sorted(file for path in asked for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    after = len(files) * int(worker.removeprefix("gw")) // workers
    for file in files[after:] if after else ():
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exempt what stays until the end, such as modules and the tests themselves, from collections of garbage."""
    gc.collect()
    gc.freeze()


#: Files that start first, in this order; the others are short. The first and the one after the gap each compile a
#: search, which takes up to a minute. The files that start with them need neither search, so that no two processes
#: compile the same code. Long files start early, so that no core waits for the other at the end.
FIRST = (
    "search/pareto/test_poss.py", "lib/test_kernel_arrays.py",
    "test_style.py", "passes/test_eigendecomposition.py", "data/test_ingest.py",
    "search/cross_validation/test_greedy_rls.py", "search/exact/test_branch_and_bound.py",
    "jobs/test_runner.py", "deploy/test_slurm.py", "cloud/test_job.py", "engine/executors/test_dask_futures.py",
    "jobs/test_greedy_rls_job.py",
    "deploy/test_kubernetes.py", "docs/test_site.py", "docs/test_examples.py", "sklearn/test_conventions.py",
    "pipelines/test_papers.py", "selection/test_wide.py", "jobs/test_pposs_job.py", "jobs/test_certify.py",
    "docs/test_where_searches_run.py", "cloud/test_append.py", "passes/test_loo_disk_cache.py", "planning/test_plan.py",
)  # fmt: skip


#: What the tests of several files share in one process: the code that numba compiles of skglm, and pages of reports.
TOGETHER = {"skglm": r"\b(mcp|scad)\b|poss_table_2", "reports": r"^tests/selection/report/test_(page|browser)\.py"}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Return what gives each process whole files, but all tests that share something to one process."""
    if config.getoption("dist") != "loadfile":
        return None

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = (name for name, pattern in TOGETHER.items() if re.search(pattern, nodeid))
            return next(shared, nodeid.partition("::")[0])

    return Scheduler(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes: one more than there are cores, since many tests wait for other processes."""
    return min(4, len(os.sched_getaffinity(0)) + 1)


#: Folders of the tests that check one object in one process. Those of them that are not slow are marked quick.
QUICK = ("config", "data", "objective", "oracles", "search", "storage", "verification")


# Before the selection by `-m`, which is a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in QUICK and item.get_closest_marker("slow") is None:
            item.add_marker("quick")
    place = {here / name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))

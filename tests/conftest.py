"""How the tests run together on few cores, each file by one process (--dist loadfile)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Matrices here are small: threads of BLAS would only wait for one another. Processes that tests start keep what they
# have compiled, whatever this one was told: each would compile all of dsel again.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Handed out in this order, then the others, short ones. The first and the one after the gap compile a search each, a
#: minute where nothing is cached; what starts beside them needs neither, so that no two processes compile the same.
#: Long ones are not left for the end, where one core would wait.
FIRST = (
    "search/pareto/test_poss.py", "lib/test_kernel_arrays.py",
    "test_style.py", "passes/test_eigendecomposition.py", "data/test_ingest.py", "search/greedy/test_greedy_rls.py",
    "search/exact/test_branch_and_bound.py",
    "jobs/test_runner.py", "same_results/test_same_results.py",
    "deploy/test_slurm.py", "cloud/test_job.py", "engine/executors/test_dask_futures.py",
    "jobs/test_greedy_rls_job.py",
    "deploy/test_kubernetes.py", "search/exact/test_astar.py", "pipelines/test_exact.py", "pipelines/test_papers.py",
    "selection/test_select.py", "selection/test_wide.py", "jobs/test_pposs_job.py", "objective/test_on_demand.py",
    "jobs/test_certify.py",
    "passes/test_loo_disk_cache.py", "cloud/test_publication.py", "planning/test_plan.py", "test_security.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    place = {here / name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))

"""PPOSS on local worker processes: the result is that of one process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsel.engine.dask_futures import LocalProcessExecutor
from dsel.errors import CriterionError
from tests.cli_runner import LIMIT
from tests.engine.executors.cases import LoggedCriterion, dies_and_hangs, run, undisturbed
from tests.search.pareto.by_hand import all_of

ROOT = Path(__file__).parents[3]

UNGUARDED = """
import numpy as np, dsel
X = np.random.default_rng(0).normal(size=(50, 8))
print(dsel.select(X, X[:, 3], k=2, method="pposs", criterion=lambda S: len(S), processes=2, iterations=300).indices)
"""


def test_the_result_is_that_of_one_process_and_nothing_is_evaluated_twice(tmp_path) -> None:
    criterion = LoggedCriterion(tmp_path / "calls")
    search, _ = run(LocalProcessExecutor, criterion, processes=2)
    assert all_of(search) == all_of(undisturbed())
    assert len(criterion.calls()) == len(set(criterion.calls())) == undisturbed().evaluations


@pytest.mark.slow
def test_a_process_that_hangs_is_restarted_and_one_that_dies_is_replaced(tmp_path) -> None:
    criterion = LoggedCriterion(tmp_path / "calls", bad=dies_and_hangs)
    search, stats = run(LocalProcessExecutor, criterion, processes=1, evaluation_limit=0.3)
    assert all_of(search) == all_of(undisturbed())
    assert stats.lost_tasks >= 1  # more, if a slow machine takes 0.3 s for another
    assert criterion.path.with_suffix(".died").exists()


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_an_error_that_names_it(tmp_path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    found = subprocess.run(
        [sys.executable, tmp_path / "script.py"], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 1
    assert 'needs `if __name__ == "__main__":`' in found.stderr.splitlines()[-1]


def test_a_criterion_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(CriterionError, match="cannot be sent to a worker: TypeError"):
        run(LocalProcessExecutor, lambda S: lock.locked(), processes=1)

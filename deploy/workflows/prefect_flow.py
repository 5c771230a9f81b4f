"""Run a selection as a flow of Prefect.

usage: python prefect_flow.py measurements.csv yield 4

A job that is stopped (exit code 75) continues from its checkpoint when its task is tried again. Any other error ends
the flow at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from prefect import flow, task

STOPPED = 75


def dsel(*arguments: str) -> str:
    """Run a command of dsel, and return what it prints."""
    return subprocess.run(["dsel", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def was_stopped(task: Any, run: Any, state: Any) -> bool:
    """Return whether a try has ended with a checkpoint to continue from."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, subprocess.CalledProcessError) and error.returncode == STOPPED


@task
def ingest(table: str, target: str, store: str) -> str:
    """Write a table into a store."""
    dsel("ingest", table, store, "--target", target)
    return store


@task(retries=3, retry_delay_seconds=10, retry_condition_fn=was_stopped)
def select(store: str, k: int, result: str) -> dict[str, Any]:
    """Choose k columns, and return the result as `dsel run --json` prints it."""
    dsel("init", store, "--k", str(k), "--overwrite")
    answer: dict[str, Any] = json.loads(dsel("run", "job.yaml", "--out", result, "--json"))
    return answer


@flow
def selection(table: str, target: str, k: int) -> list[str]:
    """Ingest a table, choose columns, and write the report."""
    answer = select(ingest(table, target, "data.zarr"), k, "result")
    dsel("report", "result")
    labels: list[str] = answer["labels"]
    return labels


if __name__ == "__main__":
    print(*selection(sys.argv[1], sys.argv[2], int(sys.argv[3])))

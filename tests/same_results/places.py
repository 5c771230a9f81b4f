"""Where cases run: this process, a Dask cluster in this process, or the command line."""

from __future__ import annotations

import logging
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml


@contextmanager
def workers(memory: str | None, count: int = 2) -> Iterator[Any]:
    """A Dask client with workers that are threads of this process. Their memory limit is what the plan sees; it is not
    kept, for it would count all of this process."""
    import dask
    from distributed import Client, LocalCluster

    settings: dict[str, Any] = {
        f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")
    }
    with (
        _quiet(),
        dask.config.set(settings),
        LocalCluster(
            n_workers=count, threads_per_worker=1, processes=False, memory_limit=memory or 0,
            dashboard_address="127.0.0.1:0", silence_logs=50,
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing below an error is logged, so that what a test prints is what differs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def shell(*arguments: Any) -> tuple[int, str, str]:
    """`python -m dsel` with these arguments, in this process: exit code, standard output, standard error."""
    out, err = StringIO(), StringIO()
    with (
        _quiet(),
        patch.object(sys, "argv", ["dsel", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            runpy.run_module("dsel", run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def job(folder: Path, **keys: Any) -> Path:
    """A job file, with one worker where nothing else is said."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    keys = {"cluster": {"local": {"workers": 1, "memory": "600MB"}}, "out": "result", **keys}
    path.write_text(yaml.safe_dump(keys))
    return path


def run_job(folder: Path, **keys: Any) -> Path:
    """The folder of its result."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers keep what they have compiled
    code, _, err = shell("run", job(folder, **keys))
    assert code == 0, err
    return folder / "result"

"""Jobs whose cluster is this process: starting workers takes longer than a small job."""

from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from dsel.engine import scheduler_plugins
from dsel.engine.clusters import connect
from dsel.engine.engine_protocol import ThreadEngine
from dsel.jobs import runner, workers
from dsel.jobs.checkpoint import Checkpoints


class EngineHere(ThreadEngine):
    """The engine of a job without a cluster."""

    def peak_memory(self) -> dict[str, tuple[int, int]]:
        return {}

    def errors(self, fail: Any) -> Any:
        return nullcontext()


def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make passes run in this process, whatever the cluster of a job is."""
    cluster = SimpleNamespace(
        promised=lambda: (1, None), current=lambda: (1, None), open=lambda name, logs: nullcontext(),
        no_worker_limit=None, shares_files=True, own_hosts=False, starts_workers=False,
    )  # fmt: skip
    for module in (runner, connect):
        monkeypatch.setattr(module, "cluster_of", lambda section: cluster)
    monkeypatch.setattr(workers, "DaskEngine", lambda *arguments: EngineHere())
    monkeypatch.setattr(scheduler_plugins, "progress_metrics", lambda client, run: nullcontext())


def exit_code_after(number: int, saves: int, *arguments: Any) -> int | None:
    """Return the exit code of `dsel` with these arguments, which gets a signal when it has saved its search so often.

    It is a process without workers, forked from one that has imported everything.
    """
    forks = multiprocessing.get_context("forkserver")
    process = forks.Process(target=_be_signalled, args=(number, saves, *map(str, arguments)))
    process.start()
    process.join(600)
    return process.exitcode


def _be_signalled(number: int, saves: int, *arguments: str) -> None:
    from dsel.__main__ import main

    run_here(pytest.MonkeyPatch())
    plain, saved = Checkpoints._save, []

    def save(self: Checkpoints, search: Any) -> None:
        plain(self, search)
        saved.append(search)
        if len(saved) == saves:
            os.kill(os.getpid(), number)

    Checkpoints._save = save  # type: ignore[method-assign]
    sys.argv = ["dsel", *arguments]
    main()

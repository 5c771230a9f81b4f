"""A lost scheduler is one error within seconds, whatever the client was doing; workers that come and go are logged."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from dask.delayed import delayed

import dsel
from dsel.config.cluster import ClusterSection
from dsel.engine import scheduler_watch as module
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.local import local_cluster
from dsel.engine.connect import engine_of
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import ClusterError
from dsel.jobs.checkpoint import Checkpoints
from dsel.search.ask_tell import ExecutorOptions, Task
from tests.cli_runner import LIMIT, call, wait_for
from tests.remote_cluster import remote_cluster
from tests.stores import make_store, regression


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECONNECT_SECONDS", 0.5)
    monkeypatch.setattr(module, "_WORKERS_SECONDS", 0.2)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)


class Sleeping:
    """Work of a search that takes long."""

    def __call__(self, task: Task) -> Any:
        time.sleep(LIMIT)

    def cleanup(self) -> tuple[Any, ...]:
        return ()


def a_pass(engine: DaskEngine, begun: Callable[[], None]) -> None:
    begun()
    engine.run([delayed(time.sleep)(LIMIT)])


def kept_blocks(engine: DaskEngine, begun: Callable[[], None]) -> None:
    begun()
    while True:
        engine.keep([delayed(int)(3)])


def a_plan(engine: DaskEngine, begun: Callable[[], None]) -> None:
    begun()
    while True:
        assert engine.workers == 1


def a_search_on_workers(engine: DaskEngine, begun: Callable[[], None]) -> None:
    executor = engine.executor(Sleeping(), ExecutorOptions())
    executor.submit(Task("one", ((0,),)))
    begun()
    while True:
        executor.poll(0.1)
        assert executor.workers == 1


ACTIONS = (a_pass, kept_blocks, a_plan, a_search_on_workers)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_whatever_the_client_does_it_is_one_error_within_seconds(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler is killed, or it hangs."""
    ended: dict[str, BaseException] = {}
    begun = threading.Semaphore(0)

    def run(action: Callable[..., None]) -> None:
        try:
            with cluster_of(section).open("dsel-test") as client, engine_of(client) as engine:
                action(engine, begun.release)
        except BaseException as error:
            ended[action.__name__] = error

    with remote_cluster() as (address, process):
        section = ClusterSection.model_validate({"address": address})
        threads = [threading.Thread(target=run, args=(action,)) for action in ACTIONS]
        for thread in threads:
            thread.start()
        for _ in ACTIONS:
            assert begun.acquire(timeout=600)
        time.sleep(0.2)
        monkeypatch.setattr(module, "SILENCE_SECONDS", 1.0)
        process.send_signal(number)
        deadline = time.monotonic() + 600
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
    assert {name: type(error) for name, error in ended.items()} == {a.__name__: ClusterError for a in ACTIONS}
    assert {str(error) for error in ended.values()} == {str(module.scheduler_lost())}


def wait_after_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a search wait after a checkpoint until something interrupts it: it cannot end before."""
    plain = Checkpoints._save

    def save(self: Checkpoints, search: Any) -> None:
        plain(self, search)
        wait_for(lambda: self._interrupts.received)

    monkeypatch.setattr(Checkpoints, "_save", save)


def test_a_job_ends_with_69_and_one_line_and_continues_on_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = regression(m=500)
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))
    options = {"iterations": 4_000_000, "exchange_every": 50_000}
    job, log = tmp_path / "job.yaml", tmp_path / "job.result" / "run.log"

    def write(cluster: dict[str, Any]) -> None:
        keys = {"store": store.name, "k": 5, "options": options, "checkpoint_seconds": 0.1, "cluster": cluster}
        job.write_text(yaml.safe_dump(keys))

    def kill(process: Any) -> None:
        wait_for((log.parent / "checkpoint.json").exists)
        process.kill()

    with remote_cluster() as (address, process), monkeypatch.context() as patch:
        wait_after_saving(patch)
        write({"address": {"address": address, "wait": "10m"}})
        thread = threading.Thread(target=kill, args=(process,))
        thread.start()
        code, _, err = call("run", job)
        thread.join()
    assert code == 69, err
    assert "Traceback" not in err
    assert err.count("The scheduler was lost.") == 1
    assert "ERROR The scheduler was lost." in log.read_text()
    assert "schedule" in json.loads((log.parent / "checkpoint.json").read_text())["state"]
    write({"local": {"workers": 1, "memory": "600MB"}})
    code, _, err = call("run", job)
    assert code == 0, err
    found = dsel.open_selection(log.parent)
    expected = dsel.select(store, k=5, **options)
    assert (found.front, found.iterations) == (expected.front, expected.iterations)


def test_a_lost_worker_and_its_replacement_are_logged_with_the_number_left(caplog: pytest.LogCaptureFixture) -> None:
    """A local worker comes back however long that takes, where Dask would give it up."""
    impatient = dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"})
    with impatient, caplog.at_level(logging.INFO, "dsel"), local_cluster(2, "600MB") as client:
        pids = client.run(os.getpid)
        names = {address: worker["name"] for address, worker in client.scheduler_info()["workers"].items()}
        address, pid = next(iter(pids.items()))
        wait_for(lambda: module._watches[client]._workers)  # it has seen both
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "joined" in caplog.text)
    assert f"worker {names[address]} ({address}) is lost: 1 of 2 are left" in caplog.text
    assert f"worker {names[address]} (" in caplog.text.split("is lost")[1]
    assert "joined: there are 2 now" in caplog.text
    assert caplog.text.count(" lost: ") == 1  # not those that end with the cluster
